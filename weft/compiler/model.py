"""`compile`: a model in, something to call out. Sizes that are left open are open in its code, too, where that can be
written so; what cannot is compiled for each size when that is first seen, and kept.

What has been compiled before runs by this module and the runtime alone: the compiler (`opening.py`) loads where there
is something to compile, and the model is read where somebody asks for its graph."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base import counters
from ..base.dtype import DType, dtype_name
from ..base.errors import InvalidValue, RunError, ShapeError, Unsupported
from ..base.extents import bound_names, names_of, substitute
from ..base.forks import renewed_lock
from ..base.shape import Dim, Shape, StaticShape, freed, is_static, show_dims
from ..base.shown import as_html, bytes_text
from ..base.target import Target
from ..core.bulk import collector_paused
from ..runtime.artifact import LoadedModel, load, save_program
from ..runtime.bound import BoundStep, bound_input
from ..runtime.executor import Executor, zeros
from ..runtime.inputs import as_input, by_name, check_known, check_names, on_host
from ..runtime.loading import load_executor, profiled, runs_here
from ..runtime.outputs import given_outputs
from ..runtime.profile import PROFILE_ROUNDS, Profile, host_profile, joined
from ..runtime.program import Array, Program, TensorSpec, listed
from ..runtime.report import Report, open_report, report_of
from .kept.models import Kept, KeptFile, kept_file
from .parts.delivery import Delivery
from .parts.ready import Look, Ready, ReadySchedule

if TYPE_CHECKING:
    from ..core.graph import Graph
    from .model_source import ModelSource
    from .parts.schedule import Schedule

FIRST_RUN_SECONDS = 0.25  # that a first run has for itself before files are written beside it

Progress = Callable[[int, int], None]
Shapes = tuple[Any, ...]  # of all inputs, in order; behind them, the bytes of values that decide


class InputSpec(NamedTuple):
    """What an input must be: None and names in the shape stand for any extent. Without a dtype it is text, or a
    sequence."""

    name: str
    shape: Shape
    dtype: DType | None

    def __str__(self) -> str:
        return f"{self.name}: {dtype_name(self.dtype) if self.dtype else 'any'}[{show_dims(self.shape)}]"


Reader = Callable[[Any, InputSpec], Any]


class Front(NamedTuple):
    """What a model shows: inputs and outputs, inputs that a file declares and nothing reads, and how those inputs are
    taken that are no arrays."""

    inputs: list[InputSpec]
    outputs: list[InputSpec]
    unread: frozenset[str]
    readers: Mapping[str, Reader]


class ReadModel(NamedTuple):
    """What a model was made from, and its graph with what is known of each value before any pass has run."""

    source: ModelSource
    graph: Graph


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
    specialise: str = "never",
    progress: Progress | None = None,
) -> Model:
    """Compiles a model: the path of a model file, an ONNX model as bytes or a ModelProto, a Symbol,
    or a (Symbol, params) pair. What `CompiledModel.save` wrote is loaded as it is.

    Where all shapes are known, code is made now; otherwise when the model is first run. A dimension
    in `shape` is a number, or open: None, or a name such as "batch", which stands for one number in
    all inputs. Code that is made once serves all sizes of open dimensions, where it can be written
    so; where it needs the number (states of loops whose shapes change), it is made for each
    when that is first seen.
    `specialise="always"` makes code for each new set of input shapes alone, which may be faster; "auto"
    does so in the background, for shapes that are seen often and should gain by it. `target` may be
    another machine, whose code is then saved and run there.
    `precision="bf16"` computes products and convolutions with constant weights in bfloat16, summed in float32, and
    keeps images between convolutions in it; "fp16-weights" keeps such weights in float16 and computes in float32. All
    else is float32, always. On GPUs, "tf32" computes products of float32 in 19 bits, and "fp16" and "bf16" all of a
    model in 16; its inputs and outputs keep their dtypes.
    `progress(done, total)` is called as kernels are made.

    >>> import numpy as np
    >>> import weft
    >>> x = weft.symbol.Variable("x", shape=(2, 2))
    >>> m = weft.compile(weft.symbol.relu(x, name="y"))
    >>> m
    CompiledModel(x: float32[2, 2] -> y_output: float32[2, 2]; 1 kernel for ...)
    >>> m(np.array([[-1, 2], [3, -4]], "float32"))[0]
    array([[0., 2.],
           [3., 0.]], dtype=float32)
    """
    options: dict[str, Any] = {"shape": shape, "dtype": dtype, "params": params, "target": target}
    options |= {"precision": precision, "opt_level": opt_level, "specialise": specialise}
    file = kept_file(model, options)
    kept = None if file is None else file.found()
    if file is not None and kept is not None:
        return _ready(file, kept, threads, progress)
    if isinstance(model, (str, os.PathLike)) and _opening().is_program(Path(model)):
        return _loaded(model, threads, shape, dtype, params)
    made = opened(model, threads=threads, **options)
    if file is not None and _opening().is_spread(made.source.symbol):
        file = None  # its content does not tell the weights
    if file is None:
        made.prepare_known(progress)
    else:
        again = _Reading(file, threads)
        made.prepare_known(progress, again=again)
        made.keep_as(file, again)
    return made


def opened(model: Any, **options: Any) -> CompiledModel:
    """The model read and typed, with no code yet: that is made in its first run, or by `prepare_known`. Options are
    those of `compile`."""
    opening = _opening()
    made: CompiledModel = opening.opened(opening.source_of(model, **options))
    return made


@collector_paused
def _opening() -> Any:
    """The compiler, which is loaded where something is compiled."""
    return import_module(".opening", __package__)


def _ready(file: KeptFile, kept: Kept, threads: int | None, progress: Progress | None) -> CompiledModel:
    """The model that is kept for a file."""
    start = counters.time_point()
    program, note = kept
    specs = program.inputs, program.outputs
    inputs, outputs = ([InputSpec(spec.name, spec.extents, spec.dtype) for spec in side] for side in specs)
    front = Front(inputs, outputs, frozenset(note["unread"]), {})
    whole = Ready([spec.name for spec in inputs], [spec.name for spec in outputs])
    whole.keep(tuple(spec.shape for spec in inputs), load_executor(program, threads))
    program.facts.update(cache_hits=len(program.kernels), total_seconds=(counters.time_point() - start) / 1e9)
    if progress is not None:
        progress(len(program.kernels), len(program.kernels))
    return CompiledModel(front, ReadySchedule(whole), _Reading(file, threads))


class _Reading:
    """Reads a model file when its graph is first asked for."""

    def __init__(self, file: KeptFile, threads: int | None) -> None:
        self._file, self._threads = file, threads
        self._lock = renewed_lock()
        self._read: ReadModel | None = None

    def __call__(self) -> ReadModel:
        with self._lock:
            if self._read is None:
                opening = _opening()
                source = opening.source_of(self._file, threads=self._threads, **self._file.options)
                self._read = opening.typed(source)
            return self._read


def _loaded(path: str | os.PathLike[str], threads: int | None, *options: object) -> LoadedModel:
    if any(options):
        raise InvalidValue(
            f"{os.fspath(path)!r} is compiled already, for its shapes, dtypes and parameters",
            hint="compile the model file again with others",
        )
    return load(path, threads)


class Profiling:
    """Profiles of the parts of a model as they run."""

    def __init__(self, rounds: int, progress: Progress | None = None) -> None:
        self._rounds, self._progress = rounds, progress
        self._profiles: list[Profile] = []

    def program(self, first: bool, executor: Executor, arrays: Mapping[str, Array]) -> None:
        """A part is about to run; with the first of them a run begins."""
        if first:
            self._profiles = []
        self._profiles.append(profiled(executor, arrays, self._rounds, self._progress))

    def host_step(self, name: str, seconds: float) -> None:
        """A step between parts was run."""
        self._profiles.append(host_profile(name, seconds))

    @property
    def profile(self) -> Profile:
        """That of the last run."""
        if not self._profiles:
            raise RunError("nothing was profiled", why="the model did not run", hint="call it inside the with block")
        return joined(self._profiles)


class CompiledModel:
    """A model ready to run. May be called from many threads at once."""

    def __init__(self, front: Front, schedule: Schedule | ReadySchedule, read: Callable[[], ReadModel]) -> None:
        self.inputs, self._output_specs, self._unread, self._readers = front
        self.outputs: list[str] = [spec.name for spec in front.outputs]
        self._specs = {spec.name: spec for spec in front.inputs}
        self._schedule = schedule
        self._whole = schedule.whole
        self._check_shapes = _ShapeCheck(self.inputs)
        if self._whole is not None:
            self._whole.check = self._check_shapes
        self._read_again = read
        self._keeping: Thread | None = None
        self._closed = False
        counters.add_stat_value("weft.compiled_models_constructed", 1)

    @property
    def graph(self) -> Graph:
        """The model as it was read, with what is known of each value before any pass has run."""
        return self._read_again().graph

    @property
    def is_whole(self) -> bool:
        """Whether it runs as one program, no shape of which values decide."""
        return self._whole is not None

    @property
    def source(self) -> ModelSource:
        """What it was made from, and how it is compiled."""
        return self._read_again().source

    @property
    def metadata(self) -> dict[str, Any]:
        """What the model file says of itself: producer, opsets, properties; empty where it says nothing."""
        found: dict[str, Any] = import_module("..frontend.about", __package__).metadata_of(self.source.symbol)
        return found

    # Running

    def __call__(self, *args: Any, **kwargs: Any) -> list[Array]:
        """Runs on arrays given in the order of `inputs`, or by name."""
        return self.run(by_name(self.inputs, args, kwargs))

    def run(self, inputs: Mapping[str, Any], out: Any = None) -> list[Any]:
        """The outputs for one array an input by name. They are new arrays, or those of `out`: arrays in the order of
        the outputs, or by name, with None for one that is to be made; or a device such as "cuda", on which all are.

        >>> import numpy as np
        >>> import weft
        >>> m = weft.compile(weft.symbol.relu(weft.symbol.Variable("x", shape=(3,))))
        >>> y = np.empty(3, "float32")
        >>> m.run({"x": np.array([-1, 0, 2], "float32")}, out=[y])[0] is y
        True
        >>> y
        array([0., 0., 2.], dtype=float32)
        """
        inputs = self._read(inputs)
        check_names(inputs, self._specs)
        given = None if out is None else given_outputs(out, self.outputs)
        whole = self._whole
        if whole is not None:
            arrays = {name: as_input(inputs[name], spec) for name, spec in self._specs.items()}
            for name in whole.deciding:
                arrays[name] = on_host(arrays[name])
            return whole.run_arrays(arrays, places=None if given is None else lambda specs: given)
        values = {name: on_host(self._value(inputs[name], spec)) for name, spec in self._specs.items()}
        shapes = {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}
        delivery = None if given is None else Delivery(given, self.outputs)
        return self._schedule.run(values, self._check_shapes(shapes), delivery)

    def _read(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without what the file declares and no operator reads, which may be given."""
        if self._unread and isinstance(inputs, Mapping):
            return {name: value for name, value in inputs.items() if name not in self._unread}
        return inputs

    def _value(self, value: Any, spec: InputSpec) -> Any:
        reader = self._readers.get(spec.name)
        return as_input(value, spec) if reader is None else reader(value, spec)

    def bind(self, inputs: Mapping[str, Any] | None = None, out: Any = None) -> BoundStep:
        """A step over memory that stays: `step()` reads these arrays as they are then and writes those of `out`,
        without a copy. What is not given is made, inputs as zeros: `step.inputs` has all by name, `step.outputs` in
        order.

        One thread at a time may call a step. It goes on when the model is closed or gone.

        >>> import numpy as np
        >>> import weft
        >>> m = weft.compile(weft.symbol.relu(weft.symbol.Variable("x", shape=(3,))))
        >>> step = m.bind()
        >>> step.inputs["x"][:] = [-1, 0, 2]
        >>> step()[0]
        array([0., 0., 2.], dtype=float32)
        """
        if self._closed:
            raise RunError("the model is closed")
        given = {} if inputs is None else self._read(inputs)
        check_known(given, self._specs)
        arrays = {n: bound_input(v, self._specs[n]) for n, v in given.items() if self._specs[n].dtype is not None}
        names = self._check_shapes({name: array.shape for name, array in arrays.items()})
        values = {n: given[n] if n in given else zeros(_made_spec(s, names, "input")) for n, s in self._specs.items()}
        if self._whole is not None and not self._whole.deciding:
            memory = {name: arrays.get(name, value) for name, value in values.items()}
            executor = self._whole.executor(memory)
            if not executor.program.written:
                return executor.bind(values, out)
        results = [None] * len(self.outputs) if out is None else given_outputs(out, self.outputs)
        for number, spec in enumerate(self._output_specs):
            if results[number] is None:
                results[number] = zeros(_made_spec(spec, names, "output"))
        run = partial(self.__copy__().run, values, results)
        return BoundStep(run, values, results, list(arrays.values()))

    def executor(self, like: Mapping[str, Any]) -> Executor:
        """The program for one array an input, by their shapes and dtypes alone, for those who have memory of a device
        and run it there themselves."""
        check_names(like, self._specs)
        if self._whole is None or self._whole.deciding:
            raise Unsupported(
                "a model in parts is no one program", why="values that it computes decide what comes next"
            )
        return self._whole.executor({name: like[name] for name in self._specs})

    # Compiling

    @property
    def specialisations(self) -> list[Shapes]:
        """The sets of input shapes there is code for, least recently used first; of a model in several parts, those of
        the inputs of each."""
        return [key for part in self._schedule.compiled() for key in list(part.executors)]

    @property
    def compilations(self) -> int:
        """How often code was made."""
        return sum(part.compilations for part in self._schedule.compiled())

    @property
    def parts(self) -> int:
        """How many programs it is compiled to: several where values that it computes decide what comes next."""
        return sum(part is not None for part in self._schedule.parts)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no code is being made in the background (`specialise="auto"`), and what was compiled is kept;
        False if that takes longer than so many seconds."""
        keeping = self._keeping
        if keeping is not None and keeping.ident is not None:
            keeping.join(timeout)
        is_kept = keeping is None or not keeping.is_alive()
        return all([is_kept, *[part.wait(timeout) for part in self._schedule.compiled()]])

    def prepare_known(
        self,
        progress: Progress | None = None,
        like: Mapping[str, Any] | None = None,
        again: Callable[[], ReadModel] | None = None,
    ) -> None:
        """Makes code now for the first part if the shapes of all inputs are known, also by arrays that it will run on,
        and none decides. Where the model can be read `again`, and the first part is all of it, weights go as their
        constants are made."""
        first = self._schedule.parts[0]
        if first is None or first.deciding or first.names:
            return
        shapes = {name: np.shape(value) for name, value in (like or {}).items()}
        specs = [self._specs[name] for name in first.inputs]
        specs = [spec._replace(shape=shapes.get(spec.name, spec.shape)) for spec in specs]
        if all(is_static(spec.shape) and spec.dtype is not None for spec in specs):
            known = {spec.name: TensorSpec(*spec) for spec in specs}  # type: ignore[arg-type]
            if again is not None and first is self._whole and not self._readers and first.spend_weights():
                self._read_again = again
            first.prepare(known, progress)

    # About the compiled code

    def _programs(self) -> list[Program]:
        """Of each part, the one compiled or run last."""
        if self._closed:
            raise RunError("the model is closed")
        return [part.last.program for part in self._schedule.compiled() if part.last is not None]

    @property
    def program(self) -> Program:
        """The program compiled or run last; of a model in several parts, that of the last."""
        programs = self._programs()
        if not programs:
            raise RunError(
                "nothing is compiled yet: the shapes of the inputs are open",
                why="inputs: " + ", ".join(map(str, self.inputs)),
                hint="run the model once, or compile with shape={...}",
            )
        return programs[-1]

    def report(self) -> Report:
        """What was compiled or run last: kernels, host steps, times, memory."""
        programs = self._programs()
        if not programs:
            waiting = [spec for spec in self.inputs if not is_static(spec.shape)]
            return open_report(waiting, str(self.source.target), *self._known())
        tried = [tried for part in self._schedule.compiled() for tried in part.tried]
        return report_of(programs, self._schedule.host_steps, tried)

    def _known(self) -> tuple[list[str], int]:
        """What a report can tell before there is code: operators, parameters and outputs; bytes of the parameters."""
        indexed = self.graph.indexed
        names = {indexed.nodes[number].name for number in indexed.variables}
        values = [value for name, value in self.source.params.items() if name in names]
        size = sum(value.nbytes for value in values)
        told = (
            f"{indexed.num_nodes - len(indexed.variables)} operators, {sum(value.size for value in values)} parameters"
        )
        return [f"{told} ({bytes_text(size)})", f"outputs: {listed(self._output_specs)}"], size

    def profile(self, *args: Any, rounds: int = PROFILE_ROUNDS, **kwargs: Any) -> Profile:
        """How long each kernel takes on these inputs, given as to a call: best times, GFLOP/s, GB/s, and how near that
        is to what the machine can do.

        >>> import numpy as np
        >>> import weft
        >>> m = weft.compile(weft.symbol.relu(weft.symbol.Variable("x", shape=(2, 3)), name="y"))
        >>> [step.sources for step in m.profile(np.zeros((2, 3), "float32")).steps]
        [('y',)]
        """
        with self.profiling(rounds) as found:
            self(*args, **kwargs)
        return found.profile

    @contextmanager
    def profiling(self, rounds: int = PROFILE_ROUNDS, progress: Progress | None = None) -> Iterator[Profiling]:
        """Profiles what is run inside a `with` block; `profile` of what it gives is that of the last run. `progress` is
        told of rounds.

        >>> import numpy as np
        >>> import weft
        >>> m = weft.compile(weft.symbol.relu(weft.symbol.Variable("x", shape=(2, 3))))
        >>> with m.profiling() as found:
        ...     y = m(np.zeros((2, 3), "float32"))
        >>> len(found.profile.steps)
        1
        """
        found = Profiling(rounds, progress)
        parts = self._schedule.compiled()
        try:
            self._schedule.look = found.host_step
            for number, part in enumerate(parts):
                part.look = partial(found.program, number == 0)
            yield found
        finally:
            self._schedule.look = None
            for part in parts:
                part.look = None

    @contextmanager
    def watching(self, look: Look) -> Iterator[None]:
        """Has `look(executor, arrays)` told of every program that is run inside a `with` block, before it is, those of
        branches and bodies of loops among them."""
        self._schedule.watch_parts(look)
        try:
            yield
        finally:
            self._schedule.watch_parts(None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program compiled last as one file, which `weft.runtime.load` runs."""
        if self._whole is None or self._whole.deciding:
            raise Unsupported(
                "a model in parts cannot be saved as one program",
                why="values that it computes, or reads, decide what comes next",
                hint="keep the model file, and compile it where it runs",
            )
        if self.program.written:
            raise Unsupported(
                "a model that draws random numbers cannot be saved as one program",
                why="a program keeps no state of a generator",
                hint="keep the model file, and compile it where it runs",
            )
        program = self._whole.program
        assert program is not None
        save_program(program, path)

    def keep_as(self, file: KeptFile, again: Callable[[], ReadModel]) -> None:
        """Keeps what was compiled for other processes, under the file that it was read from: in a thread, which `wait`
        waits for, and so does the end of the process. Then the graph and the weights are read again where they are
        asked for."""
        whole = self._whole
        program = None if whole is None or whole.deciding or self._readers else whole.program
        if whole is None or program is None or program.written or program.open_sizes or not runs_here(program):
            return

        def keep() -> None:
            time.sleep(FIRST_RUN_SECONDS)
            if file.keep(program, {"unread": sorted(self._unread)}):
                self._read_again = again
                whole.forget_weights()

        self._keeping = Thread(target=copy_context().run, args=(keep,), name="weft-keep")
        with suppress(RuntimeError):  # the process may end already, or have no memory for a thread
            self._keeping.start()

    def close(self) -> None:
        """Gives the memory of code and workspaces back, as soon as calls that now run are done."""
        self._closed = True
        self._schedule.close()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        programs = [] if self._closed else self._programs()
        state = "closed" if self._closed else "not compiled yet: shapes are open"
        if programs:
            count = sum(len(program.kernels) for program in programs)
            state = f"{count} kernel{'s' * (count != 1)} for {Target.create(programs[-1].target).isa}"
        return f"CompiledModel({listed(self.inputs)} -> {listed(self._output_specs)}; {state})"

    def _repr_html_(self) -> str:
        return as_html(f"{self!r}\n\n{self.report()}" if not self._closed else repr(self))

    # Copies

    def __getstate__(self) -> tuple[str, bytes]:
        """What pickle keeps: the model it was made from, and nothing that loading would call."""
        state: tuple[str, bytes] = _opening().packed(self.source)
        return state

    def __setstate__(self, state: tuple[str, bytes]) -> None:
        opening = _opening()
        self.__dict__.update(opening.opened(opening.unpacked(state)).__dict__)
        self.prepare_known()

    def __copy__(self) -> CompiledModel:
        """Another model that shares the code there is, which never changes."""
        made = CompiledModel.__new__(CompiledModel)
        made.__dict__.update(self.__dict__, _schedule=self._schedule.copy())
        made._whole = made._schedule.whole
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModel:
        return self.__copy__()


