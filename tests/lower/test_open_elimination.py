"""Kernels that eliminate and substitute, on every instruction set this machine has, with arrays
between guard pages; scipy is the oracle."""

import numpy as np
import pytest
import scipy.linalg
from codegen.guard import guarded
from lower.accuracy import targets

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
from weft.compiler.open.programs import of_kernel
from weft.lower.cpu.matrices.elimination import COLUMNS, panel_kernel, substitution_kernel
from weft.runtime.cpu.open_program import OpenProgram

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
fronts = pytest.mark.parametrize("front", [False, True])


def loaded(kernel, target):
    return OpenProgram(of_kernel(kernel_cache.compiled(kernel, target), target))


@on_every_isa
@dtypes
@fronts
def test_all_columns_of_a_panel(target, dtype, front):
    rng = np.random.default_rng(0)
    kernel = loaded(panel_kernel(dtype, True, target), target)
    for m, n in ((1, 1), (5, 5), (19, 33), (40, 17), (7, 1), (1, 9)):
        given = rng.standard_normal((2, m, n)).astype(dtype)
        count = min(m, n)
        made = guarded(given, front)
        pivots = guarded(np.full((2, count), -1, "int32"), front)
        kernel.given([2, m, n, 0, count, count], 2, 0.0).run([made, pivots])
        for a, factors, own in zip(given, made, pivots):
            want, swaps = scipy.linalg.lapack.dgetrf(a.astype("float64"))[:2]
            np.testing.assert_array_equal(own, swaps + 1)
            near = 1e-4 if dtype == FLOAT32 else 1e-11
            np.testing.assert_allclose(factors, want, near, near)


@on_every_isa
@dtypes
@fronts
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_substitution_up_and_down(target, dtype, front, lower, unit):
    rng = np.random.default_rng(1)
    kernel = loaded(substitution_kernel(dtype, unit, target), target)
    for m, n in ((1, 1), (5, 3), (12, 16), (9, 2 * COLUMNS + 5)):
        t = (rng.uniform(-0.3, 0.3, (2, m, m)) + 2 * np.eye(m)).astype(dtype)
        x = rng.standard_normal((2, m, n)).astype(dtype)
        made, blocks = guarded(x, front), -(-n // COLUMNS)
        first, step = (0, 1) if lower else (m - 1, -1)
        scalars = [2, blocks, m, n, m * m, first * (m + 1), step * m, step, m * n, first * n]
        kernel.given([*scalars, step * n], 2 * blocks, 0.0).run([guarded(t, front), made])
        for a, b, got in zip(t, x, made):
            want = scipy.linalg.solve_triangular(a, b, lower=lower, unit_diagonal=unit)
            near = 1e-4 if dtype == FLOAT32 else 1e-11
            np.testing.assert_allclose(got, want, near, near)
