"""Layout rules: f(params, ins, last_ins, outs) -> (ins, outs).

The axes of a tensor are named once, by position, as the model was written; no rule changes what an
axis means. A storage is the same letters in another order, some of them split in blocks. `last_ins`
and `outs` are the names, `ins` the storages that producers give. A rule says which storages it asks
for, and which it gives then. An operator that counts axes works in a storage that has those axes
whole and at their places, else it asks for its inputs as they were written. Where `last_ins` are
undefined, `ins` are names, and so is what the rule gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from string import ascii_uppercase
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from ..base.layout import UNDEFINED, Layout
from ..base.shape import Dim, Shape
from ..core.schema import Params

Layouts = Sequence[Layout]
Answer = tuple[list[Layout], list[Layout]]
_UNDEFINED = Layout()


def arbitrary(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Works in any layout; all inputs must agree, and the outputs follow."""
    layout = _shared(ins, last)
    outputs = [layout] * len(outs) if layout.defined else list(outs)
    return [layout] * len(ins), outputs


def _shared(ins: Layouts, last: Layouts) -> Layout:
    """The storage of the first input that has one. What is beside it without a name is as it was
    written, and so must be the others."""
    at = next((i for i, known in enumerate(ins) if known.defined), None)
    if at is None:
        return _UNDEFINED
    return ins[at] if all(known.defined for known in ins) else _written(ins, last)[at]


def _written(ins: Layouts, last: Layouts) -> list[Layout]:
    """The names of the inputs' axes, which are also the storage of a tensor as it was written."""
    return [known if known.defined else now for known, now in zip(last, ins)]


