"""The template of _byte_matmul, _byte_conv2d and _pair_conv2d: rows of words times packed panels, with what follows. A
word is four bytes, whose products are summed in int32, or a pair of bfloat16, summed in float32.

A tile of some rows and a few panels stays in registers while products are summed, a word of a sum at a time. A row of a
product is a row of the data; a row of a convolution is a pixel of the result, whose words lie tap by tap in the image,
so that nothing is copied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any, NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, INT32, DType
from ....core.fused import FusedGroup
from ....ops.nn.byte_products import QUAD
from ....ops.nn.narrow_products import PAIR
from ....ops.nn.words import word_windows
from ....te.build import KernelBuilder
from ....te.expr import Expr, as_expr, call, const
from ....te.intrinsics import dot_bytes
from ....te.loops import Buffer, Kernel
from ....te.transform import lower_vectors
from ...epilogue import Epilogue
from ...group import Facts, LoweredKernel, kernel_name
from ..product import plan_product
from ..tile_walk import choose, counted, leading_index, total_of

ONES = 0x01010101  # four bytes of 1
UNROLL = 2


class Words(NamedTuple):
    """What lies in 32 bits: so many numbers, which are multiplied and summed in the time of that many products of
    floats, in sums of a dtype."""

    together: int
    sums: DType
    dot: str  # what multiplies and sums them


BYTES = Words(QUAD, INT32, "dot_bytes")
PAIRS = Words(PAIR, FLOAT32, "dot_pairs")


class WordProduct:
    """Writes the kernel of a group whose master is a product of words, by vectors."""

    def __init__(
        self,
        group: FusedGroup,
        fact: Facts,
        target: CpuTarget,
        data: tuple[int, ...],
        panels: tuple[int, ...],
        made: tuple[int, ...],
    ) -> None:
        node = group.anchor
        self.leading, self.units = made[:-1], made[-1]
        self.words = BYTES if panels[3] == QUAD else PAIRS
        self.image = data if hasattr(node.params, "kernel_size") else None
        self.params: Any = node.params
        self.target = target
        count, depth, lanes, _ = panels
        rows = prod(self.leading)
        self.depth, self.lanes = depth, lanes
        self.plan = plan_product(rows, depth, count * lanes, lanes, target)
        self.b = b = KernelBuilder(kernel_name(group))
        self.data = b.arg("data", self.words.sums, (prod(data) // self.words.together,), alignment=1)
        self.panels = b.arg("panels", self.words.sums, (count * depth * lanes,))
        self.vectors = [b.arg(f"vector{i}", INT32, (self.units,)) for i in range(len(node.inputs) - 2)]
        self.epilogue = Epilogue(b, group, fact)
        self.out = self.epilogue.result((rows * self.units,))
        self.arguments = (*node.inputs, *self.epilogue.arguments)

    def lowered(self) -> LoweredKernel:
        work = self.plan.rows * self.depth * self.units
        return LoweredKernel(lower_vectors(self._kernel()), self.arguments, work)

    def _kernel(self) -> Kernel:
        b, plan = self.b, self.plan
        sets, tiles = total_of(plan.groups), total_of(plan.tiles)
        chunks = -(-tiles // plan.chunk)
        with b.parallel("p", sets * chunks) as p:
            chunk, number = (p // sets, p % sets) if plan.rows_first else (p % chunks, p // chunks)
            first_tile, group = b.let("first", chunk * plan.chunk), b.let("group", number)

            def rows_of(panels: int, panel: Expr) -> None:
                with counted(b, first_tile, plan.chunk, tiles) as tile:
                    choose(b, tile, plan.tiles, lambda rows, row: self._tile(panels, panel, rows, row))

            choose(b, group, plan.groups, rows_of)
        return b.finish()

    def _tile(self, panels: int, panel: Expr, rows: int, first: Expr) -> None:
        b = self.b
        row = b.let("row", first)
        places = [leading_index(b, row + i, self.leading) for i in range(rows)]
        starts = [self._start(row + i, place) for i, place in enumerate(places)]
        weights = b.let("w", panel * (self.depth * self.lanes))
        with b.vector("lane", self.lanes) as lane:
            acc = b.registers("acc", self.words.sums, (rows * panels,))
            sums = b.registers("sums", INT32, (rows,)) if len(self.vectors) > 1 else None
            products = lambda starts, weights, run: self._run(panels, starts, weights, lane, acc, sums, run)
            self._over_taps(starts, weights, products)
            for v in range(panels):
                column = b.let("column", (panel + v) * self.lanes + lane)
                with self._where_there(column):
                    self._finish(panels, v, column, row, places, acc, sums)

    def _where_there(self, column: Expr) -> AbstractContextManager[Any]:
        """Where columns fill their vectors there are no others."""
        return self.b.when(column < self.units) if self.units % self.lanes else nullcontext()

    def _start(self, row: Expr, place: list[Expr]) -> Expr:
        """Where a row begins, in words."""
        if self.image is None:
            return self.b.let("x", row * self.depth)
        _, height, width, channels = self.image
        down, across = word_windows(self.params)
        n, y, x = place
        pixel = (n * height + y * down.stride) * width + x * across.stride
        return self.b.let("x", pixel * (channels // self.words.together))

    def _over_taps(self, starts: list[Expr], weights: Expr, products: Callable[[list[Expr], Expr, int], None]) -> None:
        """All products of some rows, run by run of words that lie side by side: `products(starts, weights, words)`."""
        b = self.b
        if self.image is None:
            products(starts, weights, self.depth)
            return
        _, _, width, channels = self.image
        down, across = word_windows(self.params)
        steps = channels // self.words.together
        together = across.dilation == 1  # taps side by side are one run of words
        runs, run = (1, steps * across.size) if together else (across.size, steps)
        with b.loop("tap", down.size * runs) as tap:
            moved = tap // runs * (down.dilation * width * steps) + tap % runs * (across.dilation * steps)
            moved = b.let("moved", moved)
            begin: list[Expr] = [b.let("x", start + moved) for start in starts]
            products(begin, b.let("w", weights + tap * (run * self.lanes)), run)

    def _run(
        self, panels: int, starts: list[Expr], weights: Expr, lane: Expr, acc: Buffer, sums: Buffer | None, depth: int
    ) -> None:
        """Products of words that lie side by side."""
        b = self.b

        def step(k: Expr) -> None:
            vectors = [
                b.let("v", self.panels[weights + (k + v * self.depth) * self.lanes + lane]) for v in range(panels)
            ]
            for i, start in enumerate(starts):
                word = b.let("d", self.data[start + k])
                for v, vector in enumerate(vectors):
                    place = i * panels + v
                    b.store(acc, place, call(self.words.dot, acc[place], word, vector))
                if sums is not None:
                    b.store(sums, i, dot_bytes(sums[i], word, const(ONES, INT32)))

        turns, rest = divmod(depth, UNROLL)
        if turns:
            with b.loop("k", turns) as turn:
                for number in range(UNROLL):
                    step(turn * UNROLL + number)
        for number in range(rest):
            step(as_expr(turns * UNROLL + number))

    def _finish(
        self, panels: int, v: int, column: Expr, row: Expr, places: list[list[Expr]], acc: Buffer, sums: Buffer | None
    ) -> None:
        """One panel of every row: its offsets and zero points, and what follows."""
        b = self.b
        zeros = [b.let("z", vector[column]) for vector in self.vectors[1:]]
        for i, place in enumerate(places):
            value = self._with_offset(acc[i * panels + v], column)
            for zero in zeros:
                assert sums is not None
                value = value - zero * sums[i]
            self._store(row + i, place, column, value)

    def _with_offset(self, value: Expr, column: Expr) -> Expr:
        for offsets in self.vectors[:1]:
            value = value + offsets[column]
        return value

    def _store(self, row: Expr, place: list[Expr], column: Expr, value: Expr) -> None:
        """What follows of a sum."""
        finished = self.epilogue.finished(self.b.let("y", value), [*place, column])
        self.b.store(self.out, row * self.units + column, finished)
