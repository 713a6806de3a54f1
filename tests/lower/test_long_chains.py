"""Kernels with more names in each other than Python has calls."""

import numpy as np

from weft.lower.long_sums import finished
from weft.te.expr import Load, Var, as_expr
from weft.te.interpret import run_kernel
from weft.te.loops import Kernel, Let, Store, buffer

LETS = 1500


def test_a_kernel_of_many_lets_is_finished():
    """Each adds one, so the last is the input and their number."""
    x, y = buffer("x", "int64", (1,)), buffer("y", "int64", (1,))
    names = [Var(f"v{k}", np.dtype("int64")) for k in range(LETS)]
    body = Store(y, (as_expr(0),), names[-1])
    for k in reversed(range(LETS)):
        before = Load(x, (as_expr(0),)) if k == 0 else names[k - 1]
        body = Let(names[k], before + 1, body)
    result = np.zeros(1, "int64")
    run_kernel(finished(Kernel("chain", (x, y), body)), [np.array([5]), result])
    assert result[0] == 5 + LETS
