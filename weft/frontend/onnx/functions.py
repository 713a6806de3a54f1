"""Functions of a model, and operators that are read as the functions that ONNX defines them by: a model that calls them
comes in; one that has them written out goes out."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import inliner

from ...base.errors import FormatError, Unsupported

_MOST_NODES = 1_000_000
Key = tuple[str, str]
DEFINED: list[Key] = [("ai.onnx.preview", "FlexAttention")]  # by domain and name


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions. How large it becomes is known before any work is done."""
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    if len(bodies) != len(model.functions):
        raise FormatError("two functions of the model have the same name")
    sizes = _sizes(bodies)
    total = sum(sizes.get((node.domain, node.op_type), 1) for node in model.graph.node)
    if total > _MOST_NODES:
        raise Unsupported(f"the functions of the model make {total} nodes, more than {_MOST_NODES}")
    try:
        model = inliner.inline_local_functions(model) if model.functions else model
        if {item.domain for item in model.opset_import} & {domain for domain, _ in DEFINED}:
            model = inliner.inline_selected_functions(model, DEFINED, inline_schema_functions=True)
        return model
    except (RuntimeError, ValueError) as error:
        raise FormatError("the functions of the model make no sense", why=str(error)) from None


def _sizes(bodies: dict[Key, Iterable[onnx.NodeProto]]) -> dict[Key, int]:
    """How many nodes a call of each function becomes; one that calls itself is an error."""
    sizes: dict[Key, int] = {}
    for start in bodies:
        stack = [(start, False)]
        opened: set[Key] = set()
        while stack:
            key, ready = stack.pop()
            calls = [(node.domain, node.op_type) for node in bodies[key]]
            if ready:
                sizes[key] = sum(sizes.get(call, 1) for call in calls)
                opened.discard(key)
            elif key not in sizes:
                if key in opened:
                    raise FormatError(f"function {key[1]!r} of the model calls itself")
                opened.add(key)
                stack.append((key, True))
                stack += [(call, False) for call in calls if call in bodies]
    return sizes
