"""Attention of eager tensors by native products and softmax rows, some matrices of scores at a
time, so that they stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod, sqrt
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, INT64
from ...core.op import Op
from ...ops.nn.attention import te_softmax, te_softmax_grad
from .calls import Array, Check, Declined, floats, native, not_empty
from .generic import run_computed
from .product import multiply

SCORES = 1 << 19  # elements that are made at a time


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
        self.mask = _mask(mask[0], self.lead, self.keys) if mask else None

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
        given = [scores, self.factor, np.array([rows.start], INT64)]
        if self.mask is not None:
            at = [part if extent > 1 else slice(None) for part, extent in zip((heads, rows), self.mask.shape)]
            given.append(self.mask[(*at, slice(seen))])
        key = ("attention", self.params.mask, self.params.is_causal)
        run_computed(key, "attention", partial(_softmax, self.params), given, [scores])
        return scores


def _softmax(params: Any, dots: te.Tensor, factor: te.Tensor, first: te.Tensor, *mask: te.Tensor) -> te.Tensor:
    return te_softmax(params, dots, factor[0], first[0], *mask)


def _flat(x: Array, count: int) -> Array:
    return x.reshape(count, *x.shape[-2:])


def _mask(mask: Array, lead: tuple[int, ...], keys: int) -> Array:
    """The mask of each matrix, or of all; of each query, or of all."""
    lead, rows = lead if prod(mask.shape[:-2]) > 1 else (1,), mask.shape[-2] if mask.ndim > 1 else 1
    own = mask if prod(mask.shape[:-2]) > 1 else mask.reshape(rows, -1)
    return np.broadcast_to(own, (*lead, rows, keys)).reshape(-1, rows, keys)


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
        run_computed("softmax_grad", "softmax_grad", te_softmax_grad, [p[some], ds[some]], [ds[some]])
        multiply(ds[some], heads.k[some], out=dq[some])
        multiply(ds[some].swapaxes(-1, -2), heads.q[some], out=dk[some])
        multiply(p[some].swapaxes(-1, -2), g[some], out=dv[some])
    dq *= heads.factor
    dk *= heads.factor
    return [array.reshape(*heads.lead, *array.shape[1:]) for array in (dq, dk, dv, ds, p)]
