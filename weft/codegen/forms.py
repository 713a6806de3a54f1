"""Index expressions as sums over variables, found once for an expression: what an unrolled turn
costs is then a few additions, however large the expression is.

    constant + the sum of coefficient * variable + the sum of coefficient * other + lane * step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.dtype import INT64
from ..te.expr import Binary, Broadcast, Const, Expr, Ramp, Unary, Var
from ..te.visit import parts


@dataclass(frozen=True, slots=True)
class Form:
    """An int64 expression as a sum; `others` are parts that are no sums themselves."""

    constant: int
    variables: tuple[tuple[Var, int], ...]
    others: tuple[tuple[Expr, int], ...]
    step: int
    lanes: int

    @property
    def is_constant(self) -> bool:
        return not self.variables and not self.others and not self.step

    def add(self, other: Form, factor: int = 1) -> Form:
        return Form(
            self.constant + other.constant * factor,
            _merged(self.variables, other.variables, factor),
            _merged(self.others, other.others, factor),
            self.step + other.step * factor,
            max(self.lanes, other.lanes),
        )

    def scale(self, factor: int) -> Form:
        return Form(0, (), (), 0, self.lanes).add(self, factor)

    def over(self, lanes: int, step: int = 0) -> Form:
        """A scalar spread over lanes, or counted up in them."""
        return Form(self.constant, self.variables, self.others, step, lanes)


def _merged(a: tuple[tuple[Any, int], ...], b: tuple[tuple[Any, int], ...], factor: int) -> tuple[tuple[Any, int], ...]:
    if not b:
        return a
    total = dict(a)
    for item, coefficient in b:
        total[item] = total.get(item, 0) + coefficient * factor
    return tuple((item, c) for item, c in total.items() if c)


class Forms:
    """The forms of the expressions of one kernel; None for vectors that are not evenly spaced."""

    def __init__(self) -> None:
        self._known: dict[int, Form | None] = {}
        self._kept: list[Expr] = []  # ids are keys only as long as their nodes live

    def of(self, root: Expr) -> Form | None:
        if type(root) is Const and root.dtype == INT64:
            return Form(int(root.value), (), (), 0, 1)
        known = self._known
        stack = [root]
        while stack:
            expr = stack[-1]
            if id(expr) not in known:
                inner = _summands(expr)
                waiting = [part for part in inner if id(part) not in known]
                if waiting:
                    stack.extend(waiting)
                    continue
                known[id(expr)] = _form(expr, [known[id(part)] for part in inner])
                self._kept.append(expr)
            stack.pop()
        return known[id(root)]

    def flat(self, indices: Sequence[Expr], strides: Sequence[int]) -> Form | None:
        """The sum of indices times strides."""
        if len(indices) == 1 and strides[0] == 1:
            return self.of(indices[0])
        total = Form(0, (), (), 0, 1)
        for index, stride in zip(indices, strides):
            form = self.of(index)
            if form is None:
                return None
            total = total.add(form, stride)
        return total


def _summands(expr: Expr) -> tuple[Expr, ...]:
    if expr.dtype != INT64 or type(expr) not in (Binary, Unary, Ramp, Broadcast):
        return ()
    return parts(expr)


def _form(expr: Expr, inner: list[Form | None]) -> Form | None:
    if expr.dtype == INT64 and None not in inner:
        made = _sum(expr, *inner)
        if made is not None:
            return made
    if expr.dtype != INT64 or expr.lanes > 1:
        return None
    if isinstance(expr, Var):
        return Form(0, ((expr, 1),), (), 0, 1)
    return Form(0, (), ((expr, 1),), 0, 1)


def _sum(expr: Expr, a: Form | None = None, b: Form | None = None) -> Form | None:
    match expr, a, b:
        case Const(), _, _:
            return Form(int(expr.value), (), (), 0, 1)
        case Unary(op="neg"), Form(), _:
            return a.scale(-1)
        case Binary(op="add" | "sub"), Form(), Form():
            return a.add(b, 1 if expr.op == "add" else -1)
        case Binary(op="mul"), Form(), Form() if b.is_constant:
            return a.scale(b.constant)
        case Binary(op="mul"), Form(), Form() if a.is_constant:
            return b.scale(a.constant)
        case Ramp(), Form(), Form() if b.is_constant and a.lanes == 1:
            return a.over(expr.lanes, b.constant)
        case Broadcast(), Form(), _:
            return a.over(expr.lanes)
    return None
