"""Extents: canonical forms against plain arithmetic on numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.errors import InvalidValue
from weft.base.extents import Extent, Untold, bounds, ceil_div, evaluate, greatest, least, names_of, substitute

NAMES = ("n", "m", "batch size")
VALUES = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})

Tree = int | str | tuple

EXPRESSIONS = st.recursive(
    st.integers(-6, 12) | st.sampled_from(NAMES),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "ceil", "min", "max"]), inner, inner),
    max_leaves=9,
)
ON_NUMBERS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceil": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}
ON_EXTENTS = ON_NUMBERS | {"ceil": ceil_div, "min": least, "max": greatest}


def value(tree: Tree, values: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return ON_NUMBERS[tree[0]](value(tree[1], values), value(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree


def extent(tree: Tree) -> Extent:
    if isinstance(tree, tuple):
        return ON_EXTENTS[tree[0]](extent(tree[1]), extent(tree[2]))
    return Extent.of(tree)


def text(tree: Tree) -> str:
    """The tree as Python would read it, names with odd characters between quotes."""
    if not isinstance(tree, tuple):
        return f"'{tree}'" if isinstance(tree, str) and " " in tree else str(tree)
    kind, (a, b) = tree[0], map(text, tree[1:])
    if kind in ("min", "max"):
        return f"{kind}({a}, {b})"
    return f"-(-({a})//({b}))" if kind == "ceil" else f"(({a}) {kind} ({b}))"


@given(EXPRESSIONS, VALUES)
def test_canonical_form_keeps_the_value(tree, values):
    try:
        made, expected = extent(tree), value(tree, values)
    except (Untold, InvalidValue, ZeroDivisionError):
        return  # too large, or a division by 0
    assert evaluate(made.dim, values) == expected
    low, high = bounds(made)
    assert low is None or low <= expected
    assert high is None or expected <= high


@given(EXPRESSIONS, VALUES)
def test_text_is_read_as_what_it_says(tree, values):
    try:
        made, expected = Extent.of(text(tree)), value(tree, values)
        extent(tree)
    except (Untold, InvalidValue, ZeroDivisionError):
        return
    assert made.dim == text(tree) or evaluate(made.dim, values) == expected  # the former is a name: too large


@given(EXPRESSIONS)
def test_text_of_a_canonical_form_is_that_form(tree):
    try:
        made = extent(tree)
    except (Untold, InvalidValue):
        return
    assert Extent.of(made.dim) == made
    assert Extent.of(str(made)).dim == made.dim


@given(EXPRESSIONS, EXPRESSIONS, VALUES)
def test_comparisons_hold_for_all_values(left, right, values):
    try:
        a, b = extent(left), extent(right)
        expected = value(left, values), value(right, values)
        less = a <= b
        equal = a.equals(b)
    except (Untold, InvalidValue, ZeroDivisionError):
        return
    assert less == (expected[0] <= expected[1])
    assert equal == (expected[0] == expected[1])


@given(EXPRESSIONS, EXPRESSIONS, VALUES)
def test_substitution_is_evaluation_in_steps(tree, inner, values):
    try:
        made, part = extent(tree), extent(inner)
        replaced = substitute(made.dim, {"n": part.dim})
        number = value(inner, values)
        expected = value(tree, values | {"n": number})
        evaluated = evaluate(replaced, values) if replaced is not None else None
    except (Untold, InvalidValue, ZeroDivisionError):
        return
    assert number < 0 or evaluated in (None, expected)  # names are of numbers from 0 on


EQUAL = """
n*a//a              n
6*n//3              2*n
n - n               0
(n + 1) - 1         n
n//2//3             n//6
(n//2 + 1)//2       (n + 2)//4
((h - 1)//2 - 1)//2  (h - 3)//4
(2*n + 1)//2        n
(2*n + 1)//4        n//2
n % 1               0
(4*n + 2) % 4       2
2*n % 2             0
min(n, n)           n
min(n, n + 3)       n
max(n, n + 3)       n + 3
max(n, 0)           n
min(n + 1, m + 1)   min(n, m) + 1
min(2*n, 2*m)       2*min(m, n)
min(min(n, 4), m)   min(4, m, n)
max(n - 1, 0) + 1   max(1, n)
max(n - 1, 0)       n - min(n, 1)
max(1 - n, 0)//2    0
(n + m)*(n - m)     n*n - m*m
(b*p + b*s)*768//(12*b*(p + s))  64
(p + s)*b//((p + s)*h)           b//h
n//(n + 1)          0
n - min(n, 4) - 1 + min(4, n) + 1   n
max(n, min(n, 512))*min(1, n, min(n, 512))  n
-(-n//1)            n
"""


@pytest.mark.parametrize("row", EQUAL.strip().splitlines())
def test_equal_expressions_are_equal(row):
    left, right = (part.strip() for part in row.rsplit("  ", 1))
    assert Extent.of(left) == Extent.of(right)
    assert Extent.of(left).dim == Extent.of(right).dim


TEXTS = """
1 + 2*n           2*n + 1
(h - 1)//2 + 1    (h + 1)//2
min(n, 4)         min(4, n)
-n + 3            -n + 3
n*(-2)            -2*n
2*(n//3)          2*(n//3)
-(n//3)           -(n//3)
past + 1          past + 1
'batch size' + 1  'batch size' + 1
batch size        batch size
'batch size'      batch size
'a+b'             'a+b'
a.b/c             a.b/c
n//0              n//0
2d                2d
n +               n +
it's              it's
'it''s'           it's
"""


@pytest.mark.parametrize("row", TEXTS.strip().splitlines())
def test_canonical_text(row):
    given_text, canonical = (part.strip() for part in row.split("  ", 1))
    assert Extent.of(given_text).dim == canonical


def test_numbers_are_numbers():
    assert Extent.of("3*4 - 2").dim == 10
    assert Extent.of("n - n + 2").dim == 2


def test_names():
    assert names_of("min(n, 'batch size' + 2)//k") == {"n", "batch size", "k"}
    assert names_of(3) == names_of(None) == frozenset()
    assert Extent.named("a+b").dim == "'a+b'"
    assert names_of("'a+b' - 1") == {"'a+b'"}
    assert substitute("'a+b' - 1", {"'a+b'": 4}) == 3


def test_missing_names_and_division_by_zero_are_errors():
    with pytest.raises(InvalidValue, match="without 'm'"):
        evaluate("n + m", {"n": 1})
    with pytest.raises(InvalidValue, match="divided by 0"):
        evaluate("n//m", {"n": 1, "m": 0})
    assert substitute("n + m", {"n": None}) is None


def test_large_expressions_are_untold_at_once():
    six = Extent.of("a + b + c + d + e + f")
    with pytest.raises(Untold):
        six * six * six
    assert substitute("n*n*n*n", {"n": "a + b + c + d + e + f"}) is None
    deep = "(" * 5000 + "n" + ")" * 5000
    assert names_of(deep) == {deep}  # no expression, so a name
    assert Extent.of("(" * 30 + "n" + ")" * 30) == Extent.of("n")
