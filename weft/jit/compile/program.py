"""From a recorded graph to code: in come entries of core's graph with the shapes and dtypes of its variables, out goes
an executor that takes addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.cuda_target import CudaTarget
from ...base.dtype import DType
from ...base.target import Target
from ...compiler.assemble import assemble, fused_groups
from ...compiler.control_flow import compile_parts
from ...compiler.model_source import checked_precision, computing_in, passes_for
from ...compiler.prepare import prepare_typed, typed_graph
from ...core.graph import Graph
from ...core.ir import NodeEntry
from ...core.symbol import Symbol
from ...runtime.cuda.context import platform
from ...runtime.cuda.executor import CudaExecutor
from ...runtime.cuda.workspace import Loaded
from ...runtime.executor import Executor
from ...runtime.loading import load_or_keep
from ...runtime.program import TensorSpec

Array = np.ndarray[Any, Any]
OPT_LEVEL = 3


def executor_of(
    outputs: Sequence[NodeEntry],
    inputs: Mapping[str, tuple[tuple[int, ...], DType]],
    constants: Mapping[str, Array],
    index: int | None = None,
    precision: str = "fp32",
) -> Executor:
    """Code for a graph, for the processor or for the GPU of a number; its inputs are in the order that is given."""
    target: Target = Target.create("cpu") if index is None else CudaTarget.create()
    chosen = checked_precision(precision, target)
    target = computing_in(chosen, target)
    shapes = {name: shape for name, (shape, _) in inputs.items()}
    dtypes = {name: dtype for name, (_, dtype) in inputs.items()}
    graph = typed_graph(Graph(Symbol(outputs).outputs), constants, shapes, dtypes)
    prepared = prepare_typed(graph, constants, OPT_LEVEL, target, passes_for(chosen, target))
    groups = fused_groups(prepared.graph, target, True)
    specs = [TensorSpec(name, *meta) for name, meta in inputs.items()]
    program = assemble(prepared.graph, groups, prepared.constants, target, None, specs)
    compile_parts(program)
    if index is None:
        return load_or_keep(program, None)
    return CudaExecutor(program, None, Loaded.of(program, platform().context(index)))
