"""Rows: elements read and written at positions that tensors of integers give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL, INT64
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.shape.index import GatherAttrs, TakeAttrs
from ... import native
from ...autograd.modes import modes
from ...dispatch import apply, kernel_of, record
from ...tensor.indexing import Chosen, apart, chosen_from, index_arrays, put_chosen, with_chosen
from ...tensor.inplace import check_writable
from ...tensor.memory import Array, array_of, memory_of
from ...tensor.tensor import DimensionError, Tensor, axis_of, wrap
from ...tensor.viewing import part_of
from ..hosted import checked
from ..operands import Number, in_dtype
from ..shape.parts import put_at
from ..shape.shape import expand, reshape
from ..table import row

_GATHER, _GATHER_GRAD, _TAKE, _TAKE_GRAD, _ADD, _MUL, _WHERE = map(
    Op.get, "gather_elements _gather_elements_grad take _take_grad broadcast_add broadcast_mul broadcast_where".split()
)


def whole(index: Tensor, name: str, error: type[Exception] = RunError) -> Array:
    """Indices, which must be integers."""
    _check_whole(index, name, error)
    return array_of(index).astype(np.int64, copy=False)


def _check_whole(index: Tensor, name: str, error: type[Exception] = RunError) -> None:
    if index._dtype not in (np.int64, np.int32) and index.numel():
        raise error(f"{name}(): Expected dtype int32/int64 for index but got {index.dtype.title}")


def _inside(places: Array, axis: int, size: int, error: type[Exception] = RunError) -> Array:
    _check_inside(places, axis, size, error)
    return places


def _check_inside(places: Array, axis: int, size: int, error: type[Exception] = RunError) -> None:
    if places.size and int(places.view(np.uint64).max()) >= size:  # or below 0
        low, high = int(places.min()), int(places.max())
        if low < 0 or high >= size:
            wrong = low if low < 0 else high
            raise error(f"index {wrong} is out of bounds for dimension {axis} with size {size}")


def _with_axis(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim else reshape(tensor, 1)


def at_elements(input: Tensor, dim: int, index: Tensor, name: str) -> tuple[Tensor, int, Tensor]:
    """Data, axis and indices of what reads or writes element by element, all with axes."""
    axis = axis_of(dim, input.ndim)
    _check_whole(index, name)
    data, where = _with_axis(input), index if index.ndim else reshape(index, 1)
    if where.numel() and where.ndim != data.ndim:
        raise RunError(
            "Index tensor must have the same number of dimensions as input tensor",
            why=f"{where.ndim} are not {data.ndim}",
        )
    if where.numel():
        for at, (want, have) in enumerate(zip(where._shape, data._shape)):
            if at != axis and want > have:
                raise RunError(
                    f"Size does not match at dimension {at} expected index {list(where.shape)} to "
                    f"be no larger than self {list(data.shape)} apart from dimension {axis}"
                )
    size = data._shape[axis]
    where = where._cast(INT64)
    checked(lambda places: _check_inside(places, axis, size), where)
    return data, axis, where.detach()


@row(out="strict")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i, j] = input[index[i, j], j], along axis 0

    >>> import weft
    >>> x = weft.tensor([[1, 2], [3, 4]])
    >>> weft.gather(x, 1, weft.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    data, axis, where = at_elements(input, dim, index, "gather")
    if not where.numel():
        nothing = chosen_from(reshape(input, -1), [np.empty(0, np.int64)])
        return reshape(nothing, index._shape)
    made = apply(_GATHER, GatherAttrs(axis=axis), [data, where])[0]
    return made if index.ndim else reshape(made, ())


def first_part(src: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """As many elements of a source along each axis as there are indices."""
    src = _with_axis(src)
    have = src._shape
    if len(have) != len(shape):
        raise RunError("Index tensor must have the same number of dimensions as src tensor")
    if any(n > dim for n, dim in zip(shape, have)):
        raise RunError(f"{name}: Expected index {list(shape)} to be no larger than src {list(have)}")
    index = tuple(slice(0, n) for n in shape)
    return part_of(src, [(0, n, 1) for n in shape], memory_of(src)[index])


def element_places(shape: Sequence[int], axis: int, where: Array) -> Array:
    """The numbers of the elements that indices along one axis mean."""
    places = np.zeros(where.shape, np.int64)
    stride = 1
    for at in range(len(shape) - 1, -1, -1):
        steps = (
            where
            if at == axis
            else np.arange(where.shape[at]).reshape([-1 if a == at else 1 for a in range(where.ndim)])
        )
        places = places + steps * stride
        stride *= shape[at]
    return places


def _source_at(input: Tensor, where: Array, src: Any, name: str) -> Tensor:
    """What is written at indices: a source, or a number."""
    if not isinstance(src, Tensor):
        return expand(in_dtype(src, input._dtype), where.shape)
    if src._dtype != input._dtype:
        raise RunError("scatter(): Expected self.dtype to be equal to src.dtype")
    return first_part(src, where.shape, name) if where.size else src


def _write_scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> bool:
    if reduce is not None or not input.ndim:
        return False
    _, axis, where = at_elements(input, dim, index, "scatter")
    source = array_of(_source_at(input, array_of(where), value if src is None else src, "scatter"))
    if not where.numel():
        return True
    return native.put_elements(array_of(input), axis, array_of(where), apart(source, array_of(input)))


@row(inplace=True, out=True, writes=_write_scatter)
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy with input[index[i, j], j] = src[i, j], along axis 0

    >>> import weft
    >>> weft.scatter(weft.zeros(3), 0, weft.tensor([2, 0]), weft.tensor([5.0, 6.0]))
    tensor([6., 0., 5.])
    >>> weft.zeros(2, 3, dtype=weft.int64).scatter(1, weft.tensor([[0], [2]]), 1)
    tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    src = value if src is None else src
    if reduce not in (None, "add", "multiply"):
        raise RunError("reduce argument must be either add or multiply.")
    data, axis, where = at_elements(input, dim, index, "scatter")
    values = _source_at(input, array_of(where), src, "scatter")
    if not where.numel():
        return copied(input)
    if reduce == "add":
        made = _added(data, axis, where, values)
    elif reduce == "multiply":
        made = multiplied(data, element_places(data._shape, axis, array_of(where)), values)
    else:
        made = put_at(data, element_places(data._shape, axis, array_of(where)), values)
    return reshape(made, input._shape)


def copied(input: Tensor) -> Tensor:
    return apply(Op.get("copy"), None, [input])[0]


def _added(data: Tensor, axis: int, where: Tensor, values: Tensor) -> Tensor:
    total = None if modes.trace is not None else native.ordered_copy(array_of(data))
    if total is not None and native.add_elements(total, axis, array_of(where), array_of(values)):
        return _sum_of(data, _GATHER_GRAD, GatherAttrs(axis=axis), [values, data, where], total)
    more = apply(_GATHER_GRAD, GatherAttrs(axis=axis), [values, data, where])[0]
    return apply(_ADD, None, [data, more])[0]


def _sum_of(data: Tensor, op: Op, params: Any, inputs: Sequence[Tensor], total: Array) -> Tensor:
    """data + op(inputs), whose values are known: what is left is its place in the graph."""
    made = wrap(total)
    if modes.grad and any(tensor.requires_grad for tensor in (data, inputs[0])):
        more = wrap(np.broadcast_to(np.zeros((), total.dtype), total.shape))
        if inputs[0].requires_grad:
            record(kernel_of(op), params, inputs, (more,))
        record(kernel_of(_ADD), None, (data, more), (made,))
    return made


def _write_scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> bool:
    if not input.ndim:
        return False
    _, axis, where = at_elements(input, dim, index, "scatter_add")
    source = array_of(_source_at(input, array_of(where), src, "scatter_add"))
    return native.add_elements(array_of(input), axis, array_of(where), apart(source, array_of(input)))


@row(inplace=True, out=True, writes=_write_scatter_add)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with input[index[i, j], j] += src[i, j], along axis 0

    >>> import weft
    >>> weft.scatter_add(weft.zeros(3), 0, weft.tensor([0, 2, 2]), weft.tensor([1.0, 2.0, 3.0]))
    tensor([1., 0., 5.])
    """
    data, axis, where = at_elements(input, dim, index, "scatter_add")
    values = _source_at(input, array_of(where), src, "scatter_add")
    if not where.numel():
        return copied(input)
    return reshape(_added(data, axis, where, values), input._shape)


