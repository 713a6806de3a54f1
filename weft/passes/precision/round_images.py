"""RoundImages: convolutions with constant filters read images and filters of bfloat16, and sum in float32.

    conv2d(x, w, b) = conv2d(cast(x), cast(w), out_dtype=float32) + b

An image is rounded where it is computed, before it is joined to others, and everything else that reads it reads
what it is rounded to: between kernels it has 16 bits. Convolutions in groups, and images of open sizes, stay float32.
The pass runs when a precision is asked for by name, on targets that multiply bfloat16 faster than float32.
"""

from __future__ import annotations

from math import prod

from ...base.dtype import BFLOAT16, FLOAT32, dtype_name
from ...base.shape import is_static
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.passes import register_pass
from ...core.walk import Walker, rewrite
from ..fold_constants import constant_nodes
from .narrow_products import CONSTANT_NAMES, FEWEST

JOINS = "concatenate"  # gives elements as they are: what is rounded before it is rounded behind


@register_pass("RoundImages", requires=("shape", "dtype"))
def round_images(graph: Graph) -> Graph:
    """Images and filters of convolutions in bfloat16."""
    constants = constant_nodes(graph, graph.attr(CONSTANT_NAMES) or ())
    chosen = {node for node in graph.indexed.nodes if _suits(graph, node, constants)}
    return rewrite(graph, _Rounding(graph, chosen).rule) if chosen else graph


def _suits(graph: Graph, node: Node, constants: frozenset[Node] | set[Node]) -> bool:
    if node.op_name != "conv2d" or node.control_deps or node.inputs[1].node not in constants:
        return False
    p, facts = node.params, [graph.fact(entry) for entry in node.inputs]
    plain = p.layout == "NCHW" and p.kernel_layout == "OIHW" and p.groups == 1 and p.out_dtype == "same"
    floats = all(fact.dtype == FLOAT32 and is_static(fact.shape) for fact in facts)
    return plain and floats and prod(facts[1].shape or ()) >= FEWEST  # type: ignore[arg-type]


class _Rounding:
    def __init__(self, graph: Graph, chosen: set[Node]) -> None:
        self.chosen, self.made = chosen, dict[NodeEntry, NodeEntry]()
        kept = set(graph.outputs)
        self.shared: set[NodeEntry] = set()  # entries that everything reads rounded
        self.moved: set[Node] = set()  # nodes that read such alone
        waiting = [node.inputs[0] for node in chosen]
        while waiting:
            entry = waiting.pop()
            node = entry.node
            if entry in self.shared or entry in kept or node.op is None:
                continue
            self.shared.add(entry)
            if node.op_name == JOINS and not node.control_deps and node.num_outputs == 1:
                self.moved.add(node)
                waiting.extend(node.inputs)

    def rule(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | list[NodeEntry] | None:
        if node in self.chosen:
            data, weight = (self._rounded(walker, *pair) for pair in zip(node.inputs[:2], inputs))
            attrs = {**node.attrs, "out_dtype": dtype_name(FLOAT32), "use_bias": False}
            name = f"{node.name}_sums" if inputs[2:] else node.name
            sums = walker.make("conv2d", [data, weight], attrs, name)
            if not inputs[2:]:
                return sums
            bias = walker.make("reshape", [inputs[2]], {"shape": (node.params.channels, 1, 1)})
            return walker.make("broadcast_add", [sums, bias], None, node.name)
        if node in self.moved:
            parts = [self._rounded(walker, *pair) for pair in zip(node.inputs, inputs)]
            made = walker.make(node.op_name, parts, node.attrs, f"{node.name}_rounded")
            self.made[NodeEntry(node)] = made
            return walker.make("cast", [made], {"dtype": FLOAT32}, node.name)
        fresh = [self._read(walker, *pair) for pair in zip(node.inputs, inputs)]
        if fresh == inputs or node.control_deps:
            return None
        copied = walker.copy(node, fresh, [])
        return [NodeEntry(copied, index) for index in range(copied.num_outputs)]

    def _rounded(self, walker: Walker, old: NodeEntry, new: NodeEntry) -> NodeEntry:
        if old not in self.made:
            name = f"{old.node.output_name(old.index)}_rounded"
            self.made[old] = walker.make("cast", [new], {"dtype": BFLOAT16}, name)
        return self.made[old]

    def _read(self, walker: Walker, old: NodeEntry, new: NodeEntry) -> NodeEntry:
        """What other operators than convolutions read."""
        if old not in self.shared or old.node in self.moved:
            return new
        return walker.make("cast", [self._rounded(walker, old, new)], {"dtype": FLOAT32})
