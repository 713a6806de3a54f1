"""Attention by single warps: its PTX run on numpy, thread by thread, against float64; and what NVIDIA's assembler says
of it for every architecture. No GPU is needed."""

from __future__ import annotations

import re

import pytest
from codegen.cuda.ptx_machine import run_ptx
from codegen.cuda.ptxas import assembled
from codegen.cuda.template_data import bound_of, data_of, error_of

from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.testing.tensor_cores import HeadsCase, warp_attention_cases

ARCHS = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
CASES = {f"{kind}{n}": case for kind, cases in warp_attention_cases().items() for n, case in enumerate(cases)}
SM80 = CudaTarget().changed(arch="sm_80")


def check(case, target=SM80):
    arrays, wanted = data_of(case, case.keys)
    kernel = case.kernel(target)
    text = CODEGEN.assemble(CODEGEN.emit(kernel, target), target).decode()
    launch = kernel.body.launch
    run_ptx(text, arrays, launch.blocks[0], launch.shared)
    assert error_of(arrays[-1], wanted) < bound_of(case, kernel.body.tile), case


@pytest.mark.parametrize("name", CASES)
def test_threads_attend(name):
    check(CASES[name])


def test_tf32_in_one_pass():
    case = HeadsCase(1, 1, 33, 70, 64, 48, "tf32")
    target = SM80.changed(precision="tf32")
    assert not case.kernel(target).body.tile.exact
    check(case, target)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("arch", ARCHS)
def test_assembles_for_every_architecture(arch, precision, tmp_path):
    target = CudaTarget().changed(arch=arch, precision=precision)
    kinds = ["tf32"] if precision == "tf32" else ["fp16", "bf16", "tf32"]
    for kind in kinds:
        for width, causal, masked in ((64, False, False), (128, True, False), (256, False, True)):
            case = HeadsCase(2, 4, 200, 198, width, width, kind, causal, masked)
            kernel = case.kernel(target)
            code = CODEGEN.assemble(CODEGEN.emit(kernel, target), target)
            assert ".local" not in code.decode()
            assert kernel.body.launch.shared <= target.shared_bytes
            made = assembled(code, target.arch, tmp_path)
            assert (made.spilled, made.stack) == (0, 0), f"{case} for {arch}: {made.log}"
            assert not re.search(r"C75\d\d", made.log), made.log
            assert -(-made.registers // 8) * 8 * kernel.body.tile.threads <= target.registers
