"""Extents that are arguments of a kernel: numbers that remember how they were computed.

An operator's compute runs on them as on ints, with the sizes of one call; in expressions they stand
for arguments. Whatever it asks about them (`n == 1`, `min(n, 4)`) becomes a guard: what was made
holds for all sizes that answer alike. Code that needs the number itself pins it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.sizes import NUMBER, OPERATIONS, QUESTIONS, SIZE, Guard, Row, SizeTable
from .expr import Expr, Symbolic, Var, binary, cast

EQUAL = (("eq", True), ("ne", False))  # answers that say that sizes are equal


class Trace:
    """The arguments there are, what was computed of them, and the questions asked so far."""

    def __init__(self) -> None:
        self.arguments: list[Var] = []
        self.guards: dict[Guard, None] = {}
        self.equal: dict[Var, Expr] = {}  # arguments that the guards say are another one
        self._rows: dict[Row, int] = {}

    def extent(self, name: str, value: int) -> Extent:
        """One more argument, which is `value` in this call."""
        row = self.row(SIZE, len(self.arguments))
        self.arguments.append(Var(name))
        return Extent(value, self.arguments[-1], row, self)

    def row(self, op: str, a: int, b: int = 0) -> int:
        """The place of a row in the table."""
        return self._rows.setdefault(Row(op, a, b), len(self._rows))

    def row_of(self, value: int | Extent) -> int:
        """The place of a number or an extent in the table."""
        return value.row if isinstance(value, Extent) else self.row(NUMBER, int(value))

    def table(self) -> SizeTable:
        """All that was computed and asked."""
        return SizeTable(tuple(self._rows), tuple(self.guards))

    def unify(self, a: Expr, b: Expr) -> None:
        """Two sizes are equal in all calls; of two arguments the later one is the earlier."""
        a, b = self.equal.get(a, a), self.equal.get(b, b)  # type: ignore[call-overload]
        if a is b or a not in self.arguments or b not in self.arguments:
            return
        first, last = sorted((a, b), key=self.arguments.index)
        self.equal = {var: first if known is last else known for var, known in self.equal.items()}
        self.equal[last] = first


Operator = Callable[["Extent", Any], Any]


def _operator(op: str, neutral: int | None = None) -> Operator:
    return lambda a, b: a if type(b) is int and b == neutral else a._made(op, a, b)


def _reflected(op: str, neutral: int | None = None) -> Operator:
    return lambda b, a: b if type(a) is int and a == neutral else b._made(op, a, b)


def _question(ask: str) -> Operator:
    return lambda a, b: a._asked(ask, b)


class Extent(Symbolic):
    """A size known as a number, as an expression of the arguments, and as a row of the table of
    what is computed of them."""

    __slots__ = ("_trace", "expr", "row", "value")

    def __init__(self, value: int, expr: Expr, row: int, trace: Trace) -> None:
        self.value, self.expr, self.row, self._trace = value, expr, row, trace

    def __repr__(self) -> str:
        return f"<Extent {self.value}>"

    def _made(self, op: str, a: Any, b: Any) -> Any:
        """The result of an operator on extents and numbers, or on expressions."""
        if isinstance(a, Expr) or isinstance(b, Expr):
            return binary(op, _beside(a, b), _beside(b, a))
        if not (_is_size(a) and _is_size(b)):
            return OPERATIONS[op](_number(a), _number(b))
        row = self._trace.row(op, self._trace.row_of(a), self._trace.row_of(b))
        return Extent(OPERATIONS[op](_value(a), _value(b)), binary(op, a, b), row, self._trace)

    __add__, __radd__ = _operator("add", 0), _reflected("add", 0)
    __sub__, __rsub__ = _operator("sub", 0), _reflected("sub")
    __mul__, __rmul__ = _operator("mul", 1), _reflected("mul", 1)
    __floordiv__, __rfloordiv__ = _operator("floordiv", 1), _reflected("floordiv")
    __mod__, __rmod__ = _operator("floormod"), _reflected("floormod")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _number(self) / (other if isinstance(other, Expr) else _number(other))

    def __rtruediv__(self, other: Any) -> Any:
        return (other if isinstance(other, Expr) else _number(other)) / _number(self)

    def __neg__(self) -> Any:
        return self._made("sub", 0, self)

    def _asked(self, ask: str, other: Any) -> Any:
        """The answer to a comparison, which all sizes served will have to give."""
        if isinstance(other, Expr):
            return QUESTIONS[ask](self.expr, other)  # type: ignore[arg-type]
        if not _is_size(other):
            return NotImplemented
        answer, trace = QUESTIONS[ask](self.value, _value(other)), self._trace
        trace.guards[Guard(ask, self.row, trace.row_of(other), answer)] = None
        if (ask, answer) in EQUAL and isinstance(other, Extent):
            trace.unify(self.expr, other.expr)
        return answer

    __eq__, __ne__ = _question("eq"), _question("ne")
    __lt__, __le__, __gt__, __ge__ = map(_question, ("lt", "le", "gt", "ge"))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        """The number itself: what is made with it serves this size alone."""
        self._asked("eq", self.value)
        return self.value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __float__(self) -> float:
        return float(self.__index__())


def _is_size(value: Any) -> bool:
    return isinstance(value, Extent) or type(value) is int


def _value(value: Any) -> int:
    return value.value if isinstance(value, Extent) else int(value)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Extent) else value


def _beside(value: Any, other: Any) -> Any:
    """An operand in the dtype of the expression on the other side."""
    return cast(value.expr, other.dtype) if isinstance(value, Extent) else value
