"""Recordings: operators applied to tensors that have no values become nodes of a graph. A stand-in has the shape, the
strides and the dtype of memory, so that views of it work as they are; what is in it is an entry of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from ..base.dtype import DType
from ..base.errors import RunError, ShapeError
from ..core.infer import infer_node
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..ops.math.broadcast import BroadcastToAttrs
from ..ops.shape.index import TakeAttrs
from ..ops.shape.part import PartAttrs
from ..ops.shape.transform import TransposeAttrs
from ..ops.shape.views import ReshapeAttrs
from .autograd.view_writes import Pick, Place
from .tensor.device import device, numbered
from .tensor.memory import Array, LaidOut, index_of, positions_by, start_of
from .tensor.tensor import Tensor, wrap

_RESHAPE, _TRANSPOSE, _BROADCAST, _PART, _PART_GRAD, _TAKE, _WHERE, _SCATTER = (
    Op.get(name)
    for name in ("reshape", "transpose", "broadcast_to", "part", "_part_grad", "take", "where", "scatter_nd")
)


class Storage:
    """The memory that stand-ins are views of: what is in it now, as an entry of the graph. `index` is the number of the
    GPU that it is on, None on the processor."""

    __slots__ = ("__weakref__", "entry", "index", "layout", "number", "real", "recording")

    def __init__(self, recording: Recording, entry: NodeEntry, layout: Array, index: int | None = None) -> None:
        self.recording, self.entry, self.layout, self.index = recording, entry, layout, index
        self.real: Any = None  # the values of the entry, where they are known
        self.number = recording.storages
        recording.storages += 1
        recording.live.add(self)


class StandIn(LaidOut):
    """Memory without values: an implementation of `Memory`. A view knows the stand-in it is seen through, and by which
    operator."""

    __slots__ = ("_at", "_seen", "layout", "op", "params", "source", "storage")

    def __init__(
        self, layout: Array, storage: Storage, source: StandIn | None = None, op: Op | None = None, params: Any = None
    ) -> None:
        self.layout = layout
        self.storage, self.source, self.op, self.params = storage, source, op, params
        self._seen: NodeEntry | None = None
        self._at: NodeEntry | None = None  # the entry of the storage that `_seen` follows from

    # What tensors ask of memory.

    base = property(lambda self: self.source)
    index = property(lambda self: self.storage.index)
    device = property(lambda self: numbered(self.storage.index))

    def __getitem__(self, index: Any) -> StandIn:
        """A part by whole numbers, slices, new axes and dots."""
        items = index if isinstance(index, tuple) else (index,)
        seen = self.layout[items]
        given = sum(item is not None and item is not Ellipsis for item in items)
        start, length, step = [], [], []
        axis = 0
        for item in items if Ellipsis in items else (*items, Ellipsis):
            if item is None:
                continue
            many = self.ndim - given if item is Ellipsis else 1
            for _ in range(many):
                dim = self.shape[axis]
                if isinstance(item, slice):
                    first, last, by = item.indices(dim)
                    count = len(range(first, last, by))
                    if by < 0:
                        return self.seen_by(lambda array: array[items])
                elif item is Ellipsis:
                    first, count, by = 0, dim, 1
                else:
                    first, count, by = int(item) % max(dim, 1), 1, 1
                start.append(first if count else 0)
                length.append(count)
                step.append(by)
                axis += 1
        if tuple(length) == self.shape and all(by == 1 for by in step):
            return self._view(seen, _RESHAPE, ReshapeAttrs(shape=seen.shape))
        return self._view(
            seen, _PART, PartAttrs(start=tuple(start), length=tuple(length), step=tuple(step), shape=seen.shape)
        )

    def transpose(self, axes: Any) -> StandIn:
        order = tuple(axes)
        return self._view(self.layout.transpose(order), _TRANSPOSE, TransposeAttrs(axes=order))

    def reshape(self, shape: Any, copy: bool | None = None) -> StandIn:
        """The elements in another shape; a view, or with a copy where that takes one."""
        try:
            return self._view(self.layout.reshape(shape, copy=False), _RESHAPE, None)
        except ValueError:
            if copy is False:
                raise
            return self.copy().reshape(shape)

    def squeeze(self, axes: Any) -> StandIn:
        return self._view(self.layout.squeeze(axes), _RESHAPE, None)

    def broadcast(self, shape: tuple[int, ...]) -> StandIn:
        seen = np.broadcast_to(self.layout, shape)
        if shape == self.shape:
            return self._view(seen, _RESHAPE, None)
        return self._view(seen, _BROADCAST, BroadcastToAttrs(shape=shape))

    def seen_by(self, view: Callable[[Array], Array]) -> StandIn:
        """A view by any function of arrays, as the elements that it takes."""
        return self._view(view(self.layout), _TAKE, positions_by(view, self.shape))

    def copy(self) -> StandIn:
        """The same values in memory of its own, with its elements in order."""
        return self.storage.recording.value(self.shape, self.dtype, self.entry(), self.index)

    def _view(self, seen: Array, op: Op, params: Any) -> StandIn:
        if op is _RESHAPE:
            params = ReshapeAttrs(shape=seen.shape)
        return StandIn(seen, self.storage, self, op, params)

    # Its place in the graph.

    def entry(self) -> NodeEntry:
        """What is seen through it now."""
        chain: list[StandIn] = []
        view = self
        while view.source is not None and view._at != self.storage.entry:
            chain.append(view)
            view = view.source
        now = self.storage.entry if view.source is None else view._seen
        assert now is not None
        for view in reversed(chain):
            now = view._look(now)
            view._seen, view._at = now, self.storage.entry
        return now

    def _look(self, whole: NodeEntry) -> NodeEntry:
        recording = self.storage.recording
        if self.op is _TAKE:
            flat = recording.node(_RESHAPE, ReshapeAttrs(shape=(-1,)), [whole])
            return recording.node(_TAKE, TakeAttrs(axis=None), [flat, recording.constant(self.params)])
        assert self.op is not None
        return recording.node(self.op, self.params, [whole])

    def put(self, value: NodeEntry) -> None:
        """Gives it another value, which all that see the same memory see from then on."""
        wholes, view = [], self
        while view.source is not None:
            wholes.append((view, view.source.entry()))
            view = view.source
        for view, whole in wholes:
            value = view._placed(value, whole)
        self.storage.entry, self.storage.real = value, None

    def _placed(self, value: NodeEntry, whole: NodeEntry) -> NodeEntry:
        """What the view's source becomes when the view becomes a value."""
        node, constant = self.storage.recording.node, self.storage.recording.constant
        assert self.source is not None
        shape = self.source.shape
        if self.op is _RESHAPE:
            return node(_RESHAPE, ReshapeAttrs(shape=shape), [value])
        if self.op is _TRANSPOSE:
            return node(
                _TRANSPOSE, TransposeAttrs(axes=tuple(int(axis) for axis in np.argsort(self.params.axes))), [value]
            )
        if self.op is _PART:
            mask = np.zeros(shape, bool)
            rows = zip(self.params.start, self.params.length, self.params.step)
            mask[tuple(slice(a, a + n * s, s) for a, n, s in rows)] = True
            return node(_WHERE, None, [constant(mask), node(_PART_GRAD, self.params, [value, whole]), whole])
        if self.op is _TAKE:
            flat = node(_RESHAPE, ReshapeAttrs(shape=(-1,)), [whole])
            value = node(_RESHAPE, ReshapeAttrs(shape=(-1,)), [value])
            put = node(_SCATTER, None, [flat, constant(self.params.reshape(1, -1)), value])
            return node(_RESHAPE, ReshapeAttrs(shape=shape), [put])
        raise RunError("elements that are seen more than once cannot be written to", hint="clone() the tensor first")

    # Its values.

    def values(self) -> Array:
        """The values, which are computed now if they can be."""
        whole = self.storage.recording.values(self.storage)
        found: Array = part_of_memory(whole, self.layout, self.storage.layout)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.values()


