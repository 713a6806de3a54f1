"""Element-wise updates of lists of arrays, in one native call: parameters, their gradients and states."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import DType
from ...lower.cpu.nests.lists import TURN, Update, list_kernel
from ...runtime.addresses import address_of
from ...runtime.cpu.open_program import OpenProgram
from ...te import intrinsics
from ...te.expr import Binary, Call, Expr, Var, maximum, minimum, select
from ...te.printer import show
from ...te.visit import postorder
from .calls import Array
from .kernels import kernel_program

Words = np.ndarray[Any, np.dtype[np.int64]]


def _sign(x: Expr) -> Expr:
    return select(x > 0, 1.0, select(x < 0, -1.0, x))  # of NaN it is NaN


# Functions of elements, under the names that tensors' have.
ELEMENTS: Any = SimpleNamespace(
    sqrt=intrinsics.sqrt,
    abs=intrinsics.abs,
    sign=_sign,
    maximum=maximum,
    where=select,
    clamp=lambda x, least, most: minimum(maximum(x, least), most),
)


class ListUpdate:
    """A rule `rule(m, numbers, *elements)`, which gives the new elements of some lists, as a kernel."""

    def __init__(
        self,
        rule: Callable[..., Sequence[Any]],
        dtype: DType,
        lists: int,
        numbers: Sequence[str],
        written: Sequence[int],
    ) -> None:
        operands = tuple([Var(f"x{number}", dtype) for number in range(lists)])
        shared = {name: Var(name, dtype) for name in numbers}
        results = tuple(zip(written, rule(ELEMENTS, SimpleNamespace(**shared), *operands), strict=True))
        values = [value for _, value in results]
        calls = sum([isinstance(x, Call) or (isinstance(x, Binary) and x.op == "div") for x in postorder(values)])
        update = Update(operands, tuple(shared.values()), results, calls)
        self.element = lists * COSTS.moved + calls * COSTS.computed
        text = tuple([(number, show(value)) for number, value in results])
        key: Hashable = ("lists", dtype, lists, tuple(numbers), text)
        self.kernel: OpenProgram = kernel_program(key, lambda target: list_kernel("lists", update, target))

    def run(self, firsts: Sequence[Array], table: Words, numbers: Array, places: Words, elements: int) -> None:
        """Changes the elements of all arrays; `list_kernel` says what the arguments are."""
        turns = len(places)
        sizes = (turns, len(table), len(numbers))
        self.kernel.given(sizes, turns, elements * self.element).run([*firsts, table, numbers, places])


def addresses(arrays: Sequence[Array]) -> Words:
    """Where arrays begin."""
    return np.array([address_of(array) for array in arrays], np.int64)


def places_of(sizes: Words) -> Words:
    """The turns over arrays of these sizes: which array, and from which element on."""
    counts = -(-sizes // TURN)
    rows = np.repeat(np.arange(len(sizes), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    firsts = (np.arange(len(rows), dtype=np.int64) - np.repeat(ends - counts, counts)) * TURN
    return np.ascontiguousarray(np.stack([rows, firsts], 1))
