"""The template of matrix products: rows times panels of columns, with what follows. Extents and steps are numbers or
arguments; panels are packed weights, or columns that a turn packs from wherever they are.

A tile of some rows and a few vectors of columns stays in registers while the products are summed. All tiles of
a chunk of rows run for the same panels, which come from the second cache after the first of them;
each tile asks for a share of the panels that are next. Long sums are cut into blocks, so that the
rows' part of a block stays in that cache as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any, NamedTuple

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, FLOAT64, DType, dtype_name, is_float
from ...base.stages import decided
from ...core.fused import FusedGroup
from ...core.ir import Node
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, call, cast, const, minimum, select, widen
from ...te.extents import fewest, is_open, is_same, lesser
from ...te.loops import Buffer
from ...te.transform import lower_vectors
from ...te.visit import masked_load
from ..epilogue import Epilogue, static_spec
from ..group import Facts, LoweredKernel, Strides, kernel_name
from ..long_sums import LONG_PRODUCT
from .matrices.pack import Columns, pack_panel
from .product_turns import BLOCK, even_part, far_packing, turn_of
from .stage import lower_group
from .tile import Sizes, TileSize, balanced, registers, tile_size, tiles_of
from .tile_walk import (
    ceil_div,
    choose,
    clamped,
    counted,
    even_groups,
    lanes_from,
    leading_index,
    opaque,
    place_of,
    total_of,
)

MANY_ROWS = 60  # what a tile is chosen for where the number of rows is an argument
MAX_ROWS, MAX_PANELS = 8, 8  # of a tile; more rows may not fit the ways of the first cache
PANEL_COST = 2.0  # of a vector of weights, which comes from the second cache, over a broadcast
LONG_SUM = 1536  # products, from which on a sum is cut
MAX_BLOCKS = 512  # so that rounding errors of adding them up stay small
UNROLL = 4  # of sums whose length is known; for others more takes longer to compile and is no faster
STREAMS, FEW_ROWS = 4, 4  # panels at most for so few rows that memory decides: each comes from a page of its own
FEWEST_TILES = 2  # that ask for all of a panel, where their number is an argument
NEAR_LINES = 32  # how far ahead weights are asked for that are read once
TOGETHER = (4, 2)  # groups of panels for one block of products, as pieces allow
PANELS = 27 / 128  # of the second cache, for columns packed by a turn: rows fit it beside them
TURN_ROWS = 256  # for which columns are packed
SHORTEST = 16  # products of a sum, for which columns are packed
PIECES = 8  # turns of the parallel loop that keep threads busy


# From a row to what is stored of sums: values, columns and mask are vectors.
Finish = Callable[[Expr], Callable[[Expr, Expr, Expr | None], Expr]]
# A sum, an element of a row and a vector of weights -> the sum with what both contribute.
Multiply = Callable[[Expr, Expr, Expr], Expr]


def multiply_floats(total: Expr, x: Expr, y: Expr) -> Expr:
    return call("fma", x, cast(y, total.dtype), total)


class ProductPlan(NamedTuple):
    """`tiles` and `groups`: (rows of a tile, how many), (vectors of columns side by side, how many)."""

    rows: Any
    depth: Any
    columns: Any
    lanes: int
    tiles: Sizes
    groups: Sizes
    chunk: Any  # tiles that run for the same panels
    rows_first: bool  # whether all panels run for a chunk, before the next chunk
    block: Any  # products summed at a time
    together: Any  # groups of panels for each block of products
    rows_fit: bool = True  # whether tiles have the rows that there are, and no more
    turn_columns: Any = None  # columns of a turn, whose groups these are; None where they are those of all columns

    @property
    def turns_across(self) -> Any:
        """Turns that all columns take."""
        if self.turn_columns is None:
            return (total_of(self.groups) + (self.together - 1)) // self.together
        return (self.columns + (self.turn_columns - 1)) // self.turn_columns

    @property
    def covered(self) -> int:
        """Columns of all groups, some of which may not be there."""
        own: int = sum(vectors * count for vectors, count in self.groups) * self.lanes
        return own if self.turn_columns is None else own * int(self.turns_across)

    @property
    def weights(self) -> int:
        """Elements of all panels."""
        return -(-self.columns // self.lanes) * self.depth * self.lanes


def product_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group whose master is a _packed_matmul, or the generic ones for rows of other dtypes
    than float32, and for nothing at all. Weights may be floats of 16 bits."""
    node = group.anchor
    specs = [static_spec(fact(entry)) for entry in (*node.inputs, group.outputs[0])]
    (data, own), (weight, kept), (_, dtype) = specs
    lanes = weight[2]
    suits = own == dtype == FLOAT32 and lanes == target.lanes(FLOAT32)
    if not suits or len(group.outputs) > 1 or not prod(data):
        return lower_group(group, fact, target)
    plan = plan_product(prod(data[:-1]), data[-1], node.params.units, lanes, target)
    return [panel_kernel(plan, kept, group, fact, target)]


