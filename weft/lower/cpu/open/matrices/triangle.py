"""Triangles of dense matrices as an open kernel: what is beyond a diagonal becomes 0."""

from __future__ import annotations

from .....base.cpu_target import CpuTarget
from .....base.dtype import DType
from .....te.build import KernelBuilder
from .....te.expr import Var, as_expr, binary, const
from .....te.loops import Kernel, Store
from .....te.transform import lower_vectors
from ..nest import vector_loop
from ..operands import UNBOUNDED


def triangle_kernel(dtype: DType, lower: bool, target: CpuTarget) -> Kernel:
    """Scalars: rows of all matrices, rows and columns of one, the last diagonal that stays. A turn
    is a row."""
    b = KernelBuilder("triangle")
    names = ("turns", "rows", "columns", "diagonal")
    turns, rows, columns, diagonal = (b.scalar(name) for name in names)
    x, out = b.arg("x", dtype, (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    with b.parallel("p", turns) as p:
        start = b.let("start", p * columns)
        place = p % rows + diagonal + (1 if lower else 0)
        cut = b.let("cut", binary("max", binary("min", place, columns), 0))
        kept, cleared = (as_expr(0), cut), (cut, columns)
        if not lower:
            kept, cleared = cleared, kept
        i, j = Var("i"), Var("j")
        lanes = target.lanes(dtype)
        b.emit(vector_loop(i, *kept, lanes, Store(out, (start + i,), x[start + i])))
        b.emit(vector_loop(j, *cleared, lanes, Store(out, (start + j,), const(0, dtype))))
    return lower_vectors(b.finish())
