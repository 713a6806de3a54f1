"""What training loops need beside tensors and modules."""

from . import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
