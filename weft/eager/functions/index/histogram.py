"""Rows: how many elements lie in each of several intervals, and results of runs of neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import is_float
from ....base.errors import RunError, Unsupported
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ...tensor.types import as_dtype
from ..create.create import full
from ..math.arithmetic import div
from ..math.compare import choose
from ..operands import must_be_real
from ..shape.shape import reshape
from ..table import row
from .index import index_add, index_select
from .reduce_at import index_reduce


class Histogram(NamedTuple):
    """Counts, and the edges between the intervals they are of."""

    hist: Tensor
    bin_edges: Any


def _must_be_floats(name: str, input: Tensor) -> None:
    if not is_float(input._dtype):
        raise Unsupported(f'"{name}" not implemented for {input.dtype.title!r}')


@row
def histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Histogram:
    """How many elements lie in each of `bins` intervals, which may be given by their edges"""
    _must_be_floats("histogram", input)
    points = array_of(input).reshape(-1, 1)
    if weight is not None and weight._shape != input._shape:
        raise _wrong_weight(input._shape, weight)
    own = None if weight is None else _weights(input, weight).reshape(-1)
    counts, edges = _counted(points, [bins], range, own, density)
    return Histogram(wrap(counts), wrap(edges[0]))


@row(method=False)
def histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Histogram:
    """How many points, along the last dimension, lie in each cell of a grid"""
    _must_be_floats("histogramdd", input)
    shape = input._shape
    if len(shape) < 2:
        raise RunError("torch.histogramdd: input tensor should have at least 2 dimensions")
    rank = shape[-1]
    given = list(bins) if isinstance(bins, (tuple, list)) else [bins] * rank
    if len(given) != rank:
        raise RunError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if weight is not None and weight._shape != shape[:-1]:
        raise _wrong_weight(shape, weight)
    own = None if weight is None else _weights(input, weight).reshape(-1)
    counts, edges = _counted(array_of(input).reshape(-1, rank), given, range, own, density)
    return Histogram(wrap(counts), tuple(wrap(edge) for edge in edges))


def _wrong_weight(shape: Sequence[int], weight: Tensor) -> RunError:
    return RunError(
        "histogramdd: if weight tensor is provided it should have the same shape as the input "
        f"tensor excluding its innermost dimension, but got input with shape {list(shape)}, and "
        f"weight with shape {list(weight.shape)}"
    )


def _weights(input: Tensor, weight: Tensor) -> Array:
    if weight._dtype != input._dtype:
        raise RunError(
            "histogramdd: if weight tensor is provided, input tensor and weight tensor should have "
            f"the same dtype, but got input({input.dtype}), and weight({weight.dtype})"
        )
    return array_of(weight)


def _counted(
    points: Array, bins: Sequence[Any], bounds: Any, weight: Array | None, density: bool
) -> tuple[Array, list[Array]]:
    """The sum of weights in every cell of a grid, and the edges along each axis."""
    rank = points.shape[1]
    if bounds is not None and len(bounds) != 2 * rank:
        raise RunError(
            f"histogramdd: for a {rank}-dimensional histogram range should have {2 * rank} "
            f"elements, but got {len(bounds)}"
        )
    edges = [_edges(points[:, d], bins[d], bounds, d) for d in np.arange(rank)]
    sizes = [len(edge) - 1 for edge in edges]
    inside = np.ones(len(points), bool)
    cells = np.zeros(len(points), np.int64)
    for values, edge, size in zip(points.T, edges, sizes):
        at = np.searchsorted(edge, values, side="right") - 1
        at = np.where(values == edge[-1], size - 1, at)
        inside &= (values >= edge[0]) & (values <= edge[-1])
        cells = cells * size + np.clip(at, 0, max(size - 1, 0))
    weights = None if weight is None else weight[inside].astype(np.float64)
    counts = np.bincount(cells[inside], weights, math.prod(sizes)).reshape(sizes)
    if density:
        counts = _spread(counts.astype(np.float64), edges)
    return counts.astype(points.dtype), edges


def _spread(counts: Array, edges: Sequence[Array]) -> Array:
    """Parts of the whole, by the volume of their cells."""
    with np.errstate(all="ignore"):
        counts = counts / counts.sum()
        for axis, edge in enumerate(edges):
            shape = [-1 if d == axis else 1 for d in np.arange(len(edges))]
            counts = counts / np.diff(edge.astype(np.float64)).reshape(shape)
    return counts


def _edges(values: Array, bins: Any, bounds: Any, axis: int) -> Array:
    if isinstance(bins, Tensor):
        given = array_of(bins)
        if given.ndim != 1:
            raise RunError(
                f"histogramdd: bins tensor should have one dimension, but got {given.ndim} "
                f"dimensions in the bins tensor for dimension {axis}"
            )
        if given.dtype != values.dtype:
            raise RunError(
                "histogramdd: input tensor and bins tensors should have the same dtype, but got "
                f"{as_dtype(values.dtype)} and {as_dtype(given.dtype)} for dimension {axis}"
            )
        if not given.size:
            raise RunError(f"histogramdd: bins tensor should have elements in dimension {axis}")
        return given.copy()
    if bins <= 0:
        raise RunError(f"histogram(): bins must be > 0, but got {bins} for dimension {axis}")
    low, high = _range(values, bounds, axis)
    return np.linspace(low, high, int(bins) + 1).astype(values.dtype)


def _range(values: Array, bounds: Any, axis: int) -> tuple[float, float]:
    if bounds is not None:
        low, high = float(bounds[2 * axis]), float(bounds[2 * axis + 1])
    elif values.size:
        low, high = float(values.min()), float(values.max())
    else:
        low, high = 0.0, 1.0
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RunError(f"histogramdd: dimension {axis}'s range [{low}, {high}] is not finite")
    if low > high:
        raise RunError(f"histogramdd: min should not exceed max, but got min {low} max {high} for dimension {axis}")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


# Runs of neighbours.

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@row(method=False)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """The sum, mean, product, greatest or smallest of runs of given lengths along an axis"""
    must_be_real("segment_reduce", data)
    _must_be_floats("segment_reduce", data)
    if reduce not in _STARTS:
        raise RunError(f"reduce argument must be one of {', '.join(_STARTS)}, got {reduce}")
    if indices is not None:
        raise RunError("segment_reduce(): indices based reduction is not supported yet.")
    shape = data._shape
    at = axis_of(axis, len(shape))
    starts, counts = _runs(shape, at, lengths, offsets, unsafe)
    lead, rows = math.prod(shape[:at]), shape[at] if shape else 1
    flat = reshape(data, (lead * rows, *shape[at + 1 :]))
    places = _within(starts.reshape(lead, -1) + np.arange(lead)[:, None] * rows, counts)
    owners = np.repeat(np.arange(counts.size), counts.reshape(-1))
    if places.size != flat._shape[0] or (np.diff(places) != 1).any():
        flat = index_select(flat, 0, wrap(places))
    made = _over_runs(flat, owners, counts.reshape(-1), reduce, initial)
    return reshape(made, (*counts.shape, *shape[at + 1 :]))


def _runs(
    shape: Sequence[int], axis: int, lengths: Tensor | None, offsets: Tensor | None, unsafe: bool
) -> tuple[Array, Array]:
    """Where runs start, and how long they are; in a row for each item before the axis."""
    given = lengths if offsets is None else offsets
    if given is None:
        raise RunError("segment_reduce(): Either lengths or offsets must be defined.")
    numbers = array_of(given)
    if numbers.dtype not in (np.int64, np.int32):
        raise Unsupported(f'"segment_reduce" not implemented for lengths of {given.dtype.title!r}')
    if numbers.ndim != axis + 1:
        raise RunError(f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}.")
    if numbers.shape[:-1] != tuple(shape[:axis]):
        raise RunError("segment_reduce(): Expected data and lengths to have the same first sizes.")
    if offsets is not None:
        starts, counts = numbers[..., :-1], np.diff(numbers, axis=-1)
    else:
        starts, counts = np.cumsum(numbers, -1) - numbers, numbers
    if (counts < 0).any():
        raise RunError("lengths contains negative value!")
    size = shape[axis] if shape else 1
    if offsets is None and not unsafe and (counts.sum(-1) != size).any():
        raise RunError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to "
            "data.size(lengths.dim()-1) when !unsafe."
        )
    if counts.size and ((starts < 0).any() or (starts + counts > size).any()):
        raise RunError(f"segment_reduce(): a run ends after the {size} elements that there are")
    return starts.astype(np.int64), counts.astype(np.int64)


def _within(starts: Array, counts: Array) -> Array:
    """The numbers of all elements of runs, one run after the other."""
    first, many = starts.reshape(-1), counts.reshape(-1)
    before = np.cumsum(many) - many
    return np.repeat(first - before, many) + np.arange(int(many.sum()))


def _over_runs(values: Tensor, owners: Array, counts: Array, reduce: str, initial: Any) -> Tensor:
    kind, rest = values.dtype, values._shape[1:]
    start = _STARTS[reduce] if initial is None else float(initial)
    base = full((counts.size, *rest), start, dtype=kind)
    if not counts.size:
        return base
    if reduce in ("sum", "mean"):
        total = index_add(base, 0, wrap(owners), values)
        if reduce == "sum":
            return total
        many = counts.reshape(-1, *[1] * len(rest)).astype(values._dtype)
        share = div(total, wrap(np.maximum(many, 1)))
        return choose(wrap(many > 0), share, math.nan) if initial is None else share
    name = {"max": "amax", "min": "amin", "prod": "prod"}[reduce]
    return index_reduce(base, 0, wrap(owners), values, name, include_self=initial is not None)
