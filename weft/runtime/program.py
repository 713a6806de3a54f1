"""Program: a compiled graph as plain data: what the compiler makes, files hold, executors run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import DType, dtype_name
from ..base.plan import ExecPlan

Array = np.ndarray[Any, np.dtype[Any]]


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


@dataclass(frozen=True)
class Program:
    """`objects` is machine code; `entries` names the native function of each run of kernels.

    The slots of the plan with the roles input, output and constant are in the order of the fields
    of those names.
    """

    plan: ExecPlan
    objects: tuple[bytes, ...]
    entries: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    constants: tuple[Array, ...]
    target: str
    kernels: tuple[KernelInfo, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # compile times, cache hits, counts
    written: tuple[str, ...] = ()  # inputs that a run changes

    def __repr__(self) -> str:
        return f"Program({self.summary()})"

    def summary(self) -> str:
        """What it takes and gives, and how many steps it has, in one line."""
        flow = in_and_out(self.inputs, [spec.name for spec in self.outputs])
        return f"{flow}; {len(self.plan.steps)} steps"


def in_and_out(inputs: Iterable[Any], outputs: Iterable[Any]) -> str:
    """Inputs and outputs in one line, of many only the first.

    >>> in_and_out("abcdef", ["y"])
    'a, b, c, d, ... (6) -> y'
    """
    shown = []
    for values in (list(map(str, inputs)), list(map(str, outputs))):
        more = f", ... ({len(values)})" if len(values) > 4 else ""
        shown.append(", ".join(values[:4]) + more)
    return " -> ".join(shown)
