"""What a model asks for that weft does not have: gathered while it is converted, told at once.

Behind a node that cannot be converted stand values whose types the file may tell, as exporters
write them; where it does, the nodes that read them are looked at, too. ONNX's own inference, which
would tell more, does not survive damaged models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx

from ...base.errors import Error, OpenShapes, Unsupported
from ...base.shape import Dim
from ...core.ir import Fact
from ...core.symbol import Variable
from ..emitter import Value
from ..reading import in_nodes
from .model import Model, node_domain
from .tensors import DTYPE_OF, symbol_name


class Gaps:
    """Operators without a converter, and what else was found unsupported."""

    def __init__(self, model: Model, operators: dict[tuple[str, str], list[str]]) -> None:
        self._model = model
        self._operators = operators
        self._errors: list[Unsupported] = []
        self._behind: set[str] = set()  # names of values that a gap makes, or that follow from one
        self._types: dict[str, Fact] | None = None

    def __bool__(self) -> bool:
        return bool(self._operators or self._errors)

    def lacks(self, node: onnx.NodeProto) -> bool:
        """Whether no converter is there for a node."""
        return (node_domain(node), node.op_type) in self._operators

    def add(self, error: Error, inputs: Iterable[str] = ()) -> None:
        """Keeps an error that is a gap; raises one that is not, unless a gap may be its cause."""
        if isinstance(error, Unsupported) and not isinstance(error, OpenShapes):
            self._errors.append(error)
        elif not self and not self._behind.intersection(inputs):
            raise error

    def follows(self, node: onnx.NodeProto) -> None:
        """Says that what a node makes follows from a gap."""
        if self._behind.intersection(node.input):
            self._behind.update(node.output)

    def stand_ins(self, names: Sequence[str]) -> dict[str, Value]:
        """Values in place of those that a gap makes, as far as their types are known."""
        self._behind.update(names)
        if self._types is None:
            self._types = _declared(self._model)
        known = {name: self._types[name] for name in names if name in self._types}
        return {name: Value(name, fact, Variable(name)) for name, fact in known.items()}

    def check(self) -> None:
        """Raises one error for all there are."""
        if len(self._errors) == 1 and not self._operators:
            raise self._errors[0]
        if not self:
            return
        told = []
        if self._operators:
            nodes = sum(map(len, self._operators.values()))
            count = len(self._operators)
            told.append(f"{count} operators of the model are not supported, in {nodes} nodes")
        if self._errors:
            told.append(f"{len(self._errors)} uses of operators or types are not supported")
        rows = [_described(self._model, *row) for row in sorted(self._operators.items())]
        rows += [f"{error.where}: {error.what}" for error in self._errors]
        raise Unsupported("; ".join(told), why="; ".join(rows))


def _described(model: Model, key: tuple[str, str], names: list[str]) -> str:
    domain, op_type = key
    full = f"{domain or 'ai.onnx'}.{op_type}"
    return f"{full} (opset {model.opsets[domain]}) {in_nodes(names)}"


def _declared(model: Model) -> dict[str, Fact]:
    """The types that the file tells of values, where they have a rank."""
    facts = {}
    for item in [*model.graph.value_info, *model.graph.output]:
        tensor = item.type.tensor_type
        if tensor.HasField("shape") and tensor.elem_type in DTYPE_OF:
            dims: list[Dim] = [
                d.dim_value if d.HasField("dim_value") else symbol_name(d.dim_param) for d in tensor.shape.dim
            ]
            facts[item.name] = Fact(tuple(dims), DTYPE_OF[tensor.elem_type])
    return facts
