"""What each scalar operation means, on numpy values: (operation, dtype) -> a function.

A value is a numpy scalar, or a one-dimensional array with one element per lane. 16-bit floats are
computed in float32 and rounded after every operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from ..base.dtype import BOOL, FLOAT32, INT64, DType, is_float, is_integer
from ..base.errors import DTypeError
from ..base.sizes import OPERATIONS
from .expr import Binary, Broadcast, Call, Cast, Compare, Const, Expr, Ramp, Select, Shuffle, Unary
from .linear import wrapped
from .visit import parts

Value = Any  # numpy.generic or numpy.ndarray
Function = Callable[..., Value]


def _truncated_quotient(a: Value, b: Value) -> Value:
    quotient = np.floor_divide(a, b)
    inexact = (a - quotient * b != 0) & (b != 0)
    return (quotient + (inexact & ((a < 0) != (b < 0)))).astype(a.dtype)


def _integer_power(a: Value, b: Value) -> Value:
    """numpy refuses negative powers; truncated, they are 0 for all but 1 and -1 (and 0 of 0)."""
    whole = np.power(a, np.maximum(b, 0))
    sign = np.where(np.equal(a, 1), 1, np.where(np.equal(a, -1), 1 - 2 * (b & 1), 0))
    return np.where(np.less(b, 0), sign, whole).astype(a.dtype)[()]


def _select(condition: Value, a: Value, b: Value) -> Value:
    chosen: Value = np.where(condition, a, b)
    return chosen[()]


def _sigmoid(x: Value) -> Value:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)[()]


def _fma(a: Value, b: Value, c: Value) -> Value:
    """float32 products are exact in float64, the sum is rounded there; float64 rounds twice."""
    wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return wide.astype(a.dtype)


def _tf32_rest(x: Value) -> Value:
    """What is left of a float32 beside its first 19 bits."""
    whole = np.asarray(x, np.float32)
    return (whole - (whole.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))[()]


def _dot_bytes(total: Value, x: Value, y: Value) -> Value:
    for shift in (0, 8, 16, 24):
        unsigned = np.right_shift(x, shift) & 255
        signed = np.right_shift(np.left_shift(y, 24 - shift), 24)
        total = total + unsigned * signed
    return total


def _dot_pairs(total: Value, x: Value, y: Value) -> Value:
    """The products are exact in float64; sums are rounded one by one."""
    left, right = (np.asarray(value, np.float32).view(np.int32) for value in (x, y))
    for shift in (16, 0):  # the first number is in the lower half
        a, b = ((np.left_shift(bits, shift) & -65536).view(np.float32).astype(np.float64) for bits in (left, right))
        total = (a * b + total).astype(np.float32)
    return total[()]


DOTS: dict[str, Function] = {"dot_bytes": _dot_bytes, "dot_pairs": _dot_pairs}

_BINARY: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_FLOAT_BINARY: dict[str, Function] = {
    "div": np.true_divide,
    "floordiv": lambda a, b: np.floor(np.true_divide(a, b)),
    "floormod": np.remainder,
}
_INTEGER_BINARY: dict[str, Function] = {
    "div": _truncated_quotient,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
}
_COMPARE: dict[str, Function] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_NUMPY_NAMES = (
    "exp exp2 log log2 log10 log1p expm1 sqrt tanh sin cos tan sinh cosh floor ceil trunc isnan isinf isfinite fmod"
).split()
_CALLS: dict[str, Function] = {
    **{name: getattr(np, name) for name in _NUMPY_NAMES},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "abs": np.abs,
    "round": np.rint,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "sigmoid": _sigmoid,
    "erf": lambda x: np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)[()],
    "pow": np.power,
    "fma": _fma,
    "dot_pairs": _dot_pairs,
    "tf32_rest": _tf32_rest,
}
_INTEGER_CALLS: dict[str, Function] = {
    "abs": np.abs,
    "pow": _integer_power,
    "fmod": np.fmod,
    "fma": lambda a, b, c: a * b + c,
    "dot_bytes": _dot_bytes,
    **dict.fromkeys("floor ceil trunc round".split(), lambda x: x),
    "isnan": lambda x: np.not_equal(x, x),
    "isinf": lambda x: np.not_equal(x, x),
    "isfinite": lambda x: np.equal(x, x),
}


def function_of(node: Expr) -> Function:
    """What a node does with the values of its parts; loads and variables are not for here."""
    match node:
        case Const():
            with np.errstate(all="ignore"):
                value = node.dtype.type(node.value)
            return lambda: value
        case Unary(op="not"):
            return np.logical_not if node.dtype == BOOL else np.invert
        case Unary():
            return _in_float32(np.negative, node.dtype)
        case Binary(op=op):
            table = _FLOAT_BINARY if is_float(node.dtype) else _INTEGER_BINARY
            return _in_float32(table.get(op) or _BINARY[op], node.dtype)
        case Compare(op=op):
            return _COMPARE[op]
        case Select():
            return _select
        case Cast():
            return lambda a: a.astype(node.dtype)
        case Call(name=name):
            return _call(name, node.args[0].dtype)
        case Ramp(lanes=lanes):
            return lambda base, stride: base + stride * np.arange(lanes)
        case Broadcast(lanes=lanes):
            return lambda value: np.full(lanes, value, node.dtype)
        case Shuffle(order=order):
            chosen: Any = order[0] if len(order) == 1 else list(order)
            return lambda a, b: np.concatenate((a, b))[chosen]
    raise DTypeError(f"{type(node).__name__} has no value by itself")


def folded(node: Expr) -> Const:
    """An operation on constants as the constant that it gives."""
    operands = [cast(Const, part) for part in parts(node)]
    if isinstance(node, Binary) and node.dtype == INT64:
        a, b = (int(operand.value) for operand in operands)
        return Const(fold_index(node.op, a, b), INT64)
    with np.errstate(all="ignore"):
        return Const(function_of(node)(*(function_of(operand)() for operand in operands)).item(), node.dtype)


def fold_index(op: str, a: int, b: int) -> int:
    """A binary operation on two int64: as `function_of` has it, but without numpy where that is as simple."""
    if op in OPERATIONS and (b != 0 or op not in ("floordiv", "floormod")):
        return wrapped(OPERATIONS[op](a, b))
    with np.errstate(all="ignore"):
        return int((_INTEGER_BINARY.get(op) or _BINARY[op])(np.int64(a), np.int64(b)))


def _call(name: str, dtype: DType) -> Function:
    if is_float(dtype):
        return _in_float32(_CALLS[name], dtype)
    if is_integer(dtype) and name in _INTEGER_CALLS:
        return _INTEGER_CALLS[name]
    raise DTypeError(f"{name} of {dtype}", hint="te.cast the argument to a float")


def _in_float32(function: Function, dtype: DType) -> Function:
    if not (is_float(dtype) and dtype.itemsize == 2):
        return function

    def rounded(*args: Value) -> Value:
        wide = function(*(arg.astype(FLOAT32) for arg in args))
        return wide if wide.dtype == BOOL else wide.astype(dtype)

    return rounded
