"""Operands of single warps' products in shared memory: every lane finds the elements that the PTX manual gives it, and
accesses at once go to different banks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.te.tensor_cores.fragments import K_STEPS, Layout, sum_column, sum_row

LANES = np.arange(32)
BANKS, BANK_BYTES = 32, 4
SIDES = [(2, False), (2, True), (4, False), (4, True)]  # bytes of an element, and whether lines are steps of k


def stored(layout, rows, depth, panels):
    """Bytes of shared memory that hold the number row*depth + k of each element."""
    size = layout.item_bytes
    memory = np.full(panels * layout.lines * 128, 255, np.uint8)
    numbers = np.arange(rows * depth).reshape(rows, depth).astype({2: np.uint16, 4: np.uint32}[size])
    for row in range(rows):
        for k in range(depth):
            line, along = (k, row) if layout.turned else (row, k)
            panel, within = divmod(along * size, 128)
            at = layout.permuted((panel * layout.lines + line) * 128 + within)
            memory[at : at + size] = numbers[row, k : k + 1].view(np.uint8)
    return memory


def fragment(left, size, register):
    """Rows and first k of a register of each lane, as the manual has them: 32 bytes of k are a step."""
    group, within = LANES // 4, LANES % 4
    each = 4 // size  # elements of a register
    row = group + (register % 2 if left else register // 2) * 8
    half = register // 2 if left else register % 2
    return row, within * each + half * 4 * each


@pytest.mark.parametrize(("size", "turned"), SIDES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("rows", [64, 128])
def test_lanes_read_their_fragments(size, turned, left, rows):
    depth = 128 // size
    layout = Layout(size, turned, depth if turned else rows)
    memory = stored(layout, rows, depth, rows * size // 128 if turned else 1)
    own = 32
    for first in range(0, rows, own):
        start = layout.lane_start(LANES, first, left)
        for step in range(K_STEPS):
            for block in range(own // 16):
                for register in range(4):
                    row, k = fragment(left, size, register)
                    wanted = (first + 16 * block + row) * depth + step * 32 // size + k
                    found = read(layout, memory, start, step, block, register, left)
                    for number in range(4 // size):
                        got = found.view({2: np.uint16, 4: np.uint32}[size]).reshape(32, -1)[:, number]
                        np.testing.assert_array_equal(got, wanted + number)


def read(layout, memory, start, step, block, register, left):
    """The four bytes of a register of all lanes, by a matrix load or word by word."""
    if layout.words:
        row, half = (register % 2, register // 2) if left else (register // 2, register % 2)
        walk = layout.walk(step, block, 8 * row, half)
        at = (start ^ walk.flip) + walk.more
        return memory[at[:, None] + np.arange(4)]
    walk = layout.walk(step, block)
    lines = (((start ^ walk.flip) + walk.more)[8 * register : 8 * register + 8, None] + np.arange(16)).astype(int)
    matrix = memory[lines].view(np.uint16)  # eight rows of eight elements of 16 bits
    matrix = matrix.T if layout.turned else matrix
    return np.ascontiguousarray(matrix).reshape(32, 2).view(np.uint8).reshape(32, 4)


@pytest.mark.parametrize("blocks", [1, 3])
def test_pairs_of_k_are_those_of_sums(blocks):
    """Values of attention: what meets the sum of column 2t, 2t + 1 of a block is key 2t, 2t + 1."""
    layout = Layout(4, True, 32, paired=True)
    memory = stored(layout, 64, 32, 2)
    start = layout.lane_start(LANES, 0, False)
    for step in range(K_STEPS):
        for half in range(2):
            for row in (0, 8):
                walk = layout.walk(step, blocks, row, half)
                at = (start ^ walk.flip) + walk.more
                got = memory[at[:, None] + np.arange(4)].view(np.uint32)[:, 0]
                key = 8 * step + sum_column(LANES, half)
                np.testing.assert_array_equal(got, (16 * blocks + row + LANES // 4) * 32 + key)


@given(st.sampled_from(SIDES), st.booleans(), st.booleans(), st.integers(0, K_STEPS - 1), st.integers(0, 1))
def test_reads_at_once_lie_in_different_banks(side, left, paired, step, block):
    size, turned = side
    layout = Layout(size, turned, 128 // size if turned else 64, paired and side == (4, True))
    walk = layout.walk(step, block)
    at = (layout.lane_start(LANES, 32, left) ^ walk.flip) + walk.more
    if layout.words:
        assert len(set(at // BANK_BYTES % BANKS)) == 32
        return
    for matrix in at.reshape(4, 8):  # a matrix is read at once, 16 bytes of each line
        assert len(set(matrix // 16 % (BANKS * BANK_BYTES // 16))) == 8


@given(st.sampled_from(SIDES), st.booleans(), st.integers(0, 31))
def test_copies_fill_each_line_once(side, paired, line):
    size, turned = side
    layout = Layout(size, turned, 128 // size if turned else 64, paired and side == (4, True))
    places = layout.permuted(line * 128 + np.arange(128))
    assert sorted(places) == list(range(line * 128, line * 128 + 128))
    assert (places[::16] % 16 == 0).all()  # chunks stay whole
    assert (np.diff(places.reshape(8, 16), axis=1) == 1).all()


def test_sums_cover_a_block():
    seen = np.zeros((16, 8), int)
    for number in range(4):
        np.add.at(seen, (sum_row(LANES, number), sum_column(LANES, number)), 1)
    assert (seen == 1).all()
