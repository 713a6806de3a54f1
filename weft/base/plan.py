"""The plain-data contract between compiler and runtime: kernels as code, and the plan of a compiled graph as steps over
slots of memory. Numbers of a plan may follow from the sizes of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .device import Device, cpu
from .dtype import DType
from .errors import InvalidValue
from .sizes import LARGEST, SizeTable

# After so many nanoseconds of work, a run of kernels returns to Python, which then sees signals.
CALL_WORK = 50e6


class At(NamedTuple):
    """A number that the sizes of a call decide: that of a row of the plan's table of sizes. It may have a name."""

    row: int
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"#{self.row}"


Number = int | At
Extents = tuple[int, int, int]  # along x, y and z


def known(number: Number) -> int:
    """A number that is not open.

    >>> known(3)
    3
    """
    if isinstance(number, At):
        raise InvalidValue(
            f"a number of the plan is open, in row {number.row} of its table", hint="plan.bound(sizes), which has none"
        )
    return number


class Launch(NamedTuple):
    """What a kernel is started over: so many blocks, of so many threads each. On a CPU the blocks along x are the
    turns of its parallel loop. Where there are no blocks, nothing runs.

    On a GPU a block may have `shared` bytes beside those in the code, and so many blocks along x may be a `cluster`. A
    `dependent` kernel may start before the one ahead of it ends: it waits itself, before it touches memory.
    """

    blocks: tuple[Number, Number, Number] = (1, 1, 1)
    threads: Extents = (1, 1, 1)
    shared: int = 0
    cluster: int = 1
    dependent: bool = False

    @property
    def turns(self) -> int:
        """The blocks along x."""
        return known(self.blocks[0])


ONCE = Launch()
HOST = cpu()


class TensorMap(NamedTuple):
    """How a GPU's copy engine sees a buffer of a kernel, for which the kernel has a parameter behind its scalars.

    Extents and boxes count elements, from the innermost axis on; strides, of all axes but that, and the offset from
    the buffer's first element count bytes. With `corners` (lower and upper, along w and h) it copies patches of
    images (w, h being the axes 1 and 2), and the box is (channels, pixels). The `element` "tfloat32" is a float32
    that is rounded as it is copied.
    """

    buffer: int
    element: str
    dims: tuple[Number, ...]
    strides: tuple[Number, ...]
    box: tuple[int, ...]
    swizzle: int = 128  # bytes: 0, 32, 64 or 128
    offset: Number = 0
    steps: tuple[int, ...] = ()  # from an element to the next, along each axis; all 1 if there are none
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def with_numbers(self, numbers: Sequence[int]) -> TensorMap:
        """The same where the rows of the table of sizes have these numbers."""
        return self._replace(
            dims=tuple([resolved(dim, numbers) for dim in self.dims]),
            strides=tuple([resolved(stride, numbers) for stride in self.strides]),
            offset=resolved(self.offset, numbers),
        )


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """What a kernel expects of one of its buffers. A None depends on the kernel's scalars."""

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    alignment: int = 0
    written: bool = False


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel as code, whose format its target's runtime knows. What it is launched over is None if that depends on
    the scalars."""

    name: str
    code: bytes = field(repr=False)
    buffers: tuple[BufferSpec, ...]
    scalars: tuple[tuple[str, DType], ...] = ()
    launch: Launch | None = ONCE
    format: str = "object"
    maps: tuple[TensorMap, ...] = ()


class BufferRef(NamedTuple):
    """Memory that a step uses: bytes from `offset` on of a slot. Strides and halos are known to the
    kernel; the offset is where its element (0, 0, ...) lies."""

    slot: int
    offset: Number = 0


class OpenWork(NamedTuple):
    """Nanoseconds that one thread takes for an element, and how many elements there are."""

    each: float
    elements: At


@dataclass(frozen=True, slots=True)
class KernelStep:
    """Run a kernel over its whole launch. `work` is an estimate of the nanoseconds that one thread takes."""

    kernel: str
    buffers: tuple[BufferRef, ...]
    scalars: tuple[Number, ...] = ()
    launch: Launch = ONCE
    work: float | OpenWork = 0.0
    maps: tuple[TensorMap, ...] = ()

    @property
    def nanoseconds(self) -> float:
        """The work, which must not be open."""
        return known(self.work.elements) * self.work.each if isinstance(self.work, OpenWork) else self.work


class Launched(NamedTuple):
    """A kernel by the address of its code, and its memory: arrays that stay where they are, and None for what moves.
    `work` is in nanoseconds of one thread."""

    address: int
    code: object  # which must outlive it
    memory: Sequence[Any]
    scalars: tuple[int, ...]
    turns: int
    work: float


@dataclass(frozen=True, slots=True)
class HostStep:
    """Call a global function of the runtime by name, between two runs of kernels. Shapes among the `tensors` of its
    attributes may be open."""

    function: str
    buffers: tuple[BufferRef, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Step = KernelStep | HostStep


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of a device's memory that steps refer to by its number.

    `arena`: at `offset` in the arena that one run owns. `input`, `output`, `constant`: given from
    outside, in the order of the slots of that role.
    """

    role: str
    size: Number
    offset: Number = 0
    name: str = ""
    device: Device = HOST

    def __post_init__(self) -> None:
        if self.role not in ("input", "output", "constant", "arena"):
            raise InvalidValue(f"a slot has the role {self.role!r}")
        for number in (self.size, self.offset):
            if not isinstance(number, At) and not 0 <= number <= LARGEST:
                raise InvalidValue(f"a slot of {self.size} bytes at {self.offset}")


