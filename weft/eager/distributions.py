"""Distributions of random numbers, the same numbers as PyTorch's from the same seed: a generator, a
count and a dtype come in, a numpy array goes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.dtype import BOOL, DTYPES, DType, is_float, is_integer
from ..base.errors import RunError, Unsupported
from .generator import Generator
from .shuffle import exchanged

Array = NDArray[Any]
_FLOAT32, _FLOAT64 = DTYPES["float32"], DTYPES["float64"]
_FEW = 64


def uniform(
    generator: Generator, count: int, dtype: DType, low: float = 0.0, high: float = 1.0
) -> Array:
    """Numbers evenly spread over [low, high): 24 bits of a word, or 53 bits of two if float64."""
    _need_float("uniform_", dtype)
    if not low <= high:
        raise RunError(
            "uniform_ expects to return a [from, to) range, "
            f"but found from={_plain(low)} > to={_plain(high)}"
        )
    if not high - low <= _largest(dtype):
        raise RunError(
            "uniform_ expects to-from <= std::numeric_limits<scalar_t>::max(), "
            f"but found to={_plain(high)} and from={_plain(low)}"
        )
    if dtype == _FLOAT64:
        return _scaled(_uniform64(generator, count), high - low, low)
    drawn = _uniform32(generator, count)
    if dtype == _FLOAT32 and (low, high) == (0.0, 1.0):
        return drawn
    start, stop = np.float32(low), np.float32(high)
    made = _scaled(drawn, float(stop - start), float(start)).astype(dtype)
    if dtype != _FLOAT32:  # rounding may reach the end, which is not part of the range
        made[made.astype(_FLOAT32) >= stop] = dtype.type(start)
    return made


def _scaled(values: Array, factor: float, offset: float) -> Array:
    """values * factor + offset rounded once, as a fused instruction does it."""
    if values.dtype != _FLOAT64:
        exact = values.astype(_FLOAT64) * float(factor) + float(offset)
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


def _uniform32(generator: Generator, count: int) -> NDArray[np.float32]:
    words = generator.words(count)
    words &= np.uint64(2**24 - 1)
    return words.astype(np.float32) * np.float32(2.0**-24)


def _uniform64(generator: Generator, count: int) -> NDArray[np.float64]:
    words = generator.double_words(count)
    words &= np.uint64(2**53 - 1)
    return words.astype(np.float64) * 2.0**-53


def normal(
    generator: Generator,
    count: int,
    dtype: DType,
    mean: float = 0.0,
    std: float = 1.0,
    in_order: bool = True,
) -> Array:
    """Numbers of a normal distribution. Sixteen and more of them, if they go to memory in order,
    are made in blocks; else one pair after the other."""
    _need_float("normal_", dtype)
    if not std >= 0.0:
        raise RunError(f"normal expects std >= 0.0, but found std {_plain(std)}")
    if count < 16 or not in_order:
        made = _scaled(normal_pairs(generator, count), std, mean)
        with np.errstate(over="ignore"):
            return made.astype(dtype)
    with generator._lock:
        return _normal_blocks(generator, count, dtype, mean, std)


def normal_pairs(generator: Generator, count: int) -> NDArray[np.float64]:
    """Standard normal numbers by Box and Muller, two from two uniform ones; an odd one is kept."""
    with generator._lock:
        kept = [] if generator._normal is None or count == 0 else [generator._normal]
        pairs = (count - len(kept) + 1) // 2
        drawn = _uniform64(generator, 2 * pairs).reshape(pairs, 2)
        made = _few_pairs(drawn) if pairs < _FEW else _many_pairs(drawn)
        both = np.concatenate([kept, made])
        if count:
            generator._normal = float(both[count]) if both.size > count else None
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


def _normal_blocks(
    generator: Generator, count: int, dtype: DType, mean: float, std: float
) -> Array:
    """Blocks of sixteen; where the count is no multiple, the last sixteen are drawn once more."""
    rest = count % 16
    whole = count - rest
    wide = dtype if dtype in (_FLOAT32, _FLOAT64) else _FLOAT32
    drawn = uniform(generator, whole, wide)
    if rest:
        if wide == dtype:
            uniform(generator, rest, wide)  # PyTorch fills the whole tensor before it starts
        last = uniform(generator, 16, wide)
        made = np.empty(count, dtype)
        made[:whole] = _box_muller(drawn, mean, std).astype(dtype)
        made[-16:] = _box_muller(last, mean, std).astype(dtype)
        return made
    with np.errstate(over="ignore"):
        return _box_muller(drawn, mean, std).astype(dtype, copy=False)


def _box_muller(drawn: Array, mean: float, std: float) -> Array:
    """Of each sixteen uniform numbers, the first eight give radii and the others angles."""
    blocks = drawn.reshape(-1, 2, 8)
    real = drawn.dtype.type
    radius = np.sqrt(real(-2) * np.log(real(1) - blocks[:, 0]))
    angle = real(2 * math.pi) * blocks[:, 1]
    made = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return _scaled(made, std, mean).reshape(-1)


def integers(generator: Generator, count: int, low: int, high: int) -> NDArray[np.uint64]:
    """Whole numbers of [low, high), modulo 2**64: a word's rest, of 64 bits if the range is 2**28
    or more."""
    span = high - low
    if span <= 0:
        raise RunError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    words = generator.double_words(count) if span >= 2**28 else generator.words(count)
    if span < 2**64:
        words %= np.uint64(span)
    return words + np.uint64(low % 2**64)


def random_between(
    generator: Generator, count: int, dtype: DType, low: int, high: int | None
) -> Array:
    """Whole numbers of [low, high) as elements of a dtype; no high means all that it can hold."""
    if high is None:
        high = _past_largest(dtype)
    else:
        _check_bounds(dtype, low, high)
    if is_float(dtype):
        low, high = _reached(low, dtype, -1), _reached(high, dtype, 1)
    return _as_elements(integers(generator, count, low, high), dtype)


def random_full(generator: Generator, count: int, dtype: DType) -> Array:
    """Whole numbers of all that a dtype holds from 0 upwards, exactly if it is a float."""
    span = _past_largest(dtype)
    wide = dtype in (_FLOAT64, DTYPES["int64"], DTYPES["uint64"])
    words = generator.double_words(count) if wide else generator.words(count)
    return _as_elements(words % np.uint64(span) if span < 2**64 else words, dtype)


def _as_elements(words: NDArray[np.uint64], dtype: DType) -> Array:
    if is_float(dtype):
        return words.view(np.int64).astype(_FLOAT64).astype(dtype)
    return words.astype(dtype)


def _past_largest(dtype: DType) -> int:
    """One more than the largest whole number up to which all are elements of a dtype."""
    if dtype == BOOL:
        return 2
    if is_integer(dtype):
        return int(np.iinfo(dtype).max) + 1
    return int(2 ** digits(dtype)) + 1


def digits(dtype: DType) -> int:
    """The number of bits of a float's mantissa, with the one that is not written."""
    known: dict[str, int] = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
    return known[dtype.name]


