"""Linear forms: constant + the sum of coefficient * term. The terms are expressions here, and values
of generated code in codegen. Integer expressions come in, their forms go out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, Generic, NamedTuple, TypeVar

from ..base.dtype import INT64
from .expr import Binary, Broadcast, Const, Expr, Ramp, Unary, as_expr
from .visit import parts

MAX_TERMS = 16  # an expression of more is a term of its own, so that the cost stays linear

T = TypeVar("T")
U = TypeVar("U")


class Linear(NamedTuple, Generic[T]):
    """A sum over the integers; no coefficient is 0."""

    constant: int
    terms: Mapping[T, int]

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def plus(self, other: Linear[T], factor: int = 1) -> Linear[T]:
        """The sum with a multiple of another form.

        >>> Linear(1, {"i": 2, "j": 1}).plus(Linear(3, {"j": 1}), -1)
        Linear(constant=-2, terms={'i': 2})
        """
        if not other.terms:
            return Linear(self.constant + factor * other.constant, self.terms) if other.constant else self
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            terms[term] = terms.get(term, 0) + factor * coefficient
        return Linear(self.constant + factor * other.constant, _without_zeros(terms))

    def times(self, factor: int) -> Linear[T]:
        if factor == 1:
            return self
        return Linear(self.constant * factor, {t: c * factor for t, c in self.terms.items()} if factor else {})

    def substitute(self, values: Iterable[Linear[U]]) -> Linear[U]:
        """The sum with a form in place of each term, in their order."""
        constant = self.constant
        terms: dict[U, int] = {}
        for coefficient, (number, inner) in zip(self.terms.values(), values):
            constant += coefficient * number
            for term, factor in inner.items():
                terms[term] = terms.get(term, 0) + coefficient * factor
        return Linear(constant, _without_zeros(terms))

    def split(self, divisor: int) -> tuple[Linear[T], Linear[T]]:
        """The form as divisor * whole + rest, the constant of the rest in 0 .. divisor - 1."""
        whole = {t: c // divisor for t, c in self.terms.items() if c % divisor == 0}
        rest = {t: c for t, c in self.terms.items() if c % divisor}
        return Linear(self.constant // divisor, whole), Linear(self.constant % divisor, rest)

    def divisor(self) -> int:
        """The largest number known to divide every value of the sum; 0 if it is always 0."""
        return gcd(self.constant, *self.terms.values())

    def wrapped(self) -> Linear[T]:
        """The same modulo 2**64."""
        if all([-(2**63) <= number < 2**63 for number in (self.constant, *self.terms.values())]):
            return self
        return Linear(wrapped(self.constant), {t: w for t, c in self.terms.items() if (w := wrapped(c))})


class Affine(NamedTuple, Generic[T]):
    """base + lane * stride: a scalar (`lanes` 1, stride 0) or a vector of evenly spaced numbers."""

    base: Linear[T]
    stride: Linear[T]
    lanes: int

    def plus(self, other: Affine[T], factor: int = 1) -> Affine[T]:
        lanes = self.lanes if self.lanes > other.lanes else other.lanes
        stride = self.stride if lanes == 1 else self.stride.plus(other.stride, factor)
        return Affine(self.base.plus(other.base, factor), stride, lanes)

    def times(self, factor: int) -> Affine[T]:
        return Affine(self.base.times(factor), self.stride.times(factor), self.lanes)


def _without_zeros(terms: dict[T, int]) -> dict[T, int]:
    return terms if all(terms.values()) else {term: c for term, c in terms.items() if c}


ZERO: Linear[Any] = Linear(0, {})
ONE: Linear[Any] = Linear(1, {})


def scalar(form: Linear[T]) -> Affine[T]:
    return Affine(form, ZERO, 1)


def wrapped(value: int) -> int:
    """The int64 that a number wraps to."""
    return (value + 2**63) % 2**64 - 2**63


def expression(form: Linear[Any]) -> Expr:
    """The sum as an expression: positive terms, negative ones, then the constant."""
    total: Expr | None = None
    for term, factor in sorted(form.terms.items(), key=lambda item: item[1] < 0):
        if total is not None and -(2**63) < factor < 0:
            total = total - (term if factor == -1 else term * -factor)
        else:
            summand = term if factor == 1 else term * factor
            total = summand if total is None else total + summand
    if total is None or form.constant == 0:
        return as_expr(form.constant) if total is None else total
    return total - -form.constant if -(2**63) < form.constant < 0 else total + form.constant


class LinearForms:
    """The forms of int64 expressions, each found once. What is not a sum is a term itself; the value
    of an expression is that of its form modulo 2**64."""

    def __init__(self) -> None:
        self._known: dict[int, Affine[Expr] | None] = {}
        self._kept: list[Expr] = []  # ids are keys only as long as their nodes live

    def of(self, root: Expr) -> Affine[Expr] | None:
        """None for what is not int64, and for vectors that are not evenly spaced."""
        known = self._known
        if id(root) in known:
            return known[id(root)]
        if root.dtype is not INT64 and root.dtype != INT64:
            return None
        stack = [root]
        while stack:
            expr = stack[-1]
            summands = parts(expr) if type(expr) in _SUMS else ()
            waiting = [part for part in summands if id(part) not in known]
            if waiting:
                stack += waiting
            else:
                self.learn(stack.pop(), _form(expr, [known[id(part)] for part in summands]))
        return known[id(root)]

    def learn(self, expr: Expr, form: Affine[Expr] | None) -> None:
        """Takes the form of an expression for known."""
        if id(expr) not in self._known:
            self._known[id(expr)] = form
            self._kept.append(expr)

    def flat(self, indices: Sequence[Expr], strides: Sequence[Expr]) -> Affine[Expr] | None:
        """The sum of indices times strides; None where a stride is not a constant."""
        total: Affine[Expr] = scalar(ZERO)
        for index, stride in zip(indices, strides):
            form = self.of(index)
            if form is None or not isinstance(stride, Const):
                return None
            total = total.plus(form, int(stride.value))
        return total


_SUMS = frozenset({Unary, Binary, Ramp, Broadcast})


def _form(expr: Expr, inner: list[Affine[Expr] | None]) -> Affine[Expr] | None:
    if type(expr) is Const:
        return scalar(Linear(int(expr.value), {}))
    known = [part for part in inner if part is not None]
    form = _sum(expr, known) if inner and len(known) == len(inner) else None
    if form is not None and len(form.base.terms) <= MAX_TERMS:
        return Affine(form.base.wrapped(), form.stride.wrapped() if form.lanes > 1 else ZERO, form.lanes)
    return scalar(Linear(0, {expr: 1})) if expr.lanes == 1 else None


def _sum(expr: Expr, inner: list[Affine[Expr]]) -> Affine[Expr] | None:
    a, b = inner[0], inner[-1]
    if isinstance(expr, Binary):
        if expr.op == "add":
            return a.plus(b)
        if expr.op == "sub":
            return a.plus(b, -1)
        if expr.op == "mul" and (_is_number(a) or _is_number(b)):
            return a.times(b.base.constant) if _is_number(b) else b.times(a.base.constant)
    elif isinstance(expr, Unary):
        return a.times(-1) if expr.op == "neg" else None
    elif isinstance(expr, Ramp):
        return Affine(a.base, b.base, expr.lanes) if _is_number(b) and a.lanes == 1 else None
    elif isinstance(expr, Broadcast):
        return Affine(a.base, ZERO, expr.lanes)
    return None


def _is_number(form: Affine[Expr]) -> bool:
    return form.base.is_constant and form.stride == ZERO
