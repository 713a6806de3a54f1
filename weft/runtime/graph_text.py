"""What a compiled graph says of its library: its inputs' names, shapes and dtypes, and how many
outputs there are. It comes as a graph or as its JSON, of which only these fields are read."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from ..base.dtype import dtype_name
from ..base.errors import FormatError, GraphError, InvalidType
from .program import Program

WHOSE = "the graph, or its JSON, that weft.compiler.build gave"


class DescribedGraph(Protocol):
    """What is looked at of a graph that is no text; weft's Graph has it."""

    def json(self) -> str: ...


class Described(NamedTuple):
    """An input's shape and dtype are None where the graph does not say them."""

    inputs: dict[str, tuple[tuple[int, ...] | None, str | None]]
    outputs: int


def description(graph: DescribedGraph | str | bytes) -> Described:
    """What a graph says, or an error if it is none."""
    text = graph if isinstance(graph, (str, bytes, bytearray)) else _text(graph)
    try:
        return _described(json.loads(text))
    except RecursionError:
        raise FormatError("this is no compiled graph", why="it is nested too deep") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise FormatError("this is no compiled graph", why=why, hint=f"pass {WHOSE}") from None


def _text(graph: DescribedGraph) -> str:
    try:
        return graph.json()
    except AttributeError:
        kind = type(graph).__name__
        raise InvalidType(f"graph is a {kind}", hint=f"pass {WHOSE}") from None


def _described(data: Any) -> Described:
    nodes, pointers, attrs = data["nodes"], data["node_row_ptr"], data.get("attrs", {})
    shapes, dtypes = (attrs.get(key, [None, None])[1] for key in ("shape", "dltype"))
    inputs = {}
    for number in data["arg_nodes"]:
        entry = pointers[number]
        shape = None if shapes is None else tuple(map(int, shapes[entry]))
        inputs[str(nodes[number]["name"])] = shape, None if dtypes is None else str(dtypes[entry])
    return Described(inputs, len(data["heads"]))


def check_belongs(graph: Described, program: Program) -> None:
    """An error unless the graph is one that the program may have been made from."""
    specs = {spec.name: spec for spec in program.inputs}
    constants = {slot.name for slot in program.plan.slots if slot.role == "constant"}
    strange = sorted(graph.inputs.keys() - specs.keys() - constants)
    if strange or graph.outputs != len(program.outputs):
        raise _stranger(
            f"the library has inputs {sorted({*specs, *constants})[:20]} and "
            f"{len(program.outputs)} outputs, the graph {sorted(graph.inputs)[:20]} and "
            f"{graph.outputs}"
        )
    for name in graph.inputs.keys() & specs.keys():
        (shape, dtype), spec = graph.inputs[name], specs[name]
        if shape not in (None, spec.shape) or dtype not in (None, dtype_name(spec.dtype)):
            raise _stranger(f"the library takes {spec}, the graph gives it {dtype}{shape}")


def _stranger(why: str) -> GraphError:
    return GraphError("the graph and the library do not belong together", why=why)
