"""Statements: loops, branches, register and scratch buffers, masks, gathers; against numpy and the
loop-IR interpreter, with arrays that end at guard pages."""

from __future__ import annotations

import re

import numpy as np
import pytest
from codegen.guard import guarded
from codegen.native import ISAS, elementwise, native, target_of

from weft.base.errors import InvalidValue, NotFound, ShapeError, Unsupported
from weft.codegen.cpu.emit import emit_kernel
from weft.codegen.cpu.object import compile_assembly, compile_object, machine_key
from weft.te.expr import Broadcast, Load, Ramp, Var, as_expr, call, cast, compare, const
from weft.te.interpret import run_kernel
from weft.te.loops import Alloc, For, If, Kernel, Let, Parallel, Prefetch, Seq, Store, While, buffer

rng = np.random.default_rng(0)
ONE = const(1, "int64")


def both(kernel: Kernel, arrays: list[np.ndarray], scalars=(), isa="avx2", end=None) -> None:
    """Native code and the interpreter write the same."""
    copies = [array.copy() for array in arrays]
    run_kernel(kernel, copies, scalars, end=end)
    native(kernel, isa)(arrays, scalars, end=end)
    for got, wanted in zip(arrays, copies):
        np.testing.assert_array_equal(got, wanted)


def register_tile(rows: int, vectors: int, lanes: int, depth: Var) -> Kernel:
    """C[rows, vectors*lanes] = A[rows, depth] @ B[depth, vectors*lanes], all in registers."""
    width = vectors * lanes
    a = buffer("a", "float32", (rows, depth))
    b = buffer("b", "float32", (depth, width))
    c = buffer("c", "float32", (rows, width))
    acc = buffer("acc", "float32", (rows, vectors), scope="register", lanes=lanes)
    r, v, k = Var("r"), Var("v"), Var("k")
    zero = Broadcast(const(0.0, "float32"), lanes)
    index = Ramp(v * lanes, ONE, lanes)

    def tile(body):
        return For(r, as_expr(rows), For(v, as_expr(vectors), body, "unroll"), "unroll")

    step = call("fma", Broadcast(a[r, k], lanes), Load(b, (k, index)), acc[r, v])
    body = Seq(
        (
            tile(Store(acc, (r, v), zero)),
            For(k, depth, tile(Store(acc, (r, v), step))),
            tile(Store(c, (r, index), acc[r, v])),
        )
    )
    return Kernel("tile", (a, b, c), Alloc(acc, body), scalars=(depth,))


@pytest.mark.parametrize(("isa", "lanes", "rows"), [("sse", 4, 4), ("avx2", 8, 4), ("avx512", 16, 8)])
def test_register_tile_multiplies_matrices(isa, lanes, rows):
    depth = int(rng.integers(0, 50))
    a = rng.standard_normal((rows, depth)).astype(np.float32)
    b = rng.standard_normal((depth, 3 * lanes)).astype(np.float32)
    c = guarded(np.full((rows, 3 * lanes), np.nan, np.float32))
    native(register_tile(rows, 3, lanes, Var("depth")), isa)([guarded(a), guarded(b), c], [depth])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


def test_register_tile_stays_in_registers():
    target = target_of("avx512")
    text = compile_assembly(emit_kernel(register_tile(8, 3, 16, Var("depth")), target), target)
    body = text[text.index("tile.body:") : text.index(".Lfunc_end0")]
    loops = re.findall(r"(\.LBB0_\d+):((?:(?!\.LBB0_).)*?\bj\w+\s+\1\b)", body, re.S)
    inner = max((loop for _, loop in loops), key=lambda loop: loop.count("vfmadd"))
    assert inner.count("vfmadd") == 24
    assert "rsp" not in inner
    assert "zmm" in inner
    assert not re.search(r"zmm\d+, -?\d*\(%rsp", body)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool", "float64", "uint16"])
