"""What training loops need beside tensors and modules."""

from . import data

__all__ = ["data"]
