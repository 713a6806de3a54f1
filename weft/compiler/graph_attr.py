"""What is said about the inputs of a graph, as the graph attributes that passes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.dtype import CODE_OF, as_dtype, dtype_code
from ..base.errors import InvalidType
from ..base.layout import UNDEFINED, Layout
from ..core.graph import Graph

DTYPE_TO_TCODE: dict[str, int] = {"default": -1, **CODE_OF}
TCODE_TO_DTYPE: dict[int, str | None] = {-1: None, **{c: name for name, c in CODE_OF.items()}}


__all__ = ["set_dtype_inputs", "set_layout_inputs", "set_shape_inputs"]


def __dir__() -> list[str]:
    return list(__all__)


def set_shape_inputs(g: Graph, shape: Mapping[str, Sequence[int]]) -> Graph:
    """Sets `shape_inputs`, in place: a shape for each input, () where none is given."""
    shapes = [list(shape.get(name, ())) for name in g.index.input_names]
    g._set_json_attr("shape_inputs", shapes, "list_shape")
    return g


def set_dtype_inputs(g: Graph, dtype: Mapping[str, Any] | str) -> Graph:
    """Sets `dtype_inputs`, in place: one dtype for all inputs, or one for each that is named."""
    names = g.index.input_names
    if isinstance(dtype, Mapping):
        codes = [dtype_code(as_dtype(dtype[name])) if name in dtype else -1 for name in names]
    else:
        codes = [dtype_code(as_dtype(dtype))] * len(names)
    g._set_json_attr("dtype_inputs", codes, "list_int")
    return g


def set_layout_inputs(g: Graph, layout: Mapping[str, str] | str | None) -> Graph:
    """Sets `layout_inputs`, in place; a str is the layout of the first input.

    Where nothing is given, what was inferred before stays.
    """
    names = g.index.input_names
    if isinstance(layout, str):
        layout = {names[0]: layout} if names else {}
    if not isinstance(layout, Mapping) and layout is not None:
        raise InvalidType(f"layout must be a str or a dict, not {type(layout).__name__}")
    known = {g.indexed.nodes[i].name: i for i in g.indexed.variables}
    values = [_layout_of(g, name, known[name], layout or {}) for name in names]
    g._set_json_attr("layout_inputs", values, "list_layout")
    return g


def _layout_of(g: Graph, name: str, number: int, given: Mapping[str, str]) -> str:
    if given.get(name, UNDEFINED) != UNDEFINED:
        return Layout(given[name]).name
    return g.node_facts(g.indexed.nodes[number])[0].layout.name
