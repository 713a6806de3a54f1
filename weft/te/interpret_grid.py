"""Runs the blocks of a kernel with a grid, in a random order, each with all of its threads.

The threads of a block run one after the other to the next barrier, then all go on from there. What
depends on the order they come in, or reads what nobody wrote, is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np

from ..base.errors import BarrierError, RaceError, UninitialisedError
from ..base.plan import Extents, known
from .evaluate import Value
from .grid import AXES, Grid
from .loops import WARP, Buffer, For
from .steps import Frame, Place, Step, allocate, run, wait
from .watch import Clash, Element, Touches, Who, elements

_Memory = defaultdict[Buffer, Touches]


def run_grid(grid: Grid, steps: Sequence[Step], frame: Frame, seed: int) -> None:
    """Runs all blocks on the arguments that a frame holds. `seed` decides the order."""
    launch = grid.launch(frame)
    order = Random(seed)
    places = _places(grid.blocks, [known(count) for count in launch.blocks])
    order.shuffle(places)
    between_blocks: _Memory = defaultdict(Touches)
    for at in places:
        _Block(grid, frame, at, between_blocks).run(steps, launch.threads, order)


def _places(loops: Sequence[For], extents: Sequence[int]) -> list[Who]:
    """Every value of the variables of loops bound to axes of these extents."""
    return list(product(*(range(extents[AXES.index(loop.kind[-1])]) for loop in loops)))


def _number(loops: Sequence[For], at: Who, extents: Extents) -> int:
    """The number of a thread in its block: x counts first, then y, then z."""
    along = {loop.kind[-1]: n for loop, n in zip(loops, at)}
    x, y, z = (along.get(axis, 0) for axis in AXES)
    return x + extents[0] * (y + extents[1] * z)


def _name(kind: str, loops: Sequence[For], at: Who) -> str:
    return f"{kind} ({', '.join(f'{loop.var.name}={n}' for loop, n in zip(loops, at))})"


def _own(frame: Frame, loops: Sequence[For], at: Who) -> Frame:
    """A frame that starts with what another holds and with values for the variables of loops."""
    values = frame.values | {loop.var: np.int64(number) for loop, number in zip(loops, at)}
    return Frame(frame.kernel, values, dict(frame.arrays), dict(frame.shapes))


class _Block:
    """One block: its shared memory, and who touched what since the last barrier."""

    def __init__(self, grid: Grid, frame: Frame, at: Who, between_blocks: _Memory) -> None:
        self.grid = grid
        self.at = at
        self.frame = _own(frame, grid.blocks, at)
        self.between_blocks = between_blocks
        self.between_threads: _Memory = defaultdict(Touches)
        self.written: defaultdict[Buffer, set[Element]] = defaultdict(set)
        self.shown: tuple[dict[int, Value], dict[int, Value]] = ({}, {})  # at an exchange and at the next, by thread
        for buffer in grid.shared:
            allocate(self.frame, buffer)

    @property
    def where(self) -> str:
        return f"{self.frame.where}, {_name('block', self.grid.blocks, self.at)}"

    def run(self, steps: Sequence[Step], extents: Extents, order: Random) -> None:
        self.extents = extents
        threads = [self._thread(at) for at in _places(self.grid.threads, extents)]
        step: int | None = 0
        while step is not None:
            order.shuffle(threads)
            step = self._agreed(_stops(steps, threads, step))
            if step is None or steps[step - 1] is wait:
                self.between_threads.clear()

    def _thread(self, at: Who) -> _Thread:
        return _Thread(_own(self.frame, self.grid.threads, at), self, at)

    def _agreed(self, stops: list[tuple[_Thread, int | None]]) -> int | None:
        """The step that all threads go on from."""
        waiting, step = max(stops, key=lambda stop: -1 if stop[1] is None else stop[1])
        for thread, other in stops:
            if other != step:
                does = "has ended" if other is None else "waits at another one"
                raise BarrierError(
                    f"{waiting.name} waits at a barrier that {thread.name} does not reach: it {does}",
                    where=self.where,
                    why="all threads of a block have to reach a barrier",
                    hint="put the barrier outside conditions and loops that differ by thread",
                )
        return step


class _Thread(Frame):
    """What one thread of a block holds; it tells its block what it touches."""

    __slots__ = ("at", "block", "exchanges", "number")

    def __init__(self, own: Frame, block: _Block, at: Who) -> None:
        super().__init__(own.kernel, own.values, own.arrays, own.shapes)
        self.block = block
        self.at = at
        self.exchanges = 0
        self.number = _number(block.grid.threads, at, block.extents)

    @property
    def name(self) -> str:
        return _name("thread", self.block.grid.threads, self.at)

    @property
    def where(self) -> str:
        return f"{self.block.where}, {self.name}"

    def on_read(self, buffer: Buffer, place: Place) -> None:
        if buffer.scope not in ("arg", "shared"):
            return
        for element in elements(place):
            self._check("read", buffer, element)
            self._check_written(buffer, element)

    def on_write(self, buffer: Buffer, place: Place) -> None:
        if buffer.scope not in ("arg", "shared"):
            return
        for element in elements(place):
            self._check("written", buffer, element)
            self.block.written[buffer].add(element)

    def show_value(self, value: Value) -> None:
        self.exchanges += 1
        self.block.shown[self.exchanges % 2][self.number] = value

    def partner_value(self, distance: int) -> Value:
        partner = self.number ^ distance
        shown = self.block.shown[self.exchanges % 2]
        if partner not in shown:
            raise BarrierError(
                f"{self.name}, number {self.number}, exchanges with number {partner}, which there is not",
                where=self.where,
                hint=f"give a block a multiple of {WARP} threads, or exchange over shorter distances",
            )
        return shown[partner]

    def _check_written(self, buffer: Buffer, element: Element) -> None:
        if buffer.scope == "shared" and element not in self.block.written[buffer]:
            raise UninitialisedError(
                f"element {element} of shared memory {buffer.name} is read and was never written",
                where=self.where,
                hint="let a thread of the block write it before a barrier",
            )

    def _check(self, done: str, buffer: Buffer, element: Element) -> None:
        """Notes that this thread reads or writes an element; nobody may have been there first."""
        block = self.block
        clash = _touch(block.between_threads[buffer], done, element, self.at)
        if clash is not None:
            other = _name("thread", block.grid.threads, clash.who)
            self._race(done, buffer, element, clash.done, other, "no barrier is between")
        if buffer.scope == "arg":
            clash = _touch(block.between_blocks[buffer], done, element, block.at)
            if clash is not None:
                other = _name("block", block.grid.blocks, clash.who)
                self._race(done, buffer, element, clash.done, other, "blocks run in any order")

    def _race(self, done: str, buffer: Buffer, element: Element, before: str, other: str, why: str) -> None:
        raise RaceError(
            f"element {element} of {buffer.name} is {before} by {other} and {done} by {self.name}",
            where=self.where,
            why=why,
        )


def _stops(steps: Sequence[Step], threads: Sequence[_Thread], start: int) -> list[tuple[_Thread, int | None]]:
    """Where each thread stops next. That one reads what nobody wrote is an error only when all have
    run: if another would have written it, that is a race, and found as such."""
    stops: list[tuple[_Thread, int | None]] = []
    unwritten: UninitialisedError | None = None
    for thread in threads:
        try:
            stops.append((thread, run(steps, thread, start)))
        except UninitialisedError as error:
            unwritten = unwritten or error
    if unwritten is not None:
        raise unwritten
    return stops


def _touch(touches: Touches, done: str, element: Element, who: Who) -> Clash | None:
    return touches.read(element, who) if done == "read" else touches.write(element, who)
