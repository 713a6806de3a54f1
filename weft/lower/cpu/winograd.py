"""The template of _winograd_conv2d: padding, input transform, one matrix product for every point of
the tile, output transform with whatever follows element by element. Of large images all that is one kernel, which goes
from block to block of tiles."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_facts import CpuFacts
from ...base.cpu_target import CpuTarget
from ...base.shape import numel
from ...core.fused import FusedGroup
from ...core.ir import Node, NodeEntry
from ...ops.nn.winograd import input_transform, output_transform
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr
from ...te.extents import is_open
from ...te.loops import Buffer, Kernel
from ..epilogue import Epilogue, static_spec
from ..group import Facts, LoweredKernel, Strides, Temporary, kernel_name
from ..long_sums import finished
from .product import Matrix, Product, plan_product, write_panel_product
from .stage import stage_kernel

CACHED_TILES = 4  # what part of the last cache holds tiles that are transformed, read and written
ROOM = 0.6  # of the second cache, for a block of tiles
LEAST_TILES = 8  # of a block: fewer would read weights for little
BLOCKS = 12  # that keep threads busy


def tiles_rate(moved: int, core: CpuFacts) -> float:
    """Bytes a second at which tiles of a whole convolution are written and read."""
    return core.near_rate if moved < core.caches[2] // CACHED_TILES else core.far_rate


class _Tiling(NamedTuple):
    """Sizes: tiles of m x m outputs, `down` x `across` of them for each of n images."""

    m: int
    n: int
    inputs: int
    outputs: int
    lanes: int
    rows: int
    columns: int

    @property
    def t(self) -> int:
        return self.m + 2

    @property
    def down(self) -> int:
        return -(-self.rows // self.m)

    @property
    def across(self) -> int:
        return -(-self.columns // self.m)

    @property
    def tiles(self) -> int:
        return self.n * self.down * self.across

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape of images that tiles cover whole."""
        return (self.n, self.inputs, self.down * self.m + 2, self.across * self.m + 2, self.lanes)

    def each_tile(
        self, b: KernelBuilder, row: Expr, left: Expr, across: int, write: Callable[[Expr, int, Expr, int], None]
    ) -> None:
        """Writes tiles of a row from column `left` on, told how much of each is in the picture."""

        def in_row(height: int) -> None:
            with b.loop("column", across) as number:
                column = b.let("column", left + number)
                self._sized(b, column, self.columns, lambda width: write(row, height, column, width))

        self._sized(b, row, self.rows, in_row)

    def _sized(self, b: KernelBuilder, number: Expr, extent: int, write: Callable[[int], None]) -> None:
        """What happens to tile `number` along an axis: the last one may be less than whole."""
        full, rest = divmod(extent, self.m)
        if not full or not rest:
            write(rest or self.m)
            return
        with b.when(number < full):
            write(self.m)
        with b.otherwise():
            write(rest)

    def spread(self, blocks: int) -> tuple[int, ...]:
        """The shape of some blocks of channels of all tiles, point by point. Where the number of images is an argument,
        tiles are rows of all channels: their products then are of rows, however many there are."""
        if is_open(self.n):
            return (self.t**2, self.tiles, blocks, self.lanes)
        return (self.t**2, blocks, self.tiles, self.lanes)

    def at(self, point: Any, block: Expr, tile: Expr, lane: Expr) -> tuple[Any, ...]:
        """The index of an element of that."""
        return (point, tile, block, lane) if is_open(self.n) else (point, block, tile, lane)


