"""Rows: vectors for classes, one by one and bag by bag, in nn.functional and as the core has them."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....base.dtype import INT64, is_float
from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ....ops.shape.index import TakeAttrs
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.indexing import chosen_from
from ...tensor.memory import Array, array_of
from ...tensor.tensor import DimensionError, Tensor, wrap
from ..create.create import full
from ..hosted import checked
from ..index.index import gather, index_add
from ..math.arithmetic import add, div, mul
from ..math.compare import choose, ne
from ..shape.shape import expand, reshape, unsqueeze
from ..table import NN, row

_TAKE = Op.get("take")
_MODES = ("sum", "mean", "max")
_WHOLE = (np.int64, np.int32)


@row(space=NN, method=False)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Rows of zeros with a 1 at the class

    >>> import weft
    >>> weft.nn.functional.one_hot(weft.tensor([0, 2]), num_classes=3)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    places = array_of(tensor)
    if places.dtype != np.int64:
        raise RunError("one_hot is only applicable to index tensor of type LongTensor.")
    if not places.size and num_classes <= 0:
        raise RunError("Can not infer total number of classes from empty tensor.")
    if places.size and places.min() < 0:
        raise RunError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = int(places.max()) + 1
    elif num_classes < 1:
        raise RunError("num_classes should be positive")
    elif places.size and places.max() >= num_classes:
        raise RunError("Class values must be smaller than num_classes.")
    result = np.zeros((places.size, num_classes), np.int64)
    result[np.arange(places.size), places.reshape(-1)] = 1
    return wrap(result.reshape(*places.shape, num_classes))


@row(space=NN, method=False)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of a matrix at indices; the padding row has no gradient

    >>> import weft
    >>> weight = weft.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> weft.nn.functional.embedding(weft.tensor([2, 1, 2]), weight)
    tensor([[3., 4.],
            [1., 2.],
            [3., 4.]])
    """
    _check_whole(input)
    if weight.ndim != 2:
        raise RunError("'weight' must be 2-D")
    count = weight._shape[0]
    if padding_idx is not None and not -count <= padding_idx < count:
        raise InvalidValue("Padding_idx must be within num_embeddings")
    checked(partial(_check_inside, count), input)
    flat = reshape(input, -1)._cast(INT64)
    if max_norm is not None:
        _shorten_rows(weight, array_of(flat), max_norm, norm_type)
    result = apply(_TAKE, TakeAttrs(axis=0), [weight, flat])[0]
    result = _by_frequency(result, array_of(flat), count) if scale_grad_by_freq else result
    if padding_idx is not None and weight._requires_grad:
        kept = reshape(ne(flat, padding_idx % count), (-1, 1))
        result = choose(expand(kept, result._shape), result, result.detach())
    return reshape(result, (*input._shape, weight._shape[1]))


def _check_inside(count: int, places: Array) -> None:
    if places.size and not (places.min() >= 0 and places.max() < count):
        raise DimensionError("index out of range in self")


def _check_whole(indices: Tensor) -> None:
    if indices._dtype not in _WHOLE:
        raise RunError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: "
            f"Long, Int; but got {indices.dtype.title} instead"
        )


def _by_frequency(rows: Tensor, flat: Array, count: int) -> Tensor:
    """The same rows, with gradients divided by how often each is there."""
    often = np.bincount(flat, minlength=count)[flat].astype(rows._dtype).reshape(-1, 1)
    moving = div(rows, wrap(often))
    return add(moving, wrap(array_of(rows) - array_of(moving)))


def _shorten_rows(weight: Tensor, places: Array, longest: float, order: float) -> None:
    """Scales the rows that are used and too long, in place."""
    if modes.trace is not None:
        modes.trace.decline("rows of an embedding are scaled in place")
    used = np.unique(places)
    rows = array_of(weight)[used]
    lengths = (np.abs(rows) ** order).sum(1) ** (1 / order)
    scale = np.where(lengths > longest, longest / (lengths + 1e-7), 1.0)
    array_of(weight)[used] = rows * scale[:, None].astype(rows.dtype)
    weight._counter[0] += 1


@row(name="embedding", method=False)
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """The rows of a matrix at indices; the padding row has no gradient"""
    known = 0 <= padding_idx < weight._shape[0]
    return embedding(indices, weight, padding_idx if known else None, scale_grad_by_freq=scale_grad_by_freq)


@row(method=False)
def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scales the rows at indices that are longer than a norm, in place"""
    places = array_of(indices)
    if places.size and not (places.min() >= 0 and places.max() < input._shape[0]):
        raise DimensionError("index out of range in self")
    _shorten_rows(input, places, max_norm, norm_type)
    return input


# Bags.


@row(space=NN, method=False)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or greatest of the rows of a matrix at the indices of each bag"""
    _check_bags(input, weight, offsets, mode, scale_grad_by_freq, per_sample_weights)
    if input.ndim == 2:
        rows, width = input._shape
        offsets = wrap(np.arange(rows) * width)
        input, include_last_offset = reshape(input, -1), False
        if per_sample_weights is not None:
            per_sample_weights = reshape(per_sample_weights, -1)
    assert offsets is not None
    if max_norm is not None:
        _check_indices(input, weight)
        _shorten_rows(weight, array_of(input), max_norm, norm_type)
    return _bags(
        weight,
        input,
        offsets,
        scale_grad_by_freq,
        _MODES.index(mode),
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )[0]


