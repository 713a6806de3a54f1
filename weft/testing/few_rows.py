"""Products of a few rows, to be assembled without a GPU and run with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..base.cuda_target import CudaTarget
from ..base.dtype import as_dtype
from ..lower.cuda.few_rows import Cut, cut_few_rows, write_few_rows
from ..lower.cuda.product import KINDS, Matrices, Request
from ..te.build import KernelBuilder
from ..te.expr import Expr
from ..te.loops import Kernel
from .kernel_cases import Array


@dataclass(frozen=True)
class FewRowsCase:
    """a b^T + bias of `batch` products; buffers are called a, b, bias, out."""

    rows: int
    columns: int
    depth: int
    dtype: str = "float16"
    batch: int = 1
    turned: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        count = f"{self.batch} x " if self.batch > 1 else ""
        turned = f" turned {self.turned}" if any(self.turned) else ""
        return f"{count}{self.rows}x{self.columns}x{self.depth} {self.dtype}{turned}"

    @property
    def bytes_read(self) -> int:
        """Of the larger operand, which is read once."""
        return self.batch * max(self.rows, self.columns) * self.depth * as_dtype(self.dtype).itemsize

    def kernel(self, target: CudaTarget) -> Kernel:
        b = KernelBuilder("kernel")
        return write_few_rows(b, self._request(b), target)

    def kernels(self, target: CudaTarget) -> list[Kernel]:
        return [self.kernel(target)]

    def arrays(self, seed: int = 0) -> dict[str, Array]:
        """Random ones, and a result of NaN."""
        rng, dtype = np.random.default_rng(seed), as_dtype(self.dtype)
        sides = [(self.batch, rows, self.depth) for rows in (self.rows, self.columns)]
        shapes = [(n, k, rows) if turned else (n, rows, k) for (n, rows, k), turned in zip(sides, self.turned)]
        found = {
            name: rng.standard_normal(shape).astype(dtype)
            for name, shape in zip(("a", "b", "bias"), (*shapes, (self.columns,)))
        }
        return {**found, "out": np.full((self.batch, self.rows, self.columns), np.nan, dtype)}

    def wanted(self, arrays: Mapping[str, Array]) -> Array:
        """By numpy, in float64."""
        a, b, bias = (arrays[name].astype(np.float64) for name in ("a", "b", "bias"))
        a, b = (x.swapaxes(1, 2) if turned else x for x, turned in zip((a, b), (self.turned[0], not self.turned[1])))
        made: Array = a @ b + bias
        return made

    def cut(self, target: CudaTarget) -> Cut:
        """How threads share it."""
        return cut_few_rows(self._request(KernelBuilder("kernel")), target)

    def _request(self, b: KernelBuilder) -> Request:
        dtype = as_dtype(self.dtype)
        left = b.arg("a", dtype, (self.batch * self.rows * self.depth,))
        right = b.arg("b", dtype, (self.batch * self.columns * self.depth,))
        bias = b.arg("bias", dtype, (self.columns,))
        out = b.arg("out", dtype, (self.batch * self.rows * self.columns,))
        itself: Callable[[Expr], Expr] | None = (lambda number: number) if self.batch > 1 else None
        sides = [Matrices(side, self.batch, turned, itself) for side, turned in zip((left, right), self.turned)]

        def finish(total: Expr, batch: Expr, row: Expr, column: Expr) -> Expr:
            return total + bias[column]

        extents = self.batch, self.rows, self.columns, self.depth
        return Request(sides[0], sides[1], *extents, out, finish, KINDS[dtype], dtype=dtype)


def few_rows_cases() -> dict[str, list[FewRowsCase]]:
    """Kinds of such products, each with the sizes that may go wrong in their own ways."""
    P = FewRowsCase
    floats, both = ("float16", "bfloat16", "float32"), ((False, False), (False, True))
    return {
        "chosen": [
            P(rows, *shape, dtype, 1, turned)
            for rows in (1, 2, 3, 5, 8)
            for shape in ((14336, 4096), (768, 3072), (1000, 2048), (10, 100000))
            for dtype in floats
            for turned in both
        ],
        "odd": [
            P(rows, columns, depth, dtype, 1, turned)
            for rows in (1, 4, 7)
            for columns, depth in ((50257, 768), (769, 3001), (37, 1025), (6, 24))
            for dtype in floats
            for turned in both
        ],
        "batched": [
            P(rows, columns, depth, dtype, 24, turned)
            for rows, columns, depth in ((1, 197, 64), (1, 64, 197), (3, 40, 7), (200, 1, 64), (300, 5, 96))
            for dtype in ("float16", "float32")
            for turned in (*both, (True, False), (True, True))
        ],
    }
