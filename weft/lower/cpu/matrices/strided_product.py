"""Products of matrices that lie anywhere, with any strides, all of which are arguments: out[i] = a[i] @ b[i] + bias.
How one is cut, `plan_strided` says; its kernel is a plan of lower/cpu/product.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import UNBOUNDED, KernelBuilder
from ....te.expr import Expr, Var, select
from ....te.loops import Kernel
from ....te.visit import masked_load
from ..product import Matrix, Packing, Product, ProductPlan, open_plan, panel_elements
from ..product_turns import TURNS_PER_CORE, even_part, products_per_nanosecond, turn_of
from ..tile import TileSize, tile_size
from .skinny_product import ACROSS, MAX_ROWS, DotProduct, SkinnyProduct, dot_size, skinny_columns, skinny_size

MAX_DOT = 16  # rows or columns, up to which runs of products are multiplied in place
MIN_DOT_DEPTH = 64
RUN = 1024  # bytes of a row, below which columns are not cut


class StridedPlan(NamedTuple):
    """A kind of kernel, rows and columns of a turn, products of a part, turns, and nanoseconds of work."""

    kind: str
    rows: int
    columns: int
    part: int
    turns: int
    work: float


@lru_cache(4096)
def plan_strided(
    batch: int, rows: int, columns: int, depth: int, layout: tuple[bool, bool, bool], dtype: DType, target: CpuTarget
) -> StridedPlan:
    """How a product is made. `layout`: whether products are side by side in rows of a, and in
    columns of b; whether columns of b are."""
    kind = _kind(rows, columns, depth, layout)
    size, part = tile_size(target, dtype), depth
    if kind == "skinny":
        turn = rows, _skinny_turn(batch, columns, dtype, target)
    elif kind == "dot":
        turn = turn_of(kind, batch, (rows, depth, columns), TileSize(4, 1, ACROSS), columns, target)
    else:
        part = even_part(depth)
        most = max(panel_elements(dtype, target) // (part * size.width), 1) * size.width
        turn = turn_of(kind, batch, (rows, depth, columns), size, most, target)
    turns = batch * -(-rows // turn[0]) * -(-columns // turn[1])
    multiplications = batch * rows * columns * depth
    read = batch * depth * (rows + columns) * dtype.itemsize
    work = max(multiplications / products_per_nanosecond(target), read * 1e9 / target.facts.last_rate)
    return StridedPlan(kind, *turn, part, turns, work)


def _kind(rows: int, columns: int, depth: int, layout: tuple[bool, bool, bool]) -> str:
    a_runs, b_runs, b_is_plain = layout
    if a_runs and b_runs and min(rows, columns) <= MAX_DOT and depth >= MIN_DOT_DEPTH:
        return "dot"
    if b_is_plain and rows <= MAX_ROWS:
        return "skinny"
    return "rows" if a_runs else "packed"


def _skinny_turn(batch: int, columns: int, dtype: DType, target: CpuTarget) -> int:
    """Columns of a turn: some lines of memory, so many turns that threads are busy."""
    line = RUN // dtype.itemsize
    even = -(-columns // (-(-TURNS_PER_CORE * target.cores // batch) * line)) * line
    return min(even, skinny_columns(dtype))


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


def strided_kernel(dtype: DType, kind: str, target: CpuTarget) -> Kernel:
    """Kinds: "rows" packs columns; "packed" rows as well, whose products do not lie side by side; "skinny" and "dot"
    pack nothing. The buffers are a, b, starts of each product in a and in b (in pairs), bias and out."""
    b = KernelBuilder(f"open_product_{dtype.name}_{kind}")
    left, right = (b.arg(name, dtype, (UNBOUNDED,)) for name in "ab")
    starts = b.arg("starts", "int64", (UNBOUNDED,))
    bias, made = (b.arg(name, dtype, (UNBOUNDED,)) for name in ("bias", "out"))
    given = Arguments(*[b.scalar(name) for name in Arguments._fields])
    a = Matrix(left, lambda number: starts[number * 2], given.a_row_step, given.a_depth_step)
    w = Matrix(right, lambda number: starts[number * 2 + 1], given.b_depth_step, given.b_column_step)
    out = Matrix(made, lambda number: number * (given.rows * given.columns), given.out_row_step)

    def begin(column: Expr, number: Expr) -> Expr:
        return masked_load(bias, (column,), column < select(number.equal(0), given.bias_columns, 0))

    def product(form: Callable[..., Product], size: TileSize, chunk: Any, packing: Packing | None = None) -> Product:
        plan = _open_plan(given, size, chunk)
        return form(b, plan, (a, w, out), turns=given.turns, packing=packing, begin=begin)

    if kind == "skinny":
        size = skinny_size(target, dtype)
        product(SkinnyProduct, size, MAX_ROWS // size.rows).write()
    elif kind == "dot":
        size = dot_size(target)
        product(partial(DotProduct, target.lanes(dtype)), size, given.turn_rows // size.rows).write()
    else:
        size = tile_size(target, dtype)
        packing = Packing(panel_elements(dtype, target), target.facts.line_bytes // dtype.itemsize, kind == "packed")
        product(Product, size, given.turn_rows // size.rows, packing).write()
    return b.finish()


def _open_plan(given: Arguments, size: TileSize, chunk: Any) -> ProductPlan:
    extents = given.rows, given.depth, given.columns
    return open_plan(extents, size, given.part, chunk, given.turn_columns // size.lanes)
