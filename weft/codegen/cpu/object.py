"""LLVM IR text becomes object code or assembly for a target."""

from __future__ import annotations

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from ...base.cpu_target import CpuTarget
from ...base.errors import InvalidValue, RunError, Unsupported
from ...base.forks import held_lock, hold_over_forks
from ...base.memory import require

_lock = held_lock("compiling")
hold_over_forks(ffi.lib._lock._lock, "llvm")  # llvmlite's own, around every call
_machines: dict[tuple[str, str, str], llvm.TargetMachine] = {}

# What LLVM takes for itself and for each character of a module: it ends the process where it does
# not get that.
_OWN_BYTES = 32 << 20
_BYTES_PER_CHARACTER = 64

# CPUs of 64 bits that store the low byte first, as kernels and packed constants take for granted. LLVM ends the process
# over some of the rest.
ARCHITECTURES = ("x86_64", "aarch64", "riscv64", "powerpc64le", "loongarch64")

# Emitted code needs no IR passes; "O2" is for scalar loops that LLVM is to vectorise.
PIPELINES = ("none", "O2")


def machine_key(target: CpuTarget) -> str:
    """All that decides, besides the text, what object code comes out."""
    return "\0".join((target.triple, target.cpu, target.features, llvm_version()))


def llvm_version() -> str:
    return ".".join(map(str, llvm.llvm_version_info))


def compile_object(ir: str, target: CpuTarget, passes: str = "none") -> bytes:
    """Object code, position-independent, as a JIT loads it."""
    require(_OWN_BYTES + _BYTES_PER_CHARACTER * len(ir), "compiling a kernel")
    with _lock:
        machine = _target_machine(target)
        return bytes(machine.emit_object(_module(ir, machine, passes)))


def compile_assembly(ir: str, target: CpuTarget, passes: str = "none") -> str:
    """The same as assembly text."""
    with _lock:
        machine = _target_machine(target)
        return str(machine.emit_assembly(_module(ir, machine, passes)))


def _module(ir: str, machine: llvm.TargetMachine, passes: str) -> llvm.ModuleRef:
    try:
        module = llvm.parse_assembly(ir)
        module.verify()
    except RuntimeError as error:
        raise RunError("LLVM does not accept the generated code", why=str(error)) from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if passes == "O2":
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    elif passes != "none":
        raise InvalidValue(f"unknown pass pipeline {passes!r}", why=f"there are {PIPELINES}")
    return module


def _target_machine(target: CpuTarget) -> llvm.TargetMachine:
    key = (target.triple, target.cpu, target.features)
    if key not in _machines:
        machine = _llvm_target(target).create_target_machine(
            cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small", jit=True
        )
        if "-p:32:32" in str(machine.target_data):
            raise _refused(target, "its addresses have 32 bits")
        _machines[key] = machine
    return _machines[key]


def _llvm_target(target: CpuTarget) -> llvm.Target:
    """LLVM's part for this kind of machine; those for other machines are set up when one is first
    asked for."""
    if target.arch not in ARCHITECTURES:
        raise _refused(target, "weft makes code for " + ", ".join(ARCHITECTURES))
    triple = target.triple
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise _refused(target, str(error)) from None


def _refused(target: CpuTarget, why: str) -> Unsupported:
    return Unsupported(
        f"no code can be made for {target.triple!r}",
        why=why,
        hint="name another machine, as in -mtriple=x86_64-linux-gnu or -mtriple=aarch64-linux-gnu",
    )
