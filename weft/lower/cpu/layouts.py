"""What operators prefer on a CPU: the rules that AlterOpLayout asks.

conv2d works on blocks of channels, as many as a vector has lanes, so that every vector is full.
Products with a matrix of weights take it in packed panels. With constant weights both are done
once, when constants are folded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any, TypeGuard

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32
from ...base.shape import Shape, is_static
from ...base.stages import decided
from ...core.ir import Fact
from ...core.op import Op
from ...core.schema import canonical
from ...core.symbol import Group, Symbol
from ...ops.linalg import matmul  # noqa: F401  the operators used here
from ...ops.nn import conv, halo, packed, rnn, winograd  # noqa: F401  the operators used here
from ...ops.nn._rnn_kernels import PANEL
from ...ops.shape import pad, slicing  # noqa: F401  the operators used here
from ...ops.vision import bilinear  # noqa: F401  the operator used here
from .operands import lanes_for
from .product import packs_columns
from .winograd import tiles_rate

MANY_ROWS = 64  # for which a matrix that is computed in the same run is packed


def channel_block(channels: int, target: CpuTarget) -> int | None:
    """The largest block of channels that fills a vector, or at least a half or a quarter of one."""
    lanes = target.lanes(FLOAT32)
    fitting = [block for block in (lanes, lanes // 2, lanes // 4) if block > 1]
    return next((block for block in fitting if channels % block == 0), None)


def blocked_conv2d(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """conv2d with its channels in blocks; None where they do not divide into any."""
    shape = facts[0].shape
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    if not plain or not _are_channels_known(shape) or facts[0].dtype != FLOAT32:
        return None
    lanes, closed = target.lanes(FLOAT32), _is_image_known(shape)
    if params.groups == 1 and _fills_up(params, shape, target):
        return _rounded_up(params, inputs, facts, target)
    layouts = _conv2d_layouts(shape[1], params.channels, params.groups, target)
    if layouts is None and not closed and params.groups == 1 and lanes > 1:
        return _rounded_up(params, inputs, facts, target)
    if layouts is None:
        return None
    tile = winograd_tile(params, shape, layouts, target) if closed else None
    if tile:
        return _winograd(params, inputs, shape, tile, target.lanes(FLOAT32))
    attrs = {**canonical(params), **layouts}
    pads = _needed_pads(params, shape) if closed else four_pads(params.padding)
    if layouts["layout"] == "NCHW" or not any(pads):
        return Op.get("conv2d")(*inputs, **attrs)
    data, *rest = inputs
    return Op.get("conv2d")(surrounded(data, pads), *rest, **{**attrs, "padding": "(0, 0)"})


def _fills_up(params: Any, shape: Sequence[Any], target: CpuTarget) -> bool:
    """Whether some more channels, which fill the last vector and are cut off again, cost less than what else there is:
    Winograd's tiles may serve them, but what is made goes through memory twice more."""
    lanes, block = target.lanes(FLOAT32), channel_block(params.channels, target)
    if params.channels % lanes == 0:
        return False
    if block is None or not _is_image_known(tuple(shape)):
        return params.channels >= MANY * lanes and 2 * (block or 1) < lanes
    core, wider = target.facts, replace(params, channels=params.channels + -params.channels % lanes)
    pads = four_pads(params.padding)
    extents = [
        (shape[2 + axis] + pads[axis] + pads[2 + axis] - params.dilation[axis] * (size - 1) - 1) // params.strides[axis]
        + 1
        for axis, size in enumerate(params.kernel_size)
    ]
    spots = (shape[0] if isinstance(shape[0], int) else OPEN_IMAGES) * prod(extents)
    work = 2 * shape[1] * prod(params.kernel_size) * spots / core.flops
    filled: dict[int | None, float] = {None: work * wider.channels}
    whole = _conv2d_layouts(shape[1], wider.channels, 1, target) or {}
    if winograd_tile(wider, shape, {"layout": "", "out_layout": "", **whole}, target):
        filled |= convolution_times(wider, shape, target)
    moved = 4 * spots * (wider.channels + 2 * params.channels) * FLOAT32.itemsize / core.near_rate
    costs = {"parts of vectors, us": 1e6 * work * _computed(params.channels, block, target)}
    costs["more channels, us"] = 1e6 * (min(filled.values()) + moved)
    best = min(costs, key=lambda form: costs[form])
    decided("channels that fill no vectors", _fills_up, best, lambda: costs)
    return best == "more channels, us"


