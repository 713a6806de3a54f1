"""A model as it is given becomes a source and a typed graph: all that comes before code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..base.dtype import DType, as_dtype
from ..base.errors import InvalidType, InvalidValue, NotFound, Unsupported
from ..base.ndarray import array
from ..base.shape import Dim, Shape, given_shapes, unify
from ..base.target import Target
from ..core.graph import Graph
from ..core.infer import shape_hint
from ..core.ir import Node, NodeEntry, topo_order
from ..core.symbol import Symbol
from ..frontend.about import is_spread, unread_inputs
from ..frontend.emitter import TEXT, TEXTS
from ..frontend.files import from_file, from_memory, is_program
from ..runtime.inputs import as_sequence, as_text
from ..runtime.program import Array
from .backends import backend_of
from .initial_values import initialised
from .kept.models import KeptFile
from .model import CompiledModel, Front, InputSpec, Reader, ReadModel
from .model_source import ModelSource, checked_precision, checked_specialise, computing_in, packed, unpacked
from .mutation import written_variables
from .parts.schedule import Schedule
from .prepare import as_arrays
from .stages import reached

__all__ = ["is_program", "is_spread", "opened", "packed", "source_of", "typed", "unpacked"]


def source_of(
    model: Any,
    *,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    dtype: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    threads: int | None = None,
    precision: str = "fp32",
    opt_level: int = 3,
    specialise: str = "never",
) -> ModelSource:
    """The model as it is read, and how it is to be compiled."""
    if opt_level not in (0, 1, 2, 3):
        raise InvalidValue(f"opt_level {opt_level!r}", why="it is 0, 1, 2 or 3")
    chosen = Target.create(target)
    numbers = checked_precision(precision, chosen)
    chosen = computing_in(numbers, chosen)
    _check_runtime(chosen, threads)
    dtypes = _given_dtypes(dtype)
    symbol, own_params, shapes = _model(model, given_shapes(shape))
    values = {**own_params, **_copies(params)}
    _check_given({**shapes, **dtypes}, symbol, values)
    when = checked_specialise(specialise)
    return ModelSource(symbol, values, shapes, dtypes, chosen, threads, opt_level, when, numbers)


def opened(source: ModelSource) -> CompiledModel:
    """The model read and typed, with no code yet: that is made in its first run, or by `prepare_known`."""
    read = typed(source)
    source, graph = read
    specs = _input_specs(graph, source.params)
    variables = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    kinds = {node.name: node.attrs["__kind__"] for node in variables if "__kind__" in node.attrs}
    facts = [graph.fact(entry) for entry in graph.outputs]
    names = source.symbol.list_output_names()
    outputs = [InputSpec(name, fact.shape, fact.dtype) for name, fact in zip(names, facts)]
    front = Front(
        list(specs.values()),
        outputs,
        frozenset(unread_inputs(source.symbol)) - specs.keys(),
        {name: _READERS.get(kind, _read_sequence) for name, kind in kinds.items()},
    )
    return CompiledModel(front, Schedule(graph, source, list(specs)), lambda: read)


def typed(source: ModelSource) -> ReadModel:
    """The source with all its parameters, and its graph with facts."""
    graph, initial = initialised(Graph(source.symbol.outputs), source.params, source.shapes, source.dtypes)
    source = source._replace(params={**source.params, **initial})
    _check_immutable(graph, source.params)
    return ReadModel(source, graph)


# How inputs that are no arrays are taken.
_READERS: dict[str, Reader] = {TEXT: as_text, TEXTS: partial(as_sequence, is_text=True)}
_read_sequence: Reader = partial(as_sequence, is_text=False)


def _check_runtime(target: Target, threads: int | None) -> None:
    """Raises where nothing makes or runs such code. Code for another machine can be made here, and saved."""
    with suppress(Unsupported):
        backend_of(target).runtime.check(target, threads)


class _Model(NamedTuple):
    symbol: Symbol
    params: dict[str, Array]
    shapes: Mapping[str, Shape]  # that are given, and what the model says of the same inputs


def _model(model: Any, shapes: Mapping[str, tuple[Dim, ...]]) -> _Model:
    if isinstance(model, Symbol):
        return _Model(model, {}, shapes)
    if isinstance(model, (tuple, list)) and len(model) == 2 and isinstance(model[0], Symbol):
        return _Model(model[0], _copies(model[1]), shapes)
    if isinstance(model, KeptFile):
        read: tuple[Any, Any] | None = from_file(model.path, shapes, model.name)
    elif isinstance(model, (str, os.PathLike)):
        read = from_file(Path(model), shapes)
    else:
        read = from_memory(model, shapes)
    if read is None:
        raise InvalidType(
            f"a value of type {type(model).__name__} is no model that weft reads",
            hint="give the path or the bytes of a model file, an onnx.ModelProto, a Symbol, or a (Symbol, params) pair",
        )
    symbol, params = read
    reached("model", from_file, symbol)
    return _Model(symbol, as_arrays(params), _with_hints(symbol, shapes))


def _copies(params: Mapping[str, Any] | None) -> dict[str, Array]:
    """Parameters that nobody else changes: all code of the model reads this one copy."""
    return {name: array(value).numpy() for name, value in as_arrays(params).items()}


def _with_hints(symbol: Symbol, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Given shapes with the numbers that an importer has put on variables; without inputs that no
    operator reads, which importers drop."""
    variables = [node for node in topo_order(symbol.outputs) if node.op is None]
    return {node.name: unify(shapes[node.name], shape_hint(node)) for node in variables if node.name in shapes}


def _given_dtypes(dtypes: Any) -> dict[str, DType]:
    if not isinstance(dtypes, Mapping | None):
        raise InvalidType(
            f"dtypes are given by the names of inputs, not as a {type(dtypes).__name__}", hint='dtype={"x": "float32"}'
        )
    return {name: as_dtype(value) for name, value in (dtypes or {}).items()}


def _check_given(names: Iterable[str], symbol: Symbol, params: Mapping[str, Array]) -> None:
    """What is said about an input must be about one that there is."""
    own = symbol.list_input_names()
    for name in names:
        if name not in own:
            inputs = [known for known in own if known not in params]
            raise NotFound(f"the model has no input {name!r}", why="its inputs: " + ", ".join(inputs))


def _input_specs(graph: Graph, params: Mapping[str, Array]) -> dict[str, InputSpec]:
    specs: dict[str, InputSpec] = {}
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    for node in sorted(nodes, key=_position):
        fact = graph.fact(NodeEntry(node))
        if node.name not in params:
            dtype = None if "__kind__" in node.attrs else fact.dtype
            specs.setdefault(node.name, InputSpec(node.name, fact.shape, dtype))
    return specs


def _position(node: Node) -> int:
    """Where the model file has an input among the others; what says nothing comes behind."""
    text = node.attrs.get("__position__", "")
    return int(text) if text.isdecimal() and len(text) < 10 else 1 << 32


def _check_immutable(graph: Graph, params: Mapping[str, Array]) -> None:
    """A model may change nothing but the states of its random numbers."""
    for node, writers in written_variables(graph).items():
        effects = {writer.op.effect_of(writer.params) for writer in writers if writer.op is not None}
        if node.name in params and effects == {"random"}:
            continue
        raise Unsupported(
            f"the model writes to its variable {node.name!r}",
            why="a compiled model has no state: it gives the same outputs for the same inputs",
            hint="weft.compiler.build and weft.runtime.create keep variables between runs",
        )
