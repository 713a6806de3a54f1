"""Whether values that a file holds are of the types that its sources say. Each value is looked at once for a type,
however often the file refers to it."""

from __future__ import annotations

from typing import Any

from ...eager.archive.errors import shown
from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import Tensor
from ..classes import NamedTupleType
from ..types import (
    AnyType,
    BoolType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)

_EXACT: dict[type[Type], tuple[type, ...]] = {
    IntType: (int,),
    FloatType: (float,),
    ComplexType: (complex,),
    BoolType: (bool,),
    StringType: (str,),
    NoneType: (type(None),),
    DeviceObjType: (Device,),
    NumberType: (int, float, complex),
    ListType: (list,),
    DictType: (dict,),
}


def misfit(value: Any, kind: Type) -> str | None:
    """Why a value is not of a type; None if it is.

    >>> misfit([1, 2.5], ListType.ofInts())
    'a float where there is a int'
    >>> misfit([1, 2], ListType.ofInts())
    """
    waiting: list[tuple[Any, Type]] = [(value, kind)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        part, wanted = waiting.pop()
        if (id(part), id(wanted)) in seen:
            continue
        seen.add((id(part), id(wanted)))
        if isinstance(wanted, OptionalType):
            waiting += [] if part is None else [(part, wanted.getElementType())]
            continue
        if isinstance(wanted, UnionType):
            wanted = next((choice for choice in wanted.choices() if _is_like(part, choice)), wanted)
        if not _is_like(part, wanted):
            return f"a {shown(part) if type(part) is int else type(part).__name__} where there is a {wanted}"
        if isinstance(wanted, ListType):
            waiting += [(item, wanted.getElementType()) for item in part]
        elif isinstance(wanted, DictType):
            waiting += [(key, wanted.getKeyType()) for key in part]
            waiting += [(item, wanted.getValueType()) for item in part.values()]
        elif isinstance(wanted, TupleType):
            waiting += zip(part, wanted.parts)
    return None


def _is_like(value: Any, kind: Type) -> bool:
    """Whether a value is of a type, apart from what is in it."""
    if isinstance(kind, AnyType) or kind.holds(value):
        return True
    if isinstance(kind, TensorType):
        return isinstance(value, Tensor)
    if isinstance(kind, NamedTupleType):
        return isinstance(value, kind.python)
    if isinstance(kind, TupleType):
        return type(value) is tuple and len(value) == len(kind.parts)
    if isinstance(kind, OptionalType):
        return value is None or _is_like(value, kind.getElementType())
    return type(value) in _EXACT.get(type(kind), ())
