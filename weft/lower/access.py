"""How a kernel walks through memory: for each load, how far one step of a loop variable goes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..te.expr import Const, Expr, Load, Var
from ..te.linear import Affine, Linear, LinearForms
from ..te.loops import Buffer, Store
from ..te.visit import free_of


def accessed(access: Load | Store) -> Buffer:
    """The buffer that is read or written."""
    source = access.buffer if isinstance(access, Store) else access.source
    assert isinstance(source, Buffer)
    return source


def linear(expr: Expr) -> Linear[Var] | None:
    """An index as a linear function of variables; None where it is not one."""
    return _of_variables(LinearForms().of(expr))


def address(access: Load | Store) -> Linear[Var] | None:
    """The offset of an access in its buffer, in elements; None where it is not linear."""
    return _of_variables(LinearForms().flat(access.indices, accessed(access).strides))


def _of_variables(form: Affine[Expr] | None) -> Linear[Var] | None:
    if form is None or form.lanes > 1 or not all(type(term) is Var for term in form.base.terms):
        return None
    return form.base  # type: ignore[return-value]


def step(access: Load | Store, var: Var) -> int | None:
    """How many elements further an access is when the variable grows by one; None: it depends."""
    total = 0
    for terms, stride in zip(_terms(access), accessed(access).strides):
        for term in terms:
            if term is not var and type(term) is not Var and not free_of(term, [var]):
                return None
        if var in terms:
            if not isinstance(stride, Const):
                return None
            total += terms[var] * int(stride.value)
    return total


@lru_cache(64)  # schedules ask about one load after the other, and of each for several variables
def _terms(access: Load | Store) -> list[Mapping[Expr, int]]:
    """The sums that the indices are."""
    forms = LinearForms()
    found = [(index, forms.of(index)) for index in access.indices]
    return [{index: 1} if form is None else form.base.terms for index, form in found]


def continues(place: Linear[Var], outer: Var, inner: Var, extent: int) -> bool:
    """Whether one step outside goes as far as all steps inside."""
    return place.terms.get(outer, 0) == place.terms.get(inner, 0) * extent
