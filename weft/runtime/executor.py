"""Executors: a Program that is loaded. Arrays come in by name; outputs go to new arrays, or to given ones. One of a
program whose sizes are open runs inputs of all sizes that it serves."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..base.device import Device
from ..base.errors import InvalidValue, ShapeError, Unsupported
from ..base.forks import held_lock
from ..base.ndarray import empty
from ..base.plan import Launched
from .bound import BoundStep, bound_input
from .inputs import as_input, check_known, check_names
from .outputs import as_output, given_outputs, new_output, put_in_place, set_apart
from .program import Array, Program, TensorSpec, described, listed

KEPT_SIZES = 64  # of the executors that are bound to them, the last used


class Move(NamedTuple):
    """An address, what is added to it after each turn, and whether that is taken off again after the next."""

    address: int
    step: int = 0
    returns: bool = False


class Executor(ABC):
    """What every kind of target has of it. An executor is immutable and may be called from many threads."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._bound: OrderedDict[tuple[int, ...], Executor] = OrderedDict()
        self._lock = held_lock("table")
        self._expected = {spec.name: spec for spec in program.inputs}
        self._written = [i for i, spec in enumerate(program.inputs) if spec.name in program.written]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({described(self.program)})"

    def run(self, inputs: Mapping[str, Any], out: Any = None) -> list[Any]:
        """The outputs for these inputs, in the arrays of `out` where it has some, else new; no input is changed that is
        not such an array."""
        check_names(inputs, self._expected)
        given = None if out is None else given_outputs(out, self._output_names())
        return self.run_arrays({name: as_input(inputs[name], spec) for name, spec in self._expected.items()}, given)

    def run_arrays(
        self, inputs: Mapping[str, Array], out: Sequence[Any] | None = None, keep: bool = False
    ) -> list[Any]:
        """The same for arrays of the right dtypes, one for each input, and `out` with one value an output. With `keep`,
        what a run writes to an input stays there."""
        if self.program.open_sizes:
            return self._at(inputs).run_arrays(inputs, out, keep)
        arrays = [_dense(spec, inputs[spec.name]) for spec in self.program.inputs]
        for number in () if keep else self._written:
            arrays[number] = arrays[number].copy()
        specs = self.program.outputs
        if out is None:
            outputs = [new_output(spec) for spec in specs]
            self.run_into(arrays, outputs)
            return outputs
        outputs = [new_output(spec) if value is None else as_output(value, spec) for value, spec in zip(out, specs)]
        for spec, array in zip(specs, outputs):
            require_host(f"out for {spec.name!r}", array)
        made = set_apart(outputs, arrays)
        self.run_into(arrays, made)
        put_in_place(made, outputs)
        return [array if value is None or isinstance(value, Device) else value for array, value in zip(outputs, out)]

    def bound(self, sizes: Sequence[int]) -> Executor | None:
        """An executor for these sizes; None if the program does not serve them."""
        raise Unsupported(f"programs for {self.program.target} have no open sizes", where=repr(self))

    def sharing(self, program: Program) -> Executor:
        """An executor of another program that has the same code and constants."""
        return type(self)(program)

    def of_same_model(self, program: Program) -> Executor | None:
        """An executor of another program of the model that this one's is of, which shares memory of a device with it;
        None where there is nothing to share."""
        return None

    @property
    def latest(self) -> Program:
        """The program as it ran last: of one whose sizes are open, bound to those of the last call."""
        with self._lock:
            return next(reversed(self._bound.values())).program if self._bound else self.program

    def at_sizes_of(self, inputs: Mapping[str, Array]) -> Executor:
        """The executor itself, or that for the sizes of these inputs if its program leaves some open."""
        return self._at(inputs) if self.program.open_sizes else self

    def settled(self, inputs: Mapping[str, Array]) -> Executor:
        """The executor that runs arrays of these sizes: this one, unless its sizes are open."""
        return self._at(inputs) if self.program.open_sizes else self

    def _at(self, inputs: Mapping[str, Array]) -> Executor:
        """The executor for the sizes of these inputs, which is kept for the next of them."""
        shapes = [inputs[spec.name].shape for spec in self.program.inputs]
        sizes = self.program.sizes_of(shapes)
        found = self.at(sizes)
        if found is None:
            raise self._refused(shapes, sizes)
        return found

    def at(self, sizes: Sequence[int]) -> Executor | None:
        """An executor for these sizes, which is kept for the next call of them; None if the program does not serve
        them."""
        key = tuple(sizes)
        with self._lock:
            found = self._bound.get(key)
            if found is not None:
                self._bound.move_to_end(key)
                return found
        found = self.bound(key)
        if found is not None:
            with self._lock:
                self._bound[key] = found
                if len(self._bound) > KEPT_SIZES:
                    self._bound.popitem(last=False)
        return found

    def _refused(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> ShapeError:
        """The error for sizes that the program does not serve."""
        table, specs = self.program.plan.sizes, self.program.inputs
        assert table is not None
        names = [f"{specs[number].name}.shape[{axis}]" for number, axis in self.program.open_sizes]
        given = [f"{specs[number].name!r} of shape {shapes[number]}" for number, _ in self.program.open_sizes]
        return ShapeError(
            f"the program does not take input {listed(list(dict.fromkeys(given)))}",
            why=f"it was compiled for {table.refusal(sizes, names)}",
            hint="compile the model for these shapes too",
        )

    @abstractmethod
    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs on arrays that fit already: dense, of the right shapes and dtypes, in order; outputs share no memory."""

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """The same on memory of this machine by its addresses, for those who run often: asking arrays for theirs would
        cost more than a small program."""
        specs = self.program.inputs, self.program.outputs
        views = ([view_at(at, x.extents, x.dtype) for at, x in zip(*pair)] for pair in zip((inputs, outputs), specs))
        self.run_into(*views)

    @property
    def is_native(self) -> bool:
        """Whether all of it is one native call."""
        return False

    def repeated(self, fixed: Mapping[int, int], then: Sequence[Launched] = ()) -> Callable[[Sequence[int]], None]:
        """`run_at` for those who run one program over and over: the inputs of some numbers always lie at the same
        addresses, and what comes back takes those of the others, and then of the outputs. If the program `is_native`,
        more kernels may run `then`, in the same native call; the addresses of theirs that move come last."""
        assert not then, "kernels can follow what is native only"
        moving = [number for number in range(len(self.program.inputs)) if number not in fixed]

        def run(addresses: Sequence[int]) -> None:
            known = dict(zip(moving, addresses)) | dict(fixed)
            self.run_at([known[number] for number in range(len(known))], addresses[len(moving) :])

        return run

    def turning(
        self, fixed: Mapping[int, int], moves: Sequence[Move], goes_on: Move | None = None
    ) -> Callable[[int, Mapping[int, int]], int]:
        """The same for those whose addresses follow from turn to turn: what comes back takes how many turns there are
        at most, and new addresses for some of `moves` by their places, and says how many there were. `goes_on` is a
        byte that is not 0 before each of them."""
        run, rows = self.repeated(fixed), [*map(list, moves)]
        asked = list(goes_on or Move(0))

        def some(count: int, starts: Mapping[int, int]) -> int:
            for place, address in starts.items():
                rows[place][0] = address
            for done in range(count):
                if goes_on is not None and not ctypes.c_uint8.from_address(asked[0]).value:
                    return done
                run([address for address, *_ in rows])
                for row in (*rows, asked):
                    row[0] += row[1]
                    row[1] = -row[1] if row[2] else row[1]
            return count

        return some

    def bind(self, inputs: Mapping[str, Any] | None = None, out: Any = None) -> BoundStep:
        """A step over the memory of these arrays; inputs and outputs that are not given get memory of their own, inputs
        filled with zeros."""
        known = {} if inputs is None else inputs
        check_known(known, self._expected)
        if self.program.open_sizes:
            check_names(known, self._expected)
            arrays_given = {name: bound_input(known[name], spec) for name, spec in self._expected.items()}
            return self._at(arrays_given).bind(known, out)
        values = {name: known[name] if name in known else zeros(spec) for name, spec in self._expected.items()}
        arrays = [bound_input(values[spec.name], spec) for spec in self.program.inputs]
        for spec, array in zip(self.program.inputs, arrays):
            _check_shape(spec, array)
        specs = self.program.outputs
        given = [None] * len(specs) if out is None else given_outputs(out, self._output_names())
        results = [zeros(spec) if value is None else value for value, spec in zip(given, specs)]
        outputs = [as_output(value, spec) for value, spec in zip(results, specs)]
        return BoundStep(self._step(arrays, outputs), values, results, [*arrays, *outputs])

    def _step(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], object]:
        for array in (*inputs, *outputs):
            require_host("an array that is bound", array)
        if self._written:  # what a run writes to an input does not stay there
            return partial(self.run_arrays, dict(zip(self._expected, inputs)), outputs)
        made = set_apart(outputs, inputs)
        run = self.bound_call(inputs, made)
        if all(own is given for own, given in zip(made, outputs)):
            return run

        def run_and_copy() -> None:
            run()
            put_in_place(made, outputs)

        return run_and_copy

    def bound_call(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], object]:
        """`run_into` on these arrays, which the caller keeps, as often as it is called, by one thread at a time."""
        return partial(self.run_into, inputs, outputs)

    def _output_names(self) -> list[str]:
        return [spec.name for spec in self.program.outputs]


def zeros(spec: TensorSpec) -> Array:
    """Memory for what is bound and was not given: zeros, from a cache line on."""
    made = empty(spec.extents, spec.dtype).numpy()
    made.fill(0)
    return made


def view_at(address: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Memory at an address as an array; it is valid as long as the memory is."""
    kind = empty((0,), dtype).numpy().dtype
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind, count).reshape(shape)  # type: ignore[call-overload,no-any-return]


def _dense(spec: TensorSpec, array: Array) -> Array:
    """The array as kernels read it: of the expected shape, row-major, aligned to its elements."""
    _check_shape(spec, array)
    require_host(f"input {spec.name!r}", array)
    return array if array.flags.carray else np.require(array, requirements=["C", "A"])


def require_host(what: str, array: Any) -> None:
    """Raises unless an array is in the memory of this machine's processor."""
    if not isinstance(array, np.ndarray):
        raise InvalidValue(
            f"{what} is on {array.device}",
            why="the program runs on the CPU",
            hint="copy it first: x.numpy(), or x.cpu()",
        )


def _check_shape(spec: TensorSpec, array: Array) -> None:
    if array.shape != spec.shape:
        raise ShapeError(f"input {spec.name!r} has shape {array.shape}", why=f"expected {spec}")
