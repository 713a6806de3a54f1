"""What rows do to their arguments first: numbers become tensors, dtypes meet, axes are checked."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import BOOL, DTYPES, DType, is_complex, is_float, is_integer
from ...base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ...base.quiet import quietly
from ..tensor.convert import number_limits
from ..tensor.promotion import result_dtype
from ..tensor.tensor import Tensor, wrap
from ..tensor.types import OF_NUMPY, get_default_dtype

Number = (numbers.Number, np.generic)


def check_count(name: str, what: str, count: Any) -> None:
    """Refuses numbers of things that no memory holds."""
    if isinstance(count, numbers.Number) and count >= 2**31:  # type: ignore[operator]
        raise InvalidValue(f"{name}(): {what} of {count} is too large")


def by_number(what: str, names: Sequence[str], number: int) -> str:
    """A choice that has a name in nn.functional, and a number in the core."""
    if number not in range(len(names)):
        raise RunError(f"{number} is not a valid value for {what}", hint=f"0 to {len(names) - 1}")
    return names[number]


def promoted(*values: Any) -> list[Tensor]:
    """Tensors and numbers as tensors of the dtype they meet in."""
    first, last = values[0], values[-1]
    if type(last) in (float, int) and isinstance(first, Tensor) and len(values) == 2:
        kind: DType | None = first._dtype
        if kind in _PLAIN_FLOATS and -_SAFE < last < _SAFE:  # the common case, kept short
            return [first, wrap(np.array(last, kind))]
    kind = first._dtype if isinstance(first, Tensor) else None
    for value in values:
        if not isinstance(value, Tensor) or value._dtype != kind:
            kind = result_dtype([_operand(value) for value in values])
            return [in_common(value, kind) for value in values]
    return list(values)


def promoted_floats(*values: Any) -> list[Tensor]:
    """The same in a floating dtype: integers become the default one, without wrapping before."""
    made = promoted(*values)
    kind = made[0]._dtype
    if is_float(kind) or is_complex(kind):
        return made
    return [in_dtype(value, get_default_dtype().numpy) for value in values]


_PLAIN_FLOATS = (DTYPES["float32"], DTYPES["float64"])
_SAFE = 1e38  # what every one of them holds


def _operand(value: Any) -> Any:
    if isinstance(value, (Tensor, *Number)):
        return value
    raise InvalidType(f"an operand must be a Tensor or a number, not {type(value).__name__}")


def in_common(value: Any, kind: DType) -> Tensor:
    """An operand in the dtype of a result: whole numbers wrap into it, as elements do."""
    if type(value) is int and is_integer(kind) and -(2**63) <= value < 2**63:
        return wrap(np.array(value, np.int64).astype(kind))
    return in_dtype(value, kind)


def in_dtype(value: Any, kind: DType) -> Tensor:
    """A tensor or a number as a tensor of a dtype."""
    if isinstance(value, Tensor):
        return value._cast(kind)
    if isinstance(value, (complex, np.complexfloating)) and not is_complex(kind) and kind != BOOL:
        value = _real_number(value, kind)
    if is_integer(kind):
        low, high = number_limits(kind, isinstance(value, (int, np.integer)))
        if not low <= value <= high:  # NaN is no integer either
            raise _overflow(kind)
    return wrap(quietly(np.asarray(value).astype, kind))


def must_fit(kind: DType, *values: Any) -> None:
    """Refuses numbers that a dtype does not hold; tensors may be anything."""
    if is_integer(kind):
        for value in values:
            if not isinstance(value, Tensor):
                in_dtype(value, kind)


def _real_number(value: Any, kind: DType) -> Any:
    if value.imag != 0:
        raise _overflow(kind)
    return value.real


def _overflow(kind: DType) -> RunError:
    return RunError(f"value cannot be converted to type {OF_NUMPY[kind].name} without overflow")


def floating(value: Tensor) -> Tensor:
    """A tensor in a floating dtype: integers become the default one."""
    kind = value._dtype
    if is_float(kind) or is_complex(kind):
        return value
    return value._cast(get_default_dtype().numpy)


def must_be_real(name: str, *values: Any) -> None:
    """Refuses complex tensors."""
    for value in values:
        if isinstance(value, Tensor) and is_complex(value._dtype):
            raise Unsupported(f'"{name}" not implemented for {value.dtype.title!r}')


def must_be_tensors(name: str, **values: Any) -> None:
    """Refuses arguments that are no tensors."""
    for position, (key, value) in enumerate(values.items()):
        if not isinstance(value, Tensor):
            raise InvalidType(
                f"{name}(): argument '{key}' (position {position + 1}) must be Tensor, not {type(value).__name__}"
            )


def sizes_of(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes given as f(2, 3) or f((2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]
    return tuple(int(size) for size in sizes)
