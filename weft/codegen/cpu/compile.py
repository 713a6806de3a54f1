"""A loop-IR Kernel becomes KernelCode: object code with the facts needed to call it."""

from __future__ import annotations

import sys

from ...base import config
from ...base.plan import BufferSpec, KernelCode
from ...base.target import Target
from ...te.expr import Const, Expr
from ...te.loops import Buffer, Kernel, Store
from ...te.visit import postorder
from ..emit import emit_kernel
from .object import compile_assembly, compile_object


def compile_kernel(kernel: Kernel, target: Target, passes: str = "none", may_alias: bool = False) -> KernelCode:
    """Compile one kernel. `passes` is "none" for code that is final, "O2" for scalar loops that
    LLVM is to vectorise; `may_alias` says that its buffers may overlap."""
    ir = emit_kernel(kernel, target, may_alias)
    stages = config.get("debug")
    if "llvm" in stages:
        print(ir, file=sys.stderr)
    if "asm" in stages:
        print(compile_assembly(ir, target, passes), file=sys.stderr)
    return describe(kernel, compile_object(ir, target, passes))


def describe(kernel: Kernel, code: bytes) -> KernelCode:
    """Object code with what the kernel expects of its arguments."""
    written = {s.buffer for s in postorder((kernel.body,)) if isinstance(s, Store)}
    buffers = tuple(_spec(buffer, buffer in written) for buffer in kernel.buffers)
    scalars = tuple((var.name, var.dtype) for var in kernel.scalars)
    extent = 1 if kernel.parallel is None else _number(kernel.parallel.extent)
    return KernelCode(kernel.name, code, buffers, scalars, extent)


def _spec(buffer: Buffer, written: bool) -> BufferSpec:
    shape = tuple(map(_number, buffer.shape))
    strides = tuple(map(_number, buffer.strides))
    return BufferSpec(buffer.name, buffer.dtype, shape, strides, buffer.alignment, written)


def _number(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) else None
