"""What the interpreter finds wrong with kernels that have a grid, and whom it names."""

import re

import numpy as np
import pytest

from weft import te
from weft.base.errors import BarrierError, InvalidValue, OutOfRange, RaceError, UninitialisedError
from weft.te.grid import launch_extents
from weft.te.interpret import run_kernel
from weft.te.transform import legalise

SEEDS = range(4)


def kernel_of(body, threads=4, blocks=1):
    """A kernel over x and y of 8 numbers each, with shared memory s of as many as threads."""
    b = te.KernelBuilder("k")
    x, y = b.arg("x", "int64", (8,)), b.arg("y", "int64", (8,))
    with b.block("i", blocks) as i:
        s = b.alloc("s", "int64", (threads,), scope="shared")
        with b.thread("j", threads) as j:
            body(b, x, y, s, i, j)
    return b.finish()


def run(kernel, seed=0, x=None):
    x = np.arange(8) if x is None else x
    y = np.full(8, -1)
    run_kernel(kernel, [x, y], seed=seed)
    return y.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_some_threads_end_and_others_wait(seed):
    def body(b, x, y, s, i, j):
        with b.when(x[j] > 2):
            b.barrier()

    kernel = kernel_of(body)
    with pytest.raises(BarrierError) as caught:
        run(kernel, seed)
    text = str(caught.value)
    assert re.search(r"thread \(j=3\) waits .* thread \(j=[012]\) does not reach: it has end", text)
    assert "kernel k, block (i=0)" in text
    run(kernel, seed, x=np.full(8, 3))
    run(kernel, seed, x=np.full(8, 2))


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_wait_at_different_barriers(seed):
    def body(b, x, y, s, i, j):
        with b.when(x[j] > 2):
            b.barrier()
        with b.otherwise():
            b.barrier()

    with pytest.raises(BarrierError, match=r"thread \(j=.\) does not reach: it waits at another"):
        run(kernel_of(body), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_take_different_numbers_of_turns(seed):
    def body(b, x, y, s, i, j):
        with b.loop("turn", x[j]):
            b.barrier()

    with pytest.raises(BarrierError, match="it has ended"):
        run(kernel_of(body), seed)


def test_nobody_goes_past_a_barrier_before_all_are_there():
    def body(b, x, y, s, i, j):
        b.store(s, j, x[j])
        b.barrier()
        b.store(y, j, s[0] + s[1] + s[2] + s[3])

    for seed in SEEDS:
        assert run(kernel_of(body), seed) == [6, 6, 6, 6, -1, -1, -1, -1]


@pytest.mark.parametrize("write", [False, True])
def test_outside_of_memory(write):
    def body(b, x, y, s, i, j):
        if write:
            b.store(s, i + j, 1)
        else:
            b.store(y, i * 4 + j, x[i * 5 + j])

    with pytest.raises(OutOfRange, match=r"index \([48]\) of buffer [sx] is outside axis 0") as got:
        run(kernel_of(body, blocks=2))
    assert got.value.where == "kernel k, block (i=1), thread (j=3)"


def test_every_axis_is_named_from_the_outermost_in():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (17,))
    with b.block("by", 2, "y") as by, b.block("bx", 3) as bx, b.thread("ty", 1, "y"), b.thread("tx", 3) as tx:
        b.store(x, by * 9 + bx * 3 + tx, 1)
    with pytest.raises(OutOfRange) as caught:
        run_kernel(b.finish(), [np.zeros(17, "int64")])
    assert caught.value.where == "kernel k, block (by=1, bx=2), thread (ty=0, tx=2)"


def test_shared_memory_that_nobody_wrote():
    def body(b, x, y, s, i, j):
        with b.when(j < 3):
            b.store(s, j, 1)
        b.barrier()
        b.store(y, j, s[j])

    with pytest.raises(UninitialisedError, match=r"element \(3,\) of shared memory s") as caught:
        run(kernel_of(body))
    assert caught.value.where == "kernel k, block (i=0), thread (j=3)"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_does_not_see_what_another_shares(seed):
    def body(b, x, y, s, i, j):
        with b.when(i.equal(0)):
            b.store(s, j, 1)
        b.barrier()
        b.store(y, i * 4 + j, s[j])

    with pytest.raises(UninitialisedError, match=r"block \(i=1\)"):
        run(kernel_of(body, blocks=2), seed)


def without_a_barrier(b, x, y, s, i, j):
    """The second store overtakes what others still read."""
    b.store(s, j, x[j])
    b.barrier()
    b.store(y, j, s[(j + 1) % 4])
    b.store(s, j, 7)


def reader_of_the_first_value(b, x, y, s, i, j):
    """Whether it is there yet depends on the order."""
    b.store(s, j, x[j])
    b.store(y, j, s[(j + 1) % 4])


