"""Executors: a Program that is loaded. Arrays come in by name, new arrays go out."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import ShapeError
from ..base.ndarray import empty
from .inputs import as_input, check_names
from .program import Array, Program, TensorSpec, described

SMALL_OUTPUT = 1024  # bytes below which the alignment of an output does not matter


class Executor(ABC):
    """What every kind of target has of it. An executor is immutable and may be called from many threads."""

    def __init__(self, program: Program) -> None:
        self.program = program
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
        arrays = [_dense(spec, inputs[spec.name]) for spec in self.program.inputs]
        for number in () if keep else self._written:
            arrays[number] = arrays[number].copy()
        outputs = [_new(spec) for spec in self.program.outputs]
        self.run_into(arrays, outputs)
        return outputs

    @abstractmethod
    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs on arrays that fit already: dense, of the right shapes and dtypes, in order."""

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """The same on memory of this machine by its addresses, for those who run often: asking arrays for theirs would
        cost more than a small program."""
        specs = self.program.inputs, self.program.outputs
        views = ([view_at(at, x.shape, x.dtype) for at, x in zip(*pair)] for pair in zip((inputs, outputs), specs))
        self.run_into(*views)


def address_of(array: Array) -> int:
    """Where an array begins."""
    address: int = array.__array_interface__["data"][0]
    return address


def view_at(address: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Memory at an address as an array; it is valid as long as the memory is."""
    kind = empty((0,), dtype).numpy().dtype
    count = int(np.prod(shape, dtype=np.int64))
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, kind, count).reshape(shape)  # type: ignore[call-overload,no-any-return]


def _dense(spec: TensorSpec, array: Array) -> Array:
    """The array as kernels read it: of the expected shape, row-major, aligned to its elements."""
    if array.shape != spec.shape:
        raise ShapeError(f"input {spec.name!r} has shape {array.shape}", why=f"expected {spec}")
    return array if array.flags.carray else np.require(array, requirements=["C", "A"])


def _new(spec: TensorSpec) -> Array:
    """Memory for an output; large ones start at a cache line."""
    made = np.empty(spec.shape, spec.dtype)
    return made if made.nbytes < SMALL_OUTPUT else empty(spec.shape, spec.dtype).numpy()
