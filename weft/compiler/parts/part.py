"""A part of a model: code for each set of input shapes, and of values that decide, made when they are first seen and
kept; the least recently used goes first."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakSet, ref

import numpy as np

from ...base import counters
from ...base.errors import Error
from ...base.forks import ForkLock, renewed_lock
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Fact
from ...core.symbolic import names_in
from ...frontend.specialise import specialised
from ...passes.fuse import fusible_groups
from ...passes.one_image import one_image
from ...runtime.executor import Executor
from ...runtime.loading import check_target, load_or_keep, runs_here
from ...runtime.program import Array, Program, TensorSpec
from ..assemble import assemble, fused_groups
from ..backends import backend_of
from ..constants import SharedConstants
from ..control_flow import compile_parts
from ..images import MOST_IMAGES, for_images
from ..model_source import ModelSource
from ..mutation import written_variables
from ..open.auto import Finished, Specialiser, Tried
from ..open.part import OpenPrograms
from ..prepare import as_arrays, prepare_typed, typed_graph
from ..stages import is_watched, reached
from .cut import is_whole
from .ready import Key, Ready

MAX_SPECIALISATIONS = 16
ONE_BY_ONE_LEVEL = 3  # of optimisation, from which on images may be computed one by one
SOME_IMAGES = 8  # by which it is decided how any number of them is computed
NOTICED_SECONDS = 2.0  # of compiling in a run, from which on somebody may wonder

_log = logging.getLogger("weft")

Progress = Callable[[int, int], None]


class Part(Ready):
    """A graph that is specialised on shapes, and on the values of the inputs named `deciding`. May be called from many
    threads at once."""

    def __init__(
        self,
        graph: Graph,
        source: ModelSource,
        outputs: Sequence[str],
        deciding: Collection[str] = (),
        order: Sequence[str] = (),
        shared: SharedConstants | None = None,
        facts: Mapping[str, Fact] | None = None,
    ) -> None:
        self.graph = graph
        self._facts = facts or {}  # what is known of inputs
        self.source = source
        self.shared = shared or SharedConstants(source.params)
        variables = dict.fromkeys(graph.indexed.nodes[number].name for number in graph.indexed.variables)
        read = [*(name for name in order if name in variables), *variables]
        inputs = [name for name in dict.fromkeys(read) if name not in source.params]
        super().__init__(inputs, outputs, [name for name in inputs if name in deciding])
        self.names = sorted(names_in(graph.indexed.nodes))
        self._is_whole = is_whole(graph) and not self.names
        self._open: OpenPrograms | None = None
        if is_whole(graph) and not self.deciding and source.specialise != "always":
            self._open = OpenPrograms(graph, source, self.shared, self.inputs)
        self._decided: OrderedDict[Key, OpenPrograms | None] = OrderedDict()  # by what decides
        if self._open is not None and source.specialise == "auto":
            self._alone = Specialiser(self._open, *_hooks(self))
        self._image: Executor | None = None  # what computes one of any number of images
        self._spends = False  # whether parameters go as code is made
        self._is_apart: bool | None = None  # whether they are computed one by one; None: nobody knows yet
        self._kin: WeakSet[Executor] = WeakSet()  # those of other sizes
        self._runs_here = self._noticed = False

    def renew_locks(self) -> None:
        super().renew_locks()
        self._turns: dict[Key, ForkLock] = {}  # held while code for a key is made
        self._deciding = renewed_lock()  # held while it is looked up what serves values that decide
        self._imaging = renewed_lock()  # held while code for one image is made

    @property
    def program(self) -> Program | None:
        """The program compiled or run last: with open sizes, if it has some. Where that of one image served any number,
        it is made now."""
        if self._open is not None and self._open.latest is None and self._image is not None:
            shapes = {spec.name: spec.extents for spec in self._image.program.inputs}
            self._open.executor(shapes, self._ready)
        if self._open is not None and self._open.latest is not None:
            return self._open.latest
        return super().program

    def prepare(self, inputs: Mapping[str, TensorSpec], progress: Progress | None = None) -> None:
        """Makes code for inputs of these shapes, none of which decides."""
        key = tuple(inputs[name].shape for name in self.inputs)
        self._once(key, lambda: self._specialise(inputs, {}, {}, progress))

    def _missing(self, key: Key, arrays: Mapping[str, Array], names: Mapping[str, int] | None) -> Executor:
        inputs = {name: TensorSpec(name, array.shape, array.dtype) for name, array in arrays.items()}
        if not self._runs_here:
            check_target(str(self.source.target))
            self._runs_here = True
        if names is None:
            names = self.check({name: spec.extents for name, spec in inputs.items()})
        values = {name: arrays[name].copy() for name in self.deciding}
        start = time.monotonic()
        made = self._once(key, lambda: self._specialise(inputs, values, names, None))
        self._notice(time.monotonic() - start, inputs.values())
        return made

    def _notice(self, seconds: float, inputs: Iterable[TensorSpec]) -> None:
        """Tells once why a run took long."""
        if seconds >= NOTICED_SECONDS and not self._noticed:
            self._noticed = True
            shapes = ", ".join(map(str, inputs))
            _log.warning("compiled for %s in %.1f s, while it ran; later runs reuse it", shapes, seconds)

    def _once(self, key: Key, make: Callable[[], Executor]) -> Executor:
        """The executor of a key; threads that ask for the same one wait for the first."""
        with self._lock:
            turn: ForkLock = self._turns.setdefault(key, renewed_lock())
        with turn:
            with self._lock:
                found = self.executors.get(key)
            if found is None:
                try:
                    found = make()
                    self._keep(key, found)
                finally:
                    with self._lock:
                        self._turns.pop(key, None)
        return found

    def _keep(self, key: Key, executor: Executor) -> None:
        with self._lock:
            if not self._closed:
                self.keep(key, executor)
            if len(self.executors) > MAX_SPECIALISATIONS:
                self.executors.popitem(last=False)

    def _specialise(
        self,
        inputs: Mapping[str, TensorSpec],
        values: Mapping[str, Array],
        names: Mapping[str, int],
        progress: Progress | None,
    ) -> Executor:
        programs = None if self._spends else self._programs(values)
        if programs is not None:
            found = self._image_by_image(programs, inputs, names, progress)
            if found is None:
                shapes = {name: spec.extents for name, spec in inputs.items()}
                found = programs.executor(shapes, self._ready, progress)
            if found is not None:
                return found
        return self._ready(lambda: self._program(inputs, values, names, progress))

    def _programs(self, values: Mapping[str, Array]) -> OpenPrograms | None:
        """What serves many sizes, for these values of what decides."""
        if not values or self.source.specialise == "always":
            return self._open
        key = tuple((value.shape, value.tobytes()) for value in values.values())
        with self._deciding:
            if key not in self._decided:
                self._decided[key] = self._opened(values)
            self._decided.move_to_end(key)
            if len(self._decided) > MAX_SPECIALISATIONS:
                self._decided.popitem(last=False)
            return self._decided[key]

    def _opened(self, values: Mapping[str, Array]) -> OpenPrograms | None:
        """The same, made anew: all that waits is converted by the names of extents, or nothing comes of it."""
        facts = {name: self._facts.get(name, Fact()) for name in self.inputs}
        facts |= {name: Fact(value.shape, value.dtype) for name, value in values.items()}
        given = {name: (fact.shape, fact.dtype) for name, fact in facts.items()}
        try:
            symbol, known = specialised(self.graph, self.source.params, given, values, {})
            arrays = as_arrays(known)
            read = [name for name in symbol.list_input_names() if name in facts and name not in arrays]
            dtypes = {name: dtype for name in read if (dtype := facts[name].dtype) is not None}
            graph = infer(Graph(symbol.outputs), {name: facts[name].shape for name in read}, dtypes)
        except Error:  # which code for the shapes at hand will tell
            return None
        source = self.source._replace(params=arrays)
        return OpenPrograms(graph, source, SharedConstants(arrays), self.inputs, facts)

    def _program(
        self,
        inputs: Mapping[str, TensorSpec],
        values: Mapping[str, Array],
        names: Mapping[str, int],
        progress: Progress | None,
    ) -> Program:
        graph, params = self._typed(inputs, values, names)
        if self._spends:
            self.forget_weights()
        reached("types", infer, graph)
        reached("parameters", specialised, params, detail=True)
        program = self._one_by_one(graph, params, inputs, progress)
        if program is None:
            program = self._assembled(graph, params, [inputs[name] for name in self.inputs], progress)
        for name in program.written:
            self._states.setdefault(name, params[name].copy())
        return program

    def _one_by_one(
        self, graph: Graph, params: Mapping[str, Array], inputs: Mapping[str, TensorSpec], progress: Progress | None
    ) -> Program | None:
        """The program that computes several images one by one, where that is faster. Whoever looks at values is shown
        those of all images at once."""
        found = None if is_watched() else one_image(graph, self.inputs)
        if found is None or found[0] > MOST_IMAGES or not self._pays(found[1], found[0]):
            return None
        count, alone = found
        return for_images(self._assembled(alone, params, _of_one_image(inputs), progress), count)

    def _pays(self, image: Graph, count: int) -> bool:
        """Whether so many images are faster one by one."""
        pays = backend_of(self.source.target).pays_apart
        return pays is not None and self.source.opt_level >= ONE_BY_ONE_LEVEL and pays(image, count, self.source.target)

    def _image_by_image(
        self,
        programs: OpenPrograms,
        inputs: Mapping[str, TensorSpec],
        names: Mapping[str, int],
        progress: Progress | None,
    ) -> Executor | None:
        """What computes images one by one where their number is open: the program of one image, whatever their number,
        if that is faster for some."""
        if not programs.counts_images or self._is_apart is False or is_watched():
            return None
        count = next(iter(inputs.values())).extents[0]
        if not 1 <= count <= MOST_IMAGES or any(spec.extents[0] != count for spec in inputs.values()):
            return None
        with self._imaging:
            if self._is_apart is None:
                self._is_apart = self._made_for_one(inputs, names, progress)
        program = None if self._image is None else for_images(self._image.program, count)
        return None if self._image is None or program is None else self._image.sharing(program)

    def _made_for_one(
        self, inputs: Mapping[str, TensorSpec], names: Mapping[str, int], progress: Progress | None
    ) -> bool:
        """Makes code for one image if some of them are to be computed one by one; whether it did."""
        graph, params = self._of_images(inputs, names, SOME_IMAGES) or (None, {})
        if graph is None or not self._pays(graph, SOME_IMAGES):
            return False
        again, others = self._of_images(inputs, names, SOME_IMAGES + 1) or (None, {})
        if again is None or again.ir(full=True) != graph.ir(full=True) or not _equal(params, others):
            return False  # how many there are decides about more
        made = self._ready(lambda: self._assembled(graph, params, _of_one_image(inputs), progress))
        if for_images(made.program, SOME_IMAGES) is None:
            return False
        self._image = made
        return True

    def _of_images(
        self, inputs: Mapping[str, TensorSpec], names: Mapping[str, int], count: int
    ) -> tuple[Graph, Mapping[str, Array]] | None:
        """The graph of one of so many images, if they are not mixed, and its parameters."""
        several = {name: spec._replace(shape=(count, *spec.extents[1:])) for name, spec in inputs.items()}
        try:
            graph, params = self._typed(several, {}, dict.fromkeys(names, count))
        except Error:  # which code for the shapes at hand will tell
            return None
        found = one_image(graph, self.inputs)
        return None if found is None else (found[1], params)

    def _assembled(
        self, graph: Graph, params: Mapping[str, Array], inputs: Sequence[TensorSpec], progress: Progress | None
    ) -> Program:
        level, target = self.source.opt_level, self.source.target
        shared = None if self._spends else self.shared
        passes = self.source.passes
        prepared = prepare_typed(graph, params, level, target, passes, shared, late=True, spent=self._spends)
        groups = fused_groups(prepared.graph, target, level >= 1)
        reached("groups", fusible_groups, groups)
        return assemble(prepared.graph, groups, prepared.constants, target, progress, inputs)

    def _ready(self, make: Callable[[], Program]) -> Executor:
        """A program that is made now, ready to run."""
        return self._loaded(make, counters.time_point())

    def _loaded(self, make: Callable[[], Program], start: int) -> Executor:
        """The same for one that was begun at a time."""
        program = make()
        if runs_here(program):
            compile_parts(program)
        named = (spec._replace(name=name) for spec, name in zip(program.outputs, self.outputs))
        program = replace(program, outputs=tuple(named))
        self.compilations += 1
        spent = counters.time_point() - start
        program.facts["total_seconds"] = spent / 1e9
        counters.add_stat_value("weft.compile_nanoseconds", spent)
        reached("program", assemble, program)
        executor = load_or_keep(program, self.source.threads, next(iter(self._kin), None))
        self._kin.add(executor)
        reached("executor", type(executor).run_into, executor)
        return executor

    def _typed(
        self, inputs: Mapping[str, TensorSpec], values: Mapping[str, Array], names: Mapping[str, int]
    ) -> tuple[Graph, Mapping[str, Array]]:
        """The graph in which every entry has a shape of numbers, and its parameters."""
        params = self.source.params
        if self._is_whole:
            shapes = {name: spec.extents for name, spec in inputs.items()}
            return typed_graph(self.graph, params, shapes, {}), params
        facts = {name: (spec.extents, spec.dtype) for name, spec in inputs.items()}
        symbol, known = specialised(self.graph, params, facts, values, names)
        arrays = as_arrays(known)
        read = set(symbol.list_input_names())
        shapes = {name: spec.extents for name, spec in inputs.items() if name in read and name not in arrays}
        return typed_graph(symbol, arrays, shapes, {}), arrays

    def spend_weights(self) -> bool:
        """Has parameters go as code is made of them; states of random numbers have to stay."""
        self._spends = not written_variables(self.graph)
        return self._spends

    def forget_weights(self) -> None:
        """Lets go of parameters: there is code for all that it may be asked."""
        self.source, self.shared = self.source._replace(params={}), SharedConstants({})
        self._open = None

    def close(self) -> None:
        """Gives the memory of code and workspaces back, as soon as calls that now run are done."""
        super().close()
        with self._lock:
            self._open = None
            self._decided.clear()
        if self._alone is not None:
            self._alone.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no code is being made in the background; False if that takes longer."""
        return self._alone is None or self._alone.wait(timeout)

    @property
    def tried(self) -> list[Tried]:
        """What came of sizes that might have programs of their own."""
        return [] if self._alone is None else self._alone.tried

    def copy(self) -> Part:
        """Another part that shares the code there is, which never changes."""
        made = super().copy()
        assert isinstance(made, Part)
        with self._lock:
            made._open = self._open and self._open.copy()
            made._decided = OrderedDict((key, found and found.copy()) for key, found in self._decided.items())
        if made._open is not None and self._alone is not None:
            made._alone = self._alone.copy(made._open, *_hooks(made))
        return made


def _of_one_image(inputs: Mapping[str, TensorSpec]) -> list[TensorSpec]:
    return [spec._replace(shape=(1, *spec.shape[1:])) for spec in inputs.values()]


def _equal(one: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    return one is other or (
        one.keys() == other.keys()
        and all(value is other[name] or np.array_equal(value, other[name]) for name, value in one.items())
    )


def _hooks(part: Part) -> tuple[Callable[[], bool], Finished]:
    """Whether a part is wanted, and how its programs become ready: for a thread that does not keep it alive."""
    owner = ref(part)

    def wanted() -> Part | None:
        found = owner()
        return None if found is None or found._closed else found

    def finished(program: Program, start: int) -> Executor | None:
        found = wanted()
        return None if found is None else found._loaded(lambda: program, start)

    return lambda: wanted() is not None, finished
