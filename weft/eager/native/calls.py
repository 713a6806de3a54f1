"""The table of native calls. Families of kernels register here for the operators they run:

    @native("softmax", takes=floats)
    def run_softmax(op, params, arrays): ...

The column `native_from` says from which sizes on they do. A call comes in as operator, params and arrays, its outputs
go out. None says that numpy is as fast for these sizes; a call that the kernels cannot serve is declined with a reason,
which is counted as `weft.native_declined.OP.REASON` and told under WEFT_DEBUG=dispatch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, ParamSpec

import numpy as np

from ...base import config, counters
from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.errors import GraphError, InvalidType, InvalidValue, OutOfRange
from ...core.infer import infer_node
from ...core.ir import Fact
from ...core.op import Op
from ...core.pattern import OpPattern
from .thresholds import FROM

P = ParamSpec("P")
Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]
Run = Callable[[Op, Any, Arrays], Any]
Check = Callable[[Arrays], None]
Facts = tuple[tuple[tuple[int, ...], DType], ...]
Reason = Literal[
    "attributes",  # the kernels have no such form of the operator
    "compute",  # is not one that such kernels are made of
    "dtype",
    "empty",
    "layout",
    "not contiguous",
    "not finite",  # where zeros stand for nothing, which infinity and NaN do not survive
    "operator",  # has no native calls
    "overlap",  # memory is written that is still to be read
    "rank",
    "saved",  # the gradient needs what would be overwritten
    "shapes",
    "singular",
    "size",  # of extents whose sums are no 32-bit numbers
    "strides",
]


class Declined(Exception):
    """A call that native code does not serve, and why."""

    def __init__(self, reason: Reason) -> None:
        self.reason = reason


_told: set[tuple[str, Reason]] = set()


def count_declined(name: str, reason: Reason) -> None:
    """Counts that native code declined a call, and tells the first of a kind."""
    if counters.counting:
        counters.add_stat_value(f"weft.native_declined.{name}.{reason}", 1)
    if (name, reason) not in _told:
        _told.add((name, reason))
        if "dispatch" in config.get("debug"):
            print(f"weft: {name} is left to numpy: {reason}", file=sys.stderr)


def attempted(name: str, run: Callable[P, None]) -> Callable[P, bool]:
    """Runs and says whether native code did it; where it declined, nothing was done."""

    def attempt(*args: P.args, **kwargs: P.kwargs) -> bool:
        try:
            run(*args, **kwargs)
        except Declined as declined:
            count_declined(name, declined.reason)
            return False
        return True

    return attempt


# What arrays families take.


def floats(arrays: Arrays) -> None:
    """Arrays of one dtype, float32 or float64, that are not empty."""
    dtype = arrays[0].dtype
    if dtype not in (FLOAT32, FLOAT64):
        raise Declined("dtype")
    for array in arrays:
        if array.dtype != dtype:
            raise Declined("dtype")
        if not array.size:
            raise Declined("empty")


def numbers(arrays: Arrays) -> None:
    """Arrays of any real numbers, that are not empty."""
    if any([array.dtype.kind not in "fiub" for array in arrays]):
        raise Declined("dtype")
    not_empty(arrays)


def not_empty(arrays: Arrays) -> None:
    if any([not array.size for array in arrays]):
        raise Declined("empty")


@lru_cache(1 << 13)
def inferred(op: Op, params: Any, facts: Facts) -> tuple[Fact, ...]:
    """What the outputs of a call on arrays of these shapes and dtypes are."""
    try:
        return infer_node(op, params, [Fact(*fact) for fact in facts], op.name)
    except (InvalidValue, InvalidType, OutOfRange, GraphError):  # all that rules say of shapes and dtypes
        raise Declined("shapes") from None


def facts_of(arrays: Arrays) -> Facts:
    return tuple([(array.shape, array.dtype) for array in arrays])


NativeCall = Callable[[Any, Arrays], Any]  # takes params and arrays
NEVER = 1 << 62  # elements


def smallest(op: Op) -> int:
    """From how many elements in the largest array on it is worth asking native code: what the operator says, and for
    element-wise ones that say nothing what functions of elements need."""
    if op.native_from is not None:
        return op.native_from
    return FROM.functions if is_element_wise(op) else NEVER


def is_element_wise(op: Op) -> bool:
    return has_plain_compute(op) and op.pattern in (OpPattern.ELEM_WISE, OpPattern.BROADCAST)


def has_plain_compute(op: Op) -> bool:
    """Whether an operator has a compute that says all it does."""
    return Op.compute.contains(op) and not Op.mutates.contains(op) and not Op.alias.contains(op)


class _Row(NamedTuple):
    """What runs calls of an operator, on which arrays, and whether those are compared with what the operator
    infers first, because the kernels do not look."""

    run: Run
    takes: Check | None
    fitting: bool

    def checked(self, op: Op, params: Any, arrays: Arrays) -> Any:
        if self.takes is not None:
            self.takes(arrays)
        if self.fitting:
            params = params if op.parser is not None else None
            inferred(op, params, facts_of(arrays))
        return self.run(op, params, arrays)


_rows: dict[str, _Row] = {}


def native(*names: str, takes: Check | None = None, fitting: bool = True) -> Callable[[Run], Run]:
    """Registers what runs calls of some operators."""

    def register(run: Run) -> Run:
        _rows.update(dict.fromkeys(names, _Row(run, takes, fitting)))
        return run

    return register


def registered(op: Op) -> NativeCall | None:
    """What runs calls by the family that registered for an operator, if one did."""
    row = _rows.get(op.name)
    if row is None or op.native_from is None:
        return None
    plain = row.takes is None and not row.fitting
    return partial(row.run if plain else row.checked, op)
