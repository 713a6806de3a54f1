"""Every function on tensors, by the module users find it in; importing this fills the table."""

from __future__ import annotations

from ... import ops as _operators  # noqa: F401  registers what rows compose
from ..autograd import backward  # noqa: F401
from ..tensor import indexing  # noqa: F401
from .create import attributes, create, data, exchange, memory, storage  # noqa: F401
from .fft import signal_windows, spectral, transforms, windows  # noqa: F401
from .index import histogram, index, reduce_at, sort  # noqa: F401
from .linalg import (  # noqa: F401
    checked,
    covariance,
    distances,
    eigen,
    einsum,
    elimination,
    matmul,
    matrix_norms,
    powers,
    qr,
    removed,
    solve,
    svd,
)
from .math import areas, arithmetic, bessel, cast, compare, complex, exponent, pairs, special, unary  # noqa: F401
from .nn import (  # noqa: F401
    activation,
    adaptive,
    attention,
    class_loss,
    conv,
    ctc,
    dropout,
    embedding,
    fractional,
    grid,
    linear_maps,
    loss,
    norm,
    padding,
    pool,
    rearrange,
    recurrent,
    resize,
    softmax,
)
from .random import fill  # noqa: F401
from .reduce import differences, extreme, norms, quantile, reduce, scan  # noqa: F401
from .shape import geometry, join, parts, shape, view_copies  # noqa: F401
from .table import FUNCTIONS, TABLE

__all__ = ["FUNCTIONS", "TABLE"]
