"""The constant part of a graph comes in with the values of its variables; the values of its outputs
go out. Large ones are computed by native code on all threads, the others by references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.cpu_target import host
from ..base.memory import require
from ..base.shape import is_static, numel
from ..core.graph import Graph
from ..core.interpret import evaluate
from ..core.ir import NodeEntry
from ..runtime.loading import load_executor
from ..runtime.program import Array
from .assemble import assemble, fused_groups
from .backends import backend_of

LARGE_BYTES = 4 << 20  # what numpy takes longer to move than LLVM to compile a kernel


def constant_values(part: Graph, known: Mapping[str, Array]) -> tuple[list[Array], list[bool]]:
    """The values of all outputs, and which of them are new, row-major and start at a cache line."""
    sizes = [_bytes(part, entry) for entry in part.outputs]
    for node in part.indexed.nodes:
        for index in range(node.num_outputs):
            size = _bytes(part, NodeEntry(node, index))
            require(size, "a constant", f"operator {node.op_name}, node {node.name!r}")
    require(sum(sizes), f"a model of {len(sizes)} computed constants")
    has_body = backend_of(host()).lowering.has_body
    large = [size >= LARGE_BYTES and has_body(e.node) for e, size in zip(part.outputs, sizes)]
    values: dict[NodeEntry, Array] = {}
    for native, compute in ((True, _by_kernels), (False, evaluate)):
        entries = [e for e, is_native in zip(part.outputs, large) if is_native is native]
        if entries:
            cut = part.replace(outputs=entries, attrs={}).trimmed()
            values.update(zip(entries, compute(cut, known)))
    return [values[entry] for entry in part.outputs], large


def _bytes(part: Graph, entry: NodeEntry) -> int:
    fact = part.fact(entry)
    if not is_static(fact.shape) or fact.dtype is None:
        return 0
    return numel(fact.shape) * fact.dtype.itemsize


def _by_kernels(part: Graph, known: Mapping[str, Array]) -> Sequence[Array]:
    """The outputs, computed for the machine that compiles, whatever the target is."""
    program = assemble(part, fused_groups(part, host()), {}, host())
    return load_executor(program).run_arrays({spec.name: known[spec.name] for spec in program.inputs})
