"""Groups of a graph whose dimensions have names, lowered for a GPU: sizes are scalars of the kernels."""

from __future__ import annotations

from dataclasses import replace

from weft.base.dtype import as_dtype
from weft.compiler.open.binding import OpenSizes
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.lower.cuda.dispatch import LOWERING
from weft.passes.fuse import fusible_groups


def open_kernels(symbol, shapes, values, target, dtype="float16"):
    """The kernels of all groups, made at sizes of these values, and the sizes."""
    graph = infer(Graph(symbol.outputs), shapes, dict.fromkeys(shapes, as_dtype(dtype)))
    sizes = OpenSizes(values)
    graph = sizes.with_facts(sizes.with_params(graph))
    kernels = []
    for group in fusible_groups(graph, dense=LOWERING.dense):
        kernels += [made.kernel for made in LOWERING.lower(group, graph.fact, target)]
    return [replace(kernel, scalars=tuple(sizes.trace.arguments)) for kernel in kernels], sizes


def table_of(sizes):
    """All that was asked about sizes."""
    return sizes.trace.table()
