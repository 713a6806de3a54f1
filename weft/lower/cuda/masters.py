"""Groups whose master is a product or a convolution: by the template of few rows where reading weights is all that
counts, by tensor cores where they take its dtypes and sizes, else by the schedule of any stage.

All sizes of products may be open, and how many pictures there are; other sizes of pictures are numbers. Products of
float32 stay float32: operands are cut into the part that tensor cores read and the rest, and sums go over
the products of both (see `Request.rest`). A target that says tf32 leaves the rest out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from ... import te
from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32, DType
from ...base.shape import is_static
from ...core.fused import FusedGroup
from ...core.ir import Fact, Node, NodeEntry
from ...ops.nn._convolution import convolution_of
from ...te.build import KernelBuilder
from ...te.expr import Expr, Load, Var, as_expr, call
from ...te.extents import Extent, is_multiple, is_open, is_same
from ...te.loops import Buffer, Kernel
from ...te.tensor import Tensor
from ...te.tensor_cores.product import Window
from ...te.visit import loads
from ..epilogue import Epilogue
from ..group import LoweredKernel, Strides, Temporary, kernel_name, lower_stages, need_numbers
from .few_rows import has_few_rows, most_of_template, write_few_rows
from .product import KINDS, Matrices, Request, fits_copies, write_product
from .stage import stage_kernel
from .warp_product import can_count, write_warp_product

Facts = Callable[[NodeEntry], Fact]
WGMMA = 90  # the architecture that has products of warpgroups
FEWEST = 4  # rows and columns, below which reading is all there is to a product by single warps
MAX_CORNER, MAX_STRIDE = 127, 8  # how far windows may reach outside of a picture, and lie apart


@dataclass(frozen=True)
class Side:
    """An operand as a graph has it: an entry or a temporary, matrices of `rows` by k, or k by rows where `turned`."""

    place: Hashable
    dtype: DType
    shape: tuple[int, ...]
    leading: tuple[int, ...] = ()
    turned: bool = False
    window: Window | None = None

    @property
    def elements(self) -> Any:
        return prod(self.shape)


@dataclass(frozen=True)
class Multiplied:
    """A master as a product: `bias` is one of its inputs."""

    a: Side
    b: Side
    leading: tuple[int, ...]
    rows: int | Extent
    columns: int | Extent
    depth: int | Extent
    bias: NodeEntry | None = None
    before: tuple[LoweredKernel, ...] = ()  # kernels that make operands what they have to be
    rests: tuple[Temporary, ...] = ()  # of both operands, for sums in three passes


def master_kernels(
    group: FusedGroup, fact: Facts, target: CudaTarget, strides: Strides | None = None
) -> list[LoweredKernel]:
    """The kernels of a group whose master is in `READERS`."""
    multiplied = None if strides else _multiplied(group, fact)
    made = None if multiplied is None else _as_product(group, fact, multiplied, target)
    if made is None and not _is_grouped(group):  # which has a thread for each result, whatever its sizes
        need_numbers(group, fact)
    return lower_stages(group, fact, target, stage_kernel, strides) if made is None else made


def _is_grouped(group: FusedGroup) -> bool:
    return getattr((group.master or group.nodes[0]).params, "groups", 1) > 1


def _as_product(group: FusedGroup, fact: Facts, made: Multiplied, target: CudaTarget) -> list[LoweredKernel] | None:
    by_groups = _has_warpgroups(target) and _fits(made)
    is_known = not any(map(is_open, (*made.leading, made.depth))) and made.a.window is None
    most = most_of_template(made.a.dtype, target, by_groups)
    if is_known and has_few_rows(made.rows, made.columns, most):
        return [_written(group, fact, made, target, partial(write_few_rows, most=most))]
    return _by_tensor_cores(group, fact, made, target)


def _multiplied(group: FusedGroup, fact: Facts) -> Multiplied | None:
    """What the master of a group multiplies, where templates take it."""
    node = group.master or group.nodes[0]
    if node.op_name == "conv2d":
        _need_pictures(node, fact)
    ends = [fact(entry) for entry in (*node.inputs, NodeEntry(node), *group.outputs)]
    if len(group.outputs) != 1:
        return None
    if not set(node.inputs) <= set(group.inputs) or not all(is_static(end.shape) and prod(end.shape) for end in ends):
        return None
    dtype = ends[0].dtype
    alike = all(end.dtype == dtype for end in ends[:-2]) and ends[-1].dtype in KINDS
    alike = alike and ends[-2].dtype in (dtype, FLOAT32)  # what sums are given in
    if dtype not in KINDS or not alike or ends[-1].shape != ends[-2].shape:
        return None
    return READERS[node.op_name](node, fact)


def _need_pictures(node: Node, fact: Facts) -> None:
    """Asks for the numbers that pictures have: how many of them there are may be open."""
    for entry in node.inputs:
        for extent in (fact(entry).shape or ())[1:]:
            int(extent)  # type: ignore[arg-type]


def _by_tensor_cores(
    group: FusedGroup, fact: Facts, multiplied: Multiplied, target: CudaTarget
) -> list[LoweredKernel] | None:
    dtype, by_groups = multiplied.a.dtype, _has_warpgroups(target)
    turned = _by_rows(multiplied, target) if by_groups and dtype == FLOAT32 else multiplied
    if not by_groups or not _fits(turned):
        return [_written(group, fact, multiplied, target, write_warp_product)] if _suits_warps(multiplied) else None
    if dtype == FLOAT32 and target.precision == "fp32":
        turned = _with_rests(turned, target)
    return [*turned.before, _written(group, fact, turned, target, write_product)]


def _has_warpgroups(target: CudaTarget) -> bool:
    return target.sm == WGMMA and target.has_own_code


def _suits_warps(made: Multiplied) -> bool:
    """Whether there is something to fill a tile with, and pictures are counted in 32 bits."""
    sizes = made.rows, made.columns
    fills = any(map(is_open, sizes)) or min(sizes) >= FEWEST
    return fills and (made.a.window is None or can_count(made.a.window))


def _fits(made: Multiplied) -> bool:
    """Whether tensor maps can see the operands, and pairs of results are stored whole."""
    if not is_multiple(made.columns, 2) and made.columns % 2:
        return False
    for side, rows in ((made.a, made.rows), (made.b, made.columns)):
        if side.window is not None:
            if not fits_copies(side.window.channels, side.dtype):
                return False
        elif not fits_copies(rows if side.turned else made.depth, side.dtype):
            return False
    return True


# What masters are as products


def _dense(node: Node, fact: Facts) -> Multiplied:
    data, weight = (_side(entry, fact) for entry in node.inputs[:2])
    *leading, depth = data.shape
    bias = node.inputs[2] if node.params.use_bias else None
    return Multiplied(data, weight, (), prod(leading), node.params.units, depth, bias)


def _matmul(node: Node, fact: Facts) -> Multiplied | None:
    a, b = (_side(entry, fact) for entry in node.inputs)
    turned = node.params.transpose_a, not node.params.transpose_b
    if len(b.shape) != 2 or len(a.shape) < 2 or (turned[0] and len(a.shape) > 2):
        return None
    rows = a.shape[1] if turned[0] else prod(a.shape[:-1])
    depth = a.shape[0] if turned[0] else a.shape[-1]
    columns = b.shape[1] if turned[1] else b.shape[0]
    return Multiplied(replace(a, turned=turned[0]), replace(b, turned=turned[1]), (), rows, columns, depth)


def _batch_matmul(node: Node, fact: Facts) -> Multiplied:
    a, b = (_side(entry, fact) for entry in node.inputs)
    turned = node.params.transpose_a, not node.params.transpose_b
    out = fact(NodeEntry(node)).shape
    assert is_static(out)
    depth = a.shape[-2] if turned[0] else a.shape[-1]
    sides = [replace(s, turned=t, leading=s.shape[:-2]) for s, t in zip((a, b), turned)]
    return Multiplied(sides[0], sides[1], out[:-2], out[-2], out[-1], depth)


def _pixel_products(node: Node, fact: Facts) -> Multiplied:
    sides = [replace(side, turned=True, leading=side.shape[:1]) for side in (_side(e, fact) for e in node.inputs)]
    parts, depth, rows = sides[0].shape
    return Multiplied(sides[0], sides[1], (parts,), rows, sides[1].shape[2], depth)


def _conv2d(node: Node, fact: Facts) -> Multiplied | None:
    conv, params = convolution_of(node.params), node.params
    if params.groups != 1 or (str(conv.data), str(conv.kernel), str(conv.out)) != ("NHWC", "OHWI", "NHWC"):
        return None
    data, weight = (_side(entry, fact) for entry in node.inputs[:2])
    out = fact(NodeEntry(node)).shape
    assert is_static(out)
    count, height, width, channels = data.shape
    down, across = conv.windows
    bias = node.inputs[2] if params.use_bias else None
    rows, depth = count * out[1] * out[2], down.size * across.size * channels
    plain = [(axis.size, axis.stride, axis.before, axis.after) == (1, 1, 0, 0) for axis in conv.windows]
    if all(plain):
        return Multiplied(data, weight, (), rows, out[3], depth, bias)
    if any(max(axis.reach, axis.before) > MAX_CORNER or axis.stride > MAX_STRIDE for axis in conv.windows):
        return None
    flat = te.loops.buffer("window", data.dtype, (1,))
    window = Window(
        flat,
        (count, height, width, channels),
        (out[1], out[2]),
        (down.size, across.size),
        (down.stride, across.stride),
        (down.before, across.before),
        (down.dilation, across.dilation),
    )
    return Multiplied(replace(data, window=window), weight, (), rows, out[3], depth, bias)


def _side(entry: NodeEntry, fact: Facts) -> Side:
    shape, dtype = fact(entry)[:2]
    assert is_static(shape)
    assert dtype is not None
    return Side(entry, dtype, shape)


READERS: dict[str, Callable[[Node, Facts], Multiplied | None]] = {
    "dense": _dense,
    "matmul": _matmul,
    "batch_matmul": _batch_matmul,
    "_pixel_products": _pixel_products,
    "conv2d": _conv2d,
}


# Operands of float32


def _by_rows(made: Multiplied, target: CudaTarget) -> Multiplied:
    """Tensor cores read float32 along k only: what is stored by columns is turned first."""
    before, sides = list(made.before), []
    for number, side in enumerate((made.a, made.b)):
        if side.turned:
            shape = (*side.shape[:-2], side.shape[-1], side.shape[-2])
            there = Temporary(number, shape, side.dtype)
            x = te.placeholder(side.shape, side.dtype, "stored")
            swapped = te.compute(shape, lambda *i, x=x: x[(*i[:-2], i[-1], i[-2])], name="turned")
            before.append(stage_kernel("turned", swapped, {x: side.place, swapped: there}, target))
            side = replace(side, place=there, shape=shape, turned=False)
        sides.append(side)
    return replace(made, a=sides[0], b=sides[1], before=tuple(before))


def _with_rests(made: Multiplied, target: CudaTarget) -> Multiplied:
    """Kernels that compute what tensor cores do not read of operands go before the product."""
    before, rests = list(made.before), []
    for number, side in enumerate((made.a, made.b), 2):
        there = Temporary(number, side.shape, side.dtype)
        x: Tensor = te.placeholder(side.shape, side.dtype, "whole")
        rest = te.compute(side.shape, lambda *i, x=x: call("tf32_rest", x[i]), name="rest")
        before.append(stage_kernel("tf32_rest", rest, {x: side.place, rest: there}, target))
        rests.append(there)
    return replace(made, before=tuple(before), rests=tuple(rests))


# The kernel


def _written(
    group: FusedGroup,
    fact: Facts,
    made: Multiplied,
    target: CudaTarget,
    write: Callable[[KernelBuilder, Request, CudaTarget], Kernel],
) -> LoweredKernel:
    b = KernelBuilder(kernel_name(group))
    sides, arguments = (made.a, made.b), [made.a.place, made.b.place]
    buffers = [b.arg(name, side.dtype, (side.elements,)) for name, side in zip("ab", sides)]
    rest = tuple(b.arg(f"{name}_rest", there.dtype, (prod(there.shape),)) for name, there in zip("ab", made.rests))
    arguments += made.rests
    bias = None
    if made.bias is not None:
        bias = b.arg("bias", made.a.dtype, (made.columns,))
        arguments.append(made.bias)
    epilogue = Epilogue(b, group, fact, join=not made.leading) if group.master is not None else None
    arguments += [] if epilogue is None else epilogue.arguments
    shape, dtype = fact(group.outputs[0])[:2]
    assert is_static(shape)
    assert dtype is not None
    out = b.arg("out", dtype, (prod(shape),))
    whole = shape if epilogue is None else epilogue.shape(shape)
    lines = (*made.leading, made.rows) if made.leading else whole[:-1]
    summed = fact(NodeEntry(group.master or group.nodes[0])).dtype
    assert summed is not None

    def finish(total: Expr, batch: Expr, row: Expr, column: Expr) -> Expr:
        value = total if bias is None else total + bias[column]
        if epilogue is None:
            return value
        at = [*_index(batch, made.leading), row] if made.leading else _index(row, lines)
        return epilogue.finished(value, [*at, column])

    left: Matrices | Window
    if made.a.window is not None:
        left = replace(made.a.window, buffer=buffers[0])
    else:
        left = _matrices(buffers[0], made.a, made.leading)
    request = Request(
        left, _matrices(buffers[1], made.b, made.leading), prod(made.leading), made.rows, made.columns, made.depth, out,
        finish, KINDS[made.a.dtype], _beside(finish, out, whole, made, summed), rest or None, summed,
    )  # fmt: skip
    kernel = write(b, request, target)
    return LoweredKernel(kernel, (*arguments, group.outputs[0]), prod(shape) * made.depth)


def _matrices(buffer: Buffer, side: Side, leading: Sequence[Any]) -> Matrices:
    own = side.leading
    if not leading or all(is_same(extent, 1) for extent in own):
        return Matrices(buffer, 1, side.turned)
    padded = (*(1,) * (len(leading) - len(own)), *own)

    def matrix(number: Expr) -> Expr:
        if all(map(is_same, padded, leading)):
            return number
        place: Any = as_expr(0)
        for at, extent in zip(_index(number, leading), padded):
            place = place * extent + (0 if is_same(extent, 1) else at)
        return place

    return Matrices(buffer, prod(own), side.turned, matrix)


def _index(number: Expr, extents: Sequence[Any]) -> list[Expr]:
    """A number counted along axes, row-major."""
    found: list[Expr] = []
    for place in reversed(range(len(extents))):
        extent, is_first = extents[place], all(is_same(before, 1) for before in extents[:place])
        if is_same(extent, 1):
            found.append(as_expr(0))
            continue
        found.append(number if is_first else number % extent)
        number = number // extent
    return found[::-1]


def _beside(finish: Any, out: Buffer, shape: Sequence[Any], made: Multiplied, summed: DType) -> Buffer | None:
    """A tensor of the result's shape and dtype that is read at the result's index alone."""
    batch, row, column = (Var(name) for name in ("batch", "row", "column"))
    value = finish(Var("total", summed), batch, row, column)
    found: dict[Buffer, list[Load]] = {}
    for load in loads(value):
        found.setdefault(load.source, []).append(load)  # type: ignore[arg-type]
    for buffer, reads in found.items():
        fits = len(buffer.shape) == len(shape) and all(map(te.same, buffer.shape, map(as_expr, shape)))
        alone = len({tuple(map(id, load.indices)) for load in reads}) == 1 and reads[0].mask is None
        if buffer.dtype == out.dtype and fits and alone and reads[0].indices[-1] is column:
            rows = made.leading or shape[:-1]
            wanted = [*_index(batch, rows), row] if made.leading else _index(row, rows)
            if all(te.same(a, b) for a, b in zip(reads[0].indices[:-1], wanted)):
                return buffer
    return None
