"""Where every value of a graph lives: inputs, constants, outputs, or somewhere in the arena."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ..base.device import Device
from ..base.plan import HOST, At, BufferRef, Slot
from ..te.extents import Extent, is_open
from .arena import Lifetime, plan_arena
from .open.arena import plan_open_arena

Key = Hashable  # an entry of the graph, or a temporary of a group


def as_number(size: Any) -> Any:
    """A size as plans hold it."""
    return At(size.row) if isinstance(size, Extent) else size


class _Value(NamedTuple):
    role: str
    size: int
    name: str


class Locations:
    """Collects values and the steps that use them, then gives slots and references.

    A view has no place of its own: it is where its source is, or some bytes further.
    """

    def __init__(self) -> None:
        self._values: dict[Key, _Value] = {}
        self._views: dict[Key, tuple[Key, int]] = {}
        self._used: dict[Key, list[int]] = {}

    def add(self, key: Key, role: str, size: int, name: str = "") -> None:
        self._values[key] = _Value(role, size, name)

    def add_view(self, key: Key, source: Key, offset: int = 0) -> None:
        root, before = self._views.get(source, (source, 0))
        self._views[key] = (root, before + offset)

    def copy(self) -> Locations:
        """The same again, to try something with."""
        made = Locations()
        made._values, made._views = dict(self._values), dict(self._views)
        made._used = {key: list(steps) for key, steps in self._used.items()}
        return made

    def __contains__(self, key: Key) -> bool:
        return key in self._values or key in self._views

    def root(self, key: Key) -> Key:
        """What a key is a view of, or the key itself."""
        return self._views[key][0] if key in self._views else key

    def use(self, key: Key, step: int) -> None:
        """Says that a step reads or writes a value."""
        self._used.setdefault(self.root(key), []).append(step)

    def plan(self, device: Device = HOST) -> tuple[tuple[Slot, ...], dict[Key, BufferRef], int]:
        """The slots, where each key is, and the bytes of the arena."""
        inside = [key for key, value in self._values.items() if value.role == "arena"]
        lifetimes = []
        for key in inside:
            steps = self._used.get(key, [0])
            lifetimes.append(Lifetime(self._values[key].size, min(steps), max(steps)))
        has_open = any(is_open(value.size) for value in self._values.values())
        arena = (plan_open_arena if has_open else plan_arena)(lifetimes)
        offsets = dict(zip(inside, arena.offsets))
        slots: list[Slot] = []
        refs: dict[Key, BufferRef] = {}
        for key, value in self._values.items():
            refs[key] = BufferRef(len(slots))
            slots.append(Slot(value.role, as_number(value.size), as_number(offsets.get(key, 0)), value.name, device))
        for key, (root, offset) in self._views.items():
            refs[key] = BufferRef(refs[root].slot, as_number(offset))
        return tuple(slots), refs, arena.size
