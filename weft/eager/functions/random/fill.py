"""Rows: tensors of random numbers, and the methods that fill a tensor with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.dtype import BOOL, DTYPES, DType, is_complex, is_float
from ....base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ...random import distributions
from ...random.generator import given
from ...random.poisson import binomial as binomial_numbers
from ...random.poisson import poisson as poisson_numbers
from ...tensor.convert import convert
from ...tensor.inplace import check_writable, write
from ...tensor.memory import Array, memory_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import as_dtype
from ..create.create import kind_of, laid_out_as, made, shape_of
from ..hosted import hosted, hosted_memory
from ..operands import must_be_real
from ..shape.shape import broadcast_shapes, expand
from ..table import row

Maker = Callable[..., Array]  # a count, whether they go to memory in order, and arrays that say more
Draw = Callable[..., Array]  # of a generator, a count, a dtype and the numbers of a distribution


def _drawn(draw: Draw, generator: Any, shape: tuple[int, ...], kind: DType, *numbers: Any) -> Any:
    """Memory with new numbers, which a recording draws again in every run."""
    source = given(generator)
    return hosted_memory(lambda: draw(source, math.prod(shape), kind, *numbers).reshape(shape))


@row(method=False, out=True)
def rand(*size: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers evenly spread over [0, 1)

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.rand(3)
    tensor([0.4963, 0.7682, 0.0885])
    >>> weft.rand(2, 3).shape
    weft.Size([2, 3])
    """
    shape = shape_of("rand", size or options.pop("size", ()))
    return made(_drawn(distributions.uniform, generator, shape, kind_of(dtype)), options)


