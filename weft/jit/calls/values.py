"""What operators do with numbers, texts, lists, tuples and dicts, by the name of the operator; where overloads differ,
by the name of the overload. Ints have 64 bits, and floats are as C computes them: a logarithm of zero is -inf."""

from __future__ import annotations

import cmath
import math
import operator
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.counters import add_stat_value
from ...base.errors import OutOfRange, RunError
from ...eager.autograd.modes import modes
from ...eager.random.generator import default_generator
from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import Tensor
from .numbered import in_programs
from .shown import formatted, shown_value

_LEAST, _MASK = -(1 << 63), (1 << 64) - 1


def _wrapped(value: Any) -> Any:
    """An int as 64 bits hold it; other numbers as they are."""
    if type(value) is int and not _LEAST <= value < -_LEAST:
        return ((value - _LEAST) & _MASK) + _LEAST
    return value


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: _wrapped(function(*args))


def _real(function: Any, kept: type = float) -> Callable[..., Any]:
    """A function of numpy on numbers: complex ones stay complex."""

    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            if any(isinstance(value, complex) for value in args):
                return complex(function(*args))
            return kept(function(*map(float, args)))

    return call


def _lifted(function: Callable[..., float]) -> Callable[..., float]:
    """A function of Python's module math; what has no value is nan."""

    def call(*args: Any) -> float:
        try:
            return function(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def _nonzero(function: Callable[[Any, Any], Any], what: str) -> Callable[[Any, Any], Any]:
    def call(a: Any, b: Any) -> Any:
        if b == 0 and isinstance(a, int) and isinstance(b, int):
            raise RunError(what)
        return function(a, b)

    return call


def _divide(a: Any, b: Any) -> Any:
    if b != 0:
        return a / b
    if isinstance(a, complex) or isinstance(b, complex):
        return complex(np.complex128(a) / np.complex128(b))
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _floor_divide(a: Any, b: Any) -> Any:
    return _wrapped(a // b) if isinstance(a, int) and isinstance(b, int) else float(np.floor(_divide(a, b)))


def _remainder(a: Any, b: Any) -> Any:
    if b != 0:
        return a % b
    return math.nan


def _divided(a: Any, b: Any) -> tuple[Any, Any]:
    """The quotient and the remainder."""
    left = _remainder(a, b)
    return (a // b, left) if isinstance(a, int) and isinstance(b, int) else (_divide(a - left, b), left)


def _shifted(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def call(a: int, b: int) -> int:
        if b < 0:
            raise RunError(f"negative shift count {b}")
        return _wrapped(function(a, b))  # type: ignore[no-any-return]

    return call


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return complex(np.power(complex(a), complex(b)))
    with np.errstate(all="ignore"):
        return float(np.power(float(a), float(b)))


def _whole_power(a: int, b: int) -> int:
    return _wrapped(a**b) if b >= 0 else int(_power(a, b))


def _gamma(value: float) -> float:
    return math.inf if value == 0 else _lifted(math.gamma)(value)


def _round(value: Any) -> float:
    return float(np.round(float(value)))


def _logarithm(value: Any, base: Any = None) -> Any:
    natural = _real(np.log)
    return natural(value) if base is None else _divide(natural(value), natural(base))


def _truth(value: Any) -> bool:
    return bool(value)


def _converted_int(value: Any) -> int:
    try:
        return int(value)
    except ValueError:
        raise RunError(f"{value!r:.60} is no int") from None


def _converted_float(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise RunError(f"could not convert string to float: {value!r:.60}") from None


# Lists and dicts


def _at(values: Sequence[Any], index: int) -> int:
    """A place in a list, counted from its end if it is negative."""
    place = index + len(values) if index < 0 else index
    if not 0 <= place < len(values):
        raise OutOfRange("list index out of range", why=f"{index} of a list of {len(values)}")
    return place


def _item(values: Any, index: Any) -> Any:
    if isinstance(values, dict):
        if index not in values:
            raise RunError(f"KeyError: {index}")
        return values[index]
    if isinstance(values, str):
        return _character(values, index)
    return values[_at(values, index)]


def _character(text: str, index: int) -> str:
    if not -len(text) <= index < len(text):
        raise OutOfRange("string index out of range", why=f"{index} of a text of {len(text)} characters")
    return text[index]


def _set_item(values: Any, index: Any, item: Any) -> Any:
    values[_at(values, index) if isinstance(values, list) else index] = item
    return values


def _delete(values: Any, index: Any) -> None:
    if isinstance(values, list):
        del values[_at(values, index)]
    else:
        _item(values, index)
        del values[index]


def _append(values: list[Any], item: Any) -> list[Any]:
    values.append(item)
    return values


def _insert(values: list[Any], index: int, item: Any) -> None:
    values.insert(index, item)


def _pop(values: Any, index: Any = -1, *default: Any) -> Any:
    if isinstance(values, dict):
        if index not in values and not default:
            raise RunError(f"KeyError: {index}")
        return values.pop(index, *default)
    if not values:
        raise OutOfRange("pop from empty list")
    return values.pop(_at(values, index))


def _slice(values: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return values[start:end:step]


def _same(one: Any, two: Any) -> bool:
    """Whether lists are equal; tensors in them count as equal when all of their elements are."""
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return bool(one.eq(two).all().item())
    return bool(one == two)


def _find_equal(values: list[Any], item: Any) -> int | None:
    return next((place for place, value in enumerate(values) if _same(value, item)), None)


def _contains(values: Any, item: Any) -> bool:
    if isinstance(values, list):
        return _find_equal(values, item) is not None
    return item in values


def _index(values: list[Any], item: Any) -> int:
    place = _find_equal(values, item)
    if place is None:
        raise RunError(f"'{item}' is not in list")
    return place


def _remove(values: list[Any], item: Any) -> None:
    place = _find_equal(values, item)
    if place is None:
        raise RunError("list.remove(x): x not in list")
    del values[place]


def _count(values: Any, item: Any, *bounds: int) -> int:
    if isinstance(values, str):
        return int(_searching(str.count)(values, item, *bounds))
    return sum(_same(value, item) for value in values)


def _extend(values: list[Any], others: list[Any]) -> None:
    values.extend(others)


def _extended(values: list[Any], others: list[Any]) -> list[Any]:
    values.extend(others)
    return values


def _repeated(values: list[Any], times: int) -> list[Any]:
    values *= times
    return values


def _keyed(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _sort(values: list[Any], reverse: bool = False) -> None:
    values.sort(key=_keyed, reverse=reverse)


def _sorted(values: list[Any]) -> list[Any]:
    return sorted(values, key=_keyed)


def _setdefault(values: dict[Any, Any], key: Any, default: Any) -> Any:
    return values.setdefault(key, default)


def _popitem(values: dict[Any, Any]) -> tuple[Any, Any]:
    if not values:
        raise RunError("popitem(): dictionary is empty")
    return values.popitem()


def _copied(values: Any) -> Any:
    return values.copy()


def _extreme(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The larger or the smaller of two; of an int and a float, as a float."""

    def call(one: Any, two: Any) -> Any:
        found = pick(one, two)
        return float(found) if isinstance(one, float) or isinstance(two, float) else found

    return call


def _list_extreme(pick: Callable[[Any], Any]) -> Callable[..., Any]:
    def call(values: list[Any]) -> Any:
        if not values:
            raise RunError(f"{pick.__name__}() arg is an empty sequence")
        return pick(values)

    return call


# Texts


def _within(text: str, start: int, end: int) -> tuple[int, int]:
    """Where a search in a text begins and ends: -1 is after the last character."""
    return (max(start + len(text), 0) if start < 0 else start), (max(end + len(text) + 1, 0) if end < 0 else end)


def _searching(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(text: str, part: str, start: int = 0, end: int = -1) -> Any:
        try:
            return method(text, part, *_within(text, start, end))
        except ValueError:
            raise RunError("ValueError: substring not found") from None

    return call


def _percent(text: str, *values: Any) -> str:
    try:
        return text % tuple([value if isinstance(value, (int, float)) else shown_value(value) for value in values])
    except (TypeError, ValueError) as error:
        raise RunError(f"{text!r} % {values!r:.60} cannot be written", why=str(error)) from None


def _split(text: str, separator: str | None = None, most: int = -1) -> list[str]:
    if separator == "":
        raise RunError("ValueError: empty separator")
    return text.split(separator, most)


# Sizes, and what programs ask of their surroundings


def _broadcast(one: Sequence[int], two: Sequence[int]) -> list[int]:
    rank = max(len(one), len(two))
    sizes = list(zip([1] * (rank - len(one)) + list(one), [1] * (rank - len(two)) + list(two)))
    if any(a != b and 1 not in (a, b) for a, b in sizes):
        raise RunError(f"sizes {list(one)} and {list(two)} cannot be broadcast together")
    return [b if a == 1 else a for a, b in sizes]


def _range_length(low: int, high: int, step: int) -> int:
    if step == 0:
        raise RunError("range() arg 3 must not be zero")
    return len(range(low, high, step))


def _warn(message: str, stacklevel: int = 2) -> None:
    warnings.warn(message, stacklevel=stacklevel)


def _set_grad(enabled: bool) -> None:
    modes.grad = enabled


def _manual_seed(seed: int) -> None:
    default_generator.manual_seed(seed)


def _complex(*parts: Any) -> complex:
    return complex(*[part.item() if isinstance(part, Tensor) else part for part in parts])


def _unwrapped(value: Any) -> Any:
    if value is None:
        raise RunError("Unwrapping null optional", hint="test that it `is not None` before")
    return value


def _is(one: Any, two: Any) -> bool:
    return one is two


def _scaled_down(value: float) -> tuple[float, int]:
    return math.frexp(value)


def _fraction(value: float) -> tuple[float, float]:
    return math.modf(value)


_ELEMENTARY = "exp log10 log1p expm1 sqrt sin cos tan sinh cosh tanh".split()
_OF_C = {  # what numpy and C call otherwise
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "acosh": np.arccosh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "degrees": np.degrees,
    "radians": np.radians,
    "fabs": np.fabs,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fmod": np.fmod,
}
_TEXT_METHODS = (
    "lower upper swapcase capitalize title strip lstrip rstrip isspace isalpha isnumeric isprintable islower istitle "
    "isupper isalnum isdigit isdecimal isidentifier expandtabs center ljust rjust zfill join partition rpartition "
    "replace rsplit splitlines"
).split()

CALLS: dict[str, Callable[..., Any]] = {
    # Numbers
    "aten::add": _whole(operator.add),
    "aten::sub": _whole(operator.sub),
    "aten::mul": _whole(operator.mul),
    "aten::div": _divide,
    "aten::floordiv": _nonzero(_floor_divide, "division by 0"),
    "aten::__round_to_zero_floordiv": _nonzero(lambda a, b: math.trunc(a / b), "division by 0"),
    "aten::remainder": _nonzero(_remainder, "integer modulo by zero"),
    "aten::mathremainder": _lifted(math.remainder),
    "aten::divmod": _nonzero(_divided, "ZeroDivisionError: division by 0"),
    "aten::pow": _power,
    "aten::pow.int_to_int": _whole_power,
    "aten::neg": _whole(operator.neg),
    "aten::ceil": lambda value: math.ceil(value),
    "aten::floor": lambda value: math.floor(value),
    "aten::round": _round,
    "aten::log": _logarithm,
    "aten::ldexp": _lifted(math.ldexp),
    "aten::frexp": _scaled_down,
    "aten::modf": _fraction,
    "aten::gamma": _gamma,
    "aten::lgamma": lambda value: math.inf if value == int(value) <= 0 else math.lgamma(value),
    "aten::erf": _lifted(math.erf),
    "aten::erfc": _lifted(math.erfc),
    "aten::factorial": lambda value: _wrapped(math.factorial(value)),
    "aten::gcd": math.gcd,
    "aten::isnan": cmath.isnan,
    "aten::isinf": cmath.isinf,
    "aten::isfinite": cmath.isfinite,
    "aten::angle": lambda value: float(np.angle(value)),
    "aten::polar": lambda length, angle: cmath.rect(length, angle),
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__lshift__": _shifted(operator.lshift),
    "aten::__rshift__": _shifted(operator.rshift),
    "aten::__not__": operator.not_,
    "aten::__is__": _is,
    "aten::__isnot__": lambda one, two: one is not two,
    "aten::eq": _same,
    "aten::ne": lambda one, two: not _same(one, two),
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "prim::abs": abs,
    "prim::max": _extreme(max),
    "prim::min": _extreme(min),
    "prim::max.self_int": _list_extreme(max),
    "prim::max.self_float": _list_extreme(max),
    "prim::max.self_bool": _list_extreme(max),
    "prim::min.self_int": _list_extreme(min),
    "prim::min.self_float": _list_extreme(min),
    "prim::min.self_bool": _list_extreme(min),
    "aten::Int": _converted_int,
    "aten::Float": _converted_float,
    "aten::Bool": _truth,
    "aten::Complex": _complex,
    "aten::all": all,
    "aten::any": any,
    "aten::sum": sum,
    "aten::bin": bin,
    "aten::oct": oct,
    "aten::hex": hex,
    "aten::chr": chr,
    "aten::ord": ord,
    "aten::hash": hash,
    "aten::__derive_index": lambda index, start, step: start + index * step,
    "aten::__range_length": _range_length,
    "prim::rangelist": lambda count: list(range(count)),
    # Lists, tuples and dicts
    "aten::len": len,
    "aten::append": _append,
    "aten::insert": _insert,
    "aten::extend": _extend,
    "aten::add_.t": _extended,
    "aten::mul_.t": _repeated,
    "aten::add.t": operator.add,
    "aten::add.str": operator.add,
    "aten::mul.left_t": operator.mul,
    "aten::mul.right_": lambda times, values: values * times,
    "aten::pop": _pop,
    "aten::clear": lambda values: values.clear(),
    "aten::reverse": lambda values: values.reverse(),
    "aten::copy": _copied,
    "aten::list": list,
    "aten::remove": _remove,
    "aten::count": _count,
    "aten::index": _index,
    "aten::sort": _sort,
    "aten::sorted": _sorted,
    "aten::slice": _slice,
    "aten::select": _item,
    "aten::__getitem__": _item,
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::__contains__": _contains,
    "aten::keys": lambda values: list(values.keys()),
    "aten::values": lambda values: list(values.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::get": lambda values, key, default=None: values.get(key, default),
    "aten::setdefault": _setdefault,
    "aten::popitem": _popitem,
    "aten::update": lambda values, others: values.update(others),
    "aten::dict": dict,
    "prim::TupleIndex": lambda values, index: values[_at(values, index)],
    # Texts
    "aten::str": shown_value,
    "aten::format": formatted,
    "aten::percentFormat": _percent,
    "prim::StringIndex": _character,
    "aten::split": _split,
    "aten::find": _searching(str.find),
    "aten::rfind": _searching(str.rfind),
    "aten::index.str": _searching(str.index),
    "aten::rindex": _searching(str.rindex),
    "aten::startswith": _searching(str.startswith),
    "aten::endswith": _searching(str.endswith),
    # Sizes, and what is around a program
    "aten::Size": list,
    "aten::broadcast_shapes": _broadcast,
    "aten::_infer_size": _broadcast,
    "aten::_size_if_not_equal": lambda ours, others: None if ours == others else ours,
    "aten::device": Device,
    "aten::device.with_index": Device,
    "prim::type": lambda place: place.type,
    "prim::index": lambda place: place.index,
    "aten::warn": _warn,
    "aten::is_grad_enabled": lambda: modes.grad,
    "aten::set_grad_enabled": _set_grad,
    "aten::manual_seed": _manual_seed,
    "aten::is_scripting": lambda: True,
    "aten::wait": lambda future: future.wait(),
    "prim::TimePoint": time.perf_counter_ns,
    "prim::AddStatValue": add_stat_value,
    "prim::unchecked_cast": lambda value: value,
    "prim::unchecked_unwrap_optional": lambda value: value,
    "aten::_unwrap_optional": _unwrapped,
    "prim::Uninitialized": lambda: None,
    "prim::IfThenElse": lambda condition, one, two: one if condition else two,
}
CALLS |= {f"aten::{name}": _real(getattr(np, name)) for name in _ELEMENTARY}
CALLS |= {f"aten::{name}": _real(function) for name, function in _OF_C.items()}
CALLS |= {f"aten::{name}": getattr(str, name) for name in _TEXT_METHODS}
# Conversions between tensors and what is none.
CALLS |= {
    "aten::Int.Tensor": lambda tensor: int(tensor.item()),
    "aten::Float.Tensor": lambda tensor: float(tensor.item()),
    "aten::Bool.Tensor": lambda tensor: bool(tensor.item()),
    "aten::Complex.Tensor": lambda tensor: complex(tensor.item()),
    "aten::len.Tensor": len,
    "prim::dtype": lambda tensor: in_programs(tensor.dtype),
    "prim::layout": lambda tensor: in_programs(tensor.layout),
    "prim::device": lambda tensor: tensor.device,
}
