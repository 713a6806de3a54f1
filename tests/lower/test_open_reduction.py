"""Kernels of reductions and of running ones, on every instruction set this machine has, with arrays
that end at guard pages."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import targets

from weft.compiler.kernels import kernel_cache
from weft.lower.cpu.open.reduction import (
    BLOCK,
    CHUNK,
    CHUNK_ROWS,
    Form,
    Reduction,
    Widths,
    reduction_kernel,
    term_and_total,
)
from weft.lower.cpu.scan import Scan, Walk, scan_kernel
from weft.runtime.cpu.open_kernel import OpenKernel

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
DTYPES = ("float32", "float64", "int64", "uint8")
NUMPY = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
DISTANCES = Reduction("distances", "sum", lambda x, m: (x - m, (x - m) * (x - m)), 2)


def loaded(kernel, target):
    return OpenKernel(kernel_cache.compiled(kernel, target))


def random(rng, shape, dtype):
    return (rng.standard_normal(shape) * 3).astype(dtype)


def close(found, expected, x):
    if x.dtype.kind == "f":
        scale = np.abs(x).sum(1, dtype="float64").max()
        eps = 2 * np.finfo(x.dtype).eps * scale
        np.testing.assert_allclose(found.astype("float64"), expected, rtol=0, atol=eps)
    else:
        np.testing.assert_array_equal(found, expected)


@on_every_isa
@pytest.mark.parametrize("combiner", NUMPY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows(target, combiner, dtype):
    rng, kind = np.random.default_rng(0), np.dtype(dtype)
    term, total = term_and_total(combiner, kind)
    widths = Widths(term, total, total)
    form = Form(1, (True,), columns=False, chunked=False)
    kernel = loaded(reduction_kernel(Reduction("r", combiner), [kind], form, widths, target), target)
    for rows, length in ((1, 1), (3, 15), (5, 64), (2, 1000), (1, 4097), (4, 17)):
        x = random(rng, (rows, length), kind)
        if combiner == "prod":
            x = np.sign(x) if kind.kind == "f" else x
        out = guarded(np.zeros(rows, total))
        kernel.run([guarded(x), out], [rows, length, 1, length], rows, 0.0)
        close(out, NUMPY[combiner].reduce(x.astype(total), 1), x)


@on_every_isa
@pytest.mark.parametrize("combiner", ["sum", "max"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns(target, combiner, dtype):
    rng, kind = np.random.default_rng(1), np.dtype(dtype)
    term, total = term_and_total(combiner, kind)
    widths, chunk = Widths(term, total, total), CHUNK_ROWS
    form = Form(1, (True,), columns=True, chunked=True)
    kernel = loaded(reduction_kernel(Reduction("r", combiner), [kind], form, widths, target), target)
    for outer, length, inner in ((1, 1, 1), (2, 5, 3), (3, 130, 17), (1, 300, 40), (2, 21, 600)):
        x, chunks = random(rng, (outer, length, inner), kind), -(-length // chunk)
        out = guarded(np.zeros((outer, chunks, inner), total))
        scalars = [outer, length, chunks, inner, length * inner, inner]
        kernel.run([guarded(x), out], scalars, outer * chunks * -(-inner // BLOCK), 0.0)
        parts = [x[:, c * chunk : (c + 1) * chunk].astype(total) for c in range(chunks)]
        close(out, np.stack([NUMPY[combiner].reduce(part, 1) for part in parts], 1), x)


@on_every_isa
def test_chunks_and_means(target):
    x = np.random.default_rng(2).random((2, CHUNK * 2 + 5)).astype("float32")
    for chunked in (True, False):
        f64, chunks = np.dtype("float64"), 3 if chunked else 1
        widths = Widths(x.dtype, f64, f64 if chunked else x.dtype, mean=not chunked)
        form = Form(1, (True,), columns=False, chunked=chunked)
        kernel = reduction_kernel(Reduction("r", "sum"), [x.dtype], form, widths, target)
        out = guarded(np.zeros((2, chunks), widths.result))
        turns = 2 * chunks
        given = [2, x.shape[1], chunks, x.shape[1]]
        loaded(kernel, target).run([guarded(x), out], given, turns, 0.0)
        if chunked:
            close(out.sum(1), x.sum(1, dtype="float64"), x)
        else:
            close(out[:, 0], x.mean(1, dtype="float64"), x / x.shape[1])


@on_every_isa
def test_several_operands_and_terms_of_columns_that_are_apart(target):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((70, 9)).astype("float32")
    m = rng.standard_normal(70).astype("float32")
    f64 = np.dtype("float64")
    form = Form(0, (), columns=True, chunked=False, apart=True)
    kernel = reduction_kernel(DISTANCES, [x.dtype, m.dtype], form, Widths(x.dtype, f64, f64), target)
    outs = [guarded(np.zeros(70)) for _ in range(2)]
    scalars = [9, 1, 70, 1, 9, 0, 1]
    loaded(kernel, target).run([guarded(x), guarded(m), *outs], scalars, 1, 0.0)
    gap = x.astype("float64") - m[:, None]
    np.testing.assert_allclose(outs[0], gap.sum(1), atol=1e-5)
    np.testing.assert_allclose(outs[1], np.square(gap).sum(1), atol=1e-5)


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
        loaded(kernel, target).run([guarded(x), out], [], outer * -(-inner // 256), 0.0)
        ordered = x[:, ::-1] if reverse else x
        made = np.cumsum(ordered, 1, dtype="float64" if kind.kind == "f" else kind)
        made = made - ordered if exclusive else made
        close(out, made[:, ::-1] if reverse else made, x)