def _check_bounds(dtype: DType, low: int, high: int) -> None:
    if low >= high:
        raise RunError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if dtype == BOOL:
        least, most = 0, 1
    elif is_integer(dtype):
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    else:
        most = int(min(_largest(dtype), 2**63))
        least = -most
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RunError(f"{name} is out of bounds for {dtype.name}")


def _reached(bound: int, dtype: DType, step: int) -> int:
    """A bound, moved inwards to an element if the whole number inside it is rounded past it."""
    rounded = np.float64(bound - step).astype(dtype)
    if (int(rounded) - bound) * step >= (0 if step > 0 else 1):
        return int(np.nextafter(rounded, dtype.type(0)).item())
    return bound


def permutation(generator: Generator, count: int) -> NDArray[np.int64]:
    """The numbers below a count in random order, by Fisher's and Yates's exchange of each with one
    that comes after it."""
    if count < 2:
        return np.arange(count)
    ahead = np.arange(count, 1, -1, dtype=np.uint64)
    draw = generator.words if count < 2**32 // 20 else generator.double_words
    words = draw(count - 1)
    partners = (words % ahead).astype(np.int64) + np.arange(count - 1)
    return exchanged(partners)


def bernoulli(generator: Generator, count: int, p: float) -> NDArray[np.bool_]:
    """True with one probability."""
    if not 0 <= p <= 1:
        raise RunError(f"bernoulli_ expects p to be in [0, 1], but got p={_plain(p)}")
    return _uniform64(generator, count) < p


def bernoulli_each(generator: Generator, p: Array) -> NDArray[np.bool_]:
    """True with the probability that each element says."""
    flat = p.reshape(-1)
    if not np.all((flat >= 0) & (flat <= 1)):
        raise RunError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    if p.dtype == _FLOAT64:
        made = _uniform64(generator, flat.size) < flat
    else:
        made = _uniform32(generator, flat.size) < flat.astype(_FLOAT32)
    return made.reshape(p.shape)


