"""Parts of a graph found by a pattern, and replaced: pattern and replacement are graphs, whose inputs and outputs stand
for each other in order."""

from __future__ import annotations

from ...base.errors import RunError
from ..graph import Graph
from ..nodes import Node, Value, inside
from ..parse import parse_ir
from .aliases import Aliases
from .common_subexpressions import attributes_of, key_of
from .dead_code import eliminate_dead_code
from .effects import has_side_effects


def rewrite_pattern(pattern: str, replacement: str, graph: Graph) -> None:
    """Puts a replacement wherever a graph does what a pattern says. Inputs of the pattern stand for any values;
    attributes have to be the same, and nobody else may read what the pattern has in between.

    >>> graph = parse_ir('''graph(%x : Tensor, %y : Tensor):
    ...   %a : Tensor = aten::mul(%x, %y)
    ...   %b : Tensor = aten::relu(%a)
    ...   return (%b)''')
    >>> rewrite_pattern('''graph(%p, %q):
    ...   %r = aten::mul(%p, %q)
    ...   %s = aten::relu(%r)
    ...   return (%s)''', '''graph(%p, %q):
    ...   %s = own::mul_relu(%p, %q)
    ...   return (%s)''', graph)
    >>> [node.kind() for node in graph.nodes()]
    ['own::mul_relu']
    """
    rewrite(parse_ir(pattern), parse_ir(replacement), graph)


def rewrite(pattern: Graph, replacement: Graph, graph: Graph) -> bool:
    """The same with graphs; whether something was replaced."""
    for each, what in ((pattern, "pattern"), (replacement, "replacement")):
        if what == "pattern" and any(node._blocks for node in each.nodes()):
            raise RunError("a pattern with blocks matches nothing", hint="patterns are nodes in a row")
    ends = [value.node() for value in pattern.outputs()]
    if not ends or any(node is pattern.param_node() for node in ends):
        raise RunError("a pattern gives what its last node gives", why="this one gives an input, or nothing")
    if len(list(replacement.inputs())) != len(list(pattern.inputs())):
        raise RunError(
            f"the pattern takes {len(list(pattern.inputs()))} inputs, the replacement {len(list(replacement.inputs()))}"
        )
    aliases, taken, changed = Aliases(graph), set[Node](), False
    for node in list(inside(graph.block())):
        if node in taken or node.kind() != ends[0].kind():
            continue
        found = _match(pattern, node, taken)
        if found is not None and _may_move(found, node, aliases):
            taken |= found.nodes
            _replace(graph, pattern, replacement, node, found)
            changed = True
    if changed:
        for node in taken:
            for value in node._outputs:
                if value._uses and not all(use.user in taken for use in value._uses.values()):
                    raise RunError(f"%{value.debugName()} is read by others")
        for node in taken:
            node.removeAllInputs()
        for node in taken:
            node.destroy()
        eliminate_dead_code(graph)
    return changed


class _Match:
    """Values and nodes of a graph by those of a pattern."""

    def __init__(self) -> None:
        self.values: dict[Value, Value] = {}
        self.nodes: set[Node] = set()


def _match(pattern: Graph, anchor: Node, taken: set[Node]) -> _Match | None:
    """How a part of a graph, whose last node is the anchor, is what a pattern says."""
    found, inputs = _Match(), set(pattern.inputs())
    outputs = list(pattern.outputs())
    last = outputs[0].node()
    if last.outputsSize() != anchor.outputsSize():
        return None
    waiting = list(zip(last._outputs, anchor._outputs))
    while waiting:
        wanted, value = waiting.pop()
        if wanted in found.values:
            if found.values[wanted] is not value:
                return None
            continue
        found.values[wanted] = value
        if wanted in inputs:
            continue
        theirs, ours = wanted.node(), value.node()
        if ours in taken or ours._blocks or not _alike(theirs, ours, wanted, value):
            return None
        between = wanted not in outputs and theirs.kind() != "prim::Constant"
        if between and len(wanted._uses) != len(value._uses):
            return None
        if ours.owningBlock() is not anchor.owningBlock() and theirs.kind() != "prim::Constant":
            return None
        if theirs.kind() != "prim::Constant":
            found.nodes.add(ours)
        waiting += [*zip(theirs._inputs, ours._inputs), *zip(theirs._outputs, ours._outputs)]
    if any(value not in found.values for value in outputs):
        return None  # an output that the first one does not follow from
    return found


def _alike(theirs: Node, ours: Node, wanted: Value, value: Value) -> bool:
    same = theirs.kind() == ours.kind() and wanted.offset() == value.offset()
    if not same or len(theirs._inputs) != len(ours._inputs) or len(theirs._outputs) != len(ours._outputs):
        return False
    if theirs.kind() == "prim::Constant":
        return key_of(theirs) == key_of(ours)
    return attributes_of(theirs) == attributes_of(ours)


def _may_move(found: _Match, anchor: Node, aliases: Aliases) -> bool:
    """Whether all of a match may run where its last node is."""
    outputs = [value for node in found.nodes if node is not anchor for value in node._outputs]
    early = any(use.user not in found.nodes and use.user.isBefore(anchor) for v in outputs for use in v._uses.values())
    if early or any(map(has_side_effects, found.nodes - {anchor})):
        return False
    if not any(aliases.touches_written(node) for node in found.nodes):
        return True
    places = set[int]().union(*[aliases.reached(value) for value in found.values.values()])
    return all(writer in found.nodes for place in places for writer in aliases.writers.get(place, ()))


def _replace(graph: Graph, pattern: Graph, replacement: Graph, anchor: Node, found: _Match) -> None:
    inputs = [found.values.get(value) for value in pattern.inputs()]
    if any(value is None for value in inputs):
        raise RunError("the pattern has an input that it does not read")
    with graph.insert_point_guard(anchor):
        results = graph.insertGraph(replacement, inputs)  # type: ignore[arg-type]
    for wanted, result in zip(pattern.outputs(), results):
        value = found.values[wanted]
        result.setType(value.type())
        value.replaceAllUsesWith(result)
