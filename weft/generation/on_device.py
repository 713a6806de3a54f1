"""Steps of a decoder on a GPU: weights, the cache and what a step gives are memory of the device. A step is one copy of
numbers there, one launch of a graph, whose last kernel puts new keys and values into the cache, and one copy of scores
back. Addresses never move, and how many tokens there are is one of the numbers, so a graph is made once."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..base.cuda_target import CudaTarget
from ..base.dtype import DType
from ..base.errors import OutOfMemory
from ..base.plan import BufferRef, KernelStep
from ..base.shown import bytes_text
from ..compiler.backends import backend_of
from ..compiler.kernels import kernel_cache
from ..ops.nn.cached_attention import BLOCK
from ..runtime.cuda.array import DeviceArray, device_empty
from ..runtime.cuda.context import Context
from ..runtime.cuda.executor import CudaExecutor
from ..runtime.cuda.graph import PreparedKernel
from ..runtime.cuda.memory import Pinned
from ..runtime.cuda.module import functions_of
from ..runtime.cuda.repeated import Place, Repeated
from ..runtime.cuda.stream import current_stream
from ..te.build import KernelBuilder
from ..te.loops import Kernel

THREADS = 256
PAIR = 2  # numbers of 8 bytes between multiples of 16, where kernels want their arguments to begin


class DeviceCache:
    """Room for `context` tokens on a device, in blocks as those of `Cache`, which steps write to. What is behind the
    tokens that there are nobody reads."""

    def __init__(self, context: Context, sizes: tuple[int, int, int], tokens: int, dtype: DType) -> None:
        layers, shared, width = sizes
        blocks = -(-tokens // BLOCK)
        self.context, self.length, self.sizes = tokens, 0, sizes
        stream = current_stream(context.index)
        try:
            self.keys = device_empty((blocks, layers, shared, width, BLOCK), dtype, stream)
            self.values = device_empty((blocks, layers, shared, BLOCK, width), dtype, stream)
        except OutOfMemory as error:
            size = bytes_text(2 * blocks * BLOCK * layers * shared * width * dtype.itemsize)
            raise OutOfMemory(
                f"a cache of {tokens} tokens is {size}",
                where=f"cuda:{context.index}, {context.facts.name}",
                why=error.why,
                hint='a smaller context=..., or weights="fp16", whose cache is half as large',
            ) from None

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, however many tokens there are."""
        return self.keys.nbytes + self.values.nbytes


class DeviceStep:
    """A step on a GPU. Only one thread at a time may call it."""

    def __init__(self, executor: CudaExecutor, rows: int, cache: DeviceCache) -> None:
        self.program, self._rows, self._cache = executor.program, rows, cache
        self._context = context = executor.loaded.context
        stream = current_stream(context.index)
        # Numbers of all inputs but the cache side by side: tokens, positions, how many there are, and the last one.
        each = -(-rows // PAIR) * PAIR
        self._starts = dict(zip(("ids", "positions", "past", "last"), (0, each, 2 * each, 2 * each + PAIR)))
        self._numbers = device_empty((2 * each + 2 * PAIR,), "int64", stream)
        self._outputs = [device_empty(spec.extents, spec.dtype, stream) for spec in executor.program.outputs]
        self._pinned = Pinned(context, self._numbers.nbytes + self._outputs[0].nbytes)
        self._host = self._pinned.view(0, self._numbers.nbytes).view(np.int64)
        self._scores = self._pinned.view(self._numbers.nbytes, self._outputs[0].nbytes).view(np.float32)
        self._host[:] = 0
        memory = self._numbers.memory
        known = {name: Place(self._numbers.address + 8 * at, memory) for name, at in self._starts.items()}
        known |= {name: Place(array.address, array.memory) for name, array in self._caches.items()}
        inputs = [known[spec.name] for spec in executor.program.inputs]
        places = [*inputs, *[Place(array.address, array.memory) for array in self._outputs]]
        kernels = [self._extension(known)]
        self._run = Repeated(executor, dict(enumerate(places)), kernels)

    @property
    def _caches(self) -> dict[str, DeviceArray]:
        return {"keys": self._cache.keys, "values": self._cache.values}

    def _extension(self, known: dict[str, Place]) -> PreparedKernel:
        """What puts new keys and values into the cache, ready to be launched behind the program."""
        target = CudaTarget.create(self.program.target)
        kernel = extension_kernel(self._cache, self._rows)
        code = kernel_cache.compiled(backend_of(target).lowering.bind(kernel, target), target)
        function = functions_of(self._context, [code.code], [code.name])[code.name]
        new = [array.address for array in self._outputs[1:]]
        places = [*new, *[known[name].address for name in ("past", "last", "keys", "values")]]
        assert code.launch is not None
        step = KernelStep(code.name, tuple(map(BufferRef, range(len(places)))), (), code.launch, 0.0)
        return PreparedKernel(self._context, function, step, places)

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        cache, count = self._cache, len(ids)
        tokens, positions = (
            self._host[at : at + self._rows] for at in (self._starts["ids"], self._starts["positions"])
        )
        tokens[:count], tokens[count:] = ids, 0
        positions[:] = np.minimum(np.arange(cache.length, cache.length + self._rows), cache.context - 1)
        self._host[self._starts["past"]], self._host[self._starts["last"]] = cache.length, count - 1
        context, scores, numbers = self._context, self._outputs[0], self._numbers
        stream = current_stream(context.index)
        numbers.memory.ready_on(stream)
        with context:
            call = context.driver.call
            call("cuMemcpyHtoDAsync_v2", numbers.address, self._pinned.address, numbers.nbytes, stream.handle)
            self._run.run({}, stream)
            there = self._pinned.address + numbers.nbytes
            call("cuMemcpyDtoHAsync_v2", there, scores.address, scores.nbytes, stream.handle)
        stream.synchronize()  # so the next step may write where numbers are copied from
        cache.length += count
        return self._scores


def extension_kernel(cache: DeviceCache, rows: int) -> Kernel:
    """keys[past + t], values[past + t] = those of new token t, for all up to the last one and as far as there is room;
    a thread for each number of a token."""
    layers, shared, width = cache.sizes
    each, room = prod(cache.sizes), cache.keys.shape[0] * BLOCK
    dtype, size = cache.keys.dtype, cache.keys.size
    b = KernelBuilder("extend_cache")
    new_keys, new_values = (b.arg(name, dtype, (rows * each,), alignment=16) for name in ("new_keys", "new_values"))
    past, last = (b.arg(name, "int64", (1,), alignment=16) for name in ("past", "last"))
    keys, values = (b.arg(name, dtype, (size,), alignment=16) for name in ("keys", "values"))
    with b.block("block", -(-rows * each // THREADS)) as block, b.thread("thread", THREADS) as thread:
        number = b.let("number", block * THREADS + thread)
        token, rest = b.let("token", number // each), b.let("rest", number % each)
        place: Any = b.let("place", past[0] + token)
        with b.when((number < rows * each) & (token <= last[0]) & (place < room)):
            head, column = rest // width, rest % width
            start = b.let("start", (place // BLOCK * (layers * shared) + head) * (width * BLOCK))
            b.store(keys, start + column * BLOCK + place % BLOCK, new_keys[number])
            b.store(values, start + place % BLOCK * width + column, new_values[number])
    return b.finish()
