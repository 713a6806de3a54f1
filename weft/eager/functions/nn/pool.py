"""Rows: the greatest or the mean of windows. One and three dimensions are done by the operators of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....base.dtype import is_integer
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.nn.pool import AvgPool2DAttrs, MaxPool2DAttrs
from ....ops.shape.index import GatherAttrs
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import mul, pow
from ..math.unary import abs as magnitude
from ..operands import must_be_real
from ..shape.parts import put_at
from ..shape.shape import reshape
from ..table import NN, named, row
from .activation import relu
from .by_rank import by_rank, several, with_indices

_MAX, _AVG, _GATHER, _SIGN = (Op.get(name) for name in "max_pool2d avg_pool2d gather_elements sign".split())

Numbers = tuple[int, ...]  # for each dimension
_IMAGE = ">>> image = weft.arange(16.0).reshape(1, 4, 4)"  # of examples


class PoolPlan:
    """The windows of a pool along every dimension."""

    def __init__(
        self, sizes: Numbers, kernel: Numbers, stride: Numbers, padding: Numbers, dilation: Numbers, ceil: bool
    ) -> None:
        self.sizes, self.kernel, self.stride = sizes, kernel, stride
        self.padding, self.dilation, self.ceil = padding, dilation, ceil
        self._check()
        self.outs = tuple(self._out(axis) for axis in range(len(sizes)))
        if min(self.outs) < 1:
            raise RunError(
                f"Given input size: {list(self.sizes)}. Calculated output size: "
                f"{list(self.outs)}. Output size is too small"
            )

    def _check(self) -> None:
        if any(k <= 0 for k in self.kernel):
            raise RunError("kernel size should be greater than zero")
        if any(s <= 0 for s in self.stride):
            raise RunError("stride should not be zero")
        if any(d <= 0 for d in self.dilation):
            raise RunError("dilation should be greater than zero")
        for pad, k, d in zip(self.padding, self.kernel, self.dilation):
            if pad < 0:
                raise RunError(f"pad must be non-negative, but got pad: {pad}")
            if 2 * pad > d * (k - 1) + 1:
                raise RunError(
                    "pad should be at most half of effective kernel size, but got pad="
                    f"{pad}, kernel_size={k} and dilation={d}"
                )

    def _out(self, axis: int) -> int:
        size, step, pad = self.sizes[axis], self.stride[axis], self.padding[axis]
        reach = self.dilation[axis] * (self.kernel[axis] - 1)
        out = (size + 2 * pad - reach - 1 + (step - 1 if self.ceil else 0)) // step + 1
        return out - 1 if self.ceil and (out - 1) * step >= size + pad else out

    def places(self, axis: int) -> Array:
        """For each window the indices it covers, which may be outside."""
        starts = np.arange(self.outs[axis]) * self.stride[axis] - self.padding[axis]
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]


_plan = lru_cache(1024)(PoolPlan)


def planned(
    input: Tensor,
    rank: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any = 1,
    ceil_mode: bool = False,
    name: str = "pool",
) -> PoolPlan:
    shape = input._shape
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape[len(shape) - rank - 1 :]:
        raise RunError(
            f"{name}{rank}d() Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with "
            f"optional 0 dim batch size for input, but got: {list(shape)}"
        )
    kernel = several(kernel_size, rank, "kernel_size")
    empty = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    return _plan(
        shape[len(shape) - rank :],
        kernel,
        kernel if empty else several(stride, rank, "stride"),
        several(padding, rank, "padding"),
        several(dilation, rank, "dilation"),
        bool(ceil_mode),
    )


def _pooled(input: Tensor, plan: PoolPlan, run: Any) -> Tensor:
    """Runs a pool of two dimensions, of one as a row, of three as two after one another."""
    lead = input._shape[: input.ndim - len(plan.sizes)]
    if len(lead) == len(plan.sizes) == 2:
        return run(input, plan, (0, 1))  # type: ignore[no-any-return]
    count = math.prod(lead)
    if len(plan.sizes) == 1:
        result = run(reshape(input, (count, 1, 1, *plan.sizes)), plan, (None, 0))
    elif len(plan.sizes) == 2:
        result = run(reshape(input, (count, 1, *plan.sizes)), plan, (0, 1))
    else:
        depth, height, width = plan.sizes
        flat = run(reshape(input, (count * depth, 1, height, width)), plan, (1, 2))
        rest = plan.outs[1] * plan.outs[2]
        result = run(reshape(flat, (count, 1, depth, rest)), plan, (0, None))
    return reshape(result, (*lead, *plan.outs))


@lru_cache(1024)
def _attrs(kind: Any, plan: PoolPlan, axes: tuple[int | None, ...]) -> Any:
    """The attributes of a pool along two dimensions, one of which may be left alone."""
    kernel, stride, dilation = (
        tuple(1 if at is None else numbers[at] for at in axes) for numbers in (plan.kernel, plan.stride, plan.dilation)
    )
    pads = [(0, 0) if at is None else _pads(plan, at) for at in axes]
    padding = (pads[0][0], pads[1][0], pads[0][1], pads[1][1])
    return kind(pool_size=kernel, strides=stride, padding=padding, dilation=dilation)


def _pads(plan: PoolPlan, axis: int) -> tuple[int, int]:
    """What goes before and after, which is the same at all sizes; a last window that sticks out asks for more."""
    before, step = plan.padding[axis], plan.stride[axis]
    if not plan.ceil:
        return before, before
    reach = plan.dilation[axis] * (plan.kernel[axis] - 1) + 1
    needed = (plan.outs[axis] - 1) * step + reach
    return before, max(needed - plan.sizes[axis] - before, 0)


def _max(data: Tensor, plan: PoolPlan, axes: tuple[int | None, ...]) -> Tensor:
    return apply(_MAX, _attrs(MaxPool2DAttrs, plan, axes), [data])[0]


def _mean(data: Tensor, plan: PoolPlan, axes: tuple[int | None, ...]) -> Tensor:
    """The mean of what is inside."""
    return apply(_AVG, _attrs(AvgPool2DAttrs, plan, axes), [data])[0]


# The greatest.


def _with_indices(input: Tensor, plan: PoolPlan) -> tuple[Tensor, Tensor]:
    """The greatest of each window, and where it stands in the flattened dimensions."""
    rank = len(plan.sizes)
    lead = input._shape[: input.ndim - rank]
    places = [plan.places(axis) for axis in range(rank)]
    return chosen_in(input, lead, plan.sizes, places)


def chosen_in(
    input: Tensor, lead: Sequence[int], sizes: Sequence[int], places: Sequence[Array]
) -> tuple[Tensor, Tensor]:
    """The greatest of windows that cover given indices along each of the last dimensions, those
    outside apart, and where they stand in these dimensions, flattened."""
    must_be_real("max_pool", input)
    outs = [len(place) for place in places]
    windows, inside = _windows(sizes, places)
    data = array_of(input).reshape(*lead, math.prod(sizes))
    values = data[..., windows]
    lowest = -np.inf if data.dtype.kind in "fV" else np.iinfo(data.dtype).min
    values = np.where(inside, values, np.array(lowest, data.dtype))
    first = _first_best(values)
    best = np.take_along_axis(np.broadcast_to(windows, values.shape), first[..., None], -1)[..., 0]
    indices = wrap(np.ascontiguousarray(best))
    rows = reshape(input, (*lead, math.prod(sizes)))
    where = reshape(indices, (*lead, math.prod(outs)))
    result = apply(_GATHER, GatherAttrs(axis=len(lead)), [rows, where])[0]
    return reshape(result, (*lead, *outs)), indices


def _windows(sizes: Sequence[int], places: Sequence[Array]) -> tuple[Array, Array]:
    """The elements of every window by their number, and which are inside."""
    rank, outs = len(sizes), [len(place) for place in places]
    flat = np.zeros([1] * (2 * rank), np.int64)
    inside = np.ones([1] * (2 * rank), bool)
    for axis, place in enumerate(places):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = place.shape
        good = (place >= 0) & (place < sizes[axis])
        flat = flat * sizes[axis] + np.where(good, place, 0).reshape(shape)
        inside = inside & good.reshape(shape)
    return flat.reshape(*outs, -1), inside.reshape(*outs, -1)


def _first_best(values: Array) -> Array:
    """The position of the first greatest; NaN is greater than all."""
    nan = values != values
    best: Array = np.where(nan.any(-1), nan.argmax(-1), values.argmax(-1))
    return best


def _max_pool(rank: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        plan = planned(input, rank, kernel_size, stride, padding, dilation, ceil_mode, "max_pool")
        return _with_indices(input, plan) if return_indices else _pooled(input, plan, _max)

    return pool


def _core_max_pool(pool: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What the core has beside `with_indices`."""

    def greatest(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        return pool(input, kernel_size, stride, padding, dilation, ceil_mode)

    return named(greatest, pool.__name__, pool.__doc__)


_max_pools = by_rank(
    _max_pool,
    "max_pool{}d",
    "The greatest of each window {}",
    examples={
        2: (_IMAGE, ">>> weft.nn.functional.max_pool2d(image, 2)", "tensor([[[ 5.,  7.],", "         [13., 15.]]])")
    },
)
_pools_with_indices = [with_indices(pool) for pool in _max_pools]
row(_pools_with_indices[0], method=False)
for _pool in _max_pools:
    row(_core_max_pool(_pool), method=False)


def _asked_for(output_size: Sequence[int], usual: Sequence[int], steps: Sequence[int]) -> list[int]:
    """The sizes that an unpool is to give, each less than a stride away from the usual one."""
    rank = len(usual)
    if len(output_size) not in (rank, rank + 2):
        raise InvalidValue(f"output_size should have {rank} or {rank + 2} elements, but it has {len(output_size)}")
    sizes = [int(size) for size in output_size[-rank:]]
    for axis, (size, middle, step) in enumerate(zip(sizes, usual, steps)):
        if abs(size - middle) >= step:
            raise InvalidValue(
                f"invalid output_size {list(output_size)} (dim {axis} must be between {middle - step} and "
                f"{middle + step})"
            )
    return sizes


def _max_unpool(rank: int) -> Callable[..., Tensor]:
    def unpool(
        input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
    ) -> Tensor:
        must_be_real(f"max_unpool{rank}d", input)
        shape = input._shape
        if indices._dtype != np.int64:
            raise RunError("elements in indices should be type int64")
        if len(shape) not in (rank + 1, rank + 2) or indices._shape != shape:
            raise RunError(
                f"Expected shape of indices to be same as that of the input tensor ({list(shape)}) but "
                f"got indices tensor with shape: {list(indices.shape)}"
            )
        kernel = several(kernel_size, rank, "kernel_size")
        steps = kernel if stride is None or stride == [] else several(stride, rank, "stride")
        pads = several(padding, rank, "padding")
        lead, sizes = shape[: len(shape) - rank], shape[len(shape) - rank :]
        outs = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(sizes, steps, pads, kernel)]
        if output_size is not None:
            outs = _asked_for(output_size, outs, steps)
        each = math.prod(outs)
        places = array_of(indices).reshape(math.prod(lead), -1)
        if places.size and not (places.min() >= 0 and places.max() < each):
            raise RunError(f"found an invalid max index: output volumes are of size {outs}")
        zeros = wrap(np.zeros((*lead, *outs), input._dtype))
        return put_at(zeros, places + np.arange(len(places))[:, None] * each, input)

    return unpool