def exponential(generator: Generator, count: int, dtype: DType, rate: float = 1.0) -> Array:
    """-log(1 - u) / rate"""
    _need_float("exponential_", dtype)
    if not rate > 0:
        raise RunError(f"exponential_ expects lambda > 0.0, but found lambda={_plain(rate)}")
    drawn = _uniform64(generator, count)
    return (-1.0 / rate * np.log1p(-drawn)).astype(dtype)


def cauchy(
    generator: Generator, count: int, dtype: DType, median: float = 0.0, sigma: float = 1.0
) -> Array:
    """median + sigma * tan(pi * (u - 1/2))"""
    _need_float("cauchy_", dtype)
    if not sigma > 0:
        raise RunError(f"cauchy_ expects sigma > 0.0, but found sigma={_plain(sigma)}")
    drawn = _uniform64(generator, count)
    with np.errstate(over="ignore"):
        return (median + sigma * np.tan(math.pi * (drawn - 0.5))).astype(dtype)


def log_normal(
    generator: Generator, count: int, dtype: DType, mean: float = 1.0, std: float = 2.0
) -> Array:
    """exp of a normal number"""
    _need_float("log_normal_", dtype)
    if not std > 0:
        raise RunError(f"log_normal_ expects std > 0.0, but found std={_plain(std)}")
    with np.errstate(over="ignore"):
        return np.exp(normal_pairs(generator, count) * std + mean).astype(dtype)


def geometric(generator: Generator, count: int, dtype: DType, p: float) -> Array:
    """ceil(log(u) / log(1 - p)): how many trials the first success takes"""
    if not 0 < p < 1:
        raise RunError(f"geometric_ expects p to be in (0, 1), but got p={_plain(p)}")
    drawn = _uniform64(generator, count)
    with np.errstate(divide="ignore"):
        return np.ceil(np.log(drawn) / math.log(1.0 - p)).astype(dtype)


def multinomial(
    generator: Generator, weights: Array, samples: int, replacement: bool = False
) -> NDArray[np.int64]:
    """For each row of weights, the positions of that many samples."""
    kind = weights.dtype
    _check_weights(weights, samples, replacement)
    if not replacement or samples == 1:
        drawn = exponential(generator, weights.size, kind).reshape(weights.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = weights / drawn
        return np.argsort(-score, axis=-1, kind="stable")[..., :samples]
    rows = weights.reshape(-1, weights.shape[-1])
    shares = _shares(rows)
    each = _uniform64(generator, rows.shape[0] * samples).reshape(-1, samples)
    found = [np.searchsorted(row, some) for row, some in zip(shares.astype(_FLOAT64), each)]
    return np.asarray(found, np.int64).reshape(*weights.shape[:-1], samples)


def _shares(rows: Array) -> Array:
    """The growing sums of each row, brought to 1 at the end."""
    sums = np.cumsum(rows.astype(_FLOAT64 if rows.dtype == _FLOAT64 else _FLOAT32), axis=1)
    whole = sums[:, -1:]
    off = (whole > 1.00001) | (whole < 0.99999)
    shares = np.where(off, sums / whole, sums)
    shares[:, -1] = 1
    return shares


def _check_weights(weights: Array, samples: int, replacement: bool) -> None:
    if weights.ndim not in (1, 2):
        raise RunError("prob_dist must be 1 or 2 dim")
    if not is_float(weights.dtype):
        raise RunError(
            f"multinomial only supports floating-point dtypes for input, got: {weights.dtype.name}"
        )
    if samples <= 0:
        raise RunError("cannot sample n_sample <= 0 samples")
    if not replacement and samples > weights.shape[-1]:
        raise RunError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise RunError("probability tensor contains either `inf`, `nan` or element < 0")
    if not np.all(weights.sum(axis=-1) > 0):
        raise RunError("invalid multinomial distribution (sum of probabilities <= 0)")


def _need_float(name: str, dtype: DType) -> None:
    if not is_float(dtype):
        raise Unsupported(f"{name} is not implemented for {dtype.name}")


def _largest(dtype: DType) -> float:
    return {"bfloat16": 3.3895313892515355e38, "float16": 65504.0}.get(
        dtype.name, float(np.finfo(_FLOAT32 if dtype == _FLOAT32 else _FLOAT64).max)
    )


def _plain(number: float) -> str:
    return f"{number:g}"
