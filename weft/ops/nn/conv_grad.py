"""What the gradients of conv2d and conv2d_transpose are made of; each is linear in every input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.layout import Layout
from ...base.shape import Dim, Shape, sub_dims, unify
from ...core.op import Op
from .._families import OGRAD, OUT_FUSABLE, Array, F, Inferred, Shapes, attributes, define, numeric
from .._layouts import Answer, Layouts, rearrange
from ..reduce.reductions import ReduceAttrs
from ._convolution import (
    NCHW,
    OIHW,
    convolution_of,
    forward,
    te_forward,
    te_transpose_in_data,
    te_transpose_in_weight,
    transpose_in_data,
    transpose_in_weight,
    whole,
)
from .conv import Conv2DAttrs, Conv2DTransposeAttrs, canonical, conv_shape, transpose_shape


def _back(array: Array, canonical: Layout, layout: Layout, like: Array) -> Array:
    turned = rearrange(array, canonical, layout).astype(like.dtype, copy=False)
    return np.ascontiguousarray(turned)


# conv2d, in its data.


def _grad_data_shape(params: Conv2DAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    g, data, weight = ins
    (data, weight), (g,) = conv_shape(params, [unify(data, outs[0]), weight], [g])
    return [g, data, weight], [data]


def _grad_data_layout(params: Conv2DAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    conv = convolution_of(params)
    return [conv.out, conv.data, conv.kernel], [conv.data]


def _grad_data_reference(params: Conv2DAttrs, g: Array, x: Array, w: Array) -> Array:
    conv = convolution_of(params)
    height, width = (x.shape[conv.data.index_of(letter)] for letter in "HW")
    grad = transpose_in_data(conv, whole(g, conv.out), whole(w, conv.kernel), (height, width))
    return _back(grad, NCHW, conv.data, g)


def _grad_data_gradient(ctx: Any, gg: Any) -> list[Any]:
    g, _, w = ctx.inputs
    attrs = attributes(ctx.params)
    return [F.conv2d(gg, w, **attrs), None, F._conv2d_grad_weight(g, gg, **attrs)]


grad_data = define(
    "_conv2d_grad_data",
    "The gradient of conv2d's data: the transpose of conv2d in its data, applied to ograd.",
    inputs={**OGRAD, "data": "the data, of which only the shape is used", "weight": "the filters"},
    attrs=Conv2DAttrs,
    pattern=OUT_FUSABLE,
    shape=_grad_data_shape,
    dtype=numeric,
    layout=_grad_data_layout,
    reference=_grad_data_reference,
    ignored_inputs=[1],
    gradient=_grad_data_gradient,
    native_from=256,
)
grad_data.compute = lambda params, g, x, w: te_transpose_in_data(convolution_of(params), g, w, x.shape, g.dtype)

# conv2d, in its weight.


def _grad_weight_shape(params: Conv2DAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    g, data = ins
    (data, weight), (g,) = conv_shape(params, [data, outs[0]], [g])
    return [g, data], [weight]


def _grad_weight_layout(params: Conv2DAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    conv = convolution_of(params)
    return [conv.out, conv.data], [conv.kernel]


def _grad_weight_reference(params: Conv2DAttrs, g: Array, x: Array) -> Array:
    conv = convolution_of(params)
    grad = transpose_in_weight(conv, whole(g, conv.out), whole(x, conv.data))
    return _back(grad, OIHW, conv.kernel, g)


def _grad_weight_compute(params: Conv2DAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    shape = _grad_weight_shape(params, [g.shape, x.shape], [None])[1][0]
    return te_transpose_in_weight(convolution_of(params), g, x, shape, g.dtype)


def _grad_weight_gradient(ctx: Any, gg: Any) -> list[Any]:
    g, x = ctx.inputs
    attrs = attributes(ctx.params)
    return [F.conv2d(x, gg, **attrs), F._conv2d_grad_data(g, x, gg, **attrs)]


grad_weight = define(
    "_conv2d_grad_weight",
    "The gradient of conv2d's weight: the transpose of conv2d in its weight, applied to ograd.",
    inputs={**OGRAD, "data": "the data"},
    attrs=Conv2DAttrs,
    pattern=OUT_FUSABLE,
    shape=_grad_weight_shape,
    dtype=numeric,
    layout=_grad_weight_layout,
    reference=_grad_weight_reference,
    compute=_grad_weight_compute,
    gradient=_grad_weight_gradient,
    native_from=256,
)

# conv2d, in all its inputs at once: NNVM's form.


def _grad_shape(params: Conv2DAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    g, data, weight = ins
    shapes = [unify(data, outs[0]), unify(weight, outs[1]), *outs[2:]]
    inputs, (g,) = conv_shape(params, shapes, [g])
    return [g, *inputs[:2]], inputs


def _grad_layout(params: Conv2DAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    conv = convolution_of(params)
    return [conv.out, conv.data, conv.kernel], [conv.data, conv.kernel, conv.bias][: len(outs)]


def _all_but_channels(params: Conv2DAttrs) -> ReduceAttrs:
    axes = enumerate(convolution_of(params).out.axes)
    return ReduceAttrs(axis=tuple(axis for axis, (letter, _) in axes if letter in "Cc"), exclude=True)


def _grad_reference(params: Conv2DAttrs, g: Array, x: Array, w: Array) -> Any:
    grads = [_grad_data_reference(params, g, x, w), _grad_weight_reference(params, g, x)]
    bias = Op.reference[F.sum](_all_but_channels(params), g) if params.use_bias else None
    return grads if bias is None else [*grads, bias]


def _grad_compute(params: Conv2DAttrs, g: te.Tensor, x: te.Tensor, w: te.Tensor) -> Any:
    data = te_transpose_in_data(convolution_of(params), g, w, x.shape, g.dtype)
    grads = [data, _grad_weight_compute(params, g, x)]
    return grads + ([Op.compute[F.sum](_all_but_channels(params), g)] if params.use_bias else [])


def _grad_gradient(ctx: Any, data: Any, weight: Any, *bias: Any) -> list[Any]:
    g, x, w = ctx.inputs
    attrs = attributes(ctx.params)
    plain = {**attrs, "use_bias": False}
    return [
        F.conv2d(data, w, *bias, **attrs) + F.conv2d(x, weight, **plain),
        F._conv2d_grad_data(g, x, weight, **plain),
        F._conv2d_grad_weight(g, data, **plain),
    ]


grad = define(
    "_conv2d_grad",
    "The gradients of conv2d's data, weight and, if it has one, bias.",
    inputs={**OGRAD, "data": "the data", "weight": "the filters"},
    attrs=Conv2DAttrs,
    shape=_grad_shape,
    dtype=numeric,
    layout=_grad_layout,
    reference=_grad_reference,
    compute=_grad_compute,
    gradient=_grad_gradient,
    is_backward=True,
    output_names=lambda params: ["data", "weight", "bias"][: 3 if params.use_bias else 2],
    native_from=256,
)
grad.set_num_outputs(lambda params: 3 if params.use_bias else 2)

# conv2d_transpose. As it is the transpose of a convolution, its transpose is that convolution.


def _transpose_grad_data_shape(params: Conv2DTransposeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    g, weight = ins
    conv = convolution_of(params)
    data: Shape = outs[0]
    if g is not None and weight is not None:
        n, _, *extents = canonical(conv.out, g)
        kernel: Any = conv.kernel.convert_shape(weight, OIHW)
        counts = _windows_made(params, extents)
        data = unify(data, NCHW.convert_shape((n, kernel[0], *counts), conv.data))
    if data is None:
        return [None, None], [None]
    (data, weight), (g,) = transpose_shape(params, [data, weight], [g])
    return [g, weight], [data]


def _windows_made(params: Conv2DTransposeAttrs, extents: Sequence[Dim]) -> list[Dim]:
    """The windows that fit beside the output's padding."""
    extra = (params.output_padding[0], params.output_padding[-1])
    return [
        win.out_extent(sub_dims(extent, more))
        for win, extent, more in zip(convolution_of(params).windows, extents, extra)
    ]


