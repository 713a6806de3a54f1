"""What open matrix products take, whichever kernel makes them: out[i] = a[i] @ b[i] + bias, where
every matrix lies anywhere, with any strides; and the block that a turn of the parallel loop makes.
"""

from __future__ import annotations

from typing import NamedTuple

from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, binary

UNBOUNDED = 1 << 40  # elements of a buffer that is addressed by strides


class Arguments(NamedTuple):
    """The scalars, in their order. Steps are in elements."""

    rows: Var
    columns: Var
    depth: Var  # products of a sum
    a_row_step: Var
    a_depth_step: Var
    b_depth_step: Var
    b_column_step: Var
    out_row_step: Var
    turn_rows: Var
    turn_columns: Var
    part: Var  # products packed at a time
    bias_columns: Var  # how many columns a bias has: all or none
    turns: Var


class Block(NamedTuple):
    """Some rows and columns of one product, and where its elements of a, b and out begin."""

    row: Var
    column: Var
    rows: Var
    columns: Var
    a: Var
    b: Var
    out: Var


class Operands:
    """The buffers a, b, starts of each product in a and in b (in pairs), bias and out."""

    def __init__(self, b: KernelBuilder, dtype: DType) -> None:
        self.builder = b
        self.a = b.arg("a", dtype, (UNBOUNDED,))
        self.b = b.arg("b", dtype, (UNBOUNDED,))
        self.starts = b.arg("starts", "int64", (UNBOUNDED,))
        self.bias = b.arg("bias", dtype, (UNBOUNDED,))
        self.out = b.arg("out", dtype, (UNBOUNDED,))
        self.arguments = Arguments(*[b.scalar(name) for name in Arguments._fields])

    def block(self, turn: Expr) -> Block:
        """What a turn makes: rows change first, then columns, then the product."""
        b, arguments = self.builder, self.arguments
        high = b.let("high", _blocks(arguments.rows, arguments.turn_rows))
        blocks = b.let("blocks", high * _blocks(arguments.columns, arguments.turn_columns))
        product, number = b.let("product", turn // blocks), b.let("number", turn % blocks)
        row = b.let("row", number % high * arguments.turn_rows)
        column = b.let("column", number // high * arguments.turn_columns)
        a, other = self.starts[product * 2], self.starts[product * 2 + 1]
        made = product * arguments.rows * arguments.columns
        return Block(
            row,
            column,
            b.let("rows", binary("min", arguments.turn_rows, arguments.rows - row)),
            b.let("columns", binary("min", arguments.turn_columns, arguments.columns - column)),
            b.let("a", a + row * arguments.a_row_step),
            b.let("b", other + column * arguments.b_column_step),
            b.let("out", made + row * arguments.out_row_step + column),
        )


def _blocks(extent: Expr, size: Expr) -> Expr:
    return (extent + size - 1) // size
