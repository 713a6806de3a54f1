"""Kernels of tensor cores with all that may follow a product, to be assembled without a GPU and run with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..base.cuda_target import CudaTarget
from ..lower.cuda.attention import AttentionRequest, Strided, can_attend, write_attention
from ..lower.cuda.masters import WGMMA
from ..lower.cuda.product import Matrices, Request, write_product
from ..lower.cuda.warp_attention import can_attend_by_warps, write_warp_attention
from ..lower.cuda.warp_product import EXACT, PLAIN, write_warp_product
from ..te.build import KernelBuilder
from ..te.expr import Expr, call, cast, const, maximum
from ..te.loops import Buffer, Kernel
from ..te.tensor_cores.attention import AttentionTile
from ..te.tensor_cores.product import Tile, Window
from ..te.tensor_cores.warp_attention import WarpAttentionTile
from ..te.tensor_cores.warp_product import WarpTile


def by_warps(tile: Tile | WarpTile | None, target: CudaTarget) -> bool:
    """Whether single warps multiply: as the tile says, else the target."""
    return isinstance(tile, WarpTile) if tile is not None else not (target.sm == WGMMA and target.has_own_code)


def written(b: KernelBuilder, request: Request, target: CudaTarget, tile: Tile | WarpTile | None) -> Kernel:
    """A product by the template of its tile, or of the target."""
    if isinstance(tile, Tile):
        return write_product(b, request, target, tile)
    if by_warps(tile, target):
        return write_warp_product(b, request, target, tile)
    return write_product(b, request, target)


DTYPES_OF = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32"}


@dataclass(frozen=True)
class ProductCase:
    """act(a b^T + bias + other), of `batch` products; buffers in the order a, b, bias, other, result."""

    tile: Tile | WarpTile | None
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
    exact: bool = (
        False  # float32 by three products of tf32; of warpgroups, the rests of a and b are buffers behind them
    )

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
        rested = self.exact and not by_warps(self.tile, target)
        rest = (b.arg("ar", self.dtype, a.shape), b.arg("br", self.dtype, w.shape)) if rested else None
        bias = b.arg("bias", self.dtype, (self.columns,)) if self.bias else None
        other = b.arg("other", self.out_dtype, (self.batch, self.rows, self.columns)) if self.other else None
        out = b.arg("out", self.out_dtype, (self.batch * self.rows * self.columns,))

        def finish(total: Expr, batch: Expr, row: Expr, column: Expr) -> Expr:
            value = total if bias is None else total + cast(bias[column], total.dtype)
            if other is not None:
                value = value + cast(other[batch, row, column], total.dtype)
            return cast(self._activated(value), self.out_dtype)

        itself: Callable[[Expr], Expr] | None = (lambda number: number) if self.batch > 1 else None
        left = Matrices(a, self.batch, self.turned[0], itself)
        right = Matrices(w, 1 if self.shared_b else self.batch, self.turned[1], None if self.shared_b else itself)
        request = Request(
            left, right, self.batch, self.rows, self.columns, self.depth, out, finish, self.kind, other, rest
        )
        return written(b, request, target, self.tile)

    def _activated(self, x: Expr) -> Expr:
        return activated(x, self.activation)


@dataclass(frozen=True)
class ConvolutionCase:
    """act(convolution + bias + other) of pictures in NHWC with filters (out, height, width, in)."""

    tile: Tile | WarpTile | None
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
    exact: bool = False  # as of products

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
        data = b.arg("data", self.dtype, (prod(self.pictures),))
        weight = b.arg("weight", self.dtype, (self.out_channels * depth,))
        sides = (data, weight) if self.exact and not by_warps(self.tile, target) else ()
        rest = tuple(b.arg(f"{side.name}_rest", self.dtype, side.shape) for side in sides) or None
        bias = b.arg("bias", self.dtype, (self.out_channels,)) if self.bias else None
        other = b.arg("other", self.dtype, (rows, self.out_channels)) if self.other else None
        out = b.arg("out", self.dtype, (rows * self.out_channels,))

        def finish(total: Expr, batch: Expr, row: Expr, column: Expr) -> Expr:
            value = total if bias is None else total + bias[column]
            if other is not None:
                value = value + other[row, column]
            return activated(value, self.activation)

        window = Window(data, self.pictures, self.image, self.filter, self.strides, self.pads[:2], self.dilation)
        extents = 1, rows, self.out_channels, depth
        request = Request(window, Matrices(weight), *extents, out, finish, self.kind, other, rest)
        return written(b, request, target, self.tile)


@dataclass(frozen=True)
class AttentionCase:
    """Attention over heads of a packed projection (batch, tokens, 3 * heads * columns), or of grouped heads; buffers in
    the order projection, mask (batch, keys), result (batch, tokens, heads * columns)."""

    batch: int
    heads: int
    tokens: int
    columns: int
    kind: str = "fp16"
    causal: bool = False
    masked: bool = False
    groups: int = 0  # heads of keys and values; 0: as many as there are of queries
    tile: AttentionTile | None = None

    @property
    def dtype(self) -> str:
        return DTYPES_OF[self.kind]

    @property
    def key_heads(self) -> int:
        return self.groups or self.heads

    @property
    def line(self) -> int:
        """Elements of a token's projection."""
        return (self.heads + 2 * self.key_heads) * self.columns

    def kernel(self, target: CudaTarget) -> Kernel:
        b = KernelBuilder("kernel")
        packed = b.arg("packed", self.dtype, (self.batch * self.tokens * self.line,))
        mask = b.arg("mask", self.dtype, (self.batch, self.tokens)) if self.masked else None
        out = b.arg("out", self.dtype, (self.batch * self.tokens * self.heads * self.columns,))
        each, head = self.heads // self.key_heads, self.columns
        steps = (self.tokens * self.line, each * head, head, self.line, 1)
        shared = (self.tokens * self.line, head, 0, self.line, 1)
        keys, values = self.heads * head, (self.heads + self.key_heads) * head
        result = (self.tokens * self.heads * head, each * head, head, self.heads * head, 1)
        scale = head**-0.5

        def score(total: Expr, batch: Sequence[Expr], query: Expr, key: Expr) -> Expr:
            assert mask is not None
            return total * const(scale, total.dtype) + mask[batch[0], key]

        request = AttentionRequest(
            Strided(packed, 0, steps), Strided(packed, keys, shared), Strided(packed, values, shared),
            Strided(out, 0, result), (self.batch, self.key_heads, each), self.tokens, self.tokens, head, head,
            1.0 if self.masked else scale, self.causal, "nan", score if self.masked else None,
        )  # fmt: skip
        assert can_attend(request)
        return write_attention(b, request, target, self.tile)


