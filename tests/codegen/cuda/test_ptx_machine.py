"""What runs PTX on numpy finds the faults that it is there to find: in a product whose code is spoiled one way at a
time."""

import pytest
from codegen.cuda.ptx_machine import run_ptx
from codegen.cuda.template_data import data_of, error_of

from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.te.tensor_cores.warp_product import WarpTile
from weft.testing.tensor_cores import ProductCase

SM80 = CudaTarget().changed(arch="sm_80")
CASE = ProductCase(WarpTile("fp16", 64, 64, 2, 2), 70, 66, 500)  # longer than its ring, with tails of rows and columns


def text_of(kernel):
    return CODEGEN.assemble(CODEGEN.emit(kernel, SM80), SM80).decode()


def ran(spoiled=lambda text: text):
    kernel = CASE.kernel(SM80)
    arrays, wanted = data_of(CASE, 3)
    text = spoiled(text_of(kernel))
    run_ptx(text, arrays, kernel.body.launch.blocks[0], kernel.body.launch.shared)
    return error_of(arrays[-1], wanted)


def test_it_runs_as_it_is():
    assert ran() < 1e-3


def replaced(old, new):
    def spoiled(text):
        assert old in text
        return text.replace(old, new)

    return spoiled


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("cp.async.wait_group 4;", "cp.async.wait_group 5;", "still being copied|nobody wrote"),
        ("cp.async.wait_group 4;\nbar.sync 0;", "cp.async.wait_group 4;", "no barrier before it"),
        ("cp.async.wait_group 4;\nbar.sync 0;", "bar.sync 0;\ncp.async.wait_group 4;", "no barrier before it"),
        (", 8, %r", ", 8; // %r", "outside of"),
    ],
)
def test_faults_are_found(old, new, fault):
    """Waits that are too short, barriers that are missing or too early, rows that are not there."""
    with pytest.raises(AssertionError, match=fault):
        ran(replaced(old, new))
