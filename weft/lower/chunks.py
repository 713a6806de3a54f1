"""Long reductions to few elements, as two: first of chunks, which threads can share, then of what came of those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from ..te.expr import Const, Load, Reduce, ReduceAxis, Var, as_expr, maximum, minimum
from ..te.extents import stays_open
from ..te.tensor import Tensor, compute, reduce_axis
from ..te.visit import free_of, loads, masked_load, postorder, rewrite, substitute
from .stages import topological

SHORTEST = 128  # turns of a loop that is cut
LONG = 1 << 18  # terms of all elements


class Chunks(NamedTuple):
    """When a backend wants chunks, and how many: of at most so many elements, or so many that are each reduced from
    neighbours in memory. `number(elements, turns, in_line)` does not ask how many threads there are: bits repeat."""

    few: int = 256
    few_rows: int = 16
    number: Callable[[int, int, bool], int] = lambda elements, turns, in_line: 32


PLAIN_CHUNKS = Chunks()


def in_chunks(inputs: Sequence[Tensor], outputs: Sequence[Tensor], chunks: Chunks = PLAIN_CHUNKS) -> list[Tensor]:
    """The outputs, computed by way of chunks where that is worth it."""
    made = {tensor: tensor for tensor in inputs}
    for tensor in topological(outputs, set(inputs)):
        own = _rebuilt(tensor, made)
        made[tensor] = _by_chunks(own, chunks) if _is_long(own, chunks) else own
    return [made[tensor] for tensor in outputs]


def _rebuilt(tensor: Tensor, made: Mapping[Tensor, Tensor]) -> Tensor:
    """A tensor over what its inputs have become."""
    if all(made.get(source, source) is source for source in tensor.inputs()):
        return tensor

    def read(node: Any) -> Any:
        if not isinstance(node, Load) or not isinstance(node.source, Tensor):
            return node
        return masked_load(made[node.source], node.indices, node.mask)

    assert tensor.body is not None
    return replace(tensor, body=rewrite(tensor.body, read))


def _is_long(tensor: Tensor, chunks: Chunks) -> bool:
    """Whether each of a few elements is reduced from many that no other one reads."""
    if not isinstance(tensor.body, Reduce):
        return False
    sizes: list[Any] = [*tensor.shape, *[axis.extent for axis in tensor.body.axes]]
    if any(map(stays_open, sizes)) or not reads_once(tensor.body):
        return False
    few = chunks.few_rows if _takes_neighbours(tensor.body) else chunks.few
    return bool(prod(sizes) >= LONG and prod(tensor.shape) <= few and tensor.body.axes[0].extent >= SHORTEST)


def _takes_neighbours(node: Reduce) -> bool:
    """Whether elements that are reduced one after the other are side by side: such rows need no company to be fast."""
    inner = node.axes[-1].var
    return all(load.indices[-1] is inner for load in loads(node.body) if not free_of(load, [inner]))


def reads_once(node: Reduce) -> bool:
    """Whether what is reduced to one element is read for no other."""
    if any(axis.turns is not None for axis in node.axes):  # a chunk
        return True
    indices = [index for load in loads(node.body) for index in load.indices]
    return not is_product(node) and all(isinstance(index, (Var, Const)) for index in indices)


def is_product(node: Reduce) -> bool:
    """Whether something that is read for one sum is read for others, too, which is worth tiles in registers: loads that
    change from term to term follow other axes of the results."""
    own = {axis.var for axis in node.axes}
    used = [{part for part in postorder(load.indices) if isinstance(part, Var)} for load in loads(node.body)]
    return len({frozenset(axes - own) for axes in used if axes & own}) > 1


def _by_chunks(tensor: Tensor, chunks: Chunks) -> Tensor:
    whole = tensor.body
    assert isinstance(whole, Reduce)
    cut = whole.axes[0]
    count = chunks.number(prod(tensor.shape), cut.extent, _takes_neighbours(whole))
    length = (cut.extent + (count - 1)) // count
    even = length * count == cut.extent

    def part(chunk: Any, *at: Any) -> Reduce:
        first, turn = chunk * length, Var(cut.var.name)
        left = maximum(minimum(as_expr(length), as_expr(cut.extent) - first), as_expr(0))
        turns = ReduceAxis(turn, length) if even else ReduceAxis(turn, length, left)
        axes = [turns if axis is cut else axis for axis in whole.axes]
        body = substitute(whole.body, {cut.var: first + turn, **dict(zip(tensor.axes, at))})
        return Reduce(whole.combiner, body, tuple(axes))

    parts = compute((count, *tensor.shape), part, f"{tensor.name}_chunks")
    chunk = reduce_axis(count, "chunk")
    return compute(tensor.shape, lambda *at: Reduce(whole.combiner, parts[(chunk.var, *at)], (chunk,)), tensor.name)
