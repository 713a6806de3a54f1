"""CorrectLayout: every operator gets its inputs in layouts it works in; where a producer gives
another one, a `__layout_transform__` goes between."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.errors import Error, InvalidValue, LayoutError
from ..base.layout import Layout
from ..base.shape import Shape
from ..core.graph import Graph
from ..core.infer import infer_dtypes, infer_node, infer_shapes
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ._moves import Moves


@register_pass("CorrectLayout", provides=("layout",), op_attrs=("FCorrectLayout",))
def correct_layout(graph: Graph) -> Graph:
    """The graph with a layout for every entry that has one.

    `layout_inputs` gives one for each variable; what it leaves undefined keeps the layout it had.
    """
    layouts = Layouts(graph)
    made = rewrite(graph.replace(attrs={}), layouts.correct)
    facts = {node: layouts.stamp(node, made.node_facts(node)) for node in made.indexed.nodes}
    corrected = made.replace(facts=facts)
    if any(fact.shape is not None for known in graph.facts.values() for fact in known):
        corrected = infer_dtypes(infer_shapes(corrected, {}), {})
    return corrected


class Layouts:
    """Layouts of the new graph's entries, filled as nodes are visited."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.given = _given_layouts(graph)
        self.now: dict[Node, list[Layout]] = {}
        self.moves = Moves()
        self.transforms: dict[tuple[NodeEntry, Layout], NodeEntry] = {}

    def stamp(self, node: Node, facts: Sequence[Fact]) -> tuple[Fact, ...]:
        return tuple(f._replace(layout=layout) for f, layout in zip(facts, self.now[node]))

    def correct(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        last_outs = [fact.layout for fact in self.graph.node_facts(node)]
        if node.op is None:
            self.now[node] = [self.given.get(node, last_outs[0])]
            return self.moves.keep(walker, node, inputs)
        wanted, outs = self.ask(walker, node, node.op, inputs, last_outs)
        written = node.op.mutates_of(node.params)
        arrived = [
            self.arrive(walker, entry, layout, node, position in written)
            for position, (entry, layout) in enumerate(zip(inputs, wanted))
        ]
        kept = self.moves.keep(walker, node, arrived)
        made = self.moves.node(node)
        _infer_now(walker, made)
        self.now[made] = outs
        return kept

    def ask(
        self, walker: Walker, node: Node, op: Op, inputs: list[NodeEntry], last_outs: list[Layout]
    ) -> tuple[list[Layout], list[Layout]]:
        """The layouts an operator wants and gives; those it was written in where it has no rule,
        or its rule does not know tensors of such ranks."""
        ins = [self.now[entry.node][entry.index] for entry in inputs]
        last = [self.graph.fact(entry).layout for entry in node.inputs]
        rule = Op.layout.get(op)
        if rule is None:
            return last, last_outs
        shapes = [_written_shape(walker.fact(e).shape, *pair) for e, *pair in zip(inputs, ins, last)]
        extra = (shapes,) if getattr(rule, "takes_shapes", False) else ()
        try:
            wanted, outs = rule(node.params, ins, last, last_outs, *extra)
        except Error as error:
            error.at(f"operator {op.name}, node {node.name!r}")
            raise
        if len(wanted) != len(ins) or len(outs) != len(last_outs):
            raise InvalidValue(
                f"the layout rule of {op.name} gave {len(wanted)} and {len(outs)} layouts",
                where=f"node {node.name!r}",
                why=f"the node has {len(ins)} inputs and {len(last_outs)} outputs",
            )
        asked = [(w, walker.fact(e).shape) for w, e, now in zip(wanted, inputs, ins) if not now.defined]
        if not all(fits(*pair) for pair in asked):
            return last, last_outs
        # An output of which the rule says nothing is as it was written.
        return list(wanted), [new if new.defined else old for new, old in zip(outs, last_outs)]

    def arrive(self, walker: Walker, entry: NodeEntry, wanted: Layout, reader: Node, written: bool) -> NodeEntry:
        """An input in the layout that its reader wants."""
        have = self.now[entry.node][entry.index]
        if not wanted.defined or have == wanted:
            return entry
        if not have.defined and fits(wanted, walker.fact(entry).shape):
            self.now[entry.node][entry.index] = wanted
            return entry
        if written or not have.convertible(wanted):
            raise LayoutError(
                f"layout {have} of {entry.node.name!r} cannot become {wanted}",
                where=f"node {reader.name!r}",
                why="the node writes to it" if written else "they have different dimensions",
            )
        if (entry, wanted) not in self.transforms:
            attrs = {"src_layout": have.name, "dst_layout": wanted.name}
            name = f"{entry.node.name}_{wanted.name}"
            made = walker.make("__layout_transform__", [entry], attrs, name=name)
            self.now[made.node] = [wanted]
            self.transforms[entry, wanted] = made
        return self.transforms[entry, wanted]


def _infer_now(walker: Walker, node: Node) -> None:
    """Facts about a node that AlterOpLayout left for when the layouts of its inputs are known."""
    assert node.op is not None
    if any(walker.fact(NodeEntry(node, i)).shape is None for i in range(node.num_outputs)):
        facts = [walker.fact(entry) for entry in node.inputs]
        walker.facts[node] = infer_node(node.op, node.params, facts, node.name, node.subgraphs)


def fits(layout: Layout, shape: Shape) -> bool:
    """Whether a tensor of some shape can be in a layout, as far as its rank says."""
    return not layout.defined or shape is None or layout.ndim == len(shape)


def _written_shape(shape: Shape, storage: Layout, names: Layout) -> Shape:
    """The shape of a tensor as it was written, from that of how it is stored."""
    if storage == names or not storage.defined or not names.defined:
        return shape
    return storage.convert_shape(shape, names)


def _given_layouts(graph: Graph) -> dict[Node, Layout]:
    names = graph.attr("layout_inputs")
    variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    if names is None:
        return {}
    if len(names) != len(variables):
        raise InvalidValue(
            f"graph attribute layout_inputs has {len(names)} values", why=f"the graph has {len(variables)} inputs"
        )
    layouts = {node: Layout(name or "__undef__") for node, name in zip(variables, names)}
    return {node: layout for node, layout in layouts.items() if layout.defined}


def with_output_layouts(graph: Graph, wanted: Sequence[Layout]) -> Graph:
    """The graph whose outputs are in these layouts, which a user knows."""
    walker = Walker(graph)
    outputs = []
    for entry, layout in zip(graph.outputs, wanted):
        have = graph.fact(entry).layout
        if have == layout or not have.defined:
            outputs.append(entry)
            continue
        if not have.convertible(layout):
            raise LayoutError(f"output {entry.node.name!r} in layout {have} cannot be {layout}")
        attrs = {"src_layout": have.name, "dst_layout": layout.name}
        made = walker.make("__layout_transform__", [entry], attrs, name=entry.node.name)
        walker.sources[made.node] = graph.sources.get(entry.node, (entry.node,))
        outputs.append(made)
    return graph.replace(
        outputs=outputs, facts={**graph.facts, **walker.facts}, sources={**graph.sources, **walker.sources}
    )
