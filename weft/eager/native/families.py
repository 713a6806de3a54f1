"""All families of kernels: importing this fills the table of native calls."""

from . import attention, convolution, factors, matmul, norm, pool, reduce  # noqa: F401
