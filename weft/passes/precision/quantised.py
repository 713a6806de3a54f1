"""FuseQuantised: a network between dequantize and quantize computes with levels.

dequantize goes down through what only moves or chooses elements; where it meets a product or a convolution on both
sides, that becomes one of integers, and where it meets quantize, both become requantize, or nothing. With levels x and
w, scales s and t, zero points a and b:

    conv(s (x - a), t (w - b)) = s t integer_conv(x, w, a, b)
    quantize(dequantize(sums, s), t, b) = requantize(sums, s / t, b)

What is left of these operators is written as element-wise arithmetic, which fuses with all around it. The pass runs
before constants are folded, since weights would be levels no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import DTYPES, FLOAT32, INT32, DType
from ...base.shape import Shape, normalize_axis
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite
from ...ops.nn._windows import four_pads
from ...ops.nn.quantised import is_one

BYTES = (DTYPES["uint8"], DTYPES["int8"])
# What gives some of its elements, each as it is, whatever they stand for.
MOVES = frozenset(
    "reshape flatten squeeze expand_dims transpose strided_slice copy max_pool2d global_max_pool2d".split()
)
QUANTISED = frozenset({"quantize", "dequantize", "requantize"})

Inputs = list[NodeEntry]
Found = NodeEntry | None


class _Levels(NamedTuple):
    """A dequantized value: what it was made of. Without an axis there is one scale."""

    data: NodeEntry
    scale: NodeEntry
    zero: NodeEntry | None
    axis: int | None
    dtype: DType | None


@register_pass("FuseQuantised", requires=("shape", "dtype"))
def fuse_quantised(graph: Graph) -> Graph:
    """Puts integer operators in place of what is quantised."""
    nodes = graph.indexed.nodes
    if not any(node.op_name in QUANTISED for node in nodes) or graph.indexed.mutable_inputs:
        return graph
    return rewrite(rewrite(graph, _fused), _written_out)


def _fused(walker: Walker, node: Node, inputs: Inputs) -> Found:
    rule = _sunk if node.op_name in MOVES else _RULES.get(node.op_name)
    return rule(walker, node, inputs) if rule is not None and not node.control_deps else None


def _levels(walker: Walker, entry: NodeEntry) -> _Levels | None:
    """What a dequantized value was made of; None of others, and of those with a scale for each block."""
    node = entry.node
    shape = walker.fact(entry).shape
    if node.op_name != "dequantize" or node.params.block_size or walker.fact(entry).dtype != FLOAT32 or shape is None:
        return None
    data, scale, *zero = node.inputs
    many = not all(is_one(walker.fact(part).shape) for part in (scale, *zero))
    axis = normalize_axis(node.params.axis, len(shape)) if many else None
    return _Levels(data, scale, zero[0] if zero else None, axis, walker.fact(data).dtype)


def _dequantized(walker: Walker, node: Node, data: NodeEntry, levels: _Levels, axis: int | None) -> NodeEntry:
    """Other data that stands for numbers as some levels do."""
    zeros = [] if levels.zero is None else [levels.zero]
    attrs = {"axis": axis or 0, "use_zero": bool(zeros)}
    return walker.make("dequantize", [data, levels.scale, *zeros], attrs, node.name)


# Elements that move.


def _sunk(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """f(dequantize(x)) = dequantize(f(x)), where f moves or chooses elements: scales are positive."""
    levels = _levels(walker, inputs[0])
    if levels is None or levels.dtype not in BYTES:
        return None
    axis = None if levels.axis is None else _moved_axis(walker, node, inputs[0], levels.axis)
    if levels.axis is not None and axis is None:
        return None
    data = walker.make(node.op_name, [levels.data], node.attrs, f"{node.name}_levels")
    return _dequantized(walker, node, data, levels, axis)


def _moved_axis(walker: Walker, node: Node, entry: NodeEntry, axis: int) -> int | None:
    """Where an axis is afterwards."""
    rank = len(walker.fact(entry).shape or ())
    if node.op_name == "transpose":
        axes = [normalize_axis(a, rank) for a in node.params.axes] or list(range(rank))[::-1]
        return axes.index(axis)
    if node.op_name == "expand_dims":
        at = normalize_axis(node.params.axis, rank + 1)
        return axis + node.params.num_newaxis if at <= axis else axis
    return None


def _joined(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """Values with the same scale and zero point, side by side."""
    parts = [_levels(walker, entry) for entry in inputs]
    first = parts[0]
    alike = first is not None and all(
        part is not None and part.axis is None and part[1:] == first[1:] and part.dtype in BYTES for part in parts
    )
    if not alike:
        return None
    assert first is not None
    data = [part.data for part in parts if part is not None]
    joined = walker.make(node.op_name, data, node.attrs, f"{node.name}_levels")
    return _dequantized(walker, node, joined, first, None)


def _kept_positive(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """relu(s x) = s relu(x), of sums."""
    levels = _levels(walker, inputs[0])
    if levels is None or levels.dtype != INT32 or levels.zero is not None:
        return None
    data = walker.make("relu", [levels.data], None, f"{node.name}_sums")
    return _dequantized(walker, node, data, levels, levels.axis)


# Sums of products.


def _conv2d(walker: Walker, node: Node, inputs: Inputs) -> Found:
    params = node.params
    plain = params.layout == "NCHW" and params.kernel_layout == "OIHW"
    pair = _factors(walker, inputs, 0) if plain and params.out_dtype == "same" else None
    if pair is None:
        return None
    attrs = {
        "channels": params.channels,
        "kernel_size": params.kernel_size,
        "strides": params.strides,
        "dilation": params.dilation,
        "padding": four_pads(params.padding),
        "groups": params.groups,
    }
    return _product(walker, node, "integer_conv", attrs, pair, inputs[2:], 1)


def _dense(walker: Walker, node: Node, inputs: Inputs) -> Found:
    pair, shape = _factors(walker, inputs, 0), walker.fact(inputs[0]).shape
    if pair is None or shape is None or len(shape) < 2:
        return None
    data, weight = pair
    turned = walker.make("transpose", [weight.data], {"axes": (1, 0)})
    pair = data, weight._replace(data=turned)
    return _product(walker, node, "integer_matmul", {}, pair, inputs[2:], len(shape) - 1)


def _matmul(walker: Walker, node: Node, inputs: Inputs) -> Found:
    pair, shapes = _factors(walker, inputs, 1), [walker.fact(entry).shape for entry in inputs]
    if pair is None or node.params.transpose_a or node.params.transpose_b or None in shapes:
        return None
    ranks = [len(shape) for shape in shapes if shape is not None]
    if ranks[0] < 2 or ranks[1] != 2:
        return None
    return _product(walker, node, "integer_matmul", {}, pair, [], ranks[0] - 1)


def _factors(walker: Walker, inputs: Inputs, axis: int) -> tuple[_Levels, _Levels] | None:
    """Data with one scale, and weights with one, or with one for each place along their axis."""
    data, weight = (_levels(walker, entry) for entry in inputs[:2])
    if data is None or weight is None or data.dtype not in BYTES or weight.dtype not in BYTES:
        return None
    return (data, weight) if data.axis is None and weight.axis in (None, axis) else None


def _product(
    walker: Walker,
    node: Node,
    op_name: str,
    attrs: dict[str, Any],
    pair: tuple[_Levels, _Levels],
    bias: Sequence[NodeEntry],
    axis: int,
) -> NodeEntry:
    """The integer operator, its bias, and what the sums stand for; columns lie along an axis of the result."""
    data, weight = pair
    zeros = [zero for zero in (data.zero, weight.zero) if zero is not None]
    attrs = {**attrs, "use_data_zero": data.zero is not None, "use_weight_zero": weight.zero is not None}
    sums = walker.make(op_name, [data.data, weight.data, *zeros], attrs, f"{node.name}_sums")
    one = is_one(walker.fact(weight.scale).shape)
    flat = {"shape": () if one else (-1,)}
    scales = [walker.make("reshape", [part.scale], flat if part is weight else {"shape": ()}) for part in pair]
    scale = walker.make("broadcast_mul", scales)
    rank = len(walker.fact(sums).shape or ())
    levels = [_levels(walker, entry) for entry in bias]
    whole = [entry for entry, known in zip(bias, levels) if known is not None and known.dtype == INT32]
    for entry in whole:  # in steps of the sums, as it was quantised
        steps = walker.make("round", [walker.make("broadcast_div", [entry, scale])])
        steps = walker.make("cast", [steps], {"dtype": INT32})
        sums = walker.make("broadcast_add", [sums, _along(walker, steps, rank, axis)])
    made = walker.make("dequantize", [sums, scale], {"axis": axis, "use_zero": False}, node.name)
    for entry in bias:
        if entry not in whole:
            made = walker.make("broadcast_add", [made, _along(walker, entry, rank, axis)])
    return made


def _along(walker: Walker, value: NodeEntry, rank: int, axis: int) -> NodeEntry:
    """Numbers so that they broadcast along an axis of something of that rank."""
    shape = walker.fact(value).shape
    if is_one(shape):
        return value if shape == () else walker.make("reshape", [value], {"shape": ()})
    after = rank - 1 - axis
    return walker.make("reshape", [value], {"shape": (-1, *(1,) * after)}) if after else value


# Levels again.


def _requantized(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """quantize(dequantize(x)): x itself, if both have the same scale and zero point; of sums, one step."""
    levels = _levels(walker, inputs[0])
    _, scale, zero = inputs
    if levels is None or node.params.block_size:
        return None
    same = levels.scale == scale and levels.zero == zero and walker.fact(zero).dtype == levels.dtype
    if same and levels.dtype in BYTES:
        return levels.data
    single = is_one(walker.fact(scale).shape) and is_one(walker.fact(zero).shape)
    if levels.dtype != INT32 or levels.zero is not None or not single:
        return None
    rank = len(walker.fact(levels.data).shape or ())
    quotient = walker.make("broadcast_div", [levels.scale, _along(walker, scale, 0, 0)])
    factor = _along(walker, quotient, rank, levels.axis or 0)
    return walker.make("requantize", [levels.data, factor, _along(walker, zero, 0, 0)], None, node.name)


_RULES: dict[str, Callable[[Walker, Node, Inputs], Found]] = {
    "concatenate": _joined,
    "conv2d": _conv2d,
    "dense": _dense,
    "matmul": _matmul,
    "quantize": _requantized,
    "relu": _kept_positive,
}


# What is left, element by element.


def _written_out(walker: Walker, node: Node, inputs: Inputs) -> Found:
    if node.op_name not in QUANTISED or any(walker.fact(entry).dtype in _NARROW for entry in inputs):
        return None
    if node.op_name == "requantize":
        data, factor, zero = inputs
        number = walker.make("broadcast_mul", [_cast(walker, data, FLOAT32), factor])
        return _level(walker, node, number, zero)
    shape = walker.fact(inputs[0]).shape
    if node.params.block_size or shape is None:
        return None
    data, *rest = inputs
    scale, *zeros = (_spread(walker, entry, shape, node.params.axis) for entry in rest)
    if node.op_name == "quantize":
        return _level(walker, node, walker.make("broadcast_div", [data, scale]), zeros[0])
    steps = _cast(walker, data, INT32)
    if zeros:
        steps = walker.make("broadcast_sub", [steps, _cast(walker, zeros[0], INT32)])
    return walker.make("broadcast_mul", [_cast(walker, steps, FLOAT32), scale], None, node.name)


_NARROW = (DTYPES["float16"], DTYPES["bfloat16"])


def _spread(walker: Walker, value: NodeEntry, shape: Shape, axis: int) -> NodeEntry:
    """Scales or zero points so that they broadcast over data of a shape."""
    rank = len(shape or ())
    one = is_one(walker.fact(value).shape)
    return _along(walker, value, rank, 0 if one else normalize_axis(axis, rank))


def _cast(walker: Walker, value: NodeEntry, dtype: DType) -> NodeEntry:
    return value if walker.fact(value).dtype == dtype else walker.make("cast", [value], {"dtype": dtype})


def _level(walker: Walker, node: Node, number: NodeEntry, zero: NodeEntry) -> NodeEntry:
    """round(number) + zero, limited to what the dtype of the zero point holds."""
    dtype = walker.fact(zero).dtype
    assert dtype is not None
    limits = np.iinfo(dtype)
    moved = walker.make("broadcast_add", [walker.make("round", [number]), _cast(walker, zero, FLOAT32)])
    kept = walker.make("clip", [moved], {"a_min": int(limits.min), "a_max": int(limits.max)})
    return walker.make("cast", [kept], {"dtype": dtype}, node.name)
