"""Rows: covariances and correlations of the rows of a matrix, which are variables."""

from __future__ import annotations

from typing import Any

from ....base.dtype import is_complex, is_integer
from ....base.errors import RunError
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor
from ..math.arithmetic import div, mul, sub
from ..math.complex import adjoint, imag, real
from ..math.complex import complex as of_parts
from ..math.pairs import clamp
from ..math.unary import sqrt
from ..operands import floating
from ..reduce.reduce import mean
from ..reduce.reduce import sum as total
from ..shape.parts import diagonal
from ..shape.shape import reshape, unsqueeze
from ..table import row
from .matmul import matmul


@row
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """The covariances of rows, which are variables"""
    if input.ndim > 2:
        raise RunError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    rows = floating(input if input.ndim == 2 else reshape(input, (1, -1)))
    count = rows._shape[1]
    weights = _weights(count, fweights, aweights)
    if weights is None:
        centred, share = sub(rows, mean(rows, 1, True)), float(count)
    else:
        scale, whole = weights
        share = whole
        centred = sub(rows, div(total(mul(rows, scale), 1, True), total(scale)))
    norm = _degrees(count, fweights, aweights, share, correction)
    right = centred if weights is None else mul(centred, weights[0])
    made = div(matmul(right, adjoint(centred)), norm)
    return reshape(made, ()) if made._shape == (1, 1) else made


def _weights(count: int, fweights: Tensor | None, aweights: Tensor | None) -> tuple[Tensor, Any] | None:
    for name, tensor, whole in (("fweights", fweights, True), ("aweights", aweights, False)):
        if tensor is None:
            continue
        if tensor.ndim > 1:
            raise RunError(f"cov(): expected {name} to have one or fewer dimensions")
        if whole != is_integer(tensor._dtype):
            kind = "integral" if whole else "floating point"
            raise RunError(f"cov(): expected {name} to have {kind} dtype but got {tensor.dtype}")
        if tensor.numel() != count:
            raise RunError(
                f"cov(): expected {name} to have the same numel as there are observations in the "
                f"input but got {tensor.numel()} != {count}"
            )
        if (array_of(tensor) < 0).any():
            raise RunError(f"cov(): {name} cannot be negative")
    if fweights is None and aweights is None:
        return None
    both = [floating(w) for w in (fweights, aweights) if w is not None]
    scale = both[0] if len(both) == 1 else mul(*both)
    return scale, total(scale)


def _degrees(count: int, fweights: Tensor | None, aweights: Tensor | None, share: Any, correction: int) -> Any:
    """What covariances are divided by, not below 0."""
    if aweights is None or correction == 0:
        taken_off: Any = correction
    else:
        scale = aweights if fweights is None else mul(fweights, aweights)
        taken_off = mul(div(total(mul(scale, aweights)), share), correction)
    left = sub(share, taken_off) if isinstance(share, Tensor) else share - taken_off
    return clamp(left, min=0) if isinstance(left, Tensor) else max(left, 0.0)


@row
def corrcoef(input: Tensor) -> Tensor:
    """The correlations of rows, which are variables"""
    if input.ndim > 2:
        raise RunError(
            f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.ndim} dimensions"
        )
    spread = cov(input)
    if not spread.ndim:
        return div(spread, spread)
    deviations = sqrt(real(diagonal(spread)))
    made = div(div(spread, unsqueeze(deviations, 1)), unsqueeze(deviations, 0))
    if is_complex(made._dtype):
        return of_parts(*(clamp(part(made), min=-1, max=1) for part in (real, imag)))
    return clamp(made, min=-1, max=1)
