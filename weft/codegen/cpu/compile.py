"""CPUs' code: loop IR becomes LLVM IR, and that becomes objects."""

from __future__ import annotations

from ...base.cpu_target import CpuTarget
from ...base.plan import KernelCode
from ...te.loops import Kernel
from ..generator import Codegen
from .emit import emit_kernel
from .object import compile_assembly, compile_object, machine_key

CODEGEN = Codegen[CpuTarget](
    "object", emit_kernel, compile_object, machine_key, {"llvm": lambda ir, _: ir, "asm": compile_assembly}
)


def compile_kernel(kernel: Kernel, target: CpuTarget, passes: str = "none", may_alias: bool = False) -> KernelCode:
    """Compile one kernel. `passes` is "none" for code that is final, "O2" for scalar loops that
    LLVM is to vectorise; `may_alias` says that its buffers may overlap."""
    return CODEGEN.code(kernel, compile_object(emit_kernel(kernel, target, may_alias), target, passes))