def several_writers(b, x, y, s, i, j):
    b.store(s, 0, x[j])


def reader_after_writer(b, x, y, s, i, j):
    b.store(s, j, 0)
    b.barrier()
    b.store(s, j, x[j])
    b.store(y, j, s[(j + 1) % 4])


def two_readers_one_writes(b, x, y, s, i, j):
    """All read the element that one of them writes after reading it."""
    with b.when(j.equal(2)):
        b.store(s, 2, 0)
    b.barrier()
    b.store(y, j, s[2])
    with b.when(j.equal(2)):
        b.store(s, 2, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "body", [without_a_barrier, reader_of_the_first_value, several_writers, reader_after_writer, two_readers_one_writes]
)
def test_races_on_shared_memory(body, seed):
    with pytest.raises(RaceError, match=r"element \(\d,\) of s is (read|written) by thread \(j=.\)"):
        run(kernel_of(body), seed)


def test_a_race_names_both_threads_and_what_they_do():
    def body(b, x, y, s, i, j):
        b.store(s, j, 0)
        b.barrier()
        with b.when(j.equal(1)):
            b.store(s, 3, 1)
        with b.when(j.equal(2)):
            b.store(y, 0, s[3])

    found = set()
    for seed in range(8):
        with pytest.raises(RaceError) as caught:
            run(kernel_of(body), seed)
        found.add(caught.value.what)
        assert caught.value.why == "no barrier is between"
    assert found == {
        "element (3,) of s is written by thread (j=1) and read by thread (j=2)",
        "element (3,) of s is read by thread (j=2) and written by thread (j=1)",
    }


def test_races_between_the_lanes_of_threads():
    def body(b, x, y, s, i, j):
        with b.when(j < 3), b.vector("lane", 2) as lane:
            b.store(s, j + lane, 5)

    kernel = legalise(kernel_of(body))
    assert "ramp" in te.show(kernel)
    with pytest.raises(RaceError, match=r"of s is written by thread \(j=.\) and written by"):
        run(kernel)


@pytest.mark.parametrize("seed", SEEDS)
def test_races_on_arguments(seed):
    def between_threads(b, x, y, s, i, j):
        b.store(y, j // 2, x[j])

    def between_blocks(b, x, y, s, i, j):
        b.store(y, j, i)

    def block_reads_another(b, x, y, s, i, j):
        b.store(y, i * 4 + j, y[(i * 4 + j + 4) % 8])

    with pytest.raises(RaceError, match=r"of y is written by thread \(j=.\) and written by"):
        run(kernel_of(between_threads), seed)
    for body in (between_blocks, block_reads_another):
        with pytest.raises(RaceError, match=r"of y is \w+ by block \(i=[01]\)") as caught:
            run(kernel_of(body, blocks=2), seed)
        assert caught.value.why == "blocks run in any order"


def test_what_is_no_race():
    def body(b, x, y, s, i, j):
        b.store(s, j, x[0])  # all read one element
        b.store(s, j, s[j] + 1)  # a thread reads and writes its own
        b.barrier()
        b.store(s, (j + 1) % 4, s[(j + 1) % 4] + j)  # after a barrier, another's
        b.barrier()
        b.store(y, i * 4 + j, s[j] + s[0] * 0)

    for seed in SEEDS:
        assert run(kernel_of(body, blocks=2), seed) == [4, 1, 2, 3] * 2


def first_to_fail(axis, seed):
    def body(b, x, y, s, i, j):
        b.store(y, (i if axis == "i" else j) + 100, 0)

    with pytest.raises(OutOfRange) as caught:
        run(kernel_of(body, blocks=4), seed)
    return re.search(rf"\({axis}=(\d)\)", caught.value.where)[1]


@pytest.mark.parametrize("axis", ["i", "j"])
def test_blocks_and_threads_run_in_an_order_that_the_seed_decides(axis):
    orders = [first_to_fail(axis, seed) for seed in range(12)]
    assert orders == [first_to_fail(axis, seed) for seed in range(12)]
    assert len(set(orders)) > 1


def test_more_blocks_than_a_launch_takes():
    b = te.KernelBuilder("k")
    n = b.scalar("n")
    with b.block("i", n, "y"):
        pass
    kernel = b.finish()
    assert launch_extents(kernel, [65535]).blocks == (1, 65535, 1)
    with pytest.raises(InvalidValue, match="65536 blocks along y"):
        launch_extents(kernel, [65536])
    with pytest.raises(InvalidValue, match="takes 1 scalars, not 0"):
        launch_extents(kernel)


def test_a_kernel_without_a_grid_has_no_launch():
    with pytest.raises(InvalidValue, match="kernel plain has no grid"):
        launch_extents(te.KernelBuilder("plain").finish())
