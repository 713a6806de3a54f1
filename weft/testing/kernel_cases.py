"""Kernels with the arrays they are run on and what numpy computes of those: the same cases for the interpreter, the
assembler and a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..base.cuda_target import CudaTarget
from ..base.dtype import DType
from ..te.loops import Kernel

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Kernel, Sequence[Array]], None]
BOUNDS = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 3e-6}  # of the largest result


class Case(Protocol):
    """`dtype` is that of the result; arrays are those of buffers by their names, the result among them, called out."""

    @property
    def dtype(self) -> DType | str: ...
    @property
    def bytes_read(self) -> int: ...
    def kernels(self, target: CudaTarget) -> list[Kernel]: ...
    def arrays(self, seed: int = 0) -> dict[str, Array]: ...
    def wanted(self, arrays: Mapping[str, Array]) -> Array: ...


def run_case(case: Case, target: CudaTarget, arrays: Mapping[str, Array], run: Run) -> Array:
    """The result, in float64. What kernels pass on is NaN before."""
    memory = {name: np.array(array) for name, array in arrays.items()}
    for kernel in case.kernels(target):
        shapes = {each.name: [int(extent.value) for extent in each.shape] for each in kernel.buffers}  # type: ignore[attr-defined]
        for each in kernel.buffers:
            memory.setdefault(each.name, np.full(shapes[each.name], np.nan, each.dtype))
        run(kernel, [memory[name].reshape(shape) for name, shape in shapes.items()])
    return memory["out"].astype(np.float64)


def check_case(got: Array, wanted: Array, dtype: str) -> None:
    """Raises AssertionError where a result is not as near to the right one as its dtype lets it be."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    known = ~np.isnan(wanted)
    if known.any():
        error, largest = np.abs(got - wanted)[known].max(), np.abs(wanted[known]).max()
        assert error <= BOUNDS[dtype] * largest, f"off by {error:.3g}, where the largest is {largest:.3g}"
