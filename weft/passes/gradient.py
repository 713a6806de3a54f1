"""Gradient: reverse differentiation. Comes in: entries `grad_ys`, `grad_xs` and the gradients
`grad_ys_out_grad` of the first. Goes out: a graph whose outputs are the gradients of `grad_xs`."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.dtype import is_complex
from ..base.errors import Error, GraphError, InvalidType, InvalidValue, Unsupported
from ..core.bulk import collector_paused
from ..core.gradient import GradientContext
from ..core.graph import Graph
from ..core.infer import dtype_hint, infer_dtypes, infer_shapes
from ..core.ir import Node, NodeEntry, topo_order
from ..core.naming import NameManager
from ..core.op import Op
from ..core.passes import register_pass
from ..core.symbol import Symbol

ZERO_OPS = ("zeros_like", "zeros")

Aggregate = Callable[[list[NodeEntry]], NodeEntry]


class GradientNames(NameManager):
    """Names the nodes that a gradient rule makes: `<node>_grad_sub0`, `<node>_grad_sub1`, ..."""

    def __init__(self, node_name: str) -> None:
        super().__init__()
        self._base = f"{node_name}_grad_sub"
        self.given: set[str] = set()

    def get(self, name: str | None, hint: str) -> str:
        chosen = name or f"{self._base}{len(self.given)}"
        self.given.add(chosen)
        return chosen


@register_pass("Gradient", requires=("grad_ys", "grad_xs", "grad_ys_out_grad"), op_attrs=("FGradient",))
@collector_paused
def gradient(graph: Graph) -> Graph:
    """The gradients of `grad_xs`.

    Optional attributes: `grad_aggregate_fun` sums entries, `grad_mirror_fun` says which nodes are
    computed again rather than kept, `zero_ops` name operators whose result is a zero gradient,
    `copy_op` names one by which results that are the same entry become entries of their own.
    """
    ys, xs, heads = (graph.attr(k) for k in ("grad_ys", "grad_xs", "grad_ys_out_grad"))
    if len(ys) != len(heads):
        raise InvalidValue(f"{len(ys)} outputs have {len(heads)} gradients")
    order = topo_order(ys)
    _check_reachable(order, xs)
    tape = _Tape(graph, order, xs, _mirrors(order, graph.attr("grad_mirror_fun")))
    tape.run(ys, heads)
    results = _distinct([tape.result(entry) for entry in xs], graph.attr("copy_op"))
    gradient_graph = Graph(results, facts=graph.facts, sources=tape.sources)
    if graph.facts:
        gradient_graph = infer_dtypes(infer_shapes(gradient_graph, {}), {})
    return gradient_graph.trimmed()


def entry_gradients(
    ys: Sequence[NodeEntry], xs: Sequence[NodeEntry], heads: Sequence[NodeEntry], mirrors: Mapping[Node, Node]
) -> list[NodeEntry | None]:
    """The gradients of entries, None for zero, given those of others. What rules see in the place of a
    node is said by `mirrors`."""
    tape = _Tape(Graph(ys), topo_order(ys), xs, mirrors)
    tape.run(ys, heads)
    return [tape.total(entry) for entry in xs]


def _distinct(results: Sequence[NodeEntry], copy_op: str | None) -> list[NodeEntry]:
    """The results; with an operator for it, those that come again are copies."""
    seen: dict[NodeEntry, int] = {}
    distinct = []
    for entry in results:
        count = seen.get(entry, 0)
        seen[entry] = count + 1
        if copy_op is not None and count > 0:
            entry = _node(copy_op, [entry], f"{entry.node.name}_{count}_copy")
        distinct.append(entry)
    return distinct


def _check_reachable(order: Sequence[Node], xs: Sequence[NodeEntry]) -> None:
    reached = set(order)
    for position, entry in enumerate(xs):
        if entry.node not in reached:
            raise GraphError(
                f"cannot differentiate with respect to the {position}-th variable",
                where=f"variable {entry.node.name!r}",
                why="it is unreachable from the outputs",
            )


class _Tape:
    """Gradients of entries, gathered while nodes are visited from the outputs back."""

    def __init__(
        self, graph: Graph, order: Sequence[Node], xs: Sequence[NodeEntry], mirrors: Mapping[Node, Node]
    ) -> None:
        self.graph = graph
        self.order = order
        self.aggregate: Aggregate = graph.attr("grad_aggregate_fun") or _sum
        self.zero_ops = {*ZERO_OPS, *(graph.attr("zero_ops") or ())}
        self.sources = dict(graph.sources)
        self._grads: dict[NodeEntry, list[NodeEntry]] = {}
        self._sums: dict[NodeEntry, NodeEntry] = {}
        targets = {entry.node for entry in xs}
        self.active: set[Node] = set()  # nodes whose value depends on some x
        self.wanted: set[Node] = set()  # nodes whose inputs do
        for node in order:
            if any(entry.node in self.active for entry in node.inputs):
                self.wanted.add(node)
                self.active.add(node)
            elif node in targets:
                self.active.add(node)
        self.mirrors = mirrors
        self.known = {*order, *self.mirrors.values()}
        self.reached: set[Node] = set()
        self.writes = _writes(order)

    def run(self, ys: Sequence[NodeEntry], heads: Sequence[NodeEntry]) -> None:
        """Carries the gradients of outputs back through all nodes."""
        for entry, head in zip(ys, heads):
            self.add(entry, head)
        for node in reversed(self.order):
            if node.op is not None and node in self.wanted:
                self.differentiate(node)

    def add(self, entry: NodeEntry, grad: NodeEntry) -> None:
        self.known.add(grad.node)
        self.reached.add(entry.node)
        self._grads.setdefault(self._settled(entry), []).append(grad)

    def _settled(self, entry: NodeEntry) -> NodeEntry:
        """An entry whose version counts only the writes that this graph makes."""
        writes = self.writes.get(entry.node, ())
        return entry._replace(version=bisect_right(writes, entry.version))

    def total(self, entry: NodeEntry) -> NodeEntry | None:
        """The gradient of an entry; None is zero."""
        entry = self._settled(entry)
        grads = self._grads.get(entry)
        if not grads:
            return None
        if entry not in self._sums:
            nonzero = [grad for grad in grads if grad.node.op_name not in self.zero_ops]
            summands = nonzero or grads[:1]
            self._sums[entry] = summands[0] if len(summands) == 1 else self.aggregate(summands)
            self.known.add(self._sums[entry].node)
        return self._sums[entry]

    def result(self, entry: NodeEntry) -> NodeEntry:
        grad = self.total(entry)
        if grad is not None:
            return grad
        if entry.node.op is None and entry.node in self.reached:
            raise Unsupported(
                f"variable {entry.node.name!r} is differentiated across a mutation of it",
                hint="differentiate before composing the operator that mutates it",
            )
        return _node("zeros_like", [entry], "zero_grad")

    def differentiate(self, node: Node) -> None:
        """Carries the gradients of a node's outputs to its inputs."""
        op = node.op
        assert op is not None
        entries = [NodeEntry(node, index) for index in range(node.num_outputs)]
        grads = [self.total(entry) for entry in entries]
        if all(grad is None or grad.node.op_name in self.zero_ops for grad in grads):
            return  # gradients are linear in those of the outputs
        if not Op.gradient.contains(op):
            raise Unsupported(
                f"operator {op.name} is non-differentiable",
                where=f"node {node.name!r}",
                why="it didn't register FGradient",
                hint=f"set a rule with Op.get({op.name!r}).gradient = f(ctx, *output_gradients)",
            )
        self._must_be_real(node)
        filled = [grad or _node("zeros_like", [entry], f"{node.name}_zero_grad") for grad, entry in zip(grads, entries)]
        written = op.mutates_of(node.params)
        for position, grad in enumerate(self._rule(node, op, filled)):
            entry = node.inputs[position]
            if grad is not None and entry.node in self.active:
                self._trace(grad.node, node)
                read = entry.version - (position in written)
                self.add(entry._replace(version=read), grad)

    def _must_be_real(self, node: Node) -> None:
        """Refuses complex numbers: gradients of them have conjugates, which graphs do not."""
        entries = [*node.inputs, *(NodeEntry(node, index) for index in range(node.num_outputs))]
        for entry in entries:
            hint = dtype_hint(entry.node) if entry.node.op is None else None
            dtype = self.graph.fact(entry).dtype or hint
            if dtype is not None and is_complex(dtype):
                raise Unsupported(
                    f"the gradient of {node.op_name} on complex numbers in a graph",
                    where=f"node {node.name!r}",
                    hint="differentiate tensors, or write the parts as real numbers",
                )

    def _trace(self, grad: Node, node: Node) -> None:
        """Says of nodes that a rule grad which node they are the gradient of."""
        source = self.graph.sources.get(node, (node,))
        stack = [grad]
        while stack:
            current = stack.pop()
            if current not in self.known:
                self.known.add(current)
                self.sources[current] = source
                stack += [entry.node for entry in current.inputs]

    def _rule(self, node: Node, op: Op, grads: list[NodeEntry]) -> list[NodeEntry | None]:
        seen = self.mirrors.get(node, node)
        context = GradientContext(
            [Symbol([_mirrored(entry, self.mirrors)]) for entry in node.inputs],
            [Symbol([NodeEntry(seen, index)]) for index in range(seen.num_outputs)],
            node.params,
            op.gradient,
            node.subgraphs,
            gradients,
        )
        with GradientNames(node.name) as names:
            try:
                answer = op.gradient(context, *(Symbol([grad]) for grad in grads))
            except Error as error:
                error.at(f"gradient of node {node.name!r}")
                raise
            except Exception as error:
                raise GraphError(
                    f"the gradient of operator {op.name} failed",
                    where=f"node {node.name!r}",
                    why=f"{type(error).__name__}: {error}",
                ) from error
        input_grads = [_entry(value, node) for value in answer]
        if len(input_grads) != len(node.inputs):
            raise InvalidValue(
                f"gradient function of {op.name} returned {len(input_grads)} gradients",
                where=f"node {node.name!r}",
                why=f"the operator has {len(node.inputs)} inputs",
            )
        _rename(node, op, input_grads, names.given)
        return input_grads


