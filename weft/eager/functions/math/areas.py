"""Rows: areas under points, by trapezoids."""

from __future__ import annotations

from typing import Any

from ....base.dtype import is_float
from ....base.errors import RunError
from ....core.op import Op
from ...tensor.tensor import Tensor, axis_of
from ..math.arithmetic import add, mul, sub
from ..operands import floating
from ..reduce.reduce import sum as total
from ..shape.parts import narrow
from ..shape.shape import reshape
from ..table import row


@row(method=False, aliases=["trapz"])
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The area under points along an axis, by trapezoids"""
    if not y._shape[axis_of(dim, y.ndim)]:
        return total(floating(y) if not is_float(y._dtype) else y, dim)
    areas, axis = _areas(y, x, 1.0 if dx is None else dx, dim)
    return total(areas, axis)


@row(method=False)
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The areas under points along an axis up to each, by trapezoids"""
    areas, axis = _areas(y, x, 1.0 if dx is None else dx, dim)
    running: Tensor = Op.get("cumsum")(areas, axis=axis % areas.ndim)
    return running


def _areas(y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, int]:
    axis = axis_of(dim, y.ndim)
    size = y._shape[axis]
    if not size:
        return y, axis
    heights = add(narrow(y, axis, 0, size - 1), narrow(y, axis, 1, size - 1))
    if isinstance(x, Tensor):
        if not x.ndim:
            raise RunError("trapezoid: The provided `x` cannot be a scalar. Use `dx` instead.")
        if x.ndim == 1:
            if x._shape[0] != size:
                raise RunError("trapezoid: There must be one `x` value for each sample point")
            x = reshape(x, [-1 if at == axis else 1 for at in range(y.ndim)])
        along = axis - y.ndim
        steps = x._shape[along]
        widths = sub(narrow(x, along, 1, steps - 1), narrow(x, along, 0, steps - 1))
        return mul(mul(heights, widths), 0.5), axis
    return mul(heights, _half(dx)), axis


def _half(dx: Any) -> Any:
    return mul(dx, 0.5) if isinstance(dx, Tensor) else dx / 2
