"""The softmax of attention's masked scores, in place, and its gradient. A row is read from memory once."""

from __future__ import annotations

from collections.abc import Callable

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import BOOL, FLOAT64, INT64, DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, minimum
from ....te.loops import Buffer, Kernel, Store
from ....te.transform import lower_vectors
from ..nests.hoist import vector_loop
from .row_sums import over_row

At = Callable[[Expr], Expr]


class _Rows:
    """What all of them begin with: rows one after the other, of `length` elements."""

    def __init__(self, name: str, dtype: DType, target: CpuTarget) -> None:
        self.b, self.dtype, self.lanes = KernelBuilder(name), dtype, target.lanes(dtype)
        self.rows, self.length = self.b.scalar("rows"), self.b.scalar("length")

    def args(self, *names: str) -> list[Buffer]:
        size = self.rows * self.length
        return [self.b.arg(name, self.dtype, (size,)) for name in names]

    def zero(self) -> Expr:
        return te.const(0, self.dtype)

    def top(self, value: At, count: Expr) -> Expr:
        """The largest of the first elements of a row."""
        dtypes = (self.dtype, self.dtype)
        return self._over("max", dtypes, value, count)

    def sum(self, value: At, count: Expr | None = None) -> Expr:
        return self._over("sum", (self.dtype, FLOAT64), value, count)

    def _over(self, combiner: str, dtypes: tuple[DType, DType], value: At, count: Expr | None = None) -> Expr:
        length = self.length if count is None else count
        return over_row(self.b, combiner, dtypes, length, self.lanes, lambda j: [value(j)], 1)[0]

    def powers(self, value: At, top: Expr, to: Buffer, start: Expr, count: Expr) -> Expr:
        """Stores exp(value - top), and sums it up."""

        def power(j: Expr) -> Expr:
            numerator = self.b.let("power", te.exp(value(j) - top))
            self.b.store(to, start + j, numerator)
            return numerator

        return self.sum(power, count)

    def each(self, to: Buffer, start: Expr, value: At, first: Expr, end: Expr) -> None:
        j = Var("j")
        store = Store(to, (start + j,), value(j))
        self.b.emit(vector_loop(j, first, end, self.lanes, store))

    def narrow(self, name: str, value: Expr) -> Expr:
        return self.b.let(name, te.cast(value, self.dtype))


def softmax_grad_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """dx = y (g - sum of g y). Buffers: g, y, dx, which may be g."""
    kernel = _Rows("softmax_grad", dtype, target)
    b, length, (g, y, dx) = kernel.b, kernel.length, kernel.args("g", "y", "dx")
    with b.parallel("row", kernel.rows) as row:
        start = b.let("start", row * length)
        shared = kernel.narrow("shared", kernel.sum(lambda j: g[start + j] * y[start + j]))
        value = lambda j: y[start + j] * (g[start + j] - shared)
        kernel.each(dx, start, value, as_expr(0), length)
    return lower_vectors(b.finish())


def probabilities_kernel(mask: str, causal: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """softmax(factor scores + mask) in place, with zeros in rows that see nothing.

    Scores are matrices of `queries` rows and `length` columns. Scalars: rows in all, length,
    queries, the query of the first row, elements between rows of the mask. `starts` says where the
    mask of each matrix begins. A causal row sees keys up to its own.
    """
    kernel = _Rows("probabilities", dtype, target)
    b, rows, keys = kernel.b, kernel.rows, kernel.length
    queries, first, step = (b.scalar(name) for name in ("queries", "first", "mask_step"))
    (scores,), factors = kernel.args("scores"), b.arg("factor", dtype, (1,))
    starts = b.arg("starts", INT64, (rows,))
    masks = b.arg("mask", BOOL if mask == "boolean" else dtype, (rows * keys,))
    lowest = te.const(float("-inf"), dtype)
    with b.parallel("row", rows) as row:
        start = b.let("start", row * keys)
        query = b.let("query", row % queries)
        factor = b.let("factor", factors[0])
        seen = b.let("seen", minimum(keys, first + query + 1)) if causal else keys
        own = b.let("own", starts[row // queries] + query * step if mask != "none" else as_expr(0))

        def score(j: Expr) -> Expr:
            value = scores[start + j] * factor
            if mask == "boolean":
                return te.select(masks[own + j], value, lowest)
            return value + masks[own + j] if mask == "additive" else value

        top = kernel.top(score, seen)
        top = b.let("shift", te.select(top.equal(lowest), kernel.zero(), top))
        total = kernel.powers(score, top, scores, start, seen)
        one = te.const(1, FLOAT64)
        inverse = kernel.narrow("inverse", 1 / te.select(total.equal(0), one, total))
        kernel.each(scores, start, lambda j: scores[start + j] * inverse, as_expr(0), seen)
        if causal:
            kernel.each(scores, start, lambda j: kernel.zero(), seen, keys)
    return lower_vectors(b.finish())
