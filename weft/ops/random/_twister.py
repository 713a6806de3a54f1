"""The Mersenne Twister as loop IR: kernels that draw words from the state of a body and move it on,
and the numbers that words make. A state is laid out as in base/bits.py.

The words of all blocks stand in one row of memory, so that the recurrence is one plain loop:
raw[624 + j] comes from raw[j], raw[j + 1] and raw[j + 397], which is far enough behind to be done
by vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ... import te
from ...base.bits import KEPT, KEPT_UNITS, NEGATIVE, NONE, POSITION, POSITIVE, STATE_WORDS, WORDS
from ...base.dtype import DTYPES, FLOAT32, INT32, INT64, DType
from .._kernels import CHUNK, VECTOR, Body

UINT32, UINT64, FLOAT64 = DTYPES["uint32"], DTYPES["uint64"], DTYPES["float64"]
_STATE = (STATE_WORDS,)
_WORK = 20  # operations that a word costs


def _u32(value: int) -> te.Expr:
    return te.const(value, UINT32)


class Words(NamedTuple):
    """The words that follow a position."""

    raw: te.Buffer
    first: te.Expr

    def __call__(self, number: te.Expr) -> te.Expr:
        """A word, with its bits mixed."""
        y = self.raw[self.first + number]
        y = y ^ (y >> _u32(11))
        y = y ^ ((y << _u32(7)) & _u32(0x9D2C5680))
        y = y ^ ((y << _u32(15)) & _u32(0xEFC60000))
        return y ^ (y >> _u32(18))

    def float32(self, number: te.Expr) -> te.Expr:
        """24 bits as a number of [0, 1)."""
        bits = te.cast(self(number) & _u32(2**24 - 1), INT32)
        return te.cast(bits, FLOAT32) * 2.0**-24

    def float64(self, number: te.Expr) -> te.Expr:
        """53 bits of two words as a number of [0, 1)."""
        high = te.cast(te.cast(self(number * 2) & _u32(2**21 - 1), INT32), FLOAT64)
        low = te.cast(self(number * 2 + 1), FLOAT64)
        return (high * 2.0**32 + low) * 2.0**-53

    def real(self, dtype: DType, number: te.Expr) -> te.Expr:
        """A number of [0, 1) in float64 for that dtype, in float32 for others."""
        return self.float64(number) if dtype == FLOAT64 else self.float32(number)

    def uint64(self, number: te.Expr) -> te.Expr:
        """Two words as one of 64 bits."""
        high, low = (te.cast(self(number * 2 + i), UINT64) for i in range(2))
        return (high << te.const(32, UINT64)) | low


class Stream(NamedTuple):
    """Words that a body has drawn: positions of its state, of what it becomes, and of the words."""

    state: int
    moved: int
    raw: int
    size: int  # how many words are in memory

    @property
    def views(self) -> dict[int, tuple[int, ...]]:
        """What a kernel sees that reads words: `words` takes these buffers."""
        return {self.state: _STATE, self.raw: (self.size,)}


def words(state: te.Buffer, raw: te.Buffer) -> Words:
    return Words(raw, _position(state))


def _position(state: te.Buffer) -> te.Expr:
    return te.min(te.cast(state[POSITION], INT64), te.const(WORDS, INT64))


Used = Callable[["te.Buffer"], "te.ExprLike"]


def draw(body: Body, state: int, most: int, used: Used | None = None) -> Stream:
    """Adds the kernel that makes `most` words and moves the state on, by all of them or by how many
    of them `used(state)` says. New values of variables come right after the outputs: what the state
    becomes is the first thing that a body asks memory for."""
    blocks = 1 + (WORDS + most - 1) // WORDS if most else 1
    moved = body.temporary(_STATE, UINT32)
    stream = Stream(state, moved, body.temporary((blocks * WORDS,), UINT32), blocks * WORDS)
    views = {state: _STATE, moved: _STATE, stream.raw: (stream.size,)}
    with body.kernel(views, _WORK * stream.size) as (b, old, new, raw):
        _copy_block(b, old, raw, te.as_expr(0))
        with b.loop("group", (blocks - 1) * WORDS // VECTOR) as g, b.vector("lane", VECTOR) as lane:
            b.store(raw, WORDS + g * VECTOR + lane, next_word(raw, g * VECTOR + lane))
        _move(b, old, raw, new, te.as_expr(most if used is None else used(old)))
    return stream


def _copy_block(b: te.KernelBuilder, source: te.Buffer, target: te.Buffer, first: te.Expr) -> None:
    with b.loop("group", WORDS // VECTOR) as g, b.vector("lane", VECTOR) as lane:
        b.store(target, g * VECTOR + lane, source[first + g * VECTOR + lane])


def next_word(raw: te.Buffer, at: te.Expr) -> te.Expr:
    """The word that is one block after a place, its bits not mixed."""
    both = (raw[at] & _u32(1 << 31)) | (raw[at + 1] & _u32((1 << 31) - 1))
    return raw[at + 397] ^ (both >> _u32(1)) ^ ((both & _u32(1)) * _u32(0x9908B0DF))


def _move(b: te.KernelBuilder, old: te.Buffer, raw: te.Buffer, new: te.Buffer, used: te.Expr) -> None:
    """A new block is begun when a word of it is drawn, not before."""
    end = b.let("end", _position(old) + used)
    done = b.let("done", te.select(used > 0, (end - 1) // WORDS, te.const(0, INT64)) * WORDS)
    _copy_block(b, raw, new, done)
    b.store(new, POSITION, te.cast(end - done, UINT32))
    with b.loop("i", STATE_WORDS - KEPT) as i:
        b.store(new, KEPT + i, old[KEPT + i])


def each(b: te.KernelBuilder, count: int, write: Callable[[te.Expr], None]) -> None:
    """`write(number)` for all numbers below a count, in parallel and by vectors."""
    with b.parallel("task", -(-count // CHUNK)) as task:
        first = b.let("first", task * CHUNK)
        size = b.let("size", te.min(te.const(CHUNK, INT64), count - first))
        with b.loop("group", size // VECTOR) as g, b.vector("lane", VECTOR) as lane:
            write(first + g * VECTOR + lane)
        with b.loop("rest", size % VECTOR) as rest:
            write(first + size // VECTOR * VECTOR + rest)


# Normal numbers.


def box_muller(drawn: Callable[[te.Expr], te.Expr], dtype: DType, at: te.Expr, half: int) -> tuple[te.Expr, te.Expr]:
    """Two normal numbers of two evenly spread ones, which are `half` apart."""
    radius = te.sqrt(te.log(te.const(1, dtype) - drawn(at)) * te.const(-2, dtype))
    angle = drawn(at + half) * te.const(2 * math.pi, dtype)
    return radius * te.cos(angle), radius * te.sin(angle)


def pair(words: Words, number: te.Expr) -> tuple[te.Expr, te.Expr]:
    """The two normal numbers that a pair gives, as they are made one pair after the other."""
    turn, tail = words.float64(number * 2), words.float64(number * 2 + 1)
    radius = te.sqrt(te.log1p(-tail) * -2.0)
    angle = turn * (2.0 * math.pi)
    return radius * te.cos(angle), radius * te.sin(angle)


def has_kept(state: te.Buffer) -> te.Expr:
    """1 if a normal number is kept in the state, else 0."""
    return te.cast(state[KEPT].not_equal(_u32(NONE)), INT64)


def kept(state: te.Buffer) -> te.Expr:
    """The normal number that is kept: from the smallest part on, so that every sum is exact."""
    parts = [te.cast(state[KEPT + 1 + i], FLOAT64) * unit for i, unit in enumerate(KEPT_UNITS)]
    size = parts[2] + parts[1] + parts[0]
    return te.select(state[KEPT].equal(_u32(POSITIVE)), size, -size)


def keep(b: te.KernelBuilder, new: te.Buffer, value: te.Expr, really: te.Expr) -> None:
    """Keeps a normal number in the state, or clears what was there."""
    sign = te.select(value < 0.0, _u32(NEGATIVE), _u32(POSITIVE))
    b.store(new, KEPT, te.select(really, sign, _u32(NONE)))
    rest = b.let("rest", te.abs(value))
    for i, unit in enumerate(KEPT_UNITS):
        part = b.let("part", te.floor(rest * (1 / unit)))
        b.store(new, KEPT + 1 + i, te.select(really, te.cast(part, UINT32), _u32(0)))
        rest = b.let("rest", rest - part * unit)
