"""The operators of the registry that are matrix products, by the native one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, FLOAT64
from ...core.op import Op
from .generic import run_computed, run_generic
from .product import multiply, worth_native

Array = np.ndarray[Any, Any]
SMALLEST = 1 << 10  # elements of the larger factor


class Product(NamedTuple):
    """Two factors, and the shape of what they give."""

    a: Array
    b: Array
    shape: tuple[int, ...] | None = None  # where it is another than that of the product
    bias: Array | None = None


def _matmul(params: Any, a: Array, b: Array) -> Product:
    left, right = _turned(a, params.transpose_a), _turned(b, params.transpose_b)
    return Product(_flat(left, -1), _flat(right, 1), left.shape[:-1] + right.shape[1:])


def _grad_lhs(params: Any, g: Array, b: Array, like: Array) -> Product | None:
    """g b', turned as lhs was: a transposed product is the product of what is transposed."""
    right = _turned(b, params.transpose_b)
    rows = g.shape[: g.ndim + 1 - right.ndim]
    left, right = _flat(g, len(rows)), _flat(right, 1)
    if not params.transpose_a:
        return Product(left, right.T, (*rows, right.shape[0]))
    return Product(right, left.T) if len(rows) == 1 else None


def _grad_rhs(params: Any, g: Array, a: Array, like: Array) -> Product | None:
    left = _turned(a, params.transpose_a)
    columns = g.shape[left.ndim - 1 :]
    left, right = _flat(left, -1), _flat(g, left.ndim - 1)
    if not params.transpose_b:
        return Product(left.T, right, (left.shape[1], *columns))
    return Product(right.T, left) if len(columns) == 1 else None


def _turned(array: Array, is_turned: bool) -> Array:
    return array.T if is_turned else array


def _flat(array: Array, rows: int) -> Array:
    """As a matrix, whose rows are some axes and whose columns are the others."""
    if array.ndim == 2:
        return array
    return array.reshape(prod(array.shape[:rows]), prod(array.shape[rows:]))


def _batched(params: Any, a: Array, b: Array) -> Product:
    return Product(a.swapaxes(-1, -2) if params.transpose_a else a, b.swapaxes(-1, -2) if params.transpose_b else b)


def _dense(params: Any, x: Array, w: Array, bias: Array | None = None) -> Product:
    return Product(x, w.T, bias=bias)


def _run(product: Callable[..., Product | None], _: Op, params: Any, arrays: Sequence[Array]) -> Any:
    """The product that a call stands for; None where it is small, or not one of matrices."""
    dtype = arrays[0].dtype
    if dtype not in (FLOAT32, FLOAT64) or any([array.dtype != dtype for array in arrays]):
        return None
    if min([array.ndim for array in arrays[:2]]) < 2:
        return None
    found = product(params, *arrays)
    if found is None or found.a.shape[-1] != found.b.shape[-2]:
        return None
    if not worth_native(found.a.shape, found.b.shape):
        return None
    made = multiply(found.a, found.b, found.bias)
    return made if found.shape is None else made.reshape(found.shape)


def _call(product: Callable[..., Product | None]) -> tuple[int, Callable[..., Any]]:
    return SMALLEST, partial(_run, product)


def _distances(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """Squares of rows, less twice their products; or differences, where those are asked for."""
    a, b = arrays
    if a.dtype not in (FLOAT32, FLOAT64) or not a.size or not b.size:
        return None
    if not params.by_products:
        return run_generic(op, params, arrays)[0]
    squares = [np.einsum("...k,...k->...", x, x) for x in arrays]
    products = multiply(a, b.swapaxes(-1, -2))
    return run_computed("distances", "distances", _roots, [products, *squares])[0]


def _roots(products: te.Tensor, left: te.Tensor, right: te.Tensor) -> te.Tensor:
    def root(*i: Any) -> Any:
        square = left[i[:-1]] + right[(*i[:-2], i[-1])] - products[i] * 2.0
        return te.sqrt(te.select(square < 0.0, 0.0, square))

    return te.compute(products.shape, root)


CALLS = {
    "distances": (1 << 8, _distances),
    "matmul": _call(_matmul),
    "_matmul_grad_lhs": _call(_grad_lhs),
    "_matmul_grad_rhs": _call(_grad_rhs),
    "batch_matmul": _call(_batched),
    "dense": _call(_dense),
}