def _made_spec(spec: InputSpec, names: Mapping[str, int], role: str) -> TensorSpec:
    """What memory for an input or output must be, where the names of extents stand for these numbers."""
    shape = None if spec.shape is None else tuple(_extent(dim, names) for dim in spec.shape)
    if not is_static(shape) or spec.dtype is None:
        raise ShapeError(
            f"{role} {spec.name!r} cannot be made before a run",
            why=f"it is {spec}, and what is open does not follow from the inputs that are given",
            hint="give an array for it" if spec.dtype is not None else "call run",
        )
    return TensorSpec(spec.name, shape, spec.dtype)


def _extent(dim: Dim, names: Mapping[str, int]) -> Dim:
    return None if names_of(dim) - names.keys() else substitute(dim, names)


class _ShapeCheck:
    """A number is that number, and a name one number in all inputs. It knows nothing of the model, which must go as
    soon as nobody has it: its code is unloaded then, and not whenever rubbish is collected."""

    def __init__(self, inputs: Sequence[InputSpec]) -> None:
        self._inputs = inputs
        dims = {dim for spec in inputs for dim in spec.shape or (None,)}
        # Whether all that is asked is that names are one number, without arithmetic on them.
        self._is_plain = all(names_of(dim) == {dim} for dim in dims if isinstance(dim, str))

    def __call__(self, shapes: Mapping[str, StaticShape]) -> dict[str, int]:
        """What the names stand for in these shapes, or an error."""
        if self._is_plain:
            plain = self._plain_names(shapes)
            if plain is not None:
                return plain
        given = [(spec, shapes[spec.name]) for spec in self._inputs if spec.name in shapes]
        names = bound_names(pair for spec, shape in given for pair in zip(spec.shape or (), shape))
        for spec, shape in given:
            wanted = spec.shape if spec.shape is not None else (None,) * len(shape)
            said = [_extent(dim, names) for dim in wanted]
            if len(wanted) != len(shape) or any(known not in (None, extent) for known, extent in zip(said, shape)):
                raise self._error(spec, shape, said, names, given)
        return names

    def _plain_names(self, shapes: Mapping[str, StaticShape]) -> dict[str, int] | None:
        """The same where names stand alone; None if something is wrong."""
        names: dict[str, int] = {}
        for spec in self._inputs:
            shape = shapes.get(spec.name)
            if shape is None or spec.shape is None:
                continue
            if len(shape) != len(spec.shape):
                return None
            for dim, extent in zip(spec.shape, shape):
                if (names.setdefault(dim, extent) if isinstance(dim, str) else dim) not in (None, extent):
                    return None
        return names

    def _error(
        self,
        spec: InputSpec,
        shape: StaticShape,
        said: Sequence[int | str | None],
        names: Mapping[str, int],
        given: Sequence[tuple[InputSpec, StaticShape]],
    ) -> ShapeError:
        """What is expected of an input, what names are by which other inputs, and how they may differ."""
        told = [f"expected {spec}"]
        first = {name: other for other, _ in reversed(given) for name in other.shape or () if isinstance(name, str)}
        for name, extent in names.items():
            other = first.get(name, spec)
            told.append(f"{name} = {extent}" + (f" by input {other.name!r}" if other is not spec else ""))
        dims = spec.shape or ()
        apart = [axis for axis, (known, extent) in enumerate(zip(said, shape)) if known not in (None, extent)]
        named = len(dims) == len(shape) and bool(apart) and all(isinstance(dims[axis], str) for axis in apart)
        return ShapeError(
            f"input {spec.name!r} has shape {shape}",
            why="; ".join(told),
            hint=freed(spec.name, dims, apart[0]) if named else None,
        )


Model = CompiledModel | LoadedModel
