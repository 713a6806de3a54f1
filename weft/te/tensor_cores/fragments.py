"""Where the lanes of a warp find operands of its products (16 rows by 8 columns of the result, 32 bytes of k),
and have their sums: integer functions of numbers, arrays, or expressions of uint32.

In shared memory an operand has panels of lines of 128 bytes. Along k a line is a row and has 128 bytes of k; of an
operand that is stored by columns, `turned`, a line is a step of k and has 128 bytes of rows. Chunks of 16 bytes are
permuted by the number of the line, so that what a warp reads at once lies in different banks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .layouts import CHUNK_BYTES, CORE_ROWS, K_STEP_BYTES, ROW_BYTES

BLOCK_ROWS, BLOCK_COLUMNS = 16, 8  # of the result of one product
K_STEPS = ROW_BYTES // K_STEP_BYTES
CHUNKS = ROW_BYTES // CHUNK_BYTES  # of a line
WORD_BYTES = 4


class Walk(NamedTuple):
    """From where a lane begins to another place: (address ^ flip) + more."""

    flip: int
    more: int


class Layout(NamedTuple):
    """Of an operand in shared memory, whose panels have so many `lines`.

    `paired`: the two elements of k that a lane reads of a right operand are neighbours, as sums are; so sums can be the
    left operand. Only what is read word by word can be.
    """

    item_bytes: int
    turned: bool
    lines: int
    paired: bool = False

    @property
    def words(self) -> bool:
        """Whether lanes read elements one by one: matrix loads turn elements of 16 bits only."""
        return self.turned and self.item_bytes == WORD_BYTES

    def permuted(self, address: Any) -> Any:
        """Where the byte of an address, counted line by line, lies.

        >>> [Layout(2, False, 64).permuted(at) for at in (128, 5 * 128 + 16)]
        [144, 704]
        >>> [Layout(4, True, 32).permuted(at) for at in (128, 5 * 128)]
        [160, 672]
        """
        if not self.words:
            return address ^ ((address // CORE_ROWS) & (ROW_BYTES - CHUNK_BYTES))
        lines = 2 if self.paired else 1  # a warp reads eight neighbours of four lines, so many apart
        return address ^ ((address // (lines * WORD_BYTES)) & (3 * 2 * CHUNK_BYTES))

    def lane_start(self, lane: Any, row: Any, left: bool) -> Any:
        """Where a lane points its first load to; `row` is the first one of its warp, in a tile.

        A matrix load gives four matrices of eight rows and 16 bytes. Those of a left operand are (upper eight rows,
        first half of k), (lower, first), (upper, second), (lower, second); those of a right one (first eight columns,
        first half), (first, second), (second, first), (second, second). Lanes 8*m to 8*m + 7 point to the m-th.
        """
        across = row * self.item_bytes
        panel = across // ROW_BYTES * (self.lines * ROW_BYTES)
        if self.words:
            line = lane % 4 * (2 if self.paired else 1)
            return self.permuted(panel + line * ROW_BYTES + across % ROW_BYTES + lane // 4 * self.item_bytes)
        if left != self.turned:
            line, chunk = lane % 16, lane // 16
        else:
            line, chunk = lane % 8 + lane // 16 * 8, lane // 8 % 2
        if not self.turned:
            return self.permuted((row + line) * ROW_BYTES + chunk * CHUNK_BYTES)
        return self.permuted(panel + line * ROW_BYTES + across % ROW_BYTES + chunk * CHUNK_BYTES)

    def walk(self, step: int, block: int, row: int = 0, half: int = 0) -> Walk:
        """From there to a step of k and a block of 16 rows of the warp. What is read word by word has a `row` beyond
        its lane's first, and lies in the first or the second `half` of k. Warps have so many rows that all of them
        begin at a multiple of it in a panel."""
        if not self.turned:
            panel, within = divmod(step, K_STEPS)
            return Walk(within * K_STEP_BYTES, (panel * self.lines + block * BLOCK_ROWS) * ROW_BYTES)
        panel, across = divmod((block * BLOCK_ROWS + row) * self.item_bytes, ROW_BYTES)
        line = step * K_STEP_BYTES // self.item_bytes + half * (1 if self.paired else 4)
        return Walk(across, (panel * self.lines + line) * ROW_BYTES)


def sum_row(lane: Any, number: int) -> Any:
    """The row, of 16, of a lane's sum; it has four of each product."""
    return lane // 4 + number // 2 * 8


def sum_column(lane: Any, number: int) -> Any:
    """The column, of 8: sums come in pairs."""
    return lane % 4 * 2 + number % 2
