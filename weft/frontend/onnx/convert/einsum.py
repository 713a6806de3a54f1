"""The converter of Einsum: an equation becomes transposes, products and sums."""

from __future__ import annotations

import re

from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ...products import contracted
from ..call import OnnxCall
from ..registry import converter

_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@converter("Einsum", since=12)
def einsum(call: OnnxCall) -> Value:
    terms, result = _parse(call)
    return contracted(call, call.all(), terms, result)


def _parse(call: OnnxCall) -> tuple[list[str], str]:
    """The terms and the result, with letters of their own for the axes of `...`."""
    equation = call.attr("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs) or not re.fullmatch(r"[A-Za-z.,]*", left + result):
        raise FormatError(f"the equation {equation!r} does not fit {len(call.inputs)} inputs")
    spare = [letter for letter in _SPARE if letter not in equation]
    widths = [call.rank(call[i]) - len(term.replace("...", "")) for i, term in enumerate(terms)]
    most = max([width for term, width in zip(terms, widths) if "..." in term], default=0)
    if most > len(spare) or any(width < 0 for width in widths):
        raise FormatError(f"the equation {equation!r} does not fit its inputs")
    dots = "".join(spare[:most])
    full = [t.replace("...", dots[most - w :]) for t, w in zip(terms, widths)]
    for index, term in enumerate(full):
        if len(set(term)) != len(term) or len(term) != call.rank(call[index]):
            raise Unsupported(f"Einsum with the term {terms[index]!r} is not supported")
    if arrow:
        return full, result.replace("...", dots)
    once = [letter for letter in "".join(full) if "".join(full).count(letter) == 1]
    return full, dots + "".join(sorted(set(once) - set(dots)))
