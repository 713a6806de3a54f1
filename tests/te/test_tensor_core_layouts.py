"""Layouts of tensor-core kernels: tile products run through the integer functions, against numpy's product.

Copies, products and matrix stores are modelled here from the PTX manual, on bytes of shared memory; the functions under
test say which addresses, descriptors and registers go with them.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.te.tensor_cores.layouts import (
    CHUNK_BYTES,
    CORE_ROWS,
    K_STEP_BYTES,
    PANEL_BYTES,
    PANEL_ROWS,
    ROW_BYTES,
    WARPGROUP,
    accumulator_column,
    accumulator_row,
    described,
    descriptor,
    matrix_address,
    ring_place,
    split_bound,
    swizzled,
    tile_place,
    window_origin,
)

SHARED = 1 << 16


def permuted(address, bits):
    """The manual's permutation: address bits 4.. are xored with bits 7.., as many as the mode has."""
    return address ^ (((address >> 7) & ((1 << bits) - 1)) << 4)


BITS = {128: 3, 64: 2, 32: 1}


def copy_box(shared, start, box, width=ROW_BYTES):
    """What a tensor copy leaves: rows one after the other, their chunks permuted."""
    raw = np.ascontiguousarray(box).view(np.uint8).reshape(-1)
    for offset, byte in enumerate(raw):
        shared[permuted(start + offset, BITS[width])] = byte


def read_box(shared, start, rows, columns):
    places = [permuted(start + offset, 3) for offset in range(rows * columns * 2)]
    return shared[places].view(np.float16).reshape(rows, columns)


def operand(shared, start, fields, rows, depth, turned, size, line=ROW_BYTES):
    """What one product reads: fields are those of the descriptor, the address aside."""
    leading, stride = ((fields >> at) & 0x3FFF for at in (16, 32))
    assert (fields >> 62) & 3 == {128: 1, 64: 2, 32: 3}[line]
    made = np.empty((rows, depth), {2: np.float16, 4: np.float32}[size])
    for row in range(rows):
        for k in range(depth):
            if turned:
                at = row // 64 * leading * 16 + k // 8 * stride * 16 + k % 8 * 128 + row % 64 * size
            else:
                at = row // 8 * stride * 16 + row % 8 * line + k * size
            at = permuted(start + at, BITS[line])
            made[row, k] = shared[at : at + size].view(made.dtype)[0]
    return made


