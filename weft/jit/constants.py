"""Values of Python as constants of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..base.errors import InvalidType
from ..eager.tensor.device import device as Device
from ..eager.tensor.tensor import Tensor
from .types import (
    BoolType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    StringType,
    TensorType,
    TupleType,
    Type,
)

if TYPE_CHECKING:
    from .nodes import Node

_OF_PYTHON: Mapping[type, type[Type]] = {  # a bool is an int of Python's, and comes first
    bool: BoolType,
    int: IntType,
    float: FloatType,
    complex: ComplexType,
    str: StringType,
}


def type_of(value: Any) -> Type:
    """The type of a value of Python."""
    if value is None:
        return NoneType.get()  # type: ignore[no-any-return]
    if isinstance(value, Tensor):
        return TensorType.of(value)
    for kind, found in (
        (bool, BoolType),
        (int, IntType),
        (float, FloatType),
        (complex, ComplexType),
        (str, StringType),
        (Device, DeviceObjType),
    ):
        if isinstance(value, kind):
            return found.get()  # type: ignore[no-any-return]
    if isinstance(value, tuple):
        return TupleType([type_of(item) for item in value])
    if isinstance(value, list):
        kinds = [type_of(item) for item in value]
        if any(isinstance(kind, TensorType) for kind in kinds) or not kinds:
            return ListType.ofTensors()
        if len(set(kinds)) == 1:
            return ListType(kinds[0])
    if isinstance(value, dict) and value:
        keys, items = ({type_of(item) for item in part} for part in (value.keys(), value.values()))
        items = {TensorType.get() if isinstance(kind, TensorType) else kind for kind in items}
        if len(keys) == len(items) == 1:
            return DictType(keys.pop(), items.pop())
    raise InvalidType(f"{value!r:.60} is no value of a program")


_LISTED: Mapping[type[Type], str] = {IntType: "is", BoolType: "is", FloatType: "fs", StringType: "ss", TensorType: "ts"}
_ALONE: Mapping[type[Type], str] = {
    IntType: "i",
    BoolType: "i",
    FloatType: "f",
    ComplexType: "c",
    StringType: "s",
    TensorType: "t",
}


def make_constant(node: Node, value: Any) -> None:
    """Has a node be a constant."""
    kind = type_of(value)
    node.output().setType(kind)
    if isinstance(kind, ListType) and type(kind.getElementType()) in _LISTED:
        node._set(_LISTED[type(kind.getElementType())], "value", value)
    elif type(kind) in _ALONE:
        node._set(_ALONE[type(kind)], "value", value)
    elif isinstance(kind, DeviceObjType):
        node._set("s", "value", str(value))
    elif value is not None:
        node._set("ival", "value", value)


def constant_of(node: Node) -> Any:
    """What a constant is."""
    if "value" not in node._attributes:
        return None
    _, value = node._attributes["value"]
    kind = node.output().type()
    if isinstance(kind, BoolType):
        return bool(value)
    if isinstance(kind, FloatType):
        return float(value)
    if isinstance(kind, DeviceObjType):
        return Device(value)
    if isinstance(kind, ListType) and isinstance(kind.getElementType(), BoolType):
        return [bool(item) for item in value]
    return list(value) if isinstance(value, list) else value
