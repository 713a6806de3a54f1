"""Many random numbers at once, natively: the same stream and the same numbers as base/draws.py
makes. A Mersenne Twister comes in, arrays go out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.bits import WORDS
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...base.draws import BLOCK, drawn_in_blocks
from ...base.dtype import FLOAT64, DType
from ...lower.cpu.nests.drawn import CHUNK, normal_kernel, numbers_kernel, twister_kernel, words_kernel
from ...te.loops import Kernel
from .calls import Array
from .kernels import kernel
from .twister import NativeTwister

NUMBER_NS, NORMAL_NS = COSTS.number, COSTS.normal


def random_words(source: NativeTwister, count: int) -> NDArray[np.uint64]:
    return _each(source, words_kernel, np.empty(count, np.uint64))


def random_numbers(source: NativeTwister, count: int) -> NDArray[np.float32]:
    return _each(source, numbers_kernel, np.empty(count, np.float32))


def _each(source: NativeTwister, write: Callable[[CpuTarget], Kernel], out: Array) -> Array:
    """Numbers that are made of a word each."""
    raw, first = _drawn(source, out.size)
    kernel(write).given([first, out.size], -(-out.size // CHUNK), out.size * NUMBER_NS).run([raw, out])
    return out


def _drawn(source: NativeTwister, count: int) -> tuple[NDArray[np.uint32], int]:
    """At least one word: memory with the next ones, their bits not mixed, and where they begin.
    The state moves on."""
    state: Any = source._source.state["state"]
    first, block = int(state["pos"]), state["key"].astype(np.uint32, copy=False)
    blocks = -(-count // WORDS)
    raw = np.empty((1 + blocks) * WORDS, np.uint32)
    raw[:WORDS] = block
    kernel(twister_kernel).given([blocks], 1, 0).run([raw])
    end = first + count
    done = (end - 1) // WORDS * WORDS
    source.set_block(raw[done : done + WORDS], end - done)
    return raw, first


def normal_blocks(source: NativeTwister, count: int, dtype: DType, mean: float, std: float) -> Array:
    """float32 or float64 numbers of a normal distribution, sixteen or more."""
    words = 2 if dtype == FLOAT64 else 1
    first = drawn_in_blocks(count, dtype)
    more = BLOCK if count % BLOCK else 0
    raw, start = _drawn(source, (first + more) * words)
    numbers, normal = np.empty(count, dtype), kernel(normal_kernel, dtype)
    factors = np.array([std, mean], dtype)
    blocks = count // BLOCK
    normal.given([start, 0, 0, blocks], blocks, count * NORMAL_NS).run([raw, factors, numbers])
    if more:
        normal.given([start, first, count - BLOCK, 1], 1, 0).run([raw, factors, numbers])
    return numbers
