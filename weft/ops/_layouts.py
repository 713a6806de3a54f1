"""Layout rules: f(params, ins, last_ins, outs) -> (ins, outs).

`ins` are the layouts the producers give, `last_ins` those the inputs had when the graph was first
typed. A rule says which layouts it asks its producers for, and which it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..base.errors import LayoutError
from ..base.layout import Layout
from ..base.shape import Shape
from ..core.schema import Params

Layouts = Sequence[Layout]
Answer = tuple[list[Layout], list[Layout]]
_UNDEFINED = Layout()


def arbitrary(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Works in any layout; all inputs must agree, and the outputs follow."""
    layout = next((known for known in ins if known.defined), _UNDEFINED)
    if not layout.defined:
        layout = next((known for known in outs if known.defined), _UNDEFINED)
    if any(not known.defined for known in ins):
        layout = _first_given(layout, ins, last)
    return [layout] * len(ins), [layout] * len(outs)


def _first_given(layout: Layout, ins: Layouts, last: Layouts) -> Layout:
    """What an input of that layout was first given: what is beside it in no known layout cannot
    follow it to another one."""
    where = next((i for i, known in enumerate(ins) if known == layout), None)
    if where is None or not layout.defined or not last[where].defined:
        return layout
    return last[where]


def fixed_copy(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps the layout the input was first given, and hands it on."""
    kept = _keep(ins, last)
    out = kept[0] if kept else _UNDEFINED
    return kept, [out] * len(outs)


def fixed_unknown(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps the layout the input was first given; the output's axes mean something else."""
    return _keep(ins, last), [_UNDEFINED] * len(outs)


def keep_last(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Inputs go back to the layouts they were first given; outputs are undefined."""
    return [known if known.defined else now for known, now in zip(last, ins)], [_UNDEFINED] * len(
        outs
    )


def first(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """The first input may have any layout, and the outputs follow; the others stay as they are."""
    return list(ins), [ins[0]] * len(outs)


def no_inputs(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """What makes its own data gives it in the layout that is asked for."""
    return [], list(outs)


def permuted(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Any layout of unsplit dimensions; the output has its letters in the order of the axes."""
    layout = ins[0] if ins[0].defined else last[0]
    if not layout.defined or any(letter.islower() for letter, _ in layout.axes):
        return fixed_unknown(params, ins, last, outs)
    axes = [axis % layout.ndim for axis in params.axes] or range(layout.ndim)[::-1]
    if last[0].defined and last[0] != layout:
        return fixed_unknown(params, ins, last, outs)
    return [layout], [Layout("".join(layout.axes[axis][0] for axis in axes))]


def concatenated(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """All inputs in the layout of the first, if the joined axis stands where it did.

    It may be split if it is so in every input: then each has whole blocks.
    """
    layout, old = ins[0], last[0]
    blocked = all(other == layout for other in ins) and _stands(params.axis, layout, old)
    if layout.defined and (not old.defined or blocked or _same_axis(params.axis, layout, old)):
        return [layout] * len(ins), [layout]
    wanted = old if old.defined else layout
    if not wanted.defined:
        return keep_last(params, ins, last, outs)
    return [wanted] * len(ins), [wanted]


def _same_axis(axis: int, now: Layout, old: Layout) -> bool:
    """Whether an axis is the same whole dimension in both layouts."""
    return _stands(axis, now, old) and now.subsizeof(old.axes[axis][0]) < 0


def _stands(axis: int, now: Layout, old: Layout) -> bool:
    """Whether an axis of the old layout is the outer part of its dimension in the new one."""
    if not -old.ndim <= axis < old.ndim or (axis < 0 and now.ndim != old.ndim):
        return False
    letter = old.axes[axis][0]
    return letter.isupper() and now.index_of(letter) == axis % old.ndim


def keep_left(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """The right operand follows the left one where it can, else both go back."""
    left, right = ins[0], ins[1]
    if left.defined and not right.defined:
        left = _first_given(left, ins, last)
        return [left, left], [left] * len(outs)
    if right.defined and not left.defined:
        right = _first_given(right, ins, last)
        return [left, right], [left] * len(outs)
    if left == right or not left.defined or (right.defined and not left.convertible(right)):
        if left != right and last[0].defined and last[0] == last[1]:
            left = last[0]
        return [left, right if not left.defined else left], [left] * len(outs)
    return [left, left], [left] * len(outs)


def broadcast_pair(
    params: Params, ins: Layouts, last: Layouts, outs: Layouts, shapes: Sequence[Shape]
) -> Answer:
    """One operand's layout must be a suffix of the other's, as NCHW and CHW are; one that is not
    known is taken to be. A tensor of one element broadcasts in any layout."""
    left, right = (
        _suffix(ins, last, shapes, side) if not ins[side].defined else ins[side] for side in (0, 1)
    )
    if not left.defined or not right.defined:
        known = left if left.defined else right
        return [left, right], [known if left.ndim >= right.ndim else right]
    long, short = (left, right) if left.ndim >= right.ndim else (right, left)
    if long.convertible(short):
        return [long, long], [long]
    letters = {letter for letter, _ in short.axes if letter.isupper()}
    count = sum(letter.upper() in letters for letter, _ in long.axes)
    tail = long.sublayout(long.ndim - count, count)
    if not tail.convertible(short):
        raise LayoutError(
            f"layouts {left} and {right} are not broadcast-convertible",
            why="the shorter one must have the last axes of the longer one",
        )
    return ([long, tail], [long]) if long is left else ([tail, long], [long])


broadcast_pair.takes_shapes = True  # type: ignore[attr-defined]


def _suffix(ins: Layouts, last: Layouts, shapes: Sequence[Shape], side: int) -> Layout:
    """The last axes of the other operand's layout, as many as this one has."""
    other, shape = ins[1 - side], shapes[side]
    if not other.defined or shape is None or all(dim == 1 for dim in shape):
        return _UNDEFINED
    if last[1 - side].defined and other != last[1 - side]:
        other = last[1 - side]
    return other.sublayout(other.ndim - len(shape), len(shape))


def pool(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps the layout of the input if H and W are whole and where the `layout` attribute has them,
    else asks for that layout; all inputs and outputs have the same."""
    own = Layout(params.layout)
    given = next((known for known in ins if known.defined), own)
    same = all(given.index_of(letter) == own.index_of(letter) for letter in "HW")
    kept = given if same and "h" not in given and "w" not in given else own
    return [kept] * len(ins), [kept] * len(outs)


def reduced(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Any layout in which the reduced axes are whole and where they were, if they are kept with
    size 1; else the layout that the input was first given."""
    layout, old = ins[0], last[0]
    if not params.keepdims:
        return fixed_unknown(params, ins, last, outs)
    named = bool(params.axis) and not params.exclude
    moved = layout.defined and old.defined and layout != old
    if moved and not (named and all(_same_axis(axis, layout, old) for axis in params.axis)):
        layout = old
    return [layout], [layout] * len(outs)


def batch_norm(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps the layout of the data if C is at the axis, whole or with a block at the end (then the
    parameters have that block too); else goes back to the layout it had."""
    data = ins[0] if ins[0].defined else last[0]
    if not data.defined:
        return list(ins), [_UNDEFINED] * len(outs)
    at_axis = params.axis >= 0 and data.index_of("C") == params.axis
    block = data.subsizeof("C")
    if not at_axis or (block > 0 and data.axes[-1][0] != "c"):
        data, block = last[0] if last[0].defined else data, -1
    channels = Layout(f"C{block}c") if block > 0 else Layout("C")
    return [data] + [channels] * (len(ins) - 1), [data] + [channels] * (len(outs) - 1)


def _keep(ins: Layouts, last: Layouts) -> list[Layout]:
    return [known if known.defined else now for known, now in zip(last, ins)]


# Indices and arrays in a layout, by the letter of each dimension.


def logical_index(layout: Layout, indices: Sequence[Any]) -> dict[str, Any]:
    """Where an element is, by letter: for NCHW16c, C is the channel, counted over all blocks."""
    at = {letter: index for (letter, _), index in zip(layout.axes, indices)}
    return {
        letter: at[letter] * layout.subsizeof(letter) + at[letter.lower()]
        if layout.subsizeof(letter) > 0
        else at[letter]
        for letter in at
        if letter.isupper()
    }


def physical_index(layout: Layout, at: Mapping[str, Any]) -> tuple[Any, ...]:
    """The indices, in the order of the layout, of an element given by letters."""
    made = []
    for letter, size in layout.axes:
        block = layout.subsizeof(letter) if letter.isupper() else -1
        if size:
            made.append(at[letter.upper()] % size)
        else:
            made.append(at[letter] // block if block > 0 else at[letter])
    return tuple(made)


def rearrange(array: NDArray[Any], source: Layout, target: Layout) -> NDArray[Any]:
    """An array in another layout; a view where that is possible.

    >>> rearrange(np.arange(8).reshape(1, 8), Layout("NC"), Layout("NC4c")).shape
    (1, 2, 4)
    """
    if source == target:
        return array
    shape = source.convert_shape(array.shape, target)
    assert shape is not None
    letters = [letter for letter, _ in source.axes if letter.isupper()]
    whole = array.transpose(_blocks_behind(source, letters))
    split = _blocks_behind(target, letters)
    return whole.reshape([shape[axis] for axis in split]).transpose(np.argsort(split))


def is_same_order(source: Layout, target: Layout, shape: Sequence[int]) -> bool:
    """Whether a tensor of some shape has its elements in the same order in both layouts.

    >>> is_same_order(Layout("NCHW4c"), Layout("NCHW"), (1, 2, 1, 1, 4))
    True
    >>> is_same_order(Layout("NCHW4c"), Layout("NCHW"), (1, 2, 1, 3, 4))
    False
    """
    made = source.convert_shape(tuple(shape), target)
    return _order(source, shape) == _order(target, cast("Sequence[int]", made))


def _order(layout: Layout, shape: Sequence[int]) -> list[tuple[str, int, int]]:
    """(letter, distance along it, number) of the dimensions as they follow in memory; neighbours
    that walk through a dimension in one go are one."""
    found: list[tuple[str, int, int]] = []
    for (name, _), extent in zip(layout.axes, shape):
        letter, distance = name.upper(), max(layout.subsizeof(name), 1) if name.isupper() else 1
        if extent == 1:
            continue
        if found and found[-1][:2] == (letter, distance * extent):
            extent *= found.pop()[2]
        found.append((letter, distance, extent))
    return found


def _blocks_behind(layout: Layout, letters: Sequence[str]) -> list[int]:
    """The axes of a layout, with every block right behind the dimension it was split off."""
    wanted = [part for letter in letters for part in (letter, letter.lower())]
    return [layout.index_of(part) for part in wanted if part in layout]
