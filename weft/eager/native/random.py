"""Many random numbers at once, natively: the same stream and the same numbers as base/draws.py
makes. A Mersenne Twister comes in, arrays go out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import te
from ...base.bits import WORDS
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...base.draws import BLOCK, drawn_in_blocks
from ...base.dtype import DTYPES, FLOAT32, FLOAT64, DType
from ...lower.cpu.open.hoist import vector_loop
from ...ops.random._twister import Words, box_muller, next_word
from ...te.loops import Store
from ...te.transform import lower_vectors
from .calls import Array
from .kernels import kernel
from .twister import NativeTwister

LANES = 16
CHUNK = 4096  # numbers of a turn
UNBOUNDED = 1 << 40
UINT32, UINT64 = DTYPES["uint32"], DTYPES["uint64"]
NUMBER_NS, NORMAL_NS = COSTS.number, COSTS.normal


def random_words(source: NativeTwister, count: int) -> NDArray[np.uint64]:
    return _each(source, _words_kernel, np.empty(count, np.uint64))


def random_numbers(source: NativeTwister, count: int) -> NDArray[np.float32]:
    return _each(source, _numbers_kernel, np.empty(count, np.float32))


def _each(source: NativeTwister, write: Callable[[CpuTarget], te.Kernel], out: Array) -> Array:
    """Numbers that are made of a word each."""
    raw, first = _drawn(source, out.size)
    kernel(write).run([raw, out], [first, out.size], -(-out.size // CHUNK), out.size * NUMBER_NS)
    return out


def _drawn(source: NativeTwister, count: int) -> tuple[NDArray[np.uint32], int]:
    """At least one word: memory with the next ones, their bits not mixed, and where they begin.
    The state moves on."""
    state: Any = source._source.state["state"]
    first, block = int(state["pos"]), state["key"].astype(np.uint32, copy=False)
    blocks = -(-count // WORDS)
    raw = np.empty((1 + blocks) * WORDS, np.uint32)
    raw[:WORDS] = block
    kernel(_twister_kernel).run([raw], [blocks], 1, 0)
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
    numbers, normal = np.empty(count, dtype), kernel(_normal_kernel, dtype)
    factors = np.array([std, mean], dtype)
    blocks = count // BLOCK
    normal.run([raw, factors, numbers], [start, 0, 0, blocks], blocks, count * NORMAL_NS)
    if more:
        normal.run([raw, factors, numbers], [start, first, count - BLOCK, 1], 1, 0)
    return numbers


def _twister_kernel(target: CpuTarget) -> te.Kernel:
    """Makes so many blocks of words after the one that is there."""
    b = te.KernelBuilder("twister")
    blocks = b.scalar("blocks")
    raw = b.arg("raw", UINT32, (UNBOUNDED,))
    groups = blocks * (WORDS // LANES)
    with b.parallel("p", 1), b.loop("group", groups) as group, b.vector("lane", LANES) as lane:
        b.store(raw, WORDS + group * LANES + lane, next_word(raw, group * LANES + lane))
    return lower_vectors(b.finish())


def _each_kernel(name: str, dtype: DType, element: Callable[[Words, te.Expr], te.Expr]) -> te.Kernel:
    """Numbers that are made of a word each. Scalars: the first word, and how many."""
    b = te.KernelBuilder(name)
    first, count = b.scalar("first"), b.scalar("count")
    raw, out = b.arg("raw", UINT32, (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    words = Words(raw, first)
    with b.parallel("p", (count + (CHUNK - 1)) // CHUNK) as p:
        i, start = te.Var("i"), b.let("start", p * CHUNK)
        end = b.let("end", te.min(start + CHUNK, count))
        b.emit(vector_loop(i, start, end, LANES, Store(out, (i,), element(words, i))))
    return lower_vectors(b.finish())


def _words_kernel(target: CpuTarget) -> te.Kernel:
    return _each_kernel("random_words", UINT64, lambda words, i: te.cast(words(i), UINT64))


def _numbers_kernel(target: CpuTarget) -> te.Kernel:
    return _each_kernel("random_numbers", FLOAT32, lambda words, i: words.float32(i))


def _normal_kernel(dtype: DType, target: CpuTarget) -> te.Kernel:
    """Scalars: the first word, the first of the numbers that words make, the place of the first
    number in the output, blocks of sixteen. `factors` are what numbers are scaled by, and added."""
    b = te.KernelBuilder("random_normal")
    first, skipped, place, blocks = [b.scalar(n) for n in ("first", "skipped", "place", "blocks")]
    raw, factors = b.arg("raw", UINT32, (UNBOUNDED,)), b.arg("factors", dtype, (2,))
    out = b.arg("out", dtype, (UNBOUNDED,))
    words, half = Words(raw, first), BLOCK // 2
    with b.parallel("p", blocks) as p:
        std, mean = b.let("std", factors[0]), b.let("mean", factors[1])
        with b.vector("lane", half) as lane:
            at = skipped + p * BLOCK + lane
            pair = box_muller(lambda i: words.real(dtype, i), dtype, at, half)
            for i, value in enumerate(pair):
                to = place + p * BLOCK + i * half + lane
                b.store(out, to, te.fma(value, std, mean))
    return lower_vectors(b.finish())
