"""Eager calls by open kernels made from an operator's compute: one program serves all sizes that
pass its guards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..base.target import host
from ..compiler.open_kernels import compiling, load_kernel
from ..core.bulk import collector_paused
from ..core.infer import same_dtype
from ..core.op import Op
from ..lower.open.generic import OpenProgram, lower_open
from ..lower.open.written import lower_written
from ..runtime.open_kernel import OpenKernel

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], np.dtype[Any]]
KEPT = 4096  # calls whose sizes are known
VARIANTS = 16  # programs of one operator that differ by what they asked about sizes


class _Step(NamedTuple):
    kernel: OpenKernel
    buffers: tuple[int, ...]
    turns: int
    work: float


class _Call(NamedTuple):
    """All that calls on arrays of certain shapes need."""

    sizes: tuple[int, ...]
    allocated: list[tuple[tuple[int, ...], np.dtype[Any]]]
    outputs: tuple[int, ...]
    steps: list[_Step]
    read: frozenset[int]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        buffers = [
            a if a.flags.c_contiguous or number not in self.read else np.ascontiguousarray(a)
            for number, a in enumerate(arrays)
        ]
        buffers += [np.empty(shape, dtype) for shape, dtype in self.allocated]
        for step in self.steps:
            used = [buffers[number] for number in step.buffers]
            step.kernel.run(used, self.sizes, step.turns, step.work)
        return [buffers[number] for number in self.outputs]


class _Loaded(NamedTuple):
    program: OpenProgram
    kernels: list[OpenKernel]

    def call(self, sizes: tuple[int, ...]) -> _Call:
        program = self.program
        allocated = [(tuple([n(sizes) for n in m.shape]), m.dtype) for m in program.allocated]
        steps = [
            _Step(kernel, step.buffers, step.turns(sizes), step.elements(sizes) * step.work)
            for kernel, step in zip(self.kernels, program.steps)
        ]
        read = frozenset(number for step in steps for number in step.buffers)
        return _Call(sizes, allocated, program.outputs, steps, read)


_calls: OrderedDict[Any, _Call] = OrderedDict()
_programs: dict[Any, list[_Loaded]] = {}


def run_generic(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an operator."""
    compute = partial(op.call_with, Op.compute[op], params)
    return run_computed((op, params), op.name, compute, arrays)


def run_computed(
    key: Hashable, name: str, compute: Callable[..., Any], arrays: Sequence[Array]
) -> list[Array]:
    """What a computation on te tensors gives for arrays; the key tells it from others."""
    return _known(key, arrays, lambda: _call(key, name, compute, arrays)).run(arrays)


def run_written(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an operator whose body is written as loops."""
    return _known((op, params), arrays, lambda: _written_call(op, params, arrays)).run(arrays)


def _known(key: Hashable, arrays: Sequence[Array], make: Callable[[], _Call]) -> _Call:
    """The call of a key on arrays of these shapes and dtypes."""
    whole = (key, *[(array.shape, array.dtype) for array in arrays])
    call = _calls.get(whole)
    if call is None:
        call = _calls[whole] = make()
        if len(_calls) > KEPT:
            _calls.popitem(last=False)
    return call


def _written_call(op: Op, params: Any, arrays: Sequence[Array]) -> _Call:
    inputs = [(array.shape, array.dtype) for array in arrays]
    nothing = [None] * op.outputs_of(params)
    shapes = Op.shape[op](params, [shape for shape, _ in inputs], nothing)[1]
    rule = Op.dtype.get(op) or same_dtype
    dtypes = rule(params, [dtype for _, dtype in inputs], nothing)[1]
    outputs = list(zip(shapes, dtypes))
    lower = partial(lower_written, op, params, inputs, outputs)
    return _made((op, params), op.name, [*inputs, *outputs], lower)


def _call(key: Hashable, name: str, compute: Callable[..., Any], arrays: Sequence[Array]) -> _Call:
    specs = [(array.shape, array.dtype) for array in arrays]
    shapes, dtypes = [shape for shape, _ in specs], [dtype for _, dtype in specs]
    return _made(key, name, specs, lambda: lower_open(name, compute, shapes, dtypes, host()))


def _made(
    key: Hashable, name: str, specs: Sequence[Spec], lower: Callable[[], OpenProgram]
) -> _Call:
    """A call by a program that serves these sizes; it is made if none is there yet."""
    sizes = tuple([n for shape, _ in specs for n in shape if n != 1])
    kind = (key, *[(dtype, *[n == 1 for n in shape]) for shape, dtype in specs])
    known = _programs.setdefault(kind, [])
    for loaded in known:
        if loaded.program.trace.holds(sizes):
            return loaded.call(sizes)
    with compiling(name):
        made = _loaded(lower)
    _programs[kind] = [*known, made][-VARIANTS:]
    return made.call(sizes)


@collector_paused
def _loaded(lower: Callable[[], OpenProgram]) -> _Loaded:
    program = lower()
    return _Loaded(program, [load_kernel(step.kernel) for step in program.steps])
