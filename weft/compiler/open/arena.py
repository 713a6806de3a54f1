"""Places for values whose sizes are open in one block of memory: where they are follows from the sizes of a call.

Values that do not live at the same time share a slot, which is as large as the largest of them; slots lie side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...te.extents import greater, is_same, typical
from ..arena import ALIGNMENT, Arena, Lifetime


def plan_open_arena(values: Sequence[Lifetime]) -> Arena:
    """Offsets such that values alive at the same step do not overlap, whatever the sizes are."""
    slots: list[Any] = []  # the size of each
    slot_of = [0] * len(values)
    births = sorted(range(len(values)), key=lambda i: (values[i].first, -typical(values[i].size)))
    deaths = sorted(range(len(values)), key=lambda i: values[i].last)
    free: list[int] = []
    dead = 0
    for number in births:
        while values[deaths[dead]].last < values[number].first:
            free.append(slot_of[deaths[dead]])
            dead += 1
        size = values[number].size
        if free:
            slot = min(free, key=lambda place: _misfit(slots[place], size))
            free.remove(slot)
            slots[slot] = _larger(slots[slot], size)
        else:
            slot = len(slots)
            slots.append(size)
        slot_of[number] = slot
    starts: list[Any] = [0]
    for size in slots:
        starts.append(starts[-1] + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)
    return Arena([starts[slot] for slot in slot_of], starts[-1])


def _misfit(slot: Any, size: Any) -> tuple[bool, int, int]:
    """How badly a slot suits a value: the same size is best, then the least that it would grow, then the least left."""
    return not is_same(slot, size), max(typical(size) - typical(slot), 0), typical(slot)


def _larger(slot: Any, size: Any) -> Any:
    return slot if is_same(slot, size) else greater(slot, size)
