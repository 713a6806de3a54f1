"""Rows: functions of vectors and matrices that are composed of products and sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import is_complex, is_float, is_integer
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.linalg.distances import DistancesAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ..math.arithmetic import add, div, mul, sub
from ..math.complex import adjoint, conj, imag, real
from ..math.complex import complex as of_parts
from ..math.pairs import clamp
from ..math.unary import sqrt
from ..operands import floating, must_be_real, promoted
from ..reduce.reduce import mean, vector_norm
from ..reduce.reduce import sum as total
from ..shape.join import taken
from ..shape.parts import diagonal, narrow
from ..shape.shape import broadcast_shapes, broadcast_tensors, expand, reshape, unsqueeze
from ..table import row
from .matmul import batched, matmul

LINALG = "weft.linalg"
_COPY, _DISTANCES = Op.get("copy"), Op.get("distances")


@row(out=False)
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal"""
    if input.ndim != 2:
        raise RunError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return total(diagonal(input))


@row(name="diagonal", space=LINALG, method=False)
def _matrix_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices in the last two axes"""
    return diagonal(A, offset, dim1, dim2)


@row(space=LINALG, method=False, out=True)
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Sums of products along an axis; complex numbers of x are conjugated"""
    return total(mul(conj(x), y), dim)


row(matmul, space=LINALG, method=False, out=True)


@row(space=LINALG, method=False, out=True)
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors along an axis of 3"""
    if input.ndim != other.ndim:
        raise RunError("linalg.cross: inputs must have the same number of dimensions.")
    axis = axis_of(dim, input.ndim)
    left, right = promoted(*broadcast_tensors(input, other))
    if input._shape[axis] != 3 or other._shape[axis] != 3:
        raise RunError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[axis]} and {other.shape[axis]}"
        )
    turn = lambda x, order: taken(x, axis, np.asarray(order))
    return sub(mul(turn(left, (1, 2, 0)), turn(right, (2, 0, 1))), mul(turn(left, (2, 0, 1)), turn(right, (1, 2, 0))))


@row(name="cross", out=True)
def _cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors along an axis of 3, by default the first one there is"""
    if input.ndim != other.ndim:
        raise RunError("inconsistent tensors dimensions")
    if dim is None:
        dim = next((i for i, n in enumerate(input._shape) if n == 3), None)
        if dim is None:
            raise RunError("no dimension of size 3 in input")
    return cross(input, other, dim=dim)


@row(space=LINALG, method=False, out=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A matrix multiplied with itself n times; of its inverse if n is below 0"""
    must_be_square("linalg.matrix_power", A)
    if n == 0:
        eye = np.broadcast_to(np.eye(A._shape[-1], dtype=A._dtype), A._shape)
        nothing: Tensor = Op.get("zeros_like")(A)
        return add(wrap(eye), nothing)
    base = A
    if n < 0:
        base, n = Op.get("inverse")(A), -n
    made = None
    while True:
        if n & 1:
            made = base if made is None else batched(made, base)
        n >>= 1
        if not n:
            assert made is not None
            return made if made is not A else apply(_COPY, None, [A])[0]
        base = batched(base, base)


row(matrix_power, out=True)


def must_be_square(name: str, A: Tensor) -> None:
    shape = A._shape
    if len(shape) < 2:
        raise RunError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if shape[-1] != shape[-2]:
        raise RunError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices"
        )


# Distances.


@row(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """The p-norms of the differences of all pairs of rows"""
    for name, x in (("X1", x1), ("X2", x2)):
        if not is_float(x._dtype):
            raise RunError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x.ndim < 2:
            raise RunError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1._shape[-1] != x2._shape[-1]:
        raise RunError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RunError("cdist only supports non-negative p values")
    if compute_mode not in _MODES:
        raise InvalidValue(f"{compute_mode} is not a valid value for compute_mode")
    if p == 2:
        return _distances(*promoted(x1, x2), _MODES[compute_mode])
    gaps = sub(unsqueeze(x1, -2), unsqueeze(x2, -3))
    if not gaps._shape[-1]:
        return total(gaps, -1)
    return vector_norm(gaps, p, -1)


_MODES = {
    None: None,
    0: None,
    "use_mm_for_euclid_dist_if_necessary": None,
    1: True,
    "use_mm_for_euclid_dist": True,
    2: False,
    "donot_use_mm_for_euclid_dist": False,
}
FEW_ROWS = 25  # whose distances are those of differences unless products are asked for


def _distances(a: Tensor, b: Tensor, by_products: bool | None) -> Tensor:
    rows = a._shape[-2], b._shape[-2]
    if a.ndim > 2 or b.ndim > 2:
        batch = broadcast_shapes(a._shape[:-2], b._shape[:-2])
        a, b = (expand(x, (*batch, *x._shape[-2:])) for x in (a, b))
    chosen = max(rows) > FEW_ROWS if by_products is None else by_products
    return apply(_DISTANCES, DistancesAttrs(by_products=chosen), [a, b])[0]


@row(space="weft.nn.functional", method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of different rows"""
    must_be_real("pdist", input)
    if input.ndim != 2:
        raise RunError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise RunError("pdist only supports non-negative p values")
    first, second = np.triu_indices(input._shape[0], 1)
    gaps = sub(taken(input, 0, first), taken(input, 0, second))
    if not gaps.numel():
        return total(gaps, -1)
    return vector_norm(gaps, p, -1)


row(pdist, method=False)

# Statistics of several variables.


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


# Areas under points.


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
    return Op.get("cumsum")(areas, axis=axis % areas.ndim)


@row
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The places of elements by their number"""
    sizes = [int(n) for n in (shape if isinstance(shape, (tuple, list)) else [shape])]
    if indices._dtype.kind not in "iu":
        raise InvalidValue(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if any(n < 0 for n in sizes):
        raise InvalidValue(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    made, rest = [], array_of(indices)
    for size in reversed(sizes):
        made.append(wrap(np.asarray(rest % size)))
        rest = rest // size
    return tuple(made[::-1])


@row(inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices of an axis scaled down to a norm where theirs is greater"""
    rank = input.ndim
    if rank < 2:
        raise RunError("renorm: input needs at least 2 dimensions, got " + str(rank))
    if p <= 0:
        raise RunError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RunError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    axis = axis_of(dim, rank)
    others = tuple(at for at in range(rank) if at != axis)
    norms = vector_norm(input, p, others, True)
    scale = div(maxnorm, add(norms, 1e-7))
    wanted = norms > maxnorm
    return mul(input, _where(wanted, scale))


def _where(wanted: Tensor, scale: Tensor) -> Tensor:
    made: Tensor = Op.get("broadcast_where")(wanted, scale, wrap(np.ones((), scale._dtype)))
    return made


def _swapped(self: Tensor, other: Any) -> Any:
    return matmul(other, self) if isinstance(other, Tensor) else NotImplemented


Tensor.__rmatmul__ = _swapped  # type: ignore[attr-defined]
