"""Running sums, products and recurrences of large eager tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.dtype import FLOAT32, FLOAT64
from ...core.op import Op
from ...lower.cpu.scan import SCANS, walk_of
from .calls import Array, Declined, native, not_empty
from .generic import run_template


def _alike(arrays: Sequence[Array]) -> None:
    """Arrays of integers or floats, of one shape and dtype, that are not empty."""
    dtype = arrays[0].dtype
    if not dtype.isnative or not (dtype.kind in "iu" or dtype in (FLOAT32, FLOAT64)):
        raise Declined("dtype")
    if any([array.shape != arrays[0].shape or array.dtype != dtype for array in arrays]):
        raise Declined("shapes")
    not_empty(arrays)


@native(*SCANS, takes=_alike, fitting=False)
def run_scan(op: Op, params: Any, arrays: Sequence[Array]) -> Array:
    if walk_of(op.name, params, arrays[0].shape) is None:
        raise Declined("attributes")
    return run_template(op, params, arrays)[0]
