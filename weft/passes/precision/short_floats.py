"""ComputeInFloat16 and ComputeInBfloat16: a float32 graph becomes one of 16-bit floats, between the same inputs and
outputs.

    f(x, w) = cast(f(cast(x), cast(w)))

What depends on constants alone is computed in float32 and rounded once; operators that take no such floats, and those
that give no floats (comparisons, casts to integers), read float32. The pass runs when a precision is asked for by name.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...base.dtype import BFLOAT16, FLOAT16, FLOAT32, DType, dtype_name
from ...base.errors import DTypeError, Unsupported
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite
from ..fold_constants import constant_nodes
from .narrow_products import CONSTANT_NAMES

LARGEST_FLOAT16 = 65504.0  # constants beyond it, such as masks of float32's least number, become this and not infinite


def _computed_in(graph: Graph, dtype: DType) -> Graph:
    constants = constant_nodes(graph, graph.attr(CONSTANT_NAMES) or ())
    casts: dict[tuple[NodeEntry, DType], NodeEntry] = {}

    def cast(walker: Walker, entry: NodeEntry, wanted: DType) -> NodeEntry:
        """An entry of float32 or of the short floats as the other."""
        if walker.fact(entry).dtype not in (FLOAT32, dtype) or walker.fact(entry).dtype == wanted:
            return entry
        if (entry, wanted) not in casts:
            source = entry
            if wanted == FLOAT16 and entry.node in constants:
                source = walker.make("clip", [entry], {"a_min": -LARGEST_FLOAT16, "a_max": LARGEST_FLOAT16})
            name = f"{entry.node.name}_{entry.index}_{dtype_name(wanted)}"
            casts[entry, wanted] = walker.make("cast", [source], {"dtype": wanted}, name)
        return casts[entry, wanted]

    def shorten(walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        if node.op is None or node in constants:
            return None
        if node.control_deps:
            raise Unsupported(
                f"{dtype_name(dtype)} in a model that writes to its variables",
                where=f"node {node.name!r}",
                hint='precision="fp32"',
            )
        floats = any(graph.fact(NodeEntry(node, i)).dtype == FLOAT32 for i in range(node.num_outputs))
        made = None
        if floats and not node.subgraphs:
            with suppress(DTypeError):  # of operators that take no such floats
                made = walker.copy(node, [cast(walker, entry, dtype) for entry in inputs], ())
        made = made or walker.copy(node, [cast(walker, entry, FLOAT32) for entry in inputs], ())
        return [NodeEntry(made, index) for index in range(node.num_outputs)]

    made = rewrite(graph, shorten)
    walker = Walker(made)
    pairs = zip(graph.outputs, made.outputs)
    outputs = [cast(walker, new, FLOAT32) if graph.fact(old).dtype == FLOAT32 else new for old, new in pairs]
    return made.replace(
        outputs=outputs, facts={**made.facts, **walker.facts}, sources={**made.sources, **walker.sources}
    )


compute_in_float16 = register_pass("ComputeInFloat16", requires=("shape", "dtype"))(
    partial(_computed_in, dtype=FLOAT16)
)
compute_in_bfloat16 = register_pass("ComputeInBfloat16", requires=("shape", "dtype"))(
    partial(_computed_in, dtype=BFLOAT16)
)