def _computed(channels: int, block: int, target: CpuTarget) -> int:
    """How many channels units compute, those that are not there as well, where they are stored in blocks: two halves
    of a vector are computed as a whole one."""
    unit = max(target.unit_bits // (8 * FLOAT32.itemsize), block)
    together = 2 if 2 * block == unit else 1
    return -(-channels // (block * together)) * unit


def _are_channels_known(shape: Shape) -> TypeGuard[tuple[Any, int, Any, Any]]:
    """Whether channels are a number; all else may follow from names."""
    return shape is not None and None not in shape and isinstance(shape[1], int)


def _is_image_known(shape: Shape) -> TypeGuard[tuple[Any, int, int, int]]:
    """Whether channels, height and width are numbers; there may be any number of images."""
    return shape is not None and is_static(shape[1:])


def _rounded_up(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """conv2d with some more channels, which fill the last vector and are cut off again."""
    lanes = target.lanes(FLOAT32)
    more = -params.channels % lanes
    data, weight, *bias = inputs
    rest = facts[1].shape[1:]  # type: ignore[index]
    filters = _with_zeros(weight, more, len(rest))
    wider = replace(params, channels=params.channels + more)
    grown = [facts[0], facts[1]._replace(shape=(wider.channels, *rest)), *facts[2:]]
    symbols = Group([data, filters, *(_with_zeros(b, more, 0) for b in bias)])
    made = blocked_conv2d(wider, symbols, grown, target)
    if made is None:
        return None
    layout = f"NCHW{lanes}c"
    plain = Op.get("__layout_transform__")(made, src_layout=layout, dst_layout="NCHW")
    return Op.get("strided_slice")(plain, begin=(0, 0), end=(2**31 - 1, params.channels))


def _with_zeros(value: Symbol, more: int, rank: int) -> Symbol:
    """The tensor with `more` zeros after its first axis, and nothing on `rank` others."""
    return Op.get("pad")(value, pad_width=((0, more),) + ((0, 0),) * rank)


def surrounded(data: Symbol, pads: Sequence[int], fill: float = 0.0) -> Symbol:
    """The data with a rim around it: (top, left, bottom, right)."""
    return Op.get("_halo")(data, pads=tuple(pads), fill=fill) if any(pads) else data


def padded_pool2d(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A pool of something computed, on an image with a rim, so that no element has to ask whether
    it is inside; None where a rim would change what is pooled."""
    pads, shape = four_pads(params.padding), facts[0].shape
    average = hasattr(params, "count_include_pad")
    plain = params.layout == "NCHW" and not params.ceil_mode and _is_image_known(shape)
    if not plain or facts[0].dtype != FLOAT32 or inputs.outputs[0].node.op is None:
        return None
    if not any(pads) or (average and not params.count_include_pad):
        return None
    name = "avg_pool2d" if average else "max_pool2d"
    data = surrounded(inputs, pads, 0.0 if average else -inf)
    return Op.get(name)(data, **{**canonical(params), "padding": "(0, 0)"})


def _needed_pads(params: Any, shape: Sequence[Any]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) as far as windows reach."""
    pads = four_pads(params.padding)
    after = []
    for axis in (0, 1):
        extent, before = shape[2 + axis], pads[axis]
        stride, dilation = params.strides[axis], params.dilation[axis]
        reach = dilation * (params.kernel_size[axis] - 1) + 1
        windows = (extent + before + pads[2 + axis] - reach) // stride + 1
        after.append(max((windows - 1) * stride + reach - extent - before, 0))
    return (pads[0], pads[1], after[0], after[1])


def _conv2d_layouts(inputs: int, outputs: int, groups: int, target: CpuTarget) -> dict[str, str] | None:
    out = channel_block(outputs // groups if groups != outputs else outputs, target)
    if out is None:
        return None
    if groups == inputs == outputs:  # one filter for each channel
        return _named(f"NCHW{out}c", f"OIHW{out}o", f"NCHW{out}c")
    data = channel_block(inputs // groups, target)
    if data is None:
        return _named("NCHW", f"OIHW{out}o", f"NCHW{out}c") if groups == 1 else None
    if groups > 1:
        data = out = min(data, out)
    return _named(f"NCHW{data}c", f"OIHW{data}i{out}o", f"NCHW{out}c")


MANY = 4  # vectors of channels, from which on a few zeros to fill the last one cost less than quarters of vectors
OPEN_IMAGES = 4  # what a number of images is taken for that is not known
WINOGRAD_GAIN = 0.85  # of the direct form's time, at most, to be worth its rounding errors
SMALL_TILES = 0.95  # of larger tiles' time, at least, for which small ones are taken: they round less
HIDDEN = 0.25  # part of the time of sums behind which weights are read
WAITED_FOR = 0.3  # part of reading that is never hidden


def winograd_tile(params: Any, shape: Sequence[Any], layouts: Mapping[str, str], target: CpuTarget) -> int | None:
    """Outputs of a Winograd tile in each direction; None where direct convolution is as fast."""
    lanes = target.lanes(FLOAT32)
    whole = layouts["layout"] == layouts["out_layout"] == f"NCHW{lanes}c"
    if not (whole and _suits_winograd(params) and params.groups == 1):
        return None
    times = convolution_times(params, shape, target)
    best = min(times, key=lambda m: times[m])
    forms = lambda: {_form(m): 1e6 * seconds for m, seconds in times.items()}
    decided("form of the convolution", winograd_tile, _form(best), forms)
    return best


def _suits_winograd(params: Any) -> bool:
    return params.kernel_size == (3, 3) and set(params.strides + params.dilation) == {1}


def convolution_times(params: Any, shape: Sequence[Any], target: CpuTarget) -> dict[int | None, float]:
    """Seconds that a convolution by 3x3 filters takes one core: directly, and by tiles of Winograd's."""
    core = target.facts
    images, inputs, height, width = shape
    n = images if isinstance(images, int) else OPEN_IMAGES
    top, left, bottom, right = four_pads(params.padding)
    rows, columns = height + top + bottom - 2, width + left + right - 2
    weights = inputs * params.channels

    def product(multiplied: int, read: int) -> float:
        """So many products of floats, whose weights come from far memory."""
        sums, reading = 2 * multiplied / core.flops, 4 * read / core.far_rate
        return sums + max(reading - HIDDEN * sums, WAITED_FOR * reading)

    times: dict[int | None, float] = {None: WINOGRAD_GAIN * product(9 * weights * n * rows * columns, 9 * weights)}
    for m in (2, 4):
        tiles = n * -(-rows // m) * -(-columns // m)
        points = (m + 2) ** 2
        moved = points * tiles * (inputs + params.channels) * 8
        times[m] = product(points * tiles * weights, points * weights) + moved / tiles_rate(moved, core)
    times[2] *= SMALL_TILES
    return times


def _form(tile: int | None) -> str:
    return "direct, us" if tile is None else f"Winograd {tile} x {tile}, us"


def four_pads(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of a padding given as one, two or four numbers."""
    if len(padding) == 4:
        return tuple(padding)  # type: ignore[return-value]
    top, left = padding[0], padding[-1]
    return (top, left, top, left)


def _winograd(params: Any, inputs: Symbol, shape: Sequence[Any], tile: int, lanes: int, turned: bool = False) -> Symbol:
    """The data is surrounded by as many zeros as whole tiles need. Filters may be `turned`: channels swapped, taps
    reversed."""
    data, weight, *bias = inputs
    top, left, bottom, right = four_pads(params.padding)
    rows, columns = shape[2] + top + bottom - 2, shape[3] + left + right - 2
    crop = (-rows % tile, -columns % tile)
    data = surrounded(data, (top, left, bottom + crop[0], right + crop[1]))
    made = Op.get("_winograd_weight")(weight, tile=tile, lanes=lanes, turned=turned)
    return Op.get("_winograd_conv2d")(
        data,
        made,
        *bias,
        channels=params.channels,
        padding=(0, 0, 0, 0),
        crop=crop,
        tile=tile,
        lanes=lanes,
        use_bias=params.use_bias,
    )


def blocked_grad_data(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """The gradient of conv2d's data with channels in blocks: of 3x3 filters the convolution that it is, where Winograd
    pays, else by the template, which keeps filters as they were written."""
    ograd, _, weight = inputs
    made, shape = facts[0].shape, facts[1].shape
    if not _is_plain(params, facts) or not _is_image_known(made) or not _is_image_known(shape):
        return None
    back = replace(params, channels=shape[1], padding=tuple(2 - before for before in four_pads(params.padding)))
    layouts = _conv2d_layouts(made[1], shape[1], params.groups, target)
    if layouts is not None and min(back.padding) >= 0 and (tile := winograd_tile(back, made, layouts, target)):
        alone = replace(back, use_bias=False)
        return _winograd(alone, Group([ograd, weight]), made, tile, target.lanes(FLOAT32), turned=True)
    blocked = _blocked_images(params, shape[1], target)
    return None if blocked is None else Op.get("_conv2d_grad_data")(*inputs, **{**canonical(params), **blocked})


def blocked_grad_weight(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """The gradient of conv2d's filters, as they were written, from images in blocks of channels."""
    shape = facts[1].shape
    if not _is_plain(params, facts) or not _is_image_known(shape):
        return None
    blocked = _blocked_images(params, shape[1], target)
    return None if blocked is None else Op.get("_conv2d_grad_weight")(*inputs, **{**canonical(params), **blocked})


def _is_plain(params: Any, facts: Sequence[Fact]) -> bool:
    """Whether a convolution has the layouts and the dtype that its gradients are blocked from."""
    written = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    return written and params.out_layout in ("__undef__", "NCHW") and facts[0].dtype == FLOAT32


def _blocked_images(params: Any, channels: int, target: CpuTarget) -> dict[str, str] | None:
    """The layouts of a convolution's images as its forward form has them; None where neither is in blocks."""
    layouts = _conv2d_layouts(channels, params.channels, params.groups, target)
    return None if layouts is None else {name: layouts[name] for name in ("layout", "out_layout")}


def _named(data: str, kernel: str, out: str) -> dict[str, str]:
    return {"layout": data, "kernel_layout": kernel, "out_layout": out}


def packed_dense(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """dense as a product with packed weights, then the bias."""
    data, weight, *bias = inputs
    product = _packed(data, weight, facts, target, transposed=True)
    if product is None or not bias:
        return product
    return Op.get("broadcast_add")(product, _nameless(bias[0], facts[2]))


def packed_matmul(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A product with a matrix on the right as one with packed weights, but where the product itself packs what it reads
    down its columns, and the matrix is one that every run computes anew."""
    data, weight = inputs
    if not params.transpose_a:
        return _packed(data, weight, facts, target, transposed=params.transpose_b)
    shapes = [fact.shape for fact in facts[:2]]
    if not all(is_static(shape) and len(shape) == 2 for shape in shapes):
        return None
    (rows, depth), dtype = _turned(shapes[0], True), facts[0].dtype
    computed = weight.outputs[0].node.op is not None
    if computed and dtype == facts[1].dtype and packs_columns(rows, depth, True, params.transpose_b, dtype):
        return None
    turned = Op.get("transpose")(as_written(data, facts[0]), axes=(1, 0))  # rows, which a tile reads along
    return _packed(turned, weight, [Fact((rows, depth), dtype), facts[1]], target, params.transpose_b)


def turned_batch_matmul(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """Products of matrices that are read down their columns: by the template, which packs what it reads, with
    transposes before them taken in; where it does not serve them, with those matrices turned first."""
    if any(not is_static(fact.shape) for fact in facts[:2]):
        return None
    written = [params.transpose_a, params.transpose_b]
    sides, turned = list(inputs), list(written)
    for number, (side, fact) in enumerate(zip(inputs, facts)):
        if not fact.layout.defined and _swaps_last_axes(side, len(fact.shape or ())):
            sides[number], turned[number] = Symbol([side.outputs[0].node.inputs[0]]), not turned[number]
    *_, rows, depth = _turned(facts[0].shape, params.transpose_a)
    alike = facts[0].dtype == facts[1].dtype
    if alike and packs_columns(rows, depth, turned[0], turned[1], facts[0].dtype):
        attrs = {"transpose_a": turned[0], "transpose_b": turned[1]}
        return None if turned == written else Op.get("batch_matmul")(*sides, **attrs)
    if not any(written):
        return None
    sides = []
    for side, fact, is_turned in zip(inputs, facts, written):
        value, rank = as_written(side, fact), len(fact.shape or ())
        sides.append(Op.get("transpose")(value, axes=_last_axes_swapped(rank)) if is_turned else value)
    return Op.get("batch_matmul")(*sides)


def _last_axes_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _swaps_last_axes(side: Symbol, rank: int) -> bool:
    node = side.outputs[0].node
    return node.op_name == "transpose" and tuple(axis % rank for axis in node.params.axes) == _last_axes_swapped(rank)


def _turned(shape: Any, is_turned: bool) -> Any:
    """The shape of the matrices that are multiplied."""
    return (*shape[:-2], shape[-1], shape[-2]) if is_turned else shape


def as_written(data: Symbol, fact: Fact) -> Symbol:
    """The data with its axes in the order in which the model has them, for what counts them."""
    names = fact.layout.name
    if not fact.layout.defined:
        return data
    return Op.get("__layout_transform__")(data, src_layout=names, dst_layout=names)


def _nameless(value: Symbol, fact: Fact) -> Symbol:
    """The value with axes that have no names, as those of a packed product have none: a sum of
    both would take its own from what other operators call this one's."""
    return Op.get("reshape")(value, shape=fact.shape) if fact.layout.defined else value


def _packed(data: Symbol, weight: Symbol, facts: Sequence[Fact], target: CpuTarget, transposed: bool) -> Symbol | None:
    shape = facts[1].shape
    if facts[0].shape is None or not facts[0].shape or not is_static(shape) or len(shape) != 2:
        return None
    if any(fact.dtype != FLOAT32 for fact in facts[:2]):
        return None
    computed = weight.outputs[0].node.op is not None
    if computed and (not is_static(facts[0].shape) or prod(facts[0].shape[:-1]) < MANY_ROWS):
        return None  # what is computed anew in every run is worth packing for many rows only
    lanes = target.lanes(FLOAT32)
    data = as_written(data, facts[0])
    panels = Op.get("_pack_panels")(weight, lanes=lanes, transposed=transposed)
    units = shape[0] if transposed else shape[1]
    return Op.get("_packed_matmul")(data, panels, units=units)


def packed_rnn(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """rnn with its weight in the order its kernel reads it."""
    (gates, weight, *rest), shape = inputs, facts[0].shape
    if shape is None or len(shape) != 3 or not shape[1] or facts[0].dtype != FLOAT32:
        return None
    if weight.outputs[0].node.op is not None:
        return None  # what is computed anew in every run is not worth packing
    panels = Op.get("_pack_panels")(weight, lanes=PANEL)
    return Op.get("_packed_rnn")(gates, panels, *rest, **canonical(params))


def packed_conv2d_transpose(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """conv2d_transpose with filters in the order its kernel reads them, and blocked channels where
    they fill vectors on both sides."""
    shape = facts[0].shape
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    lanes = lanes_for(params.channels, FLOAT32, target)
    fits = params.groups == 1 and params.channels % lanes == 0 and lanes > 1
    if not plain or not fits or shape is None or not isinstance(shape[1], int) or facts[0].dtype != FLOAT32:
        return None
    attrs = {**canonical(params), "kernel_layout": f"IOHW{lanes}i"}
    if shape[1] % lanes == 0:
        attrs["layout"] = f"NCHW{lanes}c"
    return Op.get("conv2d_transpose")(*inputs, **attrs)


def bilinear_resize(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """resize by tables of places and weights; in blocks of channels where it makes more of what it reads."""
    shape = facts[0].shape
    plain = params.layout in ("NCHW", "NHWC") and params.method == "BILINEAR"
    if not plain or facts[0].dtype != FLOAT32 or not is_static(shape):
        return None
    attrs = canonical(params)
    lanes = target.lanes(FLOAT32)
    if params.layout == "NCHW" and lanes > 1 and shape[1] % lanes == 0 and prod(params.size) > prod(shape[2:]):
        attrs["layout"] = f"NCHW{lanes}c"
    return Op.get("_bilinear")(*inputs, **attrs)


LAYOUT_RULES = {
    "resize": bilinear_resize,
    "conv2d": blocked_conv2d,
    "avg_pool2d": padded_pool2d,
    "max_pool2d": padded_pool2d,
    "conv2d_transpose": packed_conv2d_transpose,
    "_conv2d_grad_data": blocked_grad_data,
    "_conv2d_grad_weight": blocked_grad_weight,
    "dense": packed_dense,
    "matmul": packed_matmul,
    "batch_matmul": turned_batch_matmul,
    "rnn": packed_rnn,
}
