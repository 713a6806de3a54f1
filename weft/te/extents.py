"""Extents that are arguments of a kernel: numbers that remember how they were computed.

An operator's compute runs on them as on ints, with the sizes of one call; in expressions they stand
for arguments. Whatever it asks about them (`n == 1`, `min(n, 4)`) becomes a guard: what was made
holds for all sizes that answer alike. Code that needs the number itself pins it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .expr import Expr, Symbolic, Var, as_expr, cast

Sizes = Sequence[int]
Size = Callable[[Sizes], int]  # an extent, from the arguments


EQUAL = ((operator.eq, True), (operator.ne, False))  # answers that say that sizes are equal


class Guard(NamedTuple):
    """A question about sizes, and what the answer was."""

    ask: Callable[[int, int], bool]
    a: Size
    b: Size
    answer: bool

    def holds(self, sizes: Sizes) -> bool:
        return self.ask(self.a(sizes), self.b(sizes)) == self.answer


class Trace:
    """The arguments there are, and the questions asked so far."""

    def __init__(self) -> None:
        self.arguments: list[Var] = []
        self.guards: list[Guard] = []
        self.equal: dict[Var, Expr] = {}  # arguments that the guards say are another one

    def extent(self, name: str, value: int) -> Extent:
        """One more argument, which is `value` in this call."""
        place = len(self.arguments)
        self.arguments.append(Var(name))
        return Extent(value, self.arguments[-1], lambda sizes: sizes[place], self)

    def unify(self, a: Expr, b: Expr) -> None:
        """Two sizes are equal in all calls; of two arguments the later one is the earlier."""
        a, b = self.equal.get(a, a), self.equal.get(b, b)  # type: ignore[call-overload]
        if a is b or a not in self.arguments or b not in self.arguments:
            return
        first, last = sorted((a, b), key=self.arguments.index)
        self.equal = {var: first if known is last else known for var, known in self.equal.items()}
        self.equal[last] = first

    def holds(self, sizes: Sizes) -> bool:
        """Whether what was made serves these sizes."""
        return all(guard.holds(sizes) for guard in self.guards)


class Extent(Symbolic):
    """A size known as a number, as an expression of the arguments, and as a function of them."""

    __slots__ = ("_trace", "expr", "of", "value")

    def __init__(self, value: int, expr: Expr, of: Size, trace: Trace) -> None:
        self.value, self.expr, self.of, self._trace = value, expr, of, trace

    def __repr__(self) -> str:
        return f"<Extent {self.value}>"

    def _made(self, op: Callable[..., Any], a: Any, b: Any) -> Any:
        """The result of an operator on extents and numbers, or on expressions."""
        if isinstance(a, Expr) or isinstance(b, Expr):
            return op(_beside(a, b), _beside(b, a))
        if not (_is_size(a) and _is_size(b)):
            return op(_number(a), _number(b))
        of_a, of_b = size_of(a), size_of(b)
        expr = op(as_expr(_plain(a)), as_expr(_plain(b)))
        value = op(_value(a), _value(b))
        return Extent(value, expr, lambda sizes: op(of_a(sizes), of_b(sizes)), self._trace)

    def __add__(self, other: Any) -> Any:
        return self if _is_zero(other) else self._made(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self if _is_zero(other) else self._made(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self if _is_zero(other) else self._made(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._made(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self if _is_one(other) else self._made(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if _is_one(other) else self._made(operator.mul, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self if _is_one(other) else self._made(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._made(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._made(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._made(operator.mod, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _number(self) / (other if isinstance(other, Expr) else _number(other))

    def __rtruediv__(self, other: Any) -> Any:
        return (other if isinstance(other, Expr) else _number(other)) / _number(self)

    def __neg__(self) -> Any:
        return self._made(operator.sub, 0, self)

    def _asked(self, ask: Callable[..., Any], other: Any) -> Any:
        """The answer to a comparison, which all sizes served will have to give."""
        if isinstance(other, Expr):
            return ask(self.expr, other)
        if not _is_size(other):
            return NotImplemented
        answer = bool(ask(self.value, _value(other)))
        self._trace.guards.append(Guard(ask, self.of, size_of(other), answer))
        if (ask, answer) in EQUAL and isinstance(other, Extent):
            self._trace.unify(self.expr, other.expr)
        return answer

    def __eq__(self, other: object) -> Any:
        return self._asked(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._asked(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._asked(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._asked(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._asked(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._asked(operator.ge, other)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __index__(self) -> int:
        """The number itself: what is made with it serves this size alone."""
        self._asked(operator.eq, self.value)
        return self.value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __float__(self) -> float:
        return float(self.__index__())


def size_of(value: int | Extent) -> Size:
    """An extent as a function of the arguments."""
    if isinstance(value, Extent):
        return value.of
    number = int(value)
    return lambda sizes: number


def _is_size(value: Any) -> bool:
    return isinstance(value, Extent) or type(value) is int


def _value(value: Any) -> int:
    return value.value if isinstance(value, Extent) else int(value)


def _plain(value: Any) -> Any:
    return value.expr if isinstance(value, Extent) else value


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Extent) else value


def _beside(value: Any, other: Any) -> Any:
    """An operand in the dtype of the expression on the other side."""
    return cast(value.expr, other.dtype) if isinstance(value, Extent) else value


def _is_zero(value: Any) -> bool:
    return type(value) is int and value == 0


def _is_one(value: Any) -> bool:
    return type(value) is int and value == 1
