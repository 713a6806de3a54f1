"""Distributions of random numbers, the same numbers as PyTorch's from the same seed: a generator, a
count and a dtype come in, a numpy array goes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base import draws
from ...base.dtype import BOOL, DTYPES, DType, is_complex, is_float, is_integer
from ...base.errors import RunError, Unsupported
from .. import native
from ..native.thresholds import FROM
from ..native.twister import NativeTwister
from .generator import Generator
from .shuffle import exchanged

Array = NDArray[Any]
FEW = 8
_FLOAT32, _FLOAT64 = DTYPES["float32"], DTYPES["float64"]


def uniform(generator: Generator, count: int, dtype: DType, low: float = 0.0, high: float = 1.0) -> Array:
    """Numbers evenly spread over [low, high); so are both parts of complex ones."""
    if is_complex(dtype):
        return uniform(generator, 2 * count, _part_of(dtype), low, high).view(dtype)
    _need_float("uniform_", dtype)
    if not low <= high:
        raise RunError(
            f"uniform_ expects to return a [from, to) range, but found from={_plain(low)} > to={_plain(high)}"
        )
    if not high - low <= draws.largest(dtype):
        raise RunError(
            "uniform_ expects to-from <= std::numeric_limits<scalar_t>::max(), "
            f"but found to={_plain(high)} and from={_plain(low)}"
        )
    with generator._lock:
        return draws.uniform(generator._bits, count, dtype, low, high)


def normal(
    generator: Generator, count: int, dtype: DType, mean: float = 0.0, std: float = 1.0, in_order: bool = True
) -> Array:
    """Numbers of a normal distribution; how they are made depends on whether they go to memory in
    order. Both parts of complex ones together have the deviation."""
    if not std >= 0.0:
        raise RunError(f"normal expects std >= 0.0, but found std {_plain(std)}")
    if is_complex(dtype):
        parts = (2 * count, _part_of(dtype), mean, std / math.sqrt(2), in_order)
        return normal(generator, *parts).view(dtype)
    if not count:
        return np.empty(0, dtype)
    _need_float("normal_", dtype)
    with generator._lock:
        bits = generator._bits
        many = in_order and count >= FROM.drawn and dtype in (_FLOAT32, _FLOAT64)
        if many and isinstance(bits, NativeTwister):
            return native.normal_blocks(bits, count, dtype, mean, std)
        return draws.normal(bits, count, dtype, mean, std, in_order)


def random_between(generator: Generator, count: int, dtype: DType, low: int, high: int | None) -> Array:
    """Whole numbers of [low, high) as elements of a dtype; no high means all that it can hold."""
    if high is None:
        high = _past_largest(dtype)
        _check_order(low, high)
    else:
        _check_order(low, high)
        _check_bounds(dtype, low, high)
    with generator._lock:
        return draws.integer_elements(generator._bits, count, dtype, low, high)


def random_full(generator: Generator, count: int, dtype: DType) -> Array:
    """Whole numbers of all that a dtype holds from 0 upwards, exactly if it is a float."""
    span = _past_largest(dtype)
    wide = dtype in (_FLOAT64, DTYPES["int64"], DTYPES["uint64"])
    words = generator.double_words(count) if wide else generator.words(count)
    return draws.as_elements(words % np.uint64(span) if span < 2**64 else words, dtype)


def _past_largest(dtype: DType) -> int:
    """One more than the largest whole number up to which all are elements of a dtype."""
    if dtype == BOOL:
        return 2
    if is_integer(dtype):
        return int(np.iinfo(dtype).max) + 1
    _need_float("random_", dtype)
    return int(2 ** digits(dtype)) + 1


def digits(dtype: DType) -> int:
    """The number of bits of a float's mantissa, with the one that is not written."""
    known: dict[str, int] = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
    return known[dtype.name]


def _check_order(low: int, high: int) -> None:
    if low >= high:
        raise RunError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")


def _check_bounds(dtype: DType, low: int, high: int) -> None:
    if is_complex(dtype):
        raise RunError("random_ handles only integral, floating-point and boolean types")
    least, most = draws.whole_limits(dtype)
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RunError(f"{name} is out of bounds for {dtype.name}")


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
    with generator._lock:
        return draws.bernoulli(generator._bits, count, p)


