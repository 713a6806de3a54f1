"""Which eager calls run native code, and by which kernels.

That depends on the operator, the dtypes and the sizes alone, never on timing: results repeat bit
for bit. Kernels take extents as arguments; one that is not in the disk cache is compiled at its
first call (WEFT_DEBUG=dispatch tells).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from ...base.dtype import DTYPES
from ...core.ir import Fact
from ...core.op import Op
from ...lower.cpu.dispatch import LOWERING, ROW_WISE
from . import attention, convolution, factors, matmul, norm, pool, reduce  # noqa: F401  which fill the table of calls
from .calls import (
    Array,
    Declined,
    Facts,
    NativeCall,
    Run,
    facts_of,
    floats,
    has_plain_compute,
    inferred,
    is_element_wise,
    numbers,
    registered,
)
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
    lowered = Op.kernels.contains(op) or op.name in LOWERING.templates.keys() - ROW_WISE  # rows are found in computes
    if least is None or not (lowered or computed):
        return _never
    if Op.joined_axes.contains(op):
        return partial(_with_fewer_axes, op, run_template if lowered else run_generic)
    return partial(_lowered if lowered else _generic, op)


def _never(params: Any, arrays: Sequence[Array]) -> None:
    raise Declined("operator")


def _generic(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    numbers(arrays)
    if any([array.dtype == FLOAT16 for array in arrays]):  # whose sums would be of that dtype
        raise Declined("dtype")
    return run_generic(op, params, arrays)


def _with_fewer_axes(op: Op, run: Run, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The call with axes that are treated alike as one."""
    floats(arrays)
    now, shapes, made = _fewer_axes(op, params, facts_of(arrays))
    given = [array if array.shape == shape else array.reshape(shape) for array, shape in zip(arrays, shapes)]
    results = run(op, now, given)
    return [result.reshape(fact.shape) for result, fact in zip(results, made)]


@lru_cache(1 << 13)
def _fewer_axes(op: Op, params: Any, facts: Facts) -> tuple[Any, Sequence[tuple[int, ...]], tuple[Fact, ...]]:
    """Params and shapes of the inputs for that, and what the outputs are."""
    made = inferred(op, params, facts)
    return *Op.joined_axes[op](params, *[shape for shape, _ in facts]), made


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
