"""A graph's groups lowered for a GPU, and run in the interpreter, by single warps as PTX, on memory that is filled with
NaN."""

from __future__ import annotations

import numpy as np
from codegen.cuda.ptx_machine import run_ptx

from weft.base.dtype import as_dtype
from weft.codegen.cuda.compile import CODEGEN
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.lower.cuda.dispatch import LOWERING
from weft.lower.group import Temporary
from weft.passes.fuse import fusible_groups
from weft.te.interpret import run_kernel
from weft.te.tensor_cores.warp_attention import WarpAttention
from weft.te.tensor_cores.warp_product import WarpProduct


def interpreted(symbol, target, given):
    """The output of a graph in float64, and the kernels that it took."""
    graph = Graph(symbol.outputs)
    shapes = {name: array.shape for name, array in given.items()}
    graph = infer(graph, shapes, {name: as_dtype(array.dtype) for name, array in given.items()})
    memory = {}
    for node in graph.indexed.nodes:
        if node.op is None:
            memory[node] = np.array(given[node.name])
    made = []
    for group in fusible_groups(graph, dense=LOWERING.dense):
        made += LOWERING.lower(group, graph.fact, target)

    def array_of(place):
        if isinstance(place, Temporary):
            return memory.setdefault(place, np.full(place.shape, np.nan, place.dtype))
        if place.node not in memory:
            fact = graph.fact(place)
            memory[place.node] = np.full(fact.shape, np.nan, fact.dtype)
        return memory[place.node]

    for kernel, places, _ in made:
        arrays = [array_of(place) for place in places]
        fitting = [a.reshape([int(e.value) for e in b.shape]) for a, b in zip(arrays, kernel.buffers)]
        if isinstance(kernel.body, (WarpProduct, WarpAttention)):
            text = CODEGEN.assemble(CODEGEN.emit(kernel, target), target).decode()
            run_ptx(text, fitting, kernel.body.launch.blocks[0], kernel.body.launch.shared)
        else:
            run_kernel(kernel, fitting)
    return memory[graph.outputs[0].node].astype(np.float64), [lowered.kernel for lowered in made]
