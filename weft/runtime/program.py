"""Program: a compiled graph as plain data: what the compiler makes, files hold, executors run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import DType, dtype_name
from ..base.errors import InvalidValue, ShapeError
from ..base.plan import At, ExecPlan, Number, check_row, known, resolved
from ..base.sizes import SIZE

Array = np.ndarray[Any, np.dtype[Any]]

SHOWN = 4  # inputs or outputs that a line of text names


class TensorSpec(NamedTuple):
    """The name, shape and dtype of an input or output. In a program whose sizes are open, dimensions may be so.

    >>> str(TensorSpec("x", (At(3), 8), np.dtype("float32")))
    'x: float32[#3, 8]'
    """

    name: str
    shape: tuple[Number, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}: {dtype_name(self.dtype)}[{', '.join(map(str, self.shape))}]"

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape, which must not be open."""
        return tuple([known(dim) for dim in self.shape])

    @property
    def dims(self) -> tuple[int | str, ...]:
        """The shape, with a name for each number that is open."""
        return tuple([str(dim) if isinstance(dim, At) else dim for dim in self.shape])

    def with_numbers(self, numbers: Sequence[int]) -> TensorSpec:
        """The same where the rows of the table of sizes have these numbers."""
        return self._replace(shape=tuple(resolved(dim, numbers) for dim in self.shape))


class KernelInfo(NamedTuple):
    """What a report says about a kernel."""

    name: str
    symbol: str
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    isa: str


@dataclass(frozen=True, repr=False)
class Program:
    """`objects` is machine code, in which the kernels of the plan's steps are. The slots of the plan with the roles
    input, output and constant are in the order of the fields of those names.

    Of a plan that is open, `open_sizes` tells what the sizes of its table are: for each the number of an input, and an
    axis of that; outputs count on from the inputs, where only who binds a program knows their sizes, and numbers that
    are no sizes of arrays come after them. All programs that are bound to sizes share code and constants.
    """

    plan: ExecPlan
    objects: tuple[bytes, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[Array, ...]
    target: str
    kernels: tuple[KernelInfo, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # compile times, cache hits, counts
    written: tuple[str, ...] = ()  # inputs that a run changes
    open_sizes: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if bool(self.open_sizes) != self.plan.is_open:
            raise InvalidValue(f"a program of {len(self.open_sizes)} open sizes", why="a table of sizes is for some")
        specs = (*self.inputs, *self.outputs)
        for number, axis in self.open_sizes:
            most = len(specs[number].shape) if 0 <= number < len(specs) else len(self.open_sizes)
            if not 0 <= number <= len(specs) or not 0 <= axis < most:
                raise InvalidValue(f"an open size is axis {axis} of input {number}", why="there is none")
        rows = () if self.plan.sizes is None else self.plan.sizes.rows
        for spec in specs:
            for dim in spec.shape:
                check_row(dim, len(rows))
        for row in rows:
            if row.op == SIZE and not 0 <= row.a < len(self.open_sizes):
                raise InvalidValue(f"a table of sizes asks for size {row.a} of {len(self.open_sizes)}")

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """The open sizes of a call whose inputs have these shapes."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            dims = zip(spec.shape, shape)
            if len(spec.shape) != len(shape) or any(a != b for a, b in dims if not isinstance(a, At)):
                raise ShapeError(f"input {spec.name!r} has shape {shape}", why=f"expected {spec}")
        if any(number >= len(shapes) for number, _ in self.open_sizes):
            raise InvalidValue("sizes are open that are not those of inputs", hint="program.bound(sizes), with theirs")
        return [shapes[number][axis] for number, axis in self.open_sizes]

    def bound(self, sizes: Sequence[int]) -> Program | None:
        """The program for these sizes, in which nothing is open; None if it does not serve them."""
        if self.plan.sizes is None:
            return self
        numbers = self.plan.sizes.numbers(sizes)
        if numbers is None:
            return None
        made = replace(
            self,
            plan=self.plan.with_numbers(numbers),
            inputs=tuple(spec.with_numbers(numbers) for spec in self.inputs),
            outputs=tuple(spec.with_numbers(numbers) for spec in self.outputs),
            open_sizes=(),
        )
        check_slots(made)
        return made

    def __repr__(self) -> str:
        return f"Program({described(self)})"


def check_slots(program: Program) -> None:
    """Raises unless slots are as large as the arrays they stand for: kernels would run past them."""
    tensors = {
        "input": [_bytes(spec) for spec in program.inputs],
        "output": [_bytes(spec) for spec in program.outputs],
        "constant": [array.nbytes for array in program.constants],
    }
    for role, sizes in tensors.items():
        slots = [slot.size for slot in program.plan.slots if slot.role == role]
        if slots != sizes:
            raise InvalidValue(f"the {role}s do not fit their slots", why=f"{sizes} and {slots}")


def _bytes(spec: TensorSpec) -> int:
    if any(dim < 0 for dim in spec.extents):
        raise InvalidValue(f"a tensor is {spec}", why="an extent is below 0")
    return prod(spec.extents) * spec.dtype.itemsize


def described(program: Program) -> str:
    """A program in a line: inputs, outputs, how many kernels, for what."""
    isa = sorted({kernel.isa for kernel in program.kernels})
    count = len(program.kernels)
    made = f"{count} kernel{'s' * (count != 1)}" + (f" for {', '.join(isa)}" if isa else "")
    return f"{listed(program.inputs)} -> {listed(program.outputs)}; {made}"


def listed(specs: Sequence[object]) -> str:
    """Inputs or outputs as text; of many, the first.

    >>> listed(["a: float32[2]", "b: float32[3]"])
    'a: float32[2], b: float32[3]'
    """
    more = f", and {len(specs) - SHOWN} more" if len(specs) > SHOWN else ""
    return ", ".join(map(str, specs[:SHOWN])) + more
