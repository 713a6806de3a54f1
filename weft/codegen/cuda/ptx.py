"""LLVM IR text becomes PTX text, which the driver assembles.

LLVM works at its lowest level and no IR pass runs: the driver's assembler is the optimiser, and gets the same code as
fast (see `allowed.py` for what text may hold).
"""

from __future__ import annotations

import llvmlite.binding as llvm

from ...base.cuda_target import CudaTarget
from ...base.errors import RunError
from ...base.forks import held_lock
from ...base.memory import require
from .allowed import check_allowed

TRIPLE = "nvptx64-nvidia-cuda"
SCHEDULED = '"weft-scheduled"'  # an attribute of kernels that are short of registers: LLVM orders their instructions
_lock = held_lock("compiling")
_machines: dict[tuple[str, str, int], llvm.TargetMachine] = {}
_OWN_BYTES = 32 << 20
_BYTES_PER_CHARACTER = 64


def ptx_of(ir: str, target: CudaTarget) -> str:
    """The PTX of a module. Text that LLVM cannot lower is refused before LLVM sees it.

    >>> text = "define ptx_kernel void @nothing() {\\n  ret void\\n}"
    >>> ".visible .entry nothing()" in ptx_of(text, CudaTarget())
    True
    """
    check_allowed(ir)
    require(_OWN_BYTES + _BYTES_PER_CHARACTER * len(ir), "compiling a kernel")
    with _lock:
        machine = _machine(target, 1 if SCHEDULED in ir else 0)
        try:
            module = llvm.parse_assembly(f'target triple = "{TRIPLE}"\n{ir}')
            module.verify()
        except RuntimeError as error:
            raise RunError("LLVM does not accept the generated code", why=str(error)) from None
        module.data_layout = str(machine.target_data)
        return str(machine.emit_assembly(module))


def machine_key(target: CudaTarget) -> str:
    """All that decides, besides the text, what PTX comes out."""
    return "\0".join((TRIPLE, target.arch, target.features, ".".join(map(str, llvm.llvm_version_info))))


def _machine(target: CudaTarget, level: int) -> llvm.TargetMachine:
    key = target.arch, target.features, level
    if key not in _machines:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        found = llvm.Target.from_triple(TRIPLE)
        _machines[key] = found.create_target_machine(cpu=target.arch, features=target.features, opt=level)
    return _machines[key]
