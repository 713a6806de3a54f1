"""Every function on tensors, by the module users find it in; importing this fills the table."""

from __future__ import annotations

from .. import ops as _operators  # noqa: F401  registers what rows compose
from . import (  # noqa: F401
    autograd,
    indexing,
    rows_activation,
    rows_adaptive,
    rows_arithmetic,
    rows_attention,
    rows_cast,
    rows_classes,
    rows_compare,
    rows_complex,
    rows_conv,
    rows_copies,
    rows_create,
    rows_data,
    rows_einsum,
    rows_exchange,
    rows_extreme,
    rows_grid,
    rows_image,
    rows_index,
    rows_join,
    rows_linalg,
    rows_linear,
    rows_loss,
    rows_matmul,
    rows_memory,
    rows_norm,
    rows_pairs,
    rows_parts,
    rows_pool,
    rows_quantile,
    rows_random,
    rows_reduce,
    rows_reduce_at,
    rows_shape,
    rows_sort,
    rows_special,
    rows_storage,
    rows_unary,
)
from .table import FUNCTIONS, TABLE

__all__ = ["FUNCTIONS", "TABLE"]
