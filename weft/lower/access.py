"""How a kernel walks through memory: for each load, how far one step of a loop variable goes."""

from __future__ import annotations

from typing import NamedTuple

from ..base.dtype import is_integer
from ..te.expr import Binary, Const, Expr, Load, Unary, Var
from ..te.loops import Buffer, Store
from ..te.visit import free_of


class Affine(NamedTuple):
    """constant + sum of coefficient * variable."""

    constant: int
    terms: dict[Var, int]

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        terms = dict(self.terms)
        for var, coefficient in other.terms.items():
            terms[var] = terms.get(var, 0) + factor * coefficient
        kept = {var: number for var, number in terms.items() if number}
        return Affine(self.constant + factor * other.constant, kept)


ZERO = Affine(0, {})


def accessed(access: Load | Store) -> Buffer:
    """The buffer that is read or written."""
    source = access.buffer if isinstance(access, Store) else access.source
    assert isinstance(source, Buffer)
    return source


def affine(expr: Expr) -> Affine | None:
    """An index as a linear function of variables; None where it is not one."""
    if isinstance(expr, Const):
        return Affine(int(expr.value), {}) if is_integer(expr.dtype) else None
    if isinstance(expr, Var):
        return Affine(0, {expr: 1})
    if isinstance(expr, Unary) and expr.op == "neg":
        inner = affine(expr.a)
        return None if inner is None else ZERO.plus(inner, -1)
    if isinstance(expr, Binary) and expr.op in ("add", "sub", "mul"):
        a, b = affine(expr.a), affine(expr.b)
        if a is None or b is None:
            return None
        if expr.op != "mul":
            return a.plus(b, 1 if expr.op == "add" else -1)
        if not a.terms or not b.terms:
            scale, other = (a.constant, b) if not a.terms else (b.constant, a)
            return ZERO.plus(other, scale)
    return None


def address(access: Load | Store) -> Affine | None:
    """The offset of an access in its buffer, in elements; None where it is not linear."""
    total = ZERO
    for index, stride in zip(access.indices, accessed(access).strides):
        part = affine(index)
        if part is None or not isinstance(stride, Const):
            return None
        total = total.plus(part, int(stride.value))
    return total


def step(access: Load | Store, var: Var) -> int | None:
    """How many elements further an access is when the variable grows by one; None: it depends."""
    total = 0
    for index, stride in zip(access.indices, accessed(access).strides):
        part = affine(index)
        if part is None:
            if not free_of(index, [var]):
                return None
        elif part.terms.get(var):
            if not isinstance(stride, Const):
                return None
            total += part.terms[var] * int(stride.value)
    return total
