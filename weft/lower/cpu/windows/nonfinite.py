"""Whether a kernel made results that are NaN or infinite: it looks at them while they are in
registers, and leaves a NaN in a vector that the caller gave it zeroed."""

from __future__ import annotations

from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, call, const, select
from ....te.loops import Buffer
from ..matrices.open_tile import lanes_from


class NonFinite:
    """A vector in registers: 0 until it has seen a value that is not finite, then NaN."""

    def __init__(self, b: KernelBuilder, dtype: DType, lanes: int) -> None:
        self.b, self.lanes = b, lanes
        self.seen = b.alloc("seen", dtype, (), scope="register", lanes=lanes)
        b.store(self.seen, (), const(0, dtype))

    def see(self, value: Expr, mask: Expr | None = None) -> None:
        nothing = value * 0.0  # of what is finite
        given = nothing if mask is None else select(mask, nothing, 0.0)
        self.b.store(self.seen, (), self.seen[()] + given)

    def tell(self, buffer: Buffer) -> None:
        seen = self.seen[()]
        self.b.store(buffer, lanes_from(0, self.lanes), seen, call("isnan", seen))