@row(method=False, out=True)
def randn(*size: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers of the standard normal distribution

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.randn(3)
    tensor([ 1.5410, -0.2934, -2.1788])
    """
    shape = shape_of("randn", size or options.pop("size", ()))
    return made(_drawn(distributions.normal, generator, shape, kind_of(dtype)), options)


@row(method=False, out=True)
def randint(*bounds: Any, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Whole numbers of [low, high): randint([low,] high, size)

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.randint(10, (4,))
    tensor([4, 9, 3, 0])
    >>> weft.randint(-2, 3, (2, 2)).shape
    weft.Size([2, 2])
    """
    given_bounds = list(bounds)
    size = options.pop("size", None)
    if size is None and given_bounds and isinstance(given_bounds[-1], (tuple, list)):
        size = given_bounds.pop()
    given_bounds += [options.pop(name) for name in ("low", "high") if name in options]
    if size is None or len(given_bounds) not in (1, 2):
        raise InvalidType("randint() takes ([low,] high, size)")
    low, high = (0, given_bounds[0]) if len(given_bounds) == 1 else given_bounds
    shape = shape_of("randint", (tuple(size),))
    kind = kind_of(dtype, DTYPES["int64"])
    return made(_drawn(distributions.random_between, generator, shape, kind, int(low), int(high)), options)


@row(method=False, out=True)
def randperm(n: int, *, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """The whole numbers below n in random order

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.randperm(5)
    tensor([4, 0, 1, 3, 2])
    """
    (count,) = shape_of("randperm", (n,))
    kind = kind_of(dtype, DTYPES["int64"])
    if kind == BOOL or is_complex(kind):
        raise Unsupported(f"randperm is not implemented for {kind.name}")
    if is_float(kind) and count > 2 ** distributions.digits(kind) + 1:
        most, title = 2 ** distributions.digits(kind) + 1, as_dtype(kind).title
        raise RunError(f"n cannot be greater than {most} for {title} type.")
    if not is_float(kind) and count > int(np.iinfo(kind).max) + 1:
        raise RunError(f"value cannot be converted to type {kind.name} without overflow")
    source = given(generator)
    return made(hosted_memory(lambda: distributions.permutation(source, count).astype(kind)), options)


def _like(input: Tensor, generator: Any, dtype: Any, options: dict[str, Any], draw: Draw, *numbers: Any) -> Tensor:
    """Random numbers in the shape, and in memory in the order, of a tensor."""
    kind, source = kind_of(dtype, input._dtype), given(generator)
    layout = laid_out_as(input, kind, options.get("memory_format"))
    return made(_arranged(layout, _maker(draw, source, kind, *numbers)), options)


def _maker(draw: Draw, source: Any, kind: DType, *numbers: Any) -> Maker:
    """Draws a count of numbers; only normal ones depend on whether they go to memory in order."""
    if draw is distributions.normal:
        return lambda count, ordered: draw(source, count, kind, *(numbers or (0.0, 1.0)), ordered)
    return lambda count, _: draw(source, count, kind, *numbers)


@row(method=False)
def rand_like(input: Tensor, *, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers evenly spread over [0, 1), in the shape of another tensor

    >>> import weft
    >>> weft.rand_like(weft.zeros(2, 3)).shape
    weft.Size([2, 3])
    """
    return _like(input, generator, dtype, options, distributions.uniform)


@row(method=False)
def randn_like(input: Tensor, *, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Numbers of the standard normal distribution, in the shape of another tensor

    >>> import weft
    >>> weft.randn_like(weft.zeros(2, 3)).shape
    weft.Size([2, 3])
    """
    return _like(input, generator, dtype, options, distributions.normal)


@row(method=False)
def randint_like(input: Tensor, *bounds: int, generator: Any = None, dtype: Any = None, **options: Any) -> Tensor:
    """Whole numbers of [low, high), in the shape of another tensor"""
    named = [options.pop(name) for name in ("low", "high") if name in options]
    low, high = (int(bound) for bound in (0, *bounds, *named)[-2:])
    return _like(input, generator, dtype, options, distributions.random_between, low, high)


@row(method=False, out=True)
def normal(mean: Any, std: Any = 1.0, size: Any = None, *, generator: Any = None, **options: Any) -> Tensor:
    """Normal numbers of a mean and a deviation, each one number or one for each element

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.normal(10.0, 2.0, (3,))
    tensor([13.0820,  9.4131,  5.6424])
    """
    if size is not None:
        shape = shape_of("normal", (tuple(size),))
        kind = kind_of(options.pop("dtype", None))
        return made(_drawn(distributions.normal, generator, shape, kind, float(mean), float(std)), options)
    tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
    if is_complex(std._dtype) if isinstance(std, Tensor) else np.iscomplexobj(std):
        raise RunError("normal expects standard deviation to be non-complex")
    if not tensors:
        raise InvalidType("normal() of two numbers takes a size")
    kind, source = tensors[0]._dtype, given(generator)
    shape = broadcast_shapes(*[x._shape for x in tensors])

    def numbers(*arrays: Array) -> Array:
        found = iter(arrays)
        means, deviations = (next(found) if isinstance(x, Tensor) else x for x in (mean, std))
        if not np.all(np.asarray(deviations) >= 0):
            raise RunError("normal expects all elements of std >= 0.0")
        drawn = distributions.normal(source, math.prod(shape), kind).reshape(shape)
        made: Array = (drawn * deviations + means).astype(kind)
        return made

    return made(hosted_memory(numbers, *tensors), options)


@row(out=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element of the input says, or with p; else 0

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.bernoulli(weft.tensor([0.0, 0.5, 0.5, 1.0]))
    tensor([0., 0., 1., 1.])
    """
    kind, shape = input._dtype, input._shape
    if p is not None:
        must_be_real("bernoulli", input)
        source = given(generator)
        return hosted(lambda: distributions.bernoulli(source, math.prod(shape), p).reshape(shape).astype(kind))
    if not is_float(kind) and input.numel():
        raise Unsupported(f"bernoulli is not implemented for {kind.name}")
    source = given(generator)
    return hosted(lambda array: distributions.bernoulli_each(source, array).astype(kind), input)


@row(out="strict")
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """The positions of samples that are drawn by weight, from each row

    >>> import weft
    >>> weft.multinomial(weft.tensor([0.0, 3.0, 0.0]), 4, replacement=True)
    tensor([1, 1, 1, 1])
    >>> weft.multinomial(weft.tensor([[0.0, 1.0], [2.0, 0.0]]), 1)
    tensor([[1],
            [0]])
    """
    source = given(generator)

    def places(array: Array) -> Array:
        return distributions.multinomial(source, np.ascontiguousarray(array), num_samples, replacement)

    return hosted(places, input)


@row
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """A Poisson number for every rate in the input"""
    if not is_float(input._dtype):
        raise Unsupported(f"poisson is not implemented for {input._dtype.name}")
    kind, source = input._dtype, given(generator)
    return hosted(lambda array: poisson_numbers(source, array).astype(kind), input)


@row(method=False)
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """How many of a count of trials succeed, for every count and the probability beside it"""
    for name, tensor in (("count", count), ("prob", prob)):
        if not is_float(tensor._dtype):
            title = as_dtype(tensor._dtype).title
            raise InvalidValue(f"binomial only supports floating-point dtypes for {name}, got: {title}")
    kind = count._dtype
    if prob._dtype != kind:
        raise RunError(f"binomial needs one dtype, got {kind.name} and {prob._dtype.name}")
    if kind.itemsize == 2:
        raise Unsupported(f"binomial is not implemented for {kind.name}")
    shape = broadcast_shapes(count._shape, prob._shape)
    source = given(generator)

    def successes(*arrays: Array) -> Array:
        counts, chances = (np.broadcast_to(array, shape) for array in arrays)
        return binomial_numbers(source, counts, chances).astype(kind)

    return hosted(successes, count, prob)


def _fill(target: Tensor, maker: Maker, *tensors: Tensor) -> Tensor:
    """Writes random numbers to a tensor, in the order in which its elements lie in memory."""
    check_writable(target)
    return write(target, wrap(_arranged(memory_of(target), maker, *tensors)))


def _filled(target: Tensor, generator: Any, draw: Draw, *numbers: Any) -> Tensor:
    return _fill(target, _maker(draw, given(generator), target._dtype, *numbers))


def _arranged(memory: Any, maker: Maker, *tensors: Tensor) -> Any:
    """Numbers in the shape of memory, drawn in the order in which its elements lie there."""
    shape, size = memory.shape, math.prod(memory.shape)
    if memory.flags.c_contiguous:
        return hosted_memory(lambda *arrays: maker(size, True, *arrays).reshape(shape), *tensors)
    order = _outermost_first(memory)
    sorted_shape, back = [shape[axis] for axis in order], np.argsort(order)
    return hosted_memory(lambda *arrays: maker(size, False, *arrays).reshape(sorted_shape).transpose(back), *tensors)


def _outermost_first(memory: Any) -> list[int]:
    """The axes of memory, the one with the largest steps first."""
    return sorted(range(memory.ndim), key=lambda axis: -abs(memory.strides[axis]))


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
    low = float(bounds[0] if bounds else named.pop("from", 0.0))
    high = float(bounds[1] if len(bounds) > 1 else named.pop("to", 1.0))
    _bounds("from to", bounds, named, 2)
    return _filled(self, generator, distributions.uniform, low, high)


@row(space=None)
def normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with normal numbers"""
    return _filled(self, generator, distributions.normal, mean, std)


@row(space=None)
def random_(self: Tensor, *bounds: int, generator: Any = None, **named: Any) -> Tensor:
    """Fills with whole numbers: of [from, to), of [0, to), or of all that the dtype holds"""
    given_bounds = _bounds("from to", bounds, named, 2)
    if not given_bounds:
        return _filled(self, generator, distributions.random_full)
    return _filled(self, generator, distributions.random_between, *[0, *given_bounds][-2:])


@row(space=None)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fills with 1 of probability p, a number or a tensor, and else 0"""
    kind, source = self._dtype, given(generator)
    must_be_real("bernoulli_", self)
    if not isinstance(p, Tensor):
        return _fill(self, lambda n, _: convert(distributions.bernoulli(source, n, float(p)), kind))
    order = _outermost_first(memory_of(self))

    def chosen(count: int, ordered: bool, chances: Array) -> Array:
        return distributions.bernoulli_each(source, chances.transpose(order)).reshape(-1).astype(kind)

    return _fill(self, chosen, expand(p, self._shape))


@row(space=None)
def exponential_(self: Tensor, lambd: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with exponential numbers of a rate"""
    return _filled(self, generator, distributions.exponential, lambd)


@row(space=None)
def cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Tensor:
    """Fills with numbers of the Cauchy distribution"""
    return _filled(self, generator, distributions.cauchy, median, sigma)


@row(space=None)
def log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None) -> Tensor:
    """Fills with exp of normal numbers"""
    return _filled(self, generator, distributions.log_normal, mean, std)


@row(space=None)
def geometric_(self: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """Fills with how many trials of probability p the first success takes"""
    return _filled(self, generator, distributions.geometric, p)
