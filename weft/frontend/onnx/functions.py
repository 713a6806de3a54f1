"""Functions of a model, and operators that are read as the functions that ONNX defines them by: a model that calls them
comes in; one that has them written out goes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import inliner

from ...base.errors import FormatError, Unsupported

_MOST_NODES = 1_000_000
OPSET = "weft.opset"  # the metadata of a node that is read in another opset than the model's
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
        model = inliner.inline_local_functions(_with_own_opsets(model)) if model.functions else model
        if {item.domain for item in model.opset_import} & {domain for domain, _ in DEFINED}:
            model = inliner.inline_selected_functions(model, DEFINED, inline_schema_functions=True)
        return model
    except (RuntimeError, ValueError) as error:
        raise FormatError("the functions of the model make no sense", why=str(error)) from None


def _with_own_opsets(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model whose functions are all of its opsets, with nodes that know where they are of another: else a function
    would not be inlined."""
    versions = _versions(model.opset_import)
    imports = [_versions(function.opset_import).items() for function in model.functions]
    differing = [{domain: own for domain, own in items if versions.get(domain, own) != own} for items in imports]
    if not any(differing):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for function, own in zip(made.functions, differing):
        pending = list(function.node)
        while pending:
            node = pending.pop()
            if plain_domain(node.domain) in own:
                node.metadata_props.add(key=OPSET, value=str(own[plain_domain(node.domain)]))
            pending += [inner for graph in subgraphs_of(node) for inner in graph.node]
        for item in function.opset_import:
            item.version = versions.get(plain_domain(item.domain), item.version)
    return made


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {plain_domain(item.domain): item.version for item in imports}


def plain_domain(name: str) -> str:
    """ONNX's own domain has two names."""
    return "" if name == "ai.onnx" else name


def node_opset(node: onnx.NodeProto, domain: str, opsets: Mapping[str, int]) -> int:
    """The opset that a node is read in: that of the function it comes from, else the model's."""
    own = next((item.value for item in node.metadata_props if item.key == OPSET), "")
    return int(own) if own.isdecimal() else opsets[domain]


def subgraphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    return [graph for item in node.attribute for graph in ([item.g] if item.HasField("g") else item.graphs)]


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
