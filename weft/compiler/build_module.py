"""`build`: a graph in; out go the compiled graph, its library and its parameters.

Unlike `compile`, parameters stay inputs: a module is given them, and may be given others later.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.cpu_target import host
from ..base.dtype import FLOAT32, DType, as_dtype, dtype_name
from ..base.errors import InvalidType, InvalidValue
from ..base.ndarray import NDArray, array
from ..base.param_dict import load_param_dict, save_param_dict
from ..base.shape import Shape
from ..base.target import Target
from ..core.graph import Graph
from ..core.graph_attrs import from_nnvm_shape
from ..core.infer import check_names, infer
from ..core.symbol import Symbol
from ..passes import pipeline
from ..passes.fold_constants import constant_part
from ..runtime.graph_module import CompiledLibrary
from ..runtime.program import Array
from .assemble import assemble, fused_groups
from .backends import backend_of
from .build_settings import BuildConfig, build_config
from .compiled_graph import compiled_graph
from .graph_attr import set_layout_inputs
from .initial_values import initialised, initialize_variables, run_graph, static_inputs
from .prepare import as_arrays, prepare_typed, typed_graph

__all__ = [
    "BuildConfig",
    "build",
    "build_config",
    "initialize_variables",
    "load_param_dict",
    "optimize",
    "precompute_prune",
    "save_param_dict",
]


def __dir__() -> list[str]:
    return list(__all__)


_run_graph = run_graph  # NNVM's name
Params = Mapping[str, Any]
DTypes = str | Mapping[str, Any]
Layouts = str | Mapping[str, str] | None


def build(
    graph: Graph | Symbol,
    target: str | Target | None = "llvm",
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: DTypes = "float32",
    params: Params | None = None,
    target_host: str | Target | None = None,
    layout: Layouts = None,
) -> tuple[Graph, CompiledLibrary, dict[str, NDArray] | None]:
    """Compiles a graph. `weft.runtime.create` runs the result, and starts with the parameters.

    `shape` says what is not inferred, by input name; `dtype` one dtype for the inputs that have no
    other, or one by name; `layout` that of the first input, or one by name. `build_config` says
    how much is optimised.

    >>> import weft
    >>> x = weft.symbol.Variable("x")
    >>> graph, lib, params = build(weft.symbol.exp(x) + 1, "llvm", {"x": (2,)})
    >>> m = weft.runtime.create(graph, lib, weft.cpu(0))
    >>> m.run(x=np.zeros(2, "float32"))
    >>> m.get_output(0).asnumpy()
    array([2., 2.], dtype=float32)
    """
    if target is None:
        raise InvalidValue("Target is not set", hint='pass target="llvm"')
    chosen = Target.create(target)
    if target_host is not None:
        Target.create(target_host)
    given = as_arrays(params)
    shapes, dtypes, default = _checked(shape, dtype, given)
    source = _with_layouts(_graph(graph), layout)
    typed, initial = initialised(source, given, shapes, dtypes, default)
    inputs = [spec for spec in static_inputs(typed) if spec.name not in given]
    start = time.perf_counter()
    settings = BuildConfig.current()
    made, values = prepare_typed(typed, given, settings.opt_level, chosen, tuple(settings.added))
    groups = fused_groups(made, chosen, settings.pass_enabled("OpFusion"))
    # Without parameters nobody would set what was computed; so the program holds it.
    program = assemble(made, groups, {} if given else values, chosen, None, inputs)
    program.facts["total_seconds"] = time.perf_counter() - start
    kept = {**(values if given else {}), **initial}
    returned = {name: array(value) for name, value in kept.items()}
    library = CompiledLibrary(program, returned)
    return (compiled_graph(made, groups), library, returned if params is not None or initial else None)


def _graph(graph: Graph | Symbol) -> Graph:
    if isinstance(graph, Graph):
        return graph
    if not isinstance(graph, Symbol):
        raise InvalidType(f"a {type(graph).__name__} is no graph", hint="pass a Symbol or a Graph")
    return Graph(graph.outputs)


def _checked(shape: Any, dtype: Any, params: Mapping[str, Array]) -> tuple[dict[str, Shape], dict[str, DType], DType]:
    """Shapes and dtypes by name, and the dtype of inputs that have no other."""
    shapes = {name: _shape(name, dims) for name, dims in _mapping("shape", shape).items()}
    shapes = {name: dims for name, dims in shapes.items() if dims is not None}
    if not isinstance(dtype, (str, np.dtype, type)):
        named = {name: as_dtype(value) for name, value in _mapping("dtype", dtype).items()}
        return shapes, named, FLOAT32
    default = as_dtype(dtype)
    for name, value in params.items():
        if value.shape and value.dtype != default:
            raise InvalidValue(
                f"{name}: dtype not expected {dtype_name(default)} vs {dtype_name(value.dtype)}",
                hint="pass dtype as a dict from name to dtype",
            )
    return shapes, {}, default


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidType(f"require {what} to be dict, not {type(value).__name__}")
    return value


def _shape(name: str, dims: Any) -> Shape:
    """A shape in which 0 stands for unknown, as everywhere in NNVM's interface."""
    try:
        if isinstance(dims, str):
            raise TypeError
        return from_nnvm_shape([operator.index(dim) for dim in dims])
    except TypeError:
        raise InvalidType(
            f"shape value must be Integer types iterator, not {dims!r}", where=f"input {name!r}"
        ) from None


def _with_layouts(graph: Graph, layout: Layouts) -> Graph:
    if layout is None:
        return graph
    if not isinstance(layout, (str, Mapping)):
        raise InvalidValue(f"Input layout must be str or dict, not {type(layout).__name__}")
    if not isinstance(layout, str):
        check_names(graph, layout)
    return set_layout_inputs(graph.replace(), layout).apply("CorrectLayout").replace(attrs={})


def optimize(
    graph: Graph | Symbol, shape: Mapping[str, Sequence[int]], dtype: DTypes = "float32", layout: Layouts = None
) -> Graph:
    """The graph after the passes that the current `build_config` enables, in layouts that this machine likes."""
    shapes, dtypes, default = _checked(shape, dtype, {})
    typed = typed_graph(_with_layouts(_graph(graph), layout), {}, shapes, dtypes, default)
    settings = BuildConfig.current()
    rules = backend_of(host()).layout_rules_for(host())
    return pipeline.optimize(typed, settings.opt_level, settings.added, rules)


def precompute_prune(graph: Graph | Symbol, params: Params) -> tuple[Graph, dict[str, NDArray]]:
    """The graph without what depends on parameters alone, and the parameters it has instead."""
    given = as_arrays(params)
    source = _graph(graph)
    main, part = constant_part(infer_from(source, given), given)
    if part is None:
        return source, {name: array(value) for name, value in given.items()}
    known: dict[str, Any] = dict(given)
    needed = part.symbol.list_input_names()
    made = run_graph(part.replace(attrs={}), {name: given[name] for name in needed})
    known.update(zip(part.attr("output_names"), made))
    names = {main.indexed.nodes[number].name for number in main.indexed.variables}
    return main, {n: array(value) for n, value in known.items() if n in names}


def infer_from(graph: Graph, params: Mapping[str, Array]) -> Graph:
    """The graph with what the parameters' shapes and dtypes tell."""
    names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    used = {name: value for name, value in params.items() if name in names}
    return infer(graph, {n: v.shape for n, v in used.items()}, {n: v.dtype for n, v in used.items()})
