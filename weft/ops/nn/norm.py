"""Normalisations: by statistics of the batch, of layers, instances and groups, and by magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT64
from ...base.errors import ShapeError
from ...base.shape import mul_dims, normalize_axis, unify, unify_dim
from ...core.op import Op
from ...core.schema import BOOL, FLOAT, INT, attr, schema
from .. import _layouts as layouts
from .._families import OUT_FUSABLE, Array, F, Inferred, Joined, Shapes, attributes, define, floating, in_float32
from .dense_softmax import along, one

GAMMA, BETA = {"gamma": "the scales"}, {"beta": "the shifts"}


# What all of them do: take moments over axes, then scale what is left.


def moments(x: Array, axes: tuple[int, ...], centred: bool = True) -> tuple[Any, Array]:
    """Mean and variance in float64, axes kept; or 0 and the mean square."""
    wide = x.astype(np.float64)
    mean = wide.mean(axis=axes, keepdims=True) if centred else 0.0
    return mean, np.square(wide - mean).mean(axis=axes, keepdims=True)


def count_of(x: te.Tensor, axes: Sequence[int]) -> int:
    return math.prod([x.shape[axis] for axis in axes])


def te_mean(x: te.Tensor, axes: Sequence[int], name: str, body: Any) -> te.Tensor:
    """The mean of a body over axes, kept as extents of 1."""
    total = along(x, axes, f"{name}_sum", body, te.sum)
    count = te.as_expr(count_of(x, axes), x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / count, name=name)


def te_moments(x: te.Tensor, axes: Sequence[int]) -> tuple[te.Tensor, te.Tensor]:
    """Mean and variance, in two passes."""
    mean = te_mean(x, axes, "mean", lambda i: x[i])

    def square(i: Any) -> Any:
        centred = x[i] - mean[one(i, axes)]
        return centred * centred

    return mean, te_mean(x, axes, "variance", square)


# batch_norm


@schema
class BatchNormAttrs:
    axis: int = attr(INT, "the axis of channels", default=1)
    epsilon: float = attr(FLOAT, "added to the variance", default=1e-5)
    center: bool = attr(BOOL, "whether beta is added", default=True)
    scale: bool = attr(BOOL, "whether gamma multiplies", default=True)
    momentum: float = attr(FLOAT, "how much of the moving values stays", default=0.9)
    training: bool = attr(BOOL, "whether the batch's own moments are used", default=False)
    unbiased: bool = attr(BOOL, "whether the moving variance takes n / (n - 1) of the batch's", default=False)


def channel_axes(axis: int, rank: int, ranks: Sequence[int]) -> tuple[int, ...]:
    """The axes of the data that vectors of these ranks go along. To vectors of two axes belongs
    data whose channels are in blocks, such as NCHW16c: the last axis goes through a block."""
    channel = normalize_axis(axis, rank)
    return (channel, rank - 1) if 2 in ranks and channel < rank - 1 else (channel,)


def batch_norm_shape(params: BatchNormAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """What moves may be whole where the other vectors have blocks, and is so in training."""
    shape = unify(ins[0], outs[0])
    if shape is None:
        return [None] * 5, [None] * 3
    vectors = [vector for vector in (*ins[1:], *outs[1:]) if vector is not None]
    axes = channel_axes(params.axis, len(shape), [len(vector) for vector in vectors])
    dims = list(shape)
    for vector in vectors:
        if len(vector) == len(axes):
            for axis, dim in zip(axes, vector):
                dims[axis] = unify_dim(dims[axis], dim)
    channels = tuple([dims[axis] for axis in axes])
    whole = channels if len(channels) == 1 else (mul_dims(*channels),)
    moving = [whole if (params.training if vector is None else len(vector) == 1) else channels for vector in ins[3:]]
    return [tuple(dims), channels, channels, *moving], [tuple(dims), channels, channels]


def others_of(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(i for i in range(rank) if i not in axes)


def _batch_norm_reference(
    params: BatchNormAttrs, x: Array, gamma: Array, beta: Array, mean: Array, var: Array
) -> tuple[Array, ...]:
    axes = channel_axes(params.axis, x.ndim, [gamma.ndim])
    others = others_of(x.ndim, axes)
    used = [moment.astype(np.float64).reshape(gamma.shape) for moment in (mean, var)]
    if params.training:
        used = [moment.reshape(gamma.shape) for moment in moments(x, others)]
    spread = [1 if i in others else extent for i, extent in enumerate(x.shape)]
    scale = (gamma if params.scale else 1) / np.sqrt(used[1] + params.epsilon)
    shift = (beta if params.center else 0) - used[0] * scale
    out = x * scale.reshape(spread) + shift.reshape(spread)
    results = [out, *used]
    if params.training:
        grown = unbiasing(params, x.size // max(mean.size, 1))
        now = [moment.reshape(mean.shape) for moment in (used[0], used[1] * grown)]
        results += moved(params, (mean, var), now)
    return tuple(result.astype(x.dtype) for result in results)


def moved(params: BatchNormAttrs, old: Sequence[Array], now: Sequence[Array]) -> list[Array]:
    """Moving values, of which momentum says how much stays."""
    kept = params.momentum
    return [was * kept + new * (1 - kept) for was, new in zip(old, now)]


def unbiasing(params: BatchNormAttrs, count: int) -> float:
    return count / max(count - 1, 1) if params.unbiased else 1.0


def _te_unbiasing(params: BatchNormAttrs, count: int) -> te.Expr:
    """The same of a count that may be an argument."""
    if not params.unbiased:
        return te.const(1.0, FLOAT64)
    return te.as_expr(count, FLOAT64) / te.as_expr(max(count - 1, 1), FLOAT64)


@in_float32
def _batch_norm_compute(
    params: BatchNormAttrs, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, mean: te.Tensor, var: te.Tensor
) -> tuple[te.Tensor, ...]:
    axes = channel_axes(params.axis, x.rank, [gamma.rank])
    others = others_of(x.rank, axes)
    used = [_split(moment, gamma.shape) for moment in (mean, var)]
    if params.training:
        used = [_squeezed(moment, axes) for moment in te_moments(x, others)]

    def element(*i: Any) -> Any:
        c = tuple([i[axis] for axis in axes])
        value = (x[i] - used[0][c]) / te.sqrt(used[1][c] + params.epsilon)
        value = value * gamma[c] if params.scale else value
        return value + beta[c] if params.center else value

    out = te.compute(x.shape, element, name="batch_norm")
    copies = [te.compute(v.shape, lambda *c, v=v: v[c], name="moment") for v in used]
    if not params.training:
        return out, *copies
    growth = (te.const(1.0, FLOAT64), _te_unbiasing(params, count_of(x, others)))
    after = [_moving(params.momentum, *three) for three in zip((mean, var), used, growth)]
    return out, *copies, *after


def _split(whole: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """A vector in as many blocks as another one."""
    if whole.rank == len(shape):
        return whole
    return te.compute(tuple(shape), lambda outer, inner: whole[outer * shape[1] + inner])


def _moving(kept: float, old: te.Tensor, new: te.Tensor, growth: te.Expr) -> te.Tensor:
    part = te.cast(growth * (1 - kept), old.dtype)
    block = new.shape[-1]

    def element(*c: Any) -> Any:
        at = c if old.rank == new.rank else (c[0] // block, c[0] % block)
        return old[c] * kept + new[at] * part

    return te.compute(old.shape, element, name="moving")


def _squeezed(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Some axes of a tensor whose other extents are 1."""
    shape = tuple([x.shape[axis] for axis in axes])

    def element(*c: Any) -> Any:
        kept = dict(zip(axes, c))
        return x[tuple([kept.get(axis, 0) for axis in range(x.rank)])]

    return te.compute(shape, element)


