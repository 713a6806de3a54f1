"""weft behind onnx's own interface of backends: what `onnx.backend.test` drives, and any tool that takes a backend.

import weft.tools.onnx_backend as backend

outputs = backend.prepare(onnx.load("model.onnx")).run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from ..base.errors import InvalidType, InvalidValue, Unsupported
from ..compiler.model import Model, compile
from ..frontend.onnx.importer import from_onnx

Inputs = Sequence[Any] | Mapping[str, Any]


class WeftRep(BackendRep):
    """A compiled model, and the order in which its graph has inputs."""

    def __init__(self, model: Model, inputs: Sequence[str]) -> None:
        self.model = model
        self.inputs = list(inputs)

    def run(self, inputs: Inputs, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by position and by name, for inputs in the order of the graph's or by name."""
        if kwargs:
            raise InvalidType(f"run takes no {min(kwargs)!r}", hint="options go to prepare")
        outputs = self.model.run(self._by_name(inputs))
        return namedtupledict("Outputs", self.model.outputs)(*outputs)

    def _by_name(self, inputs: Inputs) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        if not isinstance(inputs, (list, tuple)):
            raise InvalidType(f"inputs are a list, or a dict by name, not a {type(inputs).__name__}")
        if len(inputs) != len(self.inputs):
            raise InvalidValue(f"{len(inputs)} values for {len(self.inputs)} inputs", why=f"inputs: {self.inputs}")
        return dict(zip(self.inputs, inputs))


class WeftBackend(Backend):
    """Compiles models for this machine's processor."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device, such as "CPU" or "CUDA:1", is one that models run on."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether weft has all that the model asks for."""
        try:
            from_onnx(model, **kwargs)
        except Unsupported:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> WeftRep:
        """The model compiled; `kwargs` are those of `weft.compile`.

        >>> from onnx import parser
        >>> text = 'm (float[2] x) => (float[2] y) { y = Relu(x) }'
        >>> model = helper.make_model(parser.parse_graph(text))
        >>> WeftBackend.prepare(model).run([np.array([-1, 2], "float32")])["y"]
        array([0., 2.], dtype=float32)
        """
        if not cls.supports_device(device):
            raise Unsupported(f"device {device!r}", why="weft compiles for CPU")
        stored = {tensor.name for tensor in model.graph.initializer}
        inputs = [item.name for item in model.graph.input if item.name not in stored]
        return WeftRep(compile(model, **kwargs), inputs)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Inputs, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of a model that is run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Inputs,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node, of the newest opset unless `opset_version` is another; needs no `outputs_info`.

        >>> node = helper.make_node("Add", ["a", "b"], ["c"])
        >>> WeftBackend.run_node(node, [np.array([1, 2]), np.array([3])])[0]
        array([4, 5])
        """
        names = list(dict.fromkeys(filter(None, node.input)))
        given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        graph = helper.make_graph(
            [node],
            node.op_type,
            [helper.make_value_info(name, type_of(given[name])) for name in names],
            [helper.make_empty_tensor_value_info(name) for name in filter(None, node.output)],
        )
        opset = helper.make_opsetid(node.domain, kwargs.pop("opset_version", None) or _newest_opset(node))
        return cls.run_model(helper.make_model(graph, opset_imports=[opset]), given, device, **kwargs)


def type_of(value: Any) -> TypeProto:
    """ONNX's type of a value: an array is a tensor, a list a sequence."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise InvalidValue("an empty list has no type", hint="run a model that declares its inputs")
        return helper.make_sequence_type_proto(type_of(value[0]))
    array = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _newest_opset(node: onnx.NodeProto) -> int:
    """Of the node's domain; operators that onnx does not define have no versions."""
    if node.domain in ("", "ai.onnx"):
        return onnx.defs.onnx_opset_version()
    if not onnx.defs.has(node.op_type, node.domain):
        return 1
    return onnx.defs.get_schema(node.op_type, domain=node.domain).since_version


is_compatible = WeftBackend.is_compatible
prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
