"""Extents that are arguments of a kernel: numbers that remember how they were computed.

An operator's compute runs on them as on ints, with the sizes of one call; in expressions they stand
for arguments. Whatever it asks about them (`n == 1`, `min(n, 4)`) becomes a guard: what was made
holds for all sizes that answer alike. Code that needs the number itself pins it.

A dimension of a model is `general`: it is at least 1, and code that works for any number of elements
works for one; so it answers questions about 0 and 1 as a larger one would, whatever it is in this call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd, prod
from typing import Any

from ..base.errors import Error, InvalidType
from ..base.sizes import NUMBER, OPERATIONS, QUESTIONS, SIZE, Guard, Row, SizeTable
from .expr import Binary, Const, Expr, Symbolic, Var, binary, cast
from .visit import postorder

EQUAL = (("eq", True), ("ne", False))  # answers that say that sizes are equal
MANY = 2  # what a general size answers as, asked about smaller numbers


class NumberNeeded(Error):
    """Code needs the number that a size is, where sizes are to stay open."""

    def __init__(self, size: Extent) -> None:
        super().__init__(f"code cannot be made without the number that {size!r} is")
        self.arguments = size.trace.arguments_of(size.row)


class Trace:
    """The arguments there are, what was computed of them, and the questions asked so far. Where it `stays_open`, asking
    for a number is an error. Where it `passes` them, kernels take numbers that were computed as further scalars."""

    def __init__(self, stays_open: bool = False, passes: bool = False) -> None:
        self.stays_open, self.passes = stays_open, passes
        self.arguments: list[Var] = []
        self.computed: dict[Var, int] = {}  # the rows of further scalars
        self._values: list[int] = []
        self.guards: dict[Guard, None] = {}
        self.equal: dict[Var, Expr] = {}  # arguments that the guards say are another one
        self._rows: dict[Row, int] = {}

    def extent(self, name: str, value: int) -> Extent:
        """One more argument, which is `value` in this call."""
        row = self.row(SIZE, len(self.arguments))
        self.arguments.append(Var(name))
        self._values.append(value)
        return Extent(value, self.arguments[-1], row, self)

    def argument(self, number: int) -> Extent:
        """The argument of a number."""
        return Extent(self._values[number], self.arguments[number], self.row(SIZE, number), self)

    @property
    def scalars(self) -> dict[Var, int]:
        """What kernels take, with the row of each."""
        return {**{var: self.row(SIZE, number) for number, var in enumerate(self.arguments)}, **self.computed}

    def general(self, size: int | Extent) -> int | Extent:
        """A size as a dimension of a model: guarded to be at least 1."""
        if not isinstance(size, Extent) or size.is_general:
            return size
        self.guards[Guard("ge", size.row, self.row(NUMBER, 1), True)] = None
        return Extent(size.value, size.expr, size.row, self, is_general=True)

    def row(self, op: str, a: int, b: int = 0) -> int:
        """The place of a row in the table."""
        return self._rows.setdefault(Row(op, a, b), len(self._rows))

    def row_of(self, value: int | Extent) -> int:
        """The place of a number or an extent in the table."""
        return value.row if isinstance(value, Extent) else self.row(NUMBER, int(value))

    def arguments_of(self, row: int) -> list[int]:
        """The numbers of the arguments that a row follows from."""
        rows, found, todo = list(self._rows), set[int](), [row]
        while todo:
            op, a, b = rows[todo.pop()]
            if op == SIZE:
                found.add(a)
            elif op != NUMBER:
                todo += [a, b]
        return sorted(found)

    def row_of_expression(self, expr: Expr) -> int:
        """The place of what an expression of the arguments and of numbers computes."""
        rows: dict[int, int] = {}
        for node in postorder((expr,)):
            match node:
                case Const(value=value):
                    row = self.row(NUMBER, int(value))
                case Var() if node in self.computed:
                    row = self.computed[node]
                case Var():
                    row = self.row(SIZE, self.arguments.index(node))
                case Binary(op=op, a=a, b=b) if op in OPERATIONS:
                    row = self.row(op, rows[id(a)], rows[id(b)])
                case _:
                    raise InvalidType(f"{node!r} is no arithmetic on sizes")
            rows[id(node)] = row
        return rows[id(expr)]

    def extent_of(self, expr: Expr) -> int | Extent:
        """What an expression of the arguments and of numbers computes, as a size."""
        if isinstance(expr, Const):
            return int(expr.value)
        row = self.row_of_expression(expr)
        numbers = SizeTable(tuple(self._rows), ()).numbers(self._values)
        assert numbers is not None
        return Extent(numbers[row], expr, row, self)

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

    __slots__ = ("expr", "is_general", "row", "trace", "value")

    def __init__(self, value: int, expr: Expr, row: int, trace: Trace, is_general: bool = False) -> None:
        self.value, self.expr, self.row, self.trace, self.is_general = value, expr, row, trace, is_general

    def __repr__(self) -> str:
        return f"<Extent {self.value}>"

    def _made(self, op: str, a: Any, b: Any) -> Any:
        """The result of an operator on extents and numbers, or on expressions."""
        if isinstance(a, Expr) or isinstance(b, Expr):
            return binary(op, _beside(a, b), _beside(b, a))
        if not (_is_size(a) and _is_size(b)):
            return OPERATIONS[op](_number(a), _number(b))
        row = self.trace.row(op, self.trace.row_of(a), self.trace.row_of(b))
        general = op == "mul" and _is_general(a) and _is_general(b)
        return Extent(OPERATIONS[op](_value(a), _value(b)), binary(op, a, b), row, self.trace, general)

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
        if isinstance(other, Extent) and other.row == self.row:
            return QUESTIONS[ask](0, 0)
        if self.is_general and type(other) is int and other < MANY:
            return QUESTIONS[ask](MANY, other)
        answer, trace = QUESTIONS[ask](self.value, _value(other)), self.trace
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
        if self.trace.stays_open:
            raise NumberNeeded(self)
        self._asked("eq", self.value)
        return self.value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __float__(self) -> float:
        return float(self.__index__())


def is_open(size: Any) -> bool:
    """Whether a size is an argument, or follows from some."""
    return isinstance(size, Extent)


def stays_open(size: Any) -> bool:
    """Whether a size is an argument of code that is to serve as many sizes as can be: what is asked about it splits
    them, where code that does not ask is often as good."""
    return isinstance(size, Extent) and size.trace.stays_open


def is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are one number in all calls, as far as can be told without asking."""
    if isinstance(a, Extent) or isinstance(b, Extent):
        return isinstance(a, Extent) and isinstance(b, Extent) and a.row == b.row
    return bool(a == b)