def part_of_memory(memory: Any, view: Array, whole: Array) -> Any:
    """The part of memory that a view is of a whole that lies as the memory does."""
    if not isinstance(memory, np.ndarray):
        return memory.part(view.shape, view.dtype, start_of(view) - start_of(whole), view.strides)
    if not view.size:
        return np.empty(view.shape, view.dtype)
    owner = memory
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = start_of(memory) - start_of(owner) + start_of(view) - start_of(whole)
    part: Array = np.ndarray(view.shape, view.dtype, owner.reshape(-1).view(np.uint8), start, view.strides)
    return part


class Recording:
    """Takes down operators instead of running them. What it must say of tensors that are no stand-ins, and of values
    that are asked for, depends on what it is for."""

    records = False  # whether autograd's graph, too, is left to it
    inside = False  # whether a call of a function on tensors of a device is under way

    def __init__(self) -> None:
        self.storages = 0
        self.live: WeakSet[Storage] = WeakSet()
        self.nodes = 0

    # What dispatch and the functions of tensors call.

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Applies an operator, as dispatch does."""
        given = [Fact(tensor._array.shape, tensor._array.dtype) for tensor in inputs]
        try:
            facts = infer_node(op, params, given, op.name)
        except ShapeError as error:  # which is a RunError where the operator runs
            shapes = ", ".join(f"{dtype}{list(shape or ())}" for shape, dtype, *_ in given)
            raise RunError(f"{op.name} cannot be applied to {shapes}", why=error.what) from None
        node = self.node(op, params, [self.entry_of(tensor) for tensor in inputs]).node
        index = index_of([tensor._array for tensor in inputs])
        shown = facts[: node.num_visible_outputs]
        return [wrap(self.value(fact.shape, fact.dtype, NodeEntry(node, at), index)) for at, fact in enumerate(shown)]

    def moved(self, tensor: Tensor, where: device) -> StandIn:
        """A copy of a tensor on another device."""
        raise self._stays("moved")

    def bring(self, tensor: Tensor, index: int) -> None:
        """Has a tensor that was just made be on the GPU of a number."""
        raise self._stays("made on a device")

    def _stays(self, what: str) -> RunError:
        self.decline(f"a tensor is {what}")
        return RunError(f"a tensor is {what} where that is not recorded")

    def decline(self, why: str) -> None:
        """Said by a function that looks at more than shapes and dtypes."""
        raise NotImplementedError

    def made(self, tensor: Tensor) -> None:
        """Told of every tensor that is made meanwhile."""

    def viewed(self, view: Tensor, source: Tensor) -> None:
        """Told of every view that is made meanwhile."""

    def draws(self, generator: Any) -> None:
        """Told before a generator draws, or is seeded."""
        self.decline("random numbers are drawn")

    def mapped(self, kind: type, tensor: Tensor, region: Any) -> StandIn:
        """A map between a base and a part of it, as `view_writes` names them."""
        if region.base_dtype != region.dtype:
            self.decline("a part of complex numbers is written to")
        flat = self.node(_RESHAPE, ReshapeAttrs(shape=(-1,)), [self.entry_of(tensor)])
        positions, size = region.positions(), math.prod(region.base_shape)
        index = index_of([tensor._array])
        if kind is Pick:
            made = self.node(_TAKE, TakeAttrs(axis=None), [flat, self.constant(positions)])
            return self.value(region.shape, region.dtype, made, index)
        zeros, places = np.zeros(size, region.dtype), self.constant(positions.reshape(1, -1))
        if kind is Place:
            made = self.node(_SCATTER, None, [self.constant(zeros), places, flat])
        else:
            made = self.node(_SCATTER, None, [flat, places, self.constant(zeros[: positions.size])])
        made = self.node(_RESHAPE, ReshapeAttrs(shape=region.base_shape), [made])
        return self.value(region.base_shape, region.base_dtype, made, index)

    # What it makes.

    def node(self, op: Op, params: Any, inputs: Sequence[NodeEntry]) -> NodeEntry:
        self.nodes += 1
        return NodeEntry(Node(op, f"{op.name.strip('_')}{self.nodes}", op.attributes(params), inputs, params=params))

    def value(self, shape: Any, dtype: DType | None, entry: NodeEntry, index: int | None = None) -> StandIn:
        """Memory of its own for an entry, on the GPU of a number or on the processor."""
        layout = np.empty(shape, dtype)
        return StandIn(layout, Storage(self, entry, layout, index))

    def entry_of(self, tensor: Tensor) -> NodeEntry:
        memory = tensor._array
        return memory.entry() if isinstance(memory, StandIn) else self.outside(tensor)

    # What its kinds say.

    def outside(self, tensor: Tensor) -> NodeEntry:
        """The entry of a tensor that is no stand-in."""
        raise NotImplementedError

    def constant(self, values: Array) -> NodeEntry:
        raise NotImplementedError

    def values(self, storage: Storage) -> Array:
        """The values of a stand-in, where there are some."""
        raise NotImplementedError

    def put(self, target: Tensor, result: Tensor) -> None:
        """Writes values to a tensor."""
        raise NotImplementedError
