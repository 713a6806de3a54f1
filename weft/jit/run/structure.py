"""What nodes do whose meaning is in their attributes or in the number of their inputs: they have no schema. A row
gives, for a node, the function of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...base.errors import InvalidType, RunError
from ...eager.autograd.backward import grad
from ...eager.autograd.modes import enable_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ..calls.shown import shown_value
from ..classes import NamedTupleType
from ..constants import constant_of
from ..matching import operator_for
from ..nodes import Node
from ..schema import converted
from ..types import FloatType, FunctionType, IntType, NumberType, Type
from .protocol import ObjectType

Call = Callable[..., Any]


def _constant(node: Node) -> Call:
    kind = node.output().type()
    if isinstance(kind, FunctionType):
        return lambda: kind.function
    value = constant_of(node)
    if isinstance(value, (list, dict)):
        return lambda: value.copy()  # a program may write to it
    return lambda: value


def _list(node: Node) -> Call:
    return lambda *values: list(values)


def _tuple(node: Node) -> Call:
    kind = node.output().type()
    if isinstance(kind, NamedTupleType):
        return kind.python  # type: ignore[no-any-return]
    return lambda *values: values


def _dict(node: Node) -> Call:
    return lambda *values: dict(zip(values[::2], values[1::2]))


def _unpack(node: Node) -> Call:
    count = node.outputsSize()

    def call(values: Any) -> Any:
        if len(values) != count:
            raise RunError(f"Expected {count} elements in a list but found {len(values)}")
        return values[0] if count == 1 else tuple(values)

    return call


def _tuple_slice(node: Node) -> Call:
    first, end = node.i("beg"), node.i("end")  # type: ignore[attr-defined]
    return lambda values: values[first:end]


def is_of(value: Any, kind: Type) -> bool:
    """Whether a value is one of a type, as it is."""
    if isinstance(kind, NumberType):
        return isinstance(value, (int, float, complex)) and not isinstance(value, bool)
    if isinstance(kind, FloatType):
        return isinstance(value, float)
    if isinstance(kind, IntType):
        return type(value) is int
    try:
        converted(value, kind)
    except InvalidType:
        return False
    return True


def _isinstance(node: Node) -> Call:
    kinds = node.tys("types")  # type: ignore[attr-defined]
    return lambda value: any(is_of(value, kind) for kind in kinds)


def _get_attribute(node: Node) -> Call:
    name = node.s("name")  # type: ignore[attr-defined]
    return lambda owner: owner.get_attribute(name)


def _set_attribute(node: Node) -> Call:
    name = node.s("name")  # type: ignore[attr-defined]
    return lambda owner, value: owner.set_attribute(name, value)


def _create_object(node: Node) -> Call:
    kind = node.output().type()
    if not isinstance(kind, ObjectType):
        raise RunError(f"{kind} has no objects that a program can create")
    return kind.create_object


def _print(node: Node) -> Call:
    return lambda *values: print(*map(shown_value, values))


def _chunk(node: Node) -> Call:
    chunks, dim = node.i("chunks"), node.i("dim")  # type: ignore[attr-defined]

    def call(tensor: Tensor) -> Any:
        parts = tensor.chunk(chunks, dim)
        if len(parts) != node.outputsSize():
            raise RunError(f"expected {node.outputsSize()} chunks, but got {len(parts)}")
        return parts[0] if len(parts) == 1 else tuple(parts)

    return call


def _enter(node: Node) -> Call:
    return lambda manager: manager.__enter__()


def _exit(node: Node) -> Call:
    return lambda manager: manager.__exit__(None, None, None)


def _to_list(node: Node) -> Call:
    return lambda tensor, *_: tensor.tolist()


def _zero_gradient(node: Node) -> Call:
    return lambda: None


def _add_gradients(node: Node) -> Call:
    return lambda one, two: two if one is None else one if two is None else one + two


def _any_gradient(node: Node) -> Call:
    return lambda *gradients: any(gradient is not None for gradient in gradients)


def _vjp(node: Node) -> Call:
    """The gradients of inputs of an operator, by those of its results: the operator runs again to tell them."""
    name, wanted, given = node._get("s", "name"), node._get("is", "wanted"), node._get("is", "given")
    count = node.inputsSize() - len(given)
    operator = operator_for(name, [value.type() for value in node._inputs[:count]])

    def call(*values: Any) -> Any:
        inputs, gradients = list(values[:count]), values[count:]
        for place in wanted:
            inputs[place] = inputs[place].detach().requires_grad_()
        with enable_grad():
            results = operator.call(*inputs)
        results = results if isinstance(results, (tuple, list)) else [results]
        asked = [inputs[place] for place in wanted]
        found = grad([results[place] for place in given], asked, list(gradients), allow_unused=True)
        zeros = FUNCTIONS["weft"]["zeros_like"]
        gradients = tuple([zeros(value) if one is None else one for value, one in zip(asked, found)])
        return gradients[0] if len(gradients) == 1 else gradients

    return call


STRUCTURE: dict[str, Callable[[Node], Call]] = {
    "prim::Constant": _constant,
    "prim::ListConstruct": _list,
    "prim::ListUnpack": _unpack,
    "prim::TupleConstruct": _tuple,
    "prim::TupleUnpack": _unpack,
    "prim::TupleSlice": _tuple_slice,
    "prim::DictConstruct": _dict,
    "prim::ConstantChunk": _chunk,
    "prim::isinstance": _isinstance,
    "prim::EnumName": lambda node: lambda member: member.name,
    "prim::EnumValue": lambda node: lambda member: member.value,
    "prim::GetAttr": _get_attribute,
    "prim::SetAttr": _set_attribute,
    "prim::CreateObject": _create_object,
    "prim::Print": _print,
    "prim::Enter": _enter,
    "prim::Exit": _exit,
    "prim::tolist": _to_list,
    "prim::AutogradZero": _zero_gradient,
    "prim::AutogradAdd": _add_gradients,
    "prim::AutogradAnyNonZero": _any_gradient,
    "weft::vjp": _vjp,
}
