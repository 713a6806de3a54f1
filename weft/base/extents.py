"""Extents: whole numbers, names of them, and what follows from both by arithmetic.

An `Extent` is a polynomial with integer coefficients. Its atoms are names, which stand for numbers
of 0 or more, and floor divisions, minima and maxima of extents. It is kept in one canonical form, so
equal forms are equal objects. A dimension holds its text, "2*n + 1" or "(h + 1)//2", or an int where no
name is left; text that does not read as an expression is a name.

Ceiling division and remainder are said with floor division: (a + b - 1)//b and a - b*(a//b).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

from .errors import InvalidValue
from .expression import PLAIN_NAME, Tree, parse_expression

MAX_SIZE = 64  # terms and factors of an extent, those inside its atoms included
MAX_NUMBER = 10**18  # no coefficient is as large; such numbers read back

Monomial = tuple["Atom", ...]  # a product, in order; () is 1
Terms = dict[Monomial, int]


class Untold(ArithmeticError):
    """What is asked of an extent is not known before its names are numbers, or has no short form."""


@dataclass(frozen=True, order=True)
class Atom:
    """A name, or a floor division, minimum or maximum. The text says it all."""

    text: str
    kind: str = field(compare=False)  # "name", "//", "min" or "max"
    args: tuple[Extent, ...] = field(compare=False, default=())
    low: int | None = field(compare=False, default=0)  # no value is lower; None: not known
    high: int | None = field(compare=False, default=None)

    @property
    def size(self) -> int:
        return 1 + sum(arg.size for arg in self.args)


class Extent:
    """A polynomial over atoms, immutable.

    >>> n, m = Extent.of("n"), Extent.of("m")
    >>> print((n + 1) * 2 - n, n * m * 6 // (m * 3), (n - 1) // 2 + 1, least(n + 4, n))
    n + 2 2*n (n + 1)//2 n
    """

    __slots__ = ("_hash", "size", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [(atoms, count) for atoms, count in terms.items() if count]
        self.terms = tuple(sorted(kept, key=_place))
        self.size = sum(1 + sum(atom.size for atom in atoms) for atoms, _ in kept)
        if self.size > MAX_SIZE or any(abs(count) >= MAX_NUMBER for _, count in kept):
            raise Untold("the expression is too large")
        self._hash = hash(self.terms)

    @staticmethod
    def of(value: int | str | Extent) -> Extent:
        """A number, an expression or a name as an extent."""
        if isinstance(value, Extent):
            return value
        return _read(value) if isinstance(value, str) else Extent({(): int(value)})

    @staticmethod
    def named(name: str) -> Extent:
        """The extent with this name, also where the name would read as an expression."""
        text = name if PLAIN_NAME.fullmatch(name) else "'" + name.replace("'", "''") + "'"
        return _of_atom(Atom(text, "name"))

    @property
    def number(self) -> int | None:
        """Its value, where no name is left."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def text(self) -> str:
        """It as an expression, in which odd names are between quotes."""
        return _sum_text(self)

    @property
    def dim(self) -> int | str:
        """It as a dimension: a number, or canonical text."""
        number = self.number
        return str(self) if number is None else number

    def __str__(self) -> str:
        atom = _sole_atom(self)
        return _lone_name(atom) if atom is not None and atom.kind == "name" else _sum_text(self)

    def __repr__(self) -> str:
        return f"Extent({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.number == other
        return self.terms == other.terms if isinstance(other, Extent) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: int | Extent) -> Extent:
        terms = dict(self.terms)
        for atoms, count in Extent.of(other).terms:
            terms[atoms] = terms.get(atoms, 0) + count
        return Extent(terms)

    def __mul__(self, other: int | Extent) -> Extent:
        terms: Terms = {}
        for left, count in self.terms:
            for right, times in Extent.of(other).terms:
                atoms = _product(left, right)
                terms[atoms] = terms.get(atoms, 0) + count * times
        return Extent(terms)

    def __neg__(self) -> Extent:
        return Extent({atoms: -count for atoms, count in self.terms})

    def __sub__(self, other: int | Extent) -> Extent:
        return self + -Extent.of(other)

    def __floordiv__(self, other: int | Extent) -> Extent:
        divisor = Extent.of(other)
        if not divisor.terms:
            raise InvalidValue(f"{self} cannot be divided by 0")
        number = divisor.number
        return _over_polynomial(self, divisor) if number is None else _over_number(self, number)

    def __mod__(self, other: int | Extent) -> Extent:
        return self - self // other * other

    def __radd__(self, other: int) -> Extent:
        return self + other

    def __rmul__(self, other: int) -> Extent:
        return self * other

    def __rsub__(self, other: int) -> Extent:
        return Extent.of(other) - self

    def __rfloordiv__(self, other: int) -> Extent:
        return Extent.of(other) // self

    def __rmod__(self, other: int) -> Extent:
        return Extent.of(other) % self

    # Comparisons hold for all values of the names, or are Untold.

    def __le__(self, other: int | Extent) -> bool:
        low, high = bounds(Extent.of(other) - self)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        raise Untold(f"{self} <= {other} depends on the names")

    def __ge__(self, other: int | Extent) -> bool:
        return Extent.of(other) <= self

    def __lt__(self, other: int | Extent) -> bool:
        return not Extent.of(other) <= self

    def __gt__(self, other: int | Extent) -> bool:
        return not self <= other

    def equals(self, other: int | Extent) -> bool:
        """Whether both are equal for all values of the names or for none, else Untold."""
        low, high = bounds(self - other)
        if low == high == 0:
            return True
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        raise Untold(f"{self} == {other} depends on the names")

    def __bool__(self) -> bool:
        return not self.equals(0)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        number = self.number
        if number is None:
            raise Untold(f"{self} is no number")
        return number


