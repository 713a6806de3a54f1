"""What reductions share: their dimensions, and the registry's operators with PyTorch's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...base.dtype import INT64
from ...base.errors import RunError
from ...core.op import Op
from ...ops.reduce.reductions import ReduceAttrs
from ...ops.shape.index import GatherAttrs
from ..dispatch import apply
from ..tensor.memory import memory_of
from ..tensor.tensor import DimensionError, Tensor, axis_of
from ..tensor.types import as_dtype
from ..tensor.viewing import reshaped

_GATHER = Op.get("gather_elements")


def dims_of(dim: Any, rank: int) -> tuple[int, ...]:
    """The dimensions that are reduced, ascending: one, several, or by None and () all."""
    if dim is None:
        return tuple(range(rank))
    if not isinstance(dim, (tuple, list)):
        return (axis_of(dim, rank),) if rank else tuple(range(axis_of(dim, rank)))
    axes = sorted(axis_of(each, rank) for each in dim)
    if len(set(axes)) < len(axes):
        raise RunError(f"a dim appears multiple times in the list of dims {list(dim)}")
    if not rank:
        return ()
    return tuple(axes) if axes else tuple(range(rank))


def reduce_by(op: Op, input: Tensor, axes: tuple[int, ...], keepdim: bool, **attrs: Any) -> Tensor:
    """A reduction of the registry, where a reduction of everything has no dimensions left."""
    return apply(op, _attrs(axes, keepdim, **attrs), [input])[0]


@lru_cache(maxsize=4096)
def _attrs(axes: tuple[int, ...], keepdims: bool, **attrs: Any) -> Any:
    return ReduceAttrs(axis=axes, keepdims=keepdims, scalar=True, **attrs)


def counted(input: Tensor, dtype: Any) -> Tensor:
    """In the dtype of a sum: int64 of integers and bools."""
    if dtype is not None:
        return input._cast(as_dtype(dtype).numpy)
    return input._cast(INT64) if input._dtype.kind in "biu" else input


def in_shape(input: Tensor, shape: Sequence[int]) -> Tensor:
    """The elements of a tensor that is nobody else's in another shape, as one of its own."""
    if input._shape == tuple(shape):
        return input
    result = reshaped(input, memory_of(input).reshape(shape))
    result._base = result._root = None
    return result


def without(shape: Sequence[int], axes: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """What a reduction along axes leaves of a shape."""
    if keepdim:
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def must_not_be_empty(name: str, input: Tensor, axes: Sequence[int], given: bool = True) -> None:
    """Refuses a reduction over nothing that has no value."""
    for axis in axes:
        if not input._shape[axis]:
            if not given:
                raise RunError(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument."
                )
            raise DimensionError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")


def picked(input: Tensor, places: Tensor, axis: int, keepdim: bool) -> Tensor:
    """The element at one place along an axis, for each place along the others."""
    result = apply(_GATHER, GatherAttrs(axis=axis), [input, places])[0]
    return in_shape(result, without(input._shape, (axis,), keepdim))
