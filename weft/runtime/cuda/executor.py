"""Runs programs on a GPU: one CUDA graph for each run of kernels, on the stream that the caller works in. Arrays of the
host are copied there and back; arrays of the device are read and written where they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...base.device import Device
from ...base.dtype import DType
from ...base.errors import InvalidType, InvalidValue, ShapeError, Unsupported
from ...base.plan import HostStep, known
from ...base.target import Target
from ..executor import Executor
from ..outputs import as_output, new_output
from ..program import Array, Program
from ..registry import Runtime
from .array import CUDA, DeviceArray, device_empty, shared_from
from .context import Context, platform
from .memory import Arena
from .stream import Stream, current_stream
from .workspace import Given, Loaded, Workspace


class CudaExecutor(Executor):
    """A program on the device that its thread worked on when it was loaded. May be called from many threads: each call
    has graphs and an arena of its own, which stay for the next ones."""

    def __init__(self, program: Program, threads: int | None = None, loaded: Loaded | None = None) -> None:
        if loaded is None:
            context = platform().context()
            check_capability(program.target, context)
            loaded = Loaded.of(program, context)
        self._loaded = loaded
        super().__init__(program)
        self._workspaces: deque[Workspace] = deque()

    def bound(self, sizes: Sequence[int]) -> CudaExecutor | None:
        """An executor for these sizes, None if the program does not serve them. It shares code, constants and arenas
        with its siblings."""
        program = self.program.bound(sizes)
        return None if program is None else CudaExecutor(program, None, self._loaded)

    def of_same_model(self, program: Program) -> CudaExecutor | None:
        """One with the memory of calls of this one, and the copies of constants that both have; None on another
        device."""
        context = platform().context()
        if context is not self._loaded.context or program.target != self.program.target:
            return None
        return CudaExecutor(program, None, Loaded.of(program, context, self._loaded.kin))

    @property
    def device(self) -> Device:
        """Where it runs."""
        return Device("cuda", self._loaded.context.index)

    @property
    def has_host_steps(self) -> bool:
        """Whether something is done on the host between kernels."""
        return any(isinstance(step, HostStep) for step in self.program.plan.steps)

    @property
    def workspace_bytes(self) -> int:
        """Memory of the device between inputs and outputs that no call uses at the moment."""
        return self._loaded.kin.arenas.idle_bytes

    def run_arrays(self, inputs: Mapping[str, Any], out: Sequence[Any] | None = None, keep: bool = False) -> list[Any]:
        """The outputs for arrays of the right dtypes, of the host or of this device. `out` has one value an output: an
        array of either, None for a new array of the host, or the device for a new one there."""
        if self.program.open_sizes:
            return self._at(inputs).run_arrays(inputs, out, keep)
        with self._loaded.context:
            stream = current_stream(self._loaded.context.index)
            arrays = [self._checked("input", inputs[s.name], s) for s in self.program.inputs]
            given = [None] * len(self.program.outputs) if out is None else out
            results = [self._output(value, spec, stream) for value, spec in zip(given, self.program.outputs)]
            self._run(self._unshared(arrays, keep, stream), results, self._written if keep else (), stream)
        return [made if value is None or isinstance(value, Device) else value for made, value in zip(results, given)]

    def _checked(self, role: str, array: Any, spec: Any) -> Given:
        if array.shape != spec.shape:
            raise ShapeError(f"{role} {spec.name!r} has shape {array.shape}", why=f"expected {spec}")
        if not isinstance(array, DeviceArray):
            dense: Array = np.require(array, requirements=["C", "A"])
            return dense
        if array.memory.context is not self._loaded.context:
            raise InvalidValue(
                f"{role} {spec.name!r} is on {array.device}",
                why=f"the program was loaded on {self.device}",
                hint="copy it there, or load the program inside of `with weft.cuda.device(n)`",
            )
        if not array.is_dense:
            raise InvalidValue(
                f"{role} {spec.name!r} is not dense",
                why=f"{spec} is read row by row; strides here are {array.strides} bytes",
                hint="make a contiguous copy of it",
            )
        return array

    def _output(self, value: Any, spec: Any, stream: Stream) -> Given:
        if value is None:
            return new_output(spec)
        if isinstance(value, Device):
            if value.type == "cpu":
                return new_output(spec)
            if value != self.device:
                raise InvalidValue(f"outputs are asked for on {value}", why=f"the program runs on {self.device}")
            return device_empty(spec.extents, spec.dtype, stream)
        return self._checked("out for", as_output(value, spec), spec)

    def _unshared(self, arrays: Sequence[Given], keep: bool, stream: Stream) -> list[Given]:
        """The inputs, with copies of those on the device that a run would change and must not."""
        found = list(arrays)
        for number in () if keep else self._written:
            array = found[number]
            if isinstance(array, DeviceArray):
                found[number] = device_empty(array.shape, array.dtype, stream).copyfrom(array)
        return found

    def _run(self, inputs: Sequence[Given], outputs: Sequence[Given], kept: Sequence[int], stream: Stream) -> None:
        """Runs with outputs that share memory with something computed apart. What fails in the middle leaves memory
        and graphs behind that nobody uses again."""
        apart = self._apart(inputs, outputs, stream)
        try:
            space = self._workspaces.pop()
        except IndexError:
            space = Workspace(self.program, self._loaded)
        arena = self._loaded.kin.arenas.take(known(self.program.plan.arena_bytes))
        space.run(inputs, apart, kept, arena, stream)
        self._loaded.kin.arenas.give(arena)
        self._workspaces.append(space)
        for made, wanted in zip(apart, outputs):
            if made is not wanted:
                assert isinstance(wanted, DeviceArray)
                wanted.copyfrom(made)

    def _apart(self, inputs: Sequence[Given], outputs: Sequence[Given], stream: Stream) -> list[Given]:
        """The outputs, with new memory in place of those that share theirs with an input or another output."""
        given = enumerate((*outputs, *inputs))
        spans = sorted(
            (a.address, a.address + a.nbytes, n) for n, a in given if isinstance(a, DeviceArray) and a.nbytes
        )
        shared: set[int] = set()
        reached, owner = 0, -1
        for start, end, number in spans:
            if start < reached:
                shared |= {number, owner}
            if end > reached:
                reached, owner = end, number
        return [
            device_empty(array.shape, array.dtype, stream) if number in shared else array
            for number, array in enumerate(outputs)
        ]

    def run_into(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs on arrays that fit already; what is written to inputs stays there."""
        named = {spec.name: array for spec, array in zip(self.program.inputs, inputs)}
        self.run_arrays(named, outputs, keep=True)

    def _step(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], object]:
        arrays = [self._checked("input", array, spec) for array, spec in zip(inputs, self.program.inputs)]
        results = [self._checked("out for", array, spec) for array, spec in zip(outputs, self.program.outputs)]
        stream = current_stream(self._loaded.context.index)
        apart = self._apart(arrays, results, stream)
        if self._written or any(made is not wanted for made, wanted in zip(apart, results)):
            return partial(self.run_arrays, dict(zip(self._expected, inputs)), outputs)
        space = Workspace(self.program, self._loaded)
        arena = Arena(self._loaded.context, known(self.program.plan.arena_bytes))
        return partial(self._bound_run, space, arena, arrays, results)

    def _bound_run(self, space: Workspace, arena: Arena, inputs: Sequence[Given], outputs: Sequence[Given]) -> None:
        """A run in memory of its own, which nothing else uses."""
        with self._loaded.context as context:
            space.run(inputs, outputs, (), arena, current_stream(context.index))

    def new_workspace(self) -> Workspace:
        """A workspace that no call has, for those who look at single steps."""
        return Workspace(self.program, self._loaded)

    @property
    def loaded(self) -> Loaded:
        """Code, constants and arenas."""
        return self._loaded


