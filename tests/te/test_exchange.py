"""Exchanges between the threads of a warp: what they mean, where they may stand, how they print."""

import numpy as np
import pytest

import weft
from weft import te
from weft.base.cpu_target import CpuTarget
from weft.codegen.cpu.emit import emit_kernel
from weft.te.interpret import run_kernel
from weft.te.printer import show

rng = np.random.default_rng(3)


def butterfly(threads, dtype="float32", rows=1):
    """The sum of 32 elements in every thread of each warp."""
    b = te.KernelBuilder("sums")
    x, y = (b.arg(name, dtype, (rows, threads)) for name in "xy")
    with b.block("block", 1), b.thread("row", rows, "y") as row, b.thread("t", threads) as t:
        total, other = (b.alloc(name, dtype, (), scope="register") for name in ("total", "other"))
        b.store(total, (), x[row, t])
        for distance in (16, 8, 4, 2, 1):
            b.exchange(other, (), total[()], distance)
            b.store(total, (), total[()] + other[()])
        b.store(y, (row, t), total[()])
    return b.finish()


@pytest.mark.parametrize(("threads", "rows"), [(32, 1), (64, 1), (32, 3), (16, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_every_thread_gets_the_sum_of_its_warp(threads, rows, dtype):
    x = (rng.normal(size=(rows, threads)) * 8).astype(dtype)
    y = np.full_like(x, 99)
    run_kernel(butterfly(threads, dtype, rows), [x, y])
    expected = x.reshape(-1, 32).sum(1, keepdims=True).repeat(32, 1).reshape(rows, threads)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y.reshape(-1, 32), y.reshape(-1, 32)[:, :1].repeat(32, 1))  # the same bits


def test_a_partner_that_there_is_not_is_an_error():
    with pytest.raises(weft.Error, match="exchanges with number"):
        run_kernel(butterfly(24), [np.zeros((1, 24), "float32")] * 2)


def test_an_exchange_is_no_barrier():
    """What a thread wrote to shared memory is not there for others yet."""
    b = te.KernelBuilder("race")
    y = b.arg("y", "float32", (32,))
    with b.block("block", 1):
        row = b.alloc("row", "float32", (32,), scope="shared")
        with b.thread("t", 32) as t:
            other = b.alloc("other", "float32", (), scope="register")
            b.store(row, t, 1)
            b.exchange(other, (), te.cast(t, "float32"), 1)
            b.store(y, t, row[31 - t] + other[()])
    with pytest.raises(weft.Error, match="no barrier is between"):
        run_kernel(b.finish(), [np.zeros(32, "float32")])


def test_threads_cannot_pass_an_exchange_by():
    b = te.KernelBuilder("parted")
    y = b.arg("y", "float32", (32,))
    with b.block("block", 1), b.thread("t", 32) as t:
        other = b.alloc("other", "float32", (), scope="register")
        with b.when(t < 16):
            b.exchange(other, (), te.cast(t, "float32"), 1)
            b.store(y, t, other[()])
    with pytest.raises(weft.Error, match="an exchange is inside a condition on t"):
        b.finish()


def test_what_cannot_be_exchanged():
    b = te.KernelBuilder("k")
    y = b.arg("y", "float32", (32,))
    with b.block("block", 1), b.thread("t", 32) as t:
        other = b.alloc("other", "float32", (), scope="register")
        with pytest.raises(weft.Error, match="distance of 32"):
            b.exchange(other, (), te.cast(t, "float32"), 32)
        with pytest.raises(weft.Error, match="int64"):
            b.exchange(other, (), t, 1)
        with pytest.raises(weft.Error, match="registers"):
            b.exchange(y, t, te.cast(t, "float32"), 1)
        b.store(y, t, 0)


def test_it_prints_and_cpus_refuse_it():
    kernel = butterfly(32)
    assert "other[] = exchange(total[], 16)" in show(kernel)
    with pytest.raises(weft.Error, match="GPU"):
        emit_kernel(kernel, CpuTarget.create())
