"""FuseAttention: a product of queries and keys, a softmax and a product with values become one
operator, which reads all three through the transposes and reshapes before them.

    softmax(scale Q K' + mask) V         scale, mask and the removal of NaN may be there or not
    softmax(where(C, scale Q K', f)) V   a condition, and what stands in place of scores where it does not hold
    scaled_dot_product_attention         whatever its mask is
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from ..base.dtype import DTYPES, FLOAT32, FLOAT64
from ..base.extents import Extent
from ..base.shape import Shape, is_known, normalize_axis
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.passes import register_pass
from ..core.walk import Walker, rewrite
from ._chains import Chains
from ._moves import Moves
from ._views import FACTORS, Number, Numbers, View, view_of, whole

FLOATS = {FLOAT32, FLOAT64, DTYPES["float16"], DTYPES["bfloat16"]}
MIN_QUERIES, MIN_KEYS = 8, 4  # fewer leave most lanes of a vector empty
MAX_COLUMNS = 2048  # of key and value, where queries or keys have names: a block keeps as many for each query


class _Chain(NamedTuple):
    """What a product of probabilities and values computes, and the nodes it takes to do so."""

    query: NodeEntry
    key: NodeEntry
    value: NodeEntry
    transposed: bool  # whether the key's last two axes are swapped
    factor: float
    mask: NodeEntry | None
    unseen: str
    inside: frozenset[Node]
    filled: _Filled | None = None  # the mask is a condition
    is_causal: bool = False


class _Filled(NamedTuple):
    """A number that stands in place of scores, where a condition holds or where it does not."""

    value: float
    where: bool


@register_pass("FuseAttention", requires=("shape", "dtype"))
def fuse_attention(graph: Graph) -> Graph:
    """Puts _strided_attention in place of the chains that compute attention on floats."""
    finder, moves = _Finder(graph), Moves()

    def fuse(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        made = finder.attention(walker, node, moves)
        return moves.keep(walker, node, inputs) if made is None else moves.put(node, [made])

    return rewrite(graph, fuse)


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.chains = graph, Chains(graph)

    def attention(self, walker: Walker, node: Node, moves: Moves) -> NodeEntry | None:
        """The entry that stands for a node which ends a chain; None for any other."""
        chain = self._chain(node) or self._operator(node)
        seen = None if chain is None else self._views(chain)
        if chain is None or seen is None:
            return None
        read = [view.source for view in seen] + ([] if chain.mask is None else [chain.mask])
        if not self.chains.is_closed(chain.inside, node, read):
            return None
        query, key, value = seen
        batch, (queries, width) = query.shape[:-2], query.shape[-2:]
        attrs = {
            "batch": _written(*batch),
            "queries": Extent.of(queries),
            "keys": Extent.of(key.shape[-2]),
            "width": width,
            "values": value.shape[-1],
            "query": _written(query.start, *query.steps),
            "key": _written(key.start, *key.steps),
            "value": _written(value.start, *value.steps),
            "out_axes": (order := self._order(node, len(batch) + 2)),
            "unseen": chain.unseen,
            "scale": chain.factor * query.factor * key.factor,
            "masked": chain.mask is not None,
            "replaces": chain.filled is not None,
            "is_causal": chain.is_causal,
        }
        inputs = [moves.entry(entry) for entry in read]
        if chain.mask is not None:
            if chain.filled is not None:
                inputs[3] = _filled_mask(walker, inputs[3], chain.filled)
            inputs[3] = _turned(walker, inputs[3])
        made = walker.make("_strided_attention", inputs, attrs, node.name)
        back = tuple(order.index(axis) for axis in range(len(order)))
        in_order = back == tuple(range(len(order)))
        return made if in_order else walker.make("transpose", [made], {"axes": back})

    def _order(self, node: Node, rank: int) -> tuple[int, ...]:
        """The order of axes that the only reader wants, so that its transpose cancels out."""
        indexed = self.graph.indexed
        entry = indexed.entry_range(indexed.node_id[node])[0]
        readers = [indexed.nodes[number] for number in indexed.consumers[entry]]
        if len(readers) != 1 or readers[0].op_name != "transpose":
            return tuple(range(rank))
        axes = readers[0].params.axes or range(rank)[::-1]
        return tuple(normalize_axis(axis, rank) for axis in axes)

    # What the nodes compute

    def _chain(self, node: Node) -> _Chain | None:
        if node.op_name != "batch_matmul" or node.params.transpose_a or node.params.transpose_b:
            return None
        softmax, unseen, inside = self._softmax(node.inputs[0])
        if softmax is None or softmax.op_name != "softmax":
            return None
        shape = self.graph.fact(NodeEntry(softmax)).shape
        if shape is None or normalize_axis(softmax.params.axis, len(shape)) != len(shape) - 1:
            return None
        return self._scores(softmax.inputs[0], node.inputs[1], unseen, [*inside, softmax])

    def _operator(self, node: Node) -> _Chain | None:
        """The chain that scaled_dot_product_attention stands for."""
        if node.op_name != "scaled_dot_product_attention":
            return None
        params, (query, key, value, *mask) = node.params, node.inputs
        shape = self.graph.fact(query).shape
        if not shape or not isinstance(width := shape[-1], int):
            return None
        factor = params.scale if params.scale is not None else max(width, 1) ** -0.5
        given = mask[0] if mask else None
        filled = _Filled(-inf, False) if params.mask == "boolean" else None
        return _Chain(query, key, value, False, factor, given, "zero", frozenset(), filled, params.is_causal)

    def _softmax(self, entry: NodeEntry) -> tuple[Node | None, str, list[Node]]:
        """The softmax behind the probabilities, if it is one; NaN may be replaced by zeros."""
        node = entry.node
        if node.op_name != "where":
            return node, "nan", []
        condition, other, p = node.inputs
        test, inside = condition.node, [node]
        if test.op_name == "cast":
            inside.append(test)
            test = test.inputs[0].node
        is_nan = (test.op_name, test.inputs) in (("broadcast_not_equal", [p, p]), ("isnan", [p]))
        zero = other.node.op_name == "zeros" or (other.node.op_name == "full" and other.node.params.fill_value == 0)
        return (p.node, "clean", [*inside, test]) if is_nan and zero else (None, "", [])

    def _scores(self, entry: NodeEntry, value: NodeEntry, unseen: str, inside: list[Node]) -> _Chain | None:
        """The chain whose softmax reads an entry: a scaled product, a mask added to it."""
        found = self._product(entry)
        mask = None
        if found is None and entry.node.op_name in ("broadcast_add", "elemwise_add"):
            for scores, other in (entry.node.inputs, entry.node.inputs[::-1]):
                if self._same_shape(scores, entry) and (found := self._product(scores)):
                    inside, mask = [*inside, entry.node], other
                    break
        filled = None
        if found is None and (condition := self._condition(entry)) is not None:
            scores, mask, filled = condition
            found = self._product(scores)
            inside = [*inside, entry.node]
        if found is None:
            return None
        product, factor, between = found
        query, key = product.inputs
        transposed = not product.params.transpose_b
        nodes = frozenset([*inside, *between, product])
        return _Chain(query, key, value, transposed, factor, mask, unseen, nodes, filled)

    def _condition(self, entry: NodeEntry) -> tuple[NodeEntry, NodeEntry, _Filled] | None:
        """Scores, some of which a number stands in place of: those, the condition, and the number."""
        if entry.node.op_name not in ("where", "broadcast_where"):
            return None
        condition, *values = entry.node.inputs
        for where, (scores, fill) in ((False, values), (True, values[::-1])):
            full = fill.node.op_name == "full"
            if full and self._same_shape(scores, entry) and abs(number := fill.node.params.fill_value) > 0:
                if condition.node.op_name == "broadcast_to":
                    condition = condition.node.inputs[0]
                return scores, condition, _Filled(number, where)
        return None

    def _product(self, entry: NodeEntry) -> tuple[Node, float, list[Node]] | None:
        factor, between = 1.0, []
        while entry.node.op_name in FACTORS:
            factor *= entry.node.params.scalar ** FACTORS[entry.node.op_name]
            between.append(entry.node)
            entry = entry.node.inputs[0]
        if entry.node.op_name != "batch_matmul" or entry.node.params.transpose_a:
            return None
        return entry.node, factor, between

    def _same_shape(self, a: NodeEntry, b: NodeEntry) -> bool:
        return self.graph.fact(a).shape == self.graph.fact(b).shape

    # Whether it may, and should, be one operator

    def _views(self, chain: _Chain) -> tuple[View, View, View] | None:
        """Query, key and value as views, in the shapes that products have; None where the template
        does not serve them."""
        query, key = view_of(self.graph, chain.query), view_of(self.graph, chain.key)
        value = view_of(self.graph, chain.value)
        if value is not None and (value.factor != 1 or value.steps[-1] != 1):
            value = whole(self.graph, chain.value)
        if query is None or key is None or value is None:
            return None
        if chain.transposed:
            key = key._replace(shape=_swapped(key.shape), steps=_swapped(key.steps))
        entries = [view.source for view in (query, key, value)]
        entries += [] if chain.mask is None else [chain.mask]
        facts = [self.graph.fact(entry) for entry in entries]
        numbers = facts if chain.filled is None else facts[:3]
        dtypes = {fact.dtype for fact in numbers}
        alike = len(dtypes) == 1 and dtypes <= (FLOATS if chain.filled is None else {FLOAT32})
        if not alike or not all(is_known(fact.shape) for fact in facts):
            return None
        (*batch, queries, width), keys, values = query.shape, key.shape[-2], value.shape[-1]
        same = query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        known = chain.mask is None or _covers(facts[3].shape, (*batch, queries, keys))
        suits = _is_at_least(queries, MIN_QUERIES) and _is_at_least(keys, MIN_KEYS)
        most = MAX_COLUMNS if isinstance(queries, str) or isinstance(keys, str) else float("inf")
        columns = isinstance(width, int) and isinstance(values, int) and width + values <= most
        return (query, key, value) if same and known and suits and columns else None


def _filled_mask(walker: Walker, condition: NodeEntry, filled: _Filled) -> NodeEntry:
    """A mask with a number where scores are to be replaced, and 0 elsewhere."""
    values = [walker.make("full", [], {"shape": (1,), "fill_value": value}) for value in (0.0, filled.value)]
    return walker.make("broadcast_where", [condition, *(values[::-1] if filled.where else values)])


def _covers(mask: Shape, scores: Numbers) -> bool:
    """Whether it is told along which axes the mask is the same everywhere."""
    assert mask is not None
    return len(mask) <= len(scores) and all(
        extent == 1 or extent == whole for extent, whole in zip(mask[::-1], scores[::-1])
    )


def _is_at_least(extent: Number, least: int) -> bool:
    return isinstance(extent, str) or extent >= least


def _written(*numbers: Number) -> tuple[Extent, ...]:
    """Numbers as attributes hold them."""
    return tuple(map(Extent.of, numbers))


def _swapped(items: Numbers) -> Numbers:
    return (*items[:-2], items[-1], items[-2])


def _turned(walker: Walker, mask: NodeEntry) -> NodeEntry:
    """The mask with a row for each key."""
    shape = walker.fact(mask).shape
    assert shape is not None
    if len(shape) < 2:  # the same for every query: a column
        return walker.make("expand_dims", [mask], {"axis": 1}) if shape else mask
    axes = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    return walker.make("transpose", [mask], {"axes": axes})
