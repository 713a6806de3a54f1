"""Scaled dot-product attention as one operator, and its gradient as another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL as BOOL_DTYPE
from ...base.dtype import is_float
from ...base.errors import ShapeError
from ...base.shape import Shape, broadcast, unify, unify_dim
from ...core.schema import BOOL, FLOAT, attr, choice, optional, schema
from .._families import OGRAD, Array, F, Inferred, Shapes, attributes, define, floating
from .dense_softmax import along, one


@schema
class AttentionAttrs:
    scale: float | None = attr(optional(FLOAT), "factor of the scores; none: 1 / sqrt(last extent)", default=None)
    is_causal: bool = attr(BOOL, "whether query i sees keys 0 to i only", default=False)
    mask: str = attr(
        choice("none", "boolean", "additive"),
        "whether there is a mask: one that says which keys count, or one added to the scores",
        default="none",
    )


INPUTS = {
    "query": "(..., L, E)",
    "key": "(..., S, E)",
    "value": "(..., S, V)",
    "attn_mask": "broadcasts to (..., L, S), if there is one",
}


def _names(params: AttentionAttrs) -> list[str]:
    return list(INPUTS)[: 3 if params.mask == "none" else 4]


def _meet(query: Shape, key: Shape, value: Shape, out: Shape) -> list[Any]:
    """Shapes of query, key, value, output and scores, of which the leading axes are the same."""
    known = [shape for shape in (query, key, value, out) if shape is not None]
    if not known:
        return [None] * 5
    rank = len(known[0])
    if rank < 2:
        raise ShapeError("attention needs tensors of at least two dimensions")
    batch: Shape = None
    for shape in known:
        batch = unify(batch, shape[:-2])
    assert batch is not None
    q, k, v, o = ((None, None) if s is None else s[-2:] for s in (query, key, value, out))
    length, sources = unify_dim(q[0], o[0]), unify_dim(k[0], v[0])
    width, values = unify_dim(q[1], k[1]), unify_dim(v[1], o[1])
    ends = (length, width), (sources, width), (sources, values), (length, values)
    return [(*batch, *end) for end in (*ends, (length, sources))]


def _check_mask(mask: Shape, scores: Shape) -> None:
    if mask is None or scores is None:
        return
    whole = broadcast(mask, scores)
    if whole is not None and len(whole) != len(scores):
        raise ShapeError("the mask has more dimensions than the scores")
    unify(whole, scores)


def _shape(params: AttentionAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    query, key, value, out, scores = _meet(ins[0], ins[1], ins[2], outs[0])
    _check_mask(ins[3] if len(ins) > 3 else None, scores)
    return [query, key, value, None][: len(ins)], [out]


def _dtype(params: AttentionAttrs, ins: Any, outs: Any) -> Inferred:
    shared = 4 if params.mask == "additive" else 3
    dtypes, outputs = floating(params, ins[:shared], outs)
    return [*dtypes, BOOL_DTYPE][: len(ins)], outputs


def _scale(params: AttentionAttrs, width: int) -> float:
    return params.scale if params.scale is not None else 1 / math.sqrt(max(width, 1))


# numpy


def _probabilities(params: AttentionAttrs, q: Array, k: Array, *mask: Array) -> Array:
    """The softmax of the scores; a query that may see nothing has only zeros."""
    scores = q @ k.swapaxes(-1, -2) * _scale(params, q.shape[-1])
    if mask and params.mask == "boolean":
        scores = np.where(mask[0], scores, -np.inf)
    elif mask:
        scores = scores + mask[0]
    if params.is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    if not scores.shape[-1]:
        return scores
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _wide(arrays: Sequence[Array]) -> list[Array]:
    return [a.astype(np.float64) if is_float(a.dtype) else a for a in arrays]


def _reference(params: AttentionAttrs, *arrays: Array) -> Array:
    q, k, v, *mask = _wide(arrays)
    return (_probabilities(params, q, k, *mask) @ v).astype(arrays[0].dtype)


def _grad_reference(params: AttentionAttrs, *arrays: Array) -> tuple[Array, ...]:
    g, q, k, v, *mask = _wide(arrays)
    p = _probabilities(params, q, k, *mask)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))
    scale = _scale(params, q.shape[-1])
    results = (ds @ k * scale, ds.swapaxes(-1, -2) @ q * scale, p.swapaxes(-1, -2) @ g, ds, p)
    return tuple(array.astype(arrays[0].dtype) for array in results)


# te


def _product(shape: tuple[int, ...], extent: int, name: str, left: Any, right: Any) -> te.Tensor:
    """out[..., i, j] = sum over k of left(batch, i, k) * right(batch, j, k)"""
    k = te.reduce_axis(extent)
    return te.compute(
        shape, lambda *i: te.sum(left((*i[:-2], i[-2], k.var)) * right((*i[:-2], i[-1], k.var)), k), name=name
    )


def _flipped(x: te.Tensor) -> Any:
    return lambda i: x[(*i[:-2], i[-1], i[-2])]


def _plain(x: te.Tensor) -> Any:
    return lambda i: x[i]


def _masked(params: AttentionAttrs, score: Any, i: Sequence[Any], *mask: te.Tensor) -> Any:
    lowest = -math.inf
    if mask:
        at = i[len(i) - mask[0].rank :]
        value = mask[0][tuple(0 if d == 1 else v for v, d in zip(at, mask[0].shape))]
        score = te.select(value, score, lowest) if params.mask == "boolean" else score + value
    return te.select(i[-1] <= i[-2], score, lowest) if params.is_causal else score


def te_softmax(params: AttentionAttrs, dots: te.Tensor, scale: Any, *mask: te.Tensor) -> te.Tensor:
    """The softmax of scaled and masked dots of queries and keys. A query that sees nothing has only zeros."""
    scores = te.compute(dots.shape, lambda *i: _masked(params, dots[i] * scale, i, *mask), name="masked_scores")
    last = (dots.rank - 1,)
    top = along(scores, last, "top", lambda i: scores[i], te.max_of)

    def power(i: Any) -> Any:
        largest = top[one(i, last)]
        return te.exp(scores[i] - te.select(largest.equal(-math.inf), 0.0, largest))

    total = along(scores, last, "total", power, te.sum)

    def probability(*i: Any) -> Any:
        whole = total[one(i, last)]
        return power(i) / te.select(whole.equal(0), 1.0, whole)

    return te.compute(dots.shape, probability, name="probabilities")


def te_softmax_grad(p: te.Tensor, dp: te.Tensor) -> te.Tensor:
    """dS = P (dP - sum of dP P)"""
    last = (p.rank - 1,)
    shared = along(p, last, "shared", lambda i: dp[i] * p[i], te.sum)
    return te.compute(p.shape, lambda *i: p[i] * (dp[i] - shared[one(i, last)]), name="ds")


def _te_probabilities(params: AttentionAttrs, q: te.Tensor, k: te.Tensor, *mask: te.Tensor) -> te.Tensor:
    dots = _product((*q.shape[:-1], k.shape[-2]), q.shape[-1], "scores", _plain(q), _plain(k))
    return te_softmax(params, dots, _scale(params, q.shape[-1]), *mask)


def _compute(params: AttentionAttrs, q: te.Tensor, k: te.Tensor, v: te.Tensor, *mask: te.Tensor) -> te.Tensor:
    p = _te_probabilities(params, q, k, *mask)
    shape = (*q.shape[:-1], v.shape[-1])
    return _product(shape, k.shape[-2], "attention", _plain(p), _flipped(v))


def _grad_compute(
    params: AttentionAttrs, g: te.Tensor, q: te.Tensor, k: te.Tensor, v: te.Tensor, *mask: te.Tensor
) -> tuple[te.Tensor, ...]:
    p = _te_probabilities(params, q, k, *mask)
    length, sources = p.shape[-2:]
    scale = _scale(params, q.shape[-1])
    dp = _product(p.shape, v.shape[-1], "dp", _plain(g), _plain(v))
    ds = te_softmax_grad(p, dp)
    dq = _product(q.shape, sources, "dq", lambda i: ds[i] * scale, _flipped(k))
    dk = _product(k.shape, length, "dk", lambda i: _flipped(ds)(i) * scale, _flipped(q))
    dv = _product(v.shape, length, "dv", _flipped(p), _flipped(g))
    return dq, dk, dv, ds, p


# The operators


def _gradient(ctx: Any, g: Any) -> list[Any]:
    results = F._scaled_dot_product_attention_grad(g, *ctx.inputs, **attributes(ctx.params))
    grads = [results[0], results[1], results[2]]
    if ctx.params.mask == "boolean":
        return [*grads, None]
    if ctx.params.mask == "additive":
        return [*grads, F.collapse_sum(results[3], ctx.inputs[3])]
    return grads


def _scaled(params: AttentionAttrs, x: Any, like: Any) -> Any:
    """x times the factor of the scores; `like`, of as many rows, has the extent that gives it."""
    if params.scale is not None:
        return x * params.scale
    width = F.sum(F.ones_like(like), axis=(-1,), keepdims=True)
    return F.broadcast_mul(x, width**-0.5)


def _row_sums(x: Any) -> Any:
    return F.sum(x, axis=(-1,), keepdims=True)


def _second_gradient(ctx: Any, to_query: Any, to_key: Any, to_value: Any, to_scores: Any, to_softmax: Any) -> list[Any]:
    """Backwards through dP = g v', dS = P (dP - sum of dP P), dq = c dS k, dk = c dS' q, dv = P' g
    and P = softmax(c q k' + mask), where c is the factor of the scores."""
    (g, q, k, v), (ds, p) = ctx.inputs[:4], ctx.outputs[3:]
    scaled = lambda x, like: _scaled(ctx.params, x, like)
    product, dp = F.batch_matmul, F.batch_matmul(g, v, transpose_b=True)
    both = product(to_query, k, transpose_b=True) + product(q, to_key, transpose_b=True)
    on_ds = scaled(both, q) + to_scores
    shared = _row_sums(F.elemwise_mul(p, on_ds))
    on_dp = F.elemwise_mul(p, F.broadcast_sub(on_ds, shared))
    centred = F.broadcast_sub(dp, _row_sums(F.elemwise_mul(dp, p)))
    on_p = product(g, to_value, transpose_b=True) + to_softmax + F.elemwise_mul(on_ds, centred)
    on_p = on_p - F.broadcast_mul(dp, shared)
    on_s = F.elemwise_mul(p, F.broadcast_sub(on_p, _row_sums(F.elemwise_mul(p, on_p))))
    of_query = scaled(product(ds, to_key) + product(on_s, k), q)
    of_key = product(ds, to_query, transpose_a=True) + product(on_s, q, transpose_a=True)
    grads = [product(p, to_value) + product(on_dp, v), of_query, scaled(of_key, k), product(on_dp, g, transpose_a=True)]
    masks = {"none": [], "boolean": [None], "additive": [on_s]}[ctx.params.mask]
    return grads + [m if m is None else F.collapse_sum(m, ctx.inputs[4]) for m in masks]


def _grad_shape(params: AttentionAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    queries, keys, values = (unify(a, b) for a, b in zip(ins[1:4], outs))
    query, key, value, out, scores = _meet(queries, keys, values, ins[0])
    _check_mask(ins[4] if len(ins) > 4 else None, scores)
    return [out, query, key, value, None][: len(ins)], [query, key, value, scores, scores]


def _grad_dtype(params: AttentionAttrs, ins: Any, outs: Any) -> Inferred:
    shared = 5 if params.mask == "additive" else 4
    dtypes, outputs = floating(params, ins[:shared], outs)
    return [*dtypes, BOOL_DTYPE][: len(ins)], outputs


attention = define(
    "scaled_dot_product_attention",
    "softmax(scale query key' + mask) value; a query that may see no key gives zeros.",
    level=5,
    inputs=INPUTS,
    named=False,
    attrs=AttentionAttrs,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    compute=_compute,
    gradient=_gradient,
    native_from=4096,
)
attention.set_num_inputs(lambda params: len(_names(params)))
attention.input_names = _names

attention_grad = define(
    "_scaled_dot_product_attention_grad",
    "The gradients of query, key, value and of the masked scores; and the softmax of the scores.",
    inputs={**OGRAD, **INPUTS},
    named=False,
    attrs=AttentionAttrs,
    shape=_grad_shape,
    dtype=_grad_dtype,
    reference=_grad_reference,
    compute=_grad_compute,
    output_names=["query", "key", "value", "scores", "probabilities"],
    gradient=_second_gradient,
    native_from=8192,
)
attention_grad.set_num_inputs(lambda params: 1 + len(_names(params)))
attention_grad.input_names = lambda params: ["ograd", *_names(params)]
