"""What open sizes are in one call of a program: numbers for the names in a model's shapes and attributes, and for what
the compiler made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.extents import evaluate
from ..base.plan import At, BufferRef
from ..core.ir import Fact, Node
from ..core.schema import Params
from ..core.symbol import Symbol
from ..core.symbolic import bound_params, bound_symbol
from ..runtime.program import Array, Program
from ..te.extents import Extent


class CallSizes(NamedTuple):
    """What each name is, and each row of the program's table of sizes; nothing of either where nothing is open."""

    names: Mapping[str, int]
    rows: Sequence[int]

    def number(self, size: Any) -> int:
        """A dimension, an offset or a stride."""
        if isinstance(size, (At, Extent)):
            return self.rows[size.row]
        return evaluate(size, self.names) if isinstance(size, str) else int(size)

    def shape(self, fact: Fact) -> tuple[int, ...]:
        assert fact.shape is not None
        return tuple(self.number(dim) for dim in fact.shape if dim is not None)

    def place(self, ref: BufferRef) -> BufferRef:
        return BufferRef(ref.slot, self.number(ref.offset))

    def params(self, node: Node) -> Params:
        """The attributes of a node, as its operator's reference takes them."""
        if node.op is None or not self.names:
            return node.params
        return bound_params(node.op.parse(node.attrs), self.number)

    def subgraphs(self, node: Node) -> Sequence[Symbol]:
        return [bound_symbol(subgraph, self.names) for subgraph in node.subgraphs] if self.names else node.subgraphs


CLOSED = CallSizes({}, ())


def sizes_of_call(program: Program, arrays: Mapping[str, Array]) -> CallSizes:
    """What the sizes that a program leaves open are for these inputs."""
    if program.plan.sizes is None:
        return CLOSED
    shapes = [arrays[spec.name].shape for spec in program.inputs]
    rows = program.plan.sizes.numbers(program.sizes_of(shapes))
    assert rows is not None  # as it is about to run on them
    pairs = [pair for spec, shape in zip(program.inputs, shapes) for pair in zip(spec.shape, shape)]
    return CallSizes({dim.name: size for dim, size in pairs if isinstance(dim, At) and dim.name}, rows)