def test_masked_tail_touches_nothing_beyond(isa, dtype):
    size = int(rng.integers(1, 70))
    x = guarded((rng.random(size) * 3).astype(dtype))
    i, n = Var("i"), Var("n")
    source, target = buffer("x", dtype, (n,)), buffer("y", dtype, (n,))
    index = Ramp(i * 16, ONE, 16)
    mask = compare("lt", index, n)
    store = Store(target, (index,), Load(source, (index,), mask), mask)
    kernel = Kernel("copy", (source, target), store, Parallel(i, (n + 15) // 16), (n,))
    y = guarded(np.zeros(size, dtype))
    native(kernel, isa)([x, y], [size], end=-(-size // 16))
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_lane_masks_of_every_comparison(op, step):
    out = buffer("out", "bool", (8,))
    lanes = Ramp(const(0, "int64"), ONE, 8)
    limit, start = Var("limit"), Var("start")
    ramp = Ramp(start, const(step, "int64"), 8)
    kernel = Kernel("k", (out,), Store(out, (lanes,), compare(op, ramp, limit)), None, (start, limit))
    run = native(kernel)
    for _ in range(30):
        a, b = (int(v) for v in rng.integers(-12, 12, 2))
        got = np.zeros(8, bool)
        run([got], [a, b])
        wanted = {
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
            "eq": np.equal,
            "ne": np.not_equal,
        }[op](a + step * np.arange(8), b)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "bfloat16"])
def test_strided_gathered_and_scattered_lanes(isa, dtype):
    from_type = buffer("x", dtype, (8, 5))
    table = buffer("t", "int64", (8,))
    out = buffer("y", dtype, (3, 8))
    lane = Ramp(const(0, "int64"), ONE, 8)
    picked = Load(table, (lane,))
    body = Seq(
        (
            Store(out, (const(0, "int64"), lane), Load(from_type, (lane, const(2, "int64")))),
            Store(out, (const(1, "int64"), lane), Load(from_type, (picked, lane % 5))),
            Store(out, (const(2, "int64"), picked), Load(from_type, (lane, picked % 5))),
        )
    )
    kernel = Kernel("k", (from_type, table, out), body)
    x = rng.integers(0, 50, (8, 5)).astype(from_type.dtype)
    order = rng.permutation(8)
    y = guarded(np.zeros((3, 8), from_type.dtype))
    native(kernel, isa)([guarded(x), guarded(order), y])
    lanes = np.arange(8)
    np.testing.assert_array_equal(y[0], x[:, 2])
    np.testing.assert_array_equal(y[1], x[order, lanes % 5])
    np.testing.assert_array_equal(y[2][order], x[lanes, order % 5])


def test_masked_scalar_access_does_not_touch_memory():
    n = 5
    x, y = buffer("x", "float32", (n,)), buffer("y", "float32", (n,))
    i = Var("i")
    inside = (i < n) & (i >= 0)
    store = Store(y, (i,), Load(x, (i + 1,), i + 1 < n), inside)
    kernel = Kernel("shift", (x, y), For(i, as_expr(2000), store))
    source = guarded(rng.standard_normal(n).astype(np.float32))
    target = guarded(np.full(n, np.nan, np.float32))
    native(kernel)([source, target])
    np.testing.assert_array_equal(target, [*source[1:], 0])


def test_while_with_scratch_and_registers():
    """Collatz steps: the value lives in scratch, the count in a register."""
    x, out = buffer("x", "int64", (9,)), buffer("steps", "int64", (9,))
    value = buffer("value", "int64", (1,), scope="scratch")
    count = buffer("count", "int64", (1,), scope="register")
    i, now = Var("i"), Var("now")
    turn = Let(
        now,
        value[0],
        Seq(
            (
                If(
                    compare("eq", now % 2, 0),
                    Store(value, (as_expr(0),), now // 2),
                    Store(value, (as_expr(0),), now * 3 + 1),
                ),
                Store(count, (as_expr(0),), count[0] + 1),
            )
        ),
    )
    body = Seq(
        (
            Store(value, (as_expr(0),), x[i]),
            Store(count, (as_expr(0),), as_expr(0)),
            While(value[0] > 1, turn),
            Store(out, (i,), count[0]),
        )
    )
    kernel = Kernel("collatz", (x, out), Alloc(value, Alloc(count, body)), Parallel(i, as_expr(9)))
    numbers = rng.integers(1, 10_000, 9)
    steps = np.zeros(9, np.int64)
    native(kernel)([numbers, steps])
    for number, got in zip(numbers.tolist(), steps.tolist()):
        wanted = 0
        while number > 1:
            number = number // 2 if number % 2 == 0 else 3 * number + 1
            wanted += 1
        assert got == wanted


@pytest.mark.parametrize("start", [0, 3])
def test_registers_through_branches_and_empty_loops(start):
    n, x, out = Var("n"), buffer("x", "float32", (40,)), buffer("out", "float32", (2,))
    best = buffer("best", "float32", (2,), scope="register")
    i, zero = Var("i"), as_expr(0)
    body = Seq(
        (
            Store(best, (zero,), const(start, "float32")),
            Store(best, (ONE,), const(-1.0, "float32")),
            For(i, n, If(x[i] > best[0], Seq((Store(best, (zero,), x[i]), Store(best, (ONE,), cast(i, "float32")))))),
            Store(out, (zero,), best[0]),
            Store(out, (ONE,), best[1]),
        )
    )
    kernel = Kernel("argmax", (x, out), Alloc(best, body), scalars=(n,))
    data = (rng.random(40) * 10).astype(np.float32)
    run = native(kernel)
    for size in (0, 1, 40):
        got = np.zeros(2, np.float32)
        run([data, got], [size])
        inside = data[:size]
        if size and inside.max() > start:
            assert got.tolist() == [inside.max(), inside.argmax()]
        else:
            assert got.tolist() == [start, -1]


@pytest.mark.parametrize("isa", ISAS)
def test_random_index_kernels_agree_with_the_interpreter(isa):
    for _ in range(8):
        rows, columns = (int(v) for v in rng.integers(1, 9, 2))
        x, y = buffer("x", "int32", (rows, columns)), buffer("y", "int32", (columns, rows))
        i, j, n = Var("i"), Var("j"), Var("n")
        a, b, c = (int(v) for v in rng.integers(1, 7, 3))
        mixed = (i * a + j * b + c) % rows
        value = x[mixed, (j * c + i) // a % columns] + cast((i - j) // b + n * i % c, "int32")
        inner = For(j, as_expr(columns), Store(y, (j, i), value), "unroll" if a % 2 else "serial")
        kernel = Kernel("k", (x, y), inner, Parallel(i, as_expr(rows)), (n,))
        data = rng.integers(-99, 99, (rows, columns)).astype(np.int32)
        both(kernel, [data, np.zeros((columns, rows), np.int32)], [int(rng.integers(-9, 9))], isa)


def test_scalar_arguments_of_every_kind():
    out = buffer("out", "float64", (5,))
    kinds = ["int64", "float32", "float64", "uint8", "bool"]
    scalars = tuple(Var(f"s{n}", np.dtype(kind)) for n, kind in enumerate(kinds))
    stores = [Store(out, (as_expr(n),), cast(var, "float64")) for n, var in enumerate(scalars)]
    got = np.zeros(5)
    native(Kernel("k", (out,), Seq(tuple(stores)), None, scalars))([got], [-7, 1.5, -2.25, 200, 1])
    assert got.tolist() == [-7, 1.5, -2.25, 200, 1]


def test_o2_pipeline_and_prefetch():
    n = Var("n")
    x, y = buffer("x", "float32", (n,), alignment=4), buffer("y", "float32", (n,))
    i = Var("i")
    body = Seq((Prefetch(x, (i + 64,)), Store(y, (i,), x[i] * x[i] + 1.0)))
    kernel = Kernel("square", (x, y), For(i, n, body), None, (n,))
    data = rng.standard_normal(100).astype(np.float32)
    for options in ({}, {"passes": "O2"}, {"passes": "O2", "may_alias": True}):
        got = guarded(np.zeros(100, np.float32))
        native(kernel, **options)([guarded(data), got], [100])
        np.testing.assert_allclose(got, data * data + 1, rtol=1e-6)


def test_deep_expressions_do_not_recurse():
    x = rng.random(3).astype(np.float32)

    def chain(a):
        for _ in range(5000):
            a = a + 1.0
        return a

    np.testing.assert_allclose(elementwise(chain, [x], "float32", "avx2", 1), x + 5000, atol=0.05)


def test_wide_vectors_are_used_on_avx512():
    target = target_of("avx512")
    x = buffer("x", "float32", (16,))
    index = Ramp(as_expr(0), ONE, 16)
    kernel = Kernel("k", (x,), Store(x, (index,), Load(x, (index,)) * 2.0))
    assert "zmm" in compile_assembly(emit_kernel(kernel, target), target)


def test_bad_kernels_are_refused():
    x = buffer("x", "float32", (4,))
    i, stray = Var("i"), Var("stray")
    with pytest.raises(NotFound, match="stray"):
        native(Kernel("k", (x,), Store(x, (stray,), x[0])))
    register = buffer("r", "float32", (4,), scope="register")
    loop = For(i, as_expr(4), Store(register, (i,), x[i]))
    with pytest.raises(InvalidValue, match="register buffer r"):
        native(Kernel("k", (x,), Alloc(register, loop)))
    big = buffer("big", "float32", (1 << 22,), scope="scratch")
    with pytest.raises(Unsupported, match="scratch buffer big"):
        native(Kernel("k", (x,), Alloc(big, Store(big, (as_expr(0),), x[0]))))
    good = native(Kernel("k", (x,), Store(x, (as_expr(0),), x[1])))
    with pytest.raises(ShapeError):
        good([np.zeros(3, np.float32)])
    with pytest.raises(InvalidValue):
        good([])
    with pytest.raises(TypeError):
        good([np.zeros(4)])


def test_object_code_is_reproducible_and_keyed_by_what_it_depends_on():
    x = buffer("x", "float32", (4,))
    kernel = Kernel("k", (x,), Store(x, (as_expr(0),), x[1]))
    small, wide = target_of("sse"), target_of("avx2")
    ir = emit_kernel(kernel, small)
    assert ir == emit_kernel(kernel, small)
    assert compile_object(ir, small) == compile_object(ir, small)
    assert machine_key(small) == machine_key(small) != machine_key(wide)
