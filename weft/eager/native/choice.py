"""Which eager calls run native code, and by which kernels.

That depends on the operator, the dtypes and the sizes alone, never on timing: results repeat bit
for bit. Kernels take extents as arguments; one that is not in the disk cache is compiled at its
first call (WEFT_DEBUG=dispatch tells).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...core.op import Op
from ...core.pattern import OpPattern
from .calls import Array, Declined, NativeCalls, floats, numbers, registered
from .generic import run_generic, run_written
from .pointwise import are_native, element, op_key, run_pointwise
from .thresholds import FROM

NEVER = 1 << 62  # elements

# From how many elements on native code is faster than the reference, by what that costs.
REFERENCES = {
    "pass": FROM.functions,
    "passes": FROM.passes,
    "branches": FROM.branches,
    "windows": FROM.windows,
    "gathers": FROM.gathers,
    "steps": FROM.steps,
}


def native_calls(op: Op) -> NativeCalls:
    """How native code runs an operator: by a family's kernels, by its body as it is, or not at all."""
    family = registered(op)
    if family is not None:
        return family
    run = _by_body(op)
    return NativeCalls(NEVER, _never) if run is None else NativeCalls(REFERENCES[op.reference_cost], run)


def _by_body(op: Op) -> Callable[[Any, Sequence[Array]], Any] | None:
    if op.open_body and Op.kernels.contains(op):
        return partial(_written, op)
    if Op.mutates.contains(op) or not Op.compute.contains(op) or Op.alias.contains(op):
        return None
    if op.pattern in (OpPattern.ELEM_WISE, OpPattern.BROADCAST):
        return partial(_pointwise, op, FROM.arithmetic if op.reference_cost == "pass" else 0)
    return partial(_generic, op) if op.open_body else None


def _never(params: Any, arrays: Sequence[Array]) -> None:
    raise Declined("operator")


def _generic(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    floats(arrays)
    return run_generic(op, params, arrays)


def _written(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    numbers(arrays)
    return run_written(op, params, arrays)


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
