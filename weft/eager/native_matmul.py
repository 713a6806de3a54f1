"""The operators of the registry that are matrix products, by the native one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import FLOAT32, FLOAT64
from ..core.op import Op
from .native_product import multiply, worth_native

Array = np.ndarray[Any, Any]
Factors = tuple[Array, Array]

SMALLEST = 1 << 10  # elements of the larger factor


def _matmul(params: Any, a: Array, b: Array) -> Factors:
    return a.T if params.transpose_a else a, b.T if params.transpose_b else b


def _grad_lhs(params: Any, g: Array, b: Array, like: Array) -> Factors:
    """g b', turned as lhs was: a transposed product is the product of what is transposed."""
    right = b if params.transpose_b else b.T
    return (right.T, g.T) if params.transpose_a else (g, right)


def _grad_rhs(params: Any, g: Array, a: Array, like: Array) -> Factors:
    left = a if params.transpose_a else a.T
    return (g.T, left.T) if params.transpose_b else (left, g)


def _batched(params: Any, a: Array, b: Array) -> Factors:
    return (
        a.swapaxes(-1, -2) if params.transpose_a else a,
        b.swapaxes(-1, -2) if params.transpose_b else b,
    )


def _dense(params: Any, x: Array, w: Array, *bias: Array) -> Factors:
    return x, w.T


def _run(factors: Callable[..., Factors], _: Op, params: Any, arrays: Sequence[Array]) -> Any:
    """The product that a call stands for; None where it is small, or not one of matrices."""
    dtype = arrays[0].dtype
    if dtype not in (FLOAT32, FLOAT64) or any(array.dtype != dtype for array in arrays):
        return None
    if min([array.ndim for array in arrays[:2]]) < 2:
        return None
    if factors in _OF_MATRICES and max([array.ndim for array in arrays[:2]]) > 2:
        return None
    a, b = factors(params, *arrays)
    if a.shape[-1] != b.shape[-2] or not worth_native(a.shape, b.shape):
        return None
    return multiply(a, b, arrays[2] if factors is _dense and len(arrays) == 3 else None)


_OF_MATRICES = (_matmul, _grad_lhs, _grad_rhs)


def _call(factors: Callable[..., Factors]) -> tuple[int, Callable[..., Any]]:
    return SMALLEST, lambda op, params, arrays: _run(factors, op, params, arrays)


CALLS = {
    "matmul": _call(_matmul),
    "_matmul_grad_lhs": _call(_grad_lhs),
    "_matmul_grad_rhs": _call(_grad_rhs),
    "batch_matmul": _call(_batched),
    "dense": _call(_dense),
}
