"""A symbol and its parameters become a typed, optimised graph with constants: all that happens
before code is made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import DTYPES, FLOAT32, NAMED_DTYPES, DType
from ..base.errors import DTypeError, GraphError, InvalidType, Unsupported
from ..base.machine import usable_cores
from ..base.ndarray import NDArray, own_copy
from ..base.shape import Shape, is_static, open_shapes
from ..base.stages import is_watched
from ..base.target import Target
from ..core.graph import Graph
from ..core.infer import infer, unknown_entries
from ..core.ir import NodeEntry
from ..core.op import Op
from ..core.passes import apply_passes
from ..core.symbol import Symbol
from ..core.symbolic import names_in
from ..passes.fold_constants import constant_part
from ..passes.pipeline import optimize, pass_enabled
from ..runtime.program import Array
from . import graph_functions as graph_functions  # a pass of every graph, whoever made it
from .backends import backend_of
from .constants import LateConstants, SharedConstants, constant_values
from .mutation import ordered
from .stages import reached


class Prepared(NamedTuple):
    graph: Graph
    constants: Mapping[str, Array]

    def __repr__(self) -> str:
        return f"Prepared({self.graph!r} with {len(self.constants)} constants)"


def typed_graph(
    symbol: Symbol | Graph,
    params: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, DType],
    default_dtype: DType = FLOAT32,
) -> Graph:
    """The graph with a fact about every entry; inputs of unknown dtype have the default."""
    if not isinstance(symbol, (Graph, Symbol)):
        raise InvalidType(f"expected a Symbol or a Graph, not {type(symbol).__name__}")
    graph = symbol if isinstance(symbol, Graph) else Graph(symbol.outputs)
    names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    used = {name: value for name, value in params.items() if name in names}
    all_shapes = {**{name: value.shape for name, value in used.items()}, **shapes}
    all_dtypes = {**{name: value.dtype for name, value in used.items()}, **dtypes}
    graph = infer(graph, all_shapes, all_dtypes)
    open_names = _untyped(graph)
    try:
        return infer(graph, {}, dict.fromkeys(open_names, default_dtype)) if open_names else graph
    except DTypeError:  # one tells of another, so one at a time
        while open_names := _untyped(graph):
            graph = infer(graph, {}, {open_names[0]: default_dtype})
        return graph


def _untyped(graph: Graph) -> list[str]:
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    return [node.name for node in nodes if graph.fact(NodeEntry(node)).dtype is None]


def prepare(
    symbol: Symbol | Graph,
    params: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, DType],
    opt_level: int,
    target: Target,
) -> Prepared:
    """Types the graph, runs the passes of a level, computes what depends on parameters alone."""
    return prepare_typed(typed_graph(symbol, params, shapes, dtypes), params, opt_level, target)


def prepare_typed(
    graph: Graph,
    params: Mapping[str, Array],
    opt_level: int,
    target: Target,
    add_pass: tuple[str, ...] = (),
    shared: SharedConstants | None = None,
    bound: bool = True,
    late: bool = False,
    spent: bool = False,
) -> Prepared:
    """The same for a graph that has its facts; unless they are `bound`, they may be about extents by name. With
    `shared`, nobody changes the parameters, and programs of the model share them and what is computed from them. With
    `late`, constants may still be computed in a thread: who asks for one waits for it. Parameters that are `spent`
    belong to this call, which empties the dict: each goes as soon as what follows from it is computed.

    What is quantised is fused before its weights become floats. Constants are computed twice: first those of the model,
    so that passes see weights and not what makes them; then those that the passes made, such as packed weights.
    """
    if bound:
        _check_bound(graph)
    _check_known(graph)
    names = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    constants = {name: value for name, value in params.items() if name in names}
    if spent:
        assert isinstance(params, dict)
        params.clear()
    own = set(constants) if shared is not None or spent else set()
    fold = opt_level >= 2 or "PrecomputePrune" in add_pass
    if pass_enabled("FuseQuantised", opt_level, add_pass):
        graph = apply_passes(graph, ("FuseQuantised",))
    if fold:
        graph, constants, own = folded(graph, constants, own, shared, spent)
    graph = optimize(graph, opt_level, add_pass, backend_of(target).layout_rules_for(target), constants)
    reached("graph", optimize, graph)
    main, part = constant_part(graph, constants) if fold else (graph, None)
    _check_known(main)
    compute = partial(_kept, main, part, constants, own, shared, spent)
    if late and part is not None and usable_cores() > 1 and not is_watched():
        return Prepared(ordered(main), LateConstants(_constant_names(main, part, constants), compute))
    made = Prepared(ordered(main), compute())
    reached("prepared", prepare_typed, made, detail=True)
    return made


def _constant_names(graph: Graph, part: Graph | None, constants: Mapping[str, Array]) -> list[str]:
    made = () if part is None else part.attr("output_names")
    known = {*constants, *made}
    names = dict.fromkeys(graph.indexed.nodes[number].name for number in graph.indexed.variables)
    return [name for name in names if name in known]


def _kept(
    graph: Graph,
    part: Graph | None,
    constants: dict[str, Array],
    own: Collection[str],
    shared: SharedConstants | None,
    spent: bool,
) -> dict[str, Array]:
    """The constants of a graph, each a copy that nobody else changes."""
    _, values, fresh = _computed(graph, part, constants, own, shared, spent)
    return {name: value if name in fresh else own_copy(value) for name, value in values.items()}


class Folded(NamedTuple):
    """A graph with its constant part computed; `own`: constants that need not be copied."""

    graph: Graph
    constants: dict[str, Array]
    own: set[str]

    def __repr__(self) -> str:
        return f"Folded({self.graph!r} with {len(self.constants)} constants)"


def folded(
    graph: Graph,
    constants: dict[str, Array],
    own: Collection[str],
    shared: SharedConstants | None = None,
    spent: bool = False,
) -> Folded:
    """Computes the constant part of a graph. The dict of constants that are `spent` loses what only that part reads."""
    return _computed(*constant_part(graph, constants), constants, own, shared, spent)


def _computed(
    graph: Graph,
    part: Graph | None,
    constants: dict[str, Array],
    own: Collection[str],
    shared: SharedConstants | None,
    spent: bool,
) -> Folded:
    """The same for a graph without its constant part, and that."""
    known, fresh = constants if spent else dict(constants), set(own)
    wanted = _constant_names(graph, part, constants)
    if part is not None:
        names = part.attr("output_names")
        if shared is not None:
            values = shared.values(part, known)
        else:
            values = constant_values(part, known, known.keys() - wanted if spent else ())
        known.update(zip(names, values))
        fresh.update(names)
    result = Folded(graph, {name: known[name] for name in wanted}, fresh)
    reached("constants", folded, result, detail=True)
    return result


def _check_bound(graph: Graph) -> None:
    names = sorted(names_in(graph.indexed.nodes))
    if names:
        raise Unsupported(
            f"attributes hold extents by name: {', '.join(names)}",
            why="the model was imported with open shapes",
            hint="import it with shape={...}, or weft.compile((symbol, params)), which binds the names to numbers",
        )


def _check_known(graph: Graph) -> None:
    unknown = unknown_entries(graph)
    if not unknown:
        return
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    shapes = {node.name: graph.fact(NodeEntry(node)).shape for node in nodes}
    first = unknown[0]
    _check_rule(first, graph)
    what = f"the shape or dtype of {first.node.output_name(first.index)!r} is not known"
    why = f"{len(unknown)} entries cannot be inferred from what is given"
    if all(is_static(shape) for shape in shapes.values()):
        raise GraphError(what, why=why, where=f"operator {first.node.op_name}")
    raise open_shapes(what, shapes, why=why)


def _check_rule(entry: NodeEntry, graph: Graph) -> None:
    """An error if the shape is not known because the operator cannot tell it."""
    op = entry.node.op
    if op is not None and op not in Op.shape and graph.fact(entry).shape is None:
        raise GraphError(
            f"operator {op.name} has no shape rule",
            where=f"node {entry.node.name!r}",
            why="so the shape of what it gives cannot be known",
            hint=f'Op.register("{op.name}").shape = f(params, ins, outs) -> (ins, outs)',
        )


def as_arrays(params: Mapping[str, Any] | None) -> dict[str, Array]:
    """Parameters as numpy arrays: of weft's or MXNet's, or of what numpy reads itself."""
    if not isinstance(params, Mapping | None):
        raise InvalidType(f"parameters are given as a dict from name to array, not as a {type(params).__name__}")
    return {name: _as_array(name, value) for name, value in (params or {}).items()}


def _as_array(name: str, value: Any) -> Array:
    """Of this machine's byte order."""
    given = _array(value)
    dtype = given.dtype.newbyteorder("=")
    if dtype not in NAMED_DTYPES.values():
        raise DTypeError(f"parameter {name!r} is of {given.dtype}", why="weft has " + ", ".join(DTYPES))
    return given.astype(dtype, copy=False)


def _array(value: Any) -> Array:
    if isinstance(value, NDArray):
        return value.numpy()
    return np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
