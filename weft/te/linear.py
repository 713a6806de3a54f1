"""Linear forms of integer expressions: sum(coefficient * term) + constant, modulo 2**64."""

from __future__ import annotations

from typing import NamedTuple

from .expr import Expr


class Linear(NamedTuple):
    terms: dict[Expr, int]
    constant: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            terms[term] = wrapped(terms.get(term, 0) + factor * coefficient)
        kept = {term: coefficient for term, coefficient in terms.items() if coefficient}
        return Linear(kept, wrapped(self.constant + factor * other.constant))

    def times(self, factor: int) -> Linear:
        return Linear({}, 0).plus(self, factor)


def difference(a: Linear, b: Linear) -> Linear:
    """a - b over the integers, where nothing wraps."""
    terms = {term: a.terms.get(term, 0) - b.terms.get(term, 0) for term in {**a.terms, **b.terms}}
    return Linear(terms, a.constant - b.constant)


def wrapped(value: int) -> int:
    """The int64 that a number wraps to."""
    return (value + 2**63) % 2**64 - 2**63


def split_form(form: Linear, divisor: int) -> tuple[Linear, Linear]:
    """The form as divisor * whole + rest, the constant of the rest in 0 .. divisor - 1."""
    whole = {t: c // divisor for t, c in form.terms.items() if c % divisor == 0}
    rest = {t: c for t, c in form.terms.items() if c % divisor}
    return Linear(whole, form.constant // divisor), Linear(rest, form.constant % divisor)


def shrunk(form: Linear, by: int) -> Linear:
    """The form divided by a number that divides its coefficients; the constant rounds down."""
    return Linear({t: c // by for t, c in form.terms.items()}, form.constant // by)
