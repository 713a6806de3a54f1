"""Programs that are there, by the shapes of their inputs and by values that decide. It needs the runtime alone: what
another process has compiled runs without the rest of the compiler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base import counters
from ...base.errors import RunError
from ...base.forks import held_lock, renewed_lock
from ...base.shape import StaticShape
from ...runtime.executor import Executor
from ...runtime.program import Array, Program, TensorSpec

Key = tuple[object, ...]  # the shapes of all inputs, in order; behind them the bytes of what decides
Look = Callable[[Executor, Mapping[str, Array]], None]
Places = Callable[[Sequence[TensorSpec]], Sequence[Any]]


class Ready:
    """A part of a model as far as it is compiled. May be called from many threads at once."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str], deciding: Sequence[str] = ()) -> None:
        self.inputs, self.outputs, self.deciding = list(inputs), list(outputs), list(deciding)
        self.names: list[str] = []  # of extents that its attributes hold
        self.executors: OrderedDict[Key, Executor] = OrderedDict()
        self.last: Executor | None = None
        # Checks shapes that are new, and tells what the names of extents stand for.
        self.check: Callable[[Mapping[str, StaticShape]], Mapping[str, int]] = lambda shapes: {}
        self.look: Look | None = None  # told of what runs, and on what
        self.compilations = 0
        self._alone: Any = None  # what makes programs for sizes that are seen often
        self._states: dict[str, Array] = {}  # of random numbers, which go on from run to run
        self._closed = False
        self.renew_locks()

    def renew_locks(self) -> None:
        self._lock = held_lock("table")
        self._drawing = renewed_lock()  # held while random numbers are drawn

    def run(self, values: Mapping[str, Array], names: Mapping[str, int], places: Places | None = None) -> list[Any]:
        """The outputs, for all values that there are so far, and what the names of extents stand for."""
        return self.run_arrays({name: values[name] for name in self.inputs}, names, places)

    def run_arrays(
        self, arrays: Mapping[str, Array], names: Mapping[str, int] | None = None, places: Places | None = None
    ) -> list[Any]:
        """The same for one array an input, in order. `places` tells, when it is known what the outputs are, where
        they go: an array or None for each."""
        executor = self.executor(arrays, names)
        if self.look is not None:
            self.look(executor, {**arrays, **self._states})
        out = None if places is None else places(executor.program.outputs)
        if not executor.program.written:
            return executor.run_arrays(arrays, out)
        with self._drawing:
            return executor.run_arrays({**arrays, **self._states}, out, keep=True)

    def executor(self, arrays: Mapping[str, Array], names: Mapping[str, int] | None = None) -> Executor:
        """The code for arrays, one an input in order. Names that are not given follow from their shapes."""
        key: Key = tuple([array.shape for array in arrays.values()])
        if names and self.names:
            key += tuple(names[name] for name in self.names)
        if self.deciding:
            key += tuple(arrays[name].tobytes() for name in self.deciding)
        with self._lock:
            found = self.executors.get(key)
            if found is not None:
                self.executors.move_to_end(key)
                self.last = found
            elif self._closed:
                raise RunError("the model is closed")
        if counters.counting:
            counters.add_stat_value("weft.compiled_model_invocations", 1)
            counters.add_stat_value(f"weft.program_cache_{'miss' if found is None else 'hit'}", 1)
        found = found or self._missing(key, arrays, names)
        if self._alone is not None and found.program.plan.runs == 1:
            shapes = {name: array.shape for name, array in arrays.items()}
            self.last = found = self._alone.executor(key, shapes, found)
        return found

    def _missing(self, key: Key, arrays: Mapping[str, Array], names: Mapping[str, int] | None) -> Executor:
        """Where all shapes are numbers, there is a program for them."""
        self.check({name: array.shape for name, array in arrays.items()})
        raise RunError("there is no program for these inputs", why=f"there are some for {list(self.executors)}")

    @property
    def program(self) -> Program | None:
        """The program compiled or run last."""
        return None if self.last is None else self.last.program

    def prepare(self, inputs: Mapping[str, TensorSpec], progress: Callable[[int, int], None] | None = None) -> None:
        """Makes code for inputs of these shapes, none of which decides; what is ready has it."""

    def keep(self, key: Key, executor: Executor) -> None:
        """Has a program for inputs of these shapes."""
        self.executors[key] = self.last = executor

    def spend_weights(self) -> bool:
        """Has parameters go as code is made of them, for there will be no other; whether they may."""
        return False

    def forget_weights(self) -> None:
        """Lets go of parameters, of which the code there is has its own."""

    @property
    def tried(self) -> list[Any]:
        """What came of sizes that might have programs of their own."""
        return []

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no code is being made in the background; False if that takes longer."""
        return True

    def close(self) -> None:
        """Gives the memory of code and workspaces back, as soon as calls that now run are done."""
        with self._lock:
            self._closed = True
            self.executors.clear()
            self.last = None

    def copy(self) -> Ready:
        """Another that shares the code there is, which never changes."""
        made = type(self).__new__(type(self))
        with self._lock:
            made.__dict__.update(self.__dict__, executors=self.executors.copy())
        made.renew_locks()
        made._drawing = self._drawing  # as they share the states
        return made


class ReadySchedule:
    """A model that is one part, as far as it is compiled."""

    def __init__(self, whole: Ready) -> None:
        self.whole, self.parts, self.outputs = whole, [whole], whole.outputs
        self.host_steps: list[str] = []  # what runs between parts
        self.look: Callable[[str, float], None] | None = None

    def run(self, inputs: Mapping[str, Any], names: Mapping[str, int], delivery: Any = None) -> list[Any]:
        """The outputs for values of all inputs."""
        return self.whole.run(inputs, names)

    def watch_parts(self, look: Look | None) -> None:
        """Has the part tell what it runs, and on what."""
        self.whole.look = look

    def compiled(self) -> list[Ready]:
        return [self.whole]

    def close(self) -> None:
        self.whole.close()

    def copy(self) -> ReadySchedule:
        """Another that shares the code there is."""
        return ReadySchedule(self.whole.copy())
