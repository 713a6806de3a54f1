"""Eager calls in native code. `choice.py` says which calls those are, by operator, dtypes and sizes
alone; `calls.py` has the table that families of kernels, whose extents are arguments, register in; `thresholds.py`
has sizes from which on they pay, where no operator has them. A family takes numpy arrays and gives arrays."""

from ...compiler.open.kernels import depends_on
from . import attention, convolution, copy, factors, index, matmul, norm, pool, reduce, scan  # noqa: F401

depends_on(*__path__)