def _writes(order: Sequence[Node]) -> dict[Node, list[int]]:
    """Variable -> the versions that nodes make of it, ascending."""
    writes: dict[Node, list[int]] = {}
    for node in order:
        if node.op is not None and node.op.effect_of(node.params) != "pure":
            for index in node.op.mutates_of(node.params):
                insort(writes.setdefault(node.inputs[index].node, []), node.inputs[index].version)
    return writes


def _entry(value: Any, node: Node) -> NodeEntry | None:
    if value is None:
        return None
    if not isinstance(value, Symbol) or len(value.outputs) != 1:
        raise InvalidType(
            f"gradient function of {node.op_name} gave {value!r}",
            where=f"node {node.name!r}",
            why="a gradient is a symbol with one output, or None for zero",
        )
    return value.outputs[0]


def _rename(node: Node, op: Op, grads: Sequence[NodeEntry | None], given: set[str]) -> None:
    """Names results after the input they belong to, where the rule made them."""
    names = op.input_names_of(node.params)
    for position, grad in enumerate(grads):
        if grad is None or grad.node.name not in given:
            continue
        given.discard(grad.node.name)
        if len(grads) == 1:
            grad.node.name = f"{node.name}_grad"
        elif len(names) == len(grads):
            grad.node.name = f"{node.name}_{names[position]}_grad"
        else:
            grad.node.name = f"{node.name}_grad_{position}"


