"""conv2d and conv2d_transpose, in any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import DTYPES, DType
from ...base.errors import ShapeError
from ...base.layout import Layout
from ...base.shape import Dim, Ranked, Shape, add_dims, floor_div_dims, mul_dims, unify_dim
from ...core.infer import unify_dtype
from ...core.op import Op
from ...core.schema import BOOL, INT, LAYOUT, PADS, SIDES, attr, choice, schema
from .._families import OUT_FUSABLE, Array, F, Inferred, Shapes, attributes, define, numeric
from .._layouts import Answer, Layouts, logical_index, physical_index, rearrange
from ._convolution import (
    NCHW,
    OIHW,
    Convolution,
    convolution_of,
    forward,
    te_forward,
    te_transpose_in_data,
    transpose_in_data,
    whole,
)

OUT_DTYPE = choice("same", *DTYPES)
CONV_INPUTS = {
    "data": "the input",
    "weight": "the filters, in kernel_layout",
    "bias": "one number for each output channel, if use_bias",
}


@schema
class Conv2DAttrs:
    channels: int = attr(INT, "number of output channels", low=1)
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the filters", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    padding: tuple[int, ...] = attr(
        PADS, "zeros around: all, (height, width), or (top, left, bottom, right)", default=(0, 0), low=0
    )
    dilation: tuple[int, ...] = attr(SIDES, "distance of filter taps", default=(1, 1), low=1)
    groups: int = attr(INT, "inputs and outputs are split in so many groups", default=1, low=1)
    layout: str = attr(LAYOUT, "of the data", default="NCHW")
    kernel_layout: str = attr(LAYOUT, "of the weight", default="OIHW")
    out_layout: str = attr(LAYOUT, "of the output; undefined: as the data", default="__undef__")
    out_dtype: str = attr(OUT_DTYPE, "what to sum in and give", default="same")
    use_bias: bool = attr(BOOL, "whether there is a bias", default=True)


def optional_bias(op: Op) -> Op:
    """Lets `use_bias` say whether the last input is there."""
    names = list(CONV_INPUTS)
    op.set_num_inputs(lambda params: 3 if params.use_bias else 2)
    op.input_names = lambda params: names if params.use_bias else names[:2]
    return op


def conv_shape(params: Conv2DAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """Everything from the data; from the output, the batch, and the extents if strides are 1."""
    conv = convolution_of(params)
    if ins[0] is None:
        return [None] * len(ins), [None]
    n, c, *extents = canonical(conv.data, ins[0])
    if outs[0] is not None:
        batch, _, *known_outs = canonical(conv.out, outs[0])
        n = unify_dim(n, batch)
        said = [win.in_extent(out) for win, out in zip(conv.windows, known_outs)]
        extents = [unify_dim(extent, other) for extent, other in zip(extents, said)]
    out_extents = [win.out_extent(extent) for win, extent in zip(conv.windows, extents)]
    data = NCHW.convert_shape((n, c, *extents), conv.data)
    out = NCHW.convert_shape((n, params.channels, *out_extents), conv.out)
    kernel = (params.channels, _group_channels(c, params.groups), *_sizes(conv))
    weight = OIHW.convert_shape(kernel, conv.kernel)
    return [data, weight, _bias_shape(conv, params.channels)][: len(ins)], [out]


def canonical(layout: Layout, shape: Shape) -> Ranked:
    """A shape in a layout, as NCHW."""
    assert shape is not None
    if len(shape) != layout.ndim:
        raise ShapeError(
            f"a tensor of {len(shape)} dimensions cannot be in layout {layout}",
            hint=f"give one of {layout.ndim} dimensions, or another layout",
        )
    extents: Any = layout.convert_shape(shape, NCHW)
    return extents


def _sizes(conv: Convolution) -> tuple[int, int]:
    return conv.windows[0].size, conv.windows[1].size


def _group_channels(channels: Dim, groups: int) -> Dim:
    if isinstance(channels, int) and channels % groups:
        raise ShapeError(
            f"{channels} input channels cannot be split in {groups} groups", why="the number of groups must divide them"
        )
    return floor_div_dims(channels, groups)


def _bias_shape(conv: Convolution, channels: int) -> Shape:
    return Layout("C").convert_shape((channels,), conv.bias)


def conv_dtype(params: Conv2DAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Inferred:
    """Data and weight agree; out_dtype, if given, is that of the output and the bias."""
    if params.out_dtype == "same":
        return numeric(params, list(ins), list(outs))
    result = DTYPES[params.out_dtype]
    dtype = unify_dtype(ins[0], ins[1])
    return [dtype, dtype, result][: len(ins)], [result]


def conv_layout(params: Conv2DAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Asks for the layouts that the attributes name, and gives out_layout."""
    conv = convolution_of(params)
    return [conv.data, conv.kernel, conv.bias][: len(ins)], [conv.out]


