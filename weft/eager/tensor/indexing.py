"""x[index] and x[index] = value, as PyTorch has them: whatever slices describe is a view, what
tensors of indices or masks choose is a copy."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import InvalidType, InvalidValue, RunError
from ...core.op import Op
from ...ops.shape.index import TakeAttrs
from ...ops.shape.join import ConcatenateAttrs
from .. import native
from ..autograd.modes import modes
from ..autograd.node_names import entitle
from ..dispatch import apply, kernel_of, record
from ..functions.around import LAYERS, layered
from ..functions.operands import in_dtype
from ..functions.shape.shape import expand, reshape
from .inplace import check_writable, write
from .memory import Array, ForeignMemory, array_of, memory_of
from .tensor import DimensionError, Tensor, bind, too_many_axes, wrap
from .viewing import part_of, permuted, place_of, reshaped

_TAKE, _GATHER, _SCATTER, _GATHER_GRAD, _ADD, _WHERE, _CONCATENATE = map(
    Op.get, "take gather_nd scatter_nd _gather_nd_grad broadcast_add broadcast_where concatenate".split()
)
Chosen = list[Array | None]  # an array of indices for each axis, None where all are taken


class Basic(NamedTuple):
    """The part of an index that is a view: numpy's index, (start, length, step) for each axis, and
    the arrays that then choose from the axes of the view."""

    numpy_index: tuple[Any, ...]
    slices: list[tuple[int, int, int]]
    chosen: list[Any]


def _items(index: Any, rank: int) -> list[Any]:
    """The items of an index, with an ellipsis as the slices it stands for."""
    items = list(index) if _is_several(index) else [index]
    items = [_item(item) for item in items]
    taken = sum(_axes_of(item) for item in items)
    if taken > rank:
        raise DimensionError(f"too many indices for tensor of dimension {rank}")
    dots = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise DimensionError("an index can only have a single ellipsis ('...')")
    fill: list[Any] = [slice(None)] * (rank - taken)
    at = dots[0] if dots else len(items)
    return items[:at] + fill + items[at + 1 :]


def _is_several(index: Any) -> bool:
    """Whether an index is one for several axes: a tuple, or a short list that is no index array."""
    if not isinstance(index, list) or len(index) >= 32:
        return isinstance(index, tuple)
    kinds = (Tensor, np.ndarray, list, tuple, slice, type(Ellipsis), type(None))
    return any(isinstance(item, kinds) for item in index)


def _item(item: Any) -> Any:
    """An item as an int, slice, None, Ellipsis, bool or array."""
    if item is None or item is Ellipsis or isinstance(item, (int, slice)):
        return item
    array = array_of(item) if isinstance(item, Tensor) else item
    if isinstance(array, (list, tuple, range)):
        array = _array_of(array)
    if isinstance(array, (np.ndarray, np.generic)):
        if array.dtype.kind not in "iub":
            raise DimensionError("tensors used as indices must be long, int, byte or bool tensors")
        if array.dtype == np.uint8 and array.ndim:
            return np.asarray(array) != 0
        if array.ndim:
            return array
        return bool(array) if array.dtype == bool else int(array)
    try:
        return operator.index(item)
    except TypeError:
        raise DimensionError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
            f"valid indices (got {type(item).__name__})"
        ) from None


def _array_of(items: Sequence[Any]) -> Array:
    if not len(items):
        return np.empty(0, np.int64)
    try:
        return np.asarray([array_of(item) if isinstance(item, Tensor) else item for item in items])
    except ValueError:
        raise InvalidValue("an index has lists of different lengths") from None


def _axes_of(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return int(item.ndim) if isinstance(item, np.ndarray) and item.dtype == bool else 1


def _basic(index: Any, shape: Sequence[int]) -> Basic:
    parts: list[Any] = []
    slices: list[tuple[int, int, int]] = []
    chosen: list[Any] = []
    axis = 0
    for item in _items(index, len(shape)):
        if item is None or isinstance(item, bool):
            parts.append(None)
            chosen.append(None if item is None else np.asarray([item]))
        elif isinstance(item, int):
            slices.append((_inside(item, axis, shape[axis]), 1, 1))
            parts.append(slices[-1][0])
            axis += 1
        elif isinstance(item, slice):
            slices.append(_bounds(item, shape[axis]))
            parts.append(item)
            chosen.append(None)
            axis += 1
        else:
            count = _axes_of(item)
            slices += [(0, dim, 1) for dim in shape[axis : axis + count]]
            parts += [slice(None)] * count
            chosen += [item, *[_MORE] * (count - 1)]
            axis += count
    return Basic((*parts, Ellipsis), slices, chosen)


_ALL = slice(None)
_MORE = object()  # an axis that the mask of an axis before it covers, too


def _inside(index: int, axis: int, size: int) -> int:
    if not -size <= index < size:
        raise DimensionError(f"index {index} is out of bounds for dimension {axis} with size {size}")
    return index + size if index < 0 else index


def _bounds(item: slice, size: int) -> tuple[int, int, int]:
    try:
        if item.step is not None and item.step <= 0:
            raise InvalidValue("step must be greater than zero")
        start, stop, step = item.indices(size)
    except TypeError:
        raise InvalidType("slice indices must be integers or None or have an __index__ method") from None
    return start if stop > start else 0, max(-((start - stop) // step), 0), step


def index_arrays(items: Sequence[Any], shape: Sequence[int]) -> Chosen:
    """What tensors (or None for all) choose along the axes of a tensor of that shape."""
    chosen: list[Any] = []
    for item in items:
        array = None if item is None else np.asarray(_item(item))
        chosen += [array, *[_MORE] * (0 if array is None else max(_axes_of(array), 1) - 1)]
    if len(chosen) > len(shape):
        raise DimensionError(f"too many indices for tensor of dimension {len(shape)}")
    return _arrays(chosen + [None] * (len(shape) - len(chosen)), shape)


def _arrays(chosen: Sequence[Any], shape: Sequence[int]) -> Chosen:
    """Index arrays with masks as the places where they hold, checked and of one shape."""
    arrays: Chosen = []
    for axis, item in enumerate(chosen):
        if item is None or item is _MORE:
            if item is None:
                arrays.append(None)
        elif item.dtype == bool:
            have = tuple(shape[axis : axis + item.ndim])
            for at, (want, dim) in enumerate(zip(item.shape, have)):
                if want != dim:
                    raise DimensionError(
                        f"The shape of the mask {list(item.shape)} at index {at} does not match "
                        f"the shape of the indexed tensor {list(shape)} at index {axis + at}"
                    )
            arrays += list(native.nonzero(item, True))
        else:
            arrays.append(item.astype(np.int64, copy=False))
    arrays = _of_one_shape(arrays)
    if any(array is not None and not array.size for array in arrays):
        return [None if array is None else np.zeros_like(array) for array in arrays]
    return [None if array is None else _inside_all(array, axis, shape[axis]) for axis, array in enumerate(arrays)]


def _inside_all(indices: Array, axis: int, size: int) -> Array:
    """Indices counted from the front."""
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        raise DimensionError(
            f"index {low if low < -size else high} is out of bounds for dimension {axis} with size {size}"
        )
    return np.where(indices < 0, indices + size, indices) if low < 0 else indices


def _of_one_shape(arrays: Chosen) -> Chosen:
    given = [array for array in arrays if array is not None]
    if len(given) < 2:
        return arrays
    try:
        shape = np.broadcast_shapes(*(array.shape for array in given))
    except ValueError:
        shapes = ", ".join(str(list(array.shape)) for array in given)
        raise DimensionError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes
        ) from None
    return [None if array is None else np.broadcast_to(array, shape) for array in arrays]


# Reading.


def get(self: Tensor, index: Any) -> Tensor:
    """x[index]"""
    if type(index) is int and (shape := self._shape):
        made = place_of(self, 0, _inside(index, 0, shape[0]))
        entitle(made, "SelectBackward0")
        return made
    if modes.trace is not None and _is_by_batches(index):
        made = _chosen_by_batches(self, index if isinstance(index, tuple) else (index,))
        entitle(made, "IndexBackward0")
        return made
    if modes.trace is not None and (place := _place_of_one(index)) is not None:
        made = _chosen_along(self, index, place)
        entitle(made, "IndexBackward0")
        return made
    masked = _is_whole_mask(self, index)
    view, chosen = (self, None) if masked else _seen(self, index)
    if masked or chosen is not None:
        made = chosen_by(self, _array_of_mask(index)) if chosen is None else chosen_from(view, chosen)
        entitle(made, "IndexBackward0")
        return made
    last = index[-1] if isinstance(index, tuple) and index else index
    entitle(view, TITLES.get(type(last), "SliceBackward0"))
    return view


def _is_by_batches(index: Any) -> bool:
    """Whether tensors of integers alone are the index, and one of them has no elements of its own, or none yet."""
    items = index if isinstance(index, tuple) else (index,)
    if not all([isinstance(item, Tensor) and item._dtype.kind == "i" for item in items]):
        return False
    return any([not isinstance(memory_of(item), np.ndarray) for item in items])


def _place_of_one(index: Any) -> int | None:
    """Where in an index the only tensor stands, one of integers that have no values yet, beside slices."""
    if not isinstance(index, tuple):
        return None
    found = [place for place, item in enumerate(index) if isinstance(item, Tensor)]
    others = all([item is None or item is Ellipsis or isinstance(item, (slice, Tensor)) for item in index])
    if len(found) != 1 or not others:
        return None
    tensor = index[found[0]]
    is_known = isinstance(memory_of(tensor), (np.ndarray, ForeignMemory))
    return found[0] if tensor._dtype.kind == "i" and not is_known else None


def _chosen_along(self: Tensor, index: tuple[Any, ...], place: int) -> Tensor:
    """What slices see, and along one of its axes the elements at places, by operators."""
    view = get(self, (*index[:place], slice(None), *index[place + 1 :]))
    after = len([item for item in index[place + 1 :] if item is not Ellipsis])
    axis = view.ndim - 1 - after if any([item is Ellipsis for item in index[:place]]) else place
    places, size = index[place]._cast(np.dtype(np.int64)), view._shape[axis]
    if places.numel():
        modes.trace.check(partial(_inside_all, axis=axis, size=size), places)
    return apply(_TAKE, TakeAttrs(axis=axis), [view, places])[0]


def _coordinates(self: Tensor, index: tuple[Tensor, ...]) -> Tensor:
    """Indices of the first axes, each checked, as rows of one tensor: (axes, ...)."""
    if len(index) > self.ndim:
        raise DimensionError(f"too many indices for tensor of dimension {self.ndim}")
    for axis, item in enumerate(index):
        size = self._shape[axis]
        if item.numel():
            modes.trace.check(partial(_inside_all, axis=axis, size=size), item)
    shape = np.broadcast_shapes(*[item._shape for item in index])
    rows = [reshape(expand(item._cast(np.dtype(np.int64)), shape), (1, *(shape or (1,)))) for item in index]
    return apply(_CONCATENATE, ConcatenateAttrs(axis=0), rows)[0]


def _chosen_by_batches(self: Tensor, index: tuple[Tensor, ...]) -> Tensor:
    """The elements at coordinates in the first axes, by operators."""
    made = apply(_GATHER, None, [self, _coordinates(self, index)])[0]
    return made if any([item.ndim for item in index]) else reshape(made, made._shape[1:])


def _put_by_batches(self: Tensor, index: tuple[Tensor, ...], source: Tensor) -> None:
    """Values written at coordinates in the first axes, by operators."""
    places = _coordinates(self, index)
    values = _fitted(source, (*places._shape[1:], *self._shape[len(index) :]))
    check_writable(self)
    write(self, apply(_SCATTER, None, [self, places, values])[0])


def _is_whole_mask(self: Tensor, index: Any) -> bool:
    """Whether the index is a mask for all elements."""
    if not isinstance(index, (Tensor, np.ndarray)):
        return False
    memory = memory_of(index) if isinstance(index, Tensor) else index
    return bool(memory.dtype == bool and memory.ndim and memory.shape == self._shape)


def _array_of_mask(mask: Any) -> Array:
    array: Array = array_of(mask) if isinstance(mask, Tensor) else mask
    return array


def chosen_by(self: Tensor, mask: Array | None) -> Tensor:
    """The elements where a mask of their shape holds."""
    return chosen_from(reshape(self, -1), [np.flatnonzero(mask)])  # type: ignore[arg-type]


TITLES = {int: "SelectBackward0", type(None): "UnsqueezeBackward0"}


def _seen(self: Tensor, index: Any) -> tuple[Tensor, Chosen | None]:
    """The view that an index begins with, and the arrays that choose from its axes, if any."""
    array = memory_of(self)
    basic = _basic(index, array.shape)
    chooses = any([item is not None for item in basic.chosen])
    if chooses and all([item == _ALL for item in basic.numpy_index[:-1]]):
        return self, _arrays(basic.chosen, array.shape)
    try:
        part = array[basic.numpy_index]
    except IndexError as error:  # extents are checked by now
        raise too_many_axes("indexing", str(error)) from None
    view = part_of(self, basic.slices, part)
    if not chooses:
        return view, None
    return view, _arrays(basic.chosen, view._shape)


def chosen_from(source: Tensor, arrays: Chosen) -> Tensor:
    """The elements that index arrays choose, along the axes that have one."""
    axes = [axis for axis, array in enumerate(arrays) if array is not None]
    merged = _merged(source, axes, arrays)
    if merged is not None:
        return apply(_TAKE, TakeAttrs(axis=axes[0]), merged)[0]
    if modes.trace is None and not (modes.grad and source._requires_grad):
        return wrap(np.ascontiguousarray(array_of(source)[_numpy_index(arrays)]))
    order = _order(axes, source.ndim)
    places = wrap(np.stack([array for array in arrays if array is not None]))
    made = apply(_GATHER, None, [permuted(source, order), places])[0]
    return permuted(made, _back(axes, places.ndim - 1, made.ndim))


def _merged(source: Tensor, axes: Sequence[int], arrays: Chosen) -> list[Tensor] | None:
    """A view in which the axes that are indexed are one, and the indices along that; None where
    there is no such view."""
    first, last, array = axes[0], axes[-1], memory_of(source)
    numbers: Any = arrays[first]
    if first == last:
        return [source, wrap(numbers)]
    if last - first + 1 != len(axes):
        return None
    for axis in axes[1:]:
        numbers = numbers * array.shape[axis] + arrays[axis]
    shape = (*array.shape[:first], prod(array.shape[first : last + 1]), *array.shape[last + 1 :])
    try:
        return [reshaped(source, array.reshape(shape, copy=False)), wrap(numbers)]
    except ValueError:
        return None


def _numpy_index(arrays: Chosen) -> tuple[Any, ...]:
    return tuple(slice(None) if array is None else array for array in arrays)


def _order(axes: Sequence[int], rank: int) -> list[int]:
    """The axes with those that are indexed first."""
    return [*axes, *(axis for axis in range(rank) if axis not in axes)]


def _back(axes: Sequence[int], count: int, rank: int) -> list[int]:
    """Brings `count` axes of the indices from the front to where the indexed axes were, if those
    are neighbours."""
    first = axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0
    rest = list(range(count, rank))
    return rest[:first] + list(range(count)) + rest[first:]


# Writing.


def put(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value"""
    source = in_dtype(value, self._dtype) if not isinstance(value, Tensor) else value
    source = source._cast(self._dtype)
    if modes.trace is not None and _is_by_batches(index):
        _put_by_batches(self, index if isinstance(index, tuple) else (index,), source)
        return
    if source.numel() == 1 and _is_whole_mask(self, index):
        mask = index if isinstance(index, Tensor) else wrap(index)
        check_writable(self)
        write(self, apply(_WHERE, None, [mask, reshape(source, ()), self])[0])
        return
    view, chosen = _seen(self, index)
    if chosen is None:
        check_writable(view)
        write(view, _fitted(source, view._shape))
    else:
        put_chosen(view, chosen, source, False)


