"""Attention on tensors seen through views: softmax(scale Q K' + mask) V, where query, key and value
are parts of larger tensors, with their axes in any order.

A build puts it in place of the products, moves and softmax that make attention, after gradients are
taken: it has none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...base.errors import ShapeError
from ...base.shape import Shape, all_numbers, broadcast, is_static, numel, show, unify
from ...core.schema import BOOL, EXTENT, EXTENTS, FLOAT, INT, INTS, attr, choice, schema
from .._families import Array, Inferred, Shapes, define, floating


@schema
class StridedAttentionAttrs:
    batch: tuple[int, ...] = attr(EXTENTS, "extents of the leading axes, as batch and heads", low=0)
    queries: int = attr(EXTENT, "rows of the query", low=0)
    keys: int = attr(EXTENT, "rows of key and value", low=1)
    width: int = attr(INT, "columns of query and key", low=1)
    values: int = attr(INT, "columns of value and result", low=0)
    query: tuple[int, ...] = attr(EXTENTS, "where it begins, then a step for each axis", low=0)
    key: tuple[int, ...] = attr(EXTENTS, "where it begins, then a step for each axis", low=0)
    value: tuple[int, ...] = attr(EXTENTS, "where it begins, then a step for each axis", low=0)
    out_axes: tuple[int, ...] = attr(INTS, "the order of the result's axes", low=0)
    scale: float = attr(FLOAT, "factor of the scores", default=1.0)
    is_causal: bool = attr(BOOL, "whether query i sees keys 0 to i only", default=False)
    masked: bool = attr(BOOL, "whether a mask is added to the scores", default=False)
    replaces: bool = attr(BOOL, "whether the mask stands in place of scores where it is not 0", default=False)
    unseen: str = attr(
        choice("nan", "zero", "clean"),
        "probabilities of a query that sees no key: NaN or 0; clean: 0 in place of any NaN",
        default="nan",
    )


class View(NamedTuple):
    """A tensor as a part of another: element (i, j, ...) is number start + i*steps[0] + ..."""

    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]


def views(params: StridedAttentionAttrs) -> tuple[View, View, View]:
    """Where query, key and value are in the inputs."""
    ends = ((params.queries, params.width), (params.keys, params.width), (params.keys, params.values))
    strided = (params.query, params.key, params.value)
    return tuple(View((*params.batch, *end), at[0], at[1:]) for end, at in zip(ends, strided))  # type: ignore[return-value]


def mask_shape(params: StridedAttentionAttrs) -> tuple[int, ...]:
    """What a mask broadcasts to: it has a row for each key."""
    return (*params.batch, params.keys, params.queries)


def _check_view(name: str, view: View, source: Shape) -> None:
    if len(view.steps) != len(view.shape):
        raise ShapeError(f"{name} has {len(view.shape)} axes and {len(view.steps)} steps")
    if not is_static(source) or not all_numbers((view.start, *view.shape, *view.steps)) or 0 in view.shape:
        return
    last = view.start + sum((n - 1) * step for n, step in zip(view.shape, view.steps))
    if last >= numel(source):
        raise ShapeError(f"{name} reaches element {last} of a tensor of {show(source)}")


def _shape(params: StridedAttentionAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    for name, view, source in zip(("query", "key", "value"), views(params), ins):
        _check_view(name, view, source)
    whole = (*params.batch, params.queries, params.values)
    if sorted(params.out_axes) != list(range(len(whole))):
        raise ShapeError(f"out_axes {params.out_axes} are no order of {len(whole)} axes")
    if len(ins) > 3 and ins[3] is not None:
        unify(broadcast(ins[3], mask_shape(params)), mask_shape(params))
    return [None] * len(ins), [tuple(whole[axis] for axis in params.out_axes)]


def _seen(x: Array, view: View) -> Array:
    flat = np.ascontiguousarray(x).reshape(-1)[view.start :]
    steps = [step * flat.itemsize for step in view.steps]
    return np.lib.stride_tricks.as_strided(flat, view.shape, steps).astype(np.float64)


def _reference(params: StridedAttentionAttrs, *arrays: Array) -> Array:
    q, k, v = (_seen(x, view) for x, view in zip(arrays, views(params)))
    scores = q @ k.swapaxes(-1, -2) * params.scale
    if params.masked:
        mask = np.broadcast_to(arrays[3], mask_shape(params)).swapaxes(-1, -2)
        scores = np.where(mask == 0, scores, mask) if params.replaces else scores + mask
    if params.is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    if params.unseen == "zero":
        top = np.where(np.isneginf(top), 0, top)
    with np.errstate(invalid="ignore"):  # of a query that sees no key
        e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    p = e / (np.where(total == 0, 1, total) if params.unseen == "zero" else total)
    p = np.where(np.isnan(p), 0, p) if params.unseen == "clean" else p
    return np.ascontiguousarray((p @ v).transpose(params.out_axes)).astype(arrays[0].dtype)


def _names(params: StridedAttentionAttrs) -> list[str]:
    return ["query", "key", "value", "mask"][: 4 if params.masked else 3]


strided_attention = define(
    "_strided_attention",
    "softmax(scale query key' + mask) value, with query, key and value as views of the inputs.",
    inputs={
        "query": "a tensor that the query is a part of",
        "key": "the same for the key",
        "value": "the same for the value",
        "mask": "broadcasts to (..., keys, queries), if there is one",
    },
    named=False,
    attrs=StridedAttentionAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
)
strided_attention.set_num_inputs(lambda params: len(_names(params)))
strided_attention.input_names = _names