def _check_bags(
    input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, frequent: bool, sample_weights: Tensor | None
) -> None:
    if sample_weights is not None and sample_weights._shape != input._shape:
        raise InvalidValue(
            f"embedding_bag: If per_sample_weights ({sample_weights.shape}) is not None, then it must have "
            f"the same shape as the input ({input.shape})"
        )
    if weight.ndim != 2:
        raise InvalidValue(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim not in (1, 2):
        raise InvalidValue(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise InvalidValue("if input is 2D, then offsets has to be None: its rows are the bags")
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise InvalidValue("offsets has to be a 1D Tensor")
    if mode not in _MODES:
        raise InvalidValue("mode has to be one of sum, mean or max")
    if mode == "max" and frequent:
        raise InvalidValue("max mode does not support scaling the gradient by the frequency")
    if sample_weights is not None and mode != "sum":
        raise Unsupported(f"embedding_bag: per_sample_weights is only supported for mode='sum' (got {mode!r})")


def _check_indices(indices: Tensor, weight: Tensor) -> None:
    _check_whole(indices)
    places = array_of(indices)
    if not is_float(weight._dtype):
        raise RunError(f"embedding_bag: weight must be floating, got {weight.dtype.title}")
    count = weight._shape[0]
    wrong = np.flatnonzero((places < 0) | (places >= count))
    if wrong.size:
        raise RunError(
            f"Index {wrong[0]} of input takes value {places[wrong[0]]} which is not in the valid range [0, {count})"
        )


def _ends(offsets: Tensor, count: int, include_last: bool) -> tuple[Array, Array]:
    """Where bags start and end."""
    starts = array_of(offsets)
    if starts.dtype not in _WHOLE:
        raise RunError(f"embedding_bag: offsets must be Long or Int, got {offsets.dtype.title}")
    if include_last and not starts.size:
        raise RunError("include_last_offset: number of offset should be at least 1")
    if starts.size and starts[0] != 0:
        raise RunError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {starts[0]}"
        )
    if starts.size and starts[-1] > count:
        raise RunError(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {starts[-1]}"
        )
    ends = starts[1:] if include_last else np.append(starts[1:], count)
    starts = starts[:-1] if include_last else starts
    if (ends < starts).any():
        raise RunError("embedding_bag: offsets have to be in ascending order")
    return starts.astype(np.int64), ends.astype(np.int64)


@row(name="embedding_bag", method=False)
def _bags(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The results of bags, the bag of each index, the sizes of bags, the greatest's indices"""
    _check_indices(indices, weight)
    starts, ends = _ends(offsets, indices.numel(), include_last_offset)
    counts = ends - starts
    owners = np.repeat(np.arange(starts.size), counts)
    used = array_of(indices)[: owners.size].astype(np.int64)
    kept = _unpadded(used, padding_idx, weight._shape[0])
    places, bags = used[kept], owners[kept]
    sizes = np.bincount(bags, minlength=starts.size)
    values = chosen_from(weight, [places, None])
    if scale_grad_by_freq:
        values = _by_frequency(values, places, weight._shape[0])
    if mode == 2:
        result, greatest = _greatest(values, places, bags, starts.size)
    else:
        values = _weighed(values, per_sample_weights, kept)
        result, greatest = _sums(values, bags, sizes, mode == 1), wrap(sizes)
    return result, wrap(owners), wrap(sizes), greatest


def _unpadded(indices: Array, padding: int | None, count: int) -> Array:
    """Where indices are not that of padding."""
    if padding is None:
        return np.arange(indices.size)
    if not -count <= padding < count:
        raise RunError(
            f"padding_idx must be within the number of embeddings, -{count} through {count - 1}, but got {padding}"
        )
    return np.flatnonzero(indices != padding % count)


def _weighed(values: Tensor, sample_weights: Tensor | None, kept: Array) -> Tensor:
    if sample_weights is None:
        return values
    if sample_weights._dtype != values._dtype:
        raise RunError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument "
            f"#1 'per_sample_weights'; but got {values.dtype} and {sample_weights.dtype}"
        )
    return mul(values, unsqueeze(chosen_from(sample_weights, [kept]), 1))


def _sums(values: Tensor, bags: Array, sizes: Array, mean: bool) -> Tensor:
    base = full((sizes.size, values._shape[1]), 0.0, dtype=values.dtype)
    result = index_add(base, 0, wrap(bags), values) if bags.size else base
    if not mean:
        return result
    return div(result, wrap(np.maximum(sizes, 1).reshape(-1, 1).astype(values._dtype)))


def _greatest(values: Tensor, places: Array, bags: Array, count: int) -> tuple[Tensor, Tensor]:
    """The first of the greatest of each bag and column, which alone has a gradient; 0 of none."""
    array, width = array_of(values), values._shape[1]
    if not bags.size:
        nothing = np.zeros((count, width), np.int64)
        return full((count, width), 0.0, dtype=values.dtype), wrap(nothing)
    best = np.full((count, width), -np.inf, array.dtype)
    np.maximum.at(best, bags, array)
    same = (array == best[bags]) | np.isnan(array)
    first = np.full((count, width), bags.size)
    np.minimum.at(first, bags, np.where(same, np.arange(bags.size)[:, None], bags.size))
    full_bags = first < bags.size
    at = np.where(full_bags, first, 0)
    result = choose(wrap(full_bags), gather(values, 0, wrap(at)), 0.0)
    return result, wrap(np.where(full_bags, places[at], 0))
