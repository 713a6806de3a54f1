"""Nodes that are converted, or run, after the file was read: written down as text, and taken up again."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx

from ...base.dtype import INT64
from ...base.errors import Unsupported
from ...core.interpret import Array
from ..building import Alike
from ..deferred import DEFERRED, HOST_STEP
from ..emitter import TENSOR, TEXT, Emitter, Value
from ..reading import reading
from . import convert as _converters  # noqa: F401  registers them
from . import host as _steps  # noqa: F401  registers them
from .call import HostCall, OnnxCall
from .kinds import output_kinds
from .model import node_domain, node_label, node_schema
from .registry import Rule, find

READ_NODES = 256  # that are kept


class Later(NamedTuple):
    """A node and what it needs beside its inputs: the opset, which inputs are there, and text that is constant."""

    node: onnx.NodeProto
    opset: int
    present: tuple[int, ...]  # positions of the inputs that are values of the graph
    texts: Mapping[int, Array]

    @property
    def rule(self) -> Rule:
        rule = find(node_domain(self.node), self.node.op_type, self.opset)
        if rule is None:
            raise Unsupported(f"operator {self.node.op_type} is not supported")
        return rule

    @property
    def schema(self) -> onnx.defs.OpSchema | None:
        return node_schema(self.node, self.opset)

    def all_inputs(self, values: Sequence[Any]) -> list[Any]:
        """Values in their places, None where an input is left out."""
        places: list[Any] = [None] * len(self.node.input)
        for position, value in (*zip(self.present, values), *self.texts.items()):
            places[position] = value
        return places


def defer(emitter: Emitter, name: str, node: onnx.NodeProto, opset: int, inputs: Sequence[Value | None]) -> list[Value]:
    """Values that a node gives once it is converted, or has run."""
    texts = {i: text for i, value in enumerate(inputs) if (text := _constant_text(value)) is not None}
    present = [i for i, value in enumerate(inputs) if value is not None and i not in texts]
    later = Later(node, opset, tuple(present), texts)
    rule, kinds = later.rule, output_kinds(node, later.schema, inputs)
    attrs: dict[str, Any] = {"importer": "onnx", "node": _written(later), "num_outputs": len(node.output)}
    tensors = all(value is None or value.kind == TENSOR for value in inputs)
    gives_tensors = all(kind == TENSOR for kind in kinds)
    on_host = rule.host is not None or not tensors or not gives_tensors
    if on_host:
        attrs["tensors"] = tensors and gives_tensors
    else:
        attrs["decides"] = tuple(place for place, i in enumerate(present) if i in rule.decides)
        attrs["by_shape"] = rule.by_shape
    values = [value for i in present if (value := inputs[i]) is not None]
    return emitter.deferred(HOST_STEP if on_host else DEFERRED, name, values, attrs, kinds)


def _constant_text(value: Value | None) -> Array | None:
    return value.constant if value is not None and value.kind == TEXT else None


def _written(later: Later) -> str:
    texts = {str(i): [list(text.shape), [str(item) for item in text.ravel()]] for i, text in later.texts.items()}
    data = base64.b64encode(later.node.SerializeToString()).decode("ascii")
    return json.dumps({"node": data, "opset": later.opset, "present": later.present, "texts": texts})


@lru_cache(maxsize=READ_NODES)
def _read(text: str) -> Later:
    """The node, which bodies of loops ask for in every turn; nobody changes it."""
    fields = json.loads(text)
    node = onnx.NodeProto.FromString(base64.b64decode(fields["node"]))
    texts = {int(i): np.array(items, object).reshape(shape) for i, (shape, items) in fields["texts"].items()}
    return Later(node, fields["opset"], tuple(fields["present"]), texts)


def convert(text: str, emitter: Emitter, inputs: Sequence[Value]) -> list[Value | None]:
    """The values that a node becomes, now that what it waited for is known."""
    later = _read(text)
    with reading(node_label(later.node, 0), later.node.op_type):
        return converted(emitter, later.node, later.opset, later.all_inputs(inputs))


def converted(emitter: Emitter, node: onnx.NodeProto, opset: int, inputs: Sequence[Value | None]) -> list[Value | None]:
    """The values of a node by its converter, one for each output."""
    rule = find(node_domain(node), node.op_type, opset)
    assert rule is not None
    assert rule.convert is not None  # else the node would be a gap, or a host step
    call = OnnxCall(emitter, node, node_schema(node, opset), inputs, opset, node_label(node, 0), rule.decides)
    answer = call.alike(rule.convert) if isinstance(rule.convert, Alike) else rule.convert(call)
    call.check_all_read()
    results = list(call.named([answer] if isinstance(answer, Value) else answer))
    for index, name in enumerate(node.output):
        if name and (index >= len(results) or results[index] is None):
            raise Unsupported(f"output {index} ({name!r}) has no counterpart")
    return results


def run(text: str, values: Sequence[Any]) -> list[Any]:
    """The outputs of a node for values that are there."""
    later, call = _host_call(text)
    rule, places = later.rule, later.all_inputs(values)
    with reading(call.label, call.op_type):
        step = rule.host or rule.beside
        return list(step(call, *places)) if step is not None else _moved_text(later, places)


@lru_cache(maxsize=READ_NODES)
def _host_call(text: str) -> tuple[Later, HostCall]:
    later = _read(text)
    return later, HostCall(later.node, later.schema, later.opset, node_label(later.node, 0))


def _moved_text(later: Later, places: Sequence[Any]) -> list[Array | None]:
    """Operators that move elements, or tell whether they are equal, on text: each string is a number of a table, in
    the order of the strings."""
    is_text = [isinstance(value, np.ndarray) and value.dtype == object for value in places]
    words = sorted({str(word) for value, text in zip(places, is_text) if text for word in value.ravel()})
    number = {word: position for position, word in enumerate(words)}
    emitter = Emitter()
    inputs: list[Value | None] = []
    for value, text in zip(places, is_text):
        if value is not None:
            flat = [number[str(word)] for word in value.ravel()] if text else value
            value = emitter.constant("data", np.asarray(flat, INT64 if text else value.dtype).reshape(value.shape))
        inputs.append(value)
    results = converted(emitter, later.node, later.opset, inputs)
    stand_ins = [
        value and Value("data", value.fact, kind=TEXT if text else TENSOR) for value, text in zip(inputs, is_text)
    ]
    kinds = output_kinds(later.node, later.schema, stand_ins)
    arrays = [None if value is None else emitter.computed(value) for value in results]
    table = np.array(words, object)
    return [table[array] if kind == TEXT and array is not None else array for array, kind in zip(arrays, kinds)]