@dataclass(frozen=True, slots=True, repr=False)
class ExecPlan:
    """A compiled graph: its steps in order, the slots they use, and the bytes of the arena.

    >>> plan = ExecPlan((KernelStep("k", (BufferRef(0),)),), (Slot("output", 16),))
    >>> [len(segment) for segment in plan.segments()]
    [1]

    The steps may be several equal `runs`, one behind the other, as for each of some images: they share constants, read
    and write other parts of inputs and outputs, and none reads what another left in the arena.

    With a table of sizes it is open: what is `At` a row of the table is a number once the sizes are known.

    >>> from weft.base.sizes import NUMBER, SIZE, Guard, Row
    >>> table = SizeTable((Row(SIZE, 0), Row(NUMBER, 4), Row("mul", 0, 1)), (Guard("gt", 0, 1, True),))
    >>> open_plan = ExecPlan((), (Slot("output", At(2)),), sizes=table)
    >>> open_plan.bound([5]).slots[0].size, open_plan.bound([3])
    (20, None)
    """

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    arena_bytes: Number = 0
    sizes: SizeTable | None = None
    runs: int = 1

    def __post_init__(self) -> None:
        if self.runs < 1 or len(self.steps) % self.runs or (self.runs > 1 and self.is_open):
            raise InvalidValue(f"a plan of {len(self.steps)} steps in {self.runs} runs")
        rows = 0 if self.sizes is None else len(self.sizes.rows)
        for number, step in enumerate(self.steps):
            for slot, offset in step.buffers:
                if not 0 <= slot < len(self.slots):
                    raise InvalidValue(f"step {number} uses slot {slot} of {len(self.slots)}")
                if offset != 0 and not _is_within(offset, self.slots[slot].size, rows):
                    raise InvalidValue(f"step {number} uses byte {offset} of slot {slot}")
            if isinstance(step, KernelStep):
                _check_kernel_step(number, step, rows)
                continue
            for shape, _ in step.attrs.get("tensors", ()):
                for dim in shape:
                    check_row(dim, rows)
        for number, memory in enumerate(self.slots):
            check_row(memory.size, rows)
            check_row(memory.offset, rows)
            if memory.role == "arena" and not _is_within(memory.size, self.arena_bytes, rows, memory.offset):
                raise InvalidValue(f"slot {number} ends outside the arena")
        check_row(self.arena_bytes, rows)

    def __repr__(self) -> str:
        kernels = sum(isinstance(step, KernelStep) for step in self.steps)
        hosts = f", {len(self.steps) - kernels} host steps" if kernels < len(self.steps) else ""
        return f"ExecPlan({kernels} kernels{hosts}, {len(self.slots)} slots, an arena of {self.arena_bytes} bytes)"

    @property
    def is_open(self) -> bool:
        """Whether it runs only when it is bound to sizes."""
        return self.sizes is not None

    def bound(self, sizes: Sequence[int]) -> ExecPlan | None:
        """The plan for these sizes, in which no number is open; None if it does not serve them."""
        if self.sizes is None:
            return self
        numbers = self.sizes.numbers(sizes)
        return None if numbers is None else self.with_numbers(numbers)

    def with_numbers(self, numbers: Sequence[int]) -> ExecPlan:
        """The plan in which the rows of the table have these numbers."""
        slots = tuple(
            Slot(s.role, resolved(s.size, numbers), resolved(s.offset, numbers), s.name, s.device) for s in self.slots
        )
        steps = tuple(_bound_step(step, numbers) for step in self.steps)
        return ExecPlan(steps, slots, resolved(self.arena_bytes, numbers))

    def segments(self) -> list[tuple[KernelStep, ...] | HostStep]:
        """The steps as runs of kernels, each one native call, and host steps between them. Long
        runs are cut, so that an interrupt is seen between two kernels."""
        result: list[tuple[KernelStep, ...] | HostStep] = []
        run: list[KernelStep] = []
        work = 0.0
        for step in self.steps:
            if isinstance(step, HostStep):
                result += [tuple(run), step] if run else [step]
                run, work = [], 0.0
                continue
            run.append(step)
            work += step.nanoseconds
            if work >= CALL_WORK:
                result.append(tuple(run))
                run, work = [], 0.0
        return result + ([tuple(run)] if run else [])


