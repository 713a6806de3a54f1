"""Where elements lie in kernels of tensor cores: integer functions of numbers, arrays, or expressions of uint32.

A row of a tile in shared memory is 128 bytes, of which chunks of 16 are permuted by the number of the row, so that
eight rows at the same column lie in different banks. Copies between global and shared memory, products and matrix
loads all know that permutation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..expr import Expr, minimum

ROW_BYTES = 128  # of a tile in shared memory
CHUNK_BYTES = 16  # what is permuted as a whole
CORE_ROWS = 8  # rows after which the permutation repeats
PANEL_ROWS = 64  # of a tile that one warpgroup multiplies, and of the boxes that copies move
PANEL_BYTES = PANEL_ROWS * ROW_BYTES
K_STEP_BYTES = 32  # of a row that one product instruction takes
WARP, WARPGROUP = 32, 128
_SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}  # bytes a permutation spans -> its number in a descriptor


def swizzled(address: Any, width: int = ROW_BYTES) -> Any:
    """Where the byte of an address, counted row by row, lies when chunks are permuted within `width` bytes.

    >>> swizzled(128), swizzled(5 * 128 + 16), swizzled(16, 32), swizzled(128 + 16, 32)
    (144, 704, 16, 128)
    """
    return address ^ ((address // CORE_ROWS) & (width - CHUNK_BYTES))


def descriptor(leading: int, stride: int, swizzle: int = ROW_BYTES) -> int:
    """What a product is told of an operand besides its address, as a signed number of 64 bits: bytes from one block of
    64 columns to the next (of operands stored by columns), bytes from eight rows to the next eight, the permutation.

    >>> hex(descriptor(0, 1024))
    '0x4000004000000000'
    """
    bits = (leading // CHUNK_BYTES) << 16 | (stride // CHUNK_BYTES) << 32 | _SWIZZLES[swizzle] << 62
    return bits - (1 << 64) if bits >> 63 else bits


def described(address: Any) -> Any:
    """An address of shared memory as descriptors hold it, in 14 bits. In a cluster the bits above 24 are the rank of
    the block; they would run into the next field.

    >>> described(0x2000 + 16), described((3 << 24) + 0x2000 + 16)
    (513, 513)
    """
    return address // CHUNK_BYTES % (1 << 14)


def accumulator_row(thread: Any, number: int = 0) -> Any:
    """The row, of 64, of a thread's accumulator; `thread` counts within its warpgroup."""
    return thread // WARP * 16 + thread % WARP // 4 + number // 2 % 2 * 8


def accumulator_column(thread: Any, number: int = 0) -> Any:
    """The column of a thread's accumulator: they come in pairs."""
    return thread % 4 * 2 + (number // 4 * 8 + number % 2)


def matrix_address(thread: Any, group: int) -> Any:
    """Where in a panel of 64 rows and 128 bytes a thread points a matrix load or store of 16 columns of 16 bits to:
    then registers hold accumulators 8*group to 8*group + 7 of each thread, two of them in each."""
    row = thread // WARP * 16 + thread % 16
    chunk = thread % WARP // 16 + 2 * (group % 4)
    return swizzled(row * ROW_BYTES + chunk * CHUNK_BYTES)


def tile_place(number: Any, tiles_down: Any, tiles_across: Any, rows_together: int) -> tuple[Any, Any]:
    """Which tile, by row and column, is computed at what turn: some rows of tiles are walked column by column, so that
    blocks which run at once share operands in the cache.

    >>> [tile_place(n, 3, 2, 2) for n in range(6)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    """
    per_group = tiles_across * rows_together
    group = number // per_group
    first = group * rows_together
    rows = lesser(tiles_down - first, rows_together)
    within = number - group * per_group
    column = within // rows
    return first + (within - column * rows), column


def split_bound(rank: Any, ranks: int, blocks: Any) -> Any:
    """The first of the blocks of a sum that falls to a rank; it ends where that of the next rank begins.

    >>> [split_bound(rank, 4, 10) for rank in range(5)]
    [0, 2, 5, 7, 10]
    """
    return rank * blocks // ranks


def ring_place(turn: Any, stages: int) -> tuple[Any, Any]:
    """The stage of a ring that a turn uses, and the parity of its barrier's phase."""
    return turn % stages, turn // stages % 2


def window_origin(pixel: Any, image: tuple[Any, Any], strides: tuple[int, int], pads: tuple[int, int]) -> Any:
    """(picture, row, column) where the window of an output pixel begins; it may begin outside of the picture. Numbers
    are signed, those of expressions wrap.

    >>> window_origin(7, (2, 3), (2, 2), (1, 1))
    (1, -1, 1)
    """
    height, width = image
    picture = pixel // (height * width)
    within = pixel - picture * (height * width)
    row = within // width
    return picture, row * strides[0] - pads[0], (within - row * width) * strides[1] - pads[1]


def lesser(a: Any, b: Any) -> Any:
    """The smaller of two numbers, arrays or expressions."""
    if isinstance(a, Expr) or isinstance(b, Expr):
        return minimum(a, b)
    return np.minimum(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)
