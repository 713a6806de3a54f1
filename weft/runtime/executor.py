"""Executors: a Program that is loaded. Arrays come in by name, new arrays go out. One of a program whose sizes are open
runs inputs of all sizes that it serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..base.errors import ShapeError, Unsupported
from ..base.forks import held_lock
from ..base.ndarray import empty
from .inputs import as_input, check_names
from .program import Array, Program, TensorSpec, described, listed

KEPT_SIZES = 64  # of the executors that are bound to them, the last used
SMALL_OUTPUT = 1024  # bytes below which the alignment of an output does not matter


class Executor(ABC):
    """What every kind of target has of it. An executor is immutable and may be called from many threads."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._made = [] if program.plan.is_open else [(spec.extents, spec.dtype) for spec in program.outputs]
        self._bound: OrderedDict[tuple[int, ...], Executor] = OrderedDict()
        self._lock = held_lock("table")
        self._expected = {spec.name: spec for spec in program.inputs}
        self._written = [i for i, spec in enumerate(program.inputs) if spec.name in program.written]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({described(self.program)})"

    def run(self, inputs: Mapping[str, Any]) -> list[Array]:
        """The outputs for these inputs; every output is a new array, and no input is changed."""
        check_names(inputs, self._expected)
        specs = self.program.inputs
        return self.run_arrays({spec.name: as_input(inputs[spec.name], spec) for spec in specs})

    def run_arrays(self, inputs: Mapping[str, Array], keep: bool = False) -> list[Array]:
        """The same for arrays of the right dtypes, one for each input. With `keep`, what a run writes to an input stays
        there."""
        if self.program.open_sizes:
            return self._at(inputs).run_arrays(inputs, keep)
        arrays = [_dense(spec, inputs[spec.name]) for spec in self.program.inputs]
        for number in () if keep else self._written:
            arrays[number] = arrays[number].copy()
        outputs = [_new(shape, dtype) for shape, dtype in self._made]
        self.run_into(arrays, outputs)
        return outputs

    def bound(self, sizes: Sequence[int]) -> Executor | None:
        """An executor for these sizes; None if the program does not serve them."""
        raise Unsupported(f"programs for {self.program.target} have no open sizes", where=repr(self))

    def _at(self, inputs: Mapping[str, Array]) -> Executor:
        """The executor for the sizes of these inputs, which is kept for the next of them."""
        shapes = [inputs[spec.name].shape for spec in self.program.inputs]
        sizes = tuple(self.program.sizes_of(shapes))
        with self._lock:
            found = self._bound.get(sizes)
            if found is not None:
                self._bound.move_to_end(sizes)
                return found
        found = self.bound(sizes)
        if found is None:
            raise self._refused(shapes, sizes)
        with self._lock:
            self._bound[sizes] = found
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
        """Runs on arrays that fit already: dense, of the right shapes and dtypes, in order."""


def _dense(spec: TensorSpec, array: Array) -> Array:
    """The array as kernels read it: of the expected shape, row-major, aligned to its elements."""
    if array.shape != spec.shape:
        raise ShapeError(f"input {spec.name!r} has shape {array.shape}", why=f"expected {spec}")
    return array if array.flags.carray else np.require(array, requirements=["C", "A"])


def _new(shape: tuple[int, ...], dtype: DType) -> Array:
    """Memory for an output; large ones start at a cache line."""
    made = np.empty(shape, dtype)
    return made if made.nbytes < SMALL_OUTPUT else empty(shape, dtype).numpy()
