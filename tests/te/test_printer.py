"""The text of expressions, computes and kernels, as written by hand."""

import textwrap

import pytest

from weft import te
from weft.te.expr import Broadcast, Ramp, Var

i, j = Var("i"), Var("j")
x = te.placeholder((4, 8), "float32", "x")

EXPRESSIONS = [
    (i + j * 2 - (i - j), "i + j * 2 - (i - j)"),
    ((i + 1) // 4 % 8, "(i + 1) // 4 % 8"),
    (i * (j * 2), "i * (j * 2)"),
    (-(i + 1), "-(i + 1)"),
    (te.as_expr(-3) + i, "-3 + i"),
    (i - -3, "i - -3"),
    ((i < 3) & ~(j >= i) | i.equal(j), "i < 3 & ~(j >= i) | i == j"),
    (te.select(i < 3, x[i, j], 0), "select(i < 3, x[i, j], 0.0)"),
    (te.max(te.exp(x[i, 0]), 1e-6), "max(exp(x[i, 0]), 1e-06)"),
    (te.const(1.5, "float16"), "float16(1.5)"),
    (te.cast(x[i, j], "int8") + 1, "cast<int8>(x[i, j]) + int8(1)"),
    (te.read_or(x, (i, j), j < 8, 0), "select(j < 8, x[i, j if j < 8], 0.0)"),
    (Ramp(i * 4, te.as_expr(1), 4) + 2, "ramp(i * 4, 1, x4) + broadcast(2, x4)"),
    (Broadcast(te.const(True, "bool"), 2), "broadcast(true, x2)"),
    (Var("i") + i, "i + i_1"),
    (i << 2 >> 1 ^ 3, "i << 2 >> 1 ^ 3"),
]


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS)
def test_expressions(expr, text):
    assert te.show(expr) == text


def test_computes():
    k, m = te.reduce_axis(8), te.reduce_axis(2, "m")
    assert te.show(x) == "x: float32[4, 8]"
    total = te.compute((4,), lambda i: te.sum(x[i, k.var] * 2, (k, m)), "total")
    assert te.show(total) == "total[i]: float32[4] = sum(x[i, k] * 2.0 for k in 0..8, m in 0..2)"
    assert te.show(te.compute((), lambda: x[0, 0], "first")) == "first[]: float32[] = x[0, 0]"


def test_long_shared_parts_are_named():
    value = x[i, j]
    for _ in range(4):
        value = te.tanh(value * value + te.exp(value))
    first, *others = te.show(value).splitlines()
    assert first.startswith("%0 = ")
    assert all(len(line) < 200 for line in [first, *others])


def test_a_kernel():
    b = te.KernelBuilder("everything")
    n = b.scalar("n")
    a, out = b.arg("a", "float32", (n, 8)), b.arg("out", "float32", (n, 8))
    with b.parallel("i", n) as row:
        acc = b.alloc("acc", "float32", (4,), scope="register", lanes=8)
        v = b.let("v", row * 2 + 1)
        with b.vector("j", 8) as col:
            b.store(out, (row, col), te.read_or(a, (v, col), v < n, -1.5))
        with b.when(row < 3):
            b.store(acc, 0, 1)
            with b.unrolled("i", 3) as u:
                b.store(acc, u + 1, acc[u])
        with b.otherwise():
            b.prefetch(a, (row, 0), level=2)
        lane = Ramp(te.as_expr(0), te.as_expr(1), 8)
        b.store(out, (row, lane), acc[3], mask=lane < n)
        with b.repeat_while(a[0, 0] < 1):
            pass
    assert te.show(b.finish()) == textwrap.dedent(
        """\
        kernel everything(a: float32[n, 8], out: float32[n, 8], n: int64):
          parallel i in 0..n:
            alloc acc: float32x8[4] register
            let v = i * 2 + 1
            for j in 0..8 vector:
              out[i, j] = select(v < n, a[v, j if v < n], -1.5)
            if i < 3:
              acc[0] = broadcast(1.0, x8)
              for i_1 in 0..3 unroll:
                acc[i_1 + 1] = acc[i_1]
            else:
              prefetch a[i, 0] level 2
            out[i, ramp(0, 1, x8)] = acc[3] if ramp(0, 1, x8) < broadcast(n, x8)
            while a[0, 0] < 1.0:
              pass"""
    )


def test_a_kernel_with_a_grid():
    b = te.KernelBuilder("rows")
    n = b.scalar("n")
    a, out = b.arg("a", "float32", (n, 8)), b.arg("out", "float32", (n, 8))
    with b.block("i", (n + 3) // 4, "y") as block:
        held = b.alloc("held", "float32", (4, 8), scope="shared")
        with b.thread("r", 4, "z") as r, b.thread("c", 8) as c:
            own = b.alloc("own", "float32", ())
            row = b.let("row", block * 4 + r)
            b.store(held, (r, c), te.read_or(a, (row, c), row < n, 0))
            b.barrier()
            b.store(own, (), held[r, 7 - c])
            with b.when(row < n):
                b.store(out, (row, c), own[()])
    assert te.show(b.finish()) == textwrap.dedent(
        """\
        kernel rows(a: float32[n, 8], out: float32[n, 8], n: int64):
          for i in 0..(n + 3) // 4 block.y:
            alloc held: float32[4, 8] shared
            for r in 0..4 thread.z:
              for c in 0..8 thread.x:
                alloc own: float32[] scratch
                let row = i * 4 + r
                held[r, c] = select(row < n, a[row, c if row < n], 0.0)
                barrier
                own[] = held[r, 7 - c]
                if row < n:
                  out[row, c] = own[]"""
    )
