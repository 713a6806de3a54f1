"""Rows: tensors of random numbers, and the methods that fill a tensor with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.dtype import BOOL, DTYPES, DType, is_complex, is_float
from ..base.errors import InvalidType, RunError, Unsupported
from . import distributions
from .convert import convert
from .generator import given
from .inplace import check_writable, write
from .poisson import poisson as poisson_numbers
from .rows_create import kind_of, made, shape_of
from .table import row
from .tensor import Array, Tensor, wrap

Maker = Callable[[int, bool], Array]  # a count, and whether they go to memory in order


def _uniform(generator: Any, shape: tuple[int, ...], kind: DType) -> Array:
    if is_complex(kind):
        parts = _uniform(generator, (*shape, 2), _part(kind))
        return parts.view(kind).reshape(shape)
    return distributions.uniform(given(generator), math.prod(shape), kind).reshape(shape)


def _normal(generator: Any, shape: tuple[int, ...], kind: DType) -> Array:
    if is_complex(kind):  # both parts together have a deviation of 1
        count = 2 * math.prod(shape)
        deviation = math.sqrt(0.5)
        parts = distributions.normal(given(generator), count, _part(kind), 0.0, deviation)
        return parts.view(kind).reshape(shape)
    return distributions.normal(given(generator), math.prod(shape), kind).reshape(shape)


def _part(kind: DType) -> DType:
    return DTYPES["float32" if kind == DTYPES["complex64"] else "float64"]


@row(method=False, out=True)
def rand(*size: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers evenly spread over [0, 1)"""
    shape = shape_of("rand", size or options.pop("size", ()))
    return made(_uniform(generator, shape, kind_of(dtype)), options)