def panel_kernel(
    plan: ProductPlan,
    weights: DType,
    group: FusedGroup,
    fact: Facts,
    target: CpuTarget,
    multiply: Multiply = multiply_floats,
) -> LoweredKernel:
    """The kernel of rows times packed panels, whose weights are of a dtype, and of what follows."""
    b = KernelBuilder(kernel_name(group))
    factors = b.arg("data", FLOAT32, (plan.rows * plan.depth,)), b.arg("weight", weights, (plan.weights,))
    epilogue = Epilogue(b, group, fact, join=True)
    made, buffers = static_spec(fact(group.outputs[0]))[0], (*factors, epilogue.result((plan.rows * plan.columns,)))
    write_panel_product(b, plan, buffers, finish_of(b, epilogue, made), multiply=multiply)
    work = plan.rows * plan.depth * plan.columns
    if not is_open(work):
        work = max(work, work_of_reading(plan.weights * weights.itemsize, target))
    return lowered_product(b, group, epilogue, work)


def work_of_reading(size: int, target: CpuTarget) -> int:
    """The operations that take as long as reading so many bytes from beyond the second cache, where they are."""
    core = target.facts
    nanoseconds = 1e9 * size / core.far_rate if size > core.caches[1] else 0
    return round(nanoseconds / core.nanoseconds_per_operation)


def product_unit(node: Node, fact: Facts, target: CpuTarget) -> str:
    """The instructions, and what weights are kept in where that is less than float32."""
    dtype = fact(node.inputs[1]).dtype
    assert dtype is not None
    return target.isa if dtype.itemsize >= FLOAT32.itemsize else f"{target.isa}, weights of {dtype_name(dtype)}"


def lowered_product(b: KernelBuilder, group: FusedGroup, epilogue: Epilogue, work: Any) -> LoweredKernel:
    arguments = (*group.anchor.inputs, *epilogue.arguments)
    return LoweredKernel(lower_vectors(b.finish()), arguments, work)


def finish_of(b: KernelBuilder, epilogue: Epilogue, shape: Sequence[Any], dtype: DType = FLOAT32) -> Finish:
    """What follows products of a dtype, by the number of a row."""
    leading = epilogue.shape(shape)[:-1]

    def finish(row: Expr) -> Callable[[Expr, Expr, Expr | None], Expr]:
        at = leading_index(b, row, leading)
        return lambda value, column, mask: epilogue.finished(cast(value, dtype), [*at, column], mask)

    return finish


