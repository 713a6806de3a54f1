"""Inference of shapes and dtypes: what is known about some entries, carried to all, both ways.

Facts only ever become more exact, and a node is looked at again only when a fact beside it changed,
so the work is linear in the graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.dtype import DType, as_dtype, dtype_of_code
from ..base.errors import DTypeError, Error, GraphError, NotFound
from ..base.shape import Shape, checked_shape, is_known, unify
from .bulk import collector_paused
from .graph import Graph, facts_with
from .indexed import IndexedGraph
from .ir import UNKNOWN, Fact, Node, NodeEntry
from .op import Op, OpMap, Rule
from .schema import DIMS, INT, Params

if TYPE_CHECKING:
    from .symbol import Symbol

Values = list[Any]
Meet = Callable[[Any, Any], Any]


@collector_paused
def infer(graph: Graph, shapes: Mapping[str, Shape] | None = None, dtypes: Mapping[str, DType] | None = None) -> Graph:
    """The graph with facts about every entry, from what is said about variables by name.

    Facts the graph already has are kept; hints on variables count where nothing else is said.
    """
    for given in (shapes or {}, dtypes or {}):
        check_names(graph, given)
    graph = infer_shapes(graph, {n: checked_shape(s, n) for n, s in (shapes or {}).items()})
    return infer_dtypes(graph, {n: as_dtype(d) for n, d in (dtypes or {}).items()})


def infer_shapes(graph: Graph, given: Mapping[str, Shape]) -> Graph:
    """Facts with shapes filled in."""
    return _infer(graph, "shape", given, shape_hint, Op.shape, _says_nothing, unify)


def infer_dtypes(graph: Graph, given: Mapping[str, DType]) -> Graph:
    """Facts with dtypes filled in. An operator without a rule has one dtype for all."""
    return _infer(graph, "dtype", given, dtype_hint, Op.dtype, same_dtype, unify_dtype)


def infer_node(
    op: Op, params: Params, ins: Sequence[Fact], name: str, subgraphs: Sequence[Symbol] = ()
) -> tuple[Fact, ...]:
    """Facts about the outputs of one node from those about its inputs."""
    count = op.outputs_of(params)
    where = f"operator {op.name}, node {name!r}"
    shape, dtype = Op.shape.get(op, _says_nothing), Op.dtype.get(op, same_dtype)
    try:
        shapes = _outputs(op, shape, unify, params, ins, 0, count, subgraphs)
        dtypes = _outputs(op, dtype, unify_dtype, params, ins, 1, count, subgraphs)
    except Error as error:
        error.at(where)
        raise
    return tuple(Fact(shape, dtype) for shape, dtype in zip(shapes, dtypes))


def _outputs(
    op: Op,
    rule: Rule,
    meet: Meet,
    params: Params,
    ins: Sequence[Fact],
    place: int,
    count: int,
    subgraphs: Sequence[Symbol],
) -> Values:
    known = [fact[place] for fact in ins]
    said, outs = _run(op, rule, params, known, [None] * count, subgraphs)
    for old, new in zip(known, said):
        if new is not None and new != old:
            meet(old, new)  # raises where they contradict
    return outs


def unify_dtype(a: DType | None, b: DType | None) -> DType | None:
    """The meet of two facts about one dtype."""
    if a is None or b is None or a == b:
        return b if a is None else a
    raise DTypeError(f"dtype {a} is not dtype {b}", hint="cast one of the inputs")


def same_dtype(params: Params, ins: Sequence[Any], outs: Sequence[Any]) -> tuple[Values, Values]:
    """The rule of operators that have none: every input and output has one dtype."""
    dtype = None
    for value in (*outs, *ins):
        dtype = unify_dtype(dtype, value)
    return [dtype] * len(ins), [dtype] * len(outs)


def _says_nothing(params: Params, ins: Values, outs: Values) -> None:
    return None


def _run(
    op: Op, rule: Rule, params: Params, ins: Values, outs: Values, subgraphs: Sequence[Symbol] = ()
) -> tuple[Values, Values]:
    """What a rule says: a value or None for every input and output."""
    takes = subgraphs and getattr(rule, "takes_subgraphs", False)
    try:
        said = rule(params, ins, outs, subgraphs) if takes else rule(params, ins, outs)
    except (Error, MemoryError):
        raise
    except Exception as error:
        raise GraphError(
            f"an inference rule of operator {op.name} failed", why=f"{type(error).__name__}: {error}"
        ) from error
    if not said:
        return [None] * len(ins), [None] * len(outs)
    if len(said[0]) != len(ins) or len(said[1]) != len(outs):
        raise GraphError(
            f"an inference rule of operator {op.name} spoke of {len(said[0])} inputs and {len(said[1])} outputs",
            why=f"the node has {len(ins)} and {len(outs)}",
        )
    return said  # type: ignore[no-any-return]


@collector_paused
def _infer(
    graph: Graph,
    key: str,
    given: Mapping[str, Any],
    hint: Callable[[Node], Any],
    rules: OpMap[Rule],
    absent: Rule,
    meet: Meet,
) -> Graph:
    indexed = graph.indexed
    values = [getattr(fact, key) for node in indexed.nodes for fact in graph.node_facts(node)]
    for number in indexed.variables:
        node, entry = indexed.nodes[number], indexed.entry_ptr[number]
        if node.name in given:
            values[entry] = meet(values[entry], given[node.name])
        if values[entry] is None:
            values[entry] = hint(node)
    propagate(indexed, values, rules, absent, meet)
    facts = facts_with(graph.facts, key, values, indexed.nodes, indexed.entry_ptr)
    made = graph.replace(facts=facts)
    made._indexed = indexed
    return made


def propagate(indexed: IndexedGraph, values: Values, rules: OpMap[Rule], absent: Rule, meet: Meet) -> None:
    """Runs rules until nothing changes; `values` holds a fact per entry and is filled in place."""
    producer = [n for n in range(indexed.num_nodes) for _ in indexed.entry_range(n)]
    queue = deque(n for n, node in enumerate(indexed.nodes) if node.op is not None)
    waiting = bytearray(b"\1") * indexed.num_nodes  # variables, which have no rule, for ever
    while queue:
        number = queue.popleft()
        waiting[number] = 0
        inputs, outputs = indexed.inputs[number], indexed.entry_range(number)
        changed = _improve(indexed.nodes[number], inputs, outputs, values, rules, absent, meet)
        # A node can learn from what it said itself, unless that was all there is to know.
        done = bool(changed) and _all_known(values, inputs, outputs)
        for entry in changed:
            for neighbour in (producer[entry], *indexed.consumers[entry]):
                if not waiting[neighbour] and not (done and neighbour == number):
                    waiting[neighbour] = 1
                    queue.append(neighbour)


def _all_known(values: Values, inputs: list[int], outputs: range) -> bool:
    for entry in (*inputs, *outputs):
        value = values[entry]
        if value is None or (type(value) is tuple and None in value):
            return False
    return True


def _improve(
    node: Node, inputs: list[int], outputs: range, values: Values, rules: OpMap[Rule], absent: Rule, meet: Meet
) -> list[int]:
    """Runs one node's rule and meets what it says with what is known; the entries that changed."""
    op = node.op
    assert op is not None
    known_ins = [values[entry] for entry in inputs]
    known_outs = values[outputs.start : outputs.stop]
    changed = []
    try:
        rule = rules.get(op, absent)
        ins, outs = _run(op, rule, node.params, known_ins, known_outs, node.subgraphs)
        for entry, said in zip((*inputs, *outputs), (*ins, *outs)):
            old = values[entry]
            if said is None or (old is not None and said == old):  # numpy: None == float64
                continue
            new = meet(old, said)
            if old is None or new != old:
                values[entry] = new
                changed.append(entry)
    except Error as error:
        error.at(f"operator {op.name}, node {node.name!r}")
        raise
    return changed


