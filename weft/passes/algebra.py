"""SimplifyAlgebra: local rewrites, a row each with its formula. They hold for every value, NaN and
infinities included; only the sign of a zero may differ.

A row is a function (walker, node, inputs) -> the entry that has the node's value, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..base.dtype import dtype_name
from ..base.extents import Extent
from ..base.layout import Layout
from ..base.shape import StaticShape, is_known, is_static, normalize_axis
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.schema import is_hidden
from ..core.walk import Walker, rewrite
from ..ops._layouts import is_same_order
from ..ops.reduce.reductions import reduced_axes

MAX_STEPS = 8  # rewrites of one node, each of what the one before made

Inputs = list[NodeEntry]
Found = NodeEntry | None
RowRule = Callable[[Walker, Node, Inputs], Found]


class Row(NamedTuple):
    formula: str
    rule: RowRule


algebra_rules: dict[str, list[Row]] = {}


def row(op_names: str, formula: str) -> Callable[[RowRule], RowRule]:
    """Adds a row for some operators."""

    def add(rule: RowRule) -> RowRule:
        for name in op_names.split():
            algebra_rules.setdefault(name, []).append(Row(formula, rule))
        return rule

    return add


@register_pass("SimplifyAlgebra")
def simplify_algebra(graph: Graph) -> Graph:
    """Applies the rows to every node, after its inputs."""
    mutable = {graph.indexed.nodes[number] for number in graph.indexed.mutable_inputs}

    def simplify(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        if node.op_name not in algebra_rules or node.control_deps or node.num_outputs != 1:
            return None
        found = _simplify(walker, node, inputs)
        if found is None:
            return None
        # A variable must not be read later than it was, when it may have been written to.
        read = (found, *found.node.inputs) if mutable else ()
        return None if any(entry.node in mutable for entry in read) else found

    return rewrite(graph.replace(attrs={}), simplify)


def _simplify(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
    result = None
    for _ in range(MAX_STEPS):
        found = _first_match(walker, node, inputs)
        if found is None:
            return result
        result, made = found, found.node in walker.facts and found not in inputs
        if not made:
            return result
        node, inputs = found.node, list(found.node.inputs)
    return result


def _first_match(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
    for _, rule in algebra_rules.get(node.op_name, ()):
        found = rule(walker, node, inputs)
        if found is not None:
            return found
    return None


def _shape(walker: Walker, entry: NodeEntry) -> StaticShape | None:
    shape = walker.fact(entry).shape
    return shape if is_static(shape) else None


def _out_shape(walker: Walker, node: Node) -> StaticShape | None:
    return _shape(walker, NodeEntry(node))


def _same_shape(walker: Walker, node: Node, entry: NodeEntry) -> bool:
    shape = walker.fact(NodeEntry(node)).shape
    return is_known(shape) and shape == walker.fact(entry).shape


# Numbers that change nothing.


@row("__add_scalar__ __sub_scalar__", "x + 0 -> x, x - 0 -> x")
def _add_zero(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if node.params.scalar == 0 else None


@row("__mul_scalar__ __div_scalar__ __pow_scalar__", "x * 1 -> x, x / 1 -> x, x ** 1 -> x")
def _times_one(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if node.params.scalar == 1 else None


@row("broadcast_add elemwise_add", "x + zeros -> x, zeros + x -> x")
def _add_zeros(walker: Walker, node: Node, inputs: Inputs) -> Found:
    for kept, other in ((0, 1), (1, 0)):
        if inputs[other].node.op_name in ("zeros", "zeros_like"):
            return inputs[kept] if _same_shape(walker, node, inputs[kept]) else None
    return None


@row("broadcast_sub elemwise_sub", "x - zeros -> x")
def _sub_zeros(walker: Walker, node: Node, inputs: Inputs) -> Found:
    if inputs[1].node.op_name not in ("zeros", "zeros_like"):
        return None
    return inputs[0] if _same_shape(walker, node, inputs[0]) else None


@row("broadcast_mul elemwise_mul", "x * ones -> x, ones * x -> x")
def _times_ones(walker: Walker, node: Node, inputs: Inputs) -> Found:
    for kept, other in ((0, 1), (1, 0)):
        if inputs[other].node.op_name in ("ones", "ones_like"):
            return inputs[kept] if _same_shape(walker, node, inputs[kept]) else None
    return None


@row("broadcast_div elemwise_div", "x / ones -> x")
def _over_ones(walker: Walker, node: Node, inputs: Inputs) -> Found:
    if inputs[1].node.op_name not in ("ones", "ones_like"):
        return None
    return inputs[0] if _same_shape(walker, node, inputs[0]) else None


# Operators that give their input back.


@row("copy", "copy(x) -> x")
def _copy(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0]


@row("elemwise_sum concatenate", "sum of x alone -> x, concatenation of x alone -> x")
def _alone(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if len(inputs) == 1 else None


@row("cast", "cast(x, dtype of x) -> x")
def _cast_to_same(walker: Walker, node: Node, inputs: Inputs) -> Found:
    dtype = walker.fact(inputs[0]).dtype
    same = dtype is not None and dtype == node.params.dtype  # numpy says that None is float64
    return inputs[0] if same else None


@row("broadcast_to broadcast_like collapse_sum slice_like", "of the shape of x -> x")
def _to_same_shape(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if _same_shape(walker, node, inputs[0]) else None


@row("strided_slice", "x[:] -> x")
def _whole_slice(walker: Walker, node: Node, inputs: Inputs) -> Found:
    forward = all(step == 1 for step in node.params.stride)
    return inputs[0] if forward and _same_shape(walker, node, inputs[0]) else None


@row("pad", "no padding -> x")
def _no_padding(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if not any(map(any, node.params.pad_width)) else None


@row("upsampling", "upsampling(x, 1) -> x")
def _no_upsampling(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if node.params.scale == 1 else None


@row("__layout_transform__", "from a layout to itself -> x")
def _same_layout(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if node.params.src_layout == node.params.dst_layout else None


MOVES = "reshape reshape_like flatten squeeze expand_dims transpose flip strided_slice slice_like"
SPREADS = "broadcast_to broadcast_like expand_like"


@row(f"{MOVES} {SPREADS}", "one value everywhere, moved or repeated -> that value everywhere")
def _moved_constant(walker: Walker, node: Node, inputs: Inputs) -> Found:
    source, fact = inputs[0].node, walker.fact(NodeEntry(node))
    if source.op_name not in ("zeros", "ones", "full"):
        return None
    if not is_static(fact.shape) or fact.dtype is None:
        return None
    attrs = {**source.attrs, "shape": fact.shape, "dtype": dtype_name(fact.dtype)}
    return walker.make(source.op_name, [], attrs, node.name)


@row("sum prod mean max min", "along axes named in any way -> along axes counted from the front")
def _front_axes(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """Blocks of a storage stand behind the axes, so that these may be counted from the front."""
    shape = _shape(walker, inputs[0])
    axes = tuple(sorted(reduced_axes(node.params, len(shape)))) if shape is not None else ()
    named = node.params.axis == axes and not node.params.exclude
    if shape is None or named or not 0 < len(axes) < len(shape):
        return None
    attrs = {**node.attrs, "axis": axes, "exclude": False}
    return walker.make(node.op_name, inputs, attrs, node.name)


# Twice the same, or there and back.


@row("relu abs floor ceil trunc round sign", "f(f(x)) -> f(x)")
def _idempotent(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0] if inputs[0].node.op is node.op else None


@row("negative", "-(-x) -> x")
def _negative_twice(walker: Walker, node: Node, inputs: Inputs) -> Found:
    return inputs[0].node.inputs[0] if inputs[0].node.op is node.op else None


@row("flip", "flip(flip(x, a), a) -> x")
def _flip_twice(walker: Walker, node: Node, inputs: Inputs) -> Found:
    before = inputs[0].node
    shape = _out_shape(walker, node)
    if before.op is not node.op or shape is None:
        return None
    axes = {normalize_axis(n.params.axis, len(shape)) for n in (before, node)}
    return before.inputs[0] if len(axes) == 1 else None


@row("transpose", "transpose(transpose(x, p), q) -> transpose(x, p[q]); the identity -> x")
def _transposes(walker: Walker, node: Node, inputs: Inputs) -> Found:
    shape = walker.fact(NodeEntry(node)).shape
    if shape is None:
        return None
    axes, source = _permutation(node, len(shape)), inputs[0]
    if source.node.op is node.op:
        inner = _permutation(source.node, len(shape))
        axes, source = tuple(inner[axis] for axis in axes), source.node.inputs[0]
    if axes == tuple(range(len(shape))):
        return source
    return None if source is inputs[0] else walker.make("transpose", [source], {"axes": axes}, node.name)


@row("transpose", "transpose(x) in which axes longer than 1 keep their order -> reshape(x)")
def _moved_ones(walker: Walker, node: Node, inputs: Inputs) -> Found:
    shape, source = _out_shape(walker, node), _shape(walker, inputs[0])
    if shape is None or source is None or 0 in shape:  # reshape reads 0 as a code
        return None
    moved = [axis for axis in _permutation(node, len(shape)) if source[axis] != 1]
    if moved != sorted(moved):
        return None
    return walker.make("reshape", inputs, {"shape": shape}, node.name)


def _permutation(node: Node, rank: int) -> tuple[int, ...]:
    axes = node.params.axes or tuple(reversed(range(rank)))
    return tuple(normalize_axis(axis, rank) for axis in axes)


VIEWS = "reshape flatten squeeze expand_dims reshape_like"


@row(VIEWS, "view(x) of the shape of x -> x; view(view(x)) -> reshape(x)")
def _views(walker: Walker, node: Node, inputs: Inputs) -> Found:
    shape, source = walker.fact(NodeEntry(node)).shape, inputs[0]
    if shape is None or None in shape:
        return None
    if source.node.op_name in VIEWS.split():
        source = source.node.inputs[0]
    if walker.fact(source).shape == shape:
        return source
    if source is inputs[0] or 0 in shape:  # reshape reads 0 as a code
        return None
    wanted = tuple(Extent.of(dim) for dim in shape if dim is not None)
    return walker.make("reshape", [source], {"shape": wanted}, node.name)


PRODUCTS = "matmul dense batch_matmul _packed_matmul"


@row("broadcast_add elemwise_add", "view(x) + y -> view(x + view(y)), for x out of a product")
def _add_before_view(walker: Walker, node: Node, inputs: Inputs) -> Found:
    """A product takes what is added to it into its kernel, if both have the same shape; not one whose sum joins another
    product as it is."""
    for kept, other in ((0, 1), (1, 0)):
        view = inputs[kept].node
        if view.op_name not in VIEWS.split() or not _from_product(view.inputs[0].node):
            continue
        if _from_product(inputs[other].node):
            continue
        shape, wanted = _out_shape(walker, node), _shape(walker, view.inputs[0])
        alike = all(_same_shape(walker, node, entry) for entry in inputs)
        if shape is None or wanted is None or 0 in shape or not alike:
            continue
        added = walker.make("reshape", [inputs[other]], {"shape": wanted})
        pair = [view.inputs[0], added] if kept == 0 else [added, view.inputs[0]]
        total = walker.make(node.op_name, pair, node.attrs, node.name)
        return walker.make("reshape", [total], {"shape": shape})
    return None


def _from_product(node: Node) -> bool:
    """A product, or one with a bias."""
    if node.op_name in ("broadcast_add", "elemwise_add"):
        node = node.inputs[0].node
    return node.op_name in PRODUCTS.split()


@row("reshape_like", "reshape_like(x, y) -> reshape(x, shape of y)")
def _known_reshape(walker: Walker, node: Node, inputs: Inputs) -> Found:
    shape = _out_shape(walker, node)
    if shape is None or 0 in shape:
        return None
    return walker.make("reshape", [inputs[0]], {"shape": shape}, node.name)


@row("__layout_transform__", "a -> b -> c is a -> c")
def _layout_chain(walker: Walker, node: Node, inputs: Inputs) -> Found:
    before = inputs[0].node
    if before.op is not node.op:
        return None
    source, target = before.params.src_layout, node.params.dst_layout
    if before.params.dst_layout != node.params.src_layout:
        return None
    if source == target:
        return before.inputs[0]
    if not Layout(source).convertible(Layout(target)):
        return None
    attrs = {"src_layout": source, "dst_layout": target}
    return walker.make("__layout_transform__", [before.inputs[0]], attrs, node.name)


@row("__layout_transform__", "one that moves no element -> reshape(x, the new shape)")
def _unmoved_layout(walker: Walker, node: Node, inputs: Inputs) -> Found:
    shape, made = walker.fact(inputs[0]).shape, _out_shape(walker, node)
    source, target = Layout(node.params.src_layout), Layout(node.params.dst_layout)
    if not is_static(shape) or made is None or 0 in made:
        return None
    if not is_same_order(source, target, shape):
        return None
    return walker.make("reshape", [inputs[0]], {"shape": made}, node.name)


@row("cast", "cast(cast(x, wider), d) -> cast(x, d)")
def _cast_through_wider(walker: Walker, node: Node, inputs: Inputs) -> Found:
    before = inputs[0].node
    if before.op is not node.op:
        return None
    source, middle = walker.fact(before.inputs[0]).dtype, before.params.dtype
    if source is None or source.kind != middle.kind or not np.can_cast(source, middle, "safe"):
        return None
    attrs = {"dtype": dtype_name(node.params.dtype)}
    return walker.make("cast", [before.inputs[0]], attrs, node.name)


@row("clip", "clip(clip(x, a, b), c, d) -> clip(x, clip(a, c, d), clip(b, c, d))")
def _clips(walker: Walker, node: Node, inputs: Inputs) -> Found:
    before = inputs[0].node
    if before.op is not node.op or before.params.a_min > before.params.a_max:
        return None
    low, high = (_limit(v, node) for v in (before.params.a_min, before.params.a_max))
    return walker.make("clip", [before.inputs[0]], {"a_min": low, "a_max": high}, node.name)


@row("clip", "clip(relu(x), a, b) -> clip(x, max(a, 0), b) for b >= 0")
def _clip_of_relu(walker: Walker, node: Node, inputs: Inputs) -> Found:
    before, params = inputs[0].node, node.params
    if before.op_name != "relu" or params.a_max < 0 or params.a_min > params.a_max:
        return None
    attrs = {"a_min": max(params.a_min, 0.0), "a_max": params.a_max}
    return walker.make("clip", [before.inputs[0]], attrs, node.name)


def _limit(value: float, node: Node) -> float:
    return float(min(max(value, node.params.a_min), node.params.a_max))


# Values that depend on a shape only.


@row("zeros_like ones_like full_like", "zeros_like(x) -> zeros(shape of x); so ones and full")
def _known_like(walker: Walker, node: Node, inputs: Inputs) -> Found:
    fact = walker.fact(NodeEntry(node))
    if not is_static(fact.shape) or fact.dtype is None:
        return None
    own = ("fill_value",) if node.op_name == "full_like" else ()
    kept = {key: value for key, value in node.attrs.items() if key in own or is_hidden(key)}
    attrs = {**kept, "shape": fact.shape, "dtype": dtype_name(fact.dtype)}
    return walker.make(node.op_name.removesuffix("_like"), [], attrs, node.name)
