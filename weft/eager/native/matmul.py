"""The operators of the registry that are matrix products, by the native one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...core.op import Op
from .calls import Array, Declined, Run, floats, native
from .generic import run_computed, run_generic
from .product import multiply, worth_native


class Product(NamedTuple):
    """Two factors, and the shape of what they give."""

    a: Array
    b: Array
    shape: tuple[int, ...] | None = None  # where it is another than that of the product
    bias: Array | None = None


def _turned(array: Array, is_turned: bool) -> Array:
    return array.T if is_turned else array


def _flat(array: Array, rows: int) -> Array:
    """As a matrix, whose rows are some axes and whose columns are the others."""
    if array.ndim == 2:
        return array
    return array.reshape(prod(array.shape[:rows]), prod(array.shape[rows:]))


def _product(name: str) -> Callable[[Callable[..., Product]], Run]:
    """Registers an operator by the product that its params and arrays are."""

    def register(product: Callable[..., Product]) -> Run:
        @native(name, takes=floats, fitting=False)
        def run(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
            """None where the product is small."""
            if min([array.ndim for array in arrays[:2]]) < 2:
                raise Declined("rank")
            a, b, shape, bias = product(params, *arrays)
            if a.shape[-1] != b.shape[-2]:
                raise Declined("shapes")
            if not worth_native(a.shape, b.shape):
                return None
            result = multiply(a, b, bias)
            return result if shape is None else result.reshape(shape)

        return run

    return register


@_product("matmul")
def _matmul(params: Any, a: Array, b: Array) -> Product:
    left, right = _turned(a, params.transpose_a), _turned(b, params.transpose_b)
    return Product(_flat(left, -1), _flat(right, 1), left.shape[:-1] + right.shape[1:])


@_product("_matmul_grad_lhs")
def _grad_lhs(params: Any, g: Array, b: Array, like: Array) -> Product:
    """g b', turned as lhs was: a transposed product is the product of what is transposed."""
    right = _turned(b, params.transpose_b)
    rows = g.shape[: g.ndim + 1 - right.ndim]
    left, right = _flat(g, len(rows)), _flat(right, 1)
    if not params.transpose_a:
        return Product(left, right.T, (*rows, right.shape[0]))
    if len(rows) != 1:
        raise Declined("rank")
    return Product(right, left.T)


@_product("_matmul_grad_rhs")
def _grad_rhs(params: Any, g: Array, a: Array, like: Array) -> Product:
    left = _turned(a, params.transpose_a)
    columns = g.shape[left.ndim - 1 :]
    left, right = _flat(left, -1), _flat(g, left.ndim - 1)
    if not params.transpose_b:
        return Product(left.T, right, (left.shape[1], *columns))
    if len(columns) != 1:
        raise Declined("rank")
    return Product(right.T, left)


@_product("batch_matmul")
def _batched(params: Any, a: Array, b: Array) -> Product:
    return Product(a.swapaxes(-1, -2) if params.transpose_a else a, b.swapaxes(-1, -2) if params.transpose_b else b)


@_product("dense")
def _dense(params: Any, x: Array, w: Array, bias: Array | None = None) -> Product:
    return Product(x, w.T, bias=bias)


@native("distances", takes=floats, fitting=False)
def run_distances(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """Squares of rows, less twice their products; or differences, where those are asked for."""
    a, b = arrays
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
