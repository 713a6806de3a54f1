"""Interval arithmetic on integers: what an operation can give, from what its operands can be."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.dtype import BOOL, INT64, DType, is_integer
from .expr import Binary, Broadcast, Cast, Const, Expr, Ramp, Select, Unary, Var, integer_range

Interval = tuple[int, int]
Ranges = Mapping[Var, Interval]

# An int64 variable of unknown range is an index or an extent, and addresses have 47 bits.
INDEX: Interval = (-(2**47), 2**47)


def dtype_range(dtype: DType) -> Interval:
    """All values of an integer dtype or bool."""
    if dtype == BOOL:
        return 0, 1
    return integer_range(dtype)


def has_interval(node: Expr) -> bool:
    return is_integer(node.dtype) or node.dtype == BOOL


def fits(interval: Interval, dtype: DType) -> bool:
    low, high = dtype_range(dtype)
    return low <= interval[0] and interval[1] <= high


def interval_of(node: Expr, inner: list[Interval | None], ranges: Ranges) -> Interval:
    """The interval of an integer or bool node, from those of its parts (None: not an integer)."""
    found = _interval(node, [part or dtype_range(INT64) for part in inner], ranges)
    return found if found is not None and fits(found, node.dtype) else dtype_range(node.dtype)


def _interval(node: Expr, inner: list[Interval], ranges: Ranges) -> Interval | None:
    match node:
        case Var():
            return ranges.get(node, INDEX if node.dtype == INT64 else None)
        case Const(value=value):
            return int(value), int(value)
        case Binary(op=op):
            return _binary(op, inner[0], inner[1])
        case Unary(op="neg"):
            return -inner[0][1], -inner[0][0]
        case Select():
            return _union(inner[1], inner[2])
        case Cast(a=a) if has_interval(a):
            return inner[0]
        case Ramp(lanes=lanes):
            return _add(inner[0], _multiply(inner[1], (0, lanes - 1)))
        case Broadcast():
            return inner[0]
    return None


def _binary(op: str, a: Interval, b: Interval) -> Interval | None:
    match op:
        case "add":
            return _add(a, b)
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            return _multiply(a, b)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "floordiv" if b[0] > 0:
            corners = [x // y for x in a for y in b]
            return min(corners), max(corners)
        case "floormod" if b[0] > 0:
            if a[0] >= 0 and a[1] < b[0]:
                return a
            return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
        case "and" if a[0] >= 0 and b[0] >= 0:
            return 0, min(a[1], b[1])
        case "shr" if a[0] >= 0 and b[0] >= 0:
            return a[0] >> min(b[1], 64), a[1] >> min(b[0], 64)
    return None


def _add(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _multiply(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _union(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), max(a[1], b[1])
