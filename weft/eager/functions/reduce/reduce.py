"""Rows: sums, products, means and truth along dimensions, and deviations and vectors' norms made of them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidType, RunError
from ....core.op import Op
from ....ops.reduce.reduce_moments import VarianceAttrs
from ... import native
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import as_dtype
from ..create.create import kind_of
from ..math.arithmetic import add, div, pow, sub
from ..math.cast import clone
from ..math.compare import choose, eq, ne, truth
from ..math.complex import magnitude_squared, real
from ..math.unary import abs as magnitude
from ..math.unary import exp, log, square
from ..operands import floating, must_be_real, must_be_tensors, promoted
from ..reducing import counted, dims_of, in_shape, reduce_by, without
from ..shape.shape import reshape
from ..table import row

_SUM, _PROD, _MEAN, _MAX, _MIN = (Op.get(name) for name in "sum prod mean max min".split())
_VARIANCE, _NORM, _ROOT = (Op.get(name) for name in "_variance _norm _root".split())
_LOG_SUM = Op.get("logsumexp")
_ISNAN, _SIGN = Op.get("isnan"), Op.get("sign")


@row(out=True)
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """the sum along dimensions, or of everything; of integers in int64

    >>> import weft
    >>> x = weft.tensor([[1, 2], [3, 4]])
    >>> weft.sum(x), x.sum(dim=0)
    (tensor(10), tensor([4, 6]))
    >>> x.sum(1, keepdim=True).shape
    weft.Size([2, 1])
    """
    axes = dims_of(dim, input.ndim)
    if dtype is None and input._dtype.kind in "biu" and modes.trace is None:
        return wrap(native.integer_sum(array_of(input), axes).reshape(without(input._shape, axes, keepdim)))
    return reduce_by(_SUM, counted(input, dtype), axes, keepdim)


@row(out=True)
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """the sum, NaN counting as 0

    >>> import weft
    >>> weft.nansum(weft.tensor([1.0, float("nan"), 2.0]))
    tensor(3.)
    """
    if is_complex(input._dtype):
        raise RunError("nansum does not support complex inputs")
    return sum(_without_nan(input), dim, keepdim, dtype=dtype)


def _without_nan(input: Tensor) -> Tensor:
    if not is_float(input._dtype):
        return input
    return choose(apply(_ISNAN, None, [input])[0], 0.0, input)


@row(out=True)
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """the product along a dimension, or of everything; of integers in int64

    >>> import weft
    >>> x = weft.tensor([[1, 2], [3, 4]])
    >>> weft.prod(x), x.prod(dim=1)
    (tensor(24), tensor([ 2, 12]))
    """
    if isinstance(dim, (tuple, list)):
        raise InvalidType("prod(): argument 'dim' (position 2) must be int, not tuple")
    values = counted(input, dtype)
    if dim is None and values.ndim > 1:
        values = reshape(values, (-1,))
    return reduce_by(_PROD, values, dims_of(dim, values.ndim), keepdim and dim is not None)


def _averaged(name: str, input: Tensor, dtype: Any) -> Tensor:
    if dtype is not None:
        input = input._cast(as_dtype(dtype).numpy)
    kind = input._dtype
    if not (is_float(kind) or is_complex(kind)):
        raise RunError(
            f"{name}(): could not infer output dtype. Input dtype must be either a floating point "
            f"or complex dtype. Got: {input.dtype.title}"
        )
    return input


@row(out=True)
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """the mean along dimensions, or of everything

    >>> import weft
    >>> x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> weft.mean(x), x.mean(dim=1)
    (tensor(2.5000), tensor([1.5000, 3.5000]))
    """
    values = _averaged("mean", input, dtype)
    return reduce_by(_MEAN, values, dims_of(dim, input.ndim), keepdim)


@row(out=True)
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """the mean of what is not NaN"""
    must_be_real("nanmean", input)
    values = _averaged("nanmean", input, dtype)
    there = eq(values, values)
    total = sum(_without_nan(values), dim, keepdim)
    return div(total, sum(there, dim, keepdim))


def _truth_in(input: Tensor, result: Tensor) -> Tensor:
    """Results are bools, but bytes of bytes."""
    return result._cast(input._dtype) if input._dtype == np.uint8 else result


def _over_bools(op: Op, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    axes = dims_of(dim, input.ndim)
    if isinstance(dim, (tuple, list)) and not dim:
        return _truth_in(input, clone(truth(input)))
    return _truth_in(input, reduce_by(op, truth(input), axes, keepdim))


@row(out=True)
def all(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """whether no element is zero

    >>> import weft
    >>> x = weft.tensor([[1, 1], [0, 1]])
    >>> weft.all(x), x.all(dim=1)
    (tensor(False), tensor([ True, False]))
    """
    return _over_bools(_PROD, input, dim, keepdim)


@row(out=True)
def any(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """whether an element is not zero

    >>> import weft
    >>> x = weft.tensor([[0, 1], [0, 0]])
    >>> weft.any(x), x.any(dim=1)
    (tensor(True), tensor([ True, False]))
    """
    return _over_bools(_SUM, input, dim, keepdim)


@row
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """how many elements are not zero

    >>> import weft
    >>> weft.count_nonzero(weft.tensor([[0, 1], [2, 3]]), dim=0)
    tensor([1, 2])
    """
    return sum(ne(input, 0), dim)


# Deviations.


def _moments(
    name: str, input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> tuple[Tensor, Tensor]:
    """The variance and the mean; `dim` may be `unbiased`, as PyTorch has it."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise InvalidType(f"{name}() received both unbiased and correction")
    kind = input._dtype
    if not (is_float(kind) or is_complex(kind)):
        raise RunError(f"{name}(): input must be floating point or complex, not {input.dtype}")
    less = correction if correction is not None else (unbiased is not False) * 1
    axes = dims_of(dim, input.ndim)
    if is_complex(kind):
        return _complex_moments(input, axes, less, keepdim)
    result, middle = apply(_VARIANCE, _variance_attrs(axes, keepdim, float(less)), [input])
    return result, middle