@row(method=False, out=True)
def randn(*size: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers of the standard normal distribution"""
    shape = shape_of("randn", size or options.pop("size", ()))
    return made(_normal(generator, shape, kind_of(dtype)), options)


@row(method=False, out=True)
def randint(*bounds: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Whole numbers of [low, high): randint([low,] high, size)"""
    given_bounds = list(bounds)
    size = options.pop("size", None)
    if size is None and given_bounds and isinstance(given_bounds[-1], (tuple, list)):
        size = given_bounds.pop()
    named = [options.pop(name) for name in ("low", "high") if name in options]
    given_bounds += named
    if size is None or len(given_bounds) not in (1, 2):
        raise InvalidType("randint() takes ([low,] high, size)")
    low, high = (0, given_bounds[0]) if len(given_bounds) == 1 else given_bounds
    shape = shape_of("randint", (tuple(size),))
    kind = kind_of(dtype, DTYPES["int64"])
    return made(_between(generator, shape, kind, int(low), int(high)), options)


def _between(
    generator: Any, shape: tuple[int, ...], kind: DType, low: int, high: int | None
) -> Array:
    count = math.prod(shape)
    return distributions.random_between(given(generator), count, kind, low, high).reshape(shape)


@row(method=False, out=True)
def randperm(n: int, *, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """The whole numbers below n in random order"""
    (count,) = shape_of("randperm", (n,))
    kind = kind_of(dtype, DTYPES["int64"])
    if kind == BOOL or is_complex(kind):
        raise Unsupported(f"randperm is not implemented for {kind.name}")
    most = 2 ** distributions.digits(kind) if is_float(kind) else int(np.iinfo(kind).max) + 1
    if count > most:
        raise RunError(f"value cannot be converted to type {kind.name} without overflow")
    return made(distributions.permutation(given(generator), count).astype(kind), options)


@row(method=False)
def rand_like(input: Tensor, *, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers evenly spread over [0, 1), in the shape of another tensor"""
    return made(
        _uniform(generator, input._array.shape, kind_of(dtype, input._array.dtype)), options
    )


@row(method=False)
def randn_like(
    input: Tensor, *, generator: Any = None, dtype: Any = None, **options: Any
) -> Tensor:
    """Numbers of the standard normal distribution, in the shape of another tensor"""
    return made(_normal(generator, input._array.shape, kind_of(dtype, input._array.dtype)), options)


@row(method=False)
def randint_like(
    input: Tensor, *bounds: int, generator: Any = None, dtype: Any = None, **options: Any
) -> Tensor:
    """Whole numbers of [low, high), in the shape of another tensor"""
    named = [options.pop(name) for name in ("low", "high") if name in options]
    low, high = (0, *bounds, *named)[-2:]
    shape = input._array.shape
    return made(
        _between(generator, shape, kind_of(dtype, input._array.dtype), int(low), int(high)), options
    )


@row(method=False, out=True)
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **options: Any
) -> Tensor:
    """Normal numbers of a mean and a deviation, each one number or one for each element"""
    if size is not None:
        shape = shape_of("normal", (tuple(size),))
        kind = kind_of(options.pop("dtype", None))
        count = math.prod(shape)
        drawn = distributions.normal(given(generator), count, kind, float(mean), float(std))
        return made(drawn.reshape(shape), options)
    means, deviations = (x._array if isinstance(x, Tensor) else x for x in (mean, std))
    if not np.all(np.asarray(deviations) >= 0):
        raise RunError("normal expects all elements of std >= 0.0")
    first = means if isinstance(means, np.ndarray) else deviations
    if not isinstance(first, np.ndarray):
        raise InvalidType("normal() of two numbers takes a size")
    shape = np.broadcast_shapes(np.shape(means), np.shape(deviations))
    drawn = _normal(generator, shape, first.dtype)
    return made((drawn * deviations + means).astype(first.dtype), options)


@row(out=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element of the input says, or with p; else 0"""
    array = input._array
    if p is not None:
        drawn = distributions.bernoulli(given(generator), array.size, p).reshape(array.shape)
    elif is_float(array.dtype):
        drawn = distributions.bernoulli_each(given(generator), array)
    else:
        raise Unsupported(f"bernoulli is not implemented for {array.dtype.name}")
    return wrap(drawn.astype(array.dtype))


@row(out=True)
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """The positions of samples that are drawn by weight, from each row"""
    weights = np.ascontiguousarray(input._array)
    return wrap(distributions.multinomial(given(generator), weights, num_samples, replacement))


@row
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """A Poisson number for every rate in the input"""
    if not is_float(input._array.dtype):
        raise Unsupported(f"poisson is not implemented for {input._array.dtype.name}")
    return wrap(poisson_numbers(given(generator), input._array).astype(input._array.dtype))


def _fill(target: Tensor, maker: Maker) -> Tensor:
    """Writes random numbers to a tensor, in the order in which its elements lie in memory."""
    check_writable(target)
    array = target._array
    if array.flags.c_contiguous:
        return write(target, wrap(maker(array.size, True).reshape(array.shape)))
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    values = maker(array.size, False).reshape([array.shape[axis] for axis in order])
    return write(target, wrap(values.transpose(np.argsort(order))))


def _bounds(names: str, bounds: tuple[Any, ...], named: dict[str, Any], count: int) -> list[Any]:
    """Positional and named bounds; `from` can be named only this way."""
    found = list(bounds)
    for name in names.split()[len(found) :]:
        if name in named:
            found.append(named.pop(name))
    if named or len(found) > count:
        raise InvalidType(f"expected at most {names}, got {[*bounds, *named]}")
    return found


@row(space=None)
def uniform_(self: Tensor, *bounds: float, generator: Any = None, **named: float) -> Tensor:
    """Fills with numbers evenly spread over [from, to)"""
    kind = self._array.dtype
    low = float(bounds[0] if bounds else named.pop("from", 0.0))
    high = float(bounds[1] if len(bounds) > 1 else named.pop("to", 1.0))
    _bounds("from to", bounds, named, 2)
    source = given(generator)
    return _fill(self, lambda n, _: distributions.uniform(source, n, kind, low, high))


@row(space=None)
def normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with normal numbers"""
    kind, source = self._array.dtype, given(generator)
    return _fill(self, lambda n, ordered: distributions.normal(source, n, kind, mean, std, ordered))


@row(space=None)
def random_(self: Tensor, *bounds: int, generator: Any = None, **named: Any) -> Tensor:
    """Fills with whole numbers: of [from, to), of [0, to), or of all that the dtype holds"""
    kind, source = self._array.dtype, given(generator)
    given_bounds = _bounds("from to", bounds, named, 2)
    if not given_bounds:
        return _fill(self, lambda n, _: distributions.random_full(source, n, kind))
    low, high = (0, given_bounds[0]) if len(given_bounds) == 1 else given_bounds
    return _fill(self, lambda n, _: distributions.random_between(source, n, kind, low, high))


@row(space=None)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills with 1 of probability p, a number or a tensor, and else 0"""
    kind, source = self._array.dtype, given(generator)
    if not isinstance(p, Tensor):
        return _fill(self, lambda n, _: convert(distributions.bernoulli(source, n, float(p)), kind))
    check_writable(self)
    chances = np.broadcast_to(p._array, self._array.shape)
    drawn = distributions.bernoulli_each(source, chances)
    return write(self, wrap(drawn.astype(kind)))


@row(space=None)
def exponential_(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with exponential numbers of a rate"""
    kind, source = self._array.dtype, given(generator)
    return _fill(self, lambda n, _: distributions.exponential(source, n, kind, lambd))


@row(space=None)
def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with numbers of the Cauchy distribution"""
    kind, source = self._array.dtype, given(generator)
    return _fill(self, lambda n, _: distributions.cauchy(source, n, kind, median, sigma))


@row(space=None)
def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None) -> Tensor:
    """Fills with exp of normal numbers"""
    kind, source = self._array.dtype, given(generator)
    return _fill(self, lambda n, _: distributions.log_normal(source, n, kind, mean, std))


@row(space=None)
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fills with how many trials of probability p the first success takes"""
    kind, source = self._array.dtype, given(generator)
    return _fill(self, lambda n, _: distributions.geometric(source, n, kind, p))
