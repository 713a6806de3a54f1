"""The old name of a tensor that autograd follows."""

from ..eager.autograd import Variable

__all__ = ["Variable"]
