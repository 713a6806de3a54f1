"""The frame of a template kernel: its parameters, shared memory, tensor maps, and the module around its lines."""

from __future__ import annotations

from ....base.cuda_target import CudaTarget
from ....base.plan import Launch
from ....te.expr import Expr
from ....te.extents import may_exceed
from ....te.linear import Linear, scalar
from ....te.loops import Buffer, Kernel
from ....te.tensor_cores.layouts import tile_place
from ....te.tensor_cores.product import ALIGNMENT, SPLIT_GAP, Product, Tile
from ....te.tensor_cores.warp_product import WarpProduct
from ...builder import Value
from ...memory import Place
from ..builder import CudaBuilder
from ..ptx import SCHEDULED
from .writer import Writer, u32

_MAP = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'


class Frame:
    """A writer whose buffers are bound, and the addresses of tensor maps."""

    def __init__(self, kernel: Kernel, target: CudaTarget, maps: int) -> None:
        self.kernel = kernel
        self.w = Writer(CudaBuilder(target))
        b = self.w.b
        for number, var in enumerate(kernel.scalars):
            self.w.e.variables[var] = scalar(Linear(0, {Value(f"%scalar{number}", "i64", 1, 0): 1}))
        for number, buffer in enumerate(kernel.buffers):
            base = Value(f"%buffer{number}", "ptr addrspace(1)", 1, 0)
            strides = tuple(self.w.e.linear(stride) for stride in buffer.strides)
            self.w.e.places[buffer] = Place(base, buffer.dtype, strides, buffer.lanes, buffer.alignment or 16)
        self.maps = [b.pure("i64", 1, f"ptrtoint ptr %map{n} to i64", ()) for n in range(maps)]

    def shared_base(self) -> Expr:
        """Where shared memory begins, rounded up to what tiles need."""
        start = self.w.b.pure("i32", 1, "ptrtoint ptr addrspace(3) @shared to i32", ())
        raw = self.w.named("shared", start)
        return self.w.let("base", (raw + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT)

    def number_of(self, buffer: Buffer) -> int:
        return self.kernel.buffers.index(buffer)

    @staticmethod
    def split_row_bytes(tile: Tile) -> int:
        """Of a row of partial sums."""
        return (tile.width + SPLIT_GAP) * 4


def address_of(frame: Frame, buffer: Buffer) -> Value:
    """Where a buffer begins, as a number."""
    number = frame.number_of(buffer)
    return frame.w.b.pure("i64", 1, f"ptrtoint ptr addrspace(1) %buffer{number} to i64", ())


def tile_at(w: Writer, plan: Product | WarpProduct, number: Expr) -> tuple[Expr, Expr, Expr]:
    """Which product, and the first row and column of the tile of a number."""
    down, across = plan.tiles
    batch: Expr = u32(0)
    if may_exceed(plan.batch, 1):
        each = w.count(down * across)
        batch = w.let("batch", number // each)
        number = number - batch * each
    row, column = tile_place(number, w.count(down), w.count(across), plan.tile.together)
    return batch, w.let("row", row * plan.tile.rows), w.let("column", column * plan.tile.width)


def module(kernel: Kernel, frame: Frame, launch: Launch, maps: int, resident: int = 1, scheduled: bool = False) -> str:
    """The text of a module with one kernel. Where registers are short, LLVM may be asked to order instructions."""
    b = frame.w.b
    parameters = [f"ptr addrspace(1) align 16 %buffer{n}" for n in range(len(kernel.buffers))]
    parameters += [f"i64 %scalar{n}" for n in range(len(kernel.scalars))]
    parameters += [f"{_MAP} %map{n}" for n in range(maps)]
    lines = ["entry:", *b.scope.lines, "  ret void"]
    threads, mark = launch.threads[0], f"{SCHEDULED} " if scheduled else ""
    return "\n".join(
        [
            f"@shared = external addrspace(3) global [0 x i8], align {ALIGNMENT}",
            *b.globals.values(),
            *b.declarations.values(),
            f"define ptx_kernel void @{kernel.name}({', '.join(parameters)}) #0 {{",
            *lines,
            "}",
            f'attributes #0 = {{ "nvvm.maxntid"="{threads},1,1" "nvvm.minctasm"="{resident}" {mark}}}',
            "",
        ]
    )
