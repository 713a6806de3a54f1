"""What a node gives: tensors of numbers, tensors of text, or sequences; by ONNX's own schema and what goes in."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto

from ..emitter import SEQUENCE, TENSOR, TEXT, TEXTS, Value

_ELEMENT = {SEQUENCE: TENSOR, TEXTS: TEXT}
_CONTAINER = {TENSOR: SEQUENCE, TEXT: TEXTS}
_TEXT_ATTRIBUTES = ("value_string", "value_strings", "values_strings", "classlabels_strings", "vocabulary_strings")


def declared_kind(item: onnx.TypeProto) -> str:
    """The kind that a file declares."""
    which = item.WhichOneof("value")
    if which == "tensor_type":
        return TEXT if item.tensor_type.elem_type == TensorProto.STRING else TENSOR
    if which == "sequence_type":
        return _CONTAINER.get(declared_kind(item.sequence_type.elem_type), SEQUENCE)
    if which == "optional_type":
        inner = declared_kind(item.optional_type.elem_type)
        return _CONTAINER.get(inner, inner)  # host steps alone read what may be absent
    return SEQUENCE if which else TENSOR


def output_kinds(node: onnx.NodeProto, schema: onnx.defs.OpSchema | None, inputs: Sequence[Value | None]) -> list[str]:
    """One for each output of a node."""
    if schema is None:
        return [TEXT if node.op_type in _TOKENS else TENSOR] * len(node.output)
    return [_output_kind(node, schema, _formal(schema.outputs, index), inputs) for index in range(len(node.output))]


def _formal(formals: Sequence[onnx.defs.OpSchema.FormalParameter], index: int) -> onnx.defs.OpSchema.FormalParameter:
    return formals[min(index, len(formals) - 1)]


def _output_kind(
    node: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    formal: onnx.defs.OpSchema.FormalParameter,
    inputs: Sequence[Value | None],
) -> str:
    kinds = [value.kind for value in inputs if value is not None]
    if node.op_type in ("SequenceAt", "OptionalGetElement", "ConcatFromSequence"):
        return _ELEMENT.get(kinds[0], kinds[0])
    if formal.type_str.startswith(("seq(", "optional(")) or node.op_type in _SEQUENCES:
        return _CONTAINER.get(kinds[0], kinds[0]) if kinds else SEQUENCE
    constraint = next((row for row in schema.type_constraints if row.type_param_str == formal.type_str), None)
    allowed = list(constraint.allowed_type_strs) if constraint else [formal.type_str]
    for index, value in enumerate(inputs):
        if value is not None and constraint and _formal(schema.inputs, index).type_str == formal.type_str:
            return value.kind
    if all(name.startswith(("seq(", "map(")) for name in allowed):
        return SEQUENCE
    if "tensor(string)" not in allowed:
        return TENSOR
    if node.op_type == "CategoryMapper" or (node.op_type == "LabelEncoder" and schema.since_version == 1):
        return TENSOR if TEXT in kinds else TEXT
    return TEXT if len(allowed) == 1 or _makes_text(node) else TENSOR


_TOKENS = ("Tokenizer",)  # what gives text and has no schema
_SEQUENCES = ("SequenceConstruct", "SequenceEmpty", "SplitToSequence", "SequenceInsert", "SequenceErase", "Optional")


def _makes_text(node: onnx.NodeProto) -> bool:
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i == TensorProto.STRING:
            return True
        if attribute.name in ("value", "values_tensor") and attribute.t.data_type == TensorProto.STRING:
            return True
        if attribute.name == "cast_to" and attribute.s == b"TO_STRING":
            return True
        if attribute.name in _TEXT_ATTRIBUTES and (attribute.strings or attribute.s):
            return True
    return False
