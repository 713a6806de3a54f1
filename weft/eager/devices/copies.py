"""Copies between elements of one device that lie anyhow: one kernel for each size of elements and number of axes, whose
extents and strides are arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.plan import BufferRef, KernelStep, Launch
from ...runtime.addresses import address_of
from ...runtime.cuda.context import Context
from ...runtime.cuda.graph import PreparedKernel
from ...runtime.cuda.memory import Borrowed, DeviceMemory
from ...runtime.cuda.stream import Event, Stream, stream_in
from ..tensor.memory import Array
from ..tensor.storage import byte_bounds
from . import kernels


class Walk(NamedTuple):
    """Axes from the outermost in, in elements of at most 8 bytes: extents, and steps in the target and the source."""

    width: int
    extents: tuple[int, ...]
    into: tuple[int, ...]
    out_of: tuple[int, ...]

    @property
    def is_plain(self) -> bool:
        """Whether both sides are elements without gaps, in the same order."""
        return len(self.extents) <= 1 and self.into in ((), (1,)) and self.out_of in ((), (1,))


def walk_of(target: Array, source: Array) -> Walk:
    """The fewest axes that two arrays of one shape are walked along: in the order that the target lies in, neighbours
    that both sides walk in one go as one.

    >>> a = np.zeros((4, 6), "float32")
    >>> walk_of(a, a), walk_of(a, a.T.copy().T).extents
    (Walk(width=4, extents=(24,), into=(1,), out_of=(1,)), (4, 6))
    """
    width, inner = (8, 2) if target.itemsize == 16 else (target.itemsize, 1)
    axes = [(n, a // width, b // width) for n, a, b in zip(target.shape, target.strides, source.strides) if n != 1]
    axes.sort(key=lambda axis: -abs(axis[1]))
    if inner > 1:
        axes.append((inner, 1, 1))
    merged: list[tuple[int, int, int]] = []
    for n, a, b in axes:
        if merged and merged[-1][1] == a * n and merged[-1][2] == b * n:
            merged[-1] = (merged[-1][0] * n, a, b)
        else:
            merged.append((n, a, b))
    extents, into, out_of = zip(*merged) if merged else ((), (), ())
    return Walk(width, extents, into, out_of)


def copy_elements(target: Any, source: Any) -> None:
    """Copies elements of memory of one device, of one shape and dtype."""
    nbytes = target.nbytes
    if not nbytes:
        return
    in_order = target.is_dense and source.is_dense
    if _overlap(target, source, nbytes if in_order else None):
        if target.address == source.address and (in_order or target.strides == source.strides):
            return
        source = source.copy()
    context: Context = target.owner.context
    with context:
        stream = stream_in(context)
        shared = begun((target, source), stream)
        walk = None if in_order else walk_of(target.layout, source.layout)
        if walk is None or walk.is_plain:
            context.driver.call("cuMemcpyDtoDAsync_v2", target.address, source.address, nbytes, stream.handle)
        else:
            _prepared(context, walk, target.layout, source.layout).launch(stream)
        used(shared, stream)


_held: deque[tuple[Event, list[Borrowed]]] = deque()  # memory of other libraries, until what uses it has ended


def begun(memories: Sequence[Any], stream: Stream) -> list[DeviceMemory]:
    """Has a stream wait for what others do with memory that it is to use; the owners of what is not its alone, which
    `used` is told."""
    shared = []
    for memory in memories:
        owner: DeviceMemory = memory.owner
        if not owner.is_alone_on(stream):
            owner.ready_on(stream)
            shared.append(owner)
    return shared


def used(shared: Sequence[DeviceMemory], stream: Stream) -> None:
    """Takes notice that a stream was given something that uses memory."""
    for owner in shared:
        owner.used_on(stream)
    borrowed = [owner for owner in shared if isinstance(owner, Borrowed)] if shared else None
    if borrowed:
        while _held and _held[0][0].query():
            _held.popleft()
        _held.append((stream.record_event(), borrowed))


def forget() -> None:
    """Waits for what uses memory of other libraries, and lets that go."""
    while _held:
        _held[0][0].synchronize()
        _held.popleft()


def _overlap(target: Any, source: Any, stretch: int | None) -> bool:
    """Whether some bytes may be of both; of elements in order, it is told how many bytes they are."""
    if stretch is not None:
        return bool(-stretch < target.address - source.address < stretch)
    return np.may_share_memory(target.layout, source.layout)


def copy_kernel_of(context: Context, target: Any, source: Any) -> PreparedKernel:
    """What copies elements of memory of a device, to be launched together with others."""
    return _prepared(context, walk_of(target.layout, source.layout), target.layout, source.layout)


def _prepared(context: Context, walk: Walk, target: Array, source: Array) -> PreparedKernel:
    function = kernels.copying(context, walk.width, len(walk.extents))
    ends = [byte_bounds(array) for array in (target, source)]
    spans = [(high - low) // walk.width for low, high in ends]
    starts = [(address_of(array) - low) // walk.width for array, (low, _) in zip((target, source), ends)]
    total = int(np.prod(walk.extents))
    scalars: Sequence[int] = (total, *spans, *starts, *walk.extents, *walk.into, *walk.out_of)
    launch = Launch((-(-total // kernels.THREADS), 1, 1), (kernels.THREADS, 1, 1))
    step = KernelStep(function.name, (BufferRef(0), BufferRef(1)), tuple(scalars), launch, 0.0)
    return PreparedKernel(context, function, step, [low for low, _ in ends])