@pytest.mark.parametrize(
    ("turned_a", "turned_b", "size"),
    [(False, False, 2), (False, True, 2), (True, False, 2), (True, True, 2), (False, False, 4)],
)
def test_stage_of_products(turned_a, turned_b, size):
    """One stage: copies, then products step by step through descriptors, each thread's sums where the maps say."""
    draw = np.random.default_rng(3)
    rows, width, depth = 64, 128, ROW_BYTES // size
    dtype = {2: np.float16, 4: np.float32}[size]
    a, b = (draw.integers(-8, 8, (n, depth)).astype(dtype) for n in (rows, width))
    shared = np.zeros(SHARED, np.uint8)
    start_b = rows * ROW_BYTES
    for matrix, start, turned in ((a, 0, turned_a), (b, start_b, turned_b)):
        if not turned:
            copy_box(shared, start, matrix)
            continue
        for panel in range(len(matrix) // PANEL_ROWS):
            box = matrix[panel * PANEL_ROWS : (panel + 1) * PANEL_ROWS].T
            copy_box(shared, start + panel * PANEL_BYTES, box)
    total = np.zeros((rows, width))
    step_depth = K_STEP_BYTES // size
    for step in range(ROW_BYTES // K_STEP_BYTES):
        parts = []
        for start, turned, extent in ((0, turned_a, rows), (start_b, turned_b, width)):
            fields = descriptor(PANEL_BYTES if turned else CHUNK_BYTES, CORE_ROWS * ROW_BYTES)
            moved = start + step * (16 * ROW_BYTES if turned else K_STEP_BYTES)
            parts.append(operand(shared, moved, fields, extent, step_depth, turned, size))
        total += parts[0].astype(np.float64) @ parts[1].astype(np.float64).T
    np.testing.assert_array_equal(total, a.astype(np.float64) @ b.astype(np.float64).T)


@pytest.mark.parametrize("line", [32, 64])
def test_stage_of_several_taps(line):
    """Pixels of several taps in one stage: those of a tap lie together, and steps of k go from tap to tap."""
    draw, rows, taps = np.random.default_rng(5), 128, ROW_BYTES // line
    pixels = draw.integers(-8, 8, (taps, rows, line // 2)).astype(np.float16)
    shared = np.zeros(SHARED, np.uint8)
    for tap, box in enumerate(pixels):
        copy_box(shared, tap * rows * line, box, line)
    fields = descriptor(CHUNK_BYTES, CORE_ROWS * line, line)
    for warpgroup in range(2):
        parts = []
        for step in range(ROW_BYTES // K_STEP_BYTES):
            tap, within = divmod(step * K_STEP_BYTES, line)
            start = warpgroup * PANEL_ROWS * line + tap * rows * line + within
            parts.append(operand(shared, start, fields, PANEL_ROWS, 16, False, 2, line))
        own = pixels[:, warpgroup * PANEL_ROWS : (warpgroup + 1) * PANEL_ROWS]
        np.testing.assert_array_equal(np.concatenate(parts, 1), own.transpose(1, 0, 2).reshape(PANEL_ROWS, -1))


@given(st.integers(0, 15), st.integers(0, (227 << 10) // 16 - 1))
def test_descriptors_of_blocks_in_a_cluster(rank, chunk):
    """The address of shared memory has the rank of its block above bit 24; no field but its own may see it."""
    fields = descriptor(PANEL_BYTES, CORE_ROWS * ROW_BYTES)
    assert described((rank << 24) + chunk * 16) | fields == fields + chunk


def test_accumulators_cover_a_tile():
    thread = np.arange(WARPGROUP)
    seen = np.zeros((64, 128), int)
    for number in range(128 // 2):
        np.add.at(seen, (accumulator_row(thread, number), accumulator_column(thread, number)), 1)
    assert (seen == 1).all()


def test_matrix_stores_put_sums_where_copies_read_them():
    """stmatrix: lane 8*m + r addresses row r of matrix m; register m of lane t has its row t//4, columns 2*(t%4)."""
    draw = np.random.default_rng(5)
    tile = draw.standard_normal((64, 64)).astype(np.float16)
    shared = np.zeros(SHARED, np.uint8)
    for group in range(4):
        for thread in range(WARPGROUP):
            lane, warp = thread % 32, thread // 32
            for matrix in range(4):
                row_address = matrix_address(warp * 32 + matrix * 8 + lane // 4, group)
                for half in range(2):
                    number = 8 * group + 2 * matrix + half
                    value = tile[accumulator_row(thread, number), accumulator_column(thread, number)]
                    at = row_address + (lane % 4 * 2 + half) * 2
                    shared[at : at + 2] = np.array([value]).view(np.uint8)
    np.testing.assert_array_equal(read_box(shared, 0, 64, 64), tile)


def test_swizzled_is_the_manuals_permutation():
    address = np.arange(1 << 12)
    for width, bits in BITS.items():
        np.testing.assert_array_equal(swizzled(address, width), permuted(address, bits))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 17))
def test_tiles_are_walked_once(down, across, together):
    number = np.arange(down * across)
    rows, columns = tile_place(number, down, across, together)
    assert sorted(zip(rows, columns)) == [(r, c) for r in range(down) for c in range(across)]
    assert [tile_place(int(n), down, across, together) for n in number] == list(zip(rows, columns))


@given(st.integers(1, 16), st.integers(0, 500))
def test_split_sums_are_whole_and_even(ranks, blocks):
    ends = [split_bound(rank, ranks, blocks) for rank in range(ranks + 1)]
    sizes = np.diff(ends)
    assert (ends[0], ends[-1]) == (0, blocks)
    assert sizes.max() - sizes.min() <= 1


@given(st.integers(1, 9), st.integers(1, 200))
def test_ring(stages, turns):
    stage, phase = 0, 0
    for turn in range(turns):
        assert ring_place(turn, stages) == (stage, phase)
        stage += 1
        if stage == stages:
            stage, phase = 0, phase ^ 1


@given(
    st.tuples(*[st.integers(1, 9)] * 3),
    st.tuples(*[st.integers(1, 3)] * 2),
    st.tuples(*[st.integers(1, 3)] * 2),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.tuples(*[st.integers(1, 2)] * 2),
)
def test_windows_are_those_of_a_convolution(pictures, taps, strides, pads, dilation):
    """Every window read from its origin, zeros outside, against numpy's padded slices."""
    count, height, width = pictures
    padded_shape = (height + pads[0] + pads[2], width + pads[1] + pads[3])
    reach = [d * (t - 1) + 1 for d, t in zip(dilation, taps)]
    image = tuple((n - r) // s + 1 for n, r, s in zip(padded_shape, reach, strides))
    if min(image) < 1:
        return
    data = np.random.default_rng(1).standard_normal(pictures)
    padded = np.pad(data, ((0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    for pixel in range(count * image[0] * image[1]):
        picture, top, left = window_origin(pixel, image, strides, pads[:2])
        within = pixel % (image[0] * image[1])
        p, q = divmod(within, image[1])
        for r in range(taps[0]):
            for s in range(taps[1]):
                y, x = top + r * dilation[0], left + s * dilation[1]
                inside = 0 <= y < height and 0 <= x < width
                found = data[picture, y, x] if inside else 0.0
                row, column = p * strides[0] + r * dilation[0], q * strides[1] + s * dilation[1]
                assert found == padded[pixel // (image[0] * image[1]), row, column]
