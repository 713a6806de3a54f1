"""Factors of matrices by elimination, and systems with triangles: some rows and columns by open
kernels, the rest by products."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64, INT32
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.matrices.elimination import COLUMNS, panel_kernel, substitution_kernel
from ...ops.linalg._elimination import first_zero, permutation
from .copy import dense
from .product import multiply

Array = np.ndarray[Any, Any]
PANEL = 64  # columns, or rows, after which the rest follows as a product
NANOSECONDS = 0.1  # of an element that a row is subtracted from


def run_lu(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array] | None:
    (a,) = arrays
    if a.dtype not in (FLOAT32, FLOAT64) or not a.size:
        return None
    made, pivots = _factored(a.reshape(-1, *a.shape[-2:]), bool(params.pivot))
    return [made.reshape(a.shape), pivots.reshape(*a.shape[:-2], -1)]


def _factored(a: Array, pivot: bool) -> tuple[Array, Array]:
    items, m, n = a.shape
    count, dtype = min(m, n), a.dtype
    made, pivots = np.array(a, order="C"), np.empty((items, count), INT32)
    kernel = open_kernel(("panel", dtype, pivot), partial(panel_kernel, dtype, pivot))
    for start in range(0, count, PANEL):
        end = min(start + PANEL, count)
        work = items * PANEL**2 * (m - start + n - end) * NANOSECONDS
        kernel.run([made, pivots], [items, m, n, start, end, count], items, work)
        if end < count:
            made[:, end:, end:] -= multiply(made[:, end:, start:end], made[:, start:end, end:])
    return made, pivots


def run_solve(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    a, b = arrays
    if a.dtype not in (FLOAT32, FLOAT64) or not b.size:
        return None
    matrices = (a.swapaxes(-1, -2) if params.transposed else a).reshape(-1, *a.shape[-2:])
    if params.triangle == "none":
        return _solution(matrices, b)
    made = np.array(b, order="C")
    flat = made.reshape(-1, *b.shape[-2:])
    _substitute(matrices, flat, (params.triangle == "lower") != params.transposed, False)
    return made


def run_inverse(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    (a,) = arrays
    if a.dtype not in (FLOAT32, FLOAT64) or not a.size:
        return None
    matrices = (a.swapaxes(-1, -2) if params.transposed else a).reshape(-1, *a.shape[-2:])
    return _solution(matrices, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def _solution(a: Array, b: Array) -> Array | None:
    """X with A X = B by the factors of A; None if there is none."""
    factors, pivots = _factored(a, True)
    if first_zero(factors).any():
        return None
    order = permutation(pivots, a.shape[-1])
    made = np.take_along_axis(b.reshape(len(a), *b.shape[-2:]), order[..., None], -2)
    _substitute(factors, made, True, True)
    _substitute(factors, made, False, False)
    return made.reshape(b.shape)


def _substitute(t: Array, x: Array, is_lower: bool, unit: bool) -> None:
    """X becomes T^-1 X: some rows by a kernel, which the others follow by a product."""
    t = dense(t) if any([stride % t.itemsize for stride in t.strides]) else t
    t_item, t_row, t_column = [stride // t.itemsize for stride in t.strides]
    dtype, (items, m, n) = x.dtype, x.shape
    blocks, step = -(-n // COLUMNS), 1 if is_lower else -1
    kernel = open_kernel(("substitute", dtype, unit), partial(substitution_kernel, dtype, unit))
    for start in range(0, m, PANEL):
        end = min(start + PANEL, m)
        first = start if is_lower else m - 1 - start
        scalars = [items, blocks, end - start, n, t_item, first * (t_row + t_column)]
        scalars += [step * t_row, step * t_column, m * n, first * n, step * n]
        kernel.run([t, x], scalars, items * blocks, items * PANEL**2 * n * NANOSECONDS)
        if end < m:
            own, rest = slice(start, end), slice(end, m)
            if not is_lower:
                own, rest = slice(m - end, m - start), slice(0, m - end)
            x[:, rest] -= multiply(t[:, rest, own], x[:, own])


CALLS = {"lu_factor": (1 << 6, run_lu), "solve": (1, run_solve), "inverse": (1 << 6, run_inverse)}
