"""Rows: pools with as many windows as asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.nn.adaptive_pool import AdaptivePool2DAttrs
from ...dispatch import apply
from ...tensor.indexing import chosen_from
from ...tensor.memory import Array
from ...tensor.tensor import Tensor, wrap
from ..operands import check_count, must_be_real
from ..shape.shape import reshape
from ..table import row
from .by_rank import by_rank, with_indices
from .pool import chosen_in

_ADAPTIVE = Op.get("adaptive_avg_pool2d")


def _outs(input: Tensor, rank: int, output_size: Any, name: str) -> tuple[int, ...]:
    """As many windows along each dimension; None for as many as there are elements."""
    shape = input._shape
    if rank > 1 and len(shape) <= rank:
        raise InvalidValue(f"Input dimension should be at least {rank + 1}, got {len(shape)}")
    if len(shape) not in (rank + 1, rank + 2):
        raise RunError(f"{name}{rank}d(): Expected {rank + 1}D or {rank + 2}D tensor, but got {list(shape)}")
    for axis in range(-1, -rank - 1, -1):
        if not shape[axis]:
            raise RunError(
                f"{name}{rank}d(): Expected input to have non-zero size for non-batch dimensions, "
                f"but input has sizes {list(shape)} with dimension {len(shape) + axis} being empty"
            )
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(given) != rank:
        raise RunError(f"{name}{rank}d(): internal error: output_size.size() must be {rank}")
    outs = tuple(n if want is None else int(want) for want, n in zip(given, shape[-rank:]))
    if any(n < 0 for n in outs):
        raise RunError(f"elements of output_size must be greater than or equal to 0, got {outs}")
    return outs


def _nothing(input: Tensor, shape: Sequence[int]) -> Tensor:
    """A result without elements."""
    return reshape(chosen_from(reshape(input, -1), [np.empty(0, np.int64)]), shape)


def _mean(data: Tensor, outs: Sequence[int]) -> Tensor:
    if 0 in outs or not data.numel():
        return _nothing(data, (*data._shape[:2], *outs))
    return apply(_ADAPTIVE, AdaptivePool2DAttrs(output_size=tuple(outs)), [data])[0]


def _adaptive_avg_pool(rank: int) -> Callable[[Tensor, Any], Tensor]:
    def pool(input: Tensor, output_size: Any) -> Tensor:
        must_be_real(f"adaptive_avg_pool{rank}d", input)
        outs = _outs(input, rank, output_size, "adaptive_avg_pool")
        shape = input._shape
        lead, sizes = shape[:-rank], shape[-rank:]
        count = math.prod(lead)
        if rank == 1:
            made = _mean(reshape(input, (count, 1, 1, *sizes)), (1, *outs))
        elif rank == 2:
            made = _mean(reshape(input, (count, 1, *sizes)), outs)
        else:
            flat = _mean(reshape(input, (count * sizes[0], 1, *sizes[1:])), outs[1:])
            rest = outs[1] * outs[2]
            made = _mean(reshape(flat, (count, 1, sizes[0], rest)), (outs[0], rest))
        return reshape(made, (*lead, *outs))

    return pool


avg_pools = by_rank(_adaptive_avg_pool, "adaptive_avg_pool{}d", "The mean of each of so many windows {}")
row(avg_pools[0], method=False)


def _bins(size: int, count: int) -> Array:
    """For each window the indices it covers, -1 behind its end."""
    starts = [(i * size) // count for i in range(count)]
    ends = [-((-(i + 1) * size) // count) for i in range(count)]
    widest = max((b - a for a, b in zip(starts, ends)), default=0)
    steps = np.arange(widest)
    places = np.asarray(starts)[:, None] + steps
    return np.where(places < np.asarray(ends)[:, None], places, -1)


def _greatest(rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The greatest of windows, and where they stand."""
    outs = _outs(input, rank, output_size, "adaptive_max_pool")
    for out in outs:
        check_count(f"adaptive_max_pool{rank}d", "an output size", out)
    shape = input._shape
    lead, sizes = shape[:-rank], shape[-rank:]
    if 0 in outs:
        return _nothing(input, (*lead, *outs)), wrap(np.zeros((*lead, *outs), np.int64))
    return chosen_in(input, lead, sizes, [_bins(n, out) for n, out in zip(sizes, outs)])


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        made = _greatest(rank, input, output_size)
        return made if return_indices else made[0]

    return pool


_max_pools = by_rank(_adaptive_max_pool, "adaptive_max_pool{}d", "The greatest of each of so many windows {}")
for _pool in _max_pools:
    with_indices(_pool)


@row(method=False)
def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The greatest of each of so many windows along one dimension, and where it is"""
    return _greatest(1, input, output_size)