def _batch_norm_gradient(ctx: Any, g: Any, g_mean: Any, g_var: Any) -> list[Any]:
    rule = _gradient_in_training if ctx.params.training else _gradient_in_inference
    return rule(ctx, g, g_mean, g_var)


def _gradient_in_training(ctx: Any, g: Any, g_mean: Any, g_var: Any) -> list[Any]:
    (x, gamma), params = ctx.inputs[:2], ctx.params
    data, scales, shifts = F._batch_norm_grad(g, x, gamma, *ctx.outputs[1:3], g_mean, g_var, **attributes(params))
    vectors = [scales if params.scale else None, shifts if params.center else None]
    return [data, *vectors, None, None]


def _gradient_in_inference(ctx: Any, g: Any, g_mean: Any, g_var: Any) -> list[Any]:
    """dgamma = sum g n; dbeta = sum g; dx = h / std with h = gamma g; dmean = g_mean - sum of dx;
    dvar = g_var - sum(h n) / (2 std^2)."""
    x, gamma, _, mean, var = ctx.inputs
    params = ctx.params
    over = {"axis": (params.axis,), "exclude": True}
    scale = (var + params.epsilon) ** -0.5
    wide = F.expand_like(scale, x, **over)
    unit = F.elemwise_mul(F.elemwise_sub(x, F.expand_like(mean, x, **over)), wide)
    inner = F.elemwise_mul(g, F.expand_like(gamma, x, **over)) if params.scale else g
    data = F.elemwise_mul(inner, wide)
    along_var = F.elemwise_mul(F.sum(F.elemwise_mul(inner, unit), **over), scale**2) * 0.5
    return [
        data,
        *_scale_and_shift(params, g, unit, over),
        F.elemwise_sub(g_mean, F.sum(data, **over)),
        F.elemwise_sub(g_var, along_var),
    ]


