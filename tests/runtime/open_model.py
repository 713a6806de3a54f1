"""A program of kernels with scalars whose sizes are open, written by hand, and the same in numpy.

Of x (n, m) and y (n,): scaled = x * y by rows, sums = their sums by rows, and of those the three outputs: scaled plus
its row's sum, the sums of pairs of rows times three weights, and the last half of the sums.
"""

import numpy as np

from weft import te
from weft.base.cpu_target import host
from weft.base.dtype import FLOAT32
from weft.base.plan import At, BufferRef, ExecPlan, KernelStep, Launch, OpenWork, Slot
from weft.codegen.cpu.compile import compile_kernel
from weft.runtime.program import KernelInfo, Program, TensorSpec
from weft.te.extents import Trace

WEIGHTS = np.array([0.5, -2, 3], "float32")
LARGEST_N = 5000
LINE = 64


def kernels():
    """Each takes the sizes n and m."""
    return [scaled(), summed(), added(), paired(), copied()]


def started(name):
    b = te.KernelBuilder(name)
    return b, b.scalar("n"), b.scalar("m")


def scaled():
    b, n, m = started("scaled")
    x, y, t = b.arg("x", "float32", (n, m)), b.arg("y", "float32", (n,)), b.arg("t", "float32", (n, m))
    with b.parallel("i", n) as i, b.loop("j", m) as j:
        b.store(t, (i, j), x[i, j] * y[i])
    return b.finish()


def summed():
    b, n, m = started("summed")
    t, s = b.arg("t", "float32", (n, m)), b.arg("s", "float32", (n,))
    with b.parallel("i", n) as i:
        b.store(s, i, 0)
        with b.loop("j", m) as j:
            b.store(s, i, s[i] + t[i, j])
    return b.finish()


def added():
    b, n, m = started("added")
    t, s, out = b.arg("t", "float32", (n, m)), b.arg("s", "float32", (n,)), b.arg("out", "float32", (n, m))
    with b.parallel("i", n) as i, b.loop("j", m) as j:
        b.store(out, (i, j), t[i, j] + s[i])
    return b.finish()


def paired():
    b, n, _ = started("paired")
    s, w, out = b.arg("s", "float32", (n,)), b.arg("w", "float32", (3,)), b.arg("out", "float32", (n // 2, 3))
    with b.parallel("k", n // 2) as k, b.loop("c", 3) as c:
        b.store(out, (k, c), (s[k * 2] + s[k * 2 + 1]) * w[c])
    return b.finish()


def copied():
    """Without a parallel loop: it is launched once."""
    b, n, _ = started("copied")
    count = n - n // 2
    source, out = b.arg("source", "float32", (count,)), b.arg("out", "float32", (count,))
    with b.loop("i", count) as i:
        b.store(out, i, source[i])
    return b.finish()


def open_program():
    trace = Trace()
    n, m = trace.extent("n", 4), trace.extent("m", 5)
    assert m > 1
    assert n < LARGEST_N
    at = lambda number: At(trace.row_of(number))
    half, matrix, vector = n // 2, n * m * 4, n * 4
    sums_at = (matrix + (LINE - 1)) // LINE * LINE
    x, y, w, t, s, out, pairs, tail = range(8)
    slots = (
        Slot("input", at(matrix), name="x"),
        Slot("input", at(vector), name="y"),
        Slot("constant", WEIGHTS.nbytes),
        Slot("arena", at(matrix)),
        Slot("arena", at(vector), at(sums_at)),
        Slot("output", at(matrix)),
        Slot("output", at(half * 12)),
        Slot("output", at((n - half) * 4)),
    )
    sizes, by_element = (at(n), at(m)), OpenWork(0.5, at(n * m))

    def step(kernel, buffers, turns=n, work=by_element):
        refs = tuple(ref if isinstance(ref, BufferRef) else BufferRef(ref) for ref in buffers)
        blocks = turns if isinstance(turns, int) else at(turns)
        return KernelStep(kernel, refs, sizes, Launch((blocks, 1, 1)), work)

    steps = (
        step("scaled", (x, y, t)),
        step("summed", (t, s)),
        step("added", (t, s, out)),
        step("paired", (s, w, pairs), half),
        step("copied", (BufferRef(s, at(half * 4)), tail), 1, 10.0),
    )
    plan = ExecPlan(steps, slots, at(sums_at + vector), trace.table())
    shapes = {"x": (n, m), "y": (n,), "out": (n, m), "pairs": (half, 3), "tail": (n - half,)}
    specs = {
        name: TensorSpec(name, tuple(d if isinstance(d, int) else at(d) for d in shape), FLOAT32)
        for name, shape in shapes.items()
    }
    made = kernels()
    return Program(
        plan,
        tuple(compile_kernel(kernel, host()).code for kernel in made),
        (specs["x"], specs["y"]),
        (specs["out"], specs["pairs"], specs["tail"]),
        (WEIGHTS,),
        str(host()),
        tuple(KernelInfo(kernel.name, kernel.name, ("op",), ("node",), host().isa) for kernel in made),
        open_sizes=((0, 0), (0, 1)),
    )


def arrays(rng, n, m):
    """Whole numbers, of which sums are exact."""
    return [rng.integers(-9, 9, shape).astype("float32") for shape in ((n, m), (n,))]


def wanted(x, y):
    t = x * y[:, None]
    s, half = t.sum(1), len(x) // 2
    pairs = s[: 2 * half].reshape(half, 2).sum(1)
    return [t + s[:, None], pairs[:, None] * WEIGHTS, s[half:]]
