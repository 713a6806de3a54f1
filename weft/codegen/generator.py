"""Codegen: what a backend makes code with. Text comes first, by which kernels are known as equal, then the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..base.plan import BufferSpec, KernelCode, Launch
from ..base.target import Target
from ..te.expr import Const, Expr
from ..te.grid import grid_of, launch_extents
from ..te.loops import Buffer, Kernel, Store, WholeKernel
from ..te.visit import postorder

T = TypeVar("T", bound=Target)


@dataclass(frozen=True)
class Codegen(Generic[T]):
    """Kernels become text, and text becomes code of a format that the runtime of the same kind loads."""

    format: str
    emit: Callable[[Kernel, T], str]
    assemble: Callable[[str, T], bytes]
    key: Callable[[T], str]  # what decides, besides the text, which code comes out
    listings: Mapping[str, Callable[[str, T], str]] = field(
        default_factory=dict
    )  # what WEFT_DEBUG prints, by the name of the stage
    # Whether code may begin while the kernel before it runs, for it waits by itself.
    begins_early: Callable[[bytes], bool] = lambda code: False

    def code(self, kernel: Kernel, code: bytes) -> KernelCode:
        """Code with what the kernel expects of its arguments."""
        written = {s.buffer for s in postorder((kernel.body,)) if isinstance(s, Store)}
        buffers = tuple(_spec(buffer, buffer in written) for buffer in kernel.buffers)
        scalars = tuple((var.name, var.dtype) for var in kernel.scalars)
        whole = kernel.body if isinstance(kernel.body, WholeKernel) else None
        launch, maps = (_launch(kernel), ()) if whole is None else (whole.launch, whole.maps)
        if launch is not None and self.begins_early(code):
            launch = launch._replace(dependent=True)
        return KernelCode(kernel.name, code, buffers, scalars, launch, self.format, maps)


def _launch(kernel: Kernel) -> Launch | None:
    if kernel.parallel is not None:
        turns = _number(kernel.parallel.extent)
        return None if turns is None else Launch((turns, 1, 1))
    if grid_of(kernel) is None:
        return Launch()
    return None if kernel.scalars else launch_extents(kernel)


def _spec(buffer: Buffer, written: bool) -> BufferSpec:
    shape = tuple(map(_number, buffer.shape))
    strides = tuple(map(_number, buffer.strides))
    return BufferSpec(buffer.name, buffer.dtype, shape, strides, buffer.alignment, written)


def _number(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None
