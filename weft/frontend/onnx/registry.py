"""The two tables of the importer: operators that are alike, and converters for the rest.

ALIKE["Relu"] = Alike("relu")                      # the same, attributes renamed at most

@converter("Reshape", since=5)                     # from opset 5 on, until a later one
def reshape(call): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ..building import Alike, alike_rows
from ..emitter import Value
from .alike import SAME
from .call import OnnxCall

Converter = Callable[[OnnxCall], Value | Sequence[Value | None]]
AnyConverter = TypeVar("AnyConverter", bound=Converter)

ALIKE: dict[str, Alike] = {
    **SAME,
    **alike_rows("""
        Ceil ceil
        Floor floor
        Gelu gelu approximate
        MaxRoiPool roi_pool pooled_shape=pooled_size spatial_scale
        Mish mish
        Round round
    """),
}
# What ONNX Runtime writes into ONNX's own domain, in opsets that have no schema of it.
GUESTS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})

_converters: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converter(*op_types: str, since: int = 1, domain: str = "") -> Callable[[AnyConverter], AnyConverter]:
    """Registers a function that turns an OnnxCall into a value, a list of values, or None for absent
    ones; it holds from opset `since` until another one does."""

    def register(function: AnyConverter) -> AnyConverter:
        for op_type in op_types:
            rows = _converters.setdefault((domain, op_type), [])
            rows.append((since, function))
            rows.sort(key=lambda row: row[0])
        return function

    return register


def find(domain: str, op_type: str, opset: int) -> Converter | Alike | None:
    """What converts an operator of an opset."""
    rows = [function for since, function in _converters.get((domain, op_type), ()) if since <= opset]
    if rows:
        return rows[-1]
    return ALIKE.get(op_type) if not domain else None


def supported() -> Iterable[str]:
    """Names of the operators of ONNX's own domain that have a converter."""
    return sorted({name for domain, name in _converters if not domain} | set(ALIKE))
