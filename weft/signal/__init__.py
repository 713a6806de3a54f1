"""What is done to signals, as PyTorch users know it."""

from . import windows

__all__ = ["windows"]
