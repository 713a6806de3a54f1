"""Numbers that follow from values of tensors, while a program is recorded: tensors without axes stand for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ...base.dtype import is_float
from ...base.errors import RunError, Unsupported
from ...eager.functions.all import FUNCTIONS
from ...eager.recording import StandIn
from ...eager.tensor import types
from ...eager.tensor.promotion import result_dtype
from ...eager.tensor.tensor import Tensor
from ..calls.numbered import OF_NUMBER
from ..types import BoolType, FloatType, IntType, Type

Number = int | float | bool
_DTYPES: dict[type, types.dtype] = {bool: types.bool_, int: types.int64, float: types.float64}


class OpenNumber:
    """An int, a float or a bool that is known when the graph runs: a tensor of int64, float64 or bool."""

    __slots__ = ("kind", "tensor")

    def __init__(self, tensor: Tensor, kind: type) -> None:
        self.tensor, self.kind = tensor, kind

    def _asked(self, *_: object) -> NoReturn:
        article = "an" if self.kind is int else "a"
        raise Unsupported(
            f"the value of {article} {self.kind.__name__} is asked for",
            why="it follows from values of tensors, which are known when the graph runs",
        )

    # What would go on with a wrong value if it were not an error.
    __bool__ = __int__ = __float__ = __index__ = __array__ = __eq__ = __ne__ = __lt__ = __gt__ = _asked
    __le__ = __ge__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __format__ = __str__ = _asked
    __hash__ = None  # type: ignore[assignment]


def is_number(value: Any) -> bool:
    """Whether a value is an int, a float or a bool, known or open."""
    return isinstance(value, (int, float, OpenNumber))


def kind_of(value: Any) -> type:
    """The class of a number."""
    return value.kind if isinstance(value, OpenNumber) else type(value)


def array_of_number(value: Number) -> np.ndarray[Any, Any]:
    """A known number as the memory of an open one."""
    return np.asarray(value, _DTYPES[type(value)].numpy)


def opened(tensor: Tensor, kind: type | None = None) -> OpenNumber:
    """The number in a tensor of one element, as an int, a float or a bool; as what it is unless said."""
    if tensor._array.size != 1:
        raise RunError(f"a Tensor with {tensor._array.size} elements cannot be converted to Scalar")
    if kind is None:
        kind = bool if tensor.dtype is types.bool_ else float if is_float(tensor._dtype) else int
    whole = tensor.reshape(()) if tensor.ndim else tensor
    return OpenNumber(_cast(whole, kind), kind)


def _cast(tensor: Tensor, kind: type) -> Tensor:
    dtype = _DTYPES[kind]
    if tensor.dtype is dtype:
        return tensor
    return tensor.ne(0) if kind is bool else tensor.to(dtype)  # type: ignore[no-any-return]


def _call(name: str, *values: Any) -> Any:
    return FUNCTIONS["weft"][name](*values)


# Operators on numbers.

_OF_TENSORS: dict[str, type | None] = {
    "aten::Bool": bool,
    "aten::Int": int,
    "aten::IntImplicit": int,
    "aten::Float": float,
    "aten::FloatImplicit": float,
    "aten::ScalarImplicit": None,
    "aten::item": None,
}
_ARITHMETIC = {
    "aten::add": "add",
    "aten::sub": "sub",
    "aten::mul": "mul",
    "aten::div": "div",
    "aten::floordiv": "floor_divide",
    "aten::remainder": "remainder",
    "aten::pow": "pow",
    "aten::eq": "eq",
    "aten::ne": "ne",
    "aten::lt": "lt",
    "aten::le": "le",
    "aten::gt": "gt",
    "aten::ge": "ge",
    "aten::neg": "neg",
    "prim::max": "maximum",
    "prim::min": "minimum",
    "prim::abs": "abs",
    "aten::sqrt": "sqrt",
    "aten::exp": "exp",
    "aten::log": "log",
    "aten::sin": "sin",
    "aten::cos": "cos",
    "aten::tanh": "tanh",
    "aten::floor": "floor",
    "aten::ceil": "ceil",
}
_OF_BITS = {"aten::__and__": "bitwise_and", "aten::__or__": "bitwise_or", "aten::__xor__": "bitwise_xor"}
_KINDS: list[tuple[type[Type], type]] = [(BoolType, bool), (IntType, int), (FloatType, float)]


def from_tensor(name: str, values: Sequence[Any]) -> OpenNumber | None:
    """What an operator gives that takes a number out of a tensor, where its values are not known."""
    value = values[0] if values else None
    if name not in _OF_TENSORS or not isinstance(value, Tensor) or not isinstance(value._array, StandIn):
        return None
    return opened(value, _OF_TENSORS[name])


def of_numbers(name: str, values: Sequence[Any], result: Type) -> OpenNumber | None:
    """What an operator on numbers gives, some of which are open; None if it is no such operator."""
    kind = next((kind for of, kind in _KINDS if isinstance(result, of)), None)
    if not all(map(is_number, values)):
        return None
    if name in _OF_TENSORS:
        return opened(values[0].tensor, _OF_TENSORS[name] or values[0].kind)
    if name == "aten::__not__":
        return OpenNumber(_call("logical_not", _cast(values[0].tensor, bool)), bool)
    kinds = {kind_of(value) for value in values}
    if name in _OF_BITS:
        return opened(_call(_OF_BITS[name], *_operands(values, bool if kinds == {bool} else int)), kind)
    if name not in _ARITHMETIC:
        return None
    real = float in kinds or (kind is float and name != "aten::pow") or name in ("aten::div", "aten::sqrt", "aten::log")
    whole = name in ("prim::max", "prim::min")
    return opened(_call(_ARITHMETIC[name], *_operands(values, float if real else int, whole)), kind)


def _operands(values: Sequence[Any], kind: type, whole: bool = False) -> list[Any]:
    """Numbers as tensors of one dtype; those that are known follow as they are, unless all are to be tensors."""
    made: list[Any] = []
    for value in values:
        if isinstance(value, OpenNumber):
            made.append(_cast(value.tensor, kind))
        elif made and not whole:
            made.append(kind(value))
        else:
            made.append(_call("full", (), kind(value)).to(_DTYPES[kind]))
    return made


# Operators on tensors and numbers.


def beside_tensors(values: Sequence[Any]) -> list[Any]:
    """Arguments in which open numbers are tensors of the dtype that numbers would have beside the tensors."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    made: list[Any] = []
    for value in values:
        if isinstance(value, OpenNumber):
            dtype = types.OF_NUMPY[result_dtype([*tensors, value.kind(1)])]
            made.append(value.tensor if value.tensor.dtype is dtype else value.tensor.to(dtype))
        else:
            made.append(value)
    return made


def _selected(tensor: Tensor, dim: int, index: OpenNumber) -> Tensor:
    """`select` by a number that is open: a copy, not a view."""
    place = index.tensor
    place = _call("where", _call("lt", place, 0), _call("add", place, tensor.shape[dim]), place)
    return _call("index_select", tensor, dim, place.reshape((1,))).squeeze(dim)  # type: ignore[no-any-return]


def _tensor(value: OpenNumber, dtype: Any = None, *_: Any) -> Tensor:
    """`weft.tensor` of a number."""
    if dtype is None:
        wanted = types.OF_NUMPY[result_dtype([value.kind(1)])]
    else:
        wanted = OF_NUMBER[dtype] if isinstance(dtype, int) else dtype
    return value.tensor if value.tensor.dtype is wanted else value.tensor.to(wanted)


COPIES = frozenset(["aten::select"])  # what gives a view, unless a number is open
SPECIAL: dict[str, Callable[..., Tensor]] = {
    "aten::select": _selected,
    "aten::tensor": _tensor,
    "prim::NumToTensor": lambda value: value.tensor,
}
