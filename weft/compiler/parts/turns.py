"""Turns of a loop whose body is one program: what belongs to all of them is looked up once, states go to and fro
between two places, and items of outputs lie one behind the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...base import counters
from ...ops.control_flow import by_input_name, input_name
from ...runtime.addresses import address_of
from ...runtime.executor import Executor, Move
from ...runtime.outputs import new_output
from ...runtime.program import Array
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
        self._turn = np.array(values[0])
        self._items = specs[1 + states :]
        self._wholes: list[list[Array]] = [[] for _ in self._items]
        self._places = ([*made[: 1 + states]], [new_output(spec) for spec in specs[: 1 + states]])
        self._kept = [*map(np.ascontiguousarray, values[2 + states :])]
        ends = [(address_of(one), address_of(other)) for one, other in zip(*self._places)]
        fixed, moves = {}, []
        for number, spec in enumerate(executor.program.inputs):
            place = next(place for place in range(len(values)) if input_name(place) == spec.name)
            if place == 0:
                moves.append(Move(0, self._turn.itemsize))
            elif place < 2 + states:
                one, other = ends[place - 1]
                moves.append(Move(one, other - one, returns=True))
            else:
                fixed[number] = address_of(self._kept[place - 2 - states])
        self._counted = next((place for place, move in enumerate(moves) if not move.returns), None)
        self._first = len(moves) + 1 + states  # place of the items among all that moves
        moves += [Move(other, one - other, returns=True) for one, other in ends]
        moves += [Move(0, prod(spec.extents) * np.dtype(spec.dtype).itemsize) for spec in self._items]
        one, other = ends[0]
        self._run = executor.turning(fixed, moves, Move(one, other - one, returns=True))

    def run(self, turns: int) -> Turned:
        """From the second turn on; some at a time, whose numbers and items have memory together."""
        turn = 1
        while turn < turns:
            count = min(BLOCK, turns - turn)
            numbers = np.arange(turn, turn + count, dtype=self._turn.dtype)
            blocks = [np.empty((count, *spec.extents), spec.dtype) for spec in self._items]
            starts = {self._first + place: address_of(block) for place, block in enumerate(blocks)}
            if self._counted is not None:
                starts[self._counted] = address_of(numbers)
            done = self._run(count, starts)
            for whole, block in zip(self._wholes, blocks):
                whole.append(block[:done])
            turn += done
            if done < count:
                break
        goes_on, *states = self._places[1 - turn % 2]
        return Turned(turn, goes_on, states, self._wholes)


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
    goes_on = made[0]
    if executor.program.written or len(executor.program.outputs) != len(made) or goes_on.nbytes != 1:
        return None
    return Turns(executor, values, made, states)
