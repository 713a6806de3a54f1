"""The two tables of the exporter, and what its writers write with.

ALIKE["relu"] = AlikeOp("Relu")                    # the same, attributes renamed at most

@writes("dense")
def dense(w): w.give("Gemm", *w.inputs, transB=1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...base.dtype import DType
from ...base.errors import Unsupported
from ...core.ir import Fact, Node
from ..emitter import Names
from .tensors import CODE_OF

WriterRule = Callable[["Writing"], None]


class AlikeOp(NamedTuple):
    """An ONNX operator that is the same but for the names of attributes."""

    op_type: str
    attrs: Mapping[str, str] = MappingProxyType({})  # weft name -> ONNX name


ALIKE: dict[str, AlikeOp] = {}
_writers: dict[str, WriterRule] = {}


def writes(*op_names: str) -> Callable[[WriterRule], WriterRule]:
    """Registers a function that writes an operator's nodes."""

    def register(rule: WriterRule) -> WriterRule:
        _writers.update(dict.fromkeys(op_names, rule))
        return rule

    return register


def find_writer(op_name: str) -> WriterRule | None:
    """What writes an operator; None if nothing does."""
    alike = ALIKE.get(op_name)
    if alike is None:
        return _writers.get(op_name)

    def rule(w: Writing) -> None:
        attrs = {new: getattr(w.params, old) for old, new in alike.attrs.items()}
        w.give(alike.op_type, *w.inputs, **attrs)

    return rule


class Writer:
    """The nodes and initialisers of the model so far."""

    def __init__(self, opset: int) -> None:
        self.tensor_names = Names()  # ONNX has one space for all tensors, and one for all nodes
        self._node_names = Names()
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def append(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        attrs: Mapping[str, Any],
    ) -> None:
        """One more node; attributes that are None are left out."""
        given = {key: _plain(value) for key, value in attrs.items() if value is not None}
        name = self._node_names.fresh(name)
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **given))


class Writing:
    """One weft node: names of its tensors, what is known of them, and its params."""

    def __init__(
        self,
        writer: Writer,
        node: Node,
        inputs: list[str],
        outputs: list[str],
        input_facts: list[Fact],
        output_facts: list[Fact],
    ) -> None:
        self.writer = writer
        self.name = node.name
        self.params = node.params
        self.op_name = node.op_name
        self.inputs = inputs
        self.outputs = outputs
        self.ins = input_facts
        self.outs = output_facts

    @property
    def opset(self) -> int:
        return self.writer.opset

    @property
    def dtype(self) -> DType:
        """The dtype of the first input, or of the output where there is none."""
        return (self.ins or self.outs)[0].dtype

    def node(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """An inner node with one output; gives the output's name."""
        output = self.writer.tensor_names.fresh(f"{self.name}_{op_type}")
        self.writer.append(op_type, inputs, [output], output, attrs)
        return output

    def give(self, op_type: str, *inputs: str, **attrs: Any) -> None:
        """The node that makes what the weft node makes; hidden outputs are left out."""
        visible = self.outputs[:1] if op_type != "Split" else self.outputs
        self.writer.append(op_type, inputs, visible, self.name, attrs)

    def constant(self, value: Any, dtype: DType | None = None) -> str:
        """An initialiser; of the first input's dtype unless said otherwise."""
        name = self.writer.tensor_names.fresh(f"{self.name}_constant")
        data = np.asarray(value, self.dtype if dtype is None else dtype)
        self.writer.initializers.append(numpy_helper.from_array(data, name))
        return name

    def ints(self, values: Any) -> str:
        """An initialiser of int64: a shape, axes, or places."""
        return self.constant(np.asarray(values, np.int64), np.dtype(np.int64))

    def cast(self, name: str, dtype: DType) -> str:
        return self.node("Cast", name, to=CODE_OF[dtype])

    def give_cast(self, name: str) -> None:
        """Casts to the dtype of the output, and gives it."""
        self.give("Cast", name, to=CODE_OF[self.outs[0].dtype])

    def require(self, fits: bool, what: str) -> None:
        if not fits:
            raise Unsupported(f"{self.op_name} with {what} cannot be written as ONNX")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [int(item) for item in value]
    return int(value) if isinstance(value, bool) else value
