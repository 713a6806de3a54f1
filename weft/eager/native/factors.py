"""Factors of matrices by elimination, and systems with triangles: some rows and columns by
kernels of open sizes, the rest by products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import INT32
from ...core.op import Op
from ...lower.cpu.matrices.elimination import COLUMNS, panel_kernel, substitution_kernel
from ...ops.linalg._elimination import first_zero, permutation
from .calls import Array, Declined, floats, native
from .copy import dense
from .kernels import kernel
from .product import multiply
from .strides import has_steps, steps_of

PANEL = 64  # columns, or rows, after which the rest follows as a product
NANOSECONDS = COSTS.eliminated


@native("lu_factor", takes=floats)
def run_lu(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    (a,) = arrays
    factors, pivots = _factored(a.reshape(-1, *a.shape[-2:]), bool(params.pivot))
    return [factors.reshape(a.shape), pivots.reshape(*a.shape[:-2], -1)]


def _factored(a: Array, pivot: bool) -> tuple[Array, Array]:
    items, m, n = a.shape
    count, dtype = min(m, n), a.dtype
    factors, pivots = np.array(a, order="C"), np.empty((items, count), INT32)
    panel = kernel(panel_kernel, dtype, pivot)
    for start in range(0, count, PANEL):
        end = min(start + PANEL, count)
        work = items * PANEL**2 * (m - start + n - end) * NANOSECONDS
        panel.given([items, m, n, start, end, count], items, work).run([factors, pivots])
        if end < count:
            factors[:, end:, end:] -= multiply(factors[:, end:, start:end], factors[:, start:end, end:])
    return factors, pivots


@native("solve", takes=floats)
def run_solve(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    a, b = arrays
    matrices = (a.swapaxes(-1, -2) if params.transposed else a).reshape(-1, *a.shape[-2:])
    if params.triangle == "none":
        return _solution(matrices, b)
    x = np.array(b, order="C")
    _substitute(matrices, x.reshape(-1, *b.shape[-2:]), (params.triangle == "lower") != params.transposed, False)
    return x


@native("inverse", takes=floats)
def run_inverse(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    (a,) = arrays
    matrices = (a.swapaxes(-1, -2) if params.transposed else a).reshape(-1, *a.shape[-2:])
    return _solution(matrices, np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))


def _solution(a: Array, b: Array) -> Array:
    """X with A X = B by the factors of A, if there is one."""
    factors, pivots = _factored(a, True)
    if first_zero(factors).any():
        raise Declined("singular")
    order = permutation(pivots, a.shape[-1])
    x = np.take_along_axis(b.reshape(len(a), *b.shape[-2:]), order[..., None], -2)
    _substitute(factors, x, True, True)
    _substitute(factors, x, False, False)
    return x.reshape(b.shape)


def _substitute(t: Array, x: Array, is_lower: bool, unit: bool) -> None:
    """X becomes T^-1 X: some rows by a kernel, which the others follow by a product."""
    t = t if has_steps(t) else dense(t)
    t_item, t_row, t_column = steps_of(t)
    items, m, n = x.shape
    blocks, step = -(-n // COLUMNS), 1 if is_lower else -1
    substitution = kernel(substitution_kernel, x.dtype, unit)
    for start in range(0, m, PANEL):
        end = min(start + PANEL, m)
        first = start if is_lower else m - 1 - start
        scalars = [items, blocks, end - start, n, t_item, first * (t_row + t_column)]
        scalars += [step * t_row, step * t_column, m * n, first * n, step * n]
        substitution.given(scalars, items * blocks, items * PANEL**2 * n * NANOSECONDS).run([t, x])
        if end < m:
            solved, rest = slice(start, end), slice(end, m)
            if not is_lower:
                solved, rest = slice(m - end, m - start), slice(0, m - end)
            x[:, rest] -= multiply(t[:, rest, solved], x[:, solved])