@lru_cache(maxsize=4096)
def _variance_attrs(axes: tuple[int, ...], keepdims: bool, correction: float) -> Any:
    return VarianceAttrs(axis=axes, keepdims=keepdims, scalar=True, correction=correction)


def _complex_moments(input: Tensor, axes: tuple[int, ...], less: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    middle = reduce_by(_MEAN, input, axes, True)
    count = math.prod(input._shape[axis] for axis in axes)
    total = reduce_by(_SUM, _squared(sub(input, middle)), axes, keepdim)
    variance = div(total, max(count - less, 0))
    return variance, middle if keepdim else in_shape(middle, total._shape)


def _squared(input: Tensor) -> Tensor:
    """|x|^2"""
    return magnitude_squared(input) if is_complex(input._dtype) else square(input)


def root(input: Tensor) -> Tensor:
    """The square root, whose gradient is 0 where it is 0."""
    return apply(_ROOT, None, [input])[0]


@row(out=True)
def var(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    """the variance: squared distances from the mean, over count - correction

    >>> import weft
    >>> x = weft.tensor([1.0, 3.0, 5.0])
    >>> weft.var(x), x.var(correction=0)
    (tensor(4.), tensor(2.6667))
    """
    return _moments("var", input, dim, unbiased, keepdim, correction)[0]


@row(out=True)
def std(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> Tensor:
    """the standard deviation, the root of the variance

    >>> import weft
    >>> x = weft.tensor([1.0, 3.0, 5.0])
    >>> weft.std(x), x.std(correction=0)
    (tensor(2.), tensor(1.6330))
    """
    return root(_moments("std", input, dim, unbiased, keepdim, correction)[0])


@row
def var_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """the variance, and the mean

    >>> import weft
    >>> weft.var_mean(weft.tensor([1.0, 3.0, 5.0]))
    (tensor(4.), tensor(3.))
    """
    result, middle = _moments("var_mean", input, dim, unbiased, keepdim, correction)
    return result, middle if _has_variance(input, result) else mean(input, dim, keepdim)


@row
def std_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """the standard deviation, and the mean"""
    variance, middle = _moments("std_mean", input, dim, unbiased, keepdim, correction)
    spread = root(variance)
    return spread, middle if _has_variance(input, spread) else mean(input, dim, keepdim)


def _has_variance(input: Tensor, result: Tensor) -> bool:
    """Whether there are several elements in each place of a result. Where there is one, the
    gradient of the variance is NaN, and the mean must not be a part of that node."""
    return input.numel() > result.numel()


# Norms.


def _norm(input: Tensor, order: float, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    if order == 2 and not is_complex(input._dtype):
        return reduce_by(_NORM, input, axes, keepdim)
    if order == 2:
        return root(reduce_by(_SUM, _squared(input), axes, keepdim))
    sizes = magnitude(input)
    if order == 0:
        return reduce_by(_SUM, apply(_SIGN, None, [sizes])[0], axes, keepdim)
    if order == 1:
        return reduce_by(_SUM, sizes, axes, keepdim)
    if math.isinf(order):
        return reduce_by(_MAX if order > 0 else _MIN, sizes, axes, keepdim)
    zero = eq(sizes, 0)
    safe = choose(zero, 1.0, sizes) if order < 2 else sizes
    powers = choose(zero, 0.0 if order > 0 else math.inf, pow(safe, order))
    total = reduce_by(_SUM, powers, axes, keepdim)
    nothing = eq(total, 0)
    return choose(nothing, 0.0, pow(choose(nothing, 1.0, total), 1 / order))


@row(space="weft.linalg", method=False, out=True)
def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """(sum of |x|**ord) ** (1 / ord) along dimensions, or of everything

    >>> import weft
    >>> weft.linalg.vector_norm(weft.tensor([3.0, -4.0])), weft.linalg.vector_norm(weft.tensor([3.0, -4.0]), ord=1)
    (tensor(5.), tensor(7.))
    """
    must_be_tensors("linalg.vector_norm", x=x)
    if dtype is not None:
        x = x._cast(kind_of(dtype))
    if not (is_float(x._dtype) or is_complex(x._dtype)):
        raise RunError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {x.dtype.title}")
    axes = dims_of(dim, x.ndim)
    if ord < 0 or math.isinf(ord):
        _must_have_extremes(x, axes)
    return _norm(x, float(ord), axes, keepdim)


def _must_have_extremes(x: Tensor, axes: tuple[int, ...]) -> None:
    if not math.prod(x._shape[axis] for axis in axes):
        raise RunError(
            "linalg.vector_norm cannot compute this norm on an empty tensor because the operation "
            "does not have an identity"
        )


@row
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """the p-norm of input - other"""
    left, right = promoted(input, other)
    gap = sub(left, right)
    return _norm(gap, float(p), dims_of(None, gap.ndim), False)


# Sums of exponentials.


@row(out=True)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log of the sum of exp along dimensions

    >>> import weft
    >>> weft.logsumexp(weft.tensor([1000.0, 1000.0]), dim=0)
    tensor(1000.6932)
    """
    values = floating(input)
    axes = dims_of(dim, values.ndim)
    if not is_complex(values._dtype):
        return reduce_by(_LOG_SUM, values, axes, keepdim)
    most = reduce_by(_MAX, real(values.detach()), axes, True)
    most = choose(apply(Op.get("isinf"), None, [most])[0], 0.0, most)
    total = add(log(reduce_by(_SUM, exp(sub(values, most)), axes, True)), most)
    return in_shape(total, without(total._shape, axes, keepdim))
