"""Program: a compiled graph as plain data: what the compiler makes, files hold, executors run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import DType, dtype_name
from ..base.plan import ExecPlan

Array = np.ndarray[Any, np.dtype[Any]]

SHOWN = 4  # inputs or outputs that a line of text names


class TensorSpec(NamedTuple):
    """The name, shape and dtype of an input or output."""

    name: str
    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.name}: {dtype_name(self.dtype)}{list(self.shape)}"


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
    input, output and constant are in the order of the fields of those names."""

    plan: ExecPlan
    objects: tuple[bytes, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[Array, ...]
    target: str
    kernels: tuple[KernelInfo, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # compile times, cache hits, counts
    written: tuple[str, ...] = ()  # inputs that a run changes

    def __repr__(self) -> str:
        return f"Program({described(self)})"


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
