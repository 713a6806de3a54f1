"""A tree of named parameters, buffers and modules."""

from ..eager.tensor.ordered_dicts import Module

__all__ = ["Module"]
