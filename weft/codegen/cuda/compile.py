"""GPUs' code: loop IR becomes LLVM IR, and that becomes PTX, which the driver assembles."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..generator import Codegen
from .emit import emit_kernel
from .ptx import machine_key, ptx_of


def _assembled(ir: str, target: CudaTarget) -> bytes:
    return ptx_of(ir, target).encode()


CODEGEN = Codegen[CudaTarget](
    "ptx",
    emit_kernel,
    _assembled,
    machine_key,
    {"llvm": lambda ir, _: ir, "asm": ptx_of},
    begins_early=lambda code: b"griddepcontrol.wait" in code,
)
