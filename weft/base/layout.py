"""Layout: the order of a tensor's dimensions, as a string such as NCHW or NCHW16c.

An upper-case letter is a whole dimension; a factor with a lower-case letter is the inner part of
the dimension of that letter, split off in blocks of that size.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import InvalidType, LayoutError
from .shape import Dim, Shape, floor_div_dims, mul_dims, show

UNDEFINED = "__undef__"
_TOKEN = re.compile(r"([A-Z])|([1-9][0-9]{0,8})([a-z])")


class Layout:
    """An immutable layout.

    >>> Layout("NCHW16c").subsizeof("C"), Layout("NCHW").index_of("H")
    (16, 2)
    """

    __slots__ = ("axes", "name")

    def __init__(self, name: str = UNDEFINED) -> None:
        if not isinstance(name, str):
            raise InvalidType(f"a layout is a string such as NCHW, not {name!r}")
        self.name = name
        self.axes: tuple[tuple[str, int], ...] = () if name == UNDEFINED else _parse(name)

    @property
    def defined(self) -> bool:
        return self.name != UNDEFINED

    @property
    def ndim(self) -> int:
        return len(self.axes)

    @property
    def whole(self) -> bool:
        """Whether no dimension is split."""
        return all(size == 0 for _, size in self.axes)

    def index_of(self, axis: str) -> int:
        """Where an axis stands, or -1."""
        return next((i for i, (letter, _) in enumerate(self.axes) if letter == axis), -1)

    def __contains__(self, axis: str) -> bool:
        return self.index_of(axis) >= 0

    def subsizeof(self, axis: str) -> int:
        """The block size of a split dimension, or -1 when it is whole."""
        return next((size for letter, size in self.axes if letter == axis.lower()), -1)

    def convertible(self, other: Layout) -> bool:
        """Whether a tensor in this layout can be rearranged into the other one."""
        return self.defined and other.defined and self._letters() == other._letters()

    def _letters(self) -> set[str]:
        return {letter for letter, _ in self.axes if letter.isupper()}

    def sublayout(self, start: int, length: int) -> Layout:
        """Some neighbouring axes as a layout of their own; undefined if that makes no sense."""
        if not self.defined or length <= 0 or start < 0 or start + length > self.ndim:
            return Layout()
        kept = self.axes[start : start + length]
        letters = {letter for letter, _ in kept}
        return _from_axes([a for a in kept if a[0].isupper() or a[0].upper() in letters])

    def reverse(self) -> Layout:
        return _from_axes(self.axes[::-1]) if self.defined else self

    def renamed(self, old: Layout, new: Layout) -> Layout:
        """This layout of a tensor whose axes `old` names, for the names that `new` has instead.

        >>> Layout("NCHW4c").renamed(Layout("NCHW"), Layout("NHWC"))
        Layout('NHWC4h')
        """
        if not (self.convertible(old) and old.whole and new.whole and old.ndim == new.ndim):
            raise LayoutError(f"layout {self} of axes {old} cannot be named {new}")
        names = {was: name for (was, _), (name, _) in zip(old.axes, new.axes)}
        return _from_axes([(_like(names[a.upper()], a), size) for a, size in self.axes])

    def split(self, axis: str, position: int, size: int) -> Layout:
        """Split a whole dimension: its inner block of `size` goes to `position`."""
        if axis not in self or not axis.isupper() or self.subsizeof(axis) > 0 or size < 1:
            raise LayoutError(
                f"cannot split {axis!r} of layout {self.name} in blocks of {size}",
                why="a dimension can be split once, if it is there, with a positive block size",
            )
        if not 0 <= position <= self.ndim:
            raise LayoutError(
                f"cannot put the block of {axis!r} at position {position} of layout {self.name}",
                hint=f"use 0 to {self.ndim}",
            )
        axes = list(self.axes)
        axes.insert(position, (axis.lower(), size))
        return _from_axes(axes)

    def __add__(self, other: Layout) -> Layout:
        if not self.defined or not other.defined:
            return other if not self.defined else self
        return Layout(self.name + other.name)

    def convert_shape(self, shape: Shape, target: Layout) -> Shape:
        """The shape of a tensor after it is rearranged from this layout into another.

        >>> Layout("NCHW").convert_shape((1, 32, 8, 8), Layout("NCHW16c"))
        (1, 2, 8, 8, 16)
        """
        if shape is None or self == target:
            return shape
        if all(dim is None or isinstance(dim, (int, str)) for dim in shape):
            return _converted(self, tuple(shape), target)
        return _converted.__wrapped__(self, tuple(shape), target)  # a cache would compare sizes that are arguments

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Layout({self.name!r})"


@lru_cache(4096)
def _converted(source: Layout, shape: tuple[Dim, ...], target: Layout) -> Shape:
    if not source.convertible(target):
        raise LayoutError(f"layout {source} does not convert to {target}")
    if len(shape) != source.ndim:
        raise LayoutError(f"shape {show(shape)} is not in layout {source}")
    total: dict[str, Dim] = {}
    for (letter, size), dim in zip(source.axes, shape):
        if isinstance(dim, int) and size and dim != size:
            raise LayoutError(
                f"shape {show(shape)} is not in layout {source}", why=f"its block {size}{letter} has {dim} elements"
            )
        total[letter.upper()] = mul_dims(total.get(letter.upper(), 1), dim)
    return tuple(_part(letter, size, total[letter.upper()], target) for letter, size in target.axes)


def _part(letter: str, size: int, total: Dim, target: Layout) -> Dim:
    if letter.islower():
        return size
    block = target.subsizeof(letter)
    if block < 0:
        return total
    if isinstance(total, int) and total % block:
        raise LayoutError(
            f"dimension {letter} of {total} cannot be split in blocks of {block}",
            hint="pad it to a multiple of the block, or choose a block that divides it",
        )
    return floor_div_dims(total, block)


def _like(name: str, part: str) -> str:
    """The name as a dimension or as a block, whichever the part is."""
    return name if part.isupper() else name.lower()


def _from_axes(axes: list[tuple[str, int]] | tuple[tuple[str, int], ...]) -> Layout:
    if not axes:
        return Layout()
    return Layout("".join(f"{size}{letter}" if size else letter for letter, size in axes))


@lru_cache(1024)
def _parse(name: str) -> tuple[tuple[str, int], ...]:
    axes: list[tuple[str, int]] = []
    position = 0
    while position < len(name):
        token = _TOKEN.match(name, position)
        if token is None:
            raise LayoutError(
                f"invalid layout {name!r}",
                where=f"character {position}",
                why="a layout is upper-case letters, and blocks such as 16c",
            )
        upper, size, lower = token.groups()
        axes.append((upper, 0) if upper else (lower, int(size)))
        position = token.end()
    letters = [letter for letter, _ in axes]
    if not letters:
        raise LayoutError("a layout cannot be empty", hint=f"write {UNDEFINED!r} for undefined")
    for letter in letters:
        if letters.count(letter) > 1:
            raise LayoutError(f"invalid layout {name!r}", why=f"axis {letter} is there twice")
        if letter.islower() and letter.upper() not in letters:
            raise LayoutError(f"invalid layout {name!r}", why=f"missing axis {letter.upper()} of block {letter}")
    return tuple(axes)
