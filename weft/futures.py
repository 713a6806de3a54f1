"""Values that are not there yet, and waiting for many of them."""

from .eager.torch_core.future import Future, collect_all, wait_all

__all__ = ["Future", "collect_all", "wait_all"]
