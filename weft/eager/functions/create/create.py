"""Rows: functions that make tensors from sizes, numbers, sequences and other tensors' shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.dtype import BOOL, INT64, DType, is_integer
from ....base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ... import devices
from ...tensor.convert import convert
from ...tensor.device import CPU, located
from ...tensor.inplace import write_out
from ...tensor.memory import Array, array_of, in_format, is_foreign, layout_of
from ...tensor.promotion import complex_of, number_dtype
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import as_dtype, get_default_dtype, strided
from ..operands import in_dtype
from ..table import named, row, with_example


def made(array: Array, options: dict[str, Any]) -> Tensor:
    """A new tensor, with the options that every function which makes one takes."""
    where = located(options.pop("device", None))
    layout = options.pop("layout", None)
    if layout not in (None, strided):
        raise Unsupported(f"a tensor is strided, not {layout}")
    options.pop("pin_memory", None)
    options.pop("memory_format", None)
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise InvalidType(f"got an unexpected keyword argument {next(iter(options))!r}")
    result = wrap(array) if where == CPU else devices.placed(wrap(array), where)
    return result.requires_grad_() if requires_grad else result


def shape_of(name: str, sizes: Any) -> tuple[int, ...]:
    """Sizes given as f(2, 3), f((2, 3)) or f(size=(2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    shape = []
    for size in sizes:
        if isinstance(size, (float, str)) or not hasattr(size, "__index__"):
            raise InvalidType(
                f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(size).__name__}"
            )
        shape.append(int(size.__index__()))
    for size in shape:
        if size < 0:
            raise RunError(f"Trying to create tensor with negative dimension {size}: {list(shape)}")
    return tuple(shape)


def kind_of(dtype: Any, default: DType | None = None) -> DType:
    """The dtype asked for, or a default."""
    if dtype is not None:
        return as_dtype(dtype).numpy
    return get_default_dtype().numpy if default is None else default


def _sized(name: str, doc: str, value: str, make: Callable[[tuple[int, ...], DType], Array]) -> None:
    """`name(*size)`, `name_like(input)` and `input.new_name(size)`; examples show the `value` that elements have."""

    def sized(*size: Any, dtype: Any = None, **options: Any) -> Tensor:
        sizes = (options.pop("size"),) if "size" in options else size
        array = make(shape_of(name, sizes), kind_of(dtype))
        return made(in_format(array, options.get("memory_format")), options)

    def like(input: Tensor, *, dtype: Any = None, **options: Any) -> Tensor:
        kind = kind_of(dtype, input._dtype)
        array = laid_out_as(input, kind, options.get("memory_format"))
        if name != "empty":
            array[...] = make((), kind)
        return made(array, options)

    def new(input: Tensor, *size: Any, dtype: Any = None, **options: Any) -> Tensor:
        sizes = (options.pop("size"),) if "size" in options else size
        kind = kind_of(dtype, input._dtype)
        return made(make(shape_of(f"new_{name}", sizes), kind), options)

    def shown(doc: str, call: str, count: int, point: str = "") -> str:
        if not value:
            return with_example(doc, f">>> {call}.shape", f"weft.Size([{count}])")
        return with_example(doc, f">>> {call}", f"tensor([{', '.join([value + point] * count)}])")

    another, same = f"{doc}, of the shape and dtype of another", f"{doc}, of the same dtype"
    given = "weft.tensor([5, 6])"
    row(named(sized, name, shown(doc, f"weft.{name}(3)", 3, ".")), method=False, out=True)
    row(named(like, f"{name}_like", shown(another, f"weft.{name}_like({given})", 2)), method=False)
    row(named(new, f"new_{name}", shown(same, f"{given}.new_{name}(3)", 3)), space=None)


def laid_out_as(input: Tensor, kind: DType, memory_format: Any = None) -> Array:
    """Memory of a tensor's shape; in its order unless another is asked for."""
    if getattr(memory_format, "name", "preserve_format") != "preserve_format":
        return in_format(np.empty(input._shape, kind), memory_format)
    array = array_of(input) if is_foreign(input) else layout_of(input)  # of a batch it is one for each element
    if all(array.strides) or not any(n > 1 and not s for n, s in zip(array.shape, array.strides)):
        return np.empty_like(array, dtype=kind, order="K", subok=False)
    order = memory_order(array)
    return np.empty([array.shape[axis] for axis in order], kind).transpose(np.argsort(order))


def memory_order(array: Array) -> list[int]:
    """Axes from the outermost in memory to the innermost. One along which nothing moves has no
    place of its own: it stays beside the axes that it is beside."""
    order = list(range(array.ndim))
    for first in range(array.ndim - 2, -1, -1):
        at = first
        for other in range(first + 1, array.ndim):
            outer, inner = (_step(array, order[i]) for i in (at, other))
            if 0 in (outer[0], inner[0]):
                continue
            if outer[0] > inner[0]:
                break
            if outer < inner:
                order[at], order[other] = order[other], order[at]
                at = other
    return order


def _step(array: Array, axis: int) -> tuple[int, int]:
    return array.strides[axis], array.shape[axis]


_sized("empty", "a tensor whose values are not set", "", np.empty)
_sized("zeros", "a tensor of zeros", "0", np.zeros)
_sized("ones", "a tensor of ones", "1", np.ones)


def _filled(shape: tuple[int, ...], value: Any, dtype: Any, default: DType | None) -> Array:
    if isinstance(value, Tensor):
        if value.ndim:
            raise InvalidType("full(): argument 'fill_value' must be Number, not Tensor")
        value = value.item()
    kind = kind_of(dtype, number_dtype(value) if default is None else default)
    return np.full(shape, array_of(in_dtype(value, kind)), kind)


@row(method=False, out=True)
def full(size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor full of one value

    >>> import weft
    >>> weft.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    >>> weft.full((2,), 0.5)
    tensor([0.5000, 0.5000])
    """
    return made(_filled(shape_of("full", (size,)), fill_value, dtype, None), options)


@row(method=False)
def full_like(input: Tensor, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """one value, in the shape and dtype of another tensor

    >>> import weft
    >>> weft.full_like(weft.tensor([1.0, 2.0]), 7)
    tensor([7., 7.])
    """
    value = _filled((), fill_value, dtype, input._dtype)
    array = laid_out_as(input, value.dtype, options.get("memory_format"))
    array[...] = value
    return made(array, options)


@row(space=None)
def new_full(input: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor full of one value, of the same dtype"""
    shape = shape_of("new_full", (size,))
    return made(_filled(shape, fill_value, dtype, input._dtype), options)


@row(method=False)
def scalar_tensor(s: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor without dimensions that holds a number"""
    return made(_filled((), s, dtype, get_default_dtype().numpy), options)


@row(method=False)
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor whose values are not set, with given steps between neighbours"""
    return made(_strided(size, stride, kind_of(dtype)), options)


@row(space=None)
def new_empty_strided(input: Tensor, size: Any, stride: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor of the same dtype whose values are not set, with given steps"""
    return made(_strided(size, stride, kind_of(dtype, input._dtype)), options)


def _strided(size: Any, stride: Any, kind: DType) -> Array:
    shape, steps = shape_of("empty_strided", (size,)), tuple(int(step) for step in stride)
    if len(shape) != len(steps):
        raise RunError(f"dimensionality of sizes ({len(shape)}) must match dimensionality of strides ({len(steps)})")
    if any(step < 0 for step in steps):
        raise RunError("empty_strided(): strides must not be negative")
    extent = sum((n - 1) * step for n, step in zip(shape, steps)) + 1 if 0 not in shape else 0
    memory = np.empty(extent, kind)
    return np.ndarray(shape, kind, memory, 0, [step * kind.itemsize for step in steps])


@row(method=False)
def empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """a tensor whose values are not set, its dimensions lying in memory in a given order"""
    shape, order = shape_of("empty_permuted", (size,)), tuple(physical_layout)
    if len(shape) != len(order):
        raise RunError("Number of dimensions in size does not match the length of the physical_layout")
    if any(not 0 <= axis < len(shape) for axis in order):
        raise RunError(f"Dimension out of range in physical_layout {list(order)}")
    if len(set(order)) != len(order):
        raise RunError("Duplicate dim not allowed")
    array = np.empty([shape[axis] for axis in order], kind_of(dtype))
    return made(array.transpose(np.argsort(order)), options)


# Ranges.


def _bound(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _range_kind(values: Any, dtype: Any) -> DType:
    if dtype is None and all(is_integer(number_dtype(v)) or isinstance(v, bool) for v in values):
        return INT64
    return kind_of(dtype)


def _must_be_range(name: str, kind: DType, start: Any, end: Any, step: Any) -> None:
    if kind == BOOL:
        raise Unsupported(f"\"{name}\" not implemented for 'Bool'")
    if step == 0:
        raise RunError("step must be nonzero")
    if not all(math.isfinite(value) for value in (start, end)):
        raise RunError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RunError("upper bound and lower bound inconsistent with step sign")


@row(method=False)
def arange(*bounds: Any, dtype: Any = None, out: Any = None, **options: Any) -> Tensor:
    """start, start + step, ... before end: arange(end), arange(start, end, step=1)

    >>> import weft
    >>> weft.arange(4)
    tensor([0, 1, 2, 3])
    >>> weft.arange(1, 2, 0.25)
    tensor([1.0000, 1.2500, 1.5000, 1.7500])
    """
    start, end, step = _range_of(bounds, options)
    kind = _range_kind((start, end, step), dtype if out is None else out.dtype)
    _must_be_range("arange", kind, start, end, step)
    if is_integer(kind):
        if not int(step):
            raise InvalidValue("step must be nonzero", why=f"{step} is cut to an integer")
        count = -((int(start) - int(end)) // int(step))
        values = int(start) + int(step) * np.arange(max(count, 0), dtype=np.int64)
    else:
        count = math.ceil((end - start) / step)
        values = start + step * np.arange(count, dtype=np.float64)
    result = made(values.astype(kind), options)
    return result if out is None else write_out(out, result)


@row(name="range", method=False, out=True)
def _closed_range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any) -> Tensor:
    """start, start + step, ... up to end itself; of floats unless a dtype is given"""
    first, last, by = (_bound(value) for value in (start, end, step))
    kind = kind_of(dtype)
    _must_be_range("range", kind, first, last, by)
    if is_integer(kind):
        first, last, by = int(first), int(last), int(by)
        if not by:
            raise InvalidValue("step must be nonzero", why=f"{step} is cut to an integer")
    count = math.floor((last - first) / by) + 1
    values = first + by * np.arange(count, dtype=np.int64 if is_integer(kind) else np.float64)
    return made(convert(values, kind), options)


def _range_of(bounds: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    given = dict(zip(("start", "end", "step"), bounds if len(bounds) > 1 else (0, *bounds)))
    for key in ("start", "end", "step"):
        if key in options:
            given[key] = options.pop(key)
    if "end" not in given:
        raise InvalidType("arange() received an invalid combination of arguments")
    start, end, step = (_bound(given.get(key, n)) for key, n in zip(("start", "end", "step"), (0, 0, 1)))
    for value in (start, end, step):
        if not isinstance(value, (int, float, np.generic)):
            raise InvalidType(f"arange(): a bound must be Number, not {type(value).__name__}")
    return start, end, step


def _steps(name: str, start: Any, end: Any, steps: Any) -> tuple[Any, Any, int]:
    for key, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor) and value.ndim:
            raise RunError(
                f"{name} only supports 0-dimensional start and end tensors, but got {key} with "
                f"{value.ndim} dimension(s)."
            )
    if isinstance(steps, float) or not hasattr(steps, "__index__"):
        raise InvalidType(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    if steps < 0:
        raise RunError("number of steps must be non-negative")
    return _bound(start), _bound(end), int(steps)


def _spaced(start: Any, end: Any, steps: int, kind: DType) -> Array:
    """Counted from the nearer end, so that both are exact."""
    wide = np.complex128 if isinstance(start, complex) or isinstance(end, complex) else np.float64
    if is_integer(kind):
        start, end = int(start), int(end)
    places = np.arange(steps)
    step = (end - start) / max(steps - 1, 1)
    low = start + places * step
    high = end - (steps - 1 - places) * step
    return np.asarray(np.where(places < (steps + 1) // 2, low, high), wide)


def _real_or_complex(values: Any, dtype: Any) -> DType:
    kind = kind_of(dtype)
    if dtype is None and any(isinstance(value, complex) for value in values):
        return complex_of(kind)
    return kind


@row(method=False, out=True)
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, **options: Any) -> Tensor:
    """numbers from start to end, both included, at equal distances

    >>> import weft
    >>> weft.linspace(0, 1, steps=5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    first, last, count = _steps("linspace", start, end, steps)
    kind = _real_or_complex((first, last), dtype)
    return made(convert(_spaced(first, last, count, kind), kind), options)


@row(method=False, out=True)
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, **options: Any) -> Tensor:
    """base to the power of numbers from start to end, both included, at equal distances

    >>> import weft
    >>> weft.logspace(0, 3, steps=4, base=2)
    tensor([1., 2., 4., 8.])
    """
    first, last, count = _steps("logspace", start, end, steps)
    kind = _real_or_complex((first, last), dtype)
    with np.errstate(all="ignore"):
        values = np.power(float(base), _spaced(first, last, count, kind))
    return made(convert(values, kind), options)


@row(method=False, out=True)
def eye(n: int, m: int | None = None, *, dtype: Any = None, **options: Any) -> Tensor:
    """ones on the diagonal of a matrix, zeros elsewhere

    >>> import weft
    >>> weft.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    >>> weft.eye(2, 3, dtype=weft.int64)
    tensor([[1, 0, 0],
            [0, 1, 0]])
    """
    for name, value in (("n", n), ("m", m)):
        if value is not None and value < 0:
            raise RunError(f"{name} must be greater or equal to 0, got {value}")
    return made(np.eye(n, m, dtype=kind_of(dtype)), options)


def _indices(name: str, rows: int, columns: int, dtype: Any, options: Any, find: Any) -> Tensor:
    if rows < 0 or columns < 0:
        which = "row" if rows < 0 else "col"
        raise RunError(f"{which} must be non-negative, got {min(rows, columns)}")
    places = np.stack(find(rows, columns)).astype(kind_of(dtype, INT64))
    return made(places, options)


@row(method=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, **options: Any) -> Tensor:
    """the places of the lower triangle of a matrix, as two rows of indices"""
    find = lambda n, m: np.nonzero(np.tri(n, m, offset, bool))
    return _indices("tril_indices", row, col, dtype, options, find)


@row(method=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, **options: Any) -> Tensor:
    """the places of the upper triangle of a matrix, as two rows of indices"""
    find = lambda n, m: np.nonzero(~np.tri(n, m, offset - 1, bool))
    return _indices("triu_indices", row, col, dtype, options, find)
