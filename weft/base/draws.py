"""Random numbers made of random bits, the same numbers as PyTorch's: a Mersenne Twister, a count
and a dtype come in, a numpy array goes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bits import MersenneTwister
from .dtype import BOOL, DTYPES, DType, is_float, is_integer

Array = NDArray[Any]
_FLOAT32, _FLOAT64 = DTYPES["float32"], DTYPES["float64"]
BLOCK = 16  # from this count on normal numbers are made in blocks
DOUBLE_SPAN = 2**28  # from here on whole numbers take 64 bits each
_FEW = 64


# Evenly spread numbers.


def uniform(source: MersenneTwister, count: int, dtype: DType, low: float = 0.0, high: float = 1.0) -> Array:
    """Numbers evenly spread over [low, high): 24 bits of a word, or 53 bits of two if float64."""
    if dtype == _FLOAT64:
        return scaled(uniform64(source, count), high - low, low)
    drawn = uniform32(source, count)
    if dtype == _FLOAT32 and (low, high) == (0.0, 1.0):
        return drawn
    start, stop = np.float32(low), np.float32(high)
    made = scaled(drawn, float(stop - start), float(start)).astype(dtype)
    if dtype != _FLOAT32:  # rounding may reach the end, which is not part of the range
        made[made >= dtype.type(stop)] = dtype.type(start)
    return made


def uniform32(source: MersenneTwister, count: int) -> NDArray[np.float32]:
    """float32 numbers of [0, 1)."""
    return source.numbers(count)


def uniform64(source: MersenneTwister, count: int) -> NDArray[np.float64]:
    """float64 numbers of [0, 1)."""
    words = source.double_words(count)
    words &= np.uint64(2**53 - 1)
    return words.astype(np.float64) * 2.0**-53


def scaled(values: Array, factor: float, offset: float) -> Array:
    """values * factor + offset rounded once, as a fused instruction does it."""
    if (factor, offset) == (1, 0):
        return values
    if values.dtype != _FLOAT64:
        exact = values.astype(_FLOAT64) * float(factor) + float(offset)
        with np.errstate(over="ignore"):
            return exact.astype(values.dtype)
    product = values * factor
    lost = _product_error(values, factor, product)
    total = product + offset
    back = total - product
    lost += (product - (total - back)) + (offset - back)
    return np.where(np.isfinite(total), total + lost, total)


def _product_error(values: Array, factor: float, product: Array) -> Array:
    """What rounding took away from values * factor (Dekker's splitting into halves)."""
    split = 2.0**27 + 1
    high = values * split - (values * split - values)
    most = factor * split - (factor * split - factor)
    low, least = values - high, factor - most
    lost: Array = low * least - (((product - high * most) - low * most) - high * least)
    return lost


# Normal numbers, by Box and Muller: two from two evenly spread ones.


def normal(
    source: MersenneTwister, count: int, dtype: DType, mean: float = 0.0, std: float = 1.0, in_order: bool = True
) -> Array:
    """Numbers of a normal distribution. Sixteen and more of them, if they go to memory in order,
    are made in blocks; else one pair after the other."""
    if count < BLOCK or not in_order:
        made = scaled(normal_pairs(source, count), std, mean)
        with np.errstate(over="ignore"):
            return made.astype(dtype)
    return _normal_blocks(source, count, dtype, mean, std)


def normal_pairs(source: MersenneTwister, count: int) -> NDArray[np.float64]:
    """Standard normal numbers, pair by pair; an odd one is kept for the next draw."""
    kept = [] if source.kept is None or count == 0 else [source.kept]
    pairs = (count - len(kept) + 1) // 2
    drawn = uniform64(source, 2 * pairs).reshape(pairs, 2)
    made = _few_pairs(drawn) if pairs < _FEW else _many_pairs(drawn)
    both = np.concatenate([kept, made])
    if count:
        source.kept = float(both[count]) if both.size > count else None
    return both[:count]


def _many_pairs(drawn: Array) -> Array:
    radius = np.sqrt(-2.0 * np.log1p(-drawn[:, 1]))
    angle = 2.0 * math.pi * drawn[:, 0]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)


def _few_pairs(drawn: Array) -> Array:
    """The same by the C library, so that not even the last bit differs from PyTorch."""
    made = []
    for turn, tail in drawn.tolist():
        radius = math.sqrt(-2.0 * math.log1p(-tail))
        angle = 2.0 * math.pi * turn
        made += [radius * math.cos(angle), radius * math.sin(angle)]
    return np.array(made)


def drawn_in_blocks(count: int, dtype: DType) -> int:
    """How many evenly spread numbers the blocks take before the last sixteen are drawn once more:
    PyTorch fills the whole of a float32 or float64 tensor before it starts."""
    return count if dtype in (_FLOAT32, _FLOAT64) else count - count % BLOCK