def shape_hint(node: Node, key: str = "shape") -> Shape:
    """The shape a variable's attribute gives; 0 and None stand for unknown there.

    A variable made for a missing input carries the operator's attributes, so text that is no shape
    says nothing.
    """
    text = node.attrs.get(key)
    if text is None:
        return None
    try:
        dims = DIMS.parse(text)
    except ValueError:
        return None
    if any(isinstance(dim, int) and dim < 0 for dim in dims):
        return None
    return tuple(dim or None for dim in dims) or None


def dtype_hint(node: Node, key: str = "dtype") -> DType | None:
    """The dtype a variable's attribute gives, as NNVM's code."""
    text = node.attrs.get(key)
    try:
        code = -1 if text is None else INT.parse(text)
    except ValueError:
        return None
    try:
        return None if code == -1 else dtype_of_code(code)
    except Error as error:
        error.at(f"variable {node.name!r}, attribute {key!r}")
        raise


def check_names(graph: Graph, given: Iterable[str]) -> None:
    """An error unless each name is that of a variable of the graph."""
    known = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    for name in given:
        if name not in known:
            raise NotFound(f"the graph has no input {name!r}", why="its inputs: " + ", ".join(sorted(known)[:20]))


def unknown_entries(graph: Graph) -> list[NodeEntry]:
    """Entries whose shape or dtype is not known."""
    return [
        NodeEntry(node, index)
        for node in graph.indexed.nodes
        for index, fact in enumerate(graph.facts.get(node, (UNKNOWN,) * node.num_outputs))
        if fact.dtype is None or not is_known(fact.shape)
    ]