def multiplied(data: Tensor, places: Array, values: Tensor) -> Tensor:
    """A copy with values multiplied to elements; each round takes the next one of every element."""
    flat, numbers, made = reshape(values, -1), places.reshape(-1), data
    for chosen in _rounds(numbers):
        ones = wrap(np.ones(data._shape, data._dtype))
        factors = put_at(ones, numbers[chosen], chosen_from(flat, [chosen]))
        made = apply(_MUL, None, [made, factors])[0]
    return made


def _rounds(numbers: Array) -> list[Array]:
    """Positions of the first, second, ... occurrence of each number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(order) else order
    ranks = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    return [order[ranks == k] for k in range(int(ranks.max()) + 1)] if len(order) else []


# Whole slices of an axis.


def _places_along(input: Tensor, dim: int, index: Tensor, name: str) -> tuple[Tensor, int, Tensor]:
    """Data with an axis, the axis, and indices that are checked: a vector of int64."""
    if index.ndim > 1:
        raise DimensionError(f"{name}(): Index is supposed to be a vector")
    axis = axis_of(dim, input.ndim)
    _check_whole(index, name)
    data = _with_axis(input)
    places = reshape(index._cast(np.dtype(np.int64)), -1)
    size = data._shape[axis]
    checked(lambda found: _check_inside(found, axis, size, DimensionError), places)
    return data, axis, places


def along(input: Tensor, dim: int, index: Tensor, name: str) -> tuple[Tensor, int, Array]:
    """The same with indices as an array."""
    data, axis, places = _places_along(input, dim, index, name)
    return data, axis, array_of(places)


@row(out="strict")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices of an axis at indices

    >>> import weft
    >>> weft.index_select(weft.tensor([[1, 2], [3, 4], [5, 6]]), 0, weft.tensor([2, 0]))
    tensor([[5, 6],
            [1, 2]])
    """
    data, axis, places = _places_along(input, dim, index, "index_select")
    made = apply(_TAKE, TakeAttrs(axis=axis), [data, places])[0]
    return made if input.ndim else reshape(made, ())


