"""Where a decoder's graph reads its caches: parts that are attention of new tokens over those before and up to
themselves, found by what they compute.

A part begins at present = concat(past, new) of keys and of values, goes on as long as extents grow with the tokens, and
ends at what has new tokens only. Its operators are moves of elements, products, sums, a choice by a condition and a
softmax, whole or in its steps; what they make of them (the factor of scores, heads that share keys, masks) is seen from
what they give for random numbers:

    out[i] = softmax(scale q[i] K') V     of all tokens before and of new tokens 0 to i, or of the last `window` of them
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from ..base.shape import normalize_axis
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..ops.nn.cached_attention import CachedAttentionAttrs
from .graph_parts import BEFORE, MOST_BYTES, Array, Copied, Parts, Sizes, row_axis

OPERATORS = frozenset(
    """concatenate reshape flatten squeeze expand_dims transpose broadcast_to broadcast_like repeat tile take gather
    strided_slice split batch_matmul matmul scaled_dot_product_attention softmax cast copy
    __mul_scalar__ __div_scalar__ __add_scalar__ __sub_scalar__ broadcast_mul broadcast_div broadcast_add broadcast_sub
    elemwise_add elemwise_mul elemwise_div where broadcast_where zeros_like full_like
    max sum exp clip isnan broadcast_equal broadcast_not_equal""".split()
)
SMALL = (Sizes(0, 1), Sizes(0, 5), Sizes(1, 1), Sizes(3, 4), Sizes(16, 1), Sizes(37, 32))
APART = (0.1, 3.0)  # scores: all tokens count alike, and a few count most
EXACT = 1e-5  # within which a factor is one that is usual
NEAR = {2: 3e-2, 4: 2e-4, 8: 2e-4}  # of the largest result, by bytes of a number
MOST_HASHED = 1 << 16


class Read(NamedTuple):
    """One part: what it reads, and what it gives."""

    query: NodeEntry
    new: tuple[NodeEntry, NodeEntry]  # keys and values
    out: NodeEntry
    nodes: frozenset[Node]
    scale: float
    window: int | None  # tokens that each sees, if not all


class _Part(NamedTuple):
    """The same before anybody knows which cache is which."""

    query: NodeEntry
    ends: dict[int, tuple[NodeEntry, NodeEntry]]  # by the number of a cache: that, and what is put behind it
    out: NodeEntry
    nodes: frozenset[Node]


class _Join(NamedTuple):
    """Which cache it is, and what is put behind it."""

    number: int
    ends: tuple[NodeEntry, NodeEntry]


def cache_reads(parts: Parts, context: int) -> list[Read]:
    """All parts of a graph that read caches, which is right for that many tokens."""
    known: dict[int, _Identified] = {}
    found, numbers = [], dict[object, int]()
    for part in _parts(parts):
        key = _structure(parts, part, numbers)
        if key not in known:
            known[key] = _Probe(parts, part).identified(context)
        is_this = known[key]
        first, second = sorted(part.ends, reverse=is_this.swapped)
        new = part.ends[first][1], part.ends[second][1]
        found.append(Read(part.query, new, part.out, part.nodes, is_this.scale, is_this.window))
    return found


# Finding them


def _parts(parts: Parts) -> list[_Part]:
    joins = _joins(parts)
    grown = {node for node in parts.order if node in parts.tokens and node.op is not None and _grows(parts, node)}
    group: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while group.setdefault(node, node) is not node:
            node = group[node]
        return node

    for node in parts.order:
        for below in (entry.node for entry in node.inputs if entry.node in grown):
            group[root(below)] = root(node)
    members: dict[Node, list[Node]] = {}
    for node in (node for node in parts.order if node in grown or node in group):
        members.setdefault(root(node), []).append(node)
    found = [_part(parts, *_closed(parts, nodes, grown), joins) for nodes in members.values()]
    if sorted(number for part in found for number in part.ends) != list(range(len(parts.inputs.caches))):
        raise Copied("a cache is read by more than one attention, or by none")
    return sorted(found, key=lambda part: parts.places[part.out.node])


def _closed(parts: Parts, nodes: list[Node], grown: AbstractSet[Node]) -> tuple[frozenset[Node], Node]:
    """Nodes that grow, in their order, and those that read them, with all between that goes back to them, as the
    largest score of a query does; and the last one, which alone does not."""
    inside = [node for node in nodes if node in grown]
    after = {node for node in nodes if node not in grown}
    for node in parts.order[parts.places[inside[0]] : parts.places[inside[-1]]]:
        if node not in grown and any(entry.node in after for entry in node.inputs):
            after.add(node)
    back = set(inside)
    for node in sorted(after, key=parts.places.__getitem__, reverse=True):
        readers = (
            other for index in range(node.num_outputs) for other in parts.readers.get(NodeEntry(node, index), ())
        )
        if any(other in back for other in readers):
            back.add(node)
    ends = [node for node in nodes if node not in back]
    if len(ends) != 1:
        raise Copied("what is read from a cache is used in more than one way")
    return frozenset([*back, *ends]), ends[0]


def _grows(parts: Parts, node: Node) -> bool:
    return any(BEFORE in parts.names(NodeEntry(node, index)) for index in range(node.num_outputs))


def _joins(parts: Parts) -> dict[Node, _Join]:
    """Nodes that put new tokens behind a cache."""
    numbers = {name: number for number, name in enumerate(parts.inputs.caches)}
    caches: dict[NodeEntry, NodeEntry] = {}  # what is a cache as it came in
    joins: dict[Node, _Join] = {}
    for node in parts.order:
        if node.op is None and node.name in numbers:
            caches[NodeEntry(node)] = NodeEntry(node)
        for entry in (entry for entry in node.inputs if entry in caches):
            cache, joined = caches[entry], node.op_name == "concatenate"
            if joined and len(node.inputs) == 1:
                caches[NodeEntry(node)] = cache
                continue
            along = joined and normalize_axis(node.params.axis, len(parts.shape(entry)))
            if not joined or along != 2 or len(node.inputs) != 2 or node.inputs[1] in caches:
                raise Copied(f"cache {cache.node.name!r} is read by {node.op_name}, not put before new tokens")
            joins[node] = _Join(numbers[cache.node.name], (cache, node.inputs[1]))
    for number, entry in enumerate(parts.graph.outputs[1:]):
        if entry.node not in joins or joins[entry.node].number != number:
            raise Copied(f"output {number + 1} is not cache {parts.inputs.caches[number]!r} with new tokens behind it")
    return joins


def _part(parts: Parts, nodes: frozenset[Node], last: Node, joins: Mapping[Node, _Join]) -> _Part:
    where = f"attention that ends at {last.name!r}"
    odd = sorted({node.op_name for node in nodes} - OPERATORS)
    if odd:
        raise Copied(f"{where} has {', '.join(odd)}")
    ends: dict[int, tuple[NodeEntry, NodeEntry]] = {}
    for number, pair in (joins[node] for node in nodes & joins.keys()):
        if ends.setdefault(number, pair) != pair:
            raise Copied(f"{where} puts different tokens behind a cache")
    told = {entry for pair in ends.values() for entry in pair}
    read = {entry for node in nodes for entry in node.inputs if entry.node in parts.tokens and entry.node not in nodes}
    others = read - told
    if len(ends) != 2 or len(others) != 1 or last.num_outputs != 1:
        raise Copied(f"{where} reads {len(ends)} caches and {len(others)} other values")
    return _Part(others.pop(), dict(sorted(ends.items())), NodeEntry(last), nodes)


def _structure(parts: Parts, part: _Part, numbers: dict[object, int]) -> int:
    """A number that is the same for parts that compute the same; `numbers` are those of what was seen before."""
    leaves = {part.query: "query"}
    for ends, names in zip(part.ends.values(), (("past a", "new a"), ("past b", "new b"))):
        leaves |= dict(zip(ends, names))

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    found = {entry: number((name, parts.shape(entry), parts.graph.fact(entry).dtype)) for entry, name in leaves.items()}
    for node in parts.needed([part.out], leaves):
        attrs = tuple(sorted((name, text) for name, text in node.attrs.items() if not name.startswith("__")))
        key: object = (node.op_name, attrs, tuple(found[entry] for entry in node.inputs))
        if node.op is None:
            key = _variable_key(parts, node)
        found |= {NodeEntry(node, index): number((key, index)) for index in range(node.num_outputs)}
    return found[part.out]


def _variable_key(parts: Parts, node: Node) -> object:
    value = parts.params.get(node.name)
    if value is None or value.nbytes > MOST_HASHED:
        return node.name
    return value.shape, str(value.dtype), hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()


# What one computes


class _Identified(NamedTuple):
    """An attention: the factor of its scores, whether values come before keys, and what each token sees."""

    scale: float
    swapped: bool
    window: int | None = None


class _Probe:
    """Asks a part for its results on random numbers."""

    def __init__(self, parts: Parts, part: _Part) -> None:
        self._parts, self._part = parts, part
        self._where = f"attention that ends at {part.out.node.name!r}"
        self._random = np.random.default_rng(3)
        cache, _ = next(iter(part.ends.values()))
        shapes = [parts.shape(entry) for entry in (part.query, part.out, *[new for _, new in part.ends.values()])]
        if any(row_axis(shape) is None for shape in shapes):
            raise Copied(f"{self._where} has no rows of new tokens")
        self.shared, self.width = (int(parts.shape(cache)[axis]) for axis in (1, 3))
        columns = [math.prod(extent for extent in shape if isinstance(extent, int)) for shape in shapes]
        self.columns = columns[0]
        if columns[1] != columns[0] or columns[0] % columns[2] or columns[2] != columns[3]:
            raise Copied(f"{self._where} has values of another width than its keys, or heads that cannot share them")
        if columns[2] != self.shared * self.width:
            raise Copied(f"{self._where} has new keys of other heads than its cache")

    def identified(self, context: int) -> _Identified:
        """What it is; an error where it is no such attention."""
        for swapped in (False, True):
            scale = self._scale(swapped)
            if scale is None:
                continue
            whole = _Identified(scale, swapped)
            if self._is(whole, context):
                return whole
            window = self._window(whole, context)
            if window is not None and self._is(whole._replace(window=window), context):
                return whole._replace(window=window)
        raise Copied(f"{self._where} is not softmax(scale q k') v over tokens before and up to each new one")

    def _is(self, what: _Identified, context: int) -> bool:
        return all(self._agrees(sizes, what) for sizes in _samples(context, what.window))

    def _window(self, whole: _Identified, context: int) -> int | None:
        """Where scores are 0, all tokens that are seen count alike: the last is as far behind the mean of their
        numbers as the first is before it."""
        sizes = Sizes(context - 1, 1)
        query, past, new = self._numbers(sizes, 0.0)
        past[1][:], new[1][:] = np.arange(context - 1)[:, None] / context, (context - 1) / context
        mean = float(self._found(sizes, query, past, new, whole.swapped).astype(np.float64).mean()) * context
        window = round(2 * (context - 1 - mean)) + 1 if np.isfinite(mean) else 0
        return window if 1 <= window < context else None

    def _scale(self, swapped: bool) -> float | None:
        """Of two tokens, whose values are 0 and 1, the second has the share 1 / (1 + exp(-scale q (k2 - k1)))."""
        query, past, new = self._numbers(Sizes(1, 1), 0.5)
        past[1][:], new[1][:] = 0, 1
        share = self._found(Sizes(1, 1), query, past, new, swapped).astype(np.float64)
        apart = (new[0] - past[0]).reshape(self.shared, 1, self.width)
        dots = (query.reshape(self.shared, -1, self.width) * apart).sum(-1).ravel()
        share = share.reshape(-1, self.width).mean(-1)
        if not ((share > 0) & (share < 1)).all():
            return None
        logits = np.log(share / (1 - share))
        scale = float(logits @ dots / (dots @ dots))
        usual = [1.0, self.width**-0.5, self.width**-0.25, 1 / self.width]
        near = min(usual, key=lambda known: abs(scale / known - 1))
        exact = max(EXACT, 10 * NEAR[self._itemsize] ** 2)
        return near if abs(scale / near - 1) < exact else scale

    @property
    def _itemsize(self) -> int:
        dtype = self._parts.graph.fact(self._part.out).dtype
        return 4 if dtype is None else dtype.itemsize

    def _agrees(self, sizes: Sizes, what: _Identified) -> bool:
        for apart in APART:
            query, past, new = self._numbers(sizes, (apart / (abs(what.scale) * self.width**0.5)) ** 0.5)
            found = self._found(sizes, query, past, new, what.swapped)
            wanted = _attention(query, past, new, (self.shared, self.width), what)
            if not np.abs(found - wanted).max() <= NEAR[self._itemsize] * np.abs(wanted).max():
                return False
        return True

    def _numbers(self, sizes: Sizes, spread: float) -> tuple[Array, list[Array], list[Array]]:
        """Queries, and keys and values of the tokens before and of new ones; rows of columns."""
        each = self.shared * self.width
        if 8 * each * sum(sizes) > MOST_BYTES:
            raise Copied(f"{self._where} cannot be looked at for {sum(sizes)} tokens, which would take too much memory")
        shapes = [(sizes.rows, self.columns), *[(count, each) for count in sizes for _ in range(2)]]
        query, *others = (self._random.standard_normal(shape) for shape in shapes)
        others[0], others[2] = others[0] * spread, others[2] * spread
        return query * spread, others[:2], others[2:]

    def _found(self, sizes: Sizes, query: Array, past: Sequence[Array], new: Sequence[Array], swapped: bool) -> Array:
        parts, part = self._parts, self._part
        given = {part.query: self._placed(part.query, query)}
        pairs = list(zip(past, new))
        for (cache, entry), (old, behind) in zip(part.ends.values(), pairs[::-1] if swapped else pairs):
            dtype = parts.graph.fact(cache).dtype
            given[cache] = old.reshape(1, sizes.before, self.shared, self.width).swapaxes(1, 2).astype(dtype)
            given[entry] = self._placed(entry, behind)
        (made,) = parts.values([part.out], sizes, given)
        axis = row_axis(parts.shape(part.out))
        assert axis is not None
        return np.moveaxis(made, axis, 0).reshape(sizes.rows, -1)

    def _placed(self, entry: NodeEntry, rows: Array) -> Array:
        """Rows in the shape of an entry."""
        shape = self._parts.shape(entry)
        axis = row_axis(shape)
        assert axis is not None
        rest = [int(extent) for number, extent in enumerate(shape) if number != axis]
        dtype = self._parts.graph.fact(entry).dtype
        return np.ascontiguousarray(np.moveaxis(rows.reshape(len(rows), *rest), 0, axis).astype(dtype))


def _samples(context: int, window: int | None) -> list[Sizes]:
    """A few tokens, as many as there is room for, and as many as just fit into a window."""
    ends = [context] if window is None else [context, window, window + 1, window + 3]
    large = [Sizes(max(end - rows, 0), rows) for end in ends for rows in (1, 4)]
    return list(dict.fromkeys(sizes for sizes in (*SMALL, *large) if sum(sizes) <= context))


def _attention(
    query: Array, past: Sequence[Array], new: Sequence[Array], heads: tuple[int, int], what: _Identified
) -> Array:
    """By the reference of the operator, over a cache of one layer that is as long as it is read."""
    shared, width = heads
    count = len(past[0])
    blocks = -(-max(count, 1) // 16)
    room = np.zeros((2, blocks * 16, shared, width))
    room[:, :count] = np.reshape(past, (2, count, shared, width))
    keys, values = room.reshape(2, blocks, 16, 1, shared, width)
    cache = keys.transpose(0, 2, 3, 4, 1), values.transpose(0, 2, 3, 1, 4)
    attrs = CachedAttentionAttrs(scale=what.scale, window=what.window)
    numbers = np.array([count]), np.array([0])
    made: Array = Op.reference[Op.get("cached_attention")](attrs, query, *new, *cache, *numbers)
    return made
