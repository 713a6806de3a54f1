"""PlanMemory: which entries share storage. Comes in: shapes, dtypes, optionally devices. Goes out:
a storage number for each entry, with the bytes that all of them take together."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any

from ..base.dtype import DType
from ..base.shape import StaticShape, is_static, numel
from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.ir import Fact, Node
from ..core.passes import register_pass

UNASSIGNED = -1
NOT_IN_PLACE, UNUSED = -1, -2
MATCH_RANGE = 16  # a block serves requests from this many times smaller to as many times larger
UNKNOWN_DTYPE_BYTES = 4


@register_pass(
    "PlanMemory",
    requires=("dtype", "shape"),
    op_attrs=("FInplaceOption",),
    provides=("storage_id", "storage_inplace_index", "storage_allocated_bytes", "storage_num_not_allocated"),
    changes_graph=False,
)
def plan_memory(graph: Graph) -> Graph:
    """Storage for every operator output of static shape, reused as soon as it is dead.

    Variables stay at -1, as do unknown shapes. Attributes `device` (one a node: only entries of
    one device share) and `storage` (numbers that are fixed beforehand) are respected.
    """
    plan = _Plan(graph)
    for number, node in enumerate(graph.indexed.nodes):
        if node.op is not None:
            plan.step(number, node)
    attrs = {
        **graph.attrs,
        "storage_id": JsonAttr("list_int", plan.storage),
        "storage_inplace_index": JsonAttr("list_int", plan.in_place),
        "storage_allocated_bytes": JsonAttr("size_t", plan.pool.total_bytes),
        "storage_num_not_allocated": JsonAttr("size_t", plan.not_allocated),
    }
    return graph.replace(attrs=attrs)


class _Pool:
    """Blocks of memory; free ones are found by size, without looking at others."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.devices: list[int] = []
        self._free: dict[int, dict[int, list[int]]] = {}  # device -> size -> blocks
        self._free_sizes: dict[int, list[int]] = {}  # device -> sizes that have a block, sorted

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes)

    def take(self, size: int, device: int) -> int:
        """The smallest free block that is large enough, else the largest that can grow."""
        sizes = self._free_sizes.setdefault(device, [])
        position = bisect_left(sizes, size)
        if position < len(sizes) and sizes[position] <= size * MATCH_RANGE:
            return self._reuse(device, position)
        if position and sizes[position - 1] * MATCH_RANGE >= size:
            block = self._reuse(device, position - 1)
            self.sizes[block] = size
            return block
        self.sizes.append(size)
        self.devices.append(device)
        return len(self.sizes) - 1

    def _reuse(self, device: int, position: int) -> int:
        size = self._free_sizes[device][position]
        blocks = self._free[device][size]
        block = blocks.pop()
        if not blocks:
            del self._free_sizes[device][position]
        return block

    def give_back(self, block: int) -> None:
        size, device = self.sizes[block], self.devices[block]
        blocks = self._free.setdefault(device, {}).setdefault(size, [])
        if not blocks:
            insort(self._free_sizes[device], size)
        blocks.append(block)


class _Plan:
    """The state while nodes are visited in the order they run."""

    def __init__(self, graph: Graph) -> None:
        self.indexed = graph.indexed
        self.facts = [fact for node in self.indexed.nodes for fact in graph.node_facts(node)]
        self.devices: Sequence[int] = graph.attr("device") or [0] * self.indexed.num_nodes
        total = self.indexed.num_node_entries
        self.storage: list[int] = list(graph.attr("storage") or [UNASSIGNED] * total)
        self.in_place = [NOT_IN_PLACE] * total
        self.uses = self._count_uses()
        self.pool = _Pool()
        self.holders: dict[int, int] = {}  # block -> uses still to come of entries that lie in it
        self.not_allocated = 0

    def _count_uses(self) -> list[int]:
        uses = [0] * self.indexed.num_node_entries
        for node, entries in zip(self.indexed.nodes, self.indexed.inputs):
            ignored = node.op.ignored_of(node.params) if node.op is not None else ()
            for position, entry in enumerate(entries):
                uses[entry] += position not in ignored
        for entry in self.indexed.outputs:
            uses[entry] += 1
        return uses

    def step(self, number: int, node: Node) -> None:
        self._share_with_inputs(number, node)
        waiting = []
        for entry in self.indexed.entry_range(number):
            if self.storage[entry] == UNASSIGNED:
                size = _bytes(self.facts[entry])
                if size is None:
                    self.not_allocated += 1
                else:
                    waiting.append((-size, entry))
        for negative_size, entry in sorted(waiting):
            block = self.pool.take(-negative_size, self.devices[number])
            self.storage[entry] = block
            self.holders[block] = self.uses[entry]
        self._release(number, node)

    def _share_with_inputs(self, number: int, node: Node) -> None:
        assert node.op is not None
        pairs = node.op.inplace_of(node.params)
        if not pairs:
            return
        identities = node.op.inplace_identity
        identities = identities(node.params) if callable(identities) else identities
        views = node.op.alias_of(node.params)  # whether they are made is not decided here
        all_ignored = len(node.op.ignored_of(node.params)) == len(node.inputs)
        taken = set()
        for (source, target), identity in zip(pairs, identities or [False] * len(pairs)):
            given = self.indexed.inputs[number][source]
            made = self.indexed.entry_ptr[number] + target
            block = self.storage[given]
            open_ = self.storage[made] == UNASSIGNED and target not in views
            if source in taken or not open_ or block not in self.holders:
                continue
            dying = self.holders[block] == 1 and not all_ignored
            same = self.facts[given][:2] == self.facts[made][:2]
            if (
                (dying or (identity and same))
                and self.uses[made]
                and self.pool.devices[block] == self.devices[number]
                and _fits(self.facts[given], self.facts[made])
            ):
                taken.add(source)
                self.storage[made] = block
                self.holders[block] += self.uses[made]
                self.in_place[made] = source

    def _release(self, number: int, node: Node) -> None:
        """Gives back what this node was the last to read, and outputs nobody reads."""
        assert node.op is not None
        ignored = node.op.ignored_of(node.params)
        for position, entry in enumerate(self.indexed.inputs[number]):
            if position not in ignored:
                self._drop(self.storage[entry])
        for entry in self.indexed.entry_range(number):
            block = self.storage[entry]
            if not self.uses[entry]:
                self.in_place[entry] = UNUSED
                if block in self.holders and self.holders[block] == 0:
                    del self.holders[block]
                    self.pool.give_back(block)

    def _drop(self, block: int) -> None:
        if block in self.holders:
            self.holders[block] -= 1
            if not self.holders[block]:
                del self.holders[block]
                self.pool.give_back(block)


def _bytes(fact: Fact) -> int | None:
    shape: Any = fact.shape
    if not is_static(shape):
        return None
    return numel(shape) * _itemsize(fact.dtype)


def _itemsize(dtype: DType | None) -> int:
    return UNKNOWN_DTYPE_BYTES if dtype is None else dtype.itemsize


def _fits(given: Fact, made: Fact) -> bool:
    """Whether an element of the output takes the place of exactly one of the input."""
    a: StaticShape | Any = given.shape
    b: StaticShape | Any = made.shape
    if not is_static(a) or not is_static(b) or numel(a) != numel(b):
        return False
    return _itemsize(given.dtype) == _itemsize(made.dtype)
