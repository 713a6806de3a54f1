"""Scalar expressions: the right-hand sides of tensor computes and of loop-IR stores.

    e ::= Var | Const | Unary | Binary | Compare | Select | Cast | Call | Load | Reduce
        | Ramp | Broadcast | Shuffle

Every expression has a dtype and a number of lanes (1 for a scalar; Ramp and Broadcast make
vectors). Integer `floordiv` and `floormod` round towards minus infinity, integer `div` towards
zero; all three give 0 for a divisor of 0. On floats `floordiv` is floor(a / b), and `floormod` the
C remainder moved to the sign of the divisor. Integers wrap. Shifts by the width or more give 0 (-1
for `shr` of a negative). On bools `and`, `or`, `xor` and `not` are logical, on integers bitwise.
Index arithmetic is int64.

Expressions are immutable and may share parts: a body is a DAG, evaluated once per node. `==` is
identity for all of them; `te.same(a, b)` compares structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, Union

import numpy as np

from ..base.dtype import BOOL, FLOAT32, INT64, DType, as_dtype, is_float, is_integer
from ..base.errors import DTypeError, InvalidType, InvalidValue

Number = int | float | bool
ExprLike = Union["Expr", "Symbolic", Number]

BINARY = frozenset("add sub mul div floordiv floormod min max and or xor shl shr".split())
COMPARE = frozenset("lt le gt ge eq ne".split())
UNARY = frozenset("neg not".split())

# Intrinsics and what they take; all are element-wise, and of the dtype of their first argument.
INTRINSICS: dict[str, int] = {
    **dict.fromkeys("exp exp2 log log2 log10 log1p expm1 sqrt rsqrt tanh sigmoid erf".split(), 1),
    **dict.fromkeys("sin cos tan asin acos atan sinh cosh asinh acosh atanh".split(), 1),
    **dict.fromkeys("abs floor ceil trunc round isnan isinf isfinite tf32_rest".split(), 1),
    **dict.fromkeys("pow atan2 fmod".split(), 2),
    "fma": 3,
    "dot_bytes": 3,
    "dot_pairs": 3,
}
PREDICATES = frozenset({"isnan", "isinf", "isfinite"})


class Source(Protocol):
    """What a Load reads: a te Tensor before lowering, a loop-IR Buffer after it.

    An element has `lanes` values: 1, except in the register buffers of vector kernels.
    """

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def lanes(self) -> int: ...
    @property
    def rank(self) -> int: ...


def _operator(op: str) -> Callable[[Expr, ExprLike], Expr]:
    return lambda a, b: binary(op, a, b)


def _reflected(op: str) -> Callable[[Expr, ExprLike], Expr]:
    return lambda b, a: binary(op, a, b)


def _comparison(op: str) -> Callable[[Expr, ExprLike], Expr]:
    return lambda a, b: compare(op, a, b)


class Expr:
    """Base of all expressions; the operators build larger ones."""

    __slots__ = ()
    dtype: DType
    lanes: int

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _operator("floormod"), _reflected("floormod")
    __lshift__, __rshift__ = _operator("shl"), _operator("shr")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("lt", "le", "gt", "ge"))

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    def __invert__(self) -> Expr:
        return Unary("not", self)

    def equal(self, other: ExprLike) -> Expr:
        """Element-wise equality; `==` stays Python's, so that expressions work in sets."""
        return compare("eq", self, other)

    def not_equal(self, other: ExprLike) -> Expr:
        return compare("ne", self, other)

    def __repr__(self) -> str:
        """Short: parts may be shared, and written out they could fill the memory; see te.show."""
        return f"<{type(self).__name__} {self.dtype}{f' x{self.lanes}' if self.lanes > 1 else ''}>"

    def __bool__(self) -> bool:
        raise InvalidValue(
            "the truth of an expression is not known before it runs",
            hint="use te.select(condition, a, b), and & and | instead of `and` and `or`",
        )


