"""Products of a few rows: the interpreter's answers against numpy's in float64, what ptxas makes of the kernels, and
when the template is chosen."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest
from codegen.cuda.ptx_text import loads_at_once
from codegen.cuda.ptxas import assembled
from lower.cuda.group_runs import interpreted

import weft.ops  # noqa: F401
from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.lower.cuda.few_rows import has_few_rows, most_of_template, most_rows
from weft.te.interpret import run_kernel
from weft.te.loops import WholeKernel
from weft.testing.few_rows import FewRowsCase, few_rows_cases
from weft.testing.kernel_cases import check_case, run_case

rng = np.random.default_rng(11)
TARGET = CudaTarget()
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def drawn(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def ran(case, arrays, seed=0):
    return run_case(case, TARGET, arrays, lambda kernel, given: run_kernel(kernel, given, seed=seed))


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [
        (1, 1, 9, 264),  # turns that all threads have, and one that some have
        (1, 3, 18, 67),  # odd k: one element at a time, or across
        (2, 8, 11, 24),  # short k; odd columns
        (2, 20, 2, 16),  # few columns: the same turned around
        (1, 1, 1, 1),
    ],
)
def test_products(batch, rows, columns, depth, dtype, turned):
    case = FewRowsCase(rows, columns, depth, dtype, batch, turned)
    arrays = case.arrays()
    check_case(ran(case, arrays), case.wanted(arrays), dtype)


@pytest.mark.parametrize("turned", [False, True])
def test_a_long_k_is_shared_by_warps(turned):
    case = FewRowsCase(2, 3, 2052, "float32", 1, (False, turned))
    arrays = case.arrays()
    assert case.cut(TARGET).split > 1
    check_case(ran(case, arrays), case.wanted(arrays), "float32")


def test_sums_repeat_to_the_bit():
    """Blocks and threads run in another order each time."""
    case = FewRowsCase(2, 5, 300, "float32", 1, (False, True))
    arrays = case.arrays()
    results = [ran(case, arrays, seed) for seed in range(3)]
    np.testing.assert_array_equal(results[1:], [results[0]] * 2)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_not_finite_stays_in_its_row_and_column(turned):
    case = FewRowsCase(2, 7, 270, "float32", 1, (False, turned))
    arrays = case.arrays()
    a, b = arrays["a"], arrays["b"].swapaxes(1, 2) if turned else arrays["b"]
    a[0, 1, 269] = np.inf
    b[0, 3, 5] = np.nan
    b[0, 4, 269] = 0
    with np.errstate(invalid="ignore"):
        wanted = case.wanted(arrays)
    got = ran(case, arrays)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(wanted) * np.sign(wanted))
    assert np.isnan(got).sum() == 3  # column 3 of both rows, and infinity times 0


def test_groups_with_all_that_follows():
    x, w, b, r = drawn(2, 3, 40), drawn(10, 40), drawn(10), drawn(2, 3, 10)
    names = [Variable(name) for name in "xwbr"]
    dense = Op.get("dense")(*names[:3], units=10)
    made = Op.get("relu")(Op.get("elemwise_add")(dense, names[3]))
    got, kernels = interpreted(made, TARGET, {"x": x, "w": w, "b": b, "r": r})
    wide = [array.astype(np.float64) for array in (x, w, b, r)]
    assert len(kernels) == 1
    check_case(got, np.maximum(wide[0] @ wide[1].T + wide[2] + wide[3], 0), "float32")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_batches_that_share_matrices(arch):
    a, b = drawn(2, 3, 1, 16, dtype="float16"), drawn(3, 16, 24, dtype="float16")
    made = Op.get("batch_matmul")(Variable("a"), Variable("b"))
    got, kernels = interpreted(made, TARGET.changed(arch=arch), {"a": a, "b": b})
    assert [kernel.resident > 0 for kernel in kernels] == [True]
    check_case(got, a.astype(np.float64) @ b.astype(np.float64), "float16")


def test_squeezed_images_are_rows():
    """A convolution of 1x1 pixels, as squeeze-and-excite has."""
    x, w = drawn(1, 1, 1, 48, dtype="float16"), drawn(10, 1, 1, 48, dtype="float16")
    layouts = {"layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC", "use_bias": False}
    made = Op.get("conv2d")(Variable("x"), Variable("w"), channels=10, kernel_size=(1, 1), **layouts)
    got, kernels = interpreted(made, TARGET, {"x": x, "w": w})
    assert [kernel.resident > 0 for kernel in kernels] == [True]
    check_case(got[0, 0, 0], w[:, 0, 0].astype(np.float64) @ x[0, 0, 0].astype(np.float64), "float16")


# When it is chosen


def test_rows_are_few_while_memory_is_slower_than_multiplying():
    rate, memory = 256 * 132 * 1980e6, 4300e9  # operations and bytes a second of an H200
    assert [most_rows(np.dtype(name), TARGET) for name in ("float16", "float32")] == [4, 8]
    for dtype in map(np.dtype, ("float16", "float32")):
        most = most_rows(dtype, TARGET)
        assert 2 * most / (0.3 * rate) <= dtype.itemsize / memory
    slow = TARGET.changed(clock_mhz=700)  # multiplies as fast as memory gives at fewer rows
    assert most_rows(np.dtype("float16"), slow) == int(0.3 * 256 * 132 * 700e6 / memory)
    assert most_rows(np.dtype("float32"), slow) > most_rows(np.dtype("float16"), slow)


def test_many_rows_go_to_tensor_cores():
    for rows, depth, few in (
        (1, 16, True),
        (4, 16, True),
        (5, 16, False),
        (64, 16, False),
        (8, 15, True),
        (9, 15, False),
    ):
        x, w = drawn(rows, depth, dtype="float16"), drawn(16, depth, dtype="float16")
        made = Op.get("dense")(Variable("x"), Variable("w"), units=16, use_bias=False)
        _, kernels = interpreted(made, TARGET, {"x": x, "w": w})
        assert isinstance(kernels[0].body, WholeKernel) == (not few)
        assert has_few_rows(rows, 16, most_of_template(x.dtype, TARGET, otherwise=depth % 8 == 0)) == few


def test_warps_fill_the_machine_and_share_no_more_than_that_takes():
    cut = lambda *sizes, turned=False: FewRowsCase(*sizes, "float16", 1, (False, turned)).cut(TARGET)
    wide = cut(1, 50257, 768)
    assert (wide.split, wide.lanes) == (1, 8)
    assert wide.own * -(-768 // (8 * 32)) >= 8  # loads that a thread has in flight
    assert cut(1, 768, 3072).split > 1
    assert cut(8, 14336, 4096).own > cut(1, 14336, 4096).own  # a row that is read serves more columns
    assert cut(1, 14336, 4096, turned=True).across == 8
    assert cut(1, 40, 16).across == 16  # threads beside each other where k is short


# What the assembler makes of them


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", NUMPY)
def test_loads_are_under_way_before_the_first_of_them_is_used(dtype, turned):
    kernel = FewRowsCase(1, 14336, 4096, dtype, 1, (False, turned)).kernel(TARGET)
    assert loads_at_once(CODEGEN.assemble(CODEGEN.emit(kernel, TARGET), TARGET).decode()) >= 8


CASES = [(kind, case) for kind, cases in few_rows_cases().items() for case in cases]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "case"), CASES, ids=str)
def test_ptx(kind, case, tmp_path):
    for arch in ("sm_80", "sm_90a") if kind == "chosen" else ("sm_90a",):
        target = TARGET.changed(arch=arch)
        kernel = case.kernel(target)
        code = CODEGEN.code(kernel, CODEGEN.assemble(CODEGEN.emit(kernel, target), target))
        text = code.code.decode()
        bits = 8 * np.dtype(NUMPY[case.dtype]).itemsize
        vectors = text.count(".v4.b32") + text.count(".v4.f32") + text.count(".v2.b64") + text.count(".v8.b16")
        assert ".local" not in text, "a stack"
        assert bool(vectors) == (case.cut(target).lanes * bits == 128)
        assert "mma" not in text
        made = assembled(code.code, target.arch, tmp_path)
        assert made.spilled == 0, made.log
        assert made.stack == 0, made.log
        assert made.registers * prod(code.launch.threads) * kernel.resident <= target.registers