def typical(size: int | Extent) -> int:
    """About how large a size is: what it is in this call. Only what changes nothing but speed may depend on it."""
    return size.value if isinstance(size, Extent) else size


def passed(name: str, size: Any) -> Any:
    """A size by a name of its own where kernels are given what was computed, so that they do not compute it again."""
    if not isinstance(size, Extent) or not size.trace.passes or isinstance(size.expr, Var):
        return size
    known = next((var for var, row in size.trace.computed.items() if row == size.row), None)
    var = known or Var(name)
    size.trace.computed[var] = size.row
    return Extent(size.value, var, size.row, size.trace, size.is_general)


def fewest(sizes: Iterable[int | Extent]) -> int:
    """The product of sizes at its smallest: that of those which are no arguments."""
    return prod([size for size in sizes if not isinstance(size, Extent)])


def at_least(expr: Expr) -> int:
    """What an expression of sizes is where every argument is 1."""
    return _folded(expr, lambda var: 1, OPERATIONS)


def value_at(size: int | Extent, values: Mapping[Var, int]) -> int:
    """What a size is where arguments have these values."""
    return _folded(size.expr, values.__getitem__, OPERATIONS) if isinstance(size, Extent) else size


def divisor(size: int | Extent) -> int:
    """A number that divides a size in all calls: of an open one, as far as its factors tell."""
    return _folded(size.expr, lambda var: 1, _DIVISORS) if isinstance(size, Extent) else size


def may_exceed(size: int | Extent, number: int) -> bool:
    """Whether a size may be more than a number; nothing is asked."""
    return isinstance(size, Extent) or size > number


def is_multiple(size: int | Extent, step: int) -> bool:
    """Whether a size is known to be a multiple of a number; nothing is asked."""
    return divisor(size) % step == 0


_DIVISORS: dict[str, Callable[[int, int], int]] = {
    **dict.fromkeys(OPERATIONS, lambda a, b: 1),
    **dict.fromkeys(("add", "sub", "min", "max"), gcd),
    "mul": lambda a, b: a * b,
}


def _folded(expr: Expr, of_argument: Callable[[Var], int], operations: Mapping[str, Callable[[int, int], int]]) -> int:
    """What operations make of an expression of sizes."""
    found: dict[int, int] = {}
    for node in postorder((expr,)):
        if isinstance(node, Binary):
            found[id(node)] = operations[node.op](found[id(node.a)], found[id(node.b)])
        else:
            assert isinstance(node, (Const, Var))
            found[id(node)] = int(node.value) if isinstance(node, Const) else of_argument(node)
    return found[id(expr)]


def lesser(a: int | Extent, b: int | Extent) -> Any:
    """The smaller of two sizes, without asking which it is."""
    return _extreme("min", a, b)


def greater(a: int | Extent, b: int | Extent) -> Any:
    """The larger of two sizes, without asking which it is."""
    return _extreme("max", a, b)


def _extreme(op: str, a: int | Extent, b: int | Extent) -> Any:
    symbolic = a if isinstance(a, Extent) else b
    return symbolic._made(op, a, b) if isinstance(symbolic, Extent) else OPERATIONS[op](a, b)  # type: ignore[arg-type]


def _is_general(value: Any) -> bool:
    return value.is_general if isinstance(value, Extent) else value >= 1


def _is_size(value: Any) -> bool:
    return isinstance(value, Extent) or type(value) is int


def _value(value: Any) -> int:
    return value.value if isinstance(value, Extent) else int(value)


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, Extent) else value


def _beside(value: Any, other: Any) -> Any:
    """An operand in the dtype of the expression on the other side."""
    return cast(value.expr, other.dtype) if isinstance(value, Extent) else value
