"""Converter of Einsum: each pair of operands becomes one product of matrices."""

from __future__ import annotations

import re

from ....base.errors import FormatError, Unsupported
from ....base.shape import numel
from ...emitter import Value
from ..call import Call
from ..registry import converter

_SPARE = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@converter("Einsum", since=12)
def einsum(call: Call) -> Value:
    terms, result = _parse(call)
    values = [call[i] for i in range(len(call.inputs))]
    while len(values) > 1:
        kept = set(result).union(*terms[2:])
        values[:2], terms[:2] = _product(call, values[:2], terms[:2], kept)
    value, term = _summed(call, values[0], terms[0], set(result))
    if sorted(term) != sorted(result):
        raise FormatError(f"the result {result!r} has axes that no operand has")
    return _ordered(call, value, term, result)


def _parse(call: Call) -> tuple[list[str], str]:
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


def _product(call: Call, values: list[Value], terms: list[str], kept: set[str]) -> tuple[list[Value], list[str]]:
    """Two operands as one: shared axes that are kept are batches, other shared ones are summed."""
    (a, b), (s, t) = values, terms
    a, s = _summed(call, a, s, kept | set(t))
    b, t = _summed(call, b, t, kept | set(s))
    batch = [letter for letter in s if letter in t and letter in kept]
    inner = [letter for letter in s if letter in t and letter not in kept]
    rows = [letter for letter in s if letter not in t]
    columns = [letter for letter in t if letter not in s]
    a = _ordered(call, a, s, "".join(batch + rows + inner))
    b = _ordered(call, b, t, "".join(batch + inner + columns))
    sizes = _sizes(call, a, batch + rows + inner, b, batch + inner + columns)
    left = call.reshape(a, [*(sizes[x] for x in batch), _size(sizes, rows), _size(sizes, inner)])
    right = call.reshape(b, [*(sizes[x] for x in batch), _size(sizes, inner), _size(sizes, columns)])
    made = call.op("batch_matmul", left, right)
    term = batch + rows + columns
    return [call.reshape(made, [sizes[letter] for letter in term])], ["".join(term)]


def _size(sizes: dict[str, int], letters: list[str]) -> int:
    return numel([sizes[letter] for letter in letters])


def _sizes(call: Call, a: Value, s: list[str], b: Value, t: list[str]) -> dict[str, int]:
    sizes = dict(zip(s, call.shape(a)))
    for letter, size in zip(t, call.shape(b)):
        if sizes.setdefault(letter, size) != size:
            raise Unsupported(f"Einsum that broadcasts axis {letter!r} is not supported")
    return sizes


def _summed(call: Call, value: Value, term: str, kept: set[str]) -> tuple[Value, str]:
    """Without the axes that nothing later has."""
    gone = tuple(axis for axis, letter in enumerate(term) if letter not in kept)
    if not gone:
        return value, term
    rest = [dim for axis, dim in enumerate(call.shape(value)) if axis not in gone]
    made = call.op("sum", value, axis=gone)
    return call.reshape(made, rest), "".join(letter for letter in term if letter in kept)


def _ordered(call: Call, value: Value, term: str, wanted: str) -> Value:
    if term == wanted:
        return value
    return call.op("transpose", value, axes=tuple(term.index(letter) for letter in wanted))
