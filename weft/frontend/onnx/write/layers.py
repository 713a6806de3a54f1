"""Writers of layers: convolutions, products of matrices, attention, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL, FLOAT32
from ..writing import Writing, writes


def four(padding: Sequence[int]) -> list[int]:
    """(top, left, bottom, right) of 1, 2 or 4 numbers."""
    return list(padding) if len(padding) == 4 else list(padding) * (4 // len(padding))


def pair(values: Sequence[int]) -> list[int]:
    return list(values) * (2 // len(values))


@writes("conv2d", "conv2d_transpose")
def conv2d(w: Writing) -> None:
    """Filters are OIHW, and IOHW where transposed, for which weft's name is OIHW too."""
    params, out_layout = w.params, getattr(w.params, "out_layout", "__undef__")
    w.require(params.out_dtype == "same", f"out_dtype {params.out_dtype}")
    weight = w.moved(w.inputs[1], params.kernel_layout, "OIHW")
    attrs = {"strides": pair(params.strides), "pads": four(params.padding)}
    attrs |= _with_output_padding(w) if w.op_name == "conv2d_transpose" else {}
    image = w.node(
        "Conv" if w.op_name == "conv2d" else "ConvTranspose",
        w.image(),
        weight,
        *w.inputs[2:],
        kernel_shape=pair(params.kernel_size),
        dilations=pair(params.dilation),
        group=params.groups,
        **attrs,
    )
    w.give_image(image, None if out_layout == "__undef__" else out_layout)


def _with_output_padding(w: Writing) -> dict[str, list[int]]:
    """More rows behind are less padding behind; only what is left is padding of the output."""
    pads, more = four(w.params.padding), pair(w.params.output_padding)
    left = [max(m - pad, 0) for m, pad in zip(more, pads[2:])]
    fits = all(m < stride or not m for m, stride in zip(left, pair(w.params.strides)))
    w.require(fits, f"output_padding {more}")
    behind = [max(pad - m, 0) for m, pad in zip(more, pads[2:])]
    return {"pads": pads[:2] + behind, "output_padding": left}


@writes("dense")
def dense(w: Writing) -> None:
    """Gemm takes matrices; data of more axes is multiplied and shifted."""
    if w.rank == 2:
        w.give("Gemm", *w.inputs, transB=1)
        return
    weight = w.node("Transpose", w.inputs[1], perm=[1, 0])
    if not w.params.use_bias:
        w.give("MatMul", w.inputs[0], weight)
        return
    w.give("Add", w.node("MatMul", w.inputs[0], weight), w.inputs[2])


@writes("matmul")
def matmul(w: Writing) -> None:
    """The last axis of one with the first of the other; ONNX has it where the other is a matrix."""
    left, right = w.inputs
    shapes = [fact.shape for fact in w.ins]
    for side, flag in enumerate((w.params.transpose_a, w.params.transpose_b)):
        shapes[side] = shapes[side][::-1] if flag else shapes[side]
    left = w.node("Transpose", left) if w.params.transpose_a else left
    right = w.node("Transpose", right) if w.params.transpose_b else right
    if not shapes[0][-1]:
        w.give_value(_zeros(w))
    elif len(shapes[1]) == 2:
        w.give("MatMul", left, right)
    else:
        left = w.reshape(left, (math.prod(shapes[0][:-1]), shapes[0][-1]))
        right = w.reshape(right, (shapes[1][0], math.prod(shapes[1][1:])))
        w.give_shaped(w.node("MatMul", left, right))


def _zeros(w: Writing) -> str:
    fact = w.outs[0]
    return w.node("Expand", w.constant(0, fact.dtype), w.ints(fact.shape))


@writes("batch_matmul")
def batch_matmul(w: Writing) -> None:
    """A sum of no products is 0, which not every runtime knows."""
    flags = (w.params.transpose_a, w.params.transpose_b)
    if w.shape[-2 if flags[0] else -1] == 0:
        w.give_value(_zeros(w))
        return
    sides = [_swapped(w, name, len(fact.shape)) if flag else name for name, fact, flag in zip(w.inputs, w.ins, flags)]
    w.give("MatMul", *sides)


def _swapped(w: Writing, name: str, rank: int) -> str:
    return w.node("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2))


@writes("scaled_dot_product_attention")
def attention(w: Writing) -> None:
    """softmax(Q K^T scale + mask) V; a query that sees no key gets 0."""
    query, key, value, *mask = w.inputs
    params = w.params
    scale = 1 / math.sqrt(w.shape[-1]) if params.scale is None else params.scale
    scores = w.node("MatMul", query, _swapped(w, key, len(w.ins[1].shape)))
    scores = w.node("Mul", scores, w.constant(scale))
    scores = w.node("Add", scores, mask[0]) if params.mask == "additive" else scores
    seen = mask[:1] if params.mask == "boolean" else []
    if params.is_causal:
        seen.append(_before(w, (w.shape[-2], w.ins[1].shape[-2])))
    if not seen:
        w.give("MatMul", w.node("Softmax", scores, axis=-1), value)
        return
    visible = seen[0] if len(seen) == 1 else w.node("And", *seen)
    lowest = w.constant(np.finfo(np.float16).min)
    shares = w.node("Softmax", w.node("Where", visible, scores, lowest), axis=-1)
    w.give("MatMul", w.node("Where", visible, shares, w.constant(0)), value)


def _before(w: Writing, shape: tuple[Any, Any]) -> str:
    """Where the place of a key is not after that of the query."""
    if all(isinstance(dim, int) for dim in shape):
        return w.constant(np.tri(*shape), BOOL)
    return w.cast(w.node("Trilu", w.node("Expand", w.constant(1, FLOAT32), w.ints(shape)), upper=0), BOOL)


@writes("grid_sample")
def grid_sample(w: Writing) -> None:
    """Two modes were called bilinear and bicubic before opset 20, and linear and cubic since."""
    w.require(w.rank == 4 or w.opset >= 20, "volumes before opset 20")
    mode = w.params.mode.removeprefix("bi") if w.opset >= 20 else w.params.mode
    w.give("GridSample", *w.inputs, mode=mode, padding_mode=w.params.padding, align_corners=w.params.align_corners)


_METHODS = {"NEAREST_NEIGHBOR": "nearest", "BILINEAR": "linear"}


@writes("upsampling")
def upsampling(w: Writing) -> None:
    scales = w.constant([1, 1, w.params.scale, w.params.scale], FLOAT32)
    attrs = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    w.give_image(w.node("Resize", w.image(), "", scales, mode=_METHODS[w.params.method], **attrs))


@writes("resize")
def resize(w: Writing) -> None:
    params = w.params
    coordinates = params.coordinate_mode
    if coordinates == "auto":
        coordinates = "align_corners" if params.align_corners else "asymmetric"
    out = w.outs[0].shape
    attrs = {"nearest_mode": params.nearest_mode, "coordinate_transformation_mode": coordinates}
    if params.scales:
        by = [params.scales[which % len(params.scales)] for which in (0, 1)]
        for letter, scale in zip("HW", by):
            place = params.layout.index(letter)
            size = w.shape[place] * (int(scale) if scale == int(scale) else scale)
            fits = (math.floor(size) if isinstance(size, float) else size) == out[place]
            w.require(fits, "scales that do not give its size")
        wanted = ["", w.constant([1, 1, *by], FLOAT32)]
    else:
        wanted = ["", "", w.ints([out[params.layout.index(letter)] for letter in "NCHW"])]
    w.give_image(w.node("Resize", w.image(), *wanted, mode=_METHODS[params.method], **attrs))