def _source_of(input: Tensor, data: Tensor, axis: int, places: Array, source: Tensor, name: str) -> Tensor:
    """What is written at slices, in the shape that they have together."""
    if source._dtype != input._dtype:
        raise RunError(f"{name}(): self and source expected to have the same dtype")
    shape = list(data._shape)
    shape[axis] = places.size
    if source.numel() == places.size and len(shape) == 1 and source.ndim <= 1:
        return reshape(source, shape)
    if source.ndim and source._shape != tuple(shape):
        raise RunError(
            f"{name}(): Source/destination tensor must have same slice shapes.",
            why=f"the source is {list(source.shape)}, not {shape}",
        )
    if not source.ndim and np.prod(shape) != 1:
        raise RunError(f"{name}(): Number of indices ({places.size}) should be equal to source")
    return reshape(source, shape)


def _rows(data: Tensor, axis: int, places: Array) -> Chosen:
    return [places if at == axis else None for at in range(data.ndim)]


def _write_index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> bool:
    if alpha != 1 or not input.ndim:
        return False
    data, axis, places = along(input, dim, index, "index_add")
    values = array_of(_source_of(input, data, axis, places, source, "index_add"))
    return native.add_rows(array_of(input), axis, places, apart(values, array_of(input)))


@row(inplace=True, out=True, writes=_write_index_add)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy with alpha * source added to slices of an axis

    >>> import weft
    >>> weft.index_add(weft.zeros(3), 0, weft.tensor([0, 2, 2]), weft.tensor([1.0, 2.0, 3.0]))
    tensor([1., 0., 5.])
    """
    data, axis, places = along(input, dim, index, "index_add")
    values = _source_of(input, data, axis, places, source, "index_add")
    if alpha != 1:
        scale = in_dtype(alpha, input._dtype)
        values = apply(_MUL, None, [values, scale])[0]
    given, params = [values, data, wrap(places)], TakeAttrs(axis=axis)
    total = None if modes.trace is not None else native.ordered_copy(array_of(data))
    if total is not None and native.add_rows(total, axis, places, array_of(values)):
        return reshape(_sum_of(data, _TAKE_GRAD, params, given, total), input._shape)
    more = apply(_TAKE_GRAD, params, given)[0]
    return reshape(apply(_ADD, None, [data, more])[0], input._shape)


def _write_index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> bool:
    if index._dtype != np.int64 or not input.ndim:
        return False
    data, axis, places = along(input, dim, index, "index_copy")
    values = array_of(_source_of(input, data, axis, places, source, "index_copy"))
    array_of(input)[(slice(None),) * axis + (places,)] = values
    return True


@row(inplace=True, out=True, writes=_write_index_copy)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with other slices at indices of an axis"""
    if index._dtype != np.int64:
        raise RunError(f"index_copy_(): Expected a long tensor for index, but got {index.dtype}")
    data, axis, places = along(input, dim, index, "index_copy")
    values = _source_of(input, data, axis, places, source, "index_copy")
    if not places.size:
        return copied(input)
    return reshape(with_chosen(data, _rows(data, axis, places), values, False), input._shape)


