"""If, Loop, Scan and SequenceMap: nodes with subgraphs. A condition that is known takes its branch now; a Scan and a
map are loops that take items from what they go over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.dtype import BOOL, INT64, DType
from ...base.errors import FormatError, ShapeError, Unsupported
from ...base.shape import Shape
from ..deferred import IF_ELSE, LOOP, MOST_TURNS
from ..emitter import TENSOR, Value
from .functions import node_opset
from .restated import OWN
from .tensors import attribute_value

if TYPE_CHECKING:
    from .scope import Captures, Scope, Subgraph

Given = tuple[Shape, DType | None, str] | Value  # an input of a subgraph: what is known of it, or a value from outside
Reader = Callable[["Scope", onnx.NodeProto, str], Sequence["Value | None"]]


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    graphs: list[onnx.GraphProto] = [item.g for item in node.attribute if item.name == name and item.HasField("g")]
    if not graphs:
        raise FormatError(f"attribute {name!r} is missing, or no graph")
    return graphs[0]


def _name(scope: Scope, node: onnx.NodeProto) -> str:
    return scope.emitter.fresh_name(node.name or next(filter(None, node.output), node.op_type))


def _if(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value]:
    """A condition that follows from constants takes its branch; another is decided when the model runs."""
    then, otherwise = _graph(node, "then_branch"), _graph(node, "else_branch")
    if len(node.input) != 1 or len(then.output) != len(otherwise.output) or len(then.output) != len(node.output):
        raise FormatError("an If needs one condition, and as many outputs of both branches as it has")
    condition = scope[node.input[0]]
    known = scope.emitter.computed(condition)
    if known is not None:
        if known.size != 1:
            raise FormatError(f"a condition of {known.size} elements")
        return scope.inline(then if known.reshape(()).item() else otherwise)
    captures = scope.captures(1)
    branches = [_branch(scope, graph, captures) for graph in (then, otherwise)]
    kinds = [b if a == TENSOR else a for a, b in zip(branches[0].kinds, branches[1].kinds)]
    attrs = {"num_outputs": len(kinds)}
    symbols = [branch.symbol for branch in branches]
    return scope.emitter.deferred(IF_ELSE, _name(scope, node), [condition, *captures.values], attrs, kinds, symbols)


def _branch(scope: Scope, graph: onnx.GraphProto, captures: Captures) -> Subgraph:
    """A branch that does not fit the shapes that are known may be there for others, and never be taken: it is read
    without shapes, and is an error where it is taken."""
    try:
        return scope.subgraph(graph, [], captures)
    except (FormatError, ShapeError):
        return scope.subgraph(graph, [], captures.without_shapes())


def _loop(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value]:
    """Without a number of turns it goes on as long as its condition holds. A state that every turn hands on as it is,
    as weights often are, is no state: the body reads it from outside."""
    body = _graph(node, "body")
    names = [*node.input, "", ""][: max(len(node.input), 2)]
    count, condition, *states = [scope[name] if name else None for name in names]
    results = len(body.output) - 1 - len(states)
    if results < 0 or len(node.output) > len(body.output) - 1 or any(state is None for state in states):
        raise FormatError("the states of the Loop and of its body do not fit")
    turns = None if count is None else scope.emitter.computed(count)
    no_end = count is None or (turns is not None and turns.size == 1 and int(turns.reshape(())) > MOST_TURNS)
    if no_end and condition is None and _never_ends(body):
        raise FormatError("the Loop has no number of turns, or an absurd one, and no condition: it never ends")
    make = scope.emitter.constant
    count = count or make(f"{node.name}_turns", np.array(np.iinfo(np.int64).max, INT64))
    condition = condition or make(f"{node.name}_goes_on", np.array(True))
    given = [state for state in states if state is not None]
    moving = [_origin(body, out.name) != into.name for out, into in zip(body.output[1:], body.input[2:])][: len(given)]
    carried = [state for state, moves in zip(given, moving) if moves]
    captures = scope.captures(2 + len(carried))
    inputs: list[Given] = [(_declared_shape(body, 0), INT64, TENSOR), (None, BOOL, TENSOR)]
    inputs += [(None, state.dtype, state.kind) if moves else state for state, moves in zip(given, moving)]
    part = scope.subgraph(body, inputs, captures, [True, *moving, *[True] * results])
    made = scope.emitter.deferred(
        LOOP,
        _name(scope, node),
        [count, condition, *carried, *captures.values],
        {"num_states": len(carried), "num_outputs": results},
        [*(state.kind for state in carried), *part.kinds[1 + len(carried) :]],
        [part.symbol],
    )
    moved = iter(made)
    return [*(next(moved) if moves else state for state, moves in zip(given, moving)), *moved]


def _declared_shape(body: onnx.GraphProto, index: int) -> tuple[int, ...]:
    """The number of a turn has no axis, or one if the body says so."""
    return (1,) if len(body.input) > index and len(body.input[index].type.tensor_type.shape.dim) == 1 else ()


def _never_ends(body: onnx.GraphProto) -> bool:
    """Whether the next condition is the one before."""
    return len(body.input) > 1 and bool(body.output) and _origin(body, body.output[0].name) == body.input[1].name


def _origin(body: onnx.GraphProto, name: str) -> str:
    """The value that nodes of a graph hand on under this name, as it is."""
    makers = {output: node for node in body.node for output in node.output}
    while name in makers and makers[name].op_type == "Identity":
        name = makers.pop(name).input[0]  # once each, as a damaged file may have a circle
    return name


# A Scan and a map of sequences, as loops.


def _scan(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value | None]:
    if node_opset(node, "", scope.opsets) < 9:
        return _scan_of_batches(scope, node, label)
    body = _graph(node, "body")
    attrs = {item.name: attribute_value(item, label) for item in node.attribute if item.name != "body"}
    count = attrs.get("num_scan_inputs")
    if not isinstance(count, int) or not 1 <= count <= min(len(node.input), len(body.input)):
        raise FormatError(f"num_scan_inputs is {count} of {len(node.input)} inputs")
    states = len(node.input) - count
    results = len(body.output) - states
    if len(body.input) != len(node.input) or results < 0:
        raise FormatError("the inputs of the Scan and of its body do not fit")

    def option(name: str, size: int) -> list[int]:
        given = attrs.get(name) or [0] * size
        if not isinstance(given, list) or len(given) != size:
            raise FormatError(f"{name} must have {size} numbers")
        return [int(item) for item in given]

    axes, reverse = option("scan_input_axes", count), option("scan_input_directions", count)
    out_axes, out_reverse = option("scan_output_axes", results), option("scan_output_directions", results)
    return _read_all(scope, node, _as_loop(node, body, list(zip(axes, reverse)), list(zip(out_axes, out_reverse))))


def _scan_of_batches(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value | None]:
    """A Scan of opset 8: one of each element of a batch, which states and sequences have as their first axis. Each may
    have a length of its own, at which its states are taken; what it gives is as long as the longest, with zeros."""
    body, fresh = _graph(node, "body"), _Fresh(node)
    attrs = {item.name: attribute_value(item, label) for item in node.attribute if item.name != "body"}
    lengths, *names = node.input
    count = attrs.get("num_scan_inputs")
    if not isinstance(count, int) or not 1 <= count <= len(names) or len(body.input) != len(names):
        raise FormatError("the inputs of the Scan and of its body do not fit")
    directions = attrs.get("directions") or [0] * count
    if not isinstance(directions, list) or len(directions) != count:
        raise FormatError(f"directions must have {count} numbers")
    turn, goes_on = fresh("number"), fresh("more")
    parts = [fresh(f"part{i}") for i in range(len(names))]
    made = [fresh(f"made{i}") for i in range(len(body.output))]
    one = helper.make_node("Scan", parts, made, name=fresh("one"))
    states = len(names) - count
    results = [(0, 0)] * (len(body.output) - states)
    taken = [helper.make_node("Gather", [name, turn], [part], axis=0) for name, part in zip(names, parts)]
    filled: list[onnx.NodeProto] = []
    length = None
    if lengths:
        length, longest = fresh("length"), fresh("longest")
        taken.append(_own("WithinLongest", [lengths, turn, longest], length))
        filled = [_own("Lengthened", [name, longest], f"{name}_long") for name in made[states:]]
        made = [*made[:states], *(node.output[0] for node in filled)]
    inner = helper.make_graph(
        [
            *taken,
            *_as_loop(one, body, [(0, int(direction)) for direction in directions], results, length),
            *filled,
            helper.make_node("Identity", [goes_on], [fresh("still")]),
        ],
        "batches",
        [_scalar(turn, onnx.TensorProto.INT64), _scalar(goes_on, onnx.TensorProto.BOOL)],
        [_scalar(fresh("still"), onnx.TensorProto.BOOL), *map(helper.make_empty_tensor_value_info, made)],
    )
    nodes = [
        helper.make_node("Shape", [names[-1]], [fresh("extents")]),
        _constant(fresh("first"), 0),
        _constant(fresh("second"), 1),
        helper.make_node("Gather", [fresh("extents"), fresh("first")], [fresh("batches")]),
        helper.make_node("Gather", [fresh("extents"), fresh("second")], [fresh("longest")]),
        helper.make_node("Loop", [fresh("batches"), ""], list(node.output), name=node.name, body=inner),
    ]
    return _read_all(scope, node, nodes)


def _read_all(scope: Scope, node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> Sequence[Value | None]:
    """What nodes that stand for one give as its outputs."""
    inside = scope.nested()
    for position, made in enumerate(nodes):
        inside.read(made, position)
    return [inside.values.get(name) if name else None for name in node.output]


def _as_loop(
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    items: Sequence[tuple[int, int]],
    results: Sequence[tuple[int, int]],
    length: str | None = None,
) -> list[onnx.NodeProto]:
    """A Scan: a Loop whose body takes items of its inputs by the number of the turn; all of them, or so many as the
    value called `length` says."""
    fresh = _Fresh(node)
    states = len(node.input) - len(items)
    last, turn, goes_on = (fresh(word) for word in ("last", "turn", "goes_on"))
    turns = length or fresh("turns")
    counted = [
        helper.make_node("Shape", [node.input[states]], [fresh("shape")]),
        _constant(fresh("axis"), items[0][0]),
        helper.make_node("Gather", [fresh("shape"), fresh("axis")], [turns]),
    ]
    before = [
        *([] if length else counted),
        _constant(fresh("one"), 1),
        helper.make_node("Sub", [turns, fresh("one")], [last]),
    ]
    taken = [helper.make_node("Sub", [last, turn], [fresh("back")])]
    for (axis, reverse), name, item in zip(items, node.input[states:], body.input[states:]):
        where = fresh("back") if reverse else turn
        taken.append(helper.make_node("Gather", [name, where], [item.name], axis=axis))
    inner = helper.make_graph(
        [*taken, *body.node, helper.make_node("Identity", [goes_on], [fresh("still")])],
        body.name or "body",
        [_scalar(turn, onnx.TensorProto.INT64), _scalar(goes_on, onnx.TensorProto.BOOL), *body.input[:states]],
        [_scalar(fresh("still"), onnx.TensorProto.BOOL), *body.output],
        initializer=list(body.initializer),
    )
    after, outputs = [], list(node.output)
    for index, (axis, reverse) in enumerate(results):
        place = states + index
        if place < len(outputs) and outputs[place] and (axis or reverse):
            outputs[place] = fresh(f"stacked{index}")
            after += _arranged(fresh, index, outputs[place], node.output[place], axis, reverse, body.output[place])
    loop = helper.make_node("Loop", [turns, "", *node.input[:states]], outputs, name=node.name, body=inner)
    return [*before, loop, *after]


def _arranged(
    fresh: _Fresh, index: int, source: str, target: str, axis: int, reverse: int, declared: onnx.ValueInfoProto
) -> list[onnx.NodeProto]:
    """Items that are stacked along the first axis, in the other order, or along another axis."""
    nodes = []
    if reverse:
        flipped = fresh(f"flipped{index}") if axis else target
        words = {"from": -1, "to": -(2**62), "over": 0, "by": -1}
        ends = [_constant(fresh(f"{word}{index}"), [value]) for word, value in words.items()]
        nodes += ends
        nodes.append(helper.make_node("Slice", [source, *(end.output[0] for end in ends)], [flipped]))
        source = flipped
    if axis:
        if not declared.type.tensor_type.HasField("shape"):
            raise Unsupported(f"scan_output_axes of {declared.name!r}, whose rank the body does not declare")
        rank = len(declared.type.tensor_type.shape.dim) + 1
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        nodes.append(helper.make_node("Transpose", [source], [target], perm=order))
    return nodes


def _sequence_map(scope: Scope, node: onnx.NodeProto, label: str) -> Sequence[Value | None]:
    """A Loop over the items of sequences, whose results are put into sequences."""
    body = _graph(node, "body")
    fresh = _Fresh(node)
    turn, goes_on = fresh("turn"), fresh("goes_on")
    if not node.input or len(body.input) != len(node.input):
        raise FormatError("the inputs of the SequenceMap and of its body do not fit")
    over = [scope[name].kind != TENSOR for name in node.input]
    taken = [
        helper.make_node("SequenceAt" if is_sequence else "Identity", [name, turn][: 1 + is_sequence], [item.name])
        for name, item, is_sequence in zip(node.input, body.input, over)
    ]
    kept = [fresh(f"kept{i}") for i in range(len(body.output))]
    longer = [fresh(f"longer{i}") for i in range(len(body.output))]
    added = [
        helper.make_node("SequenceInsert", [old, item.name], [new]) for old, item, new in zip(kept, body.output, longer)
    ]
    types = [helper.make_sequence_type_proto(item.type) for item in body.output]
    inner = helper.make_graph(
        [*taken, *body.node, *added, helper.make_node("Identity", [goes_on], [fresh("still")])],
        body.name or "body",
        [
            _scalar(turn, onnx.TensorProto.INT64),
            _scalar(goes_on, onnx.TensorProto.BOOL),
            *(helper.make_value_info(name, kind) for name, kind in zip(kept, types)),
        ],
        [
            _scalar(fresh("still"), onnx.TensorProto.BOOL),
            *(helper.make_value_info(name, kind) for name, kind in zip(longer, types)),
        ],
        initializer=list(body.initializer),
    )
    starts = [
        helper.make_node("SequenceEmpty", [], [fresh(f"start{i}")], dtype=item.type.tensor_type.elem_type or 1)
        for i, item in enumerate(body.output)
    ]
    nodes = [
        *starts,
        helper.make_node("SequenceLength", [node.input[0]], [fresh("turns")]),
        helper.make_node(
            "Loop",
            [fresh("turns"), "", *(start.output[0] for start in starts)],
            list(node.output),
            name=node.name,
            body=inner,
        ),
    ]
    return _read_all(scope, node, nodes)


class _Fresh:
    """Names for what a node is written out with."""

    def __init__(self, node: onnx.NodeProto) -> None:
        self._stem = node.name or next(filter(None, node.output), node.op_type)

    def __call__(self, word: str) -> str:
        return f"{self._stem}/{word}"


def _own(op_type: str, inputs: Sequence[str], output: str) -> onnx.NodeProto:
    """A node of weft's own, which means the same in all opsets."""
    return helper.make_node(op_type, inputs, [output], domain=OWN)


def _constant(name: str, value: int | list[int]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, np.int64)))


def _scalar(name: str, kind: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [])


CONTROL: dict[str, Reader] = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
