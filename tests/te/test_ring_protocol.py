"""The barriers of a product's ring, simulated: threads take steps in random order, stages hold what was copied last.

A reader that finds another block of k than its own, a copy into a stage that somebody still reads, and threads that all
wait are errors. The kernel's code is modelled step by step; a model without turns shows that such errors are found.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.te.tensor_cores.layouts import ring_place


class Barrier:
    """An mbarrier: phases complete when all arrivals have come; waiting knows only the parity of a phase."""

    def __init__(self, count):
        self.count = self.left = count
        self.phase = 0

    def arrive(self):
        self.left -= 1
        assert self.left >= 0, "more arrivals than a phase has"
        if not self.left:
            self.left, self.phase = self.count, self.phase + 1

    def passed(self, parity):
        return self.phase % 2 != parity


class Meeting:
    """A named barrier of two warpgroups, one of which only arrives."""

    def __init__(self):
        self.arrived = 0


class Ring:
    def __init__(self, stages, readers, turns=True):
        self.stages, self.readers, self.turns = stages, readers, turns
        self.full = [Barrier(1) for _ in range(stages)]
        self.empty = [Barrier(readers) for _ in range(stages)]
        self.held = [None] * stages
        self.reading = [0] * stages
        self.meetings = [Meeting(), Meeting()]


def copier(ring, tiles, blocks):
    stage, phase = 0, 1
    for tile in tiles:
        for k in range(blocks):
            yield lambda s=stage, p=phase: ring.empty[s].passed(p)
            assert not ring.reading[stage], "a copy into a stage that is read"
            ring.held[stage] = (tile, k)
            yield None  # the copy takes its time
            ring.full[stage].arrive()
            stage += 1
            if stage == ring.stages:
                stage, phase = 0, phase ^ 1


def reader(ring, tiles, blocks, group=None):
    """`group`: its number among warpgroups that take tiles in turns."""
    stage, phase, turn = 0, 0, group
    if ring.turns and group == 1:
        ring.meetings[0].arrived += 1
    for tile in tiles:
        if group is not None:
            stage, phase = ring_place(turn * blocks, ring.stages)
            turn += 2
            if ring.turns:
                yield lambda: ring.meetings[group].arrived > 0
                ring.meetings[group].arrived -= 1
        before = None
        for k in range(blocks):
            yield lambda s=stage, p=phase: ring.full[s].passed(p)
            assert ring.held[stage] == (tile, k), "another block than its own"
            ring.reading[stage] += 1
            yield None  # products of the block before are done now
            if before is not None:
                ring.reading[before] -= 1
                ring.empty[before].arrive()
            before = stage
            stage += 1
            if stage == ring.stages:
                stage, phase = 0, phase ^ 1
        if group is not None and ring.turns:
            ring.meetings[1 - group].arrived += 1
        yield None
        ring.reading[before] -= 1
        ring.empty[before].arrive()
        for _ in range(3):
            yield None  # results are stored


def run(threads, draw):
    """Steps in random order until all are done; an AssertionError names what went wrong."""
    waiting = {name: (thread, None) for name, thread in threads.items()}
    while waiting:
        ready = [name for name, (_, asked) in waiting.items() if asked is None or asked()]
        assert ready, f"all wait: {sorted(waiting)}"
        name = draw.choice(ready)
        thread, _ = waiting[name]
        try:
            waiting[name] = thread, next(thread)
        except StopIteration:
            del waiting[name]


def protocol(stages, readers, tiles, blocks, seed, alternate, turns=True):
    ring = Ring(stages, 1 if alternate else readers, turns)
    threads = {"copier": copier(ring, range(tiles), blocks)}
    if alternate:
        for group in (0, 1):
            threads[f"group {group}"] = reader(ring, range(group, tiles, 2), blocks, group)
    else:
        for group in range(readers):
            threads[f"group {group}"] = reader(ring, range(tiles), blocks)
    run(threads, random.Random(seed))


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 8), st.integers(1, 3), st.integers(0, 7), st.integers(1, 20), st.integers(0, 1 << 20))
def test_side_by_side(stages, readers, tiles, blocks, seed):
    protocol(stages, readers, tiles, blocks, seed, alternate=False)


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 8), st.integers(0, 9), st.integers(1, 20), st.integers(0, 1 << 20))
def test_in_turns(stages, tiles, blocks, seed):
    protocol(stages, 2, tiles, blocks, seed, alternate=True)


def test_without_turns_a_parity_is_taken_for_another():
    """What turns are for: a warpgroup that waits for its stage two phases ahead takes the one before it."""
    failures = 0
    for seed in range(40):
        try:
            protocol(4, 2, 6, 8, seed, alternate=True, turns=False)
        except AssertionError:
            failures += 1
    assert failures


def test_a_missing_release_is_found():
    ring = Ring(3, 2)
    threads = {"copier": copier(ring, range(3), 5), "group 0": reader(ring, range(3), 5)}
    with pytest.raises(AssertionError, match="all wait"):
        run(threads, random.Random(1))
