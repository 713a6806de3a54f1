"""Which values are written straight into larger ones: parts of concatenations, images inside their
halos. Groups come in; for each such value, where it stands goes out."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from math import prod
from typing import Any, NamedTuple

from ..core.fused import FusedGroup
from ..core.ir import Node, NodeEntry
from ..core.op import Op

Shape = tuple[int, ...]

_places = Op.get_attr("FPlaces")


class Part(NamedTuple):
    """A value in the memory of another one, from element `offset` on."""

    root: NodeEntry
    offset: int
    strides: Shape


def dense_strides(shape: Shape) -> Shape:
    """Row-major strides, in elements.

    >>> dense_strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Shape, strides: Shape) -> bool:
    """Whether elements follow each other without gaps; an axis of one element has no stride."""
    pairs = zip(shape, strides, dense_strides(shape))
    return all(extent == 1 or stride == dense for extent, stride, dense in pairs)


class Placing:
    """Decides from the last group to the first, so that where a whole stands is known before its
    parts. A part that needs strides must be made and read by kernels that take them; `kept` are
    values that have a place already, `shape` tells the shape of an entry, `takes_strides` which kernels those are,
    `is_aligned` whether an entry may begin so many elements inside another."""

    def __init__(
        self,
        groups: Sequence[FusedGroup],
        is_ordinary: Callable[[FusedGroup], bool],
        kept: Container[NodeEntry],
        shape: Callable[[NodeEntry], Shape],
        takes_strides: Callable[[FusedGroup], bool],
        is_aligned: Callable[[NodeEntry, Any], bool] = lambda entry, offset: True,
    ) -> None:
        self.shape, self._kept, self._is_aligned = shape, kept, is_aligned
        self.parts: dict[NodeEntry, Part] = {}
        self._makers: dict[NodeEntry, FusedGroup] = {}
        self._unstrided: set[NodeEntry] = set()  # made or read by something that takes no strides
        for group in groups:
            ordinary = is_ordinary(group)
            if ordinary:
                self._makers.update(dict.fromkeys(group.outputs, group))
            if not ordinary or not takes_strides(group):
                self._unstrided.update(group.inputs, group.outputs)
        for group in reversed(groups):
            if is_ordinary(group) and places_only(group):
                self._place(group.nodes[0])

    def in_whole(self, node: Node) -> list[Part]:
        """Where the inputs of a node that only places them have to be."""
        result = NodeEntry(node)
        whole = self.parts.get(result) or Part(result, 0, dense_strides(self.shape(result)))
        assert node.op is not None
        starts = _places[node.op](node.params, [self.shape(entry) for entry in node.inputs])
        return [_inside(whole, start) for start in starts]

    def strides(self, entry: NodeEntry) -> Shape | None:
        """How far apart elements are; None where they are dense."""
        part = self.parts.get(entry)
        dense = part is None or is_dense(self.shape(entry), part.strides)
        return None if dense else part.strides  # type: ignore[union-attr]

    def _place(self, node: Node) -> None:
        for entry, part in zip(node.inputs, self.in_whole(node)):
            if self._can_be(entry, part):
                self.parts[entry] = part

    def _can_be(self, entry: NodeEntry, part: Part) -> bool:
        if entry not in self._makers or entry in self._kept or entry in self.parts:
            return False
        if not self._is_aligned(entry, part.offset):
            return False
        return entry not in self._unstrided or is_dense(self.shape(entry), part.strides)


def places_only(group: FusedGroup) -> bool:
    """Whether a group does nothing but put its inputs into their places."""
    return len(group.nodes) == 1 and group.nodes[0].op in _places


def _inside(whole: Part, start: Sequence[int]) -> Part:
    offset = sum(index * stride for index, stride in zip(start, whole.strides))
    return whole._replace(offset=whole.offset + offset)