def result_dtype(params: Any, dtype: DType) -> DType:
    """What the output of a convolution of that dtype is."""
    return dtype if params.out_dtype == "same" else DTYPES[params.out_dtype]


def _conv_reference(params: Conv2DAttrs, x: Array, w: Array, *bias: Array) -> Array:
    conv, dtype = convolution_of(params), result_dtype(params, x.dtype)
    out = forward(conv, whole(x, conv.data, dtype), whole(w, conv.kernel, dtype))
    return _finish(conv, out, dtype, *bias)


def _finish(conv: Convolution, out: Array, dtype: DType, *bias: Array) -> Array:
    if bias:
        channels = rearrange(bias[0], conv.bias, Layout("C")).astype(out.dtype)
        out = out + channels[:, None, None]
    return np.ascontiguousarray(rearrange(out, NCHW, conv.out).astype(dtype, copy=False))


def _conv_compute(params: Conv2DAttrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    conv, dtype = convolution_of(params), result_dtype(params, x.dtype)
    shape = conv_shape(params, [x.shape, w.shape, *(b.shape for b in bias)], [None])[1][0]
    return with_bias(conv, te_forward(conv, x, w, shape, dtype), *bias)


def with_bias(conv: Convolution, out: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    """The output with its bias added, if there is one."""
    if not bias:
        return out

    def element(*indices: Any) -> Any:
        channel = {"C": logical_index(conv.out, indices)["C"]}
        return out[indices] + te.cast(bias[0][physical_index(conv.bias, channel)], out.dtype)

    return te.compute(out.shape, element, name="bias_add")


def same_as(value: Any, like: Any, params: Any) -> Any:
    """The gradient of an output in the dtype of the inputs."""
    return value if params.out_dtype == "same" else F.cast_like(value, like)


def bias_gradient(ctx: Any, g: Any, out: Layout) -> list[Any]:
    """db = sum of g over all but the channels, if there is a bias."""
    if not ctx.params.use_bias:
        return []
    channels = [axis for axis, (letter, _) in enumerate(out.axes) if letter in "Cc"]
    return [F.sum(g, axis=tuple(channels), exclude=True)]


def _conv_gradient(ctx: Any, g: Any) -> list[Any]:
    x, w = ctx.inputs[:2]
    attrs = {**attributes(ctx.params), "out_dtype": "same", "use_bias": False}
    same = same_as(g, x, ctx.params)
    return [
        F._conv2d_grad_data(same, x, w, **attrs),
        F._conv2d_grad_weight(same, x, **attrs),
        *bias_gradient(ctx, g, convolution_of(ctx.params).out),
    ]


def _convolution(name: str, doc: str, reference: Callable[..., Array]) -> Op:
    return optional_bias(
        define(
            name,
            doc,
            level=2,
            inputs=CONV_INPUTS,
            named=False,
            attrs=Conv2DAttrs,
            pattern=OUT_FUSABLE,
            shape=conv_shape,
            dtype=conv_dtype,
            layout=conv_layout,
            reference=reference,
            compute=_conv_compute,
            gradient=_conv_gradient,
        )
    )


conv2d = _convolution(
    "conv2d",
    "2-D convolution: out[n,o,y,x] = bias[o] + sum over i,p,q of "
    "data[n, i, y*strides+p*dilation-padding, ...] * weight[o,i,p,q].",
    _conv_reference,
)
conv2d.native_from = 256
conv2d_nchwc = _convolution("_contrib_conv2d_NCHWc", "conv2d in layouts whose channels are blocked.", _conv_reference)


@schema
class Conv2DTransposeAttrs:
    channels: int = attr(INT, "number of output channels", low=1)
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the filters", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    padding: tuple[int, ...] = attr(
        PADS, "cut off the output: all, (height, width), or (top, left, bottom, right)", default=(0, 0), low=0
    )
    output_padding: tuple[int, ...] = attr(
        SIDES, "added to the output at the bottom and the right", default=(0, 0), low=0
    )
    dilation: tuple[int, ...] = attr(SIDES, "distance of filter taps", default=(1, 1), low=1)
    groups: int = attr(INT, "inputs and outputs are split in so many groups", default=1, low=1)
    layout: str = attr(LAYOUT, "of the data and the output", default="NCHW")
    kernel_layout: str = attr(
        LAYOUT, "of the weight; O are the channels of the data, I those of the output", default="OIHW"
    )
    out_dtype: str = attr(OUT_DTYPE, "what to sum in and give", default="same")
    use_bias: bool = attr(BOOL, "whether there is a bias", default=True)


def _transpose_extent(params: Conv2DTransposeAttrs, conv: Convolution, axis: int, dim: Dim) -> Dim:
    win, extra = conv.windows[axis], params.output_padding[axis % len(params.output_padding)]
    out = add_dims(mul_dims(dim, win.stride), win.reach - win.stride - win.before - win.after + extra)
    if isinstance(dim, int) and isinstance(out, int) and (dim < 1 or out < 1):
        raise ShapeError(f"conv2d_transpose of an extent of {dim} gives {out} elements")
    return out


def transpose_shape(params: Conv2DTransposeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    """Everything from the data; from the output, the batch."""
    conv = convolution_of(params)
    if ins[0] is None:
        return [None] * len(ins), [None]
    n, c, *extents = canonical(conv.data, ins[0])
    if outs[0] is not None:
        n = unify_dim(n, canonical(conv.out, outs[0])[0])
    _group_channels(c, params.groups)
    out_extents = [_transpose_extent(params, conv, axis, dim) for axis, dim in enumerate(extents)]
    data = NCHW.convert_shape((n, c, *extents), conv.data)
    out = NCHW.convert_shape((n, params.channels, *out_extents), conv.out)
    kernel = (c, params.channels // params.groups, *_sizes(conv))
    weight = OIHW.convert_shape(kernel, conv.kernel)
    return [data, weight, _bias_shape(conv, params.channels)][: len(ins)], [out]


def _transpose_reference(params: Conv2DTransposeAttrs, x: Array, w: Array, *bias: Array) -> Array:
    conv, dtype = convolution_of(params), result_dtype(params, x.dtype)
    data = whole(x, conv.data, dtype)
    extents: Any = tuple(_transpose_extent(params, conv, axis, dim) for axis, dim in enumerate(data.shape[2:]))
    out = transpose_in_data(conv, data, whole(w, conv.kernel, dtype), extents)
    return _finish(conv, out, dtype, *bias)


def _transpose_compute(params: Conv2DTransposeAttrs, x: te.Tensor, w: te.Tensor, *bias: te.Tensor) -> te.Tensor:
    conv, dtype = convolution_of(params), result_dtype(params, x.dtype)
    shape = transpose_shape(params, [x.shape, w.shape, *(b.shape for b in bias)], [None])[1][0]
    return with_bias(conv, te_transpose_in_data(conv, x, w, shape, dtype), *bias)


def _transpose_gradient(ctx: Any, g: Any) -> list[Any]:
    x, w = ctx.inputs[:2]
    attrs = {**attributes(ctx.params), "out_dtype": "same", "use_bias": False}
    same = same_as(g, x, ctx.params)
    return [
        F._conv2d_transpose_grad_data(same, w, **attrs),
        F._conv2d_transpose_grad_weight(same, x, **attrs),
        *bias_gradient(ctx, g, Layout(ctx.params.layout)),
    ]


conv2d_transpose = optional_bias(
    define(
        "conv2d_transpose",
        "The transpose of conv2d in its data: out[n,o,y*strides+p*dilation-padding,...] sums "
        "data[n,i,y,x] * weight[i,o,p,q].",
        level=2,
        inputs=CONV_INPUTS,
        named=False,
        attrs=Conv2DTransposeAttrs,
        pattern=OUT_FUSABLE,
        shape=transpose_shape,
        dtype=conv_dtype,
        layout=conv_layout,
        reference=_transpose_reference,
        compute=_transpose_compute,
        gradient=_transpose_gradient,
        native_from=256,
    )
)