def bernoulli_each(generator: Generator, p: Array) -> NDArray[np.bool_]:
    """True with the probability that each element says."""
    flat = p.reshape(-1)
    if not np.all((flat >= 0) & (flat <= 1)):
        raise RunError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    if p.dtype == _FLOAT64:
        made = draws.uniform64(generator._bits, flat.size) < flat
    else:
        made = draws.uniform32(generator._bits, flat.size) < flat.astype(_FLOAT32)
    return made.reshape(p.shape)


def exponential(generator: Generator, count: int, dtype: DType, rate: float = 1.0) -> Array:
    """-log(1 - u) / rate"""
    if not rate > 0:
        raise RunError(f"exponential_ expects lambda > 0.0, but found lambda={_plain(rate)}")
    if not count:
        return np.empty(0, dtype)
    _need_float("exponential_", dtype)
    drawn = draws.uniform64(generator._bits, count)
    return (-1.0 / rate * np.log1p(-drawn)).astype(dtype)


def cauchy(generator: Generator, count: int, dtype: DType, median: float = 0.0, sigma: float = 1.0) -> Array:
    """median + sigma * tan(pi * (u - 1/2))"""
    _need_float("cauchy_", dtype)
    if not sigma > 0:
        raise RunError(f"cauchy_ expects sigma > 0.0, but found sigma={_plain(sigma)}")
    drawn = draws.uniform64(generator._bits, count)
    with np.errstate(over="ignore"):
        return (median + sigma * np.tan(math.pi * (drawn - 0.5))).astype(dtype)


def log_normal(generator: Generator, count: int, dtype: DType, mean: float = 1.0, std: float = 2.0) -> Array:
    """exp of a normal number"""
    if not std > 0:
        raise RunError(f"log_normal_ expects std > 0.0, but found std={_plain(std)}")
    if not count:
        return np.empty(0, dtype)
    _need_float("log_normal_", dtype)
    with generator._lock, np.errstate(over="ignore"):
        return np.exp(draws.normal_pairs(generator._bits, count) * std + mean).astype(dtype)


def geometric(generator: Generator, count: int, dtype: DType, p: float) -> Array:
    """ceil(log(u) / log(1 - p)): how many trials the first success takes"""
    if not 0 < p < 1:
        raise RunError(f"geometric_ expects p to be in (0, 1), but got p={_plain(p)}")
    if count and not (is_float(dtype) or is_integer(dtype)):
        raise Unsupported(f"geometric_ is not implemented for {dtype.name}")
    drawn = draws.uniform64(generator._bits, count)
    with np.errstate(divide="ignore"):
        return np.ceil(np.log(drawn) / math.log(1.0 - p)).astype(dtype)


def multinomial(generator: Generator, weights: Array, samples: int, replacement: bool = False) -> NDArray[np.int64]:
    """For each row of weights, the positions of that many samples."""
    kind = weights.dtype
    _check_weights(weights, samples, replacement)
    if not replacement or samples == 1:
        drawn = exponential(generator, weights.size, kind).reshape(weights.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = weights / drawn
        if FEW * samples < score.shape[-1]:  # the others need not be put in order
            first = np.sort(np.argpartition(-score, samples - 1, axis=-1)[..., :samples], axis=-1)
            order = np.argsort(-np.take_along_axis(score, first, -1), axis=-1, kind="stable")
            return np.take_along_axis(first, order, -1)
        best = np.argsort(-score, axis=-1, kind="stable")[..., :samples]
        return np.ascontiguousarray(best)
    rows = weights.reshape(-1, weights.shape[-1])
    shares = _shares(rows)
    each = draws.uniform64(generator._bits, rows.shape[0] * samples).reshape(-1, samples)
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
        raise RunError(f"multinomial only supports floating-point dtypes for input, got: {weights.dtype.name}")
    if samples <= 0:
        raise RunError("cannot sample n_sample <= 0 samples")
    if not replacement and samples > weights.shape[-1]:
        raise RunError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise RunError("probability tensor contains either `inf`, `nan` or element < 0")
    if not np.all(weights.sum(axis=-1) > 0):
        raise RunError("invalid multinomial distribution (sum of probabilities <= 0)")


def _part_of(dtype: DType) -> DType:
    """What both parts of a complex number are."""
    return _FLOAT32 if dtype == DTYPES["complex64"] else _FLOAT64


def _need_float(name: str, dtype: DType) -> None:
    if not is_float(dtype):
        raise Unsupported(f"{name} is not implemented for {dtype.name}")


def _plain(number: float) -> str:
    return f"{number:g}"
