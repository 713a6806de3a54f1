"""Kernels of reductions and of running ones, on every instruction set this machine has, with arrays
that end at guard pages."""

from functools import partial

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import targets
from lower.open_programs import Programs

from weft import te
from weft.compiler.kernels import kernel_cache
from weft.compiler.open.calls import lower_compute
from weft.compiler.open.programs import of_kernel
from weft.core.op import Op
from weft.lower import chunks
from weft.lower.cpu.scan import Scan, Walk, scan_kernel
from weft.runtime.cpu.open_program import OpenProgram
from weft.te.loops import Store
from weft.te.simplify_loops import statements
from weft.testing.op_check import Sample, run_lowered

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
DTYPES = ("float32", "float64", "int64", "uint8")
NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def loaded(kernel, target):
    return OpenProgram(of_kernel(kernel_cache.compiled(kernel, target), target))


def random(rng, shape, dtype):
    return (rng.standard_normal(shape) * 3).astype(dtype)


def close(found, expected, x):
    if x.dtype.kind == "f":
        scale = np.abs(x).sum(1, dtype="float64").max()
        eps = 2 * np.finfo(x.dtype).eps * scale
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=0, atol=eps)
    else:
        np.testing.assert_array_equal(found, expected)


def reduced(name, x, axes, target):
    (found,) = run_lowered(Op.get(name), Sample([x], {"axis": axes}, None), target, guarded)
    return found


@on_every_isa
@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(target, name, dtype):
    rng = np.random.default_rng(0)
    for rows, length in ((1, 2), (3, 15), (5, 64), (2, 1000), (1, 4097), (4, 17), (70, 9)):
        x = random(rng, (rows, length), dtype)
        x = np.sign(x) if name == "prod" and x.dtype.kind == "f" else x
        close(reduced(name, x, (1,), target), NUMPY[name].reduce(x, 1, dtype=total(name, x)), x)


@on_every_isa
def test_results_of_small_windows_are_side_by_side_in_lanes(target):
    """A window of four elements is no row, whose elements would be in lanes."""
    op, x = Op.get("max_pool2d"), np.random.default_rng(3).standard_normal((8, 1, 28, 42)).astype("float32")
    attrs = {"pool_size": (2, 2), "strides": (2, 2)}
    compute = partial(op.call_with, Op.compute[op], op.parser(**attrs))
    (made,) = lower_compute("pool", compute, [(x.shape, x.dtype)], target).kernels
    stored = [s for s in statements(made.kernel.body) if isinstance(s, Store) and s.buffer.scope == "arg"]
    assert {store.value.lanes for store in stored} == {target.lanes(x.dtype)}
    (found,) = Programs.of("max_pool2d", target, **attrs).run(x)
    np.testing.assert_array_equal(found, x.reshape(8, 1, 14, 2, 21, 2).max((3, 5)))


def total(name, x):
    """What the exact result is computed in."""
    return "float64" if x.dtype.kind == "f" and name in ("sum", "prod") else x.dtype


@on_every_isa
@pytest.mark.parametrize("name", ["sum", "max"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns(target, name, dtype):
    rng = np.random.default_rng(1)
    for outer, length, inner in ((2, 5, 3), (3, 130, 17), (1, 300, 40), (2, 21, 600)):
        x = random(rng, (outer, length, inner), dtype)
        close(reduced(name, x, (1,), target), NUMPY[name].reduce(x, 1, dtype=total(name, x)), x)


@on_every_isa
@pytest.mark.parametrize("name", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((chunks.LONG + 5,), (0,)), ((2, chunks.LONG), (1,)), ((chunks.LONG // 3 + 1, 3), (0,))]
)
def test_chunks(target, name, shape, axes):
    x = np.random.default_rng(2).random(shape).astype("float32")
    expected = getattr(np, name)(x.astype("float64"), axes)
    np.testing.assert_allclose(reduced(name, x, axes, target).reshape(expected.shape), expected, rtol=1.2e-7)


@pytest.mark.parametrize(
    ("shape", "axis", "cut"),
    [
        ((256, 1024), 1, False),
        ((chunks.PLAIN_CHUNKS.few_rows, chunks.LONG), 1, True),
        ((1024, 256), 0, True),
        ((1024, 512), 0, False),
    ],
)
def test_chunks_are_for_few_elements(shape, axis, cut):
    """Rows are shared by threads one by one, columns by many side by side."""
    x, k = te.placeholder(shape, "float32", "x"), te.reduce_axis(shape[axis])
    total = te.compute((shape[1 - axis],), lambda i: te.sum(x[(i, k.var) if axis else (k.var, i)], k))
    (made,) = chunks.in_chunks([x], [total])
    assert (made is not total) == cut


@on_every_isa
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums(target, dtype, reverse, exclusive):
    rng, kind = np.random.default_rng(4), np.dtype(dtype)
    written = (lambda old, new, x: old[0]) if exclusive else (lambda old, new, x: new[0])
    add = lambda a, b: (a[0] + b[0],)
    scan = Scan(lambda x: (x,), add, (0,), written, exclusive, reverse)
    for outer, length, inner in ((1, 1, 1), (3, 17, 1), (2, 64, 1), (1, 7, 5), (2, 3, 300)):
        x = random(rng, (outer, length, inner), kind)
        out = guarded(np.zeros_like(x))
        kernel = scan_kernel("s", scan, [kind, kind], Walk(outer, length, inner), target)
        loaded(kernel, target).given([], outer * -(-inner // 256), 0.0).run([guarded(x), out])
        ordered = x[:, ::-1] if reverse else x
        made = np.cumsum(ordered, 1, dtype="float64" if kind.kind == "f" else kind)
        made = made - ordered if exclusive else made
        close(out, made[:, ::-1] if reverse else made, x)
