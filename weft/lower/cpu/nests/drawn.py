"""Kernels of random numbers: words of the Mersenne Twister, and numbers made of words, whose bits are not mixed."""

from __future__ import annotations

from collections.abc import Callable

from .... import te
from ....base.bits import WORDS
from ....base.cpu_target import CpuTarget
from ....base.draws import BLOCK
from ....base.dtype import DTYPES, FLOAT32, DType
from ....ops.random._twister import Words, box_muller, next_word
from ....te.build import UNBOUNDED
from ....te.loops import Store
from ....te.transform import lower_vectors
from .hoist import vector_loop

LANES = 16
CHUNK = 4096  # numbers of a turn
UINT32, UINT64 = DTYPES["uint32"], DTYPES["uint64"]


def twister_kernel(target: CpuTarget) -> te.Kernel:
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


def words_kernel(target: CpuTarget) -> te.Kernel:
    return _each_kernel("random_words", UINT64, lambda words, i: te.cast(words(i), UINT64))


def numbers_kernel(target: CpuTarget) -> te.Kernel:
    return _each_kernel("random_numbers", FLOAT32, lambda words, i: words.float32(i))


def normal_kernel(dtype: DType, target: CpuTarget) -> te.Kernel:
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
