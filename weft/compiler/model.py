"""`compile`: a model in, something to call out. Shapes that are left open are compiled when they
are first seen, and kept."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..base.dtype import DType, as_dtype, dtype_name
from ..base.errors import InvalidType, InvalidValue, RunError, ShapeError, Unsupported
from ..base.shape import Dim, Shape, is_static, show
from ..base.target import Target, host
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.symbol import Symbol
from ..frontend.files import from_file
from ..passes.fuse import fusible_groups
from ..runtime.artifact import save_program
from ..runtime.compatible import check_target
from ..runtime.executor import Executor
from ..runtime.inputs import as_input, by_name, check_names
from ..runtime.pool import thread_count
from ..runtime.program import Array, Program, TensorSpec
from ..runtime.report import Report, report_of
from .assemble import assemble
from .control_flow import compile_parts
from .initial_values import initialised
from .mutation import written_variables
from .prepare import as_arrays, prepare

MAX_SPECIALISATIONS = 16
PRECISIONS = ("fp32",)

Progress = Callable[[int, int], None]
Shapes = tuple[tuple[int, ...], ...]  # of all inputs, in order


class InputSpec(NamedTuple):
    """What an input must be: None and names in the shape stand for any extent."""

    name: str
    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}: {dtype_name(self.dtype)}{show(self.shape)}"


def compile(
    model: Any,
    *,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    dtype: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    target: str | Target = "cpu",
    threads: int | None = None,
    precision: str = "fp32",
    opt_level: int = 3,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compiles a model: a Symbol, a (Symbol, params) pair, or the path of a model file.

    Where all shapes are known, code is made now; otherwise for each new set of input shapes, when
    it is first run. `progress(done, total)` is called as kernels are made.

    >>> import numpy as np
    >>> import weft
    >>> x = weft.symbol.Variable("x", shape=(2, 2))
    >>> m = weft.compile(weft.symbol.relu(x))
    >>> m(np.array([[-1, 2], [3, -4]], "float32"))[0]
    array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    if precision not in PRECISIONS:
        raise InvalidValue(
            f"precision {precision!r}", why="weft computes in " + ", ".join(PRECISIONS)
        )
    if opt_level not in (0, 1, 2, 3):
        raise InvalidValue(f"opt_level {opt_level!r}", why="it is 0, 1, 2 or 3")
    if threads is not None:
        thread_count(threads)
    chosen = Target.create(target) if target != "cpu" else host()
    check_target(str(chosen))
    symbol, own_params = _model(model, shape)
    made = CompiledModel(
        symbol,
        {**own_params, **as_arrays(params)},
        {name: tuple(dims) for name, dims in (shape or {}).items()},
        {name: as_dtype(value) for name, value in (dtype or {}).items()},
        chosen,
        threads,
        opt_level,
    )
    made.prepare_known(progress)
    return made


def _model(model: Any, shape: Any) -> tuple[Symbol, dict[str, Array]]:
    if isinstance(model, Symbol):
        return model, {}
    if isinstance(model, (str, os.PathLike)):
        symbol, params = from_file(Path(model), shape)
        return symbol, as_arrays(params)
    if isinstance(model, (tuple, list)) and len(model) == 2 and isinstance(model[0], Symbol):
        return model[0], as_arrays(model[1])
    raise InvalidType(
        f"a {type(model).__name__} is no model",
        hint="give a Symbol, a (Symbol, params) pair, or the path of a model file",
    )


class CompiledModel:
    """A model ready to run. May be called from many threads at once."""

    def __init__(
        self,
        symbol: Symbol,
        params: dict[str, Array],
        shapes: dict[str, Shape],
        dtypes: dict[str, DType],
        target: Target,
        threads: int | None,
        opt_level: int,
    ) -> None:
        self._symbol = symbol
        self._target = target
        self._threads = threads
        self._opt_level = opt_level
        graph, initial = initialised(Graph(symbol.outputs), params, shapes, dtypes)
        params = {**params, **initial}
        _check_immutable(graph)
        self._graph = graph
        self._params = params
        self._specs: dict[str, InputSpec] = _input_specs(graph, params)
        self.inputs: list[InputSpec] = list(self._specs.values())
        self.outputs: list[str] = symbol.list_output_names()
        self._executors: OrderedDict[Shapes, Executor] = OrderedDict()
        self._last: Executor | None = None
        self._closed = False
        self.compilations = 0
        self._renew_locks()
        _models.add(self)

    def _renew_locks(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[Shapes, threading.Lock] = {}  # held while code for shapes is made

    # Running

    def __call__(self, *args: Any, **kwargs: Any) -> list[Array]:
        """Runs on arrays given in the order of `inputs`, or by name."""
        return self.run(by_name(self.inputs, args, kwargs))

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """The outputs, new arrays, for one array an input by name."""
        check_names(inputs, self._specs)
        arrays = {name: as_input(inputs[name], spec) for name, spec in self._specs.items()}
        return self._executor(tuple(a.shape for a in arrays.values())).run_arrays(arrays)

    def _executor(self, shapes: Shapes) -> Executor:
        with self._lock:
            found = self._executors.get(shapes)
            if found is not None:
                self._executors.move_to_end(shapes)
                self._last = found
                return found
            if self._closed:
                raise RunError("the model is closed")
        for spec, shape in zip(self.inputs, shapes):
            _check_shape(spec, shape)
        return self._compiled_once(shapes)

    # Compiling

    @property
    def specialisations(self) -> list[Shapes]:
        """The sets of input shapes there is code for, least recently used first."""
        with self._lock:
            return list(self._executors)

    def prepare_known(self, progress: Progress | None = None) -> None:
        """Makes code now if the shapes of all inputs are known."""
        if all(is_static(spec.shape) for spec in self.inputs):
            shapes = tuple(spec.shape for spec in self.inputs)
            self._compiled_once(shapes, progress)  # type: ignore[arg-type]

    def _compiled_once(self, shapes: Shapes, progress: Progress | None = None) -> Executor:
        """The executor for some shapes; threads that ask for the same ones wait for the first."""
        with self._lock:
            turn = self._turns.setdefault(shapes, threading.Lock())
        with turn:
            with self._lock:
                found = self._executors.get(shapes)
            if found is None:
                try:
                    found = self._specialise(shapes, progress)
                finally:
                    with self._lock:
                        self._turns.pop(shapes, None)
        return found

    def _specialise(self, shapes: Shapes, progress: Progress | None) -> Executor:
        given = {spec.name: shape for spec, shape in zip(self.inputs, shapes)}
        start = time.perf_counter()
        prepared = prepare(self._graph, self._params, given, {}, self._opt_level, self._target)
        groups = fusible_groups(prepared.graph, fuse=self._opt_level >= 1)
        inputs = [TensorSpec(spec.name, given[spec.name], spec.dtype) for spec in self.inputs]
        program = assemble(
            prepared.graph, groups, prepared.constants, self._target, progress, inputs
        )
        compile_parts(program)
        program = replace(program, outputs=self._named(program.outputs))
        program.facts["total_seconds"] = time.perf_counter() - start
        executor = Executor(program, self._threads)
        with self._lock:
            if not self._closed:
                self._executors[shapes] = self._last = executor
            self.compilations += 1
            if len(self._executors) > MAX_SPECIALISATIONS:
                self._executors.popitem(last=False)
        return executor

    def _named(self, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The outputs under the model's names; passes may have renamed what makes them."""
        return tuple(spec._replace(name=name) for spec, name in zip(outputs, self.outputs))

    # About the compiled code

    @property
    def program(self) -> Program:
        """The program compiled or run last."""
        if self._last is None:
            raise RunError(
                "nothing is compiled yet: the shapes of the inputs are open",
                why="inputs: " + ", ".join(map(str, self.inputs)),
                hint="run the model once, or compile with shape={...}",
            )
        return self._last.program

    def report(self) -> Report:
        """What was compiled: kernels, host steps, times, memory."""
        return report_of(self.program)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program compiled last as one file, which `weft.runtime.load` runs."""
        save_program(self.program, path)

    def close(self) -> None:
        """Gives the memory of code and workspaces back, as soon as calls that now run are done."""
        with self._lock:
            self._closed = True
            self._executors.clear()
            self._last = None

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        return f"CompiledModel({inputs} -> {', '.join(self.outputs)})"


_models: weakref.WeakSet[CompiledModel] = weakref.WeakSet()


def _after_fork() -> None:
    """A child has none of the threads that held a lock."""
    for model in list(_models):
        model._renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _input_specs(graph: Graph, params: Mapping[str, Array]) -> dict[str, InputSpec]:
    specs: dict[str, InputSpec] = {}
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    for node in sorted(nodes, key=_position):
        fact = graph.fact(NodeEntry(node))
        if node.name not in params:
            assert fact.dtype is not None
            specs.setdefault(node.name, InputSpec(node.name, fact.shape, fact.dtype))
    return specs


def _position(node: Node) -> int:
    """Where the model file has an input among the others; what says nothing comes behind."""
    text = node.attrs.get("__position__", "")
    return int(text) if text.isdecimal() and len(text) < 10 else 1 << 32


def _check_immutable(graph: Graph) -> None:
    for node in written_variables(graph):
        raise Unsupported(
            f"the model writes to its variable {node.name!r}",
            why="a compiled model has no state: it gives the same outputs for the same inputs",
            hint="weft.compiler.build and weft.runtime.create keep variables between runs",
        )


def _check_shape(spec: InputSpec, shape: tuple[int, ...]) -> None:
    fits = spec.shape is None or (
        len(spec.shape) == len(shape)
        and all(not isinstance(a, int) or a == b for a, b in zip(spec.shape, shape))
    )
    if not fits:
        raise ShapeError(f"input {spec.name!r} has shape {shape}", why=f"expected {spec}")