def _sum(grads: list[NodeEntry]) -> NodeEntry:
    return _node("elemwise_sum", grads, "grad_sum", {"num_args": str(len(grads))})


def _node(op_name: str, inputs: Sequence[NodeEntry], name: str, attrs: dict[str, str] | None = None) -> NodeEntry:
    return NodeEntry(Node(Op.get(op_name), name, attrs, inputs))


def _mirrors(order: Sequence[Node], chosen: Callable[[Node], bool] | None) -> dict[Node, Node]:
    """Node -> what gradient rules see in its place: chosen nodes are computed a second time."""
    mirrors: dict[Node, Node] = {}
    for node in order if chosen is not None else ():
        pure = node.op is not None and node.op.effect_of(node.params) == "pure"
        if pure and chosen is not None and chosen(node):
            inputs = [_mirrored(entry, mirrors) for entry in node.inputs]
            mirrors[node] = mirror = node.copy_with(inputs, node.control_deps)
            mirror.name = f"{node.name}_mirror"
    return mirrors


def _mirrored(entry: NodeEntry, mirrors: Mapping[Node, Node]) -> NodeEntry:
    return entry._replace(node=mirrors.get(entry.node, entry.node))


def gradients(
    ys: Symbol | Sequence[Symbol], xs: Symbol | Sequence[Symbol], grad_ys: Symbol | Sequence[Symbol] | None = None
) -> list[Symbol]:
    """The gradient of the sum of `ys` with respect to each of `xs`, as symbols.

    `grad_ys` weighs the outputs; by default each counts as it is, with a gradient of ones.

    >>> from weft.core.symbol import Variable
    >>> x, head = Variable("x"), Variable("head")
    >>> [grad] = gradients(Op.get("exp")(x, name="y"), x, grad_ys=head)
    >>> grad.attr("op_name"), grad.attr("name"), grad.list_input_names()
    ('elemwise_mul', 'y_grad', ['head', 'x'])
    """
    graph = get_gradient_graph(ys, xs, grad_ys)
    kind = type(ys if isinstance(ys, Symbol) else ys[0]) if graph.outputs else Symbol
    return [kind([entry]) for entry in graph.outputs]


def get_gradient_graph(
    ys: Symbol | Sequence[Symbol], xs: Symbol | Sequence[Symbol], grad_ys: Symbol | Sequence[Symbol] | None = None
) -> Graph:
    """The graph whose outputs are the gradients; see `gradients`."""
    outputs, inputs = _entries(ys, "ys"), _entries(xs, "xs")
    if grad_ys is None:
        heads = [Op.get("ones_like")(Symbol([entry])).outputs[0] for entry in outputs]
    else:
        heads = _entries(grad_ys, "grad_ys")
    attrs = {"grad_ys": outputs, "grad_xs": inputs, "grad_ys_out_grad": heads}
    return Graph(outputs, attrs).apply("Gradient")


def _entries(symbols: Symbol | Sequence[Symbol], what: str) -> list[NodeEntry]:
    if isinstance(symbols, Symbol):
        return list(symbols.outputs)
    if not isinstance(symbols, (list, tuple)):
        raise InvalidType(f"{what} are symbols, not {type(symbols).__name__}")
    items = list(symbols)
    for item in items:
        if not isinstance(item, Symbol):
            raise InvalidType(f"{what} are symbols, not {type(item).__name__}")
    return [entry for item in items for entry in item.outputs]
