"""Every function on tensors, by the module users find it in; importing this fills the table."""

from __future__ import annotations

from ... import ops as _operators  # noqa: F401  registers what rows compose
from ..autograd import backward  # noqa: F401
from ..tensor import indexing  # noqa: F401
from .create import (  # noqa: F401
    attributes,
    create,
    data,
    exchange,
    memory,
    storage,
)
from .fft import (  # noqa: F401
    spectral,
    transforms,
    windows,
)
from .index import (  # noqa: F401
    histogram,
    index,
    reduce_at,
    sort,
)
from .linalg import (  # noqa: F401
    checked,
    einsum,
    factors,
    linear,
    lowrank,
    lu,
    matmul,
    reflect,
    systems,
)
from .math import (  # noqa: F401
    arithmetic,
    bessel,
    cast,
    compare,
    complex,
    pairs,
    special,
    unary,
)
from .nn import (  # noqa: F401
    activation,
    adaptive,
    attention,
    bags,
    classes,
    conv,
    core_forms,
    core_losses,
    ctc,
    fractional,
    grid,
    heads,
    image,
    loss,
    norm,
    norm_parts,
    pool,
    recurrent,
)
from .random import (  # noqa: F401
    fill,
)
from .reduce import (  # noqa: F401
    extreme,
    quantile,
    reduce,
)
from .shape import (  # noqa: F401
    geometry,
    join,
    parts,
    shape,
    view_copies,
)
from .table import FUNCTIONS, TABLE

__all__ = ["FUNCTIONS", "TABLE"]
