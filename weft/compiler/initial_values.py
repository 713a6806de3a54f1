"""Variables made with `init` get their values: arrays as they are, symbols by running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.cpu_target import host
from ..base.dtype import FLOAT32, DType, as_dtype
from ..base.ndarray import NDArray, array
from ..base.shape import Shape, is_static
from ..core.graph import Graph
from ..core.graph_attrs import from_nnvm_shape
from ..core.ir import NodeEntry
from ..core.symbol import Group, Symbol, variable_inits
from ..runtime.graph_module import CompiledLibrary, create
from ..runtime.program import Array, TensorSpec
from .assemble import assemble, fused_groups
from .compiled_graph import compiled_graph
from .prepare import as_arrays, prepare_typed, typed_graph


def initialised(
    graph: Graph,
    params: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, DType],
    default: DType = FLOAT32,
) -> tuple[Graph, dict[str, Array]]:
    """The typed graph, and values of its variables that have an `init` and no parameter."""
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    waiting = {n.name: n.params.init for n in nodes if n.params.init is not None}
    waiting = {name: init for name, init in waiting.items() if name not in params}
    arrays = {name: init for name, init in waiting.items() if isinstance(init, np.ndarray)}
    all_shapes = {**{name: init.shape for name, init in arrays.items()}, **shapes}
    all_dtypes = {**{name: init.dtype for name, init in arrays.items()}, **dtypes}
    graph = typed_graph(graph, params, all_shapes, all_dtypes, default)
    if not waiting:
        return graph, {}
    known = {spec.name: spec for spec in static_inputs(graph)}
    exact: dict[str, Shape] = {name: spec.extents for name, spec in known.items()}
    made = as_arrays(_values(waiting, exact, {name: s.dtype for name, s in known.items()}))
    return typed_graph(graph, made, {}, {}, default), made


def initialize_variables(ishape: dict[str, Sequence[int]], idtype: Mapping[str, Any] | str) -> dict[str, NDArray]:
    """Values of all variables that were made with `init` since this was last asked, and live.
    Their shapes are added to `ishape`, which is also what symbols among them are given."""
    waiting = dict(variable_inits)
    shapes = {name: from_nnvm_shape(list(dims)) for name, dims in ishape.items()}
    values = _values(waiting, shapes, idtype)
    variable_inits.clear()
    ishape.update({name: list(value.shape) for name, value in values.items()})
    return values


def _values(
    waiting: Mapping[str, Any], shapes: Mapping[str, Shape], idtype: Mapping[str, Any] | str
) -> dict[str, NDArray]:
    values = {n: array(init) for n, init in waiting.items() if isinstance(init, np.ndarray)}
    symbols = {n: init for n, init in waiting.items() if isinstance(init, Symbol)}
    if symbols:
        group = Group(list(symbols.values()))
        names = set(group.list_input_names())
        dtypes = dict.fromkeys(names, idtype) if isinstance(idtype, str) else idtype
        # Only shapes and dtypes of what they are made from are meant to matter.
        graph = typed_graph(
            Graph(group.outputs),
            {},
            {n: shapes[n] for n in names & shapes.keys()},
            {n: as_dtype(dtypes[n]) for n in names & dtypes.keys()},
        )
        dummies = {s.name: np.zeros(s.extents, s.dtype) for s in static_inputs(graph)}
        values.update(zip(symbols, run_graph(graph, dummies)))
    return values


def static_inputs(graph: Graph) -> list[TensorSpec]:
    """The inputs whose shape and dtype are known; others are missed where they are needed."""
    specs: dict[str, TensorSpec] = {}
    for number in graph.indexed.variables:
        node = graph.indexed.nodes[number]
        shape, dtype, _ = graph.fact(NodeEntry(node))
        if is_static(shape) and dtype is not None:
            specs.setdefault(node.name, TensorSpec(node.name, shape, dtype))
    return list(specs.values())


def run_graph(graph: Graph | Symbol, params: Mapping[str, Any]) -> list[NDArray]:
    """The outputs of a graph whose inputs are all given, run on this machine."""
    given = as_arrays(params)
    typed = typed_graph(graph, given, {}, {})
    made, values = prepare_typed(typed, given, 0, host())
    groups = fused_groups(made, host())
    program = assemble(made, groups, {}, host())
    module = create(compiled_graph(made, groups), CompiledLibrary(program))
    module.run(**values)
    return [module.get_output(index) for index in range(module.get_num_outputs())]
