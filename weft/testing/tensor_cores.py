"""Kernels of tensor cores with all that may follow a product, to be assembled without a GPU and run with one."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.cuda_target import CudaTarget
from ..lower.cuda.product import Matrices, Request, write_product
from ..te.build import KernelBuilder
from ..te.expr import Expr, call, cast, const, maximum
from ..te.loops import Kernel
from ..te.tensor_cores.product import Tile, Window

DTYPES_OF = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32"}


@dataclass(frozen=True)
class ProductCase:
    """act(a b^T + bias + other), of `batch` products; buffers in the order a, b, bias, other, result."""

    tile: Tile | None
    rows: int
    columns: int
    depth: int
    kind: str = "fp16"
    batch: int = 1
    turned: tuple[bool, bool] = (False, False)
    bias: bool = False
    other: bool = False
    activation: str = ""
    out: str = ""
    shared_b: bool = False
    exact: bool = False  # float32 by three products of tf32; the rests of a and b are buffers behind them

    @property
    def dtype(self) -> str:
        return DTYPES_OF[self.kind]

    @property
    def out_dtype(self) -> str:
        return self.out or self.dtype

    def kernel(self, target: CudaTarget) -> Kernel:
        b = KernelBuilder("kernel")
        a = b.arg("a", self.dtype, (self.batch * self.rows * self.depth,))
        w = b.arg("b", self.dtype, ((1 if self.shared_b else self.batch) * self.columns * self.depth,))
        rest = (b.arg("ar", self.dtype, a.shape), b.arg("br", self.dtype, w.shape)) if self.exact else None
        bias = b.arg("bias", self.dtype, (self.columns,)) if self.bias else None
        other = b.arg("other", self.out_dtype, (self.batch, self.rows, self.columns)) if self.other else None
        out = b.arg("out", self.out_dtype, (self.batch * self.rows * self.columns,))

        def finish(total: Expr, batch: Expr, row: Expr, column: Expr, beside: Expr | None) -> Expr:
            value = total if bias is None else total + cast(bias[column], total.dtype)
            if other is not None:
                value = value + cast(other[batch, row, column] if beside is None else beside, total.dtype)
            return cast(self._activated(value), self.out_dtype)

        itself = (lambda number: number) if self.batch > 1 else None
        left = Matrices(a, self.batch, self.turned[0], itself)
        right = Matrices(w, 1 if self.shared_b else self.batch, self.turned[1], None if self.shared_b else itself)
        request = Request(
            left, right, self.batch, self.rows, self.columns, self.depth, out, finish, self.kind, other, rest
        )
        return write_product(b, request, target, self.tile)

    def _activated(self, x: Expr) -> Expr:
        return activated(x, self.activation)


@dataclass(frozen=True)
class ConvolutionCase:
    """act(convolution + bias + other) of pictures in NHWC with filters (out, height, width, in)."""

    tile: Tile | None
    pictures: tuple[int, int, int, int]
    out_channels: int
    filter: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)  # above, left, below, right
    dilation: tuple[int, int] = (1, 1)
    kind: str = "fp16"
    bias: bool = True
    other: bool = False
    activation: str = "relu"

    @property
    def dtype(self) -> str:
        return DTYPES_OF[self.kind]

    @property
    def image(self) -> tuple[int, int]:
        made = []
        for axis in (0, 1):
            reach = self.dilation[axis] * (self.filter[axis] - 1) + 1
            room = self.pictures[1 + axis] + self.pads[axis] + self.pads[2 + axis] - reach
            made.append(room // self.strides[axis] + 1)
        return made[0], made[1]

    def kernel(self, target: CudaTarget) -> Kernel:
        b = KernelBuilder("kernel")
        count, _, _, channels = self.pictures
        rows, depth = count * self.image[0] * self.image[1], self.filter[0] * self.filter[1] * channels
        data = b.arg("data", self.dtype, self.pictures)
        weight = b.arg("weight", self.dtype, (self.out_channels * depth,))
        bias = b.arg("bias", self.dtype, (self.out_channels,)) if self.bias else None
        other = b.arg("other", self.dtype, (rows, self.out_channels)) if self.other else None
        out = b.arg("out", self.dtype, (rows * self.out_channels,))

        def finish(total: Expr, batch: Expr, row: Expr, column: Expr, beside: Expr | None) -> Expr:
            value = total if bias is None else total + bias[column]
            if other is not None:
                value = value + (other[row, column] if beside is None else beside)
            return activated(value, self.activation)

        window = Window(data, self.pictures, self.image, self.filter, self.strides, self.pads[:2], self.dilation)
        request = Request(window, Matrices(weight), 1, rows, self.out_channels, depth, out, finish, self.kind, other)
        return write_product(b, request, target, self.tile)


def activated(x: Expr, name: str) -> Expr:
    """relu(x), or gelu(x) by erf, or x."""
    if name == "relu":
        return maximum(x, const(0.0, x.dtype))
    if name == "gelu":
        half, one = const(0.5, x.dtype), const(1.0, x.dtype)
        return x * half * (call("erf", x * const(0.5**0.5, x.dtype)) + one)
    return x
