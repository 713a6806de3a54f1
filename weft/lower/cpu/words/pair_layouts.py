"""How a CPU likes products with weights of 16 bits: where it multiplies pairs of bfloat16 faster than floats, rows are
rounded too and weights are packed in pairs; elsewhere weights become float32 as they are loaded. Convolutions of
bfloat16 with sums of float32 read images with channels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import BFLOAT16, FLOAT32
from ....base.shape import is_static
from ....base.stages import decided
from ....core.ir import Fact
from ....core.op import Op
from ....core.symbol import Group, Symbol
from ....ops.nn.narrow_products import PAIR, NarrowAttrs
from ..layouts import WINOGRAD_GAIN, as_written, blocked_conv2d, convolution_times, four_pads


def _apply(name: str, *inputs: Symbol, **attrs: Any) -> Symbol:
    made: Symbol = Op.get(name)(*inputs, **attrs)
    return made


def pairs_pay(target: CpuTarget) -> bool:
    """Whether dot products of bfloat16 are faster than products of floats."""
    return target.facts.pair_flops > target.facts.flops


def narrow_dense(params: NarrowAttrs, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A product with packed weights."""
    data, weight = inputs
    shape, lanes = facts[1].shape, target.lanes(FLOAT32)
    if facts[0].shape is None or not is_static(shape):
        return None
    rows = as_written(data, facts[0])
    if facts[1].dtype != BFLOAT16 or not pairs_pay(target):
        panels = _apply("_pack_panels", weight, lanes=lanes, transposed=True)
        return _apply("_packed_matmul", rows, panels, units=params.units)
    units, depth = shape
    rows = _apply("cast", rows, dtype=BFLOAT16)
    if depth % PAIR:
        rows = _apply("pad", rows, pad_width=[(0, 0)] * (len(facts[0].shape) - 1) + [(0, 1)])
    filters = _apply("reshape", weight, shape=(units, depth, 1, 1))
    panels = _apply("_word_panels", filters, lanes=lanes, together=PAIR)
    return _apply("_pair_matmul", rows, panels, units=units)


def pair_conv2d(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A convolution of bfloat16 that sums in float32, in one group and without a bias; others as floats have them."""
    if facts[0].dtype != BFLOAT16 or params.out_dtype != "float32":
        return blocked_conv2d(params, inputs, facts, target)
    data, weight = list(inputs)[:2]
    shape, image = facts[1].shape, facts[0].shape
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW" and params.groups == 1
    if not plain or params.use_bias or not pairs_pay(target) or not is_static(image) or not is_static(shape):
        return None
    if _tiles_are_faster(params, image, target):
        wide = Group([_apply("cast", value, dtype=FLOAT32) for value in inputs])
        floats = [fact._replace(dtype=FLOAT32) for fact in facts]
        return blocked_conv2d(replace(params, out_dtype="same"), wide, floats, target)
    pads = four_pads(params.padding)
    if any(pads) or image[1] % PAIR:
        around = _apply("zeros", shape=(1,), dtype=BFLOAT16)
        data = _apply("_word_image", data, around, padding=pads, together=PAIR)
    panels = _apply("_word_panels", as_written(weight, facts[1]), lanes=target.lanes(FLOAT32), together=PAIR)
    attrs = {"kernel_size": params.kernel_size, "strides": params.strides, "dilation": params.dilation}
    return _apply("_pair_conv2d", data, panels, units=params.channels, **attrs)


def _tiles_are_faster(params: Any, image: tuple[int, ...], target: CpuTarget) -> bool:
    """Whether Winograd's products of floats take less time than direct ones of pairs, with the image and the result
    moved to blocks of channels and back."""
    lanes, core = target.lanes(FLOAT32), target.facts
    simple = params.kernel_size == (3, 3) and set(params.strides + params.dilation) == {1}
    if not simple or image[1] % lanes or params.channels % lanes:
        return False
    times = convolution_times(params, image, target)
    direct = times.pop(None) / WINOGRAD_GAIN * core.flops / core.pair_flops
    moved = prod(image) // image[1] * (image[1] + params.channels) * (BFLOAT16.itemsize + FLOAT32.itemsize)
    tiles = min(times.values()) + moved / core.near_rate
    forms = lambda: {"pairs, us": 1e6 * direct, "Winograd, us": 1e6 * tiles}
    decided("form of the convolution", _tiles_are_faster, "Winograd, us" if tiles < direct else "pairs, us", forms)
    return tiles < direct


PAIR_RULES = {"_narrow_dense": narrow_dense, "conv2d": pair_conv2d}