def renamed(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Works in any layout; the output's axes may have other names than the input's."""
    old, new = last[0], outs[0]
    if not new.defined:
        return [ins[0]], [ins[0]]
    if ins[0] == old or not (old.whole and new.whole and old.ndim == new.ndim):
        return [old], [new]
    return [ins[0]], [ins[0].renamed(old, new)]


def fixed_copy(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Takes inputs as they were written; the outputs have the axes of the first."""
    written = _written(ins, last)
    return written, [written[0] if written else _UNDEFINED] * len(outs)


def fixed_unknown(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Takes inputs as they were written; the outputs' axes mean something else."""
    return _written(ins, last), [_UNDEFINED] * len(outs)


def first(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """The first input may have any layout, and the outputs follow; the others stay as they are."""
    return list(ins), [ins[0]] * len(outs)


def no_inputs(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """What makes its own data gives it in the layout that is asked for."""
    return [], list(outs)


def permuted(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Takes the input as it was written; the output has its letters in the order of the axes."""
    [names] = _written(ins, last)
    if last[0].defined and outs[0].defined:
        return [names], [outs[0]]
    axes = [axis % names.ndim for axis in params.axes] if names.defined else []
    axes = axes or list(range(names.ndim))[::-1]
    if not names.defined or not names.whole or len(axes) != names.ndim:
        return [names], [_UNDEFINED]
    return [names], [Layout("".join(names.axes[axis][0] for axis in axes))]


def multiplied(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Takes both as they were written; HW and WC give HC, if no letter is there twice."""
    written = _written(ins, last)
    turned = [params.transpose_a, params.transpose_b]
    if not all(names.defined and names.whole for names in written):
        return written, [_UNDEFINED]
    left, right = (w.reverse().name if turn else w.name for w, turn in zip(written, turned))
    letters = left[:-1] + right[1:]
    unique = letters and len(set(letters)) == len(letters)
    return written, [Layout(letters) if unique else _UNDEFINED]


def concatenated(params: Params, ins: Layouts, last: Layouts, outs: Layouts, shapes: Sequence[Shape]) -> Answer:
    """All inputs in one storage in which the joined axis stands where it was written.

    It may be split if it is so in every input, or in those with most elements, and the others can be: then each has
    whole blocks.
    """
    layout = _shared(ins, last)
    names = next((name for name in _written(ins, last) if name.defined), _UNDEFINED)
    blocked = _most_stored(ins, names, shapes)
    if blocked.defined and _stands(params.axis, blocked, names):
        return [blocked] * len(ins), [blocked]
    alike = all(other == layout for other in ins) and _stands(params.axis, layout, names)
    if layout != names and not alike and not _is_whole(params.axis, layout, names):
        layout = names
    return [layout] * len(ins), [layout]


concatenated.takes_shapes = True  # type: ignore[attr-defined]


def _most_stored(ins: Layouts, names: Layout, shapes: Sequence[Shape]) -> Layout:
    """The one storage in blocks that half of all elements have at least, where the other inputs are stored as they were
    written and divide into its blocks."""
    stored = {known for known in ins if known != names}
    if len(stored) != 1 or not names.defined or names not in ins:
        return _UNDEFINED
    (storage,) = stored
    if not storage.defined or storage.whole or not storage.convertible(names) or None in shapes:
        return _UNDEFINED
    sizes = [_size(shape)[1] for shape in shapes]
    most = 2 * sum(size for size, known in zip(sizes, ins) if known == storage) >= sum(sizes)
    return storage if most and all(_divides(storage, names, shape) for shape in shapes) else _UNDEFINED


def _divides(storage: Layout, names: Layout, shape: Shape) -> bool:
    """Whether the extents of axes that a storage splits are whole blocks."""
    assert shape is not None
    blocks = [(storage.subsizeof(letter), dim) for (letter, _), dim in zip(names.axes, shape)]
    return all(block < 0 or (isinstance(dim, int) and dim % block == 0) for block, dim in blocks)


def _is_whole(axis: int, storage: Layout, names: Layout) -> bool:
    """Whether a named axis is whole in a storage, and at its place."""
    return _stands(axis, storage, names) and storage.subsizeof(names.axes[axis][0]) < 0


def _stands(axis: int, storage: Layout, names: Layout) -> bool:
    """Whether a named axis, or the outer part of it, is at its place in a storage.

    A negative axis counts from an end that blocks may have moved.
    """
    if not -names.ndim <= axis < names.ndim or (axis < 0 and storage.ndim != names.ndim):
        return False
    letter = names.axes[axis][0]
    return names.whole and storage.index_of(letter) == axis % names.ndim


def keep_left(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """The right operand follows the left one where it can, else both are as they were written."""
    typed = all(known.defined for known in last)
    if typed and ins[0].defined and ins[1].defined and not ins[0].convertible(ins[1]):
        return list(last), [last[0]] * len(outs)
    return arbitrary(params, ins, last, outs)


def broadcast_pair(params: Params, ins: Layouts, last: Layouts, outs: Layouts, shapes: Sequence[Shape]) -> Answer:
    """The axes of the operand of fewer are the last ones of the other. Both are in the storage of
    the larger one that has them so, or of the other, or as they were written."""
    sides = sorted((0, 1), key=lambda side: _size(shapes[side]), reverse=True)
    named = _operand_names(_written(ins, last), shapes)
    if named is None:
        return _written(ins, last), [next((known for known in ins if known.defined), _UNDEFINED)]
    names, result = named
    kept = [s for s in sides if last[s] == names[s] and ins[s].convertible(names[s])]
    fronts = [result.sublayout(0, result.ndim - names[side].ndim) for side in kept]
    for storage in (*(front + ins[side] for front, side in zip(fronts, kept)), result):
        wanted = [_operand(storage, side, ins, names, shapes) for side in (0, 1)]
        if None not in wanted:
            return cast("list[Layout]", wanted), [storage]
    return list(names), [result]


broadcast_pair.takes_shapes = True  # type: ignore[attr-defined]


def _size(shape: Shape) -> tuple[int, int]:
    """Rank and number of elements; what is not known counts as one."""
    known = [dim for dim in shape or () if isinstance(dim, int)]
    return len(shape or ()), prod(known)


def _operand_names(written: Layouts, shapes: Sequence[Shape]) -> tuple[tuple[Layout, Layout], Layout] | None:
    """The names of both operands' axes and of the result's; None where no operand has any."""
    ranks = [len(s) if s is not None else w.ndim for s, w in zip(shapes, written)]
    fits = [w.defined and w.ndim == rank for w, rank in zip(written, ranks)]
    unknown = any(s is None and not w.defined for s, w in zip(shapes, written))
    if unknown or not any(fits):
        return None
    long = max((0, 1), key=lambda side: (ranks[side], _size(shapes[side]), -side))
    result = written[long] if fits[long] else _with_front(written[1 - long], max(ranks))
    tails = [result.sublayout(result.ndim - rank, rank) for rank in ranks]
    names = [t if t.ndim == rank else w for t, w, rank in zip(tails, written, ranks)]
    return (names[0], names[1]), result


def _with_front(names: Layout, rank: int) -> Layout:
    """Names for as many axes, of which the last ones have these."""
    free = [letter for letter in ascii_uppercase if letter not in names]
    return Layout("".join(free[: rank - names.ndim]) + names.name)


def _operand(storage: Layout, side: int, ins: Layouts, names: Layouts, shapes: Sequence[Shape]) -> Layout | None:
    """The storage of an operand whose result is in another one; None where its axes are not the
    last ones there. A tensor of one element broadcasts as it is; an extent of 1 has blocks of 1."""
    written, shape = names[side], shapes[side]
    if _is_one(shape) and ins[side].whole and len(shape) <= len(shapes[1 - side] or ()):
        return ins[side]
    axes = [axis for axis in storage.axes if axis[0].upper() in written]
    if axes != list(storage.axes[storage.ndim - len(axes) :]):
        return None
    parts = []
    for letter, size in axes:
        block: int | None = size
        if size and written.whole:
            block = _block(size, *(_extent(letter.upper(), names[s], shapes[s]) for s in (side, 1 - side)))
        if block is None:
            return None
        parts.append(f"{block}{letter}" if block else letter)
    return Layout("".join(parts) or UNDEFINED)


def _is_one(shape: Shape) -> TypeGuard[tuple[Dim, ...]]:
    return shape is not None and all(dim == 1 for dim in shape)


def _extent(letter: str, names: Layout, shape: Shape) -> Dim:
    """The extent of a named axis; 1 for a tensor without it."""
    at = names.index_of(letter)
    return 1 if at < 0 else shape[at] if shape is not None else None


def _block(size: int, extent: Dim, other: Dim) -> int | None:
    """The blocks of an axis of a result that has blocks of `size`; None where they do not fit."""
    if not isinstance(extent, int) or not isinstance(other, int) or max(extent, other) % size:
        return None
    return 1 if extent == 1 else size


def pool(params: Params, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps the storage of the input if H and W are whole and where the `layout` attribute has
    them; all inputs and outputs have the same."""
    named = Layout(params.layout)
    layout = _shared(ins, last)
    names = next((name for name in last if name.defined), named)
    kept = next((known for known in (layout, names) if _has_rows(known, named)), named)
    return [kept] * len(ins), [kept] * len(outs)


def _has_rows(layout: Layout, named: Layout) -> bool:
    """Whether rows and columns are whole, and where an operator's own layout has them."""
    same = all(layout.index_of(letter) == named.index_of(letter) for letter in "HW")
    return same and "h" not in layout and "w" not in layout


def reduced(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Any storage in which the reduced axes are whole and at their places; the output has the
    other axes, or all."""
    storage, [names] = ins[0], _written(ins, last)
    exact = bool(params.axis) and not params.exclude
    if storage != names and not (exact and all(_is_whole(a, storage, names) for a in params.axis)):
        storage = names
    if params.keepdims or not storage.defined:
        return [storage], [storage] * len(outs)
    return [storage], [_without(params, storage)] * len(outs)


def _without(params: Any, layout: Layout) -> Layout:
    """A layout without the axes that are reduced; undefined if none is left."""
    named = {axis % layout.ndim for axis in params.axis}
    if not all(-layout.ndim <= axis < layout.ndim for axis in params.axis):
        return _UNDEFINED
    gone = named if params.axis and not params.exclude else set(range(layout.ndim)) - named
    left = [axis for i, axis in enumerate(layout.axes) if i not in gone]
    letters = {letter for letter, _ in left}
    if not all(letter.upper() in letters for letter in letters):
        return _UNDEFINED
    return Layout("".join(f"{size}{letter}" if size else letter for letter, size in left) or UNDEFINED)


def batch_norm(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    """Keeps a storage of the data that has the channels at the axis, whole or with blocks at the
    end; the vectors have the same blocks.

    The moving ones are variables that may be written to: they stay as they are, and in training
    are whole. In training the gradients of convolutions read images as they were written, and so
    does this.
    """
    names, *vectors = _written(ins, last)
    storage = ins[0]
    whole = storage == names or _is_whole(params.axis, storage, names)
    ends = _stands(params.axis, storage, names) and _last_block(params.axis, storage) > 0
    if not whole and (params.training or not ends):
        storage = names
    block = _last_block(params.axis, storage)
    in_blocks = [_in_blocks(known, block) for known in vectors[:2]]
    fresh = _in_blocks(_UNDEFINED, 0 if params.training else block)
    moving = [known if known.defined else fresh for known in vectors[2:]]
    moments = [_in_blocks(known, block) for known in outs[1:]]
    return [storage, *in_blocks, *moving], [storage, *moments]


def batch_moments(images: int) -> Callable[[Any, Layouts, Layouts, Layouts], Answer]:
    """The rule of a norm by the moments of its batch, and of its gradient: so many images, then vectors, which have
    blocks if the images have."""

    def rule(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
        written = _written(ins, last)
        names = next((known for known in written[:images] if known.defined), _UNDEFINED)
        given = [now for now in ins[:images] if now.defined and now.convertible(names)]
        blocked = [now for now in given if _stands(params.axis, now, names) and _last_block(params.axis, now)]
        whole = [now for now in given if _is_whole(params.axis, now, names)]
        storage = next(iter([*blocked, *whole]), names)
        block = _last_block(params.axis, storage)
        vectors = [_in_blocks(known, block) for known in written[images:]]
        return [storage] * images + vectors, [storage, *(_in_blocks(known, block) for known in outs[1:])]

    return rule


def _last_block(axis: int, storage: Layout) -> int:
    """The size of the blocks of an axis that are the last dimension; 0 where they are not."""
    if not 0 <= axis < storage.ndim:
        return 0
    letter, size = storage.axes[-1]
    return size if letter == storage.axes[axis][0].lower() else 0


def _in_blocks(names: Layout, block: int) -> Layout:
    """The storage of a vector in blocks, or whole."""
    letter = names.axes[0][0] if names.defined else "C"
    return Layout(f"{letter}{block}{letter.lower()}" if block else letter)


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
    index = []
    for letter, size in layout.axes:
        block = layout.subsizeof(letter) if letter.isupper() else -1
        if size:
            index.append(at[letter.upper()] % size)
        else:
            index.append(at[letter] // block if block > 0 else at[letter])
    return tuple(index)


def rearrange(array: NDArray[Any], source: Layout, target: Layout) -> NDArray[Any]:
    """An array in another layout; a view where that is possible.

    >>> rearrange(np.arange(8).reshape(1, 8), Layout("NC"), Layout("NC4c")).shape
    (1, 2, 4)
    """
    if source == target:
        return array
    shape: Any = source.convert_shape(array.shape, target)
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
    converted = source.convert_shape(tuple(shape), target)
    return _order(source, shape) == _order(target, cast("Sequence[int]", converted))


def _order(layout: Layout, shape: Sequence[int]) -> list[tuple[str, int, int]]:
    """(letter, distance along it, number) of the dimensions as they follow in memory; neighbours
    that walk through a dimension in one go are one."""
    order: list[tuple[str, int, int]] = []
    for (name, _), extent in zip(layout.axes, shape):
        letter, distance = name.upper(), max(layout.subsizeof(name), 1) if name.isupper() else 1
        if extent == 1:
            continue
        if order and order[-1][:2] == (letter, distance * extent):
            extent *= order.pop()[2]
        order.append((letter, distance, extent))
    return order


def _blocks_behind(layout: Layout, letters: Sequence[str]) -> list[int]:
    """The axes of a layout, with every block right behind the dimension it was split off."""
    wanted = [part for letter in letters for part in (letter, letter.lower())]
    return [layout.index_of(part) for part in wanted if part in layout]
