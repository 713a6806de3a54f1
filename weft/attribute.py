"""Attributes for all symbols of a `with` block: AttrScope."""

from .core.naming import AttrScope

__all__ = ["AttrScope"]
