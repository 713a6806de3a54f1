"""Rows: tensors from Python data, numpy arrays and buffers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import BOOL, DTYPES, INT64, DType, is_complex, is_float, is_integer
from ....base.errors import InvalidType, InvalidValue, RunError
from ... import devices
from ...tensor.convert import convert, number_limits
from ...tensor.device import located
from ...tensor.memory import Array, array_of
from ...tensor.promotion import complex_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import as_dtype, get_default_dtype
from ..table import row
from .create import kind_of, made


def array_from(data: Any, dtype: Any = None) -> Array:
    """Python data as an array of its own, of the dtype that PyTorch gives it."""
    if isinstance(data, Tensor):
        return convert(array_of(data), kind_of(dtype, data._dtype)).copy()
    if isinstance(data, (np.ndarray, np.generic)):
        values = np.asarray(data)
        return convert(_supported(values), kind_of(dtype, values.dtype)).copy()
    if isinstance(data, str):
        raise InvalidType("new(): invalid data type 'str'")
    if data is None or not (hasattr(data, "__len__") or hasattr(data, "__float__") or isinstance(data, complex)):
        raise RunError(f"Could not infer dtype of {type(data).__name__}")
    values = _of_sequence(data)
    kind = kind_of(dtype, _inferred(values, data))
    _must_fit(values, kind)
    return convert(values, kind)


def _of_sequence(data: Any) -> Array:
    """Nested sequences of numbers and tensors."""
    parts = _detached(data)
    try:
        values = np.array(parts)
    except ValueError:
        raise InvalidValue(
            "expected sequences of equal lengths at each depth", why="the lengths of nested sequences differ"
        ) from None
    except OverflowError:
        raise InvalidValue("Overflow when unpacking long long") from None
    if values.dtype.kind in "US":
        raise InvalidType("new(): invalid data type 'str'")
    if values.dtype.kind == "O":
        raise _not_numbers(values)
    return values


def _detached(data: Any, depth: int = 0) -> Any:
    """Tensors inside of sequences as arrays, no deeper than an array has dimensions."""
    if depth > 64:
        raise InvalidValue("too many dimensions: sequences are nested deeper than 64")
    if isinstance(data, Tensor):
        return array_of(data)
    if isinstance(data, (list, tuple)) and any(isinstance(x, (list, tuple, Tensor)) for x in data):
        return [_detached(item, depth + 1) for item in data]
    return data


def _not_numbers(values: Array) -> Exception:
    for value in values.ravel():
        if isinstance(value, int):
            return InvalidValue("Overflow when unpacking long long")
        if not isinstance(value, (float, complex)):
            break
    return RunError(f"Could not infer dtype of {type(value).__name__}")


def _inferred(values: Array, data: Any) -> DType:
    """Python's floats are of the default dtype; arrays and tensors keep theirs."""
    kind = values.dtype
    default: DType = get_default_dtype().numpy
    if not values.size:
        return default
    if kind.kind in "fc" and not _holds_double(data):
        return default if kind == np.float64 else complex_of(default) if kind.kind == "c" else kind
    return INT64 if kind.kind in "iu" and not _holds_arrays(data) else kind


def _holds_double(data: Any) -> bool:
    return _first_leaf(data, lambda x: x.dtype.kind in "fc" and x.dtype.itemsize >= 8)


def _holds_arrays(data: Any) -> bool:
    return _first_leaf(data, lambda x: True)


