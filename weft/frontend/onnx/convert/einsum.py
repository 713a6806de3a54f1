"""The converter of Einsum: an equation becomes transposes, products and sums."""

from __future__ import annotations

import re

import numpy as np

from ....base.dtype import INT64
from ....base.errors import FormatError
from ...emitter import Value
from ...products import contracted
from ..call import OnnxCall
from ..registry import converter

_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@converter("Einsum", since=12)
def einsum(call: OnnxCall) -> Value:
    terms, result = _parse(call)
    operands = [_distinct(call, value, term) for value, term in zip(call.all(), terms)]
    return contracted(call, [value for value, _ in operands], [term for _, term in operands], result)


def _distinct(call: OnnxCall, value: Value, term: str) -> tuple[Value, str]:
    """An operand whose letters differ: of two axes of one letter the diagonal is left, as the last axis."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, second = [place for place, other in enumerate(term) if other == letter][:2]
            rest = [axis for axis in range(len(term)) if axis not in (first, second)]
            extent = call.extent(value, first)
            value = call.transposed(value, (*rest, first, second))
            shape = call.shape(value)
            if shape[-2] != shape[-1]:
                raise FormatError(f"axes of {shape[-2]} and {shape[-1]} elements are both {letter!r}")
            flat = call.reshape(value, (*shape[:-2], extent * extent))
            diagonal = call.make(np.arange(extent) * (extent + 1), INT64)
            value = call.op("take", flat, diagonal, axis=len(rest))
            term = "".join(term[axis] for axis in rest) + letter
    return value, term


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
        if len(term) != call.rank(call[index]):
            raise FormatError(f"the term {terms[index]!r} for an input of {call.rank(call[index])} axes")
    if arrow:
        return full, result.replace("...", dots)
    once = [letter for letter in "".join(full) if "".join(full).count(letter) == 1]
    return full, dots + "".join(sorted(set(once) - set(dots)))
