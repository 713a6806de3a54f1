"""Matrix products of numpy arrays with any strides, by programs of one kernel: what numpy's matmul gives, in
order of memory, comes out. Which kernel runs, and how its work is cut, depends on sizes alone."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ...base.cpu_target import host
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.errors import DTypeError, LayoutError, ShapeError
from ...lower.cpu.matrices.strided_product import plan_strided, strided_kernel
from ...runtime.cpu.open_program import Call
from .calls import Array
from .kernels import kernel
from .thresholds import FROM

_ONE = np.zeros(2, np.int64)


def worth_native(a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> bool:
    """Whether a product is one for `multiply`, rather than for numpy's matmul: one for which numpy's library would
    start threads, which then keep cores busy that ours need. Below them its calls cost less than ours.

    >>> worth_native((128, 784), (784, 1024)), worth_native((8, 8), (8, 8))
    (True, False)
    """
    leading = max(prod(a_shape[:-2]), prod(b_shape[:-2]))
    rows, depth, columns = *a_shape[-2:], b_shape[-1]
    least = FROM.vector_products if rows == 1 or columns == 1 else FROM.products
    return leading * rows * depth * columns >= least


def multiply(a: Array, b: Array, bias: Array | None = None, out: Array | None = None) -> Array:
    """a[..., m, k] @ b[..., k, n], plus a bias of n elements; all float32 or all float64.

    `out` is an array in order of memory that the result goes to.

    >>> a, b = np.eye(2, dtype="float32"), np.arange(6, dtype="float32").reshape(2, 3)
    >>> multiply(a, b, bias=np.ones(3, "float32")).tolist()
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    """
    dtype = a.dtype
    call = _call(a.shape, a.strides, b.shape, b.strides, dtype, bias is not None)
    if b.dtype != dtype:
        raise DTypeError(f"a product of {dtype} and {b.dtype}")
    out = np.empty(call.shape, dtype) if out is None else _checked("out", out, call.shape, dtype)
    if call.native is None:
        out[...] = 0 if bias is None else bias
        return out
    if bias is None:
        bias = out
    else:
        bias = _checked("bias", np.ascontiguousarray(bias), call.shape[-1:], dtype)
    if call.is_swapped:
        a, b = b, a
    call.native.run((a, b, call.starts, bias, out))
    return out


def _checked(name: str, array: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    if array.shape != shape or array.dtype != dtype:
        raise ShapeError(f"{name} is {array.dtype} {array.shape}, not {dtype} {shape}")
    if not array.flags.c_contiguous:
        raise LayoutError(f"{name} is not in order of memory")
    return array


class ProductCall(NamedTuple):
    """All of a product but its data. There is no native call where nothing is multiplied; a product of one
    column is made as one of one row, of the transposed matrices in the other order."""

    shape: tuple[int, ...]
    native: Call | None
    starts: Array
    is_swapped: bool


@lru_cache(4096)
def _call(
    a_shape: tuple[int, ...],
    a_strides: tuple[int, ...],
    b_shape: tuple[int, ...],
    b_strides: tuple[int, ...],
    dtype: DType,
    has_bias: bool,
) -> ProductCall:
    if len(a_shape) < 2 or len(b_shape) < 2 or a_shape[-1] != b_shape[-2]:
        raise ShapeError(f"a product of {a_shape} and {b_shape}")
    if dtype not in (FLOAT32, FLOAT64):
        raise DTypeError(f"a product of {dtype} by native code")
    (rows, depth), columns, leading = a_shape[-2:], b_shape[-1], a_shape[:-2]
    if b_shape[:-2] != leading:
        leading = np.broadcast_shapes(leading, b_shape[:-2])
    shape = (*leading, rows, columns)
    if not prod(shape) or not depth:
        return ProductCall(shape, None, _ONE, False)
    a_steps = _steps(a_shape, a_strides, leading, dtype)
    b_steps = _steps(b_shape, b_strides, leading, dtype)
    if not any(b_steps[:-2]):
        leading, rows, a_steps = _joined(leading, rows, a_steps)
    is_swapped = columns == 1 and not has_bias
    if is_swapped:
        rows, columns, a_steps, b_steps = 1, rows, _transposed(b_steps), _transposed(a_steps)
    starts = _starts(leading, a_steps, b_steps)
    layout = (a_steps[-1] == 1, b_steps[-2] == 1, b_steps[-1] == 1)
    plan = plan_strided(len(starts) // 2, rows, columns, depth, layout, dtype, host())
    scalars = (rows, columns, depth, *a_steps[-2:], *b_steps[-2:], columns, plan.rows)
    scalars += (plan.columns, plan.part, columns if has_bias else 0, plan.turns)
    native = kernel(strided_kernel, dtype, plan.kind).given(scalars, plan.turns, plan.work)
    return ProductCall(shape, native, starts, is_swapped)


def _steps(shape: tuple[int, ...], strides: tuple[int, ...], leading: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Elements from one to the next along each axis; 0 along those there are not."""
    if any(stride % dtype.itemsize for stride in strides):
        raise LayoutError(f"strides of {strides} bytes of {dtype}", why="elements are cut")
    outer = [stride // dtype.itemsize if extent > 1 else 0 for extent, stride in zip(shape[:-2], strides[:-2])]
    inner = [stride // dtype.itemsize for stride in strides[-2:]]
    return (*[0] * (len(leading) - len(outer)), *outer, *inner)


def _transposed(steps: tuple[int, ...]) -> tuple[int, ...]:
    return (*steps[:-2], steps[-1], steps[-2])


def _joined(
    leading: tuple[int, ...], rows: int, steps: tuple[int, ...]
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """The rows of products beside each other, as long as they are evenly spaced, as those of one;
    so that columns are packed once for all of them."""
    while leading and (rows == 1 or leading[-1] == 1 or steps[-3] == steps[-2] * rows):
        row_step = steps[-3] if rows == 1 else steps[-2]
        rows *= leading[-1]
        leading, steps = leading[:-1], (*steps[:-3], row_step, steps[-1])
    return leading, rows, steps


def _starts(leading: tuple[int, ...], a_steps: tuple[int, ...], b_steps: tuple[int, ...]) -> Array:
    """Where each of the products begins in a and in b, in elements."""
    starts = np.zeros((1, 2), np.int64)
    for extent, *steps in zip(leading, a_steps, b_steps):
        along = np.arange(extent)[:, None] * np.array(steps)
        starts = (starts[:, None] + along).reshape(-1, 2)
    return starts.reshape(-1)
