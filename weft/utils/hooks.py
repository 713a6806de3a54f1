"""What registering a hook gives."""

from ..eager.autograd.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
