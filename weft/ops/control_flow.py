"""Control flow: operators whose bodies are subgraphs. A subgraph is closed: its variable `in3` is
input 3 of the node, so what it uses from outside is an input, too.

    total = scan(lambda x, s, c: ([], [s[0] + x[0] * c[0]]), [data], [start], [scale])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import GraphError, InvalidValue, ShapeError, Unsupported
from ..base.shape import Dim, unify, unify_dim
from ..core.compose import substitute
from ..core.graph import Graph
from ..core.infer import infer, infer_dtypes, infer_shapes, unify_dtype
from ..core.interpret import evaluate, input_facts
from ..core.ir import Node, NodeEntry, topo_order
from ..core.naming import NameManager
from ..core.op import VARIADIC, Op
from ..core.schema import BOOL, INT, attr, schema, text_of
from ..core.symbol import Group, Symbol, Variable
from ._families import F, Inferred, Shapes, define

Body = Callable[..., tuple[Sequence[Symbol], Sequence[Symbol]]]


@schema
class ScanAttrs:
    num_data: int = attr(INT, "inputs of which each step takes one item", low=1)
    num_states: int = attr(INT, "inputs that go from step to step", low=0)
    num_outputs: int = attr(INT, "outputs that have an item for each step", low=0)
    reverse: bool = attr(BOOL, "whether steps are taken from the last to the first", default=False)


@schema
class WhileAttrs:
    num_states: int = attr(INT, "inputs that go from turn to turn", low=1)
    num_outputs: int = attr(INT, "outputs that have an item for each turn", low=0)
    max_iterations: int = attr(INT, "turns at most, and items of those outputs", low=0)


@schema
class CondAttrs:
    num_outputs: int = attr(INT, "outputs of both subgraphs", low=1)


def input_name(position: int) -> str:
    """The variable that stands for an input of the node, in its subgraphs."""
    return f"in{position}"


# Inference: through the subgraph, in both directions.


class _Kind(NamedTuple):
    """What is inferred: shapes or dtypes."""

    key: str
    infer: Callable[[Graph, Mapping[str, Any]], Graph]
    meet: Callable[[Any, Any], Any]
    item: Callable[[Any], Any]  # of data -> what a step sees
    whole: Callable[[Any, Any], Any]  # the other way, given the number of items


_SHAPES = _Kind(
    "shape",
    infer_shapes,
    unify,
    lambda shape: None if shape is None else shape[1:],
    lambda shape, count: None if shape is None else (count, *shape),
)
_DTYPES = _Kind("dtype", infer_dtypes, unify_dtype, lambda dtype: dtype, lambda dtype, _: dtype)


def _through(kind: _Kind, graph: Symbol, ins: list[Any]) -> tuple[list[Any], list[Any]]:
    """What a subgraph says about its inputs and outputs."""
    inner = Graph(graph.outputs)
    names = {inner.indexed.nodes[number].name for number in inner.indexed.variables}
    known = {input_name(i): value for i, value in enumerate(ins) if value is not None}
    inner = kind.infer(inner, {name: value for name, value in known.items() if name in names})
    nodes = {inner.indexed.nodes[number].name: number for number in inner.indexed.variables}
    facts = list(ins)
    for position in range(len(ins)):
        number = nodes.get(input_name(position))
        if number is not None:
            fact = inner.fact(NodeEntry(inner.indexed.nodes[number]))
            facts[position] = kind.meet(ins[position], getattr(fact, kind.key))
    return facts, [getattr(inner.fact(entry), kind.key) for entry in graph.outputs]


def _checked(subgraphs: Sequence[Symbol], wanted: Sequence[int], inputs: int, states: Sequence[int] = ()) -> None:
    """The right number of subgraphs, each with so many outputs, closed, and without effects, but
    for random numbers whose generator is a state that goes from turn to turn."""
    if [len(graph.outputs) for graph in subgraphs] != list(wanted):
        raise GraphError(
            f"subgraphs of {[len(graph.outputs) for graph in subgraphs]} outputs", why=f"they must have {list(wanted)}"
        )
    known, carried = {input_name(i) for i in range(inputs)}, {input_name(i) for i in states}
    for graph in subgraphs:
        for node in topo_order(graph.outputs):
            if node.op is None and node.name not in known:
                raise GraphError(f"a subgraph reads {node.name!r}", why=f"there are only in0 .. in{inputs - 1}")
            if node.op is not None and node.op.effect_of(node.params) in ("mutates", "opaque"):
                raise Unsupported(f"operator {node.op.name} in a subgraph", why="it has effects")
            if node.op is not None:
                _check_draws(node, carried)


def _check_draws(node: Node, carried: set[str]) -> None:
    assert node.op is not None
    for place in node.op.mutates_of(node.params):
        drawn = node.inputs[place].node
        if drawn.op is None and drawn.name not in carried:
            raise Unsupported(
                f"operator {node.op.name} draws from a generator outside of its subgraph",
                why="every turn would start from the same state",
                hint="pass the generator's state as a state of the loop",
            )


def _steps(params: ScanAttrs, ins: Shapes, outs: Shapes) -> Dim:
    count: Dim = None
    for shape in [*ins[: params.num_data], *outs[: params.num_outputs]]:
        if shape == ():
            raise ShapeError("a scalar has no items to scan")
        count = unify_dim(count, None if shape is None else shape[0])
    return count


def _looped(
    kind: _Kind, graph: Symbol, ins: list[Any], first: int, states: int, outs: list[Any]
) -> tuple[list[Any], list[Any], list[Any]]:
    """What a body says: inputs, items of outputs, and states, which stay what they are."""
    ends = outs[len(outs) - states :]
    for k in range(states):
        ins[first + k] = kind.meet(ins[first + k], ends[k])
    inputs, outputs = _through(kind, graph, ins)
    new = outputs[len(outputs) - states :] if states else []
    for k in range(states):
        inputs[first + k] = kind.meet(inputs[first + k], new[k])
    return inputs, outputs[: len(outputs) - states], inputs[first : first + states]


def _scan_rule(kind: _Kind) -> Any:
    def rule(params: ScanAttrs, ins: list[Any], outs: list[Any], subgraphs: Sequence[Symbol] = ()) -> Inferred:
        data, states, results = params.num_data, params.num_states, params.num_outputs
        if len(ins) < data + states:
            raise InvalidValue(f"{len(ins)} inputs, of which {data + states} are data and states")
        _checked(subgraphs, [results + states], len(ins), range(data, data + states))
        count = _steps(params, ins, outs) if kind is _SHAPES else None
        inner = [kind.item(value) for value in ins[:data]] + list(ins[data:])
        inputs, items, ends = _looped(kind, subgraphs[0], inner, data, states, list(outs))
        whole = [kind.whole(value, count) for value in inputs[:data]]
        return [*whole, *inputs[data:]], [*(kind.whole(item, count) for item in items), *ends]

    rule.takes_subgraphs = True  # type: ignore[attr-defined]
    return rule


def _while_rule(kind: _Kind) -> Any:
    def rule(params: WhileAttrs, ins: list[Any], outs: list[Any], subgraphs: Sequence[Symbol] = ()) -> Inferred:
        states, results = params.num_states, params.num_outputs
        if len(ins) < states:
            raise InvalidValue(f"{len(ins)} inputs, of which {states} are states")
        _checked(subgraphs, [1, results + states], len(ins), range(states))
        inputs, (answer,) = _through(kind, subgraphs[0], list(ins))
        _check_one(kind, answer)
        inputs, items, ends = _looped(kind, subgraphs[1], inputs, 0, states, list(outs))
        return inputs, [*(kind.whole(item, params.max_iterations) for item in items), *ends]

    rule.takes_subgraphs = True  # type: ignore[attr-defined]
    return rule


def _cond_rule(kind: _Kind) -> Any:
    def rule(params: CondAttrs, ins: list[Any], outs: list[Any], subgraphs: Sequence[Symbol] = ()) -> Inferred:
        if not ins:
            raise InvalidValue("cond has no condition")
        _check_one(kind, ins[0])
        _checked(subgraphs, [params.num_outputs] * 2, len(ins))
        inputs, outputs = _through(kind, subgraphs[0], list(ins))
        inputs, other = _through(kind, subgraphs[1], inputs)
        return inputs, [kind.meet(a, b) for a, b in zip(outputs, other)]

    rule.takes_subgraphs = True  # type: ignore[attr-defined]
    return rule


def _check_one(kind: _Kind, answer: Any) -> None:
    if kind is _SHAPES and answer is not None and any(dim not in (1, None) for dim in answer):
        raise ShapeError(f"a condition of shape {answer}", why="it must be one number")


# numpy


def holds(answer: Any) -> bool:
    """Whether a condition, an array of one number, is not zero."""
    return bool(np.asarray(answer).reshape(-1)[0] != 0)


def by_input_name(values: Sequence[Any]) -> dict[str, Any]:
    """The inputs of a node, as its subgraphs call them."""
    return {input_name(i): value for i, value in enumerate(values)}


def _empty(graph: Symbol, arrays: Sequence[Any], count: int, results: int) -> list[Any]:
    """Zeros for the outputs that have an item for each of so many steps."""
    named = by_input_name(arrays)
    used = set(graph.list_input_names())
    shapes, dtypes = input_facts({name: array for name, array in named.items() if name in used})
    typed = infer(Graph(graph.outputs), shapes, dtypes)
    facts: list[Any] = [typed.fact(entry) for entry in graph.outputs[:results]]
    return [np.zeros((count, *fact.shape), fact.dtype) for fact in facts]


def _scan_reference(params: ScanAttrs, *arrays: Any, subgraphs: Sequence[Symbol]) -> Any:
    (body,), data, first = subgraphs, params.num_data, params.num_data + params.num_states
    states, rest = list(arrays[data:first]), arrays[first:]
    count = len(arrays[0])
    items = [np.zeros(array.shape[1:], array.dtype) for array in arrays[:data]]
    outs = _empty(body, [*items, *states, *rest], count, params.num_outputs)
    for step in reversed(range(count)) if params.reverse else range(count):
        items = [array[step] for array in arrays[:data]]
        results = evaluate(body, by_input_name([*items, *states, *rest]))
        for out, value in zip(outs, results):
            out[step] = value
        states = results[params.num_outputs :]
    return (*outs, *(np.array(state) for state in states))


def _while_reference(params: WhileAttrs, *arrays: Any, subgraphs: Sequence[Symbol]) -> Any:
    test, body = subgraphs
    states, rest = list(arrays[: params.num_states]), arrays[params.num_states :]
    outs = _empty(body, arrays, params.max_iterations, params.num_outputs)
    for turn in range(params.max_iterations):
        named = by_input_name([*states, *rest])
        if not holds(evaluate(test, named)[0]):
            break
        results = evaluate(body, named)
        for out, value in zip(outs, results):
            out[turn] = value
        states = results[params.num_outputs :]
    return (*outs, *(np.array(state) for state in states))


def _cond_reference(params: CondAttrs, *arrays: Any, subgraphs: Sequence[Symbol]) -> Any:
    chosen = subgraphs[0] if holds(arrays[0]) else subgraphs[1]
    return tuple(np.array(value) for value in evaluate(chosen, by_input_name(arrays)))


# Nodes


def control(
    op_name: str, inputs: Sequence[Symbol], subgraphs: Sequence[Symbol], name: str | None = None, **attrs: Any
) -> Symbol:
    """All outputs of a node with subgraphs."""
    texts = {key: text_of(value) for key, value in attrs.items()}
    entries = [entry for symbol in inputs for entry in symbol.outputs]
    label = NameManager.current.get(name, op_name)
    node = Node(Op.get(op_name), label, texts, entries, subgraphs=subgraphs)
    return Symbol([node.entry(index) for index in range(node.num_outputs)])


def _variables(start: int, count: int) -> list[Symbol]:
    return [Variable(input_name(start + i)) for i in range(count)]


def scan(
    body: Body,
    data: Sequence[Symbol],
    states: Sequence[Symbol],
    captures: Sequence[Symbol] = (),
    *,
    reverse: bool = False,
    name: str | None = None,
) -> Symbol:
    """`outputs, states = body(items, states, captures)` for each item of the data, along its first
    axis. Gives the outputs of all steps, and the last states.

    >>> x, s = Variable("x"), Variable("s")
    >>> scan(lambda x, s, c: ([x[0] * 2], [s[0] + x[0]]), [x], [s], name="l").list_output_names()
    ['l_output0', 'l_output1']
    """
    counts = len(data), len(states)
    outputs, new = body(
        _variables(0, counts[0]), _variables(counts[0], counts[1]), _variables(sum(counts), len(captures))
    )
    if len(new) != len(states):
        raise InvalidValue(f"a body of {len(states)} states gave {len(new)}")
    return control(
        "scan",
        [*data, *states, *captures],
        [Group([*outputs, *new])],
        name,
        num_data=counts[0],
        num_states=counts[1],
        num_outputs=len(outputs),
        reverse=reverse,
    )


def while_loop(
    test: Callable[..., Symbol],
    body: Body,
    states: Sequence[Symbol],
    captures: Sequence[Symbol] = (),
    *,
    max_iterations: int,
    name: str | None = None,
) -> Symbol:
    """`outputs, states = body(states, captures)` while `test(states, captures)` is not 0, but at
    most max_iterations times. Gives the outputs of all turns, 0 behind the last, and the states."""
    count, more = len(states), len(captures)
    asked = test(_variables(0, count), _variables(count, more))
    outputs, new = body(_variables(0, count), _variables(count, more))
    if len(new) != count:
        raise InvalidValue(f"a body of {count} states gave {len(new)}")
    return control(
        "while_loop",
        [*states, *captures],
        [asked, Group([*outputs, *new])],
        name,
        num_states=count,
        num_outputs=len(outputs),
        max_iterations=max_iterations,
    )


def cond(
    condition: Symbol,
    then: Callable[..., Sequence[Symbol]],
    otherwise: Callable[..., Sequence[Symbol]],
    captures: Sequence[Symbol] = (),
    *,
    name: str | None = None,
) -> Symbol:
    """`then(captures)` if the condition is not 0, else `otherwise(captures)`."""
    branches = [Group(list(branch(_variables(1, len(captures))))) for branch in (then, otherwise)]
    count = len(branches[0].outputs)
    return control("cond", [condition, *captures], branches, name, num_outputs=count)


# Gradients


def _moved(graph: Symbol, places: Mapping[int, int]) -> tuple[Symbol, dict[int, Symbol]]:
    """A copy that reads other inputs, and the variables of those it reads, by their old places."""
    used = set(graph.list_input_names())
    new = {old: Variable(input_name(at)) for old, at in places.items() if input_name(old) in used}
    entries = substitute(graph.outputs, {input_name(old): symbol.outputs[0] for old, symbol in new.items()})
    return Symbol(entries), new


def _gradients(ctx: Any, graph: Symbol, of: Mapping[int, Symbol], heads: Sequence[Symbol]) -> Any:
    """The gradient of each of these inputs that the outputs depend on, by its place."""
    grads = ctx.gradients(graph, list(of.values()), Group(list(heads))) if of else []
    return dict(zip(of, grads))


def _scan_gradient(ctx: Any, *heads: Any) -> list[Any]:
    """Steps backwards: each runs the body's gradient on the states that it began with, carries on
    that of the states, and adds up that of what is captured."""
    params, (body,) = ctx.params, ctx.subgraphs
    data, states, results = params.num_data, params.num_states, params.num_outputs
    captures = ctx.inputs[data + states :]
    begun = _states_before(ctx) if states else []
    many = data + states + results
    carried = states + len(captures)
    places = {i: i for i in range(data + states)}
    places |= {data + states + i: many + carried + i for i in range(len(captures))}
    inner, of = _moved(body, places)
    out_heads = _variables(data + states, results) + _variables(many, states)
    grads = _gradients(ctx, inner, of, out_heads)
    zero = lambda place: F.zeros_like(Variable(input_name(places[place])))
    outputs = [grads[i] if i in grads else zero(i) for i in range(data + states)]
    sums = []
    for i in range(len(captures)):
        total = Variable(input_name(many + states + i))
        grad = grads.get(data + states + i)
        sums.append(total if grad is None else total + grad)
    back = control(
        "scan",
        [
            *ctx.inputs[:data],
            *begun,
            *heads[:results],
            *heads[results:],
            *(F.zeros_like(value) for value in captures),
            *captures,
        ],
        [Group([*outputs[:data], *outputs[data:], *sums])],
        num_data=many,
        num_states=carried,
        num_outputs=data,
        reverse=not params.reverse,
    )
    return list(back)


def _states_before(ctx: Any) -> list[Symbol]:
    """The states that every step began with."""
    params, (body,) = ctx.params, ctx.subgraphs
    data, states = params.num_data, params.num_states
    inner, of = _moved(body, {i: i for i in range(len(ctx.inputs))})
    old = [of.get(data + k) or Variable(input_name(data + k)) for k in range(states)]
    new = [Symbol([entry]) for entry in inner.outputs[params.num_outputs :]]
    scanned = control(
        "scan",
        ctx.inputs,
        [Group([*old, *new])],
        num_data=data,
        num_states=states,
        num_outputs=states,
        reverse=params.reverse,
    )
    return list(scanned)[:states]


def _cond_gradient(ctx: Any, *heads: Any) -> list[Any]:
    """The gradient of the subgraph that was chosen."""
    count = len(ctx.inputs)
    branches = []
    for graph in ctx.subgraphs:
        inner, of = _moved(graph, {i: i for i in range(count)})
        of.pop(0, None)
        grads = _gradients(ctx, inner, of, _variables(count, len(heads)))
        zero = lambda place: F.zeros_like(Variable(input_name(place)))
        branches.append(Group([grads[i] if i in grads else zero(i) for i in range(1, count)]))
    if count == 1:
        return [None]
    made = control("cond", [*ctx.inputs, *heads], branches, num_outputs=count - 1)
    return [None, *made]


def _while_gradient(ctx: Any, *heads: Any) -> list[Any]:
    raise Unsupported(
        "the gradient of while_loop",
        why="how many turns there are is known only when it runs",
        hint="use scan where the number of steps is known",
    )


def _define(name: str, doc: str, attrs: type, rule: Any, reference: Any, gradient: Any) -> Op:
    op = define(
        name,
        doc,
        inputs={},
        attrs=attrs,
        shape=rule(_SHAPES),
        dtype=rule(_DTYPES),
        reference=reference,
        gradient=gradient,
    )
    op.set_num_inputs(VARIADIC)
    op.set_num_outputs(lambda p: p.num_outputs + getattr(p, "num_states", 0))
    return op


scan_op = _define(
    "scan",
    "Runs its subgraph for each item of its first inputs, the data, along their first axis; then "
    "come the states, which go from step to step, and what else the subgraph reads. Gives the "
    "outputs of all steps, each with the steps as first axis, and the last states.",
    ScanAttrs,
    _scan_rule,
    _scan_reference,
    _scan_gradient,
)
while_loop_op = _define(
    "while_loop",
    "Runs its second subgraph while its first gives a number that is not 0, at most max_iterations "
    "times. The first inputs are the states, which go from turn to turn. Gives the outputs of all "
    "turns, each with max_iterations as first axis and 0 behind the last turn, and the states.",
    WhileAttrs,
    _while_rule,
    _while_reference,
    _while_gradient,
)
cond_op = _define(
    "cond",
    "Runs its first subgraph if its first input is not 0, else its second; both read the inputs "
    "behind, and give outputs of the same shapes and dtypes.",
    CondAttrs,
    _cond_rule,
    _cond_reference,
    _cond_gradient,
)