def _fitted(value: Tensor, shape: Sequence[int]) -> Tensor:
    """A value expanded to a shape; leading axes of size 1 may be too many."""
    have = value._shape
    extra = len(have) - len(shape)
    if extra > 0 and all(dim == 1 for dim in have[:extra]):
        value = reshape(value, have[extra:])
    try:
        return expand(value, tuple(shape))
    except RunError as error:
        raise RunError(
            f"shape mismatch: value tensor of shape {list(have)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        ) from error


def apart(values: Array, array: Array) -> Array:
    """Values that writing to an array does not change."""
    return values.copy() if np.may_share_memory(values, array) else values


def put_chosen(target: Tensor, arrays: Chosen, value: Tensor, accumulate: bool) -> None:
    """Writes values to the elements that index arrays choose."""
    recorded = modes.grad and (target.requires_grad or value._requires_grad)
    if modes.trace is not None or (recorded and (accumulate or not _is_leading(arrays))):
        write(target, with_chosen(target, arrays, value, accumulate))
        return
    check_writable(target, recorded)
    index = _numpy_index(arrays)
    shape = _result_shape(target, arrays)
    values = array_of(_fitted(value, shape))
    if accumulate and not _add_rows(array_of(target), arrays, values):
        np.add.at(array_of(target), index, values)
    elif not accumulate:
        array_of(target)[index] = values
    if recorded:
        write(target, _overwritten(target, arrays, value))
    else:
        target._counter[0] += 1


def _add_rows(array: Array, arrays: Chosen, values: Array) -> bool:
    """Whether values were added to the rows that indices of the first axes choose."""
    axes = [at for at in arrays if at is not None]
    if not _is_leading(arrays) or not array.flags.c_contiguous:
        return False
    numbers = axes[0]
    for extent, at in zip(array.shape[1:], axes[1:]):
        numbers = numbers * extent + at
    rows = array.reshape(-1, *array.shape[len(axes) :])
    return native.add_rows(rows, 0, numbers, apart(values, array))


def _is_leading(arrays: Chosen) -> bool:
    """Whether the first axes are indexed, and no others."""
    held = [array is not None for array in arrays]
    return held == sorted(held, reverse=True)


def _overwritten(target: Tensor, arrays: Chosen, value: Tensor) -> Tensor:
    """What a tensor is after values were written to it, where the first axes are indexed."""
    made = wrap(array_of(target))
    places = wrap(np.stack([array for array in arrays if array is not None]))
    values = _fitted(value, _result_shape(target, arrays))
    record(kernel_of(_SCATTER), None, (target, places, values), (made,))
    return made


def _result_shape(target: Tensor, arrays: Chosen) -> tuple[int, ...]:
    axes = [axis for axis, array in enumerate(arrays) if array is not None]
    if not axes:
        raise RunError("index_put: at least one index is needed", hint="copy_ writes all elements")
    where = next(array.shape for array in arrays if array is not None)
    rest = [dim for axis, dim in enumerate(target._shape) if axis not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    return (*rest[:first], *where, *rest[first:])


def with_chosen(source: Tensor, arrays: Chosen, value: Tensor, accumulate: bool) -> Tensor:
    """A copy with other values at the elements that index arrays choose."""
    axes = [axis for axis, array in enumerate(arrays) if array is not None]
    order = _order(axes, source.ndim)
    places = wrap(np.stack([array for array in arrays if array is not None]))
    values = _fitted(value, _result_shape(source, arrays))
    back = _back(axes, places.ndim - 1, values.ndim)
    updates = permuted(values, np.argsort(back).tolist())
    rows = permuted(source, order)
    if accumulate:
        added = apply(_GATHER_GRAD, None, [updates, rows, places])[0]
        made = apply(_ADD, None, [rows, added])[0]
    else:
        made = apply(_SCATTER, None, [rows, places, updates])[0]
    return permuted(made, np.argsort(order).tolist())


_SEEN, _PUT = layered("weft.getitem", get), layered("weft.setitem_", put)


def _indexed(self: Tensor, index: Any) -> Tensor:
    made: Tensor = (_SEEN if LAYERS else get)(self, index)
    return made


def _assigned(self: Tensor, index: Any, value: Any) -> None:
    (_PUT if LAYERS else put)(self, index, value)


bind(__getitem__=_indexed, __setitem__=_assigned)