def _first_leaf(data: Any, test: Any) -> bool:
    """What holds for the first element, if it is an array or a tensor."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    data = array_of(data) if isinstance(data, Tensor) else data
    return isinstance(data, (np.ndarray, np.generic)) and bool(test(data))


def _must_fit(values: Array, kind: DType) -> None:
    if is_complex(values.dtype) and is_float(kind):
        raise InvalidType("must be real number, not complex")
    if is_integer(kind) and values.size and values.dtype != BOOL:
        if is_complex(values.dtype):
            raise RunError("value cannot be converted to an integer type")
        whole = np.trunc(values) if is_float(values.dtype) else values
        low, high = number_limits(kind, not is_float(values.dtype))
        if not (whole.min() >= low and whole.max() <= high):
            raise RunError(f"value cannot be converted to type {kind} without overflow")


def _supported(values: Array) -> Array:
    if values.dtype not in DTYPES.values():
        raise InvalidType(
            f"can't convert np.ndarray of type {values.dtype}.",
            why="the only supported types are: " + ", ".join(DTYPES),
        )
    return values


@row(method=False)
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """a copy of Python data, or of an array, as a tensor

    >>> import weft
    >>> weft.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    >>> weft.tensor([1, 2], dtype=weft.float32, requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    return made(array_from(data, dtype), {"device": device, "requires_grad": requires_grad})


@row(space=None)
def new_tensor(
    input: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Tensor:
    """a copy of data as a tensor of the same dtype"""
    kind = input.dtype if dtype is None and not isinstance(data, Tensor) else dtype
    return made(array_from(data, kind), {"device": device, "requires_grad": requires_grad})


@row(method=False, aliases=["asarray"])
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """data as a tensor, without a copy where that is possible

    >>> import weft
    >>> x = weft.tensor([1, 2])
    >>> weft.as_tensor(x) is x, weft.as_tensor([1.0, 2.0])
    (True, tensor([1., 2.]))
    """
    where = None if device is None else located(device)
    if isinstance(data, Tensor):
        found = data if dtype is None else data._cast(as_dtype(dtype).numpy)
    elif isinstance(data, np.ndarray):
        shared = from_numpy(data)
        found = shared if dtype is None else shared._cast(as_dtype(dtype).numpy)
    else:
        found = wrap(array_from(data, dtype))
    return found if where is None or where == found.device else devices.moved(found, where)


@row(method=False)
def from_numpy(ndarray: Any) -> Tensor:
    """a tensor that shares an array's memory

    >>> import weft
    >>> import numpy as np
    >>> array = np.zeros(3)
    >>> weft.from_numpy(array)[0] = 1
    >>> array
    array([1., 0., 0.])
    """
    if not isinstance(ndarray, np.ndarray):
        raise InvalidType(f"expected np.ndarray (got {type(ndarray).__name__})")
    _supported(ndarray)
    if any(stride < 0 for stride in ndarray.strides):
        raise InvalidValue(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not supported.",
            hint="make a copy of the array with array.copy()",
        )
    if any(stride % ndarray.itemsize for stride in ndarray.strides):
        raise InvalidValue("given numpy array strides not a multiple of the element byte size.")
    if not ndarray.dtype.isnative:
        raise InvalidValue("given numpy array has byte order different from the native byte order")
    return wrap(ndarray)


@row(method=False)
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """a tensor over the memory of an object that gives a buffer"""
    kind = as_dtype(dtype).numpy
    try:
        size = memoryview(buffer).nbytes
    except TypeError:
        raise InvalidValue("object does not implement Python buffer protocol.") from None
    if not size or not count:
        raise InvalidValue(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise InvalidValue(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1"
        )
    rest = size - offset
    if count < 0 and rest % kind.itemsize:
        raise InvalidValue(
            f"buffer length ({rest} bytes) after offset ({offset} bytes) must be a multiple of "
            f"element size ({kind.itemsize})"
        )
    if count > 0 and count * kind.itemsize > rest:
        raise InvalidValue(
            f"requested buffer length ({count} * {kind.itemsize} bytes) after offset ({offset} "
            f"bytes) must not be greater than actual buffer length ({size} bytes)"
        )
    array = np.frombuffer(buffer, np.uint8, -1 if count < 0 else count * kind.itemsize, offset)
    return made(array.view(kind), {"requires_grad": requires_grad})
