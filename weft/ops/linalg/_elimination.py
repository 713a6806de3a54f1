"""Elimination by rows and columns, in numpy: the factors of LU and of L D L', laid out and pivoted
as LAPACK does it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...base.dtype import INT32, is_complex
from ...base.errors import RunError
from .._families import Array

_PANEL = 32  # columns that are eliminated one by one before the rest follows as a matrix product
_FEW = 32  # matrices whose swaps are faster one by one
_STAY = (1 + math.sqrt(17)) / 8  # a diagonal element of this share of its column is a good pivot


def _size(x: Any) -> Any:
    """What pivots are compared by: |x|, of complex numbers |Re x| + |Im x|."""
    return np.abs(x.real) + np.abs(x.imag) if is_complex(x.dtype) else np.abs(x)


def lu_factors(a: Array, pivot: bool) -> tuple[Array, Array]:
    """U in the upper triangle, L (its diagonal is 1) below it, and the row, counted from 1, that
    each row was swapped with in turn. A column without a pivot stays as it is."""
    *lead, m, n = a.shape
    count = min(m, n)
    made = np.array(a, order="C").reshape(math.prod(lead), m, n)
    pivots = np.empty((len(made), count), np.intp)
    for start in range(0, count, _PANEL):
        end = min(start + _PANEL, count)
        for j in range(start, end):
            _eliminate(made, pivots, j, end, pivot)
        if end < n:
            corner = np.tril(made[:, start:end, start:end], -1) + np.eye(end - start)
            above = np.linalg.solve(corner, made[:, start:end, end:])
            made[:, start:end, end:] = above
            made[:, end:, end:] -= made[:, end:, start:end] @ above
    return made.reshape(a.shape), (pivots + 1).astype(INT32).reshape(*lead, count)


def _eliminate(made: Array, pivots: Array, j: int, end: int, pivot: bool) -> None:
    """One column, with the columns of its panel to the right."""
    batch = np.arange(len(made))
    pivots[:, j] = j
    if pivot:
        best = pivots[:, j] = j + np.argmax(_size(made[:, j:, j]), 1)
        moved = made[batch, best]
        made[batch, best] = made[:, j]
        made[:, j] = moved
    top = made[:, j, j, None]
    below = made[:, j + 1 :, j] / np.where(top == 0, 1, top)
    made[:, j + 1 :, j] = below
    made[:, j + 1 :, j + 1 : end] -= below[:, :, None] * made[:, None, j, j + 1 : end]


def permutation(pivots: Array, rows: int) -> Array:
    """The rows of matrices in the order that swaps in turn bring them to."""
    *lead, count = pivots.shape
    if count > rows or ((pivots < 1) | (pivots > rows)).any():
        raise RunError(f"pivots must be between 1 and {rows}, and no more than there are rows")
    flat = pivots.reshape(math.prod(lead), count)
    if len(flat) < _FEW:
        orders = [_swapped(rows, others) for others in flat.tolist()]
        return np.array(orders, np.intp).reshape(*lead, rows)
    made = np.tile(np.arange(rows), (len(flat), 1))
    batch = np.arange(len(flat))
    for j in range(count):
        other = flat[:, j] - 1
        made[batch, j], made[batch, other] = made[batch, other], made[batch, j]
    return made.reshape(*lead, rows)


def _swapped(rows: int, others: list[int]) -> list[int]:
    order = list(range(rows))
    for place, other in enumerate(others):
        order[place], order[other - 1] = order[other - 1], order[place]
    return order


def first_zero(factors: Array) -> Array:
    """The place, counted from 1, of the first 0 on the diagonal; 0 where there is none."""
    zero = np.diagonal(factors, axis1=-2, axis2=-1) == 0
    if not zero.shape[-1]:
        return np.zeros(zero.shape[:-1], INT32)
    return np.where(zero.any(-1), zero.argmax(-1) + 1, 0).astype(INT32)


def first_bad_minor(a: Array) -> int:
    """How many rows of one Hermitian matrix, of which the lower triangle is read, have no Cholesky
    factor, counted from the first; 0 if all have one."""
    low = np.zeros_like(a)
    for k in range(len(a)):
        low[k, :k] = a[k, :k]
        for j in range(k):
            low[k, j] = (low[k, j] - low[k, :j] @ np.conj(low[j, :j])) / low[j, j]
        rest = a[k, k].real - np.vdot(low[k, :k], low[k, :k]).real
        if not rest > 0:
            return k + 1
        low[k, k] = math.sqrt(rest)
    return 0


def ldl_factors(a: Array, hermitian: bool) -> tuple[Array, Array, int]:
    """A = L D L' of one symmetric matrix, of which the lower triangle is read: D, with blocks of
    one or two, is on and beside the diagonal, L below it; the swaps, negative for blocks of two;
    and the place of the first block that is 0. By the method of Bunch and Kaufman."""
    made, count = np.tril(a), len(a)
    if hermitian:
        np.fill_diagonal(made, made.diagonal().real)
    pivots = np.zeros(count, INT32)
    info = k = 0
    while k < count:
        other, step = _pivot(made, k, hermitian)
        last = k + step - 1
        if other != last:
            _swap(made, k, last, other, hermitian)
        if step == 1 and made[k, k] == 0:
            info = info or k + 1
        else:
            _subtract(made, k, step, hermitian)
        pivots[k : k + step] = other + 1 if step == 1 else -(other + 1)
        k += step
    return made, pivots, info


def _pivot(made: Array, k: int, hermitian: bool) -> tuple[int, int]:
    """The row to swap with, and the size of the block."""
    own = lambda i: abs(made[i, i].real) if hermitian else float(_size(made[i, i]))
    column = _size(made[k + 1 :, k])
    largest = column.max(initial=0)
    if own(k) >= _STAY * largest or largest == 0 or own(k) != own(k):
        return k, 1
    best = k + 1 + int(column.argmax())
    across = _size(np.concatenate([made[best, k:best], made[best + 1 :, best]])).max()
    if own(k) * across >= _STAY * largest * largest:
        return k, 1
    return (best, 1) if own(best) >= _STAY * across else (best, 2)


def _swap(made: Array, k: int, i: int, j: int, hermitian: bool) -> None:
    """Rows and columns i < j of what is left from k on, in the lower triangle."""
    turn = np.conj if hermitian else np.positive
    made[j + 1 :, [i, j]] = made[j + 1 :, [j, i]]
    between = made[i + 1 : j, i].copy()
    made[i + 1 : j, i] = turn(made[j, i + 1 : j])
    made[j, i + 1 : j] = turn(between)
    made[j, i] = turn(made[j, i])
    made[i, i], made[j, j] = made[j, j], made[i, i]
    made[[i, j], k:i] = made[[j, i], k:i]


def _block(made: Array, k: int, step: int, hermitian: bool) -> Array:
    """A block of D, symmetric."""
    low = made[k : k + step, k : k + step]
    above = np.tril(low, -1).T
    return np.asarray(low + (np.conj(above) if hermitian else above))


def _subtract(made: Array, k: int, step: int, hermitian: bool) -> None:
    after = k + step
    columns = made[after:, k:after].copy()
    scaled = columns @ np.linalg.inv(_block(made, k, step, hermitian))
    made[after:, after:] -= np.tril(scaled @ (np.conj(columns) if hermitian else columns).T)
    made[after:, k:after] = scaled
    if hermitian:  # rounding errors beside the real axis would grow
        places = np.arange(after, len(made))
        made[places, places] = made[places, places].real


def ldl_solution(factors: Array, pivots: Array, b: Array, hermitian: bool) -> Array:
    """X with A X = B, by the factors of one matrix A."""
    made, count = b.copy(), len(factors)
    steps, k = [], 0
    while k < count:
        steps.append((k, 1 if pivots[k] > 0 else 2))
        k += steps[-1][1]
    places = np.abs(pivots)
    if k != count or ((places < 1) | (places > count)).any():
        raise RunError(f"pivots must be between 1 and {count}, and negative in pairs")
    for k, step in steps:
        after, pair = k + step, [k + step - 1, places[k] - 1]
        made[pair] = made[pair[::-1]]
        made[after:] -= factors[after:, k:after] @ made[k:after]
        made[k:after] = np.linalg.solve(_block(factors, k, step, hermitian), made[k:after])
    for k, step in reversed(steps):
        after, pair = k + step, [k + step - 1, places[k] - 1]
        below = factors[after:, k:after].T
        made[k:after] -= (np.conj(below) if hermitian else below) @ made[after:]
        made[pair] = made[pair[::-1]]
    return made