class Symbolic:
    """A number that stands for an expression wherever one is made of it."""

    __slots__ = ()
    expr: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """An index, an extent or a let-bound value."""

    name: str
    dtype: DType = INT64
    lanes: int = 1

    def __repr__(self) -> str:
        return f"<Var {self.name}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    value: Number
    dtype: DType
    lanes: int = field(default=1, init=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Expr):
    op: str
    a: Expr
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        _member(self.op, UNARY)
        object.__setattr__(self, "dtype", self.a.dtype)
        object.__setattr__(self, "lanes", self.a.lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        a, b = self.a, self.b
        if self.op not in BINARY or a.dtype is not b.dtype or a.lanes != b.lanes:
            _member(self.op, BINARY)
            _same_type(self.op, a, b)
        object.__setattr__(self, "dtype", a.dtype)
        object.__setattr__(self, "lanes", a.lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Expr):
    op: str
    a: Expr
    b: Expr
    lanes: int = field(init=False)
    dtype: DType = field(default=BOOL, init=False)

    def __post_init__(self) -> None:
        _member(self.op, COMPARE)
        _same_type(self.op, self.a, self.b)
        object.__setattr__(self, "lanes", self.a.lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """`a` where the condition holds, else `b`. Both sides may be evaluated; loads under a Select
    must be in bounds whatever the condition says (`te.read_or` is the way to write padding)."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        _same_type("select", self.a, self.b)
        _check_mask("select", self.condition, self.a.lanes)
        object.__setattr__(self, "dtype", self.a.dtype)
        object.__setattr__(self, "lanes", self.a.lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    a: Expr
    dtype: DType
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lanes", self.a.lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """An intrinsic of INTRINSICS."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        _member(self.name, INTRINSICS)
        if len(self.args) != INTRINSICS[self.name]:
            raise InvalidValue(f"{self.name} takes {INTRINSICS[self.name]} arguments")
        for other in self.args[1:]:
            _same_type(self.name, self.args[0], other)
        dtype = BOOL if self.name in PREDICATES else self.args[0].dtype
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "lanes", self.args[0].lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """One element, or `lanes` of them when an index is a vector (the other indices may be scalars)
    or when the elements of the source are vectors themselves.

    `mask` (a bool expression of as many lanes) says which lanes touch memory; the others give 0.
    """

    source: Source
    indices: tuple[Expr, ...]
    mask: Expr | None = None
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        lanes = access_lanes(self.source, self.indices)
        if self.mask is not None:
            _check_mask(f"load of {self.source.name}", self.mask, lanes)
        object.__setattr__(self, "dtype", self.source.dtype)
        object.__setattr__(self, "lanes", lanes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """A reduction over axes; only at the root of a te compute."""

    combiner: str  # sum, prod, max, min, any, all
    body: Expr
    axes: tuple[ReduceAxis, ...]
    dtype: DType = field(init=False)
    lanes: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.body.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReduceAxis:
    """An index that a reduction counts with. It may end before its extent, after as many turns as the axes of the
    tensor say."""

    var: Var
    extent: int
    turns: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ramp(Expr):
    """base, base + stride, ..., base + (lanes - 1) * stride."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: DType = field(default=INT64, init=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Broadcast(Expr):
    """One value in every lane."""

    value: Expr
    lanes: int
    dtype: DType = field(init=False)

    def __post_init__(self) -> None:
        if self.value.lanes != 1:
            raise DTypeError(
                f"a vector of {self.value.lanes} lanes beside one of {self.lanes}",
                why="only scalars are spread over lanes",
            )
        object.__setattr__(self, "dtype", self.value.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Shuffle(Expr):
    """Lane i is lane order[i] of the lanes of a followed by those of b; of one lane it is a scalar. Only for vectors
    that are written as such: no vector loop goes around it."""

    a: Expr
    b: Expr
    order: tuple[int, ...]
    dtype: DType = field(init=False)
    lanes: int = field(init=False)

    def __post_init__(self) -> None:
        _same_type("shuffle", self.a, self.b)
        if not self.order or not all(0 <= lane < 2 * self.a.lanes for lane in self.order):
            raise InvalidValue(f"lanes {self.order} of two vectors of {self.a.lanes}")
        object.__setattr__(self, "dtype", self.a.dtype)
        object.__setattr__(self, "lanes", len(self.order))


def lane_of(vector: Expr, lane: int) -> Expr:
    """One lane of a vector as a scalar."""
    return vector if vector.lanes == 1 else Shuffle(vector, vector, (lane,))


def as_expr(value: ExprLike, dtype: DType | None = None) -> Expr:
    """A number becomes a Const of that dtype (int64, bool or float32 when none is given)."""
    if isinstance(value, Expr):
        return value
    if type(value) is int and (dtype is None or dtype is INT64):
        return _index(value)
    if isinstance(value, Symbolic):
        return value.expr if dtype is None else cast(value.expr, dtype)
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise InvalidType(f"{value!r} is no scalar expression", hint="index tensors: x[i, j]")
    return Const(*_literal(value, dtype or _natural_dtype(value)))


@lru_cache(1024)
def _index(value: int) -> Const:
    """The same few numbers stand in all index arithmetic."""
    return Const(*_literal(value, INT64))


def _natural_dtype(value: Number) -> DType:
    if isinstance(value, bool):
        return BOOL
    return INT64 if isinstance(value, int) else FLOAT32


def _literal(value: Number, dtype: DType) -> tuple[Number, DType]:
    """The number as one of that dtype, or an error when that would change it."""
    if is_float(dtype):
        return float(value), dtype
    if dtype == BOOL and value in (0, 1):
        return bool(value), dtype
    if is_integer(dtype) and value == value // 1:
        low, high = integer_range(dtype)
        if low <= value <= high:
            return int(value), dtype
    raise DTypeError(
        f"{value!r} is no {dtype} value",
        why="a literal takes the dtype of the expression it stands beside",
        hint="te.cast the expression, or write te.const(value, dtype)",
    )


@lru_cache(None)
def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest value."""
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def const(value: Number, dtype: DType | str) -> Const:
    """A literal of a dtype."""
    literal = as_expr(value, as_dtype(dtype))
    assert isinstance(literal, Const)
    return literal


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """A binary expression; a Python number takes the other side's dtype and lanes."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.lanes == b.lanes:
        return Binary(op, a, b)
    return Binary(op, *_pair(a, b))


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    return Compare(op, *_pair(a, b))


def call(name: str, *args: ExprLike) -> Expr:
    """An intrinsic: `call("exp", x)`."""
    dtype = next((a.dtype for a in args if isinstance(a, Expr)), None)
    lanes = max((a.lanes for a in args if isinstance(a, Expr)), default=1)
    return Call(name, tuple(widen(as_expr(a, dtype), lanes) for a in args))


def select(condition: Expr, a: ExprLike, b: ExprLike) -> Expr:
    left, right = _pair(a, b)
    lanes = max(condition.lanes, left.lanes)
    return Select(widen(condition, lanes), widen(left, lanes), widen(right, lanes))


def cast(value: Expr, dtype: DType | str) -> Expr:
    wanted = as_dtype(dtype)
    return value if value.dtype == wanted else Cast(value, wanted)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller; NaN if either is NaN."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger; NaN if either is NaN."""
    return binary("max", a, b)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """The conjunction, or None of none."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else binary("and", result, condition)
    return result


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    left = as_expr(a, b.dtype if isinstance(b, Expr) else None)
    right = as_expr(b, left.dtype)
    lanes = max(left.lanes, right.lanes)
    return widen(left, lanes), widen(right, lanes)


def widen(value: Expr, lanes: int) -> Expr:
    """The value in every one of that many lanes."""
    return value if value.lanes == lanes else Broadcast(value, lanes)


def _same_type(what: str, a: Expr, b: Expr) -> None:
    if a.dtype != b.dtype or a.lanes != b.lanes:
        raise DTypeError(
            f"{what} of {a.dtype} x{a.lanes} and {b.dtype} x{b.lanes}",
            why="both sides must have the same dtype and lanes",
            hint="te.cast one of them",
        )


def access_lanes(source: Source, indices: Sequence[Expr]) -> int:
    """How many lanes an access to these indices of a source has; checks that they fit."""
    if len(indices) != source.rank:
        raise InvalidValue(f"{len(indices)} indices into {source.name}, which has {source.rank} dimensions")
    widths = {index.lanes for index in indices if index.lanes > 1}
    widths |= {source.lanes} if source.lanes > 1 else set()
    if len(widths) > 1 or (source.lanes > 1 and any(index.lanes > 1 for index in indices)):
        raise InvalidValue(
            f"indices of {source.name} have {sorted(widths)} lanes",
            why="vector indices share one width, and elements that are vectors take scalar ones",
        )
    for index in indices:
        if not is_integer(index.dtype):
            raise DTypeError(f"an index of {source.name} is {index.dtype}", why="not an integer")
    return widths.pop() if widths else 1


def _check_mask(what: str, mask: Expr, lanes: int) -> None:
    if mask.dtype != BOOL or mask.lanes != lanes:
        raise DTypeError(f"the condition of {what} is {mask.dtype} x{mask.lanes}, not bool x{lanes}")


def _member(name: str, allowed: object) -> None:
    if name not in allowed:  # type: ignore[operator]
        raise InvalidValue(f"unknown expression operator {name!r}")
