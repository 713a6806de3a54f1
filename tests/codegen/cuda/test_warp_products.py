"""Products by single warps: their PTX run on numpy, thread by thread, against float64; and what NVIDIA's assembler says
of it for every architecture. No GPU is needed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from codegen.cuda.ptx_machine import run_ptx
from codegen.cuda.ptxas import assembled
from codegen.cuda.template_data import bound_of, data_of, error_of

from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.lower.cuda.warp_product import warp_tiles
from weft.testing.tensor_cores import ProductCase, warp_convolution_cases, warp_product_cases

ARCHS = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
CASES = {
    f"{kind}{number}": case
    for kind, cases in (warp_product_cases() | warp_convolution_cases()).items()
    for number, case in enumerate(cases)
}
SMALL = [name for name, case in CASES.items() if "large" not in name and "chosen" not in name]
QUICK = [name for name in SMALL if re.match("warp_(smallest|orders|odd|shared|window)", name)]
ONE = CudaTarget().changed(arch="sm_80")


def check(name):
    case = CASES[name]
    arrays, wanted = data_of(case, len(name))
    kernel = case.kernel(ONE)
    text = CODEGEN.assemble(CODEGEN.emit(kernel, ONE), ONE).decode()
    launch = kernel.body.launch
    run_ptx(text, arrays, launch.blocks[0], launch.shared)
    assert error_of(arrays[-1], wanted) < bound_of(case, kernel.body.tile), case


@pytest.mark.parametrize("name", QUICK)
def test_threads_compute_products(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SMALL) - set(QUICK)))
def test_threads_compute_more_products(name):
    check(name)


def check_assembly(case, target, folder):
    kernel = case.kernel(target)
    code = CODEGEN.assemble(CODEGEN.emit(kernel, target), target)
    plan, text = kernel.body, code.decode()
    assert ".local" not in text
    assert plan.launch.shared <= target.shared_bytes
    assert text.count("mma.sync") == 4 * np.prod(plan.tile.blocks) * (3 if plan.tile.exact else 1)
    made = assembled(code, target.arch, folder)
    assert (made.spilled, made.stack) == (0, 0), f"{case} for {target.arch}: {made.log}"
    assert not re.search(r"C75\d\d", made.log), made.log
    threads, resident = plan.launch.threads[0], plan.tile.resident
    assert -(-made.registers // 8) * 8 * threads * resident <= target.registers
    assert resident * (plan.launch.shared + 1024) <= target.shared_bytes + 1024


def tiles_of(target):
    """All tiles that are chosen from, for operands as they come and as they are turned."""
    kinds = [("fp16", False), ("bf16", False), ("tf32", False), ("tf32", True)]
    return [tile for kind, exact in kinds for tile in warp_tiles(kind, exact, target)]


@pytest.mark.parametrize("arch", ARCHS)
def test_assembles_for_every_architecture(arch, tmp_path):
    """The largest and the smallest tiles of a dtype of 16 bits and of float32, with all that may follow."""
    target = CudaTarget().changed(arch=arch)
    for kind, exact in (("fp16", False), ("tf32", True)):
        tiles = warp_tiles(kind, exact, target)
        assert len(tiles) > 4
        for tile in (max(tiles, key=lambda t: t.sums), min(tiles, key=lambda t: t.sums)):
            case = ProductCase(tile, 1030, 776, 520, kind, bias=True, other=True, activation="gelu", exact=exact)
            check_assembly(case, target, tmp_path)


@pytest.mark.parametrize("arch", ARCHS)
def test_windows_assemble(arch, tmp_path):
    target = CudaTarget().changed(arch=arch)
    for name in ("warp_window0", "warp_window3", "warp_window14", "warp_window_large0", "warp_window_large1"):
        check_assembly(CASES[name], target, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
@pytest.mark.parametrize("arch", ARCHS)
def test_all_tiles_assemble(arch, turned, tmp_path):
    target = CudaTarget().changed(arch=arch)
    tiles = tiles_of(target)
    if turned[0]:
        tiles = [t for t in tiles if min(t.rows, t.width) >= t.depth and (t.item_bytes == 2 or t.sums <= 64)]
    assert len(tiles) > 20
    for tile in tiles:
        for extents in ((1030, 776, 520), (1024, 1024, 512)):
            check_assembly(ProductCase(tile, *extents, tile.kind, 2, turned, True, True, "relu"), target, tmp_path)
