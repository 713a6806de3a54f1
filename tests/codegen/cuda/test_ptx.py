"""LLVM IR becomes PTX; what LLVM would end the process over is refused before."""

import subprocess
import sys

import pytest

import weft
from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda import allowed
from weft.codegen.cuda.ptx import ptx_of

TARGET = CudaTarget()
LLVM_TYPES = {"f32": "float", "f64": "double", "f16": "half", "bf16": "bfloat"}
ARGUMENTS = {"fma": 3, "fmuladd": 3, "fshl": 3, "fshr": 3}
TWO = "copysign maxnum minnum maximum minimum smin smax umin umax".split()


def function(line, result="float", declared=""):
    return f"{declared}\ndefine ptx_kernel void @k(float %x, ptr addrspace(1) %p) {{\n  %y = {line}\n  ret void\n}}\n"


@pytest.mark.parametrize("name", "exp log sin cos tanh pow erf exp10 log2".split())
def test_functions_that_llvm_has_no_ptx_for_are_refused(name):
    text = function(f"call float @llvm.{name}.f32(float %x)", declared=f"declare float @llvm.{name}.f32(float)")
    with pytest.raises(weft.Error, match=name):
        ptx_of(text, TARGET)


@pytest.mark.parametrize(
    "line",
    [
        "frem float %x, %x",
        "call float @expf(float %x)",
        "call double @llvm.exp2.f64(double 0.0)",
        "call float %x(float %x)",
        "call <4 x float> @llvm.masked.load.v4f32.p1(ptr addrspace(1) %p, i32 4, <4 x i1> poison, <4 x float> poison)",
        "va_arg ptr %p, i32",
    ],
)
def test_other_operations_outside_the_list_are_refused(line):
    with pytest.raises(weft.Error, match="not known to become PTX"):
        ptx_of(function(line), TARGET)


def test_an_approximation_is_allowed_where_it_is_asked_for():
    text = function("call afn float @llvm.tanh.f32(float %x)", declared="declare float @llvm.tanh.f32(float)")
    store = text.replace("  ret void", "  store float %y, ptr addrspace(1) %p\n  ret void")
    assert "tanh.approx.f32" in ptx_of(store, TARGET)


def test_text_that_is_no_llvm_is_an_error():
    with pytest.raises(weft.Error, match="does not accept"):
        ptx_of(function("fadd float %x, %nothing"), TARGET)


def module_of_all():
    """One module with every intrinsic of the list, for every type, alone and in a vector."""
    declared, lines = set(), []
    for name, kinds in allowed._INTRINSICS.items():
        for kind in sorted(kinds - {""}):
            for lanes in (1, 2):
                scalar = LLVM_TYPES.get(kind, kind)
                whole = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
                full = f"llvm.{name}.{'' if lanes == 1 else f'v{lanes}'}{kind}"
                count = ARGUMENTS.get(name, 2 if name in TWO else 1)
                extra = ["i1 false"] if name in ("abs", "ctlz", "cttz") else []
                types = ", ".join([whole] * count + ["i1"] * len(extra))
                declared.add(f"declare {whole} @{full}({types})")
                number = len(lines)
                lines.append(f"  %a{number} = load {whole}, ptr addrspace(1) %p, align 16")
                passed = ", ".join([f"{whole} %a{number}"] * count + extra)
                lines.append(f"  %b{number} = call {whole} @{full}({passed})")
                lines.append(f"  store {whole} %b{number}, ptr addrspace(1) %q, align 16")
    body = "\n".join(lines)
    heads = "\n".join(sorted(declared))
    arguments = "ptr addrspace(1) align 16 %p, ptr addrspace(1) align 16 %q"
    return f"{heads}\ndefine ptx_kernel void @k({arguments}) {{\n{body}\n  ret void\n}}\n"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_llvm_lowers_all_that_the_list_has(arch):
    """In a process of its own, which LLVM would end if it could not."""
    script = (
        "import sys\nfrom weft.base.cuda_target import CudaTarget\nfrom weft.codegen.cuda.ptx import ptx_of\n"
        f"text = ptx_of(sys.stdin.read(), CudaTarget().changed(arch={arch!r}))\n"
        "assert '.entry k' in text\n"
        "assert 'call.uni' not in text, [line for line in text.splitlines() if 'call' in line]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], input=module_of_all(), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-2000:]
