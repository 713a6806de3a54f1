"""Open matrix products: each kernel, on each instruction set, for sizes and strides given at run
time, with matrices that end at pages nobody may touch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from codegen.guard import guarded
from codegen.native import ISAS, target_of
from lower.accuracy import agrees

from weft.codegen.cpu.compile import compile_kernel
from weft.compiler.open.programs import of_kernel
from weft.lower.cpu.matrices.skinny_product import MAX_ROWS, skinny_columns
from weft.lower.cpu.matrices.strided_product import Arguments, strided_kernel
from weft.lower.cpu.product import BLOCK, panel_elements
from weft.lower.cpu.tile import tile_size
from weft.runtime.cpu.open_program import OpenProgram

rng = np.random.default_rng(0)

# Which layouts of a and b a kernel takes.
LAYOUTS = {
    "rows": (("plain",), ("plain", "transposed", "strided", "reversed")),
    "packed": (("plain", "transposed", "strided", "reversed"), ("plain", "transposed", "strided")),
    "skinny": (("plain", "transposed", "strided", "reversed"), ("plain",)),
    "dot": (("plain",), ("transposed",)),
}


@lru_cache(None)
def compiled(kind, isa, dtype):
    target = target_of(isa)
    return OpenProgram(of_kernel(compile_kernel(strided_kernel(np.dtype(dtype), kind, target), target), target))


@pytest.fixture(autouse=True, scope="module")
def kernels_that_end_with_their_tests():
    yield
    compiled.cache_clear()


def laid_out(values, layout, front=False):
    """The same values, with other strides, beside a guard page; gaps hold NaN."""
    if layout == "transposed":
        return guarded(values.T, front).T
    if layout == "reversed":
        return guarded(values[::-1, ::-1], front)[::-1, ::-1]
    if layout == "strided":
        apart = np.full((values.shape[0], values.shape[1] * 3), np.nan, values.dtype)
        apart[:, ::3] = values
        return guarded(apart, front)[:, ::3]
    return guarded(values, front)


def cut(kind, isa, dtype, rows, columns, depth):
    """Rows and columns of a turn and products of a part, as small as the kernel takes them."""
    size = tile_size(target_of(isa), dtype)
    if kind == "dot":
        return (*[int(rng.integers(1, extent + 4)) // 4 * 4 + 4 for extent in (rows, columns)], depth)
    if kind == "skinny":
        vectors = int(rng.integers(1, skinny_columns(dtype) // size.lanes + 1))
        return rows, vectors * size.lanes, depth
    part = int(rng.integers(1, min(depth, BLOCK) + 1))
    panels = int(rng.integers(1, panel_elements(dtype, target_of(isa)) // (part * size.width) + 1))
    tiles = int(rng.integers(1, -(-rows // size.rows) + 1))
    return tiles * size.rows, min(panels, 20) * size.width, part


def run(kind, isa, a, b, bias=None):
    rows, depth, columns, item = *a.shape, b.shape[1], a.itemsize
    out = guarded(np.full((rows, columns), np.nan, a.dtype))
    turn_rows, turn_columns, part = cut(kind, isa, a.dtype, rows, columns, depth)
    turns = -(-rows // turn_rows) * -(-columns // turn_columns)
    steps = [stride // item for stride in (*a.strides, *b.strides)]
    biased = 0 if bias is None else columns
    scalars = (rows, columns, depth, *steps, columns, turn_rows, turn_columns, part, biased)
    assert len(scalars) + 1 == len(Arguments._fields)
    starts = guarded(np.zeros(2, np.int64))
    held = out if bias is None else guarded(bias)
    compiled(kind, isa, a.dtype.name).given((*scalars, turns), turns, 0.0).run((a, b, starts, held, out))
    return out


def normal(*shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_any_extents_and_strides(kind, isa, dtype):
    most = MAX_ROWS if kind == "skinny" else 70
    for number in range(14):
        rows = int(rng.integers(1, most + 1)) if number else 1
        depth, columns = (int(rng.integers(1, 260)) for _ in range(2)) if number > 1 else (1, 1)
        a, b = normal(rows, depth, dtype=dtype), normal(depth, columns, dtype=dtype)
        layouts = [str(rng.choice(of)) for of in LAYOUTS[kind]]
        bias = normal(columns, dtype=dtype) if number % 2 else None
        expected = a.astype(np.float64) @ b.astype(np.float64)
        front = bool(number % 3 == 0)
        found = run(kind, isa, laid_out(a, layouts[0], front), laid_out(b, layouts[1], front), bias)
        agrees(found, expected if bias is None else expected + bias)


@pytest.mark.parametrize("kind", list(LAYOUTS))
def test_values_that_are_no_numbers_stay_where_they_belong(kind):
    isa = next(isa for isa in reversed(ISAS) if target_of(isa))
    for _ in range(4):
        rows, depth, columns = int(rng.integers(2, 12)), int(rng.integers(20, 90)), 37
        a, b = normal(rows, depth, dtype="float32"), normal(depth, columns, dtype="float32")
        a[rng.integers(rows), rng.integers(depth)] = rng.choice([np.inf, -np.inf, np.nan])
        b[rng.integers(depth), -1] = np.inf
        b[-1, rng.integers(columns)] = np.nan
        with np.errstate(invalid="ignore"):
            expected = np.einsum("ik,kj->ij", a.astype(np.float64), b.astype(np.float64))
        other = "transposed" if kind == "dot" else "plain"
        found = run(kind, isa, laid_out(a, "plain"), laid_out(b, other))
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["rows", "packed"])
def test_parts_of_a_long_sum(kind):
    a, b = normal(19, 2011, dtype="float32"), normal(2011, 53, dtype="float32")
    isa = next(isa for isa in reversed(ISAS) if target_of(isa))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    agrees(run(kind, isa, laid_out(a, "plain"), laid_out(b, "transposed")), expected)
