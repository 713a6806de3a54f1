"""Which eager calls run native code, and by which kernels.

That depends on the operator, the dtypes and the sizes alone, never on timing: results repeat bit
for bit. Kernels take extents as arguments; one that is not in the disk cache is compiled at its
first call (WEFT_DEBUG=dispatch tells).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...base.dtype import DTYPES
from ...core.op import Op
from ...lower.cpu.dispatch import LOWERING
from .calls import Array, Declined, NativeCall, has_plain_compute, is_element_wise, numbers, registered
from .generic import run_generic, run_template
from .pointwise import are_native, element, op_key, run_pointwise
from .thresholds import FROM

FLOAT16 = DTYPES["float16"]


def native_call(op: Op) -> NativeCall:
    """How native code runs an operator: by a family's kernels, element by element, by the template or the loops that
    compiled models run, by its compute, or not at all."""
    family = registered(op)
    if family is not None:
        return family
    least = op.native_from
    if is_element_wise(op):
        arithmetic = FROM.arithmetic if least is None else 0
        return partial(_pointwise, op, arithmetic)
    computed = has_plain_compute(op)
    lowered = Op.kernels.contains(op) or op.name in LOWERING.templates
    if least is None or not (lowered or computed):
        return _never
    return partial(_lowered if lowered else _generic, op)


def _never(params: Any, arrays: Sequence[Array]) -> None:
    raise Declined("operator")


def _generic(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    numbers(arrays)
    if any([array.dtype == FLOAT16 for array in arrays]):  # whose sums would be of that dtype
        raise Declined("dtype")
    return run_generic(op, params, arrays)


def _lowered(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    numbers(arrays)
    return run_template(op, params, arrays)


def _pointwise(op: Op, arithmetic_from: int, params: Any, arrays: Sequence[Array]) -> Array | None:
    dtypes = tuple([array.dtype for array in arrays])
    body = element(op, params, dtypes)
    if body is None:
        raise Declined("compute" if are_native(dtypes) else "dtype")
    if not body.calls and max([array.size for array in arrays]) < arithmetic_from:
        return None
    if len(body.places) < len(arrays) and any([array.shape != arrays[body.places[0]].shape for array in arrays]):
        raise Declined("shapes")  # which follows from an array that is not read
    return run_pointwise(op_key(op, params), body, arrays)