def _scale_and_shift(params: BatchNormAttrs, g: Any, unit: Any, over: dict[str, Any]) -> list[Any]:
    return [
        F.sum(F.elemwise_mul(g, unit), **over) if params.scale else None,
        F.sum(g, **over) if params.center else None,
    ]


batch_norm = define(
    "batch_norm",
    "gamma (data - mean) / sqrt(var + epsilon) + beta, for each channel; with the moving mean and "
    "variance, or when training the batch's own, by which the moving ones then move. To data in "
    "blocks of channels, such as NCHW16c, belong vectors in the same blocks, C16c; moving values "
    "may be whole.",
    level=1,
    inputs={
        "data": "the input",
        **GAMMA,
        **BETA,
        "moving_mean": "the moving mean",
        "moving_var": "the moving variance",
    },
    attrs=BatchNormAttrs,
    shape=batch_norm_shape,
    dtype=floating,
    layout=layouts.batch_norm,
    reference=_batch_norm_reference,
    compute=_batch_norm_compute,
    gradient=_batch_norm_gradient,
    visible_outputs=1,
    output_names=["output", "mean", "var"],
    mutates=[3, 4],
    native_from=64,
)
batch_norm.effect = lambda params: "mutates" if params.training else "pure"


def _moments_reference(params: BatchNormAttrs, x: Array, gamma: Array, beta: Array) -> Any:
    zeros = np.zeros(gamma.shape, x.dtype)
    return _batch_norm_reference(params, x, gamma, beta, zeros, zeros)[:3]