def _transpose_grad_data_layout(params: Conv2DTransposeAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    conv = convolution_of(params)
    return [conv.out, conv.kernel], [conv.data]


def _transpose_grad_data_reference(params: Conv2DTransposeAttrs, g: Array, w: Array) -> Array:
    conv, grad = convolution_of(params), whole(g, convolution_of(params).out)
    outs: Any = tuple(_windows_made(params, grad.shape[2:]))
    out = forward(conv, grad, whole(w, conv.kernel), outs)
    return _back(out, NCHW, conv.data, g)


def _transpose_grad_data_compute(params: Conv2DTransposeAttrs, g: te.Tensor, w: te.Tensor) -> te.Tensor:
    shape = _transpose_grad_data_shape(params, [g.shape, w.shape], [None])[1][0]
    return te_forward(convolution_of(params), g, w, shape, g.dtype)


def _transpose_grad_data_gradient(ctx: Any, gg: Any) -> list[Any]:
    g, w = ctx.inputs
    attrs = attributes(ctx.params)
    return [F.conv2d_transpose(gg, w, **attrs), F._conv2d_transpose_grad_weight(g, gg, **attrs)]


transpose_grad_data = define(
    "_conv2d_transpose_grad_data",
    "The gradient of conv2d_transpose's data: the convolution of ograd by the weight.",
    inputs={**OGRAD, "weight": "the filters"},
    attrs=Conv2DTransposeAttrs,
    pattern=OUT_FUSABLE,
    shape=_transpose_grad_data_shape,
    dtype=numeric,
    layout=_transpose_grad_data_layout,
    reference=_transpose_grad_data_reference,
    compute=_transpose_grad_data_compute,
    gradient=_transpose_grad_data_gradient,
    native_from=256,
)


def _transpose_grad_weight_shape(params: Conv2DTransposeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    g, data = ins
    (data, weight), (g,) = transpose_shape(params, [data, outs[0]], [g])
    return [g, data], [weight]


def _transpose_grad_weight_reference(params: Conv2DTransposeAttrs, g: Array, x: Array) -> Array:
    conv = convolution_of(params)
    grad = transpose_in_weight(conv, whole(x, conv.data), whole(g, conv.out))
    return _back(grad, OIHW, conv.kernel, g)


def _transpose_grad_weight_compute(params: Conv2DTransposeAttrs, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    shape = _transpose_grad_weight_shape(params, [g.shape, x.shape], [None])[1][0]
    return te_transpose_in_weight(convolution_of(params), x, g, shape, g.dtype)


def _transpose_grad_weight_gradient(ctx: Any, gg: Any) -> list[Any]:
    g, x = ctx.inputs
    attrs = attributes(ctx.params)
    return [F.conv2d_transpose(x, gg, **attrs), F._conv2d_transpose_grad_data(g, gg, **attrs)]


transpose_grad_weight = define(
    "_conv2d_transpose_grad_weight",
    "The gradient of conv2d_transpose's weight.",
    inputs={**OGRAD, "data": "the data"},
    attrs=Conv2DTransposeAttrs,
    pattern=OUT_FUSABLE,
    shape=_transpose_grad_weight_shape,
    dtype=numeric,
    layout=_grad_weight_layout,
    reference=_transpose_grad_weight_reference,
    compute=_transpose_grad_weight_compute,
    gradient=_transpose_grad_weight_gradient,
    native_from=256,
)
