"""Matrix products of many rows, whose extents and strides are arguments: the template of lower/cpu/product.py over
product_operands.py."""

from __future__ import annotations

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, select
from ....te.loops import Kernel
from ....te.visit import masked_load
from ..matrices.open_tile import tile_size
from ..product import Matrix, Packing, Product, open_plan, panel_elements
from .product_operands import Operands


def product_kernel(target: CpuTarget, dtype: DType, pack_rows: bool) -> Kernel:
    """With `pack_rows` rows of a are packed as well, else the products of a row lie side by side."""
    b = KernelBuilder(f"open_product_{dtype.name}{'_packed' if pack_rows else ''}")
    operands, size = Operands(b, dtype), tile_size(target, dtype)
    rows, columns, depth, *_ = given = operands.arguments
    chunk, vectors = given.turn_rows // size.rows, given.turn_columns // size.lanes
    plan = open_plan((rows, depth, columns), size, given.part, chunk, vectors)
    starts, bias = operands.starts, operands.bias
    a = Matrix(operands.a, lambda number: starts[number * 2], given.a_row_step, given.a_depth_step)
    w = Matrix(operands.b, lambda number: starts[number * 2 + 1], given.b_depth_step, given.b_column_step)
    out = Matrix(operands.out, lambda number: number * (rows * columns), given.out_row_step)

    def begin(column: Expr, number: Expr) -> Expr:
        return masked_load(bias, (column,), column < select(number.equal(0), given.bias_columns, 0))

    packing = Packing(panel_elements(dtype, target), target.facts.line_bytes // dtype.itemsize, pack_rows)
    Product(b, plan, (a, w, out), turns=given.turns, packing=packing, begin=begin).write()
    return b.finish()