def resolved(number: Number, numbers: Sequence[int]) -> int:
    """What a number is where the rows of the table have these numbers."""
    return numbers[number.row] if isinstance(number, At) else number


def _bound_step(step: Step, numbers: Sequence[int]) -> Step:
    refs = step.buffers
    if any([isinstance(offset, At) for _, offset in refs]):
        refs = tuple([BufferRef(slot, resolved(offset, numbers)) for slot, offset in refs])
    if isinstance(step, HostStep):
        return _bound_host_step(step, refs, numbers)
    launch, work = step.launch, step.work
    if launch is not ONCE:
        x, y, z = launch.blocks
        launch = launch._replace(blocks=(resolved(x, numbers), resolved(y, numbers), resolved(z, numbers)))
    if isinstance(work, OpenWork):
        work = work.each * numbers[work.elements.row]
    scalars = tuple([resolved(scalar, numbers) for scalar in step.scalars])
    maps = tuple([tensor_map.with_numbers(numbers) for tensor_map in step.maps])
    return KernelStep(step.kernel, refs, scalars, launch, work, maps)


def _bound_host_step(step: HostStep, refs: tuple[BufferRef, ...], numbers: Sequence[int]) -> HostStep:
    attrs = dict(step.attrs)
    if "tensors" in attrs:
        attrs["tensors"] = [([resolved(dim, numbers) for dim in shape], dtype) for shape, dtype in attrs["tensors"]]
    return HostStep(step.function, refs, attrs)


def _is_within(number: Number, most: Number, rows: int, more: Number = 0) -> bool:
    """Whether a number and some more are at most another, as far as they are known; open ones must be rows."""
    if isinstance(number, At) or isinstance(most, At) or isinstance(more, At):
        for open_number in (number, most, more):
            check_row(open_number, rows)
        return True
    return 0 <= number <= most - more


def check_row(number: Number, rows: int) -> None:
    """Raises if a number is open and no row of a table of so many."""
    if isinstance(number, At) and not 0 <= number.row < rows:
        raise InvalidValue(f"a number of a plan stands in row {number.row} of a table of {rows}")


def _check_kernel_step(number: int, step: KernelStep, rows: int) -> None:
    for blocks in step.launch.blocks:
        if blocks != 1 and not _is_within(blocks, LARGEST, rows):
            raise InvalidValue(f"step {number} is launched over {blocks} blocks")
    for scalar in step.scalars:
        if isinstance(scalar, At):
            check_row(scalar, rows)
        elif not -LARGEST - 1 <= scalar <= LARGEST:
            raise InvalidValue(f"step {number} has the scalar {scalar}", why="it has 64 bits")
    if isinstance(step.work, OpenWork):
        check_row(step.work.elements, rows)
    if step.launch.shared < 0 or step.launch.cluster < 1:
        raise InvalidValue(f"step {number} has {step.launch.shared} shared bytes, clusters of {step.launch.cluster}")
    for tensor_map in step.maps:
        _check_map(number, tensor_map, len(step.buffers), rows)


def _check_map(number: int, tensor_map: TensorMap, buffers: int, rows: int) -> None:
    if not 0 <= tensor_map.buffer < buffers:
        raise InvalidValue(f"step {number} maps buffer {tensor_map.buffer} of {buffers}")
    if len(tensor_map.strides) != len(tensor_map.dims) - 1:
        raise InvalidValue(f"step {number} maps {len(tensor_map.dims)} axes by {len(tensor_map.strides)} strides")
    for open_number in (*tensor_map.dims, *tensor_map.strides, tensor_map.offset):
        if not _is_within(open_number, LARGEST, rows):
            raise InvalidValue(f"step {number} maps memory by {open_number}")
