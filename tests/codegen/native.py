"""Compiles kernels for the tests, on every instruction set this machine has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from weft.base.cpu_target import CpuTarget
from weft.base.errors import Unsupported
from weft.codegen.cpu.compile import compile_kernel
from weft.runtime.cpu.kernel import NativeKernel
from weft.te.expr import Expr, Load, Ramp, Var, as_expr, compare, const
from weft.te.loops import Kernel, Parallel, Store, buffer

ISAS = ("sse", "avx2", "avx512")


def target_of(isa: str) -> CpuTarget:
    try:
        return CpuTarget.create().with_isa(isa)
    except Unsupported as error:
        pytest.skip(str(error))


def native(kernel: Kernel, isa: str = "avx2", **options: Any) -> NativeKernel:
    return NativeKernel(compile_kernel(kernel, target_of(isa), **options))


def elementwise(
    body: Callable[..., Expr], arrays: Sequence[np.ndarray], dtype: np.dtype | str, isa: str, lanes: int
) -> np.ndarray:
    """body over the elements of arrays, `lanes` at a time with a masked tail; 1: a scalar loop."""
    size = arrays[0].size
    i = Var("i")
    inputs = [buffer(f"x{n}", array.dtype, (size,)) for n, array in enumerate(arrays)]
    output = buffer("y", dtype, (size,))
    if lanes == 1:
        index, mask, extent = i, None, size
    else:
        index = Ramp(i * lanes, const(1, "int64"), lanes)
        mask, extent = compare("lt", index, as_expr(size)), -(-size // lanes)
    value = body(*(Load(x, (index,), mask) for x in inputs))
    store = Store(output, (index,), value, mask)
    kernel = Kernel("elementwise", (*inputs, output), store, Parallel(i, as_expr(extent)))
    result = np.empty(size, dtype)
    native(kernel, isa)([*arrays, result])
    return result
