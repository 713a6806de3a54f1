"""The old name of a tensor that autograd follows."""

from ..eager.autograd.backward import Variable

__all__ = ["Variable"]