@dataclass(frozen=True)
class HeadsCase:
    """Attention by single warps over queries, keys and values of their own, (batch, heads, rows, columns), of which
    keys and values may have fewer heads; buffers in the order queries, keys, values, mask (batch, queries, keys),
    result."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    values: int
    kind: str = "fp16"
    causal: bool = False
    masked: bool = False
    each: int = 1  # heads of queries that share one of keys
    unseen: str = "nan"
    tile: WarpAttentionTile | None = None

    @property
    def dtype(self) -> str:
        return DTYPES_OF[self.kind]

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """Of queries, keys, values and the result."""
        fewer = self.heads // self.each
        heads, rows = (self.heads, fewer, fewer, self.heads), (self.queries, self.keys, self.keys, self.queries)
        columns = self.width, self.width, self.values, self.values
        return tuple((self.batch, *shape) for shape in zip(heads, rows, columns))

    def kernel(self, target: CudaTarget) -> Kernel:
        b = KernelBuilder("kernel")
        query, key, value = (b.arg(name, self.dtype, (prod(shape),)) for name, shape in zip("qkv", self.shapes))
        mask = b.arg("mask", self.dtype, (self.batch, self.queries, self.keys)) if self.masked else None
        out = b.arg("out", self.dtype, (prod(self.shapes[3]),))

        def strided(buffer: Buffer, shape: Sequence[int], shared: bool) -> Strided:
            _, heads, rows, columns = shape
            inner = (rows * columns, 0) if shared else (self.each * rows * columns, rows * columns)
            return Strided(buffer, 0, (heads * rows * columns, *inner, columns, 1))

        def score(total: Expr, batch: Sequence[Expr], query: Expr, key: Expr) -> Expr:
            assert mask is not None
            return total * const(self.width**-0.5, total.dtype) + mask[batch[0], query, key]

        sides = [
            strided(buffer, shape, shared)
            for buffer, shape, shared in zip((query, key, value, out), self.shapes, (False, True, True, False))
        ]
        request = AttentionRequest(
            sides[0], sides[1], sides[2], sides[3],
            (self.batch, self.heads // self.each, self.each), self.queries, self.keys, self.width, self.values,
            1.0 if self.masked else self.width**-0.5, self.causal, self.unseen, score if self.masked else None,
        )  # fmt: skip
        assert can_attend_by_warps(request)
        return write_warp_attention(b, request, target, self.tile)


def activated(x: Expr, name: str) -> Expr:
    """relu(x), or gelu(x) by erf, or x."""
    if name == "relu":
        return maximum(x, const(0.0, x.dtype))
    if name == "gelu":
        half, one = const(0.5, x.dtype), const(1.0, x.dtype)
        return x * half * (call("erf", x * const(0.5**0.5, x.dtype)) + one)
    return x


SHAPES = [(1, 1000, 2048), (128, 768, 768), (128, 3072, 768), (512, 3072, 768), (1024, 768, 3072), (4096, 4096, 1024)]


def _each(tiles: Sequence[Tile | WarpTile], rows: int, columns: int, depth: int, **more: Any) -> list[ProductCase]:
    return [ProductCase(tile, rows, columns, depth, tile.kind, **more) for tile in tiles]


def product_cases() -> dict[str, list[ProductCase]]:
    """Kinds of products, each with the tiles and the sizes that may go wrong in their own ways."""
    P, T = ProductCase, Tile
    tiles = [
        T("fp16", 2, 256),
        T("fp16", 2, 128),
        T("fp16", 2, 64),
        T("fp16", 1, 128),
        T("fp16", 1, 64),
        T("fp16", 2, 192),
    ]
    turns = [T("fp16", 2, width, blocks, True) for width, blocks in ((128, 2), (256, 1), (128, 1), (64, 2))]
    splits = [T("fp16", w, n, split=s) for w, n in ((1, 64), (2, 64), (1, 32), (2, 128)) for s in (2, 4, 8)]
    follow: dict[str, Any] = {"bias": True, "other": True, "activation": "relu"}
    return {
        "smallest": _each([T("fp16", 1, 64)], 64, 64, 64) + _each([T("fp16", 1, 64)], 64, 64, 640),
        "plain": _each(tiles, 512, 768, 640),
        "tails": _each(tiles, 200, 1000, 1096),
        "several": _each(tiles, 4096, 4096, 512),
        "turns": _each(turns, 512, 768, 640),
        "turns_tails": _each(turns, 200, 1000, 1096),
        "turns_several": _each(turns, 4096, 4096, 512),
        "split": _each(splits, 512, 768, 1024),
        "split_tails": _each(splits, 200, 1000, 1096),
        "split_follow": _each(splits, 200, 1000, 1096, **follow),
        "kinds": _each(
            [t._replace(kind=kind) for t in (tiles[0], tiles[4], turns[0], splits[1]) for kind in ("bf16", "tf32")],
            384,
            520,
            1032,
        ),
        "follow": _each([*tiles, *turns], 300, 776, 520, **follow),
        "follow_several": _each([tiles[0], tiles[1], turns[0]], 4096, 2048, 256, **follow),
        "gelu": _each([tiles[0], turns[0]], 1024, 1024, 512, bias=True, activation="gelu"),
        "float_out": _each(tiles[:3], 200, 1000, 1096, out="float32", **follow),
        "batched": _each([tiles[0], tiles[4], turns[0], splits[1]], 197, 200, 328, batch=5)
        + _each([tiles[1]], 197, 200, 72, batch=5, shared_b=True, bias=True),
        "stored_by_columns": [
            P(tile, 520, 776, 1032, "bf16", 2, turned, bias=True)
            for turned in ((False, True), (True, False), (True, True))
            for tile in (T("bf16", 2, 128), T("bf16", 1, 64), T("bf16", 2, 128, 2, True))
        ],
        "weights_by_columns": [
            P(tile, 197, columns, depth, turned=(False, True), bias=True)
            for tile in (*tiles, *turns, *(T("fp16", 1, n, split=s) for n in (64, 128) for s in (2, 4)))
            for columns, depth in ((768, 3072), (2304, 768))
        ],
        "exact": [
            P(tile, *shape, "tf32", bias=True, exact=True)
            for tile in (T("tf32", 2, 128), T("tf32", 1, 64), T("tf32", 1, 64, split=4))
            for shape in ((200, 1000, 1096), (512, 768, 4096))
        ],
        "chosen": [P(None, *shape, kind, bias=True) for shape in SHAPES for kind in ("fp16", "tf32")],
    }


def convolution_cases() -> dict[str, list[ConvolutionCase]]:
    """The same of convolutions."""
    C, T = ConvolutionCase, Tile
    tiles = [
        T("fp16", 2, 128),
        T("fp16", 2, 64),
        T("fp16", 1, 64),
        T("fp16", 1, 64, split=4),
        T("fp16", 2, 128, 2, True),
    ]
    square = (3, 14, 14, 128)
    return {
        "window": [C(tile, square, 192) for tile in tiles],
        "window_strided": [C(tile, square, 192, strides=(2, 2), other=True) for tile in tiles],
        "window_odd": [
            C(tiles[1], (5, 7, 7, 128), 64, (1, 1), (1, 1), (0, 0, 0, 0)),
            C(tiles[1], (2, 17, 11, 72), 72, (3, 3), (2, 1), (0, 1, 1, 0)),
            C(tiles[1], (2, 17, 11, 32), 40, (5, 2), (1, 2), (2, 1, 2, 0)),
            C(tiles[2], (2, 16, 16, 16), 64, (4, 4), (1, 1), (2, 2, 1, 1)),
            C(tiles[2], (2, 15, 15, 8), 64, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
            C(tiles[2], (1, 9, 33, 64), 64, (3, 3), (3, 2), (3, 2, 1, 0), (1, 3)),
        ],
        "window_kinds": [C(T(k, 2, 64), square, 192, kind=k, other=True) for k in ("bf16", "tf32")],
        "window_pixels": [  # several taps in a stage
            C(tile, (2, 35, 35, channels), 64, filter, (1, 1), pads, kind=tile.kind, other=True)
            for tile in (tiles[0], tiles[3], tiles[4], T("fp16", 2, 64, 2, True), T("bf16", 1, 64), T("tf32", 2, 64))
            for channels, filter, pads in (
                (16, (4, 4), (0, 0, 0, 0)),
                (32, (4, 3), (1, 1, 2, 1)),
                (8, (4, 4), (2, 2, 1, 1)),
            )
        ],
        "window_exact": [
            C(tile, pictures, channels, filter, strides, (1, 1, 1, 1), kind="tf32", other=True, exact=True)
            for tile in (T("tf32", 2, 128), T("tf32", 1, 64), T("tf32", 1, 64, split=4))
            for pictures, channels, filter, strides in (
                (square, 192, (3, 3), (1, 1)),
                ((2, 17, 11, 36), 72, (3, 3), (2, 1)),
                ((2, 17, 11, 8), 64, (4, 4), (1, 1)),
            )
        ],
        "window_chosen": [
            C(None, (n, h, h, c), k, (r, r), (s, s), (r // 2,) * 4)
            for n in (1, 8)
            for h, c, k, r, s in ((56, 64, 64, 3, 1), (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1),
                                  (56, 128, 128, 3, 2), (56, 256, 512, 1, 2))
        ],
    }  # fmt: skip


def warp_product_cases() -> dict[str, list[ProductCase]]:
    """Products by single warps: all tiles, orders and dtypes, sizes that no copy of 16 bytes fits, what follows."""
    plain = [WarpTile(kind, *shape) for shape in PLAIN for kind in ("fp16", "tf32")]
    small = WarpTile("fp16", 64, 64, 2, 2)
    exact = [WarpTile("tf32", *shape, True) for shape in EXACT]
    follow: dict[str, Any] = {"bias": True, "other": True, "activation": "relu"}
    orders = [(a, b) for a in (False, True) for b in (False, True)]
    kinds = [WarpTile("fp16", 128, 128), WarpTile("bf16", 64, 64, 2, 2), WarpTile("tf32", 64, 128)]
    return {
        "warp_smallest": _each([small], 5, 8, 8) + _each([small], 4, 1, 1),
        "warp_tiles": _each(plain, 140, 264, 136, **follow),
        "warp_exact": _each(exact, 140, 264, 136, bias=True, exact=True),
        "warp_orders": [
            ProductCase(tile, 136, 72, 200, tile.kind, 2, turned, exact=tile.exact, **follow)
            for turned in orders
            for tile in (*kinds, WarpTile("tf32", 64, 64, 2, 2, True))
        ],
        "warp_odd": [
            ProductCase(tile, 131, columns, depth, tile.kind, 2, turned, exact=tile.exact, **follow)
            for turned, columns, depth in zip(orders, (71, 70, 68, 67), (67, 70, 36, 133))
            for tile in (*kinds, WarpTile("tf32", 64, 64, 2, 2, True))
        ],
        "warp_shared": [ProductCase(kinds[0], 40, 200, 72, batch=3, shared_b=True, bias=True)],
        "warp_gelu": [ProductCase(tile, 200, 264, 128, tile.kind, bias=True, activation="gelu") for tile in kinds],
        "warp_float_out": _each(kinds[:2], 200, 1001, 96, out="float32", **follow),
        "warp_resident": _each(
            [small._replace(resident=4), WarpTile("fp16", 128, 64, 4, 2, resident=2)], 300, 520, 1032
        ),
        "warp_chosen": [
            ProductCase(None, *shape, kind, bias=True, exact=kind == "tf32")
            for shape in SHAPES[1:]
            for kind in ("fp16", "tf32")
        ],
    }  # fmt: skip


def warp_convolution_cases() -> dict[str, list[ConvolutionCase]]:
    """Convolutions by single warps: windows, strides, channels that no copy of 16 bytes fits."""
    C, T = ConvolutionCase, WarpTile
    tiles = [T("fp16", 64, 64, 2, 2), T("bf16", 128, 64, 4, 2), T("tf32", 64, 64, 2, 2), T("tf32", 64, 64, 2, 2, True)]
    windows: list[Any] = [
        ((2, 9, 8, 16), 24, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((1, 11, 9, 8), 9, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2)),
        ((1, 8, 9, 6), 10, (5, 3), (1, 2), (2, 3, 2, 0), (2, 1)),
        ((2, 7, 7, 5), 11, (3, 3), (2, 2), (0, 1, 2, 0), (1, 1)),
        ((3, 7, 7, 36), 40, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    ]
    return {
        "warp_window": [
            replace(C(tile, *window), kind=tile.kind, other=True, exact=tile.exact)
            for window in windows
            for tile in tiles
        ],
        "warp_window_large": [C(T("fp16", 128, 128), (3, 14, 14, 128), 192), C(None, (8, 28, 28, 128), 128)],
    }


def attention_cases() -> dict[str, list[AttentionCase]]:
    """Attention of several head sizes, tails of tokens, masks, shared heads."""
    A = AttentionCase
    one, two = AttentionTile(1, 128), AttentionTile(2, 128)
    return {
        "attention": [
            A(2, 3, 128, 64, tile=two),
            A(2, 3, 197, 64, tile=two),
            A(1, 2, 384, 64, tile=one),
            A(8, 12, 200, 64),
            A(1, 12, 197, 64),
        ],
        "attention_bf16": [A(1, 2, 640, 128, "bf16", tile=two), A(1, 2, 640, 64, "bf16")],
        "attention_causal": [A(1, 2, 640, 128, "bf16", True, tile=two), A(2, 3, 200, 64, causal=True, tile=two)],
        "attention_widths": [A(1, 2, 200, n) for n in (8, 24, 32, 40, 80, 96, 112, 160, 192, 256)],
        "attention_masked": [A(3, 2, 198, 64, masked=True), A(2, 2, 640, 128, masked=True, causal=True)],
        "attention_grouped": [A(2, 6, 200, 64, groups=2), A(1, 4, 130, 128, groups=1, causal=True)],
        "attention_few": [A(4, 3, 1, 64), A(4, 3, 5, 64, masked=False), A(1, 2, 2, 64, causal=True)],
    }


def warp_attention_cases() -> dict[str, list[HeadsCase]]:
    """The same by single warps, of all dtypes; with sizes that no copy of 16 bytes fits."""
    H = HeadsCase
    kinds = ("fp16", "bf16", "tf32")
    sizes = [(1, 2, 70, 130, 64, 64), (1, 1, 17, 33, 72, 40), (2, 1, 5, 100, 20, 18), (1, 1, 20, 9, 7, 5)]
    return {
        "warp_attention": [H(*size, kind) for size in sizes for kind in kinds],
        "warp_attention_causal": [H(1, 2, 130, 130, 32, 32, kind, causal=True, each=2) for kind in kinds],
        "warp_attention_masked": [
            H(2, 2, 37, keys, 24, 40, kind, causal, True, unseen=unseen)
            for keys, causal, unseen in ((66, False, "nan"), (65, True, "zero"), (64, False, "clean"))
            for kind in kinds
        ],
        "warp_attention_wide": [
            H(1, 1, 40, 70, width, values, kind)
            for width, values in ((128, 128), (256, 256), (160, 200))
            for kind in kinds
        ],
        "warp_attention_tiles": [
            H(1, 1, 70, 200, 64, 64, kind, tile=WarpAttentionTile(kind, warps, stages, kind == "tf32"))
            for warps, stages in ((2, 1), (4, 1), (2, 3))
            for kind in kinds
        ],
    }