@row(inplace=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with one value in slices of an axis"""
    if index._dtype != np.int64:
        raise DimensionError("index_fill_(): Expected dtype int64 for index.")
    if isinstance(value, Tensor) and value.ndim:
        raise RunError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    data, axis = _with_axis(input), axis_of(dim, input.ndim)
    size = data._shape[axis]
    places = whole(index, "index_fill").reshape(-1)
    places = _inside(np.where(places < 0, places + size, places), axis, size, DimensionError)
    if not places.size:
        return copied(input)
    rows = _rows(data, axis, np.unique(places))
    filler = in_dtype(value, input._dtype)
    return reshape(with_chosen(data, rows, filler, False), input._shape)


@row
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with other values at the elements that index tensors choose"""
    if values._dtype != input._dtype:
        raise RunError(
            "Index put requires the source and destination dtypes match, got "
            f"{input.dtype.title} for the destination and {values.dtype.title} for the source."
        )
    return with_chosen(input, _chosen("index_put", input, indices), values, accumulate)


@row
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Writes values to the elements that index tensors choose"""
    check_writable(input)
    put_chosen(input, _chosen("index_put_", input, indices), values, accumulate)
    return input


def _chosen(name: str, input: Tensor, indices: Any) -> Any:
    chosen = index_arrays(tuple(indices), input._shape)
    if all(array is None for array in chosen):
        raise RunError(f"{name}(): indices have no tensor in them")
    return chosen


# Elements by their number.


def _flat_places(input: Tensor, index: Tensor, name: str) -> Array:
    if index._dtype != np.int64:
        raise RunError(f"{name}(): Expected a long tensor for index, but got {index.dtype.title}")
    size = input.numel()
    places = array_of(index)
    if places.size and not size:
        raise DimensionError(f"{name}(): tried to take from an empty tensor")
    if not places.size or int(places.view(np.uint64).max()) < size:
        return places
    if not (-size <= places.min() and places.max() < size):
        raise DimensionError(f"out of range: tried to access index {int(places.max())} on a tensor of {size} elements.")
    return np.where(places < 0, places + size, places)


@row(out="strict")
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their number in the flattened tensor"""
    places = _flat_places(input, index, "take")
    return apply(_TAKE, TakeAttrs(axis=None), [input, wrap(places)])[0]


def _put_places(input: Tensor, index: Tensor, source: Tensor) -> Array:
    places = _flat_places(input, index, "put_")
    if source._dtype != input._dtype:
        raise RunError("put_(): self and source expected to have the same dtype")
    if source.numel() != places.size:
        raise RunError(
            f"put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source.numel()}, index.numel() = {places.size}"
        )
    return places


def _write_put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> bool:
    places, array = _put_places(input, index, source), array_of(input)
    if not array.flags.c_contiguous:
        return False
    values = apart(array_of(source), array).reshape(-1)
    written = native.add_elements if accumulate else native.put_elements
    return written(array.reshape(-1), 0, places.reshape(-1), values)


@row(inplace=True, writes=_write_put)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with other elements at numbers in the flattened tensor"""
    places = _put_places(input, index, source)
    if not places.size:
        return copied(input)
    if accumulate:
        more = [reshape(source, places.shape), input, wrap(places)]
        added = apply(_TAKE_GRAD, TakeAttrs(axis=None), more)[0]
        return apply(_ADD, None, [input, added])[0]
    return put_at(input, places, source)


@row(out="strict")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements along an axis at indices; the other axes broadcast

    >>> import weft
    >>> x = weft.tensor([[3, 1, 2], [4, 6, 5]])
    >>> weft.take_along_dim(x, x.argsort(dim=1), dim=1)
    tensor([[1, 2, 3],
            [4, 5, 6]])
    """
    if indices._dtype != np.int64:
        raise RunError(f"take_along_dim(): dtype of indices should be Long but got {indices.dtype.title}")
    if dim is None:
        return gather(reshape(input, -1), 0, reshape(indices, -1))
    rank = input.ndim
    if indices.ndim != rank:
        raise RunError(
            "take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {rank} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    axis = axis_of(dim, rank)
    have, want = list(input._shape), list(indices._shape)
    have[axis] = want[axis] = 1
    try:
        both = list(np.broadcast_shapes(tuple(have), tuple(want)))
    except ValueError as error:
        raise RunError(f"shapes {have} and {want} do not broadcast") from error
    shapes = [[*both], [*both]]
    for shape, tensor in zip(shapes, (input, indices)):
        shape[axis] = tensor._shape[axis]
    size = input._shape[axis]
    places = wrap(np.where(array_of(indices) < 0, array_of(indices) + size, array_of(indices)))
    return gather(expand(input, shapes[0]), axis, expand(places, shapes[1]))


# By masks.


def mask_of(mask: Tensor, name: str) -> Array:
    _check_mask(mask, name)
    return array_of(mask)


def _check_mask(mask: Tensor, name: str) -> None:
    if mask._dtype != BOOL:
        raise RunError(f"{name}: expected BoolTensor for mask, but got {mask.dtype.title}")


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        shown = " and ".join(str(list(shape)) for shape in shapes)
        raise RunError(f"the sizes of tensors do not match: {shown} do not broadcast") from None


@row(out="strict")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask holds, as a vector

    >>> import weft
    >>> x = weft.tensor([[1, 2], [3, 4]])
    >>> weft.masked_select(x, x > 1)
    tensor([2, 3, 4])
    """
    held = mask_of(mask, "masked_select")
    shape = _broadcast(input._shape, held.shape)
    flat = np.flatnonzero(np.broadcast_to(held, shape))
    return chosen_from(reshape(expand(input, shape), -1), [flat])


@row(inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """One value where a mask holds

    >>> import weft
    >>> x = weft.tensor([1, 2, 3])
    >>> x.masked_fill(x > 1, 0)
    tensor([1, 0, 0])
    """
    _check_mask(mask, "masked_fill")
    if isinstance(value, Tensor) and value.ndim:
        raise RunError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    _broadcast(input._shape, mask._shape)
    filler = in_dtype(_fits(value, input), input._dtype)
    return apply(_WHERE, None, [mask.detach(), filler, input])[0]


def _fits(value: Any, input: Tensor) -> Any:
    """A value that may be filled in: a number of a higher kind may not."""
    kind = value._dtype.kind if isinstance(value, Tensor) else np.asarray(value).dtype.kind
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}
    lower = ranks[kind] <= ranks[input._dtype.kind]
    if not (lower or (isinstance(value, Number) and ranks[kind] <= 1)):
        raise RunError(f"value cannot be converted to type {input.dtype.name} without overflow")
    return value


@row(inplace=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The next element of a source at each place where a mask holds"""
    held = mask_of(mask, "masked_scatter_")
    if source._dtype != input._dtype:
        raise RunError(
            f"masked_scatter_: expected self and source to have same dtypes but got "
            f"{input.dtype.title} and {source.dtype.title}"
        )
    shape = _broadcast(input._shape, held.shape)
    places = np.flatnonzero(np.broadcast_to(held, shape))
    if source.numel() < places.size:
        raise RunError(f"Number of elements of source < number of ones in mask: {source.numel()} < {places.size}")
    if not places.size:
        return copied(expand(input, shape))
    values = chosen_from(reshape(source, -1), [np.arange(places.size)])
    return put_at(expand(input, shape), places, values)


@row
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The places of elements by their number"""
    sizes = [int(n) for n in (shape if isinstance(shape, (tuple, list)) else [shape])]
    if indices._dtype.kind not in "iu":
        raise InvalidValue(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if any(n < 0 for n in sizes):
        raise InvalidValue(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    made, rest = [], array_of(indices)
    for size in reversed(sizes):
        made.append(wrap(np.asarray(rest % size)))
        rest = rest // size
    return tuple(made[::-1])
