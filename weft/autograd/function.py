"""Functions that users differentiate themselves."""

from ..eager.function import Function, FunctionCtx, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
