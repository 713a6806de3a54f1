"""MxnetCall: one MXNet node as its converter sees it, and what it builds the answer with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.dtype import DTYPES, DType
from ...base.errors import FormatError, Unsupported
from ...core.ir import Fact
from ..building import Building
from ..emitter import Emitter, Value
from .attributes import Attribute, Signature, parsed, real_name, signature

if TYPE_CHECKING:
    from .node import MxnetNode

# What only concerns speed, memory or training, whatever the operator.
_NO_EFFECT = frozenset(
    "workspace cudnn_tune cudnn_off num_args momentum sparse_grad ctx "
    "min_calib_range max_calib_range forward_stype is_int".split()
)


def _of_the_caller(attrs: Mapping[str, str]) -> Signature:
    """Of an operator that MXNet does not have: any inputs, and attributes as text."""
    return Signature(("data*",), {name: Attribute("text", None) for name in attrs})


class Subgraph(NamedTuple):
    """A subgraph of the node. `convert(emitter, arguments)` makes values of its outputs from those
    of its arguments, of which None are not needed."""

    arguments: int
    convert: Callable[[Emitter, Sequence[Value | None]], list[Value]]


class OpenFill(Value):
    """A constant fill, part of whose shape MXNet takes from whatever reads it."""

    __slots__ = ("fill",)

    def __init__(self, name: str, fact: Fact, fill: float) -> None:
        super().__init__(name, fact)
        self.fill = fill


class MxnetCall(Building):
    """The inputs and attributes of a node; attributes have the defaults of MXNet 1.9.1."""

    node: MxnetNode

    def __init__(self, emitter: Emitter, node: MxnetNode, inputs: Sequence[Value | None]) -> None:
        super().__init__(emitter, node, inputs)
        self.op_type = real_name(node.op_type)
        self.subgraphs = node.subgraphs
        self._signature = signature(node.op_type) or _of_the_caller(node.attributes)
        self._check()

    def _check(self) -> None:
        known, count = self._signature, len(self.inputs)
        unknown = [key for key in self.node.attributes if key not in known.attributes]
        if unknown and known.attributes:  # an operator that has none reads none
            raise Unsupported(f"{self.op_type} with attribute {unknown[0]!r}")
        if not known.variadic and count > len(known.inputs):
            raise FormatError(f"{count} inputs", why=f"{self.op_type} takes {len(known.inputs)} at most")

    # What the node says.

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Value:
        value = super().__getitem__(index)
        if isinstance(value, OpenFill):
            raise Unsupported(
                f"{self.op_type} reads {value.name!r}, whose shape {value.shape} is not known",
                hint="export the model with a fixed batch size",
            )
        return value

    def attr(self, name: str) -> Any:
        """An attribute as given, else MXNet's default."""
        self._read.add(name)
        known = self._signature.attributes.get(name)
        text = None if known is None else self.node.attributes.get(name, known.default)
        if known is None or text is None:
            raise FormatError(f"attribute {name!r} is missing")
        return parsed(name, known.kind, text)

    def has(self, name: str) -> bool:
        """Whether an attribute is written at all."""
        return name in self.node.attributes

    def knows(self, name: str) -> bool:
        """Whether the operator has an attribute of that name."""
        return name in self._signature.attributes

    def dtype_attr(self, name: str = "dtype") -> DType | None:
        text = self.attr(name)
        if text is not None and text not in DTYPES:
            raise FormatError(f"attribute {name!r} is no dtype: {text[:80]!r}")
        return None if text is None else DTYPES[text]

    def required_dtype(self, name: str = "dtype") -> DType:
        dtype = self.dtype_attr(name)
        if dtype is None:
            raise FormatError(f"attribute {name!r} is missing")
        return dtype

    def is_default(self, name: str) -> bool:
        """As MXNet 1.9.1 has it; or no matter of inference."""
        known = self._signature.attributes.get(name)
        if known is None or name in _NO_EFFECT:
            return True
        default = None if known.default is None else parsed(name, known.kind, known.default)
        return bool(parsed(name, known.kind, self.node.attributes[name]) == default)
