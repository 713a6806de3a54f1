"""Attention of eager tensors by native products and softmax rows, some matrices of scores at a
time, so that they stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import BOOL, FLOAT32, FLOAT64, INT64
from ...compiler.open.kernels import open_kernel
from ...core.op import Op
from ...lower.cpu.open.softmax import probabilities_kernel, softmax_grad_kernel
from .product import multiply

Array = np.ndarray[Any, Any]

SCORES = 1 << 19  # elements that are made at a time
EXPONENTIAL, GRADIENT = 1.0, 0.3  # nanoseconds of one score


class _Mask(NamedTuple):
    """A mask, where that of each matrix begins, and elements from row to row."""

    array: Array
    starts: Array
    step: int


class _Heads:
    """Query, key and value as matrices one after the other."""

    def __init__(self, params: Any, arrays: Sequence[Array]) -> None:
        query, key, value, *mask = arrays
        self.params, self.lead = params, query.shape[:-2]
        self.count = prod(self.lead)
        self.q, self.k, self.v = (_flat(x, self.count) for x in (query, key, value))
        self.queries, self.width = query.shape[-2:]
        self.keys = key.shape[-2]
        scale = params.scale if params.scale is not None else 1 / sqrt(max(self.width, 1))
        self.factor = np.array([scale], query.dtype)
        self.mask = _mask(mask[0], self.lead, self.queries, self.keys) if mask else None

    def parts(self, rows: int) -> Iterator[tuple[slice, slice, int]]:
        """Matrices and rows of them that are done together, and how many keys they see: whole
        matrices, or of one matrix `rows` rows at a time."""
        together = SCORES // (self.queries * self.keys)
        if together:
            for first in range(0, self.count, together):
                yield slice(first, first + together), slice(0, self.queries), self.keys
            return
        for head in range(self.count):
            for first in range(0, self.queries, rows):
                last = min(first + rows, self.queries)
                seen = min(self.keys, last) if self.params.is_causal else self.keys
                yield slice(head, head + 1), slice(first, last), seen

    def probabilities(self, heads: slice, rows: slice, seen: int, out: Array | None = None) -> Array:
        """The softmax of some rows of scores."""
        scores = multiply(self.q[heads, rows], self.k[heads, :seen].swapaxes(-1, -2), out=out)
        masked = self.params.mask if self.mask is not None else "none"
        made = partial(probabilities_kernel, masked, self.params.is_causal, scores.dtype)
        kernel = open_kernel(("probabilities", masked, self.params.is_causal, scores.dtype), made)
        mask, starts, step = self.mask or _Mask(scores, _NONE, 0)
        count, queries, keys = scores.shape
        arrays = [scores, self.factor, starts[heads] + rows.start * step, mask]
        scalars = [count * queries, keys, queries, rows.start, step]
        kernel.run(arrays, scalars, count * queries, scores.size * EXPONENTIAL)
        return scores


_NONE = np.zeros(1, INT64)


def _flat(x: Array, count: int) -> Array:
    return x.reshape(count, *x.shape[-2:])


def _mask(mask: Array, lead: tuple[int, ...], queries: int, keys: int) -> _Mask:
    if mask.shape[-1:] != (keys,) or not mask.flags.c_contiguous:
        mask = np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-1], keys)))
    whole = np.broadcast_to(mask, (*lead, queries, keys))
    starts = np.zeros(1, INT64)
    for extent, stride in zip(lead, whole.strides):
        steps = np.arange(extent) * (stride // mask.itemsize)
        starts = (starts[:, None] + steps).reshape(-1)
    return _Mask(mask, starts, whole.strides[-2] // mask.itemsize if queries > 1 else 0)


def _serves(arrays: Sequence[Array], mask: Sequence[Array]) -> bool:
    dtype = arrays[0].dtype
    return (
        dtype in (FLOAT32, FLOAT64)
        and all(array.dtype == dtype and array.size for array in arrays)
        and all(array.dtype in (BOOL, dtype) and array.size for array in mask)
    )


def run_attention(op: Op, params: Any, arrays: Sequence[Array]) -> Array | None:
    """softmax(scale q k' + mask) v"""
    if not _serves(arrays[:3], arrays[3:]):
        return None
    heads = _Heads(params, arrays)
    out = np.empty((heads.count, heads.queries, arrays[2].shape[-1]), arrays[0].dtype)
    for some, rows, seen in heads.parts(max(SCORES // 2 // heads.keys, 1)):
        p = heads.probabilities(some, rows, seen)
        multiply(p, heads.v[some, :seen], out=out[some, rows])
    return out.reshape(*heads.lead, *out.shape[1:])


def run_attention_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array] | None:
    """dq = c dS k, dk = c dS' q, dv = P' g; with dP = g v' and dS = P (dP - sum of dP P)."""
    if not _serves(arrays[:4], arrays[4:]):
        return None
    heads = _Heads(params, arrays[1:])
    g, dtype = _flat(arrays[0], heads.count), arrays[0].dtype
    dq, dk, dv = (np.empty(x.shape, dtype) for x in (heads.q, heads.k, heads.v))
    ds, p = (np.empty((heads.count, heads.queries, heads.keys), dtype) for _ in range(2))
    for some, rows, _ in heads.parts(heads.queries):
        heads.probabilities(some, rows, heads.keys, out=p[some])
        multiply(g[some], heads.v[some].swapaxes(-1, -2), out=ds[some])
        _through_softmax(p[some], ds[some])
        multiply(ds[some], heads.k[some], out=dq[some])
        multiply(ds[some].swapaxes(-1, -2), heads.q[some], out=dk[some])
        multiply(p[some].swapaxes(-1, -2), g[some], out=dv[some])
    dq *= heads.factor
    dk *= heads.factor
    return [made.reshape(*heads.lead, *made.shape[1:]) for made in (dq, dk, dv, ds, p)]


def _through_softmax(p: Array, dp: Array) -> None:
    kernel = open_kernel(("softmax_grad", p.dtype), partial(softmax_grad_kernel, p.dtype))
    rows = p.shape[0] * p.shape[1]
    kernel.run([dp, p, dp], [rows, p.shape[2]], rows, p.size * GRADIENT)


CALLS = {
    "scaled_dot_product_attention": (1 << 12, run_attention),
    "_scaled_dot_product_attention_grad": (1 << 13, run_attention_grad),
}
