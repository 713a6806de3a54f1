"""The gradients of normalisations as operators: one pass over the moments gives those of data,
scales and shifts. They are differentiable again, by composition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.shape import unify
from .. import _layouts as layouts
from .._families import OGRAD, Array, F, Inferred, Shapes, define, floating, in_float32
from .dense_softmax import along, one
from .norm import (
    BatchNormAttrs,
    GroupNormAttrs,
    InstanceNormAttrs,
    LayerNormAttrs,
    batch_norm_shape,
    channel_axes,
    count_of,
    group_norm_shape,
    groups_of,
    joined_pixels,
    joined_trailing,
    moments,
    others_of,
    te_mean,
    te_moments,
    trailing_axes,
    trailing_shape,
)


class Frame(NamedTuple):
    """How a norm sees its data: axes that are normalised together, as reductions take them, after
    the channels are split; the axes that share a scale (None for none), and whether the scales
    belong to axis 1, or to the last axes; whether the mean is taken away."""

    over: dict[str, Any]
    shared: dict[str, Any] | None
    by_channel: bool
    groups: int | None = None
    centred: bool = True

    def split(self, value: Any) -> Any:
        if self.groups is None:
            return value
        return F.reshape(value, shape=(0, -4, self.groups, -1, -2))

    def spread(self, vector: Any, like: Any) -> Any:
        if self.by_channel:
            return F.expand_like(vector, like, **(self.shared or {}))
        return F.broadcast_like(vector, like)

    def summed(self, value: Any) -> Any:
        return value if self.shared is None else F.sum(value, **self.shared)

    def mean(self, value: Any) -> Any:
        return F.mean(value, keepdims=True, **self.over)

    def unit(self, x: Any, epsilon: float) -> tuple[Any, Any]:
        """(x - mean) / sqrt(variance + epsilon), and the reciprocal of that root."""
        left = F.broadcast_sub(x, self.mean(x)) if self.centred else x
        scale = (self.mean(F.elemwise_mul(left, left)) + epsilon) ** -0.5
        return F.broadcast_mul(left, scale), scale

    def through(self, g: Any, unit: Any, scale: Any) -> Any:
        """The gradient of x by that of n = (x - mean) / std: (g - mean g - n mean(g n)) / std"""
        rest = F.broadcast_sub(g, self.mean(g)) if self.centred else g
        shared = F.broadcast_mul(unit, self.mean(F.elemwise_mul(g, unit)))
        return F.broadcast_mul(F.elemwise_sub(rest, shared), scale)


def _second_gradient(frame: Frame, ctx: Any, to_data: Any, *to_vectors: Any) -> list[Any]:
    """With h = gamma g, n = (x - mean) / std, P h = (h - mean h - n mean(h n)) / std = dx and A, B,
    C the gradients of dx, dgamma, dbeta: dg = gamma P A + B n + C; dgamma = sum g P A;
    dx = P(B g - (A mean(h n) + h mean(A n)) / std) - n mean(A dx) / std."""
    (g, x, gamma), split = ctx.inputs, frame.split
    unit, scale = frame.unit(split(x), ctx.params.epsilon)
    back = lambda value: value if frame.groups is None else F.reshape_like(value, x)
    wide, a = frame.spread(gamma, x), split(to_data)
    h = split(F.elemwise_mul(g, wide))
    by_gamma = frame.spread(to_vectors[0], x)
    data = frame.through(h, unit, scale)
    projected = back(frame.through(a, unit, scale))
    along_h, along_a = (frame.mean(F.elemwise_mul(value, unit)) for value in (h, a))
    both = F.elemwise_add(F.broadcast_mul(a, along_h), F.broadcast_mul(h, along_a))
    inner = F.elemwise_sub(split(F.elemwise_mul(by_gamma, g)), F.broadcast_mul(both, scale))
    shrunk = F.elemwise_mul(scale, frame.mean(F.elemwise_mul(a, data)))
    to_x = F.elemwise_sub(frame.through(inner, unit, scale), F.broadcast_mul(unit, shrunk))
    to_g = F.elemwise_add(F.elemwise_mul(wide, projected), F.elemwise_mul(by_gamma, back(unit)))
    if len(to_vectors) > 1:
        to_g = F.elemwise_add(to_g, frame.spread(to_vectors[1], x))
    return [to_g, back(to_x), frame.summed(F.elemwise_mul(g, projected))]


def _gradients(g: Array, unit: Array, scale: Array, gamma: Array, axes: tuple[int, ...], centred: bool) -> Array:
    """dx in float64, of arrays that broadcast."""
    inner = g * gamma
    along = (inner * unit).mean(axes, keepdims=True)
    rest = inner - inner.mean(axes, keepdims=True) if centred else inner
    return np.asarray((rest - unit * along) * scale)


def _te_gradient(
    x: te.Tensor,
    axes: Sequence[int],
    left: Callable[[Any], Any],
    spread: Callable[[Any], Any],
    inner: Callable[[Any], Any],
    centred: bool,
) -> Callable[[Any], Any]:
    """dx at an index of x, by what x - mean, std^2 and gamma g are there. The mean of gamma g is taken away before
    the two are multiplied, unless it is infinite: what rounding leaves of one mean then meets nothing of the other."""
    even = te_mean(x, axes, "even", inner) if centred else None

    def rest(i: Any) -> Any:
        return inner(i) if even is None else inner(i) - even[one(i, axes)]

    def apart(i: Any) -> Any:
        if even is None:
            return inner(i)
        mean = even[one(i, axes)]
        return inner(i) - te.select(te.isfinite(mean), mean, 0.0)

    shared = te_mean(x, axes, "shared", lambda i: apart(i) * left(i))

    def element(i: Any) -> Any:
        return (rest(i) - left(i) * (shared[one(i, axes)] / spread(i))) / te.sqrt(spread(i))

    return element


def _te_sums(x: te.Tensor, kept: Sequence[int], bodies: Sequence[Callable[[Any], Any]]) -> list[te.Tensor]:
    """Sums over all but some axes, which alone are left."""
    axes = [axis for axis in range(x.rank) if axis not in kept]
    shape = tuple([x.shape[axis] for axis in kept])
    sums = [along(x, axes, "sums", body, te.sum) if axes else None for body in bodies]

    def at(index: Sequence[Any]) -> tuple[Any, ...]:
        kept_at = dict(zip(kept, index))
        return tuple(kept_at.get(axis, 0) for axis in range(x.rank))

    return [
        te.compute(shape, lambda *i, t=total, f=body: f(at(i)) if t is None else t[at(i)])
        for total, body in zip(sums, bodies)
    ]


# layer_norm and rms_norm


def _trailing_frame(params: LayerNormAttrs, centred: bool) -> Frame:
    if params.axis < 0:
        axes = tuple(range(params.axis, 0))
        over, shared = {"axis": axes}, {"axis": axes, "exclude": True}
        return Frame(over, shared, False, centred=centred)
    if params.axis == 0:
        return Frame({"axis": ()}, None, False, centred=centred)
    axes = tuple(range(params.axis))
    return Frame({"axis": axes, "exclude": True}, {"axis": axes}, False, centred=centred)


def _trailing_grad_shape(params: LayerNormAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data = unify(unify(ins[0], ins[1]), outs[0])
    (data, trailing), _ = trailing_shape(params, [data, None], [None])
    for vector in (ins[2], *outs[1:]):
        trailing = unify(trailing, vector)
    return [data, data, trailing], [data, *[trailing] * (len(outs) - 1)]


def _trailing_reference(centred: bool) -> Callable[..., Any]:
    def reference(params: LayerNormAttrs, g: Array, x: Array, gamma: Array) -> tuple[Array, ...]:
        axes = trailing_axes(params, x.ndim)
        wide, others = g.astype(np.float64), tuple(range(axes[0]))
        mean, variance = moments(x, axes, centred)
        scale = 1 / np.sqrt(variance + params.epsilon)
        unit = (x - mean) * scale
        data = _gradients(wide, unit, scale, gamma, axes, centred)
        grads = [data, (wide * unit).sum(others)]
        grads += [wide.sum(others)] if centred else []
        return tuple(array.astype(x.dtype) for array in grads)

    return reference


def _trailing_compute(centred: bool) -> Callable[..., Any]:
    @in_float32
    def compute(params: LayerNormAttrs, g: te.Tensor, x: te.Tensor, gamma: te.Tensor) -> tuple[te.Tensor, ...]:
        axes = trailing_axes(params, x.rank)
        if centred:
            mean, variance = te_moments(x, axes)
            left = lambda i: x[i] - mean[one(i, axes)]
        else:
            variance = te_mean(x, axes, "mean_square", lambda i: x[i] * x[i])
            left = lambda i: x[i]
        spread = lambda i: variance[one(i, axes)] + params.epsilon
        inner = lambda i: g[i] * gamma[i[axes[0] :]]
        data = _te_gradient(x, axes, left, spread, inner, centred)
        bodies = [lambda i: g[i] * (left(i) / te.sqrt(spread(i))), *([lambda i: g[i]] if centred else [])]
        return te.compute(x.shape, lambda *i: data(i), name="data"), *_te_sums(x, axes, bodies)

    return compute


def _trailing_grad(name: str, centred: bool) -> None:
    vectors = ["gamma", "beta"] if centred else ["gamma"]
    define(
        name,
        f"The gradients of data and {' and '.join(vectors)}.",
        inputs={**OGRAD, "data": "the input", "gamma": "the scales"},
        named=False,
        attrs=LayerNormAttrs,
        shape=_trailing_grad_shape,
        dtype=floating,
        reference=_trailing_reference(centred),
        compute=_trailing_compute(centred),
        native_from=64,
        joined_axes=joined_trailing(2),
        output_names=["data", *vectors],
        gradient=lambda ctx, *grads: _second_gradient(_trailing_frame(ctx.params, centred), ctx, *grads),
    ).set_num_outputs(1 + len(vectors))


_trailing_grad("_layer_norm_grad", True)
_trailing_grad("_rms_norm_grad", False)

# group_norm and instance_norm


def _group_frame(params: Any) -> Frame:
    groups = getattr(params, "num_groups", None)
    over, channel = {"axis": (0, 1), "exclude": True}, {"axis": (1,), "exclude": True}
    return Frame(over, channel, True, groups)


def _group_grad_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    data = unify(unify(ins[0], ins[1]), outs[0])
    channels = unify(unify(ins[2], outs[1]), outs[2])
    (data, channels, _), _ = group_norm_shape(params, [data, channels, channels], [None])
    return [data, data, channels], [data, channels, channels]


def _group_reference(params: Any, g: Array, x: Array, gamma: Array) -> tuple[Array, ...]:
    n, channels, *rest = x.shape
    groups = groups_of(params, channels)
    split = lambda a: a.reshape(n, groups, channels // max(groups, 1), *rest)
    wide, axes = g.astype(np.float64), tuple(range(2, x.ndim + 1))
    mean, variance = moments(split(x), axes)
    scale = 1 / np.sqrt(variance + params.epsilon)
    unit = (split(x) - mean) * scale
    by_channel = gamma.reshape(1, groups, channels // max(groups, 1), *[1] * len(rest))
    data = _gradients(split(wide), unit, scale, by_channel, axes, True).reshape(x.shape)
    others = (0, *range(2, x.ndim))
    sums = [(wide * unit.reshape(x.shape)).sum(others), wide.sum(others)]
    return tuple(array.astype(x.dtype) for array in (data, *sums))


@in_float32
def _group_compute(params: Any, g: te.Tensor, x: te.Tensor, gamma: te.Tensor) -> tuple[te.Tensor, ...]:
    n, channels, *rest = x.shape
    groups = groups_of(params, channels)
    size = 1 if groups is channels else channels // groups
    joined = lambda i: (i[0], i[1] * size + i[2], *i[3:])
    apart = lambda i: (i[0], i[1] // size, i[1] % size, *i[2:])
    split = te.compute((n, groups, size, *rest), lambda *i: x[joined(i)], name="groups")
    axes = tuple(range(2, split.rank))
    mean, variance = te_moments(split, axes)
    left = lambda i: x[joined(i)] - mean[one(i, axes)]
    spread = lambda i: variance[one(i, axes)] + params.epsilon
    inner = lambda i: g[joined(i)] * gamma[joined(i)[1]]
    data = _te_gradient(split, axes, left, spread, inner, True)
    bodies = [lambda i: g[i] * (left(apart(i)) / te.sqrt(spread(apart(i)))), lambda i: g[i]]
    return te.compute(x.shape, lambda *i: data(apart(i)), name="data"), *_te_sums(x, (1,), bodies)


def _group_grad(name: str, attrs: type) -> None:
    define(
        name,
        "The gradients of data, gamma and beta.",
        inputs={**OGRAD, "data": "the input, (N, C, ...)", "gamma": "the scales"},
        named=False,
        attrs=attrs,
        shape=_group_grad_shape,
        dtype=floating,
        reference=_group_reference,
        compute=_group_compute,
        native_from=64,
        joined_axes=joined_pixels,
        output_names=["data", "gamma", "beta"],
        gradient=lambda ctx, *grads: _second_gradient(_group_frame(ctx.params), ctx, *grads),
    )


_group_grad("_instance_norm_grad", InstanceNormAttrs)
_group_grad("_group_norm_grad", GroupNormAttrs)

# batch_norm when training: the moments of the batch are inputs of their own.


def _batch_grad_shape(params: BatchNormAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, channels = unify(unify(ins[0], ins[1]), outs[0]), None
    for vector in (*ins[2:], *outs[1:]):
        channels = unify(channels, vector)
    (data, channels, *_), _ = batch_norm_shape(params, [data, *[channels] * 4], [None] * 3)
    return [data, data, *[channels] * 5], [data, channels, channels]


def _batch_reference(params: BatchNormAttrs, g: Array, x: Array, *vectors: Array) -> tuple[Array, ...]:
    axes = others_of(x.ndim, channel_axes(params.axis, x.ndim, [vectors[0].ndim]))
    spread = [1 if i in axes else extent for i, extent in enumerate(x.shape)]
    wide = [vector.astype(np.float64).reshape(spread) for vector in vectors]
    gamma, mean, var, to_mean, to_var = wide
    left, ograd = x - mean, g.astype(np.float64)
    scale = 1 / np.sqrt(var + params.epsilon)
    data = _gradients(ograd, left * scale, scale, gamma if params.scale else np.ones(()), axes, True)
    count = max(x.size // max(gamma.size, 1), 1)
    grads = [data + (to_mean + 2 * to_var * left) / count]
    grads += [(ograd * left * scale).sum(axes), ograd.sum(axes)]
    return tuple(array.astype(x.dtype) for array in grads)


@in_float32
def _batch_compute(params: BatchNormAttrs, g: te.Tensor, x: te.Tensor, *vectors: te.Tensor) -> tuple[te.Tensor, ...]:
    gamma, mean, var, to_mean, to_var = vectors
    channels = channel_axes(params.axis, x.rank, [gamma.rank])
    axes = others_of(x.rank, channels)
    channel = lambda i: tuple([i[axis] for axis in channels])
    left = lambda i: x[i] - mean[channel(i)]
    along_left, plain = _te_sums(x, channels, [lambda i: g[i] * left(i), lambda i: g[i]])
    count = te.cast(te.as_expr(count_of(x, axes)), x.dtype)
    scale = lambda c: 1 / te.sqrt(var[c] + params.epsilon)

    def element(*i: Any) -> Any:
        c = channel(i)
        factor = scale(c) * gamma[c] if params.scale else scale(c)
        slope = (to_var[c] * 2 - along_left[c] * factor * scale(c) * scale(c)) / count
        return g[i] * factor + left(i) * slope + (to_mean[c] - plain[c] * factor) / count

    by_gamma = te.compute(along_left.shape, lambda *c: along_left[c] * scale(c), name="gamma")
    return te.compute(x.shape, element, name="data"), by_gamma, plain


def _batch_second_gradient(ctx: Any, a: Any, to_gamma: Any, to_beta: Any) -> list[Any]:
    """With h = gamma g, n = (x - mean) / std, c(h) = h - mean h - n mean(h n), and A, B, C the
    gradients of dx, dgamma, dbeta: u = B g - (A mean(h n) + h mean(A n)) / std comes to n, so that
    dx = u / std + 2 dvar A / count; mean gets -sum dx, and var what is
    -(sum u n + sum A c(h) / std) / (2 std^2); dg = gamma c(A) / std + B n + C."""
    g, x, gamma, mean, var, _, to_var = ctx.inputs
    over = {"axis": (ctx.params.axis,), "exclude": True}
    wide = lambda vector: F.expand_like(vector, x, **over)
    times = lambda value, vector: F.elemwise_mul(value, wide(vector))
    product = lambda value, other: F.elemwise_mul(value, other)
    scale = (var + ctx.params.epsilon) ** -0.5
    left = F.elemwise_sub(x, wide(mean))
    unit = times(left, scale)
    along = lambda value: F.mean(product(value, unit), **over)

    def core(value: Any) -> Any:
        rest = F.elemwise_sub(value, wide(F.mean(value, **over)))
        return F.elemwise_sub(rest, times(unit, along(value)))

    h = times(g, gamma) if ctx.params.scale else g
    projected = times(core(a), scale)
    both = F.elemwise_add(times(a, along(h)), times(h, along(a)))
    to_unit = F.elemwise_sub(times(g, to_gamma), times(both, scale))
    direct = times(a, F._divide_by_count(to_var, x, **over) * 2)
    to_x = F.elemwise_add(times(to_unit, scale), direct)
    by_scale = F.elemwise_mul(F.sum(product(a, core(h)), **over), scale)
    spread = F.elemwise_add(F.sum(product(to_unit, unit), **over), by_scale)
    to_g = times(projected, gamma) if ctx.params.scale else projected
    to_g = F.elemwise_add(to_g, F.elemwise_add(times(unit, to_gamma), wide(to_beta)))
    return [
        to_g,
        to_x,
        F.sum(product(g, projected), **over) if ctx.params.scale else None,
        -F.sum(to_x, **over),
        F.elemwise_mul(spread, scale**2) * -0.5,
        F.mean(a, **over),
        F.mean(product(a, left), **over) * 2,
    ]


define(
    "_batch_norm_grad",
    "The gradients of data, gamma and beta, given the moments of the batch and their gradients.",
    inputs={
        **OGRAD,
        "data": "the input",
        "gamma": "the scales",
        "mean": "the mean of each channel",
        "var": "the variance of each channel",
        "mean_grad": "the gradient of the mean",
        "var_grad": "the gradient of the variance",
    },
    named=False,
    attrs=BatchNormAttrs,
    shape=_batch_grad_shape,
    dtype=floating,
    layout=layouts.batch_moments(images=2),
    reference=_batch_reference,
    compute=_batch_compute,
    output_names=["data", "gamma", "beta"],
    gradient=_batch_second_gradient,
    native_from=64,
)