def _moments_compute(params: BatchNormAttrs, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> tuple[te.Tensor, ...]:
    return _batch_norm_compute(params, x, gamma, beta, gamma, gamma)[:3]


def _moments_shape(params: BatchNormAttrs, ins: Any, outs: Any) -> Any:
    inferred, results = batch_norm_shape(params, [*ins, ins[1], ins[1]], outs)
    return inferred[:3], results


def _moments_gradient(ctx: Any, g: Any, g_mean: Any, g_var: Any) -> list[Any]:
    return _gradient_in_training(ctx, g, g_mean, g_var)[:3]


define(
    "_batch_norm_moments",
    "batch_norm in training with the moments of the batch as outputs, and nothing that moves.",
    level=1,
    inputs={"data": "the input", **GAMMA, **BETA},
    attrs=BatchNormAttrs,
    shape=_moments_shape,
    dtype=floating,
    layout=layouts.batch_moments(images=1),
    reference=_moments_reference,
    compute=_moments_compute,
    gradient=_moments_gradient,
    output_names=["output", "mean", "var"],
)

# layer_norm and rms_norm: over the axes from `axis` to the last.


@schema
class LayerNormAttrs:
    axis: int = attr(INT, "the first of the axes that are normalised together", default=-1)
    epsilon: float = attr(FLOAT, "added to the variance", default=1e-5)


def trailing_shape(params: LayerNormAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    if shape is None:
        return [None] * len(ins), [None]
    trailing = shape[normalize_axis(params.axis, len(shape)) :]
    return [shape] + [trailing] * (len(ins) - 1), [shape]


def trailing_axes(params: LayerNormAttrs, rank: int) -> tuple[int, ...]:
    return tuple(range(normalize_axis(params.axis, rank), rank))


def joined_trailing(images: int) -> Callable[..., Joined]:
    """The first inputs as rows, and vectors that have an element for each of a row's."""

    def rule(params: LayerNormAttrs, *shapes: Sequence[int]) -> Joined:
        length = math.prod(shapes[-1])
        rows = [(math.prod(shape) // length, length) for shape in shapes[:images]]
        return replace(params, axis=1), [*rows, *[(length,) for _ in shapes[images:]]]

    return rule


def _layer_norm_reference(params: LayerNormAttrs, x: Array, gamma: Array, beta: Array) -> Array:
    mean, variance = moments(x, trailing_axes(params, x.ndim))
    return ((x - mean) / np.sqrt(variance + params.epsilon) * gamma + beta).astype(x.dtype)


@in_float32
def _layer_norm_compute(params: LayerNormAttrs, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    axes = trailing_axes(params, x.rank)
    mean, variance = te_moments(x, axes)

    def element(*i: Any) -> Any:
        unit = (x[i] - mean[one(i, axes)]) / te.sqrt(variance[one(i, axes)] + params.epsilon)
        kept = i[axes[0] :]
        return unit * gamma[kept] + beta[kept]

    return te.compute(x.shape, element, name="layer_norm")


def _layer_norm_gradient(ctx: Any, g: Any) -> list[Any]:
    return list(F._layer_norm_grad(g, *ctx.inputs[:2], **attributes(ctx.params)))


layer_norm = define(
    "layer_norm",
    "gamma (data - mean) / sqrt(var + epsilon) + beta, with moments over the last axes.",
    level=5,
    inputs={"data": "the input", **GAMMA, **BETA},
    attrs=LayerNormAttrs,
    pattern=OUT_FUSABLE,
    shape=trailing_shape,
    dtype=floating,
    layout=layouts.fixed_copy,
    reference=_layer_norm_reference,
    compute=_layer_norm_compute,
    gradient=_layer_norm_gradient,
    inplace=[(0, 0)],
    native_from=64,
    joined_axes=joined_trailing(1),
)


def _rms_norm_reference(params: LayerNormAttrs, x: Array, gamma: Array) -> Array:
    wide = x.astype(np.float64)
    square = np.square(wide).mean(axis=trailing_axes(params, x.ndim), keepdims=True)
    return (wide / np.sqrt(square + params.epsilon) * gamma).astype(x.dtype)


@in_float32
def _rms_norm_compute(params: LayerNormAttrs, x: te.Tensor, gamma: te.Tensor) -> te.Tensor:
    axes = trailing_axes(params, x.rank)
    square = te_mean(x, axes, "mean_square", lambda i: x[i] * x[i])
    return te.compute(
        x.shape, lambda *i: x[i] / te.sqrt(square[one(i, axes)] + params.epsilon) * gamma[i[axes[0] :]], name="rms_norm"
    )


def _rms_norm_gradient(ctx: Any, g: Any) -> list[Any]:
    return list(F._rms_norm_grad(g, *ctx.inputs, **attributes(ctx.params)))


rms_norm = define(
    "rms_norm",
    "gamma data / sqrt(mean of data^2 + epsilon), with the mean over the last axes.",
    level=5,
    inputs={"data": "the input", **GAMMA},
    attrs=LayerNormAttrs,
    pattern=OUT_FUSABLE,
    shape=trailing_shape,
    dtype=floating,
    layout=layouts.fixed_copy,
    reference=_rms_norm_reference,
    compute=_rms_norm_compute,
    gradient=_rms_norm_gradient,
    inplace=[(0, 0)],
    native_from=64,
    joined_axes=joined_trailing(1),
)

# instance_norm and group_norm: (N, C, ...), over groups of channels and all that follows.


@schema
class InstanceNormAttrs:
    epsilon: float = attr(FLOAT, "added to the variance", default=1e-5)


@schema
class GroupNormAttrs:
    num_groups: int = attr(INT, "the channels are split in so many groups", low=1)
    epsilon: float = attr(FLOAT, "added to the variance", default=1e-5)


def groups_of(params: Any, channels: int) -> int:
    return getattr(params, "num_groups", channels)


def group_norm_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    if shape is None:
        return [None] * 3, [None]
    if len(shape) < 2:
        raise ShapeError("the data needs a batch and a channel axis")
    channels = shape[1]
    for vector in ins[1:]:
        if vector is not None and len(vector) == 1:
            channels = unify_dim(channels, vector[0])
    groups = getattr(params, "num_groups", 1)
    if isinstance(channels, int) and channels % groups:
        raise ShapeError(f"{channels} channels cannot be split in {groups} groups")
    shape = (shape[0], channels, *shape[2:])
    return [shape, (channels,), (channels,)], [shape]


def joined_pixels(params: Any, *shapes: Sequence[int]) -> Joined:
    """(N, C, pixels), and vectors of channels."""
    return params, [(*shape[:2], math.prod(shape[2:])) if len(shape) > 1 else tuple(shape) for shape in shapes]


def _group_norm_reference(params: Any, x: Array, gamma: Array, beta: Array) -> Array:
    n, channels, *rest = x.shape
    groups = groups_of(params, channels)
    split = x.reshape(n, groups, channels // max(groups, 1), *rest)
    mean, variance = moments(split, tuple(range(2, split.ndim)))
    unit = ((split - mean) / np.sqrt(variance + params.epsilon)).reshape(x.shape)
    spread = (-1, *[1] * len(rest))
    return (unit * gamma.reshape(spread) + beta.reshape(spread)).astype(x.dtype)


@in_float32
def _group_norm_compute(params: Any, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    n, channels, *rest = x.shape
    groups = groups_of(params, channels)
    size = 1 if groups is channels else channels // groups
    split = te.compute((n, groups, size, *rest), lambda *i: x[(i[0], i[1] * size + i[2], *i[3:])], name="groups")
    mean, variance = te_moments(split, tuple(range(2, split.rank)))

    def element(*i: Any) -> Any:
        at = (i[0], i[1] // size, 0, *[0] * len(rest))
        unit = (x[i] - mean[at]) / te.sqrt(variance[at] + params.epsilon)
        return unit * gamma[i[1]] + beta[i[1]]

    return te.compute(x.shape, element, name="group_norm")


def _channel_norm(name: str, doc: str, attrs: type) -> None:
    def gradient(ctx: Any, g: Any) -> list[Any]:
        grad = Op.get(f"_{name}_grad")
        return list(grad(g, *ctx.inputs[:2], **attributes(ctx.params)))

    define(
        name,
        doc,
        level=5,
        inputs={"data": "the input, (N, C, ...)", **GAMMA, **BETA},
        attrs=attrs,
        pattern=OUT_FUSABLE,
        shape=group_norm_shape,
        dtype=floating,
        reference=_group_norm_reference,
        compute=_group_norm_compute,
        native_from=64,
        joined_axes=joined_pixels,
        gradient=gradient,
        inplace=[(0, 0)],
    )


_channel_norm(
    "instance_norm",
    "gamma (data - mean) / sqrt(var + epsilon) + beta, with moments of each channel of each item.",
    InstanceNormAttrs,
)
_channel_norm(
    "group_norm",
    "gamma (data - mean) / sqrt(var + epsilon) + beta, with moments of each group of channels.",
    GroupNormAttrs,
)