def least(*extents: int | Extent) -> Extent:
    """The minimum."""
    return _extreme("min", [Extent.of(extent) for extent in extents])


def greatest(*extents: int | Extent) -> Extent:
    """The maximum."""
    return _extreme("max", [Extent.of(extent) for extent in extents])


def ceil_div(a: int | Extent, b: int | Extent) -> Extent:
    """The quotient rounded up.

    >>> print(ceil_div(Extent.of("n"), 4), ceil_div(9, 4))
    (n + 3)//4 3
    """
    a, b = Extent.of(a), Extent.of(b)
    number = b.number
    return (a + (number - 1)) // b if number is not None and number > 0 else -(-a // b)


# What is done with dimensions.


def names_of(dim: int | str | None) -> frozenset[str]:
    """The names in a dimension.

    >>> sorted(names_of("min(n, 4)*m"))
    ['m', 'n']
    """
    return _names(Extent.of(dim)) if isinstance(dim, str) else frozenset()


def substitute(dim: int | str | None, values: Mapping[str, int | str | None]) -> int | str | None:
    """A dimension with some names replaced; None where one of them is None.

    >>> substitute("2*n + m", {"n": "k - 1", "m": 2})
    '2*k'
    """
    if not isinstance(dim, str):
        return dim
    found = {name: values[name] for name in names_of(dim) if name in values}
    if None in found.values():
        return None
    if not found:
        return Extent.of(dim).dim
    try:
        known = {name: Extent.of(value) for name, value in found.items() if value is not None}
        return _replaced(Extent.of(dim), known).dim
    except Untold:
        return None


def evaluate(dim: int | str, values: Mapping[str, int]) -> int:
    """The number that a dimension is for these values of its names.

    >>> evaluate("(h - 1)//2 + 1", {"h": 7})
    4
    """
    if isinstance(dim, int):
        return dim
    missing = sorted(names_of(dim) - values.keys())
    if missing:
        raise InvalidValue(f"{dim!r} is not known without {missing[0]!r}", why=f"values are given for {sorted(values)}")
    known = {name: Extent.of(value) for name, value in values.items()}
    return int(_replaced(Extent.of(dim), known))


