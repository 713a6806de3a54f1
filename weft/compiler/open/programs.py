"""Programs of eager calls by key: lowered and compiled once on a machine. Other processes find them in the disk cache,
where a key has several: each serves the sizes that answer its guards. Those of one kernel whose numbers are all given
serve every call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple

from ...base.cpu_target import CpuTarget, host
from ...base.errors import Error, RunError
from ...base.file_cache import file_cache
from ...base.plan import ONCE, At, BufferRef, ExecPlan, KernelCode, KernelStep, Launch, OpenWork, Slot
from ...base.sizes import SIZE, Row, SizeTable
from ...core.bulk import collector_paused
from ...lower.group import Spec, Temporary
from ...runtime.artifact import program_bytes, program_of
from ...runtime.cpu.open_program import Call, OpenProgram
from ...runtime.program import Program, TensorSpec
from ...te.loops import Kernel
from ..kernels import kernel_cache
from ..locations import Locations, as_number
from .calls import LoweredCall
from .keys import compiling, file_key, making

VARIANTS = 16  # programs of one key that differ by what they asked about sizes

_programs: dict[Hashable, list[OpenProgram]] = {}


def open_call(key: Hashable, name: str, sizes: Sequence[int], lower: Callable[[], LoweredCall]) -> Call:
    """What runs a program of a key at these sizes; `lower` writes it when there is none that serves them.

    A key of texts, numbers and dtypes holds for other processes, too: it says all that decides what is written, weft's
    own sources aside.
    """
    call = _served(key, sizes)
    if call is None:
        with making:
            call = _served(key, sizes)
            if call is None:
                program = _found_or_made(key, name, sizes, lambda: assembled(lower(), host()))
                _programs[key] = [*_programs.get(key, ()), program][-VARIANTS:]
                call = program.at(sizes)
    assert call is not None
    return call


def kernel_program(key: Hashable, write: Callable[[CpuTarget], Kernel]) -> OpenProgram:
    """The program of the kernel of a key, which `write` writes for this machine when it is asked for first."""
    found = _programs.get(key)
    if found is None:
        with making:
            if key not in _programs:
                make = lambda: of_kernel(kernel_cache.compiled(write(host()), host()), host())
                _programs[key] = [_found_or_made(key, key, None, make)]
            found = _programs[key]
    return found[0]


def _served(key: Hashable, sizes: Sequence[int]) -> Call | None:
    return next((call for program in _programs.get(key, ()) if (call := program.at(sizes)) is not None), None)


@collector_paused
def _found_or_made(
    key: Hashable, name: object, sizes: Sequence[int] | None, make: Callable[[], Program]
) -> OpenProgram:
    """A loaded program of a key; of one that needs no sizes there is one for all of them."""
    kept = _kept(key, sizes)
    if kept.program is not None:
        with suppress(RunError):
            return OpenProgram(kept.program)
    with compiling(name):
        program = make()
        made = OpenProgram(program)
    if kept.program is None:
        kept = _kept(key, sizes)  # what other processes have kept in the meantime stays
        if kept.program is not None:
            return made
    disk = file_cache()
    if disk is not None and kept.name is not None:
        disk.put(kept.name, program_bytes(program))
    return made


class _Kept(NamedTuple):
    """A program of the disk cache, and the key of its place there. Without a program: where one
    would stand, if there is a cache and the key is all text."""

    program: Program | None
    name: bytes | None


def _kept(key: Hashable, sizes: Sequence[int] | None) -> _Kept:
    """What is kept for these sizes. A new program's place is the first where nothing whole stands,
    else one that the sizes choose."""
    disk = file_cache()
    for place in range(VARIANTS):
        name = None if disk is None else file_key(("program", key, place), host())
        if disk is None or name is None:
            return _Kept(None, None)
        data = disk.get(name)
        program = None if data is None else _read(data, None if sizes is None else len(sizes))
        if program is None or sizes is None or _serves(program, sizes):
            return _Kept(program, name)
    assert sizes is not None
    return _Kept(None, file_key(("program", key, sum(sizes) % VARIANTS), host()))


def _serves(program: Program, sizes: Sequence[int]) -> bool:
    return program.plan.sizes is None or program.plan.sizes.numbers(sizes) is not None


def _read(data: bytes, sizes: int | None) -> Program | None:
    """The program of a file, if it is one of so many sizes."""
    try:
        program = program_of(data)
    except Error:
        return None
    return program if sizes in (None, len(program.open_sizes)) else None


# From kernels to a program


def assembled(call: LoweredCall, target: CpuTarget) -> Program:
    """The program of a call."""
    places, trace = Locations(), call.trace
    for number, (shape, dtype) in enumerate([*call.inputs, *call.outputs]):
        places.add(number, "input" if number < len(call.inputs) else "output", prod(shape) * dtype.itemsize)
    for number, (_, arguments, _) in enumerate(call.kernels):
        for argument in arguments:
            if isinstance(argument, Temporary) and argument not in places:
                places.add(argument, "arena", prod(argument.shape) * argument.dtype.itemsize)
            places.use(argument, number)
    slots, refs, arena_bytes = places.plan()
    codes = {kernel: kernel_cache.compiled(kernel, target) for kernel, _, _ in call.kernels}
    scalars = tuple(map(At, trace.scalars.values()))
    each = target.nanoseconds_per_operation
    steps = [
        KernelStep(
            codes[kernel].name,
            tuple(refs[argument] for argument in arguments),
            scalars if kernel.scalars else (),
            _launch(kernel, call),
            OpenWork(each, number) if isinstance(number := as_number(work), At) else number * each,
        )
        for kernel, arguments, work in call.kernels
    ]
    inputs, outputs = _specs("in", call.inputs), _specs("out", call.outputs)
    table = trace.table() if call.sizes else None
    plan = ExecPlan(tuple(steps), slots, as_number(arena_bytes), table)
    objects = tuple({code.name: code.code for code in codes.values()}.values())
    return Program(plan, objects, inputs, outputs, (), str(target), open_sizes=call.sizes)


def of_kernel(code: KernelCode, target: CpuTarget) -> Program:
    """The program of one kernel whose numbers are all given: its scalars, then its turns, then nanoseconds of work. So
    are its arrays, of whose extents the program knows nothing."""
    scalars, buffers = len(code.scalars), code.buffers
    given = [At(number) for number in range(scalars + 2)]
    refs = tuple(map(BufferRef, range(len(buffers))))
    launch = Launch((given[scalars], 1, 1))
    step = KernelStep(code.name, refs, tuple(given[:scalars]), launch, OpenWork(1.0, given[-1]))
    slots = tuple(Slot("input", 0, name=buffer.name) for buffer in buffers)
    table = SizeTable(tuple(Row(SIZE, at.row) for at in given), ())
    inputs = tuple(TensorSpec(buffer.name, (0,), buffer.dtype) for buffer in buffers)
    sizes = tuple((len(inputs), at.row) for at in given)
    return Program(ExecPlan((step,), slots, 0, table), (code.code,), inputs, (), (), str(target), open_sizes=sizes)


def _launch(kernel: Kernel, call: LoweredCall) -> Launch:
    if kernel.parallel is None:
        return ONCE
    return Launch((as_number(call.trace.extent_of(kernel.parallel.extent)), 1, 1))


def _specs(name: str, specs: Sequence[Spec]) -> tuple[TensorSpec, ...]:
    shapes = [(tuple(map(as_number, shape)), dtype) for shape, dtype in specs]
    return tuple(TensorSpec(f"{name}{number}", *spec) for number, spec in enumerate(shapes))
