"""Attention of eager tensors, by the template that models have; its gradient by native products and softmax rows,
some matrices of scores at a time, so that they stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from math import inf, prod, sqrt
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, DType
from ...core.op import Op
from ...lower.cpu.attention.template import AttentionForm, write_attention
from ...ops.nn.attention import te_softmax, te_softmax_grad
from .calls import Array, Check, Declined, floats, native, not_empty
from .copy import dense
from .generic import Call, numbers_call, run_computed
from .product import multiply
from .strides import has_steps, steps_of

PLANS = 1024
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

    def parts(self) -> Iterator[slice]:
        """Matrices that are done together."""
        together = max(SCORES // (self.queries * self.keys), 1)
        for first in range(0, self.count, together):
            yield slice(first, first + together)

    def probabilities(self, heads: slice, out: Array) -> None:
        """The softmax of the scores of some matrices."""
        multiply(self.q[heads], self.k[heads].swapaxes(-1, -2), out=out)
        given = [out, self.factor]
        if self.mask is not None:
            given.append(self.mask[heads if len(self.mask) > 1 else slice(None)])
        key = ("probabilities", self.params.mask, self.params.is_causal)
        run_computed(key, "probabilities", partial(_softmax, self.params), given, [out])


def _softmax(params: Any, dots: te.Tensor, factor: te.Tensor, *mask: te.Tensor) -> te.Tensor:
    return te_softmax(params, dots, factor[0], *mask)


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


# Forward


@native("scaled_dot_product_attention", takes=_takes(3))
def run_attention(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    """softmax(scale q k' + mask) v"""
    query, key, value = map(_in_rows, arrays[:3])
    scale = 1 / sqrt(max(query.shape[-1], 1))
    if params.scale is not None and params.scale != scale:
        query, scale = query * query.dtype.type(params.scale), 1.0  # one program for all factors
    mask = [_for_each_key(arrays[3], query.dtype)] if len(arrays) > 3 else []
    has = tuple([extent > 1 for extent in mask[0].shape]) if mask else None
    form = AttentionForm(
        query.shape[-1], value.shape[-1], scale, query.ndim - 2, params.is_causal, params.mask == "boolean", has
    )
    steps = [step for array in (query, key, value) for step in steps_of(array)[:-1]]
    numbers = (*query.shape[:-1], key.shape[-2], *steps)
    return _attention_call(form, query.dtype, numbers).run([query, key, value, *mask])[0]


def _in_rows(x: Array) -> Array:
    """An array whose rows are side by side in memory."""
    return x if x.strides[-1] == x.itemsize and has_steps(x) else dense(x)


def _for_each_key(mask: Array, dtype: DType) -> Array:
    """A mask with a row for each key; of booleans, what stands in place of scores, or 0."""
    turned = mask.swapaxes(-1, -2) if mask.ndim > 1 else mask.reshape(-1, 1)
    return dense(turned if mask.dtype != BOOL else np.where(turned, dtype.type(0), dtype.type(-inf)))


@lru_cache(PLANS)
def _attention_call(form: AttentionForm, dtype: DType, numbers: tuple[int, ...]) -> Call:
    call = numbers_call(write_attention, form, dtype, numbers=numbers)
    return call._replace(read=frozenset())  # arrays lie as their steps say


# Backward


@native("_scaled_dot_product_attention_grad", takes=_takes(4))
def run_attention_grad(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """dq = c dS k, dk = c dS' q, dv = P' g; with dP = g v' and dS = P (dP - sum of dP P)."""
    heads = _Heads(params, arrays[1:])
    g, dtype = _flat(arrays[0], heads.count), arrays[0].dtype
    dq, dk, dv = (np.empty(x.shape, dtype) for x in (heads.q, heads.k, heads.v))
    ds, p = (np.empty((heads.count, heads.queries, heads.keys), dtype) for _ in range(2))
    for some in heads.parts():
        heads.probabilities(some, p[some])
        multiply(g[some], heads.v[some].swapaxes(-1, -2), out=ds[some])
        run_computed("softmax_grad", "softmax_grad", te_softmax_grad, [p[some], ds[some]], [ds[some]])
        multiply(ds[some], heads.k[some], out=dq[some])
        multiply(ds[some].swapaxes(-1, -2), heads.q[some], out=dk[some])
        multiply(p[some].swapaxes(-1, -2), g[some], out=dv[some])
    dq *= heads.factor
    dk *= heads.factor
    return [array.reshape(*heads.lead, *array.shape[1:]) for array in (dq, dk, dv, ds, p)]
