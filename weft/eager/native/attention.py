"""Attention of eager tensors by native products and softmax rows, some matrices of scores at a
time, so that they stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt
from typing import Any, NamedTuple

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import BOOL, INT64
from ...core.op import Op
from ...lower.cpu.row_wise.scores import probabilities_kernel, softmax_grad_kernel
from .calls import Array, Check, Declined, floats, native, not_empty
from .kernels import kernel
from .product import multiply

SCORES = 1 << 19  # elements that are made at a time
EXPONENTIAL, GRADIENT = COSTS.score, COSTS.score_grad


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
        mask, starts, step = self.mask or _Mask(scores, _NONE, 0)
        count, queries, keys = scores.shape
        arrays = [scores, self.factor, starts[heads] + rows.start * step, mask]
        scalars = [count * queries, keys, queries, rows.start, step]
        softmax = kernel(probabilities_kernel, masked, self.params.is_causal, scores.dtype)
        softmax.run(arrays, scalars, count * queries, scores.size * EXPONENTIAL)
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


def _takes(values: int) -> Check:
    """So many arrays of one floating dtype, and a mask of it or of bools, if there is one."""

    def check(arrays: Sequence[Array]) -> None:
        floats(arrays[:values])
        mask = arrays[values:]
        if any([array.dtype not in (BOOL, arrays[0].dtype) for array in mask]):
            raise Declined("dtype")
        not_empty(mask)

    return check


@native("scaled_dot_product_attention", takes=_takes(3))
def run_attention(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """softmax(scale q k' + mask) v"""
    heads = _Heads(params, arrays)
    out = np.empty((heads.count, heads.queries, arrays[2].shape[-1]), arrays[0].dtype)
    for some, rows, seen in heads.parts(max(SCORES // 2 // heads.keys, 1)):
        p = heads.probabilities(some, rows, seen)
        multiply(p, heads.v[some, :seen], out=out[some, rows])
    return out.reshape(*heads.lead, *out.shape[1:])


@native("_scaled_dot_product_attention_grad", takes=_takes(4))
def run_attention_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """dq = c dS k, dk = c dS' q, dv = P' g; with dP = g v' and dS = P (dP - sum of dP P)."""
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
    return [array.reshape(*heads.lead, *array.shape[1:]) for array in (dq, dk, dv, ds, p)]


def _through_softmax(p: Array, dp: Array) -> None:
    rows = p.shape[0] * p.shape[1]
    kernel(softmax_grad_kernel, p.dtype).run([dp, p, dp], [rows, p.shape[2]], rows, p.size * GRADIENT)
