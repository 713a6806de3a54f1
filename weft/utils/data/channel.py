"""Values on their way from a worker to the loader: their tensors and arrays travel in an anonymous file, which the
loader maps, so that the connection carries no more than the file and its size.

A file holds, each part at a multiple of 64 bytes: how many parts follow and the size of each; what pickle wrote; the
buffers that it left out."""

from __future__ import annotations

import copyreg
import io
import itertools
import os
import pickle
from collections import ChainMap
from collections.abc import Iterable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler, recv_handle, send_handle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.errors import RunError
from ...eager.tensor.copying import rebuilt
from ...eager.tensor.memory import array_of
from ...eager.tensor.shared_memory import HAS_FILES, File, anonymous_file, mapped
from ...eager.tensor.storage import UntypedStorage
from ...eager.tensor.tensor import Tensor, wrap

ALIGNMENT = 64
Buffer = bytes | memoryview
Parcel = bytes | tuple[File, int]


class _Pickler(pickle.Pickler):
    """Leaves the memory of tensors and arrays out, and gives it to `buffers`."""

    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, 5, buffer_callback=buffers.append)
        registered: Any = getattr(ForkingPickler, "_extra_reducers", {})
        self.dispatch_table = ChainMap[Any, Any](registered, copyreg.dispatch_table)

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, UntypedStorage):
            return _received, (pickle.PickleBuffer(value._bytes.data),)
        if isinstance(value, Tensor):
            return _reduced(value)
        return NotImplemented


def _reduced(tensor: Tensor) -> Any:
    """How a tensor is taken apart: one that looks at a part of a storage takes its own elements along, no others."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RunError(
            "a tensor with a history cannot go to another process",
            why="its graph stays in this one",
            hint="detach() it, or compute it inside no_grad()",
        )
    if type(tensor).__reduce__ is not Tensor.__reduce__ or tensor.untyped_storage().nbytes() <= tensor.nbytes:
        return NotImplemented
    alone = np.array(array_of(tensor))
    place = (0, alone.shape, alone.strides)
    return rebuilt, (wrap(alone).untyped_storage(), tensor.dtype.name, place, tensor.requires_grad, type(tensor))


def _received(memory: Any) -> UntypedStorage:
    content = np.frombuffer(memory, np.uint8) if len(memory) else np.empty(0, np.uint8)
    storage: UntypedStorage = UntypedStorage._over(content, shared=HAS_FILES)
    return storage


def packed(value: Any) -> tuple[list[Buffer], list[int], int]:
    """The parts of a file that holds a value, the byte where each begins, and the size of all."""
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, buffers).dump(value)
    parts = [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]
    table = np.array([len(parts), *(part.nbytes for part in parts)], np.int64).tobytes()
    starts, total = _places([len(table), *(part.nbytes for part in parts)])
    return [table, *parts], starts, total


def unpacked(memory: NDArray[np.uint8]) -> Any:
    """The value that a file holds; its tensors and arrays look at this memory.

    >>> parts, starts, total = packed([np.arange(3), "a"])
    >>> memory = np.zeros(total, np.uint8)
    >>> for part, start in zip(parts, starts):
    ...     memory[start : start + len(part)] = np.frombuffer(part, np.uint8)
    >>> unpacked(memory)
    [array([0, 1, 2]), 'a']
    """
    count = int(memory[:8].view(np.int64)[0])
    sizes = memory[8 : 8 * (count + 1)].view(np.int64).tolist()
    starts, _ = _places([8 * (count + 1), *sizes])
    stream, *buffers = [memory[start : start + size] for start, size in zip(starts[1:], sizes)]
    return pickle.loads(stream.data, buffers=[buffer.data for buffer in buffers])


def _places(sizes: Iterable[int]) -> tuple[list[int], int]:
    ends = [0, *itertools.accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]
    return ends[:-1], ends[-1]


def prepared(value: Any) -> Parcel:
    """A value, ready to be sent: a file and its size, or bytes where the system has no such files."""
    parts, starts, total = packed(value)
    if not HAS_FILES:
        gaps = itertools.chain(starts[1:], [total])
        return b"".join(bytes(part).ljust(end - start, b"\0") for part, start, end in zip(parts, starts, gaps))
    file = anonymous_file(total)
    for part, start in zip(parts, starts):
        _write(file, memoryview(part), start)
    return file, total


def send(connection: Connection, parcel: Parcel) -> None:
    """Sends a value that `receive` at the other end makes again; OSError when that is gone."""
    if isinstance(parcel, bytes):
        connection.send_bytes(parcel)
        return
    file, total = parcel
    connection.send_bytes(total.to_bytes(8, "little"))
    send_handle(connection, file.fd, None)


def receive(connection: Connection) -> Any:
    """The next value; EOFError or OSError when the other end is gone."""
    message = connection.recv_bytes()
    if not HAS_FILES:
        return unpacked(np.frombuffer(bytearray(message), np.uint8))
    file = File(recv_handle(connection))
    return unpacked(mapped(file, int.from_bytes(message, "little")))


def _write(file: File, content: memoryview, start: int) -> None:
    """By the system's call, not through a map: too little memory is an error then, and not the end of the process."""
    while content.nbytes:
        written = os.pwrite(file.fd, content, start)
        content, start = content[written:], start + written
