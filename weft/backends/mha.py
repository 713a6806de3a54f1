"""The switch of the fused path of attention layers."""

from ..eager.torch_core.backend_flags import get_fastpath_enabled, set_fastpath_enabled

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]
