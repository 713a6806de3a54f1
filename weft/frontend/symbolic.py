"""Values whose elements are extents: the arithmetic on shapes that exporters write, while shapes have names.

Arrays of objects, numbers and extents, come in, the same go out. An operator that is not listed, or whose result
depends on what the names stand for, gives nothing: then it computes when the model runs.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType, is_integer
from ..base.errors import InvalidValue
from ..base.extents import Extent, Untold, greatest, least
from ..core.interpret import Array, run_reference
from ..core.op import Op
from ..core.schema import Params

Number = int | Extent

# Operators that move elements: their references do so with any.
MOVES = frozenset(
    "broadcast_to concatenate copy expand_dims flatten repeat reshape reverse split squeeze stack strided_slice take "
    "tile transpose".split()
)


def _by_positive(function: Callable[[Extent, Extent], Any]) -> Callable[[Number, Number], Any]:
    """A division by what is never negative; by 0 is left to the operator."""

    def checked(a: Number, b: Number) -> Any:
        if not b >= 0 or b == 0:
            raise Untold("a division by what may be negative, or by 0")
        return function(Extent.of(a), Extent.of(b))

    return checked


def _quotient(a: Extent, b: Extent) -> Extent:
    """Rounded towards zero: as the floor has it where a is not negative."""
    try:
        if a >= 0:
            return a // b
    except Untold:
        pass
    return greatest(a, 0) // b - greatest(-a, 0) // b


def _remainder(a: Extent, b: Extent) -> Extent:
    """What a quotient leaves, which has the sign of a."""
    return a - b * _quotient(a, b)


def _is_less(a: Number, b: Number) -> bool:
    return Extent.of(a) < Extent.of(b)


def _is_equal(a: Number, b: Number) -> bool:
    return Extent.of(a).equals(b)


_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "broadcast_add": operator.add,
    "broadcast_sub": operator.sub,
    "broadcast_mul": operator.mul,
    "broadcast_div": _by_positive(_quotient),
    "broadcast_mod": _by_positive(operator.mod),
    "fmod": _by_positive(_remainder),
    "broadcast_min": least,
    "broadcast_max": greatest,
    "broadcast_equal": _is_equal,
    "broadcast_not_equal": lambda a, b: not _is_equal(a, b),
    "broadcast_less": _is_less,
    "broadcast_greater": lambda a, b: _is_less(b, a),
    "broadcast_less_equal": lambda a, b: not _is_less(b, a),
    "broadcast_greater_equal": lambda a, b: not _is_less(a, b),
}
_TWO |= {f"elemwise_{name}": _TWO[f"broadcast_{name}"] for name in ("add", "sub", "mul", "div", "mod")}
_SCALAR: dict[str, Callable[[Any, Any], Any]] = {
    "__add_scalar__": operator.add,
    "__sub_scalar__": operator.sub,
    "__rsub_scalar__": lambda a, b: b - a,
    "__mul_scalar__": operator.mul,
}
_REDUCED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": least,
    "max": greatest,
}


def folded(op: Op, params: Params, inputs: Sequence[Array], dtypes: Sequence[DType | None]) -> list[Array] | None:
    """The outputs of an operator, of these dtypes, on arrays of numbers and extents; None where they are not told."""
    whole = all(dtype is not None and (is_integer(dtype) or dtype == np.bool_) for dtype in dtypes)
    if not whole and op.name != "cast":
        return None
    try:
        results = _results(op, params, [np.asarray(x).astype(object) for x in inputs])
    except (Untold, InvalidValue):
        return None
    return None if results is None else [np.asarray(x, object) for x in results]


def plain(values: Array) -> Array:
    """Extents that are numbers as such."""
    made = np.empty(values.shape, object)
    for place, value in np.ndenumerate(values):
        number = value.number if isinstance(value, Extent) else value
        made[place] = value if number is None else number
    return made


def is_number(values: Array) -> bool:
    """Whether no name is among the elements."""
    return not any(isinstance(value, Extent) for value in values.flat)


def _results(op: Op, params: Params, inputs: list[Array]) -> list[Any] | None:
    name = op.name
    if name == "take":
        return run_reference(op, params, [inputs[0], inputs[1].astype(np.int64)])
    if name in MOVES:
        return run_reference(op, params, inputs)
    if name == "cast":
        return [np.frompyfunc(bool, 1, 1)(inputs[0])] if params.dtype == np.bool_ else [inputs[0]]
    if name == "negative":
        return [np.frompyfunc(operator.neg, 1, 1)(inputs[0])]
    if name in ("where", "broadcast_where"):
        return [_chosen(*inputs)]
    if name in _TWO:
        return [_each(_TWO[name], *inputs)]
    if name in _SCALAR and float(params.scalar).is_integer():
        return [_each(_SCALAR[name], inputs[0], np.array(int(params.scalar), object))]
    if name in _REDUCED and inputs[0].ndim == 1 and inputs[0].size and not params.exclude:
        total = functools.reduce(_REDUCED[name], inputs[0])
        return [np.array([total], object)]
    return None


def _each(function: Callable[[Any, Any], Any], *inputs: Array) -> Array:
    return np.asarray(np.frompyfunc(function, 2, 1)(*inputs), object)


def _chosen(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition.astype(bool), x, y)
