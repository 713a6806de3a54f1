"""Nodes for parts of a tensor's memory: what writing to a view does to its base's place in the
graph, and what a view's place is after that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .modes import modes
from .node import Node

Array = np.ndarray[Any, Any]


class Region:
    """Where a view lies in its base."""

    def __init__(self, base: Any, view: Any) -> None:
        base, view = (getattr(memory, "layout", memory) for memory in (base, view))  # of stand-ins, where they lie
        self.base_shape, self.base_strides = base.shape, base.strides
        self.shape, self.strides = view.shape, view.strides
        self.base_dtype, self.dtype = base.dtype, view.dtype  # of a part of complex numbers: real
        low, high = _bounds(base)
        self.bytes = high - low
        self.base_start = _start(base) - low
        self.start = _start(view) - low

    def positions(self) -> Array:
        """The numbers that the elements of the part have in the base, row by row."""
        width = self.base_dtype.itemsize
        memory = np.zeros(self.bytes // width, np.int64)
        whole = np.ndarray(
            self.base_shape, np.int64, memory, self.base_start // width * 8, [s // width * 8 for s in self.base_strides]
        )
        whole[...] = np.arange(whole.size).reshape(whole.shape)
        part: Array = np.ndarray(
            self.shape, np.int64, memory, self.start // width * 8, [s // width * 8 for s in self.strides]
        )
        return part.copy()

    def buffer(self, values: Array | None) -> tuple[Array, Array]:
        """Fresh memory laid out as the base, holding values or zeros; and the view's part of it."""
        memory = np.zeros(self.bytes, np.uint8)
        whole = np.ndarray(self.base_shape, self.base_dtype, memory, self.base_start, self.base_strides)
        if values is not None:
            np.copyto(whole, values, casting="unsafe")
        part: Array = np.ndarray(self.shape, self.dtype, memory, self.start, self.strides)
        return whole, part


def _start(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _bounds(array: Array) -> tuple[int, int]:
    """First byte, and the one after the last, that an array's elements take."""
    if not array.size:
        return _start(array), _start(array)
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    low = _start(array) + sum(span for span in spans if span < 0)
    return low, _start(array) + sum(span for span in spans if span > 0) + array.itemsize


def _meta(tensor: Any) -> tuple[tuple[int, ...], Any]:
    return tensor._array.shape, tensor._array.dtype


class AsStrided(Node):
    """A view of what its base is now: the gradient goes to its part, and zeros to the rest."""

    def __init__(self, base: Any, view: Any) -> None:
        super().__init__((base._edge(),), ((view.shape, view.dtype),))
        self.region = Region(base._array, view)

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        return (Place.of(grads[0], self.region),)


class CopySlices(Node):
    """The base after a part of it was overwritten: its gradient reaches what was written through
    that part, and what was there before through the rest."""

    def __init__(self, base: Any, view: Any, written: tuple[Node | None, int]) -> None:
        super().__init__((base._edge(), written), (_meta(base),))
        self.region = Region(base._array, view)

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        (grad,) = grads
        rest = None if self.next_functions[0][0] is None else Clear.of(grad, self.region)
        part = None if self.next_functions[1][0] is None else Pick.of(grad, self.region)
        return rest, part


class Overwritten(Node):
    """What is left of a tensor's history when values without one were written over it."""

    def __init__(self, tensor: Any) -> None:
        super().__init__((tensor._edge(),), (_meta(tensor),))

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        return (None,)


class _RegionNode(Node):
    """A linear map between a base and a part of it; its gradient is another one of the three."""

    def __init__(self, source: Any, region: Region, outputs: Any) -> None:
        super().__init__((source._edge(),), outputs)
        self.region = region

    @classmethod
    def of(cls, source: Any, region: Region) -> Any:
        """The map applied to a tensor, recorded where gradients of gradients are wanted."""
        traced = modes.trace is not None
        mapped = source._like(modes.trace.mapped(cls, source, region) if traced else cls.values(source._array, region))
        if source._recorded():
            mapped._requires_grad = True
            mapped._grad_fn = cls(source, region, (_meta(mapped),))
        return mapped

    @staticmethod
    def values(array: Array, region: Region) -> Array:
        raise NotImplementedError


class Pick(_RegionNode):
    """The part of a base."""

    @staticmethod
    def values(array: Array, region: Region) -> Array:
        return region.buffer(array)[1].copy()

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        return (Place.of(grads[0], self.region),)


class Place(_RegionNode):
    """A base that is zero outside the part."""

    @staticmethod
    def values(array: Array, region: Region) -> Array:
        whole, part = region.buffer(None)
        np.copyto(part, array)
        return np.ascontiguousarray(whole).reshape(whole.shape)

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        return (Pick.of(grads[0], self.region),)


class Clear(_RegionNode):
    """A base with zeros in the part."""

    @staticmethod
    def values(array: Array, region: Region) -> Array:
        whole, part = region.buffer(array)
        part[...] = 0
        return np.ascontiguousarray(whole).reshape(whole.shape)

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        return (Clear.of(grads[0], self.region),)
