"""Plans of tensor-core products mean what numpy computes: the interpreter runs them as loops."""

import ml_dtypes
import numpy as np
import pytest

from weft.base.cuda_target import CudaTarget
from weft.base.errors import InvalidValue
from weft.te.interpret import run_kernel
from weft.te.tensor_cores.product import Tile
from weft.te.tensor_cores.warp_product import WarpTile
from weft.testing.tensor_cores import ConvolutionCase, ProductCase

rng = np.random.default_rng(0)
TARGET = CudaTarget()
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def drawn(*shape, dtype):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def ran(case, *arrays, shape):
    out = np.full(shape, np.nan, NUMPY[getattr(case, "out_dtype", case.dtype)])
    kernel = case.kernel(TARGET)
    given = [
        np.ascontiguousarray(array).reshape([int(extent.value) for extent in buffer.shape])
        for array, buffer in zip((*arrays, out), kernel.buffers)
    ]
    run_kernel(kernel, given)
    return given[-1].reshape(shape).astype(np.float64)


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("kind", ["fp16", "bf16", "tf32"])
def test_product_with_all_that_follows(kind, turned):
    if kind == "tf32" and any(turned):
        turned = (False, False)
    case = ProductCase(None, 5, 16, 24, kind, 2, turned, bias=True, other=True, activation="relu")
    a, b = drawn(2, 5, 24, dtype=case.dtype), drawn(2, 16, 24, dtype=case.dtype)
    bias, other = drawn(16, dtype=case.dtype), drawn(2, 5, 16, dtype=case.dtype)
    wide = [x.astype(np.float64) for x in (a, b, bias, other)]
    wanted = np.maximum(wide[0] @ wide[1].swapaxes(1, 2) + wide[2] + wide[3], 0)
    stored = [x.swapaxes(1, 2) if t else x for x, t in zip((a, b), turned)]
    got = ran(case, *stored, bias, other, shape=(2, 5, 16))
    np.testing.assert_allclose(got, wanted, atol={"fp16": 1e-2, "bf16": 8e-2, "tf32": 1e-5}[kind])


def test_convolution_reads_windows():
    case = ConvolutionCase(None, (2, 4, 4, 8), 8, (3, 2), (2, 1), (1, 0, 1, 1), (1, 2), other=True)
    down, across = case.image
    x, w = drawn(2, 4, 4, 8, dtype="float16"), drawn(8, 3, 2, 8, dtype="float16")
    bias, other = drawn(8, dtype="float16"), drawn(2, down, across, 8, dtype="float16")
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (0, 1), (0, 0)))
    wanted = np.zeros((2, down, across, 8))
    for r in range(3):
        for s in range(2):
            part = padded[:, r : r + 2 * down - 1 : 2, 2 * s : 2 * s + across]
            wanted += part @ w[:, r, s].astype(np.float64).T
    wanted = np.maximum(wanted + bias.astype(np.float64) + other, 0)
    got = ran(case, x, w, bias, other, shape=wanted.shape)
    np.testing.assert_allclose(got, wanted, atol=2e-2)


def test_tiles_that_cannot_be_are_refused():
    with pytest.raises(InvalidValue, match="tiles"):
        ProductCase(Tile("fp16", 1, 64, split=4), 64, 64, 128).kernel(TARGET)


def test_tiles_of_single_warps_that_cannot_be_are_refused():
    target = CudaTarget().changed(arch="sm_86")
    with pytest.raises(InvalidValue, match="shared memory"):
        ProductCase(WarpTile("fp16", 128, 256), 64, 64, 128).kernel(target)
    with pytest.raises(InvalidValue, match="by columns"):
        ProductCase(WarpTile("fp16", 32, 64, 1, 4), 64, 64, 128, turned=(True, False)).kernel(target)


def test_single_warps_fill_their_machine():
    """Large tiles where there is much to do, small ones where there is little; less where shared memory is short."""
    a100 = CudaTarget().changed(arch="sm_80", sms=108, clock_mhz=1410)
    a10 = CudaTarget().changed(arch="sm_86", sms=72, clock_mhz=1695)
    chosen = lambda target, *shape, kind="fp16": ProductCase(None, *shape, kind).kernel(target).body
    assert chosen(a100, 4096, 4096, 4096).tile[1:3] == (128, 256)
    assert chosen(a10, 4096, 4096, 4096).tile[1:3] == (128, 128)
    small = chosen(a100, 128, 768, 3072)
    assert small.tile.rows * small.tile.width <= 64 * 64
    assert small.ring.stages > 3  # it is alone on its multiprocessor
    for target in (a100, a10):
        plan = chosen(target, 1000, 1000, 1000, kind="tf32")
        assert plan.launch.shared <= target.shared_bytes
        assert plan.tile.exact


def test_chosen_tiles_fill_the_machine():
    """What was measured to be the best on an H200, or within a few percent of it."""
    chosen = lambda *shape, kind="bf16": ProductCase(None, *shape, kind).kernel(TARGET).body.tile
    assert (chosen(4096, 4096, 4096).rows, chosen(4096, 4096, 4096).width) == (128, 256)
    assert chosen(128, 768, 3072).split == 4
    assert chosen(128, 1024, 1024).split == 2
    assert chosen(512, 3072, 768).split == 1
