"""Tensors made from what a file says about them: every number is checked against the bytes there
are, before any memory is looked at."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np

from ...base.errors import Unsupported
from ..tensor.parameter import Parameter
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor, wrap
from ..tensor.typed_storage import is_storage
from ..tensor.types import dtype
from .errors import ArchiveError, shown
from .pickle_read import Maker

_MAX_RANK = 64


def tensor_v1(storage: Any, offset: Any, size: Any, stride: Any) -> Tensor:
    """torch._utils._rebuild_tensor"""
    return strided_tensor(storage, offset, size, stride, False)


def tensor_v2(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, metadata: Any = None
) -> Tensor:
    """torch._utils._rebuild_tensor_v2"""
    _check_extras(hooks, metadata)
    return strided_tensor(storage, offset, size, stride, requires_grad)


def tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, kind: Any, metadata: Any = None
) -> Tensor:
    """torch._utils._rebuild_tensor_v3, for dtypes that have no storage of their own"""
    _check_extras(hooks, metadata)
    if not isinstance(kind, dtype):
        raise ArchiveError(f"a tensor's dtype is a {type(kind).__name__}")
    return strided_tensor(storage, offset, size, stride, requires_grad, kind)


def parameter(data: Any, requires_grad: Any, hooks: Any) -> Parameter:
    """torch._utils._rebuild_parameter"""
    if not isinstance(data, Tensor) or type(requires_grad) is not bool:
        raise ArchiveError("a Parameter is made from a tensor and a flag")
    _check_extras(hooks, None)
    made: Parameter = Parameter(data, requires_grad)
    return made


def parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Parameter:
    """torch._utils._rebuild_parameter_with_state"""
    made = parameter(data, requires_grad, hooks)
    _drop_state(state)
    return made


def from_type(function: Any, kind: Any, arguments: Any, state: Any) -> Any:
    """torch._tensor._rebuild_from_type_v2, for tensors that carry attributes"""
    if not isinstance(function, Maker) or type(arguments) is not tuple:
        raise ArchiveError("a tensor is rebuilt by a function and its arguments")
    made = function.make(*arguments)
    if type(made) is not kind:
        raise Unsupported("a saved tensor of a class of its own")
    _drop_state(state)
    return made


def _drop_state(state: Any) -> None:
    if type(state) not in (dict, tuple, type(None)):
        raise ArchiveError(f"the state of a tensor is {shown(state)}")
    if state:
        warnings.warn("attributes that a tensor in the file carries are not restored", stacklevel=2)


def _check_extras(hooks: Any, metadata: Any) -> None:
    if type(hooks) is not OrderedDict or hooks:
        raise ArchiveError("a tensor in the file has backward hooks")
    if metadata is not None and metadata != {}:
        raise Unsupported("a tensor in the file has metadata")


def strided_tensor(
    storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, kind: dtype | None = None
) -> Tensor:
    """A tensor over a storage, after checking that all of it lies inside."""
    if not is_storage(storage):
        raise ArchiveError(f"a tensor needs a storage, not a {type(storage).__name__}")
    if kind is None:
        if isinstance(storage, UntypedStorage):
            raise ArchiveError("a tensor over an untyped storage needs a dtype")
        kind = storage.dtype
    untyped = storage.untyped()
    sizes, strides = _extents("size", size), _extents("stride", stride)
    (start,) = _extents("offset", (offset,))
    _check_inside(sizes, strides, start, untyped.nbytes() // kind.itemsize)
    made = wrap(_view(untyped, kind, sizes, strides, start))
    made._storage = untyped
    made._start = start * kind.itemsize
    untyped._adopt(made)
    return _with_grad(made, requires_grad)


def _extents(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple):
        raise ArchiveError(f"{what} of a tensor is a {type(values).__name__}")
    for value in values:
        if type(value) is not int or not 0 <= value < 2**63:
            raise ArchiveError(f"{what} of a tensor is {shown(values)}")
    return tuple(values)


def _check_inside(sizes: tuple[int, ...], strides: tuple[int, ...], start: int, there: int) -> None:
    if len(sizes) != len(strides) or len(sizes) > _MAX_RANK:
        raise ArchiveError(f"a tensor of {len(sizes)} sizes has {len(strides)} strides")
    if math.prod(sizes) >= 2**63:
        raise ArchiveError("a tensor has more elements than there are addresses")
    if 0 in sizes:
        return
    last = start + sum((size - 1) * step for size, step in zip(sizes, strides))
    if last >= there:
        raise ArchiveError(
            "a tensor reaches out of its storage",
            why=f"size {list(sizes)}, stride {list(strides)} and offset {start} end at element "
            f"{last}, the storage has {there}",
        )


def _view(untyped: UntypedStorage, kind: dtype, sizes: tuple[int, ...], strides: tuple[int, ...], start: int) -> Any:
    if 0 in sizes:
        return _empty(sizes, kind, strides)
    steps = tuple(step * kind.itemsize for step in strides)
    held: Any = untyped._bytes
    if not isinstance(held, np.ndarray):
        return held.part(sizes, kind.numpy, start * kind.itemsize, steps)
    view: Any = np.ndarray(sizes, kind.numpy, held, start * kind.itemsize, steps)
    if any(size > 1 and step == 0 for size, step in zip(sizes, strides)):
        view.flags.writeable = False  # its elements share memory
    return view


def _empty(sizes: tuple[int, ...], kind: dtype, strides: tuple[int, ...]) -> Any:
    """A tensor without elements, with the strides it was saved with if they are sensible."""
    if any(step >= 2**40 for step in strides):
        return np.empty(sizes, kind.numpy)
    steps = tuple(step * kind.itemsize for step in strides)
    return np.ndarray(sizes, kind.numpy, np.empty(0, np.uint8), 0, steps)


def _with_grad(made: Tensor, requires_grad: Any) -> Tensor:
    if type(requires_grad) is not bool:
        raise ArchiveError(f"requires_grad of a tensor is a {type(requires_grad).__name__}")
    if requires_grad and not (made.dtype.is_floating_point or made.dtype.is_complex):
        raise ArchiveError(f"a tensor of {made.dtype.name} requires grad")
    return made.requires_grad_() if requires_grad else made