by_rank(_max_unpool, "max_unpool{}d", "Zeros, with the greatest of windows {} back where they stood")


# The mean.


def _averages(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    plan = planned(input, rank, kernel_size, stride, padding, 1, ceil_mode, "avg_pool")
    if divisor_override == 0:
        raise RunError("divisor must be not zero")
    counts, factor = _shares(plan, count_include_pad, divisor_override)
    if is_integer(input._dtype):
        return _whole_means(array_of(input), plan, counts)
    result = _pooled(input, plan, _mean)
    return result if factor is None else mul(result, wrap(factor.astype(input._dtype)))


@lru_cache(1024)
def _shares(plan: PoolPlan, count_include_pad: bool, divisor: int | None) -> tuple[Array, Array | None]:
    """What each sum is divided by; and what a mean of what is inside is multiplied by, if so."""
    rank = len(plan.sizes)
    inside, counts = np.ones(1), np.ones(1)
    for axis, size in enumerate(plan.sizes):
        place, pad = plan.places(axis), plan.padding[axis]
        within = ((place >= 0) & (place < size)).sum(1)
        counted = (place < size + pad).sum(1) if count_include_pad else within
        shape = [-1 if at == axis else 1 for at in range(rank)]
        inside, counts = inside * within.reshape(shape), counts * counted.reshape(shape)
    if divisor is not None:
        counts = np.full(1, divisor)
    factor = np.broadcast_to(inside / counts, plan.outs)
    return counts, None if (factor == 1).all() else factor


def _whole_means(data: Array, plan: PoolPlan, counts: Array) -> Tensor:
    """Sums of integers, divided towards zero."""
    lead = data.shape[: data.ndim - len(plan.sizes)]
    places = [plan.places(axis) for axis in range(len(plan.sizes))]
    windows, inside = _windows(plan.sizes, places)
    sums = (data.reshape(*lead, math.prod(plan.sizes))[..., windows] * inside).sum(-1)
    parts = np.abs(sums) // np.abs(counts).astype(data.dtype)
    return wrap(parts * np.sign(sums) * np.sign(counts).astype(data.dtype))


@row(method=False)
@row(space=NN, method=False)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along one dimension"""
    return _averages(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        return _averages(rank, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return pool


by_rank(
    _avg_pool,
    "avg_pool{}d",
    "The mean of each window {}",
    (2, 3),
    examples={
        2: (
            _IMAGE,
            ">>> weft.nn.functional.avg_pool2d(image, 2)",
            "tensor([[[ 2.5000,  4.5000],",
            "         [10.5000, 12.5000]]])",
        )
    },
)


def _lp_pool(rank: int) -> Callable[..., Tensor]:
    def pool(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        means = _averages(rank, pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        count = math.prod(several(kernel_size, rank, "kernel_size"))
        signs = apply(_SIGN, None, [means])[0]
        return pow(mul(mul(signs, relu(magnitude(means))), count), 1.0 / norm_type)

    return pool


by_rank(_lp_pool, "lp_pool{}d", "The p-norm of each window {}")
