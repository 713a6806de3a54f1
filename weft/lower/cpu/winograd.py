"""The template of _winograd_conv2d: padding, input transform, one matrix product for every point of
the tile, output transform with whatever follows element by element."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ... import te
from ...base.cpu_target import CpuTarget
from ...base.shape import numel
from ...core.fused import FusedGroup
from ...core.ir import Fact, Node, NodeEntry
from ...ops.nn.winograd import input_transform, output_transform
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr
from ...te.extents import is_open
from ...te.loops import Kernel
from ..epilogue import Epilogue, static_spec
from ..group import LoweredKernel, Strides, Temporary, kernel_name
from ..long_sums import finished
from .product import plan_product, write_panel_product
from .stage import stage_kernel


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
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group whose master is a _winograd_conv2d."""
    steps = strides or {}
    node = group.master
    assert node is not None
    shape, dtype = fact(node.inputs[0]).shape, fact(node.inputs[0]).dtype
    out = fact(NodeEntry(node)).shape
    assert shape is not None
    assert out is not None
    assert dtype is not None
    n, inputs, _, _, lanes = shape
    plan = _Tiling(node.params.tile, n, inputs, out[1], lanes, out[2], out[3])  # type: ignore[arg-type]
    name = kernel_name(group)
    padded_shape = (n, inputs, plan.down * plan.m + 2, plan.across * plan.m + 2, lanes)
    padded = Temporary(0, padded_shape, dtype)  # type: ignore[arg-type]
    v = Temporary(1, plan.spread(inputs), dtype)  # type: ignore[arg-type]
    product = Temporary(2, plan.spread(plan.outputs), dtype)
    made: list[LoweredKernel] = []
    source: Hashable = node.inputs[0]
    if padded_shape != shape:
        made.append(_pad(name, node, fact(node.inputs[0]), padded, target, steps))
        source = padded
    tiles = _input_transform(f"{name}_tiles", plan, steps.get(source))
    made.append(LoweredKernel(tiles, (source, v), 4 * numel(v.shape)))
    made.append(_products(name, plan, node.inputs[1], v, product, target, steps))
    made.append(_output_transform(name, plan, group, fact, product, steps))
    return made


def _pad(name: str, node: Node, fact: Fact, padded: Temporary, target: CpuTarget, strides: Strides) -> LoweredKernel:
    top, left = node.params.padding[:2]
    assert fact.shape is not None
    assert fact.dtype is not None
    x = te.placeholder(fact.shape, fact.dtype, "x")  # type: ignore[arg-type]
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
    m, t, lanes = plan.m, plan.t, plan.lanes
    padded = (plan.n, plan.inputs, plan.down * m + 2, plan.across * m + 2, lanes)
    x = b.arg("x", "float32", padded, strides=strides)
    v = b.arg("v", "float32", plan.spread(plan.inputs))
    with b.parallel("p", plan.n * plan.inputs * plan.down) as p:
        image = b.let("image", p // (plan.inputs * plan.down))
        block = b.let("block", p // plan.down % plan.inputs)
        row = b.let("row", p % plan.down)
        with b.loop("column", plan.across) as column, b.vector("lane", lanes) as lane:
            grid = [
                [b.let("d", x[image, block, row * m + i, column * m + j, lane]) for j in range(t)] for i in range(t)
            ]
            made = _both_ways(b, m, input_transform, grid)
            tile = (image * plan.down + row) * plan.across + column
            for i in range(t):
                for j in range(t):
                    b.store(v, plan.at(i * t + j, block, tile, lane), made[i][j])
    return finished(b.finish())


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
    name: str, plan: _Tiling, group: FusedGroup, fact: Callable[[NodeEntry], Fact], product: Temporary, strides: Strides
) -> LoweredKernel:
    """A^T (product) A of every tile, and what follows."""
    b = KernelBuilder(name)
    m, t = plan.m, plan.t
    values = b.arg("m", "float32", product.shape)
    assert group.master is not None
    bias_entries = group.master.inputs[2:]
    bias = [b.arg("bias", "float32", static_spec(fact(entry))[0], strides=strides.get(entry)) for entry in bias_entries]
    epilogue = Epilogue(b, group, fact, strides)
    result = group.outputs[0]
    shape, dtype = static_spec(fact(result))
    out = b.arg("out", dtype, shape, strides=strides.get(result))

    def tile_code(column: Expr, height: int, width: int) -> None:
        with b.vector("lane", plan.lanes) as lane:
            tile = (image * plan.down + row) * plan.across + column
            points = [b.let("d", values[plan.at(i, block, tile, lane)]) for i in range(t * t)]
            grid = [points[i * t : (i + 1) * t] for i in range(t)]
            made = _both_ways(b, m, output_transform, grid)
            for i in range(height):
                for j in range(width):
                    at = (image, block, row * m + i, column * m + j, lane)
                    value = made[i][j]
                    for channels in bias:
                        value = b.let("y", value + channels[block, lane])
                    value = epilogue.finished(value, at)
                    b.store(out, at, value)

    def row_code(height: int) -> None:
        full, rest = divmod(plan.columns, m)
        if full:
            with b.loop("column", full) as column:
                tile_code(column, height, m)
        if rest:
            tile_code(as_expr(full), height, rest)

    with b.parallel("p", plan.n * plan.outputs * plan.down) as p:
        image = b.let("image", p // (plan.outputs * plan.down))
        block = b.let("block", p // plan.down % plan.outputs)
        row = b.let("row", p % plan.down)
        full, rest = divmod(plan.rows, m)
        if full and rest:
            with b.when(row < full):
                row_code(m)
            with b.otherwise():
                row_code(rest)
        else:
            row_code(m if full else rest)
    arguments = (product, *bias_entries, *epilogue.arguments, result)
    return LoweredKernel(finished(b.finish()), arguments, 4 * numel(product.shape))