def check_capability(text: str, context: Context) -> None:
    """Raises if a device cannot run code for a target, given as text: PTX runs on its kind of device and later ones,
    but what is for one kind alone ("sm_90a") only there."""
    target: Any = Target.create(text)
    wanted, (major, minor) = str(target.arch), context.facts.capability
    number = int("".join(filter(str.isdecimal, wanted)))
    alone, have = wanted[-1].isalpha(), 10 * major + minor
    if have < number or (alone and have != number):
        raise Unsupported(
            f"the program is for GPUs of {wanted}",
            where=f"cuda:{context.index}, {context.facts.name}",
            why=f"this one is of sm_{have}",
            hint=f'compile for it: target="cuda -arch=sm_{have}"',
        )


def _check(target: Target, threads: int | None) -> None:
    if threads is not None and not isinstance(threads, int):
        raise InvalidType(f"threads are a number, not {threads!r}")
    check_capability(str(target), platform().context())


def _allocate(shape: tuple[int, ...], dtype: DType, device: Device) -> DeviceArray:
    return device_empty(shape, dtype, current_stream(device.index))


def _copy(source: Given, destination: Given) -> None:
    if isinstance(destination, DeviceArray):
        destination.copyfrom(source)
    elif isinstance(source, DeviceArray):
        source.copyto(destination)
    else:
        np.copyto(destination, source)


RUNTIME = Runtime("cuda", _check, CudaExecutor, _allocate, _copy, dlpack_code=CUDA, shared=shared_from)
