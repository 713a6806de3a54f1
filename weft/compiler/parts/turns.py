"""Turns of a loop whose body is one program: what belongs to all of them is looked up once, states go to and fro
between two places, and items of outputs lie one behind the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base import counters
from ...ops.control_flow import by_input_name, holds, input_name
from ...runtime.addresses import address_of
from ...runtime.executor import Executor
from ...runtime.outputs import new_output
from ...runtime.program import Array, TensorSpec
from .ready import Ready

BLOCK = 64  # items that get memory at once


class Turned(NamedTuple):
    """What turns have made, and how many they are with the first: the next condition, the states, and the items of each
    output, some in each array."""

    turns: int
    goes_on: Array
    states: list[Array]
    items: list[list[Array]]


class Turns:
    """The turns behind the first, as long as the next condition holds."""

    def __init__(self, executor: Executor, values: Sequence[Array], made: Sequence[Array], states: int) -> None:
        specs = executor.program.outputs
        self._places = ([*made[: 1 + states]], [new_output(spec) for spec in specs[: 1 + states]])
        self._at = tuple([*map(address_of, place)] for place in self._places)
        self._items = [_Items(spec) for spec in specs[1 + states :]]
        self._turn = np.array(values[0])
        self._kept = [self._turn, *map(np.ascontiguousarray, values[2 + states :])]
        fixed, self._moving = {}, []
        for number, spec in enumerate(executor.program.inputs):
            place = _number_of(spec, len(values))
            if 1 <= place < 2 + states:
                self._moving.append(place - 1)
            else:
                fixed[number] = address_of(self._kept[max(place - 1 - states, 0)])
        self._run = executor.repeated(fixed)

    def run(self, turns: int) -> Turned:
        """From the second turn on."""
        turn, run, moving, number = 1, self._run, self._moving, self._turn
        while turn < turns and holds(self._places[1 - turn % 2][0]):
            number.fill(turn)
            now, after = self._at[1 - turn % 2], self._at[turn % 2]
            run([*(now[place] for place in moving), *after, *(items.next() for items in self._items)])
            turn += 1
        goes_on, *states = self._places[1 - turn % 2]
        return Turned(turn, goes_on, states, [items.arrays() for items in self._items])


class _Items:
    """Memory for the items of an output, as many as there will be."""

    def __init__(self, spec: TensorSpec) -> None:
        self._spec, self._left, self._address, self._step = spec, 0, 0, 0
        self._blocks: list[Array] = []

    def next(self) -> int:
        if not self._left:
            block = np.empty((BLOCK, *self._spec.extents), self._spec.dtype)
            self._blocks.append(block)
            self._left, self._address, self._step = BLOCK, address_of(block), block.strides[0]
        address = self._address
        self._left, self._address = self._left - 1, address + self._step
        return address

    def arrays(self) -> list[Array]:
        if self._left:
            self._blocks[-1] = self._blocks[-1][: BLOCK - self._left]
        return self._blocks


def _number_of(spec: TensorSpec, count: int) -> int:
    return next(number for number in range(count) if input_name(number) == spec.name)


def quick_turns(
    whole: Ready, values: Sequence[Any], made: Sequence[Any], states: int, names: Mapping[str, int]
) -> Turns | None:
    """What runs turns behind one that took these values and made these; None where the next may not be like it."""
    arrays = all(isinstance(value, np.ndarray) and value.dtype != object for value in (*values, *made))
    if not arrays or counters.counting or whole.look is not None or whole.deciding:
        return None
    same = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(values[1 : 2 + states], made))
    if not same:
        return None
    named = by_input_name(values)
    taken = {name: named[name] for name in whole.inputs}
    executor = whole.executor(taken, names).settled(taken)
    if executor.program.written or len(executor.program.outputs) != len(made):
        return None
    return Turns(executor, values, made, states)
