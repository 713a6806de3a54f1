"""Rows of nn.functional: greatest elements of windows that lie at random places, so that outputs
have any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ....base.errors import InvalidValue, RunError, Unsupported
from ...tensor.memory import Array, array_of
from ...tensor.tensor import DimensionError, Tensor, wrap
from ..index.index import gather
from ..random.fill import rand
from ..shape.shape import reshape
from .by_rank import by_rank, with_indices


def _numbers(value: Any, rank: int, name: str, what: str) -> tuple[int, ...]:
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(numbers) != rank:
        raise RunError(f"{name}: {what} must either be a single Int or tuple of Ints")
    return tuple(int(number) for number in numbers)


def _outputs(rank: int, name: str, sizes: Sequence[int], size: Any, ratio: Any) -> tuple[int, ...]:
    if size is not None:
        return _numbers(size, rank, name, "output_size")
    if ratio is None:
        raise InvalidValue(f"{name} requires specifying either an output_size or an output_ratio")
    ratios = tuple(ratio) if isinstance(ratio, (tuple, list)) else (ratio,) * rank
    if len(ratios) != rank:
        raise DimensionError(f"{name}: output_ratio needs {rank} numbers")
    return tuple(int(n * r) for n, r in zip(sizes, ratios))


def _pooled(
    rank: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any
) -> tuple[Tensor, Tensor]:
    name, shape = f"fractional_max_pool{rank}d", input._shape
    if len(shape) not in (rank + 1, rank + 2):
        raise DimensionError(f"{name}: expected {rank + 1}D or {rank + 2}D input, got {len(shape)}D")
    if input._dtype.kind not in "fV":
        raise Unsupported(f'"{name}" not implemented for {input.dtype.title!r}')
    sizes = shape[-rank:]
    kernel = _numbers(kernel_size, rank, name, "kernel_size")
    outs = _outputs(rank, name, sizes, output_size, output_ratio)
    _check(name, shape, kernel, outs)
    batch = shape[0] if len(shape) == rank + 2 else 1
    channels = shape[-rank - 1]
    if samples is None:
        samples = rand(batch, channels, rank, dtype=input.dtype)
    else:
        _check_samples(input, samples, batch, channels, rank)
    planes = array_of(input).reshape(batch * channels, *sizes)
    firsts = array_of(samples)[:batch].reshape(batch * channels, rank)
    if rank == 2:  # the first is that of the width
        firsts = firsts[:, ::-1]
    starts = [_starts(firsts[:, i], *args) for i, args in enumerate(zip(sizes, outs, kernel))]
    places = _greatest(planes, starts, kernel)
    places = places.reshape(*shape[: len(shape) - rank], *outs)
    return _taken(input, places, rank), wrap(places)


def _check(name: str, shape: Sequence[int], kernel: Sequence[int], outs: Sequence[int]) -> None:
    rank = len(kernel)
    if 0 in shape[-rank - 1 :]:
        raise RunError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(shape)}"
        )
    room = 0 if rank == 2 else 1  # volumes need an element more, as in PyTorch
    for size, own, out in zip(shape[-rank:], kernel, outs):
        if own < 1 or out < 0 or out + own - 1 + room > size:
            raise RunError(f"{name}(): pool size {own} too large relative to input size {size}")


def _check_samples(input: Tensor, samples: Tensor, batch: int, channels: int, rank: int) -> None:
    shape = samples._shape
    if samples._dtype != input._dtype:
        raise RunError("Expect _random_samples to have the same dtype as input")
    if len(shape) != 3 or shape[0] < batch or shape[1:] != (channels, rank):
        raise RunError(f"Expect _random_samples to have the size ({batch}, {channels}, {rank}), got {list(shape)}")
    if not np.isfinite(array_of(samples).astype(np.float64)).all():
        raise RunError("Expect _random_samples to be finite")


def _starts(samples: Array, size: int, out: int, kernel: int) -> Array:
    """Where windows begin, for each plane: floor((i + sample) a) - floor(sample a) with
    a = (size - kernel) / (out - 1), and the last at the end."""
    made = np.full((len(samples), out), size - kernel, np.int64)
    if out > 1:
        kind = np.float32 if samples.dtype.itemsize < 4 else samples.dtype.type
        a, sample = kind(size - kernel) / kind(out - 1), samples.astype(kind)[:, None]
        turns = np.arange(out - 1, dtype=kind)
        made[:, :-1] = ((turns + sample) * a).astype(np.int64) - (sample * a).astype(np.int64)
    return np.clip(made, 0, size - kernel)


def _greatest(planes: Array, starts: Sequence[Array], kernel: Sequence[int]) -> Array:
    """The place of the greatest element of each window in its plane; of the last NaN, if any."""
    count, sizes = len(planes), planes.shape[1:]
    flat, first = planes.reshape(-1), np.arange(count) * prod(sizes)
    base: Array = np.zeros((), np.int64)
    for axis, begin in enumerate(starts):
        shape = [count, *[1] * len(sizes)]
        shape[axis + 1] = begin.shape[1]
        base = base * sizes[axis] + begin.reshape(shape)
    base += first.reshape(count, *[1] * len(sizes))
    strange = bool(np.isnan(flat).any())
    place, best = base.copy(), flat.take(base)
    for offset in list(np.ndindex(*kernel))[1:]:
        at = base + np.ravel_multi_index(offset, sizes)
        value = flat.take(at)
        better = (value > best) | np.isnan(value) if strange else value > best
        np.maximum(best, value, out=best)
        place += (at - place) * better  # several times as fast as a choice
    place -= first.reshape(count, *[1] * len(sizes))
    return place


def _taken(input: Tensor, places: Array, rank: int) -> Tensor:
    lead = places.shape[: places.ndim - rank]
    flat = reshape(input, (*lead, prod(input._shape[-rank:])))
    index = places.reshape(*lead, prod(places.shape[-rank:]))
    return reshape(gather(flat, len(lead), wrap(index)), places.shape)


def _fractional(rank: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        made = _pooled(rank, input, kernel_size, output_size, output_ratio, _random_samples)
        return made if return_indices else made[0]

    return pool


_pools = by_rank(
    _fractional,
    "fractional_max_pool{}d",
    "The greatest of windows {} at random places, so many that outputs have a size",
    (2, 3),
)
for _pool in _pools:
    with_indices(_pool)
