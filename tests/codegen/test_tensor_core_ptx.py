"""Kernels of tensor cores as PTX, and what NVIDIA's assembler says of them: no GPU is needed."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.ptx import ptx_of
from weft.codegen.cuda.templates.emit import emit_template
from weft.te.tensor_cores.product import Window
from weft.testing.tensor_cores import attention_cases, convolution_cases, product_cases

TARGET = CudaTarget()
REGISTERS = 65536
CASES = {
    f"{kind}{number}": case
    for kind, cases in (product_cases() | convolution_cases() | attention_cases()).items()
    for number, case in enumerate(cases)
}
QUICK = ["tails0", "turns_tails0", "split_follow1", "kinds1", "follow1", "stored_by_columns8", "exact2", "window_odd1"]
QUICK += ["window_pixels0", "window_exact5"]


def assembler():
    """ptxas of this machine or of the wheel nvidia-cuda-nvcc."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    found = [str(path) for place in wheels for path in place.glob("**/bin/ptxas")]
    return shutil.which("ptxas") or next(iter(found), None)


def ptx_for(case):
    kernel = case.kernel(TARGET)
    return kernel, ptx_of(emit_template(kernel, TARGET), TARGET)


@pytest.mark.parametrize("name", QUICK)
def test_instructions(name):
    """As many products and copies as the plan has, in shared memory that there is; nothing spills to the stack."""
    kernel, text = ptx_for(CASES[name])
    plan = kernel.body
    lines = [line.strip() for line in text.splitlines()]
    count = lambda word: sum(word in line for line in lines)
    assert count("wgmma.mma_async") == 4 * plan.tile.blocks
    assert count(f"m64n{plan.tile.width}k") == 4 * plan.tile.blocks
    boxes = [
        {True: extent // 64, False: 1}[getattr(side, "turned", False)]
        for side, extent in ((plan.a, plan.tile.rows), (plan.b, plan.tile.width))
    ]
    boxes += [plan.a.taps_together(plan.tile) - 1] if isinstance(plan.a, Window) else []
    beside = plan.memory.columns // 64 * plan.tile.blocks if plan.beside else 0
    assert count("cp.async.bulk.tensor") - count("bulk_group [") == sum(boxes) + beside
    assert ".local" not in text
    assert count("griddepcontrol.wait") == 2
    assert plan.launch.shared <= TARGET.shared_bytes
    assert f".maxntid {plan.launch.threads[0]}" in text


def assembled(case, ptxas, folder):
    kernel, text = ptx_for(case)
    source = folder / "kernel.ptx"
    source.write_text(text)
    command = [ptxas, f"-arch={TARGET.arch}", "-v", str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return kernel, done.stderr


def check_log(kernel, log):
    """No spills, no products in series (C75xx), registers for all threads that a block has."""
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert not re.search(r"C75\d\d", log), log
    used = int(re.search(r"Used (\d+) registers", log).group(1))
    resident = getattr(kernel.body.tile, "resident", 1)
    warps = -(-kernel.body.launch.threads[0] // 32)
    assert -(-used // 8) * 8 * 32 * -(-warps // 4) * 4 * resident <= REGISTERS


@pytest.fixture(scope="module")
def ptxas():
    found = assembler()
    if found is None:
        pytest.skip("there is no ptxas: pip install nvidia-cuda-nvcc")
    return found


def test_attention_multiplies_scores_and_values():
    kernel, text = ptx_for(CASES["attention_causal0"])
    plan = kernel.body
    assert plan.values == plan.tile.keys == 128
    assert text.count("wgmma.mma_async.sync.aligned.m64n128k16") == plan.width // 16 + plan.tile.keys // 16
    assert ".local" not in text
    assert plan.launch.shared <= TARGET.shared_bytes


@pytest.mark.parametrize("name", [*QUICK, "attention_causal0", "attention_masked1", "attention_widths9"])
def test_assembles(name, ptxas, tmp_path):
    check_log(*assembled(CASES[name], ptxas, tmp_path))


@pytest.mark.slow
def test_all_assemble(ptxas, tmp_path):
    for name, case in CASES.items():
        kernel, log = assembled(case, ptxas, tmp_path)
        try:
            check_log(kernel, log)
        except AssertionError as error:
            raise AssertionError(f"{name}: {case}") from error
