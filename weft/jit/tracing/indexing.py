"""`x[...]` in a trace: a step for each part of the index, as the operators that it is made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from ..matching import bind
from ..operators import find
from .operators import Call

if TYPE_CHECKING:
    from .recorder import Recorder

_ALL = slice(None)


def getitem(recorder: Recorder, source: Tensor, index: Any) -> Tensor:
    """A part of a tensor, and the nodes that take it."""
    part, chosen = _seen(recorder, source, index)
    if chosen:
        made = part[_filled(chosen)]
        recorder.record(Call(find("aten::index.Tensor"), [part, chosen]), made)
        return made
    if part is source:
        made = source[...]
        recorder.record(Call(*bind("aten::alias", [source])), made)
        return made
    return part


def setitem(recorder: Recorder, target: Tensor, index: Any, value: Any) -> None:
    """Writes to a part of a tensor, and the nodes that do."""
    part, chosen = _seen(recorder, target, index)
    if not isinstance(value, Tensor):
        value = FUNCTIONS["weft"]["tensor"](value, dtype=target.dtype)
    if chosen:
        call = Call(find("aten::index_put_"), [part, chosen, value, False])
        part[_filled(chosen)] = value
    elif value.ndim == 0 and not recorder.knows(value):
        call = Call(*bind("aten::fill_", [part, value]))
        part[...] = value
    else:
        call = Call(*bind("aten::copy_", [part, value, False]))
        part[...] = value
    recorder.record(call, part)


def _filled(chosen: list[Tensor | None]) -> tuple[Any, ...]:
    return tuple([_ALL if each is None else each for each in chosen])


def _seen(recorder: Recorder, source: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """What is left when numbers, slices and new axes have been taken, and the tensors that choose from it by axis."""
    items = [_item(each) for each in (index if isinstance(index, tuple) else (index,))]
    width = sum([_width(each) for each in items])
    part, axis = source, 0
    chosen: list[Tensor | None] = []
    for item in items:
        if item is Ellipsis:
            axis += source.ndim - width
        elif isinstance(item, Tensor):
            chosen += [None] * (axis - len(chosen)) + [item]
            axis += _width(item)
            chosen += [None] * (axis - len(chosen)) if _width(item) > 1 else []
        else:
            part = _step(recorder, part, axis, item)
            axis += 0 if isinstance(item, int) else 1
    return part, _without_gaps(chosen)


def _without_gaps(chosen: list[Tensor | None]) -> list[Tensor | None]:
    """A tensor of bools stands for several axes, but once."""
    kept: list[Tensor | None] = []
    skipped = 0
    for each in chosen:
        if skipped:
            skipped -= 1
            continue
        kept.append(each)
        skipped = 0 if each is None else _width(each) - 1
    return kept


def _item(item: Any) -> Any:
    if isinstance(item, (list, np.ndarray, bool, np.bool_)):
        return FUNCTIONS["weft"]["tensor"](item)
    return int(item) if isinstance(item, np.integer) else item


def _width(item: Any) -> int:
    """How many axes a part of an index is about."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, Tensor) and item._dtype.kind == "b" else 1


def _step(recorder: Recorder, part: Tensor, axis: int, item: Any) -> Tensor:
    made = part[(*[_ALL] * axis, item)]
    if item is None:
        operator, values = bind("aten::unsqueeze", [part, axis])
    elif isinstance(item, slice):
        start, stop, step = item.start, item.stop, item.step
        ends = [0 if start is None else start, sys.maxsize if stop is None else stop, 1 if step is None else step]
        operator, values = bind("aten::slice", [part, axis, *ends])
    else:
        operator, values = bind("aten::select", [part, axis, item])
    found: Tensor = recorder.record(Call(operator, values), made)
    return found