def computed(dim: int | str, values: Mapping[str, Any], operations: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    """A dimension computed step by step, with any kind of numbers for its names; `operations` has "//", "min" and
    "max" of that kind.

    >>> computed("(h - 1)//2 + min(h, 4)", {"h": 7}, {"//": operator.floordiv, "min": min, "max": max})
    7
    """
    return _computed(Extent.of(dim), values, operations)


def _computed(extent: Extent, values: Mapping[str, Any], operations: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    total: Any = 0
    for atoms, count in extent.terms:
        part: Any = count
        for atom in atoms:
            if atom.kind == "name":
                part = values[_lone_name(atom)] * part
            else:
                args = [_computed(arg, values, operations) for arg in atom.args]
                part = reduce(operations[atom.kind], args) * part
        total = part + total
    return total


def bound_names(pairs: Iterable[tuple[int | str | None, int]]) -> dict[str, int]:
    """What names stand for, as dimensions and the numbers that they are tell it.

    >>> bound_names([("n", 3), ("2*m + n", 13), ("k*l", 8)])
    {'n': 3, 'm': 5}
    """
    names: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for dim, number in pairs:
        if isinstance(dim, str):
            waiting.setdefault(dim, number)
    while True:
        rest = {}
        for dim, number in waiting.items():
            unknown = names_of(dim) - names.keys()
            solution = _solved(Extent.of(substitute(dim, names) or dim), number) if len(unknown) == 1 else None
            if solution is not None:
                names[next(iter(unknown))] = solution
            elif unknown:
                rest[dim] = number
        if len(rest) == len(waiting):
            return names
        waiting = rest


def _solved(extent: Extent, number: int) -> int | None:
    """The value of the one name in a*name + b at which it is a number."""
    offset = _constant_term(extent)
    if len(extent.terms) - bool(offset) != 1:
        return None
    (atoms, count), distance = extent.terms[0], number - offset
    if len(atoms) != 1 or atoms[0].kind != "name" or distance % count or distance // count < 0:
        return None
    return distance // count


def _names(extent: Extent) -> frozenset[str]:
    found: set[str] = set()
    for atoms, _ in extent.terms:
        for atom in atoms:
            found.update(*map(_names, atom.args))
            if atom.kind == "name":
                found.add(_lone_name(atom))
    return frozenset(found)


def _replaced(extent: Extent, values: Mapping[str, Extent]) -> Extent:
    total = _ZERO
    for atoms, count in extent.terms:
        part = Extent({(): count})
        for atom in atoms:
            part = part * _replaced_atom(atom, values)
        total = total + part
    return total


def _replaced_atom(atom: Atom, values: Mapping[str, Extent]) -> Extent:
    if atom.kind == "name":
        return values.get(_lone_name(atom), _of_atom(atom))
    return _CALLS[atom.kind](*(_replaced(arg, values) for arg in atom.args))


# The canonical form: terms and products.


def _place(term: tuple[Monomial, int]) -> tuple[int, Monomial]:
    """Where a term stands: higher degrees first."""
    return -len(term[0]), term[0]


def _of_atom(atom: Atom) -> Extent:
    return Extent({(atom,): 1})


def _sole_atom(extent: Extent) -> Atom | None:
    """The atom that the extent is."""
    if len(extent.terms) == 1 and extent.terms[0][1] == 1 and len(extent.terms[0][0]) == 1:
        return extent.terms[0][0][0]
    return None


def _product(left: Monomial, right: Monomial) -> Monomial:
    """All factors of both; of n*min(1, n, m) only n*min(1, m) remains."""
    atoms = sorted((*left, *right))
    if not left or not right or not any(atom.kind == "min" for atom in atoms):
        return tuple(atoms)
    for place, atom in enumerate(atoms):
        if atom.kind == "min" and atom.args[0] == 1:
            others = atoms[:place] + atoms[place + 1 :]
            told = {_of_atom(other) for other in others if other.low is not None and other.low >= 0}
            rest = [arg for arg in atom.args if arg not in told]
            smaller = least(*rest)
            if len(rest) < len(atom.args) and len(smaller.terms) == 1 and smaller.terms[0][1] == 1:
                return _product(tuple(others), smaller.terms[0][0])
    return tuple(atoms)


def _constant_term(extent: Extent) -> int:
    """The last term, where it is a number."""
    return extent.terms[-1][1] if extent.terms and not extent.terms[-1][0] else 0


def _without(atoms: Monomial, part: Monomial) -> Monomial | None:
    """The factors that are left when some are taken away; None where they are not there."""
    left = list(atoms)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


# Divisions.


def _over_number(extent: Extent, divisor: int) -> Extent:
    """Floor division by a number: what it divides comes out, of the rest only remainders stay."""
    if divisor < 0:
        return _over_number(-extent, -divisor)
    low, high = bounds(extent)
    if low is not None and high is not None and low // divisor == high // divisor:
        return Extent({(): low // divisor})
    whole: Terms = {}
    rest: Terms = {}
    for atoms, count in extent.terms:
        whole[atoms], rest[atoms] = divmod(count, divisor)
    rest = {atoms: count for atoms, count in rest.items() if count}
    offset = rest.pop((), 0)
    shared = math.gcd(divisor, *rest.values())
    inner = Extent({**{atoms: count // shared for atoms, count in rest.items()}, (): offset // shared})
    return Extent(whole) + _quotient(inner, divisor // shared)


def _quotient(extent: Extent, divisor: int) -> Extent:
    """Of what has nothing in common with the divisor: (a//b + c)//d is (a + b*c)//(b*d)."""
    if divisor == 1:
        return extent
    for atoms, count in extent.terms:
        if count == 1 and len(atoms) == 1 and atoms[0].kind == "//":
            above, below = atoms[0].args
            number = below.number
            if number is not None:
                return _over_number(above + (extent - _of_atom(atoms[0])) * number, divisor * number)
    low, high = bounds(extent)
    told = low is not None and high is not None and low // divisor == high // divisor
    return Extent({(): low // divisor}) if told and low is not None else _division(extent, Extent({(): divisor}))


def _over_polynomial(extent: Extent, divisor: Extent) -> Extent:
    """Floor division by an expression: by its polynomial part where that divides, then by the rest."""
    if divisor.terms[0][1] < 0:
        extent, divisor = -extent, -divisor
    common, count = _content(divisor)
    if len(divisor.terms) > 1:
        primitive = _exact(divisor, Extent({common: count}))
        assert primitive is not None
        quotient = _exact(extent, primitive)
        if quotient is None:
            return _unless_small(extent, divisor)
        return quotient // Extent({common: count})
    whole: Terms = {}
    rest: Terms = {}
    for atoms, times in extent.terms:
        left = _without(atoms, common)
        if left is not None:
            whole[left], times = divmod(times, count)
        rest[atoms] = times
    return Extent(whole) + _reduced(Extent(rest), common, count)


def _reduced(extent: Extent, common: Monomial, count: int) -> Extent:
    """Floor division by count*common, of which what both sides share is dropped."""
    if not extent.terms:
        return _ZERO
    factors, times = _content(extent)
    for atom in factors:
        left = _without(common, (atom,))
        if left is not None:
            common, extent = left, _divided(extent, (atom,), 1)
    shared = math.gcd(times, count)
    extent, count = _divided(extent, (), shared), count // shared
    return _unless_small(extent, Extent({common: count})) if common else _over_number(extent, count)


def _unless_small(extent: Extent, divisor: Extent) -> Extent:
    """The division; 0 where the dividend is always smaller than the divisor."""
    low, room = bounds(extent)[0], bounds(divisor - extent)[0]
    if low is not None and room is not None and low >= 0 and room > 0:
        return _ZERO
    return _division(extent, divisor)


def _division(above: Extent, below: Extent) -> Extent:
    low = high = None
    (least_above, most_above), least_below, number = bounds(above), bounds(below)[0], below.number
    if number is not None:
        low, high = (None if bound is None else bound // number for bound in (least_above, most_above))
    elif least_above is not None and least_above >= 0 and least_below is not None and least_below >= 0:
        low, high = 0, most_above
    return _of_atom(Atom(f"{_inner_text(above)}//{_inner_text(below)}", "//", (above, below), low, high))


def _content(extent: Extent) -> tuple[Monomial, int]:
    """The factors that all terms share."""
    shared: Monomial = extent.terms[0][0]
    for atoms, _ in extent.terms[1:]:
        left = list(atoms)
        shared = tuple(atom for atom in shared if atom in left and not left.remove(atom))  # type: ignore[func-returns-value]
    return shared, math.gcd(*(count for _, count in extent.terms))


def _divided(extent: Extent, atoms: Monomial, count: int) -> Extent:
    """By factors that all terms have."""
    return Extent({tuple(_without(own, atoms) or ()): times // count for own, times in extent.terms})


def _exact(extent: Extent, divisor: Extent) -> Extent | None:
    """The quotient where the divisor divides the polynomial, by long division."""
    (lead, count), quotient = divisor.terms[0], _ZERO
    for _ in range(MAX_SIZE):
        if not extent.terms:
            return quotient
        left = _without(extent.terms[0][0], lead)
        if left is None or extent.terms[0][1] % count:
            return None
        part = Extent({left: extent.terms[0][1] // count})
        quotient, extent = quotient + part, extent - divisor * part
    return None


# Minima and maxima.


def _extreme(kind: str, extents: list[Extent]) -> Extent:
    """Without what never decides; a number that all have, and a factor, come out."""
    sign = 1 if kind == "min" else -1
    kept: list[Extent] = []
    parts = [part for extent in extents for part in _parts(kind, extent)]
    for extent in dict.fromkeys(parts):
        if any(_never_below((extent - other) * sign) for other in kept):
            continue
        kept = [other for other in kept if not _never_below((other - extent) * sign)] + [extent]
    if len(kept) == 1:
        return kept[0]
    if kind == "max" and len(kept) == 2 and any(extent.number is not None for extent in kept):
        return kept[0] + kept[1] - least(*kept)  # so that x[1:] and x[:-1] are of one length
    offset = min(map(_constant_term, kept))
    moved = [extent - offset for extent in kept]
    factor = math.gcd(*(count for extent in moved for _, count in extent.terms))
    args = sorted((_divided(extent, (), factor) for extent in moved), key=_argument_place)
    low, high = _extreme_bounds(kind, args)
    atom = Atom(f"{kind}({', '.join(map(_sum_text, args))})", kind, tuple(args), low, high)
    return _of_atom(atom) * factor + offset


def _parts(kind: str, extent: Extent) -> Iterable[Extent]:
    """The arguments of min(a, b) + 2 with the 2, else the extent itself."""
    offset = _constant_term(extent)
    atom = _sole_atom(extent - offset)
    return [arg + offset for arg in atom.args] if atom is not None and atom.kind == kind else [extent]


def _argument_place(extent: Extent) -> tuple[bool, str]:
    return extent.number is None, _sum_text(extent)


def _never_below(extent: Extent) -> bool:
    low = bounds(extent)[0]
    return low is not None and low >= 0


def _extreme_bounds(kind: str, args: Iterable[Extent]) -> tuple[int | None, int | None]:
    lows, highs = zip(*map(bounds, args))
    if kind == "min":
        told = [high for high in highs if high is not None]
        return (None if None in lows else min(lows)), min(told, default=None)
    told = [low for low in lows if low is not None]
    return max(told, default=None), (None if None in highs else max(highs))


# Bounds.


@lru_cache(maxsize=4096)
def bounds(extent: Extent) -> tuple[int | None, int | None]:
    """The least and the greatest that the extent can be, as far as is easily told.

    >>> bounds(Extent.of("min(n, 4) + 2")), bounds(Extent.of("n - n//2"))
    ((2, 6), (0, None))
    """
    low, high = _low(extent, 3), _low(-extent, 3)
    return low, None if high is None else -high


def _low(extent: Extent, tries: int) -> int | None:
    """The best of what the terms say each alone, and what they say with an atom replaced by what bounds it."""
    found = [_sum_of_lows(extent)]
    if tries:
        for atoms, count in extent.terms:
            if len(atoms) == 1 and atoms[0].kind != "name":
                found.append(_low_without(extent - _of_atom(atoms[0]) * count, atoms[0], count, tries - 1))
    return max((low for low in found if low is not None), default=None)


def _low_without(rest: Extent, atom: Atom, count: int, tries: int) -> int | None:
    """The least that rest + count*atom can be."""
    if atom.kind == "//":
        above, divisor = atom.args[0], atom.args[1].number
        if divisor is None:
            return None
        # a//b is at most a/b, and at least (a - b + 1)/b
        low = _low(rest * divisor + (above if count < 0 else above - (divisor - 1)) * count, tries)
        return None if low is None else -(-low // divisor)
    lows = [_low(rest + arg * count, tries) for arg in atom.args]
    if (atom.kind == "min") == (count < 0):  # it is beyond each argument
        return max((low for low in lows if low is not None), default=None)
    return None if None in lows else min(low for low in lows if low is not None)


def _sum_of_lows(extent: Extent) -> int | None:
    total = 0
    for atoms, count in extent.terms:
        low, high = _product_bounds(atoms)
        bound = low if count > 0 else high
        if bound is None:
            return None
        total += count * bound
    return total


def _product_bounds(atoms: Monomial) -> tuple[int | None, int | None]:
    if len(atoms) == 1:
        return atoms[0].low, atoms[0].high
    lows, highs = [atom.low for atom in atoms], [atom.high for atom in atoms]
    known = [low for low in lows if low is not None and low >= 0]
    if len(known) < len(lows):
        return None, None
    return math.prod(known), None if None in highs else math.prod(high for high in highs if high is not None)


# Text.


def _term_text(atoms: Monomial, count: int) -> str:
    if len(atoms) == 1 and count == 1:
        return atoms[0].text
    factors = [f"({atom.text})" if atom.kind == "//" else atom.text for atom in atoms]
    if abs(count) != 1 or not atoms:
        factors.insert(0, str(abs(count)))
    return ("-" if count < 0 else "") + "*".join(factors)


def _sum_text(extent: Extent) -> str:
    first, *rest = [_term_text(atoms, count) for atoms, count in extent.terms] or ["0"]
    return first + "".join(f" - {text[1:]}" if text[0] == "-" else f" + {text}" for text in rest)


def _inner_text(extent: Extent) -> str:
    """A side of a division."""
    atom, number = _sole_atom(extent), extent.number
    bare = atom.kind != "//" if atom is not None else number is not None and number >= 0
    return _sum_text(extent) if bare else f"({_sum_text(extent)})"


def _lone_name(atom: Atom) -> str:
    """A name that stands alone has no quotes, unless it would read as an expression."""
    if atom.text[:1] != "'":
        return atom.text
    name = atom.text[1:-1].replace("''", "'")
    return name if _read_expression(name) is None else atom.text


def reads_as_expression(text: str) -> bool:
    """Whether text is a number, a plain or quoted name, or an expression of them."""
    return _read_expression(text) is not None


@lru_cache(maxsize=4096)
def _read(text: str) -> Extent:
    found = _read_expression(text)
    return Extent.named(text) if found is None else found


def _read_expression(text: str) -> Extent | None:
    tree = parse_expression(text)
    try:
        return None if tree is None else _of_tree(tree)
    except (Untold, InvalidValue):
        return None


def _of_tree(tree: Tree) -> Extent:
    if isinstance(tree, int):
        return Extent.of(tree)
    return Extent.named(tree) if isinstance(tree, str) else _CALLS[tree[0]](*map(_of_tree, tree[1:]))


_ZERO = Extent({})
_CALLS: dict[str, Callable[..., Extent]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": least,
    "max": greatest,
}