def _normal_blocks(source: MersenneTwister, count: int, dtype: DType, mean: float, std: float) -> Array:
    """Blocks of sixteen; where the count is no multiple, the last sixteen are drawn once more."""
    wide = dtype if dtype in (_FLOAT32, _FLOAT64) else _FLOAT32
    drawn = uniform(source, drawn_in_blocks(count, dtype), wide)
    whole = count - count % BLOCK
    made = np.empty(count, dtype)
    with np.errstate(over="ignore"):
        made[:whole] = _box_muller(drawn[:whole], mean, std).astype(dtype)
        if whole < count:
            made[-BLOCK:] = _box_muller(uniform(source, BLOCK, wide), mean, std).astype(dtype)
    return made


def _box_muller(drawn: Array, mean: float, std: float) -> Array:
    """Of each sixteen uniform numbers, the first eight give radii and the others angles."""
    blocks = drawn.reshape(-1, 2, BLOCK // 2)
    real = drawn.dtype.type
    radius = np.sqrt(real(-2) * np.log(real(1) - blocks[:, 0]))
    angle = real(2 * math.pi) * blocks[:, 1]
    made = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return scaled(made, std, mean).reshape(-1)


# Whole numbers.


def integers(source: MersenneTwister, count: int, low: int, high: int) -> NDArray[np.uint64]:
    """Whole numbers of [low, high), modulo 2**64: a word's rest, of 64 bits if the range is 2**28
    or more."""
    span = high - low
    words = source.double_words(count) if span >= DOUBLE_SPAN else source.words(count)
    if span < 2**64:
        words %= np.uint64(span)
    words += np.uint64(low % 2**64)
    return words


def integer_elements(source: MersenneTwister, count: int, dtype: DType, low: int, high: int) -> Array:
    """Whole numbers of [low, high) as elements of a dtype."""
    low, high = reached(dtype, low, high)
    return as_elements(integers(source, count, low, high), dtype)


def as_elements(words: NDArray[np.uint64], dtype: DType) -> Array:
    """Whole numbers modulo 2**64 as elements of a dtype."""
    if is_float(dtype):
        return words.view(np.int64).astype(_FLOAT64).astype(dtype)
    return words.view(np.int64) if dtype == DTYPES["int64"] else words.astype(dtype)


def whole_limits(dtype: DType) -> tuple[int, int]:
    """The least and the largest whole number that may be asked for in a dtype."""
    if dtype == BOOL:
        return 0, 1
    if is_integer(dtype):
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    most = int(min(largest(dtype), 2**63))
    return -most, most


def reached(dtype: DType, low: int, high: int) -> tuple[int, int]:
    """Bounds, those of a float moved inwards to its elements where they are rounded past them."""
    if not is_float(dtype):
        return low, high
    return _moved(low, dtype, -1), _moved(high, dtype, 1)


def _moved(bound: int, dtype: DType, step: int) -> int:
    rounded = np.float64(bound - step).astype(dtype)
    if (int(rounded) - bound) * step >= (0 if step > 0 else 1):
        return int(np.nextafter(rounded, dtype.type(0)).item())
    return bound


def largest(dtype: DType) -> float:
    """The largest finite number of a float dtype."""
    return {"bfloat16": 3.3895313892515355e38, "float16": 65504.0}.get(
        dtype.name, float(np.finfo(_FLOAT32 if dtype == _FLOAT32 else _FLOAT64).max)
    )


# Choices.


def bernoulli(source: MersenneTwister, count: int, p: float) -> NDArray[np.bool_]:
    """True with one probability: 53 bits, as a number of [0, 1), are below it."""
    words = source.double_words(count)
    words &= np.uint64(2**53 - 1)
    return words < np.uint64(math.ceil(p * 2.0**53))


def dropout_mask(source: MersenneTwister, count: int, dtype: DType, rate: float) -> Array:
    """0 for a random share, else 1 / (1 - rate). Nothing is drawn where nothing is left open."""
    if rate in (0, 1):
        return np.full(count, 1 - rate, dtype)
    made: Array = bernoulli(source, count, 1 - rate).astype(dtype)
    made *= keep_scale(dtype, rate)
    return made


def keep_scale(dtype: DType, rate: float) -> Any:
    """1 / (1 - rate) in a dtype, the divisor rounded first; for 16-bit ones in float32."""
    wide = _FLOAT64 if dtype == _FLOAT64 else _FLOAT32
    return dtype.type(wide.type(1) / wide.type(1 - rate)) if rate < 1 else dtype.type(0)
