"""What a group does element by element with its anchor's result: comes in that result at an index,
goes out the group's."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from .. import te
from ..base.dtype import DType
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry
from ..te.build import KernelBuilder
from ..te.expr import Expr, Load, all_of
from ..te.loops import Buffer
from ..te.schedule import inline
from ..te.tensor import Tensor
from ..te.visit import masked_load, rewrite, substitute
from .group import Facts, Strides, reached_tensors, tensors_of
from .joined_axes import with_joined_axes


def static_spec(fact: Fact) -> tuple[tuple[int, ...], DType]:
    """A shape and a dtype that inference is done with."""
    assert fact.shape is not None
    assert fact.dtype is not None
    return fact.shape, fact.dtype  # type: ignore[return-value]


class Epilogue:
    """The nodes of a group after its anchor, in a kernel that a builder writes.

    `arguments` are the entries that it reads, whose buffers it has added to the kernel, and the group's result once
    that has one. Where it may `join` them, all axes but the last are as few as can be, which `shape` tells.
    """

    def __init__(
        self, b: KernelBuilder, group: FusedGroup, fact: Facts, strides: Strides | None = None, join: bool = False
    ) -> None:
        self._b, self._end, self._strides = b, group.outputs[0], strides or {}
        self._whole, self._dtype = static_spec(fact(self._end))
        self._body: Expr | None = None
        self._buffers: dict[Tensor, Any] = {}
        self.arguments: list[Hashable] = []
        if len(group.nodes) > 1:
            self._read_group(b, group, NodeEntry(group.anchor), fact, join)

    def _read_group(self, b: KernelBuilder, group: FusedGroup, anchor: NodeEntry, fact: Facts, join: bool) -> None:
        self._anchor = te.placeholder(*static_spec(fact(anchor)), "anchor")
        tensors = tensors_of(group, fact, {anchor: self._anchor})
        if join:
            inputs = {anchor: self._anchor, **{entry: tensors[entry] for entry in group.inputs}}
            stands = with_joined_axes(list(inputs.values()), [tensors[group.outputs[0]]], apart=1)
            tensors = {entry: stands.get(tensor, tensor) for entry, tensor in tensors.items()}
            self._anchor = tensors[anchor]
        self._result = tensors[group.outputs[0]]
        reached = reached_tensors(self._result)
        self._body = inline(self._result, [t for t in reached if t.body is not None]).body
        places = {tensors[entry]: entry for entry in group.inputs}
        read = [t for t in reached if t is not self._anchor and t.body is None]
        self._buffers = {t: b.arg(t.name, t.dtype, t.shape, strides=self._strides.get(places[t])) for t in read}
        self.arguments = [places[t] for t in read]

    def result(self, shape: Sequence[Any] | None = None) -> Buffer:
        """The buffer of the group's result, as it is or in another shape; it comes after what is read."""
        self.arguments.append(self._end)
        own = self._whole if shape is None else shape
        return self._b.arg("out", self._dtype, own, strides=self._strides.get(self._end))

    def shape(self, plain: Sequence[Any]) -> Sequence[Any]:
        """The shape of the indices that `finished` takes, where the group's result has a plain one."""
        return plain if self._body is None else self._result.shape

    def finished(self, value: Expr, at: Sequence[Expr], mask: Expr | None = None) -> Expr:
        """The group's result at an index, from the anchor's; of some lanes only, if there is a mask."""
        if self._body is None:
            return value
        moved = substitute(self._body, dict(zip(self._result.axes, at)))
        return rewrite(moved, lambda node: self._read(node, value, mask))

    def _read(self, node: Any, value: Expr, mask: Expr | None) -> Any:
        """A load of the anchor's result is that value; others read their buffers."""
        if not isinstance(node, Load) or not isinstance(node.source, Tensor):
            return node
        if node.source is self._anchor:
            return value
        if mask is None or node.lanes == 1:  # an element that all lanes share is there
            return Load(self._buffers[node.source], node.indices, node.mask)
        masks = [part for part in (node.mask, mask) if part is not None]
        return masked_load(self._buffers[node.source], node.indices, all_of(masks))
