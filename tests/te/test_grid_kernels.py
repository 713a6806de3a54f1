"""Kernels with blocks, threads, shared memory and barriers, interpreted, against numpy."""

import numpy as np
import pytest

from weft import te
from weft.base.plan import Launch
from weft.te.grid import grid_of, launch_extents
from weft.te.interpret import run_kernel
from weft.te.loops import Alloc, Barrier, For, Kernel, buffer
from weft.te.simplify_loops import statements
from weft.te.transform import bind, legalise, parallelise, split, vectorise

SEEDS = range(3)


def shared(b, name, shape, dtype="float32"):
    return b.alloc(name, dtype, shape, scope="shared")


def matrix_product(tile=4):
    """y = x @ w: each block computes a tile of y from tiles of x and w that its threads fetch."""
    b = te.KernelBuilder("matrix_product")
    m, n, k = b.scalar("m"), b.scalar("n"), b.scalar("k")
    x, w, y = (b.arg(name, "float32", shape) for name, shape in (("x", (m, k)), ("w", (k, n)), ("y", (m, n))))
    rows, cols, tiles = ((size + tile - 1) // tile for size in (m, n, k))
    with b.block("by", rows, "y") as by, b.block("bx", cols) as bx:
        x_tile, w_tile = shared(b, "x_tile", (tile, tile)), shared(b, "w_tile", (tile, tile))
        with b.thread("ty", tile, "y") as ty, b.thread("tx", tile) as tx:
            row, col = b.let("row", by * tile + ty), b.let("col", bx * tile + tx)
            acc = b.alloc("acc", "float32", (), scope="register")
            b.store(acc, (), 0)
            with b.loop("t", tiles) as t:
                across, down = t * tile + tx, t * tile + ty
                b.store(x_tile, (ty, tx), te.read_or(x, (row, across), (row < m) & (across < k), 0))
                b.store(w_tile, (ty, tx), te.read_or(w, (down, col), (down < k) & (col < n), 0))
                b.barrier()
                with b.unrolled("i", tile) as i:
                    b.store(acc, (), acc[()] + x_tile[ty, i] * w_tile[i, tx])
                b.barrier()
            with b.when((row < m) & (col < n)):
                b.store(y, (row, col), acc[()])
    return b.finish()


def block_sums(threads=16):
    """The sum of each run of numbers as long as a block, by halves."""
    b = te.KernelBuilder("block_sums")
    n = b.scalar("n")
    blocks = (n + threads - 1) // threads
    x, y = b.arg("x", "int64", (n,)), b.arg("y", "int64", (blocks,))
    with b.block("i", blocks) as i:
        part = shared(b, "part", (threads,), "int64")
        with b.thread("j", threads) as j:
            at = i * threads + j
            b.store(part, j, te.read_or(x, (at,), at < n, 0))
            b.barrier()
            with b.loop("level", threads.bit_length() - 1) as level:
                half = te.as_expr(threads // 2) >> level
                with b.when(j < half):
                    b.store(part, j, part[j] + part[j + half])
                b.barrier()
            with b.when(j.equal(0)):
                b.store(y, i, part[0])
    return b.finish()


def transpose(tile=4):
    """y = x.T: a tile is read along the rows of x and written along those of y."""
    b = te.KernelBuilder("transpose")
    m, n = b.scalar("m"), b.scalar("n")
    x, y = b.arg("x", "float32", (m, n)), b.arg("y", "float32", (n, m))
    rows, cols = ((size + tile - 1) // tile for size in (m, n))
    with b.block("by", rows, "y") as by, b.block("bx", cols) as bx:
        held = shared(b, "held", (tile, tile + 1))
        with b.thread("ty", tile, "y") as ty, b.thread("tx", tile) as tx:
            with b.when((by * tile + ty < m) & (bx * tile + tx < n)):
                b.store(held, (ty, tx), x[by * tile + ty, bx * tile + tx])
            b.barrier()
            with b.when((bx * tile + ty < n) & (by * tile + tx < m)):
                b.store(y, (bx * tile + ty, by * tile + tx), held[tx, ty])
    return b.finish()


def stencil(tile=4):
    """Each element and its four neighbours, summed; there are zeros around. A block shares its tile
    and a rim of one element, which its threads fetch in several turns."""
    b = te.KernelBuilder("stencil")
    m, n = b.scalar("m"), b.scalar("n")
    x, y = b.arg("x", "float32", (m, n)), b.arg("y", "float32", (m, n))
    wide = tile + 2
    with b.block("by", (m + tile - 1) // tile, "y") as by, b.block("bx", (n + tile - 1) // tile) as bx:
        held = shared(b, "held", (wide, wide))
        with b.thread("ty", tile, "y") as ty, b.thread("tx", tile) as tx:
            with b.loop("turn", -(-(wide**2) // tile**2)) as turn:
                at = b.let("at", (turn * tile + ty) * tile + tx)
                with b.when(at < wide**2):
                    row, col = by * tile + at // wide - 1, bx * tile + at % wide - 1
                    inside = (row >= 0) & (row < m) & (col >= 0) & (col < n)
                    b.store(held, (at // wide, at % wide), te.read_or(x, (row, col), inside, 0))
            b.barrier()
            row, col = by * tile + ty, bx * tile + tx
            with b.when((row < m) & (col < n)):
                across = held[ty + 1, tx] + held[ty + 1, tx + 1] + held[ty + 1, tx + 2]
                b.store(y, (row, col), across + held[ty, tx + 1] + held[ty + 2, tx + 1])
    return b.finish()


def numbers(*shape):
    """Small integers as floats: sums of them are exact in any order."""
    return np.random.default_rng(len(shape)).integers(-9, 10, shape).astype("float32")


def forms(kernel):
    """The kernel as written, and as code generation takes it."""
    return kernel, legalise(kernel)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("m", "n", "k"), [(7, 9, 6), (4, 4, 8), (1, 5, 3), (3, 2, 0)])
def test_matrix_product(m, n, k, seed):
    x, w = numbers(m, k), numbers(k, n)
    for kernel in forms(matrix_product()):
        y = np.full((m, n), np.nan, "float32")
        run_kernel(kernel, [x, w, y], [m, n, k], seed=seed)
        np.testing.assert_array_equal(y, x @ w)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [64, 37, 1, 0])
def test_sums_of_blocks(n, seed):
    x = np.random.default_rng(n).integers(-100, 100, n)
    for kernel in forms(block_sums()):
        y = np.full(-(-n // 16), -1)
        run_kernel(kernel, [x, y], [n], seed=seed)
        assert y.tolist() == [x[at : at + 16].sum() for at in range(0, n, 16)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("m", "n"), [(8, 4), (7, 10), (1, 3)])
def test_transpose(m, n, seed):
    x = numbers(m, n)
    for kernel in forms(transpose()):
        y = np.full((n, m), np.nan, "float32")
        run_kernel(kernel, [x, y], [m, n], seed=seed)
        np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("m", "n"), [(8, 4), (9, 6), (1, 1)])
def test_stencil(m, n, seed):
    x = numbers(m, n)
    wide = np.pad(x, 1)
    expected = wide[1:-1, 1:-1] + wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    for kernel in forms(stencil()):
        y = np.full((m, n), np.nan, "float32")
        run_kernel(kernel, [x, y], [m, n], seed=seed)
        np.testing.assert_array_equal(y, expected)


def test_private_memory_is_each_threads_own():
    b = te.KernelBuilder("private")
    y = b.arg("y", "int64", (2, 4))
    with b.block("i", 2) as i, b.thread("j", 4) as j:
        own = b.alloc("own", "int64", (2,))
        b.store(own, 1, i * 10 + j)
        b.barrier()
        b.store(y, (i, j), own[1])
    made = np.zeros((2, 4), "int64")
    run_kernel(b.finish(), [made])
    assert made.tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_barriers_under_what_memory_says_alike_to_all():
    b = te.KernelBuilder("rotate")
    x = b.arg("x", "int64", (4,))
    turns = b.arg("turns", "int64", ())
    with b.block("i", 1):
        held = shared(b, "held", (4,), "int64")
        with b.thread("j", 4) as j:
            left = b.alloc("left", "int64", (), scope="register")
            b.store(left, (), turns[()])
            with b.repeat_while(left[()] > 0):
                b.store(held, j, x[j])
                b.barrier()
                b.store(x, j, held[(j + 1) % 4])
                b.store(left, (), left[()] - 1)
                b.barrier()
    kernel = b.finish()
    for count in range(4):
        data = np.arange(4)
        run_kernel(kernel, [data, np.array(count)])
        assert data.tolist() == np.roll(np.arange(4), -count).tolist()


def test_a_block_without_threads_is_one_thread():
    b = te.KernelBuilder("rows")
    y = b.arg("y", "int64", (3, 2))
    with b.block("i", 3) as i:
        held = shared(b, "held", (2,), "int64")
        with b.loop("j", 2) as j:
            b.store(held, j, i * 2 + j)
        b.barrier()
        with b.loop("j", 2) as j:
            b.store(y, (i, j), held[j])
    made = np.zeros((3, 2), "int64")
    run_kernel(b.finish(), [made])
    assert made.tolist() == [[0, 1], [2, 3], [4, 5]]


def scaled(n=None):
    b = te.KernelBuilder("scaled")
    size = b.scalar("n") if n is None else n
    x, y = b.arg("x", "float32", (size,)), b.arg("y", "float32", (size,))
    with b.loop("i", size) as i:
        b.store(y, i, x[i] * 2)
    return b.finish()


def test_loops_are_bound_by_name():
    by_blocks = split(scaled(), "i", 8)
    kernel = bind(by_blocks.target, by_blocks.outer, "block.x")
    kernel = legalise(bind(kernel, by_blocks.inner, "thread.x"))
    x, y = numbers(21), np.zeros(21, "float32")
    run_kernel(kernel, [x, y], [21])
    np.testing.assert_array_equal(y, x * 2)
    assert launch_extents(kernel, [21]) == Launch((3, 1, 1), (8, 1, 1))


def test_threads_may_work_on_vectors():
    first = split(scaled(64), "i", 32)
    second = split(first.target, first.inner, 4)
    kernel = bind(bind(second.target, first.outer, "block.x"), second.outer, "thread.x")
    kernel = legalise(vectorise(kernel, second.inner))
    x, y = numbers(64), np.zeros(64, "float32")
    run_kernel(kernel, [x, y])
    np.testing.assert_array_equal(y, x * 2)
    assert "ramp" in te.show(kernel)
    assert launch_extents(kernel) == Launch((2, 1, 1), (8, 1, 1))


def test_the_launch_follows_from_the_sizes():
    kernel = matrix_product(8)
    assert launch_extents(kernel, [20, 33, 5]) == Launch((5, 3, 1), (8, 8, 1))
    assert launch_extents(kernel, [0, 33, 5]) == Launch((5, 0, 1), (8, 8, 1))
    assert grid_of(scaled()) is None
    assert grid_of(parallelise(scaled(), "i")) is None


def test_how_much_a_block_shares():
    assert grid_of(matrix_product(8)).shared_bytes == 2 * 8 * 8 * 4
    assert grid_of(transpose(8)).shared_bytes == 8 * 9 * 4
    rows_apart = buffer("s", "int16", (8, 8), strides=(10, 1), scope="shared")
    nothing = buffer("t", "int64", (8, 0), scope="shared")
    body = For(te.Var("i"), te.as_expr(1), Alloc(rows_apart, Alloc(nothing, Barrier())), "block.x")
    assert grid_of(Kernel("k", (), body)).shared_bytes == (7 * 10 + 7 + 1) * 2


def test_simplifying_keeps_the_grid():
    b = te.KernelBuilder("one")
    y = b.arg("y", "int64", (1,))
    with b.block("i", 1) as i, b.thread("j", 1) as j:
        b.barrier()
        b.store(y, i + j, 7)
    kernel = legalise(b.finish())
    kinds = [s.kind for s in statements(kernel.body) if isinstance(s, For)]
    assert kinds == ["block.x", "thread.x"]
    assert any(isinstance(s, Barrier) for s in statements(kernel.body))
    made = np.zeros(1, "int64")
    run_kernel(kernel, [made])
    assert made.tolist() == [7]


def test_long_kernels_do_not_recurse():
    b = te.KernelBuilder("long")
    y = b.arg("y", "int64", (2,))
    with b.block("i", 1), b.thread("j", 2) as j:
        value = j
        for _ in range(3000):
            value = b.let("v", value + 1)
        b.barrier()
        b.store(y, j, value)
    made = np.zeros(2, "int64")
    run_kernel(b.finish(), [made])
    assert made.tolist() == [3000, 3001]
