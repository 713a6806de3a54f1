"""Open programs by key: lowered and compiled once on a machine. Other processes find them in the
disk cache, where a key has several: each serves the sizes that answer its guards."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...base.cpu_target import host
from ...base.dtype import as_dtype, dtype_name
from ...base.errors import Error, FormatError, RunError
from ...base.file_cache import file_cache
from ...base.plan import KernelCode
from ...base.sizes import read_table
from ...core.bulk import collector_paused
from ...lower.cpu.open.generic import OpenMemory, OpenProgram, OpenStep
from ...runtime.cpu.open_kernel import OpenKernel, load_kernels
from ...te.loops import Kernel
from ..disk_cache import CompiledKernel, decoded, encoded
from ..kernels import kernel_cache
from .kernels import compiling, file_key

VARIANTS = 16  # programs of one key that differ by what they asked about sizes


@collector_paused
def open_program(
    key: Hashable, name: str, inputs: int, sizes: Sequence[int], lower: Callable[[], OpenProgram[Kernel]]
) -> OpenProgram[OpenKernel]:
    """A program of a key that serves these sizes, for so many inputs; `lower` writes it when there
    is none. What a key is, `open_kernel` says."""
    kept = _kept(key, inputs, sizes)
    if kept.program is not None:
        with suppress(RunError):
            return _linked(kept.program)
    with compiling(name):
        target, lowered = host(), lower()
        codes = [kernel_cache.compiled(step.kernel, target) for step in lowered.steps]
        program: OpenProgram[KernelCode] = lowered.with_kernels(codes)
        made = _linked(program)
    if kept.program is None:
        kept = _kept(key, inputs, sizes)  # what other processes have kept in the meantime stays
        if kept.program is not None:
            return made
    disk = file_cache()
    if disk is not None and kept.name is not None:
        disk.put(kept.name, written_program(program))
    return made


class _Kept(NamedTuple):
    """A program of the disk cache, and the key of its place there. Without a program: where one
    would stand, if there is a cache and the key is all text."""

    program: OpenProgram[KernelCode] | None
    name: bytes | None


def _kept(key: Hashable, inputs: int, sizes: Sequence[int]) -> _Kept:
    """What is kept for these sizes. A new program's place is the first where nothing whole stands,
    else one that the sizes choose."""
    disk = file_cache()
    for place in range(VARIANTS):
        name = None if disk is None else _name(key, place)
        if disk is None or name is None:
            return _Kept(None, None)
        data = disk.get(name)
        program = None if data is None else read_program(data, inputs, len(sizes))
        if program is None or program.table.numbers(sizes) is not None:
            return _Kept(program, name)
    return _Kept(None, _name(key, sum(sizes) % VARIANTS))


def _name(key: Hashable, place: int) -> bytes | None:
    return file_key(("program", key, place), host())


def _linked(program: OpenProgram[KernelCode]) -> OpenProgram[OpenKernel]:
    return program.with_kernels(load_kernels([step.kernel for step in program.steps]))


# Bytes: a line of JSON, then the kernels


def written_program(program: OpenProgram[KernelCode]) -> bytes:
    """A program as bytes."""
    head = {
        "rows": program.table.rows,
        "guards": program.table.guards,
        "allocated": [[dtype_name(memory.dtype), memory.shape] for memory in program.allocated],
        "outputs": program.outputs,
        "steps": [[step.turns, step.elements, step.work] for step in program.steps],
    }
    kernels = [CompiledKernel(s.kernel.name, s.kernel, s.buffers, 0) for s in program.steps]
    return json.dumps(head).encode() + b"\n" + encoded(kernels)


def read_program(data: bytes, inputs: int, sizes: int) -> OpenProgram[KernelCode] | None:
    """What `written_program` was given, if that is for so many inputs and sizes; else None."""
    line, _, rest = data.partition(b"\n")
    kernels = decoded(rest)
    if kernels is None:
        return None
    try:
        head = json.loads(line)
        table = read_table(head["rows"], head["guards"], sizes)
        rows, buffers = len(table.rows), inputs + len(head["allocated"])
        allocated = [OpenMemory(_places(shape, rows), as_dtype(dtype)) for dtype, shape in head["allocated"]]
        steps = [
            _step(kernel, _places(at, rows), _work(work), buffers, sizes)
            for kernel, (*at, work) in zip(kernels, head["steps"], strict=True)
        ]
        outputs = _places(head["outputs"], buffers)
    except (ValueError, KeyError, TypeError, RecursionError, Error):
        return None
    return OpenProgram(table, tuple(allocated), outputs, tuple(steps))


def _places(found: Any, end: int) -> tuple[int, ...]:
    if not all(type(place) is int and 0 <= place < end for place in found):
        raise FormatError(f"{found!r} are no places below {end}")
    return tuple(found)


def _step(kernel: CompiledKernel, at: tuple[int, ...], work: float, buffers: int, sizes: int) -> OpenStep[KernelCode]:
    """A step whose kernel takes the sizes, and as many buffers as it is given."""
    (turns, elements), code = at, kernel.code
    if len(code.scalars) != sizes or len(code.buffers) != len(kernel.arguments):
        raise FormatError(f"kernel {code.name} takes other arguments")
    return OpenStep(code, _places(kernel.arguments, buffers), turns, elements, work)


def _work(found: Any) -> float:
    work = float(found)
    if not (math.isfinite(work) and work >= 0):
        raise FormatError(f"{found!r} nanoseconds of work")
    return work