def batched_kernels(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernel of a batch_matmul, or of a matmul with a matrix, that packs what it reads: half floats as float32, in
    which they are added up. Where neither columns nor sums are arguments, and matrices are read along their rows,
    generic ones are as good."""
    node = group.master or group.nodes[0]
    specs = [static_spec(fact(entry)) for entry in (*node.inputs, group.outputs[0])]
    (data, _), (weight, _), (result, dtype) = specs
    turned, swapped = node.params.transpose_a, node.params.transpose_b
    made = result
    if node.op_name == "matmul":
        if len(weight) != 2 or (turned and len(data) != 2):
            return lower_group(group, fact, target, strides)
        data, made = ((prod(shape[:-1]), shape[-1]) for shape in (data, made))
    wide = FLOAT32 if is_half(dtype) else dtype
    suits = wide in (FLOAT32, FLOAT64) and all(spec[1] == dtype for spec in specs)
    apart = strides or len(group.outputs) > 1 or not set(node.inputs) <= set(group.inputs)
    depth, size = data[-2 if turned else -1], tile_size(target, wide)
    packs = packs_columns(made[-2], depth, turned, swapped, dtype)
    short = not is_open(depth) and depth < SHORTEST
    if apart or short or not suits or not (packs or is_open(made[-1]) or is_open(depth)) or not fewest(made):
        return lower_group(group, fact, target, strides)
    b, leading = KernelBuilder(kernel_name(group)), made[:-2]

    def matrix(buffer: Buffer, shape: Sequence[Any], is_turned: bool) -> Matrix:
        start = lambda number: _leading_place(b, number, leading, shape[:-2]) * (shape[-2] * shape[-1])
        return Matrix(buffer, start, *((1, shape[-1]) if is_turned else (shape[-1], 1)))

    factors = [b.arg(name, dtype, (prod(shape),)) for name, shape in (("data", data), ("weight", weight))]
    epilogue = Epilogue(b, group, fact, join=True)
    matrices = (
        matrix(factors[0], data, turned),
        matrix(factors[1], weight, swapped),
        matrix(epilogue.result((prod(made),)), made, False),
    )
    line = target.facts.line_bytes // dtype.itemsize
    packing = Packing(panel_elements(wide, target), line, turned or wide != dtype, wide)
    plan = _packing_plan(prod(leading), (made[-2], depth, made[-1]), size, packing, target)
    Product(b, plan, matrices, finish_of(b, epilogue, result, dtype), prod(leading), packing=packing).write()
    return [lowered_product(b, group, epilogue, prod(made) * depth)]


def _packing_plan(
    batch: Any, extents: tuple[Any, Any, Any], size: TileSize, packing: Packing, target: CpuTarget
) -> ProductPlan:
    """Turns as the target likes them, where all sizes are numbers."""
    _, depth, columns = extents
    if any(map(is_open, (batch, *extents))):
        block = BLOCK if is_open(depth) else min(depth, BLOCK)
        vectors = (columns + (size.lanes - 1)) // size.lanes
        most = packing.columns(block, size) // size.lanes
        return open_plan(extents, size, block, TURN_ROWS // size.rows, lesser(vectors, most))
    block = min(even_part(depth), depth)
    most = packing.columns(block, size)
    kind = "packed" if packing.rows else "rows"
    turn_rows, turn_columns = turn_of(kind, batch, extents, size, most, target, far_packing(target))
    return open_plan(extents, size, block, turn_rows // size.rows, turn_columns // size.lanes)


def is_half(dtype: DType) -> bool:
    """Whether numbers are floats of 16 bits."""
    return is_float(dtype) and dtype.itemsize < FLOAT32.itemsize


def packs_columns(rows: Any, depth: Any, turned: bool, swapped: bool, dtype: DType | None) -> bool:
    """Whether matrices, of which one or both are read down their columns, are packed by the kernel that multiplies
    them: many rows, and sums long enough."""
    many, long = (is_open(rows) or rows >= MAX_ROWS), (is_open(depth) or depth >= SHORTEST)
    return dtype in (FLOAT32, FLOAT64) and (turned or swapped) and many and long


def _leading_place(b: KernelBuilder, number: Expr, leading: Sequence[Any], own: Sequence[Any]) -> Any:
    """Which matrix of an operand the product of a number takes, where axes of 1 are taken again and again."""
    if len(own) == len(leading) and all(map(is_same, own, leading)):
        return number
    place: Any = 0
    for at, extent in zip(leading_index(b, number, leading)[len(leading) - len(own) :], own):
        place = place * extent + (at if is_open(extent) or extent > 1 else 0)
    return place


def plan_product(
    rows: Any, depth: int, columns: int, lanes: int, target: CpuTarget, in_parts: bool = True
) -> ProductPlan:
    """Tiles of rows and panels, and the order to run them in. Sums may be stored and read again, `in_parts`."""
    panels = -(-columns // lanes)
    a, p = tile_of(MANY_ROWS if is_open(rows) else rows, panels, registers(target))
    cached = target.caches[1]  # bytes of rows that stay in the second cache
    tiles = tiles_of(rows, a)
    count = total_of(tiles)
    groups = balanced(panels, p)
    sets = total_of(groups)
    long = in_parts and depth >= LONG_SUM and (is_open(rows) or depth * rows * 4 > cached or depth > LONG_PRODUCT)
    block = even_part(depth, max(BLOCK, -(-depth // MAX_BLOCKS))) if long else depth
    fitting = max(cached // (block * 4 * a), 1)
    if is_open(rows):
        shares = -(-PIECES // sets)  # of the rows, so that threads are busy
        chunk = lesser(fitting, (count + (shares - 1)) // shares)
        together = next((n for n in TOGETHER if sets >= n * PIECES), 1) if long else 1
        return ProductPlan(rows, depth, columns, lanes, tiles, groups, chunk, True, block, together)
    chunk = -(-count // -(-count // fitting))
    chunks = -(-count // chunk)
    together = next((n for n in TOGETHER if sets * chunks >= n * PIECES), 1) if long else 1
    rows_first = chunk < count
    if sets * chunks < PIECES:
        chunk = -(-count // min(-(-PIECES // sets), count))
    return ProductPlan(rows, depth, columns, lanes, tiles, groups, chunk, rows_first, block, together)


def tile_of(rows: int, panels: int, budget: int) -> tuple[int, int]:
    """Rows and panels of a tile: as few loads for a product as the registers allow; all rows, so
    that weights are read once, where two panels fit beside them."""
    if rows * 2 + 3 <= budget:
        return rows, min((budget - 1) // (rows + 1), STREAMS if rows <= FEW_ROWS else MAX_PANELS, panels)
    costs = {(float("inf"), 1, 1): float("inf")}
    for p in range(1, min(MAX_PANELS, panels) + 1):
        for a in range(1, min(MAX_ROWS, rows) + 1):
            if a * p + p + 1 <= budget:
                cost = PANEL_COST * -(-rows // a) / rows + -(-panels // p) / panels
                costs[cost, a, p] = cost
    best = min(costs)
    decided("register tile", tile_of, _tile(best), lambda: {_tile(size): cost for size, cost in costs.items()})
    return best[1:]


def _tile(size: tuple[float, int, int]) -> str:
    return f"{size[1]} x {size[2]}"


def open_plan(extents: tuple[Any, Any, Any], size: TileSize, block: Any, chunk: Any, turn_vectors: Any) -> ProductPlan:
    """Rows, products and columns all of which may be arguments, in one kind of tile: its rows are those that there are,
    the columns of a turn in groups of nearly as many vectors."""
    rows, depth, columns = extents
    tiles = ((size.rows, (rows + (size.rows - 1)) // size.rows),)
    groups = even_groups(turn_vectors, size.vectors)
    together, turn_columns = total_of(groups), turn_vectors * size.lanes
    return ProductPlan(
        rows, depth, columns, size.lanes, tiles, groups, chunk, False, block, together, False, turn_columns
    )


def panel_elements(dtype: DType, target: CpuTarget) -> int:
    """How many elements of packed columns a turn holds."""
    return int(PANELS * target.caches[1]) // dtype.itemsize


class Matrix(NamedTuple):
    """Matrices in a buffer: where the one of a number begins, and elements from row to row and from column to column.
    Of panels that are packed already only the beginning counts."""

    buffer: Buffer
    start: Callable[[Expr], Any]
    row_step: Any = 0
    column_step: Any = 1


class Packing(NamedTuple):
    """What a turn packs: panels of columns, so many elements at a time, and rows, if products are not side by side. In
    the dtype of the matrices, unless another one is given, which sums are of then."""

    elements: int
    line: int  # elements of a line of memory
    rows: bool
    dtype: DType | None = None

    def columns(self, depth: int, size: TileSize) -> int:
        """How many columns of so many products are packed at a time."""
        return self.elements // (depth * size.width) * size.width


class Part(NamedTuple):
    """`depth` products of every sum, from number `start` on."""

    start: Expr
    depth: Any
    there: Any  # columns whose sums have begun: none, or all
    is_last: bool | Expr  # whether sums are complete


class Strip(NamedTuple):
    """`rows` rows from number `row` on, which are tile number `tile`; reads an element by row and product. `after` is
    where the rows begin that are packed next, if any are packed."""

    rows: int
    row: Expr
    tile: Expr
    read: Callable[[int, Expr], Expr]
    after: Expr | None = None


class Panel(NamedTuple):
    """`vectors` vectors of columns from vector number `first` on, where they are, and elements from product to product
    and from vector to vector."""

    vectors: int
    first: Expr
    at: Expr
    step: Any
    beside: Any


def write_panel_product(
    b: KernelBuilder,
    plan: ProductPlan,
    buffers: tuple[Buffer, Buffer, Buffer],
    finish: Finish | None = None,
    batch: int = 1,
    multiply: Multiply = multiply_floats,
) -> None:
    """Rows times packed panels: the matrices are in order of memory, `batch` of each one behind the other."""
    sizes = (plan.rows * plan.depth, plan.weights, plan.rows * plan.columns)
    starts = [lambda number, size=size: number * size for size in sizes]
    data, panels, out = map(Matrix, buffers, starts, (plan.depth, 0, plan.columns))
    Product(b, plan, (data, panels, out), finish, batch, multiply=multiply).write()


class Product:
    """Writes products into a kernel: rows of `a` times columns of `w`, which are packed panels unless there is a
    `packing`. `finish` takes the row among those of all products. Sums of products from a number on begin with
    `begin(columns, number)`. There are `batch` products, or as many as make so many `turns`, in a `loop` over those,
    which threads share unless another one is given."""

    def __init__(
        self,
        b: KernelBuilder,
        plan: ProductPlan,
        matrices: tuple[Matrix, Matrix, Matrix],
        finish: Finish | None = None,
        batch: Any = 1,
        turns: Expr | None = None,
        packing: Packing | None = None,
        begin: Callable[[Expr, Expr], Expr] | None = None,
        multiply: Multiply = multiply_floats,
        loop: Callable[..., AbstractContextManager[Expr]] | None = None,
    ) -> None:
        self.b, self.plan, self.finish, self.batch, self.turns = b, plan, finish, batch, turns
        self.loop = b.parallel if loop is None else loop
        self.a, self.w, self.out = matrices
        self.packing, self.begin, self.multiply = packing, begin, multiply
        self.dtype = packing.dtype if packing is not None and packing.dtype is not None else self.a.buffer.dtype
        self.turn_sums: Buffer | None = None  # of a turn, where results are of a shorter dtype
        self.size = TileSize(plan.tiles[0][0], plan.groups[0][0], plan.lanes)
        self.first_tile = self.first_group = self.first_column = self.out_start = as_expr(0)

    def write(self) -> None:
        b, plan = self.b, self.plan
        sets = plan.turns_across
        chunks = (total_of(plan.tiles) + (plan.chunk - 1)) // plan.chunk
        with self.loop("p", self.batch * sets * chunks if self.turns is None else self.turns) as turn:
            p, number = turn, as_expr(0)
            if self.turns is not None or is_open(self.batch) or self.batch > 1:
                number, p = b.let("matrix", turn // (sets * chunks)), b.let("p", turn % (sets * chunks))
            self.first_row = b.let("first", number * plan.rows)
            self.a_start, self.w_start, self.out_start = (
                b.let("start", matrix.start(number)) for matrix in (self.a, self.w, self.out)
            )
            chunk, some = (p // sets, p % sets) if plan.rows_first else (p % chunks, p // chunks)
            self.first_tile = b.let("first", chunk * plan.chunk)
            if plan.turn_columns is None:
                self.first_group = b.let("first", some * plan.together)
            else:
                self.first_column = b.let("first", some * plan.turn_columns)
            if self.packing is not None:
                self.panels = b.alloc("panels", self.dtype, (self.packing.elements,), alignment=64)
                if self.packing.rows:
                    self.packed = b.alloc("packed", self.dtype, (2 * self.size.rows * BLOCK,), alignment=64)
                if self.dtype != self.out.buffer.dtype and (is_open(plan.depth) or plan.depth > plan.block):
                    self.turn_width = self.packing.columns(plan.block, self.size)
                    self.turn_sums = b.alloc("sums", self.dtype, (TURN_ROWS * self.turn_width,), alignment=64)
            self._parts()

    def _parts(self) -> None:
        b, depth, columns, block = self.b, self.plan.depth, self.plan.columns, self.plan.block
        if type(depth) is not int:
            with b.loop("part", (depth + (block - 1)) // block) as number:
                start = b.let("start", number * block)
                count = b.let("depth", minimum(block, depth - start))
                there = b.let("there", select(start.equal(0), 0, columns))
                self._part(Part(start, count, there, start + count >= depth))
            return
        last = (depth - 1) // block * block
        if last:
            self._part(Part(as_expr(0), block, 0, False))
        if last > block:
            with b.loop("block", last // block - 1) as number:
                self._part(Part((number + 1) * block, block, columns, False))
        self._part(Part(as_expr(last), depth - last, columns if last else 0, True))

    def _part(self, part: Part) -> None:
        """Some products of every sum, for all panels and rows of this turn."""
        b, plan = self.b, self.plan
        if self.packing is not None:
            self._pack(part)

        def panels(rows: int, first: Expr, tile: Expr) -> None:
            self._panels(part, self._strip(part, rows, b.let("row", first), tile))

        with counted(b, self.first_tile, plan.chunk, total_of(plan.tiles)) as tile:
            choose(b, tile, plan.tiles, lambda rows, first: panels(rows, first, tile))

    def _panels(self, part: Part, strip: Strip) -> None:
        """All panels of this turn for some rows."""
        with self._groups() as group:
            write = lambda vectors, first: self._tile(part, strip, self._panel(part, vectors, first, group))
            choose(self.b, group, self.plan.groups, write)

    @contextmanager
    def _groups(self) -> Iterator[Expr]:
        """The groups of this turn. The last turn may have fewer columns than others."""
        b, plan = self.b, self.plan
        with counted(b, self.first_group, plan.together, total_of(plan.groups)) as group:
            if plan.turn_columns is None:
                yield group
            else:
                with b.when(self.first_column + place_of(group, plan.groups)[1] * plan.lanes < plan.columns):
                    yield group

    # What tiles read

    def _pack(self, part: Part) -> None:
        """Packs the columns of this turn."""
        b, plan, w = self.b, self.plan, self.w
        with self._groups() as group:
            vectors, first = place_of(group, plan.groups)
            column = b.let("column", self.first_column + first * plan.lanes)
            count = minimum(plan.columns - column, vectors * plan.lanes)
            start = b.let("from", self.w_start + part.start * w.row_step + column * w.column_step)
            steps, depth = (as_expr(w.row_step), as_expr(w.column_step)), as_expr(part.depth)
            columns = Columns(w.buffer, start, *steps, b.let("count", count), depth)
            pack_panel(b, self.size, columns, self.panels, self._packed_at(part, group))

    def _packed_at(self, part: Part, group: Expr) -> Expr:
        return self.b.let("at", (group - self.first_group) * (part.depth * self.size.width))

    def _panel(self, part: Part, vectors: int, first: Expr, group: Expr) -> Panel:
        plan, first = self.plan, self.b.let("vector", first)
        if self.packing is not None:
            return Panel(vectors, first, self._packed_at(part, group), self.size.width, plan.lanes)
        at = self.w_start + (first * plan.depth + part.start) * plan.lanes
        return Panel(vectors, first, self.b.let("at", at), plan.lanes, plan.depth * plan.lanes)

    def _strip(self, part: Part, rows: int, row: Expr, tile: Expr) -> Strip:
        b, a = self.b, self.a
        first = b.let("x", self.a_start + row * a.row_step + part.start * a.column_step)
        if self.packing is not None and self.packing.rows:
            count, number = 2 * self.size.rows, tile - self.first_tile
            with b.when((number % 2).equal(0)):
                lanes = min(self.plan.lanes, count)
                steps = as_expr(a.column_step), as_expr(a.row_step)
                packs = Columns(a.buffer, first, *steps, b.let("rows", self.plan.rows - row), as_expr(part.depth))
                pack_panel(b, TileSize(1, count // lanes, lanes), packs, self.packed, as_expr(0))
            start = b.let("start", number % 2 * self.size.rows)
            after = b.let("after", first + (count - start) * a.row_step)
            return Strip(rows, row, tile, lambda i, k: self.packed[start + k * count + i], after)
        if self.plan.rows_fit:
            return Strip(rows, row, tile, lambda i, k: a.buffer[first + i * a.row_step + k])
        left = b.let("left", self.plan.rows - row)
        places = opaque(b, [first + clamped(i, left) * a.row_step for i in range(rows)])
        return Strip(rows, row, tile, lambda i, k: a.buffer[places[i] + k])

    # A tile

    def _tile(self, part: Part, strip: Strip, panel: Panel) -> None:
        b, lanes, count = self.b, self.plan.lanes, strip.rows * panel.vectors
        acc = b.alloc("acc", self.dtype, (count,), scope="register", lanes=lanes)
        firsts = [b.let("column", self.first_column + (panel.first + v) * lanes) for v in range(panel.vectors)]
        for place, value in enumerate(self._begin(part, strip, firsts)):
            b.store(acc, place, value)
        self._sum(part, strip, panel, acc)
        self._store(
            part, strip, firsts, [[acc[i * panel.vectors + v] for v in range(panel.vectors)] for i in range(strip.rows)]
        )

    def _begin(self, part: Part, strip: Strip, firsts: Sequence[Expr]) -> Iterator[Expr]:
        """What the sums of each row begin with."""
        begin: list[Expr] = [const(0, self.dtype)] * len(firsts)
        if self.begin is not None:
            columns = [lanes_from(first, self.plan.lanes) for first in firsts]
            begin = [self.b.let("y", self.begin(lanes, part.start)) for lanes in columns]
        for _ in range(strip.rows):
            yield from begin

    def _store(self, part: Part, strip: Strip, firsts: Sequence[Expr], sums: Sequence[Sequence[Expr]]) -> None:
        for i, values in enumerate(sums):
            with nullcontext() if self.plan.rows_fit else self.b.when(strip.row + i < self.plan.rows):
                self._store_row(part, strip.row + i, firsts, values)

    def _store_row(self, part: Part, row: Expr, firsts: Sequence[Expr], values: Sequence[Expr]) -> None:
        """Stores vectors of a row by the columns that they begin with."""
        b, plan, out = self.b, self.plan, self.out
        ragged = type(plan.columns) is not int or plan.columns < plan.covered
        finish = self.finish(self.first_row + row) if self.finish is not None and part.is_last is not False else None
        start = b.let("to", self.out_start + row * out.row_step)
        for first, value in zip(firsts, values):
            at, columns = lanes_from(start + first, plan.lanes), lanes_from(first, plan.lanes)
            mask = columns < plan.columns if ragged else None
            sums, place = (out.buffer, at) if self.turn_sums is None else (self.turn_sums, self._turn_place(row, first))
            if type(part.there) is not int or part.there:
                there = mask if type(part.there) is int else columns < part.there
                value = value + masked_load(sums, (place,), there)
            if finish is None:
                b.store(sums, place, value, mask)
                continue
            value = b.let("y", value)
            if isinstance(part.is_last, Expr) and self.turn_sums is not None:
                with b.when(part.is_last):
                    b.store(out.buffer, at, finish(value, columns, mask), mask)
                with b.otherwise():
                    b.store(sums, place, value, mask)
                continue
            complete = finish(value, columns, mask)
            value = select(part.is_last, complete, value) if isinstance(part.is_last, Expr) else complete
            b.store(out.buffer, at, value, mask)

    def _turn_place(self, row: Expr, first: Expr) -> Expr:
        """Where sums of a row are while they are not complete."""
        start = (row - self.first_tile * self.size.rows) * self.turn_width - self.first_column
        return lanes_from(start + first, self.plan.lanes)

    def _sum(self, part: Part, strip: Strip, panel: Panel, acc: Buffer) -> None:
        b, lanes, panels = self.b, self.plan.lanes, self.w.buffer if self.packing is None else self.panels

        def step(k: Expr) -> None:
            at = b.let("at", panel.at + k * panel.step)
            vectors = [b.let("v", panels[lanes_from(at + v * panel.beside, lanes)]) for v in range(panel.vectors)]
            for i in range(strip.rows):
                x = widen(b.let("x", strip.read(i, k)), lanes)
                for v, vector in enumerate(vectors):
                    place = i * panel.vectors + v
                    b.store(acc, place, self.multiply(acc[place], x, vector))

        unroll = UNROLL if type(part.depth) is int else 1
        turns = part.depth // unroll if unroll > 1 else part.depth
        ask = self._asking(part, strip, panel, turns)
        if type(turns) is not int or turns:
            with b.loop("k", turns) as turn:
                ask(turn)
                for number in range(unroll):
                    step(turn * unroll + number)
        for number in range(part.depth % unroll if unroll > 1 else 0):
            step(as_expr(turns * unroll + number))

    def _asking(self, part: Part, strip: Strip, panel: Panel, turns: Any) -> Callable[[Expr], None]:
        """Asks for weights: those soon to be read where few rows read them, else a share of the
        panels that come after these."""
        b, plan, weight = self.b, self.plan, self.w.buffer
        done = b.let("done", strip.tile - self.first_tile if plan.rows_first else strip.tile)
        if self.packing is not None:
            return self._asking_columns(part, done, strip, panel, self.packing.line)

        after = self._lines_to_next(part, panel)
        tiles = plan.chunk if plan.rows_first else total_of(plan.tiles)
        each = -(-UNROLL * panel.vectors // (FEWEST_TILES if is_open(tiles) else tiles))  # so that all are asked for

        def ask_near(turn: Expr) -> None:
            for number in range(UNROLL * panel.vectors):
                v, ahead = divmod(number, UNROLL)
                line = turn * UNROLL + (v * plan.depth + ahead + NEAR_LINES)
                b.prefetch(weight, panel.at + line * plan.lanes)

        def ask_share(turn: Expr) -> None:
            line = (done * turns + turn) * each
            line = b.let("line", line % (part.depth * panel.vectors) if is_open(tiles) else line)
            there = b.let("there", line // part.depth * plan.depth + line % part.depth)
            for number in range(each):
                b.prefetch(weight, panel.at + (there + (after + number)) * plan.lanes, level=2)

        return ask_share if is_open(plan.rows) or total_of(plan.tiles) > 1 else ask_near

    def _lines_to_next(self, part: Part, panel: Panel) -> Any:
        """How far behind a panel's products those lie that take their turn after it: the panel beside it or, where
        sums are cut, the next part of the same panel, and after the last part the first one of the next turn's."""
        plan, beside = self.plan, panel.vectors * self.plan.depth
        if plan.block == plan.depth:
            return beside
        return plan.block if part.is_last is False else plan.together * beside - part.start

    def _asking_columns(self, part: Part, done: Expr, strip: Strip, panel: Panel, line: int) -> Callable[[Expr], None]:
        """Asks for what is packed next: where columns are side by side, one line of each product, else one line of
        each column; of rows that lie side by side, one line of each product."""
        b, plan, w = self.b, self.plan, self.w
        end = part.start + part.depth
        beside = plan.together * self.size.width * w.column_step
        after = select(end < plan.depth, end * w.row_step, beside)
        first = self.w_start + after + panel.first * plan.lanes * w.column_step
        is_plain = as_expr(w.column_step).equal(1)
        share = select(is_plain, done % panel.vectors, done % ceil_div(as_expr(part.depth), line))
        start, step = b.let("ask", first + share * line), b.let("step", select(is_plain, w.row_step, w.column_step))

        def ask(turn: Expr) -> None:
            b.prefetch(w.buffer, start + turn * step, level=2)
            if strip.after is not None:
                b.prefetch(self.a.buffer, strip.after + turn * self.a.column_step, level=2)

        return ask
