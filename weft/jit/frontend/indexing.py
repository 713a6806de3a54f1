"""Subscripts of tensors: `x[0, ..., None, 1:3, mask]`, read and written."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..nodes import Value
from ..types import BoolType, IntType, ListType, NoneType, OptionalType, TensorType, TupleType
from .calls import call_operator

if TYPE_CHECKING:
    from .expressions import Expressions


def index_tensor(emit: Expressions, tensor: Value, node: ast.expr) -> Value:
    """What a subscript gives: views for numbers and slices, then the elements that tensors choose."""
    view, indices = indexed_views(emit, tensor, node)
    return call_operator(emit, "aten::index", [view, _optional_tensors(emit, indices)]) if indices else view


def set_tensor_item(emit: Expressions, tensor: Value, node: ast.expr, value: Value) -> None:
    """Writes to what a subscript gives."""
    view, indices = indexed_views(emit, tensor, node)
    if not isinstance(value.type(), TensorType):
        like = {
            "dtype": call_operator(emit, "prim::dtype", [view]),
            "device": call_operator(emit, "prim::device", [view]),
        }
        value = call_operator(emit, "aten::tensor", [value], like)
    if indices:
        call_operator(emit, "aten::index_put_", [view, _optional_tensors(emit, indices), value])
    else:
        call_operator(emit, "aten::copy_", [view, value])


def _optional_tensors(emit: Expressions, indices: list[Value | None]) -> Value:
    values = [emit.constant(None) if index is None else index for index in indices]
    return emit.list_of(OptionalType(TensorType.get()), values)


def indexed_views(emit: Expressions, tensor: Value, node: ast.expr) -> tuple[Value, list[Value | None]]:
    """A view for the numbers and slices of a subscript, and the tensors in it, by the axis of the view."""
    parts = list(node.elts) if isinstance(node, ast.Tuple) else [node]
    values = [None if isinstance(part, ast.Slice) or _is_ellipsis(part) else emit.value(part) for part in parts]
    if len(parts) == 1 and values[0] is not None and isinstance(values[0].type(), TupleType):
        values = list(emit.unpacked(values[0]))
        parts = [node] * len(values)
    ellipsis = [_is_ellipsis(part) for part in parts]
    if sum(ellipsis) > 1:
        raise emit.error("An index can only have a single ellipsis ('...')")
    view, axis = tensor, 0
    indices: list[Value | None] = []
    for place, (part, value) in enumerate(zip(parts, values)):
        if ellipsis[place]:
            continue
        behind = any(ellipsis[:place])  # axes are counted from the end there
        following = sum(_takes_axis(each) for each in values[place + 1 :])
        at = -following - 1 if behind else axis
        if isinstance(part, ast.Slice):
            view = _sliced(emit, view, at, part)
        elif value is None or isinstance(value.type(), NoneType):
            view = emit.operator("aten::unsqueeze", view, at)
        elif isinstance(value.type(), (IntType, BoolType)):
            view = call_operator(emit, "aten::select", [view, emit.constant(at), value])
            continue
        elif isinstance(value.type(), (TensorType, ListType)) and not behind:
            _put(indices, at, value if isinstance(value.type(), TensorType) else emit.operator("aten::tensor", value))
        else:
            raise emit.error(
                f"Unsupported operation: indexing tensor with unsupported index type '{value.type()}'. Only ints, "
                "slices, lists and tensors are supported" + " behind an ellipsis only ints and slices" * behind
            )
        axis += 1
    return view, indices


def _put(indices: list[Value | None], axis: int, value: Value) -> None:
    indices += [None] * (axis + 1 - len(indices))
    indices[axis] = value


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis


def _takes_axis(value: Value | None) -> bool:
    return value is None or not isinstance(value.type(), NoneType)


def _sliced(emit: Expressions, view: Value, axis: int, node: ast.Slice) -> Value:
    start = emit.constant(None) if node.lower is None else emit.value(node.lower)
    end = emit.constant(None) if node.upper is None else emit.value(node.upper)
    step = emit.constant(1) if node.step is None else emit.value(node.step)
    return call_operator(emit, "aten::slice", [view, emit.constant(axis), start, end, step])
