"""Which eager calls run native code, and by which kernels.

That depends on the operator, the dtypes and the sizes alone, never on timing: results repeat bit
for bit. Kernels take extents as arguments; one that is not in the disk cache is compiled at its
first call (WEFT_DEBUG=dispatch tells).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, FLOAT64, DType
from ...base.errors import Error
from ...core.infer import infer_node
from ...core.ir import Fact
from ...core.op import Op
from ...core.pattern import OpPattern
from . import attention as native_attention
from . import copy as native_copy
from . import factors as native_factors
from . import index as native_index
from . import matmul as native_matmul
from . import norm as native_norm
from . import pool as native_pool
from . import recurrent as native_recurrent
from . import reduce as native_reduce
from . import scan as native_scan
from .convolution import CONVOLUTIONS
from .generic import run_generic, run_written
from .pointwise import element, op_key, run_pointwise

Array = np.ndarray[Any, Any]
Native = Callable[[Any, Sequence[Array]], Any]
Run = Callable[[Op, Any, Sequence[Array]], Any]

# From how many elements on native code is faster than numpy: of element-wise arithmetic, of
# functions of each element, and of what numpy needs many passes for.
ARITHMETIC_FROM = 1 << 17
FUNCTIONS_FROM = 1 << 15
PASSES_FROM = 1 << 8
MANY_PASSES = frozenset(
    "_keep_between airy_ai bessel_j0 bessel_j1 bessel_k0 bessel_k1 bessel_y0 bessel_y1 digamma elu "
    "erf erfc erfcx erfinv gelu hard_sigmoid hard_swish i0 i0e i1 i1e leaky_relu lgamma mish "
    "polygamma prelu scaled_bessel_k0 scaled_bessel_k1 selu sigmoid silu softplus softsign "
    "spherical_bessel_j0 spherical_bessel_j1".split()
)

CONVOLUTION_FROM = 256
SELECT_FROM = 1 << 11  # numpy takes a branch for each element

# The same of operators whose kernels are made from their compute, as it is.
GENERIC_FROM = {"lrn": 1 << 11, "_window_sum": 1 << 11}


def _fitting(calls: Mapping[str, tuple[int, Run]]) -> dict[str, tuple[int, Run]]:
    """Calls that are made only where the arrays fit the operator: native code does not look."""

    def fitting(run: Run, op: Op, params: Any, arrays: Sequence[Array]) -> Any:
        facts = tuple([(array.shape, array.dtype) for array in arrays])
        given = params if op.parser is not None else None
        return run(op, given, arrays) if _fits(op, given, facts) else None

    return {name: (smallest, partial(fitting, run)) for name, (smallest, run) in calls.items()}


@lru_cache(1 << 13)
def _fits(op: Op, params: Any, facts: tuple[tuple[tuple[int, ...], DType], ...]) -> bool:
    try:
        infer_node(op, params, [Fact(*fact) for fact in facts], op.name)
    except Error:
        return False
    return True


# The same of operators whose bodies are loops.
WRITTEN_FROM = {
    "grid_sample": 1 << 12,
    "_grid_sample_grad": 1 << 12,
    "_grid_sample_grad_grid": 1 << 12,
    "roi_pool": 1 << 12,
    "psroi_pool": 1 << 12,
    "_psroi_pool_grad": 1 << 12,
    "deformable_psroi_pool": 1 << 12,
    "ctc_loss": 1,
    "_ctc_loss_grad": 1,
}

# The same of others, with what runs a call of them.
CALLS: dict[str, tuple[int, Run]] = {
    **native_reduce.CALLS,
    **native_scan.CALLS,
    **_fitting(native_norm.CALLS),
    **_fitting(native_pool.CALLS),
    **_fitting(native_attention.CALLS),
    **_fitting(native_index.CALLS),
    **_fitting(native_copy.CALLS),
    **_fitting(native_factors.CALLS),
    **_fitting(native_recurrent.CALLS),
    **native_matmul.CALLS,
    "broadcast_where": (SELECT_FROM, lambda op, params, arrays: _select(op, params, arrays)),
}


class NativeCalls:
    """The native way of an operator: `run` gives None for calls that are not for it, and is worth
    asking from `smallest` elements in the largest array on."""

    __slots__ = ("run", "smallest")

    def __init__(self, smallest: int, run: Native) -> None:
        self.smallest, self.run = smallest, run


def native_calls(op: Op) -> NativeCalls | None:
    """How native code runs an operator, if it does."""
    if op.name in CALLS:
        smallest, run = CALLS[op.name]
        return NativeCalls(smallest, partial(run, op))
    if op.name in CONVOLUTIONS:
        return NativeCalls(CONVOLUTION_FROM, CONVOLUTIONS[op.name])
    if op.name in GENERIC_FROM:
        return NativeCalls(GENERIC_FROM[op.name], lambda params, a: _generic(op, params, a))
    if op.name in WRITTEN_FROM:
        return NativeCalls(WRITTEN_FROM[op.name], lambda params, a: _written(op, params, a))
    pattern = Op.pattern.get(op)
    if pattern in (OpPattern.ELEM_WISE, OpPattern.BROADCAST) and _is_pure(op):
        smallest = PASSES_FROM if op.name in MANY_PASSES else FUNCTIONS_FROM
        return NativeCalls(smallest, lambda params, a: _pointwise(op, params, a))
    return None


def _is_pure(op: Op) -> bool:
    return not Op.mutates.contains(op) and Op.compute.contains(op) and not Op.alias.contains(op)


def _generic(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    if any(array.dtype not in (FLOAT32, FLOAT64) or not array.size for array in arrays):
        return None
    return run_generic(op, params, arrays)


def _written(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    if any([array.dtype.kind not in "fiub" or not array.size for array in arrays]):
        return None
    return run_written(op, params, arrays)


def _select(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    body = element(op, params, tuple([array.dtype for array in arrays]))
    return None if body is None else run_pointwise(op_key(op, params), body, arrays)


def _pointwise(op: Op, params: Any, arrays: Sequence[Array]) -> Any:
    body = element(op, params, tuple([array.dtype for array in arrays]))
    if body is None:
        return None
    is_plain = not body.calls and op.name not in MANY_PASSES
    if is_plain and max([array.size for array in arrays]) < ARITHMETIC_FROM:
        return None
    return run_pointwise(op_key(op, params), body, arrays)