def winograd_kernels(
    group: FusedGroup, fact: Facts, target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group whose master is a _winograd_conv2d."""
    steps = strides or {}
    node = group.anchor
    (shape, dtype), (out, _) = (static_spec(fact(entry)) for entry in (node.inputs[0], NodeEntry(node)))
    n, inputs, _, _, lanes = shape
    plan = _Tiling(node.params.tile, n, inputs, out[1], lanes, out[2], out[3])
    name = kernel_name(group)
    padded = Temporary(0, plan.padded, dtype)
    v = Temporary(1, plan.spread(inputs), dtype)
    product = Temporary(2, plan.spread(plan.outputs), dtype)
    made: list[LoweredKernel] = []
    source: Hashable = node.inputs[0]
    if plan.padded != shape:
        made.append(_pad(name, node, shape, padded, target, steps))
        source = padded
    block = _block_of(plan, target)
    if block is not None:
        return [*made, _in_blocks(name, plan, block, group, fact, source, steps, target)]
    tiles = _input_transform(f"{name}_tiles", plan, steps.get(source))
    made.append(LoweredKernel(tiles, (source, v), 4 * numel(v.shape)))
    made.append(_products(name, plan, node.inputs[1], v, product, target, steps))
    made.append(_output_transform(name, plan, group, fact, product, steps))
    return made


def _pad(
    name: str, node: Node, shape: Sequence[int], padded: Temporary, target: CpuTarget, strides: Strides
) -> LoweredKernel:
    top, left = node.params.padding[:2]
    x = te.placeholder(shape, padded.dtype, "x")
    height, width = x.shape[2:4]

    def element(n: Any, c: Any, h: Any, w: Any, lane: Any) -> Any:
        y, z = h - top, w - left
        inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
        return te.read_or(x, (n, c, y, z, lane), inside, 0)

    made = te.compute(padded.shape, element, name="padded")
    places = {x: node.inputs[0], made: padded}
    return stage_kernel(f"{name}_padded", made, places, target, strides)


def _both_ways(
    b: KernelBuilder, m: int, transform: Callable[..., list[Expr]], grid: Sequence[Sequence[Expr]]
) -> list[list[Expr]]:
    """A transform of every column, then of every row of what comes out."""

    def keep(step: Expr) -> Expr:
        return b.let("s", step)

    columns = [transform(m, column, keep) for column in zip(*grid)]
    return [transform(m, line, keep) for line in zip(*columns)]


def _input_transform(name: str, plan: _Tiling, strides: Sequence[int] | None) -> Kernel:
    """v[point, channel block, tile] = B^T d B of every tile."""
    b = KernelBuilder(name)
    x = b.arg("x", "float32", plan.padded, strides=strides)
    v = b.arg("v", "float32", plan.spread(plan.inputs))
    with b.parallel("p", plan.n * plan.inputs * plan.down) as p:
        image = b.let("image", p // (plan.inputs * plan.down))
        block = b.let("block", p // plan.down % plan.inputs)
        row = b.let("row", p % plan.down)
        with b.loop("column", plan.across) as column, b.vector("lane", plan.lanes) as lane:
            tile = (image * plan.down + row) * plan.across + column
            for point, value in enumerate(_transformed(b, plan.m, x, (image, block, row, column, lane))):
                b.store(v, plan.at(point, block, tile, lane), value)
    return finished(b.finish())


def _transformed(b: KernelBuilder, m: int, x: Buffer, at: Sequence[Expr]) -> list[Expr]:
    """B^T d B of the tile at an image, a block of channels, a row and a column of tiles, and a lane."""
    image, block, row, column, lane = at
    size = range(m + 2)
    grid = [[b.let("d", x[image, block, row * m + i, column * m + j, lane]) for j in size] for i in size]
    return [value for line in _both_ways(b, m, input_transform, grid) for value in line]


def _products(
    name: str, plan: _Tiling, weight: NodeEntry, v: Temporary, product: Temporary, target: CpuTarget, strides: Strides
) -> LoweredKernel:
    """product[point, o, tile, lane] = sum over channels of v * weight, for every point."""
    if is_open(plan.n):
        return _row_products(f"{name}_product", plan, weight, v, product, target)
    left = te.placeholder(v.shape, v.dtype, "v")
    channels = plan.inputs * plan.lanes
    right = te.placeholder((plan.t**2, plan.outputs, channels, plan.lanes), v.dtype, "u")
    block, inner = te.reduce_axis(plan.inputs, "block"), te.reduce_axis(plan.lanes, "inner")

    def element(point: Any, o: Any, tile: Any, lane: Any) -> Any:
        channel = block.var * plan.lanes + inner.var
        value = left[point, block.var, tile, inner.var]
        return te.sum(value * right[point, o, channel, lane], (block, inner))

    made = te.compute(product.shape, element, name="product")
    places = {left: v, right: weight, made: product}
    return stage_kernel(f"{name}_product", made, places, target, strides)


def _row_products(
    name: str, plan: _Tiling, weight: NodeEntry, v: Temporary, product: Temporary, target: CpuTarget
) -> LoweredKernel:
    """The same where tiles are rows: one product with packed weights for every point."""
    b, points = KernelBuilder(name), plan.t**2
    depth, columns = plan.inputs * plan.lanes, plan.outputs * plan.lanes
    rows = plan_product(plan.tiles, depth, columns, plan.lanes, target)
    sizes = (plan.tiles * depth, rows.weights, plan.tiles * columns)
    data, panels, out = (b.arg(n, "float32", (points * size,)) for n, size in zip(("v", "u", "out"), sizes))
    write_panel_product(b, rows, (data, panels, out), batch=points)
    return LoweredKernel(finished(b.finish()), (v, weight, product), points * plan.tiles * depth * columns)


def _output_transform(
    name: str, plan: _Tiling, group: FusedGroup, fact: Facts, product: Temporary, strides: Strides
) -> LoweredKernel:
    """A^T (product) A of every tile, and what follows."""
    b = KernelBuilder(name)
    values = b.arg("m", "float32", product.shape)
    results = _Results(b, plan, group, fact, strides)
    with b.parallel("p", plan.n * plan.outputs * plan.down) as p:
        image = b.let("image", p // (plan.outputs * plan.down))
        block = b.let("block", p // plan.down % plan.outputs)
        row = b.let("row", p % plan.down)

        def write(row: Expr, height: int, column: Expr, width: int) -> None:
            with b.vector("lane", plan.lanes) as lane:
                tile = (image * plan.down + row) * plan.across + column
                points = [b.let("d", values[plan.at(i, block, tile, lane)]) for i in range(plan.t**2)]
                results.store(points, (image, block, row, column, lane), height, width)

        plan.each_tile(b, row, as_expr(0), plan.across, write)
    return LoweredKernel(finished(b.finish()), (product, *results.arguments), 4 * numel(product.shape))


class _Results:
    """Where results go, and what is done with them before."""

    def __init__(self, b: KernelBuilder, plan: _Tiling, group: FusedGroup, fact: Facts, strides: Strides) -> None:
        self.b, self.plan = b, plan
        entries = group.anchor.inputs[2:]
        self.bias = [b.arg("bias", "float32", static_spec(fact(e))[0], strides=strides.get(e)) for e in entries]
        self.epilogue = Epilogue(b, group, fact, strides)
        self.out = self.epilogue.result()
        self.arguments = (*entries, *self.epilogue.arguments)

    def store(self, points: Sequence[Expr], at: Sequence[Expr], height: int, width: int) -> None:
        """A^T (points) A, of which so many rows and columns are in the picture."""
        b, m, t = self.b, self.plan.m, self.plan.t
        image, block, row, column, lane = at
        made = _both_ways(b, m, output_transform, [points[i * t : (i + 1) * t] for i in range(t)])
        for i in range(height):
            for j in range(width):
                place = (image, block, row * m + i, column * m + j, lane)
                value = made[i][j]
                for channels in self.bias:
                    value = b.let("y", value + channels[block, lane])
                b.store(self.out, place, self.epilogue.finished(value, place))


# All three in blocks of tiles


def _block_of(plan: _Tiling, target: CpuTarget) -> tuple[int, int] | None:
    """Rows and columns of tiles whose points stay in the second cache from the input to the result. None where those of
    all tiles stay near, where too few blocks would be left for threads, or where weights, which are read for each
    block, cost more than that saves."""
    if is_open(plan.n):
        return None
    core, points = target.facts, plan.t**2
    each = 4 * points * (plan.inputs + plan.outputs) * plan.lanes
    if each * plan.tiles <= core.caches[1]:
        return None
    fitting = [
        (down, across)
        for down in _divisors(plan.down)
        for across in _divisors(plan.across)
        if (down == 1 or across == plan.across)
        and LEAST_TILES <= down * across <= ROOM * core.caches[1] // each
        and plan.tiles >= down * across * max(BLOCKS, 4 * target.cores)
    ]
    if not fitting:
        return None
    down, across = max(fitting, key=prod)
    moved, weights = 2 * each * plan.tiles, 4 * points * plan.inputs * plan.outputs * plan.lanes**2
    beyond = max(weights + each * down * across - core.caches[1], 0) * (plan.tiles // (down * across))
    saved = moved / tiles_rate(moved, core) - moved / core.near_rate
    return (down, across) if beyond / core.last_rate < saved else None


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _in_blocks(
    name: str,
    plan: _Tiling,
    block_of_tiles: tuple[int, int],
    group: FusedGroup,
    fact: Facts,
    source: Hashable,
    strides: Strides,
    target: CpuTarget,
) -> LoweredKernel:
    """One kernel: a block of tiles is transformed, multiplied with the weights of each point, and transformed back."""
    b, lanes, (down, across) = KernelBuilder(name), plan.lanes, block_of_tiles
    points, tiles = plan.t**2, down * across
    depth, columns = plan.inputs * lanes, plan.outputs * lanes
    weight = group.anchor.inputs[1]
    rows = plan_product(tiles, depth, columns, lanes, target)
    x = b.arg("x", "float32", plan.padded, strides=strides.get(source))
    u = b.arg("u", "float32", (points * rows.weights,))
    results = _Results(b, plan, group, fact, strides)
    wide = plan.across // across
    with b.parallel("p", plan.tiles // tiles) as p:
        image = b.let("image", p // (plan.down // down * wide))
        top = b.let("top", p // wide % (plan.down // down) * down)
        left = b.let("left", p % wide * across)
        v = b.alloc("v", "float32", (points * tiles * depth,), alignment=64)
        product = b.alloc("m", "float32", (points * tiles * columns,), alignment=64)
        over = b.loop("block", plan.inputs), b.loop("row", down), b.loop("column", across), b.vector("lane", lanes)
        with over[0] as block, over[1] as row, over[2] as column, over[3] as lane:
            at = image, block, top + row, left + column, lane
            for point, value in enumerate(_transformed(b, plan.m, x, at)):
                b.store(v, (point * tiles + row * across + column) * depth + block * lanes + lane, value)
        starts = [lambda point, size=size: point * size for size in (tiles * depth, rows.weights, tiles * columns)]
        factors = map(Matrix, (v, u, product), starts, (depth, 0, columns))
        Product(b, rows, tuple(factors), batch=points, loop=b.loop).write()  # type: ignore[arg-type]
        with b.loop("block", plan.outputs) as block, b.loop("row", down) as row:

            def write(y: Expr, height: int, column: Expr, width: int) -> None:
                with b.vector("lane", lanes) as lane:
                    first = (row * across + column - left) * columns + block * lanes + lane
                    values = [b.let("d", product[first + point * (tiles * columns)]) for point in range(points)]
                    results.store(values, (image, block, y, column, lane), height, width)

            plan.each_tile(b, b.let("y", top + row), left, across, write)
    work = points * plan.tiles * depth * columns
    return LoweredKernel(finished(b.finish()), (source, weight, *results.arguments), work)
