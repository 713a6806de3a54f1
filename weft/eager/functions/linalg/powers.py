"""Rows of linalg: powers of a matrix, their sum in the exponential, and powers of numbers side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import BOOL, is_complex, is_float
from ....base.errors import InvalidType, RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import add
from ..shape.join import cat, flip
from ..shape.shape import expand, reshape, unsqueeze
from ..table import row
from .matmul import batched
from .matrices import LINALG, eye, must_be_square, must_be_squares

_COPY, _EXP = (Op.get(name) for name in ("copy", "matrix_exp"))


@row(space=LINALG, method=False, out=True)
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A matrix multiplied with itself n times; of its inverse if n is below 0

    >>> import weft
    >>> weft.linalg.matrix_power(weft.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
    tensor([[1., 3.],
            [0., 1.]])
    """
    must_be_square("linalg.matrix_power", A)
    if n == 0:
        nothing: Tensor = Op.get("zeros_like")(A)
        return add(eye(A, *A._shape[-2:]), nothing)
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


@row
def matrix_exp(A: Tensor) -> Tensor:
    """1 + A + A A / 2! + ... of a square matrix"""
    must_be_squares("linalg.matrix_exp", A)
    return apply(_EXP, None, [A])[0]


row(matrix_exp, space=LINALG, method=False)


@row(name="vander", space=LINALG, method=False)
def _vander(x: Tensor, N: Any = None) -> Tensor:
    """1, x, x^2 ... along a new last dimension"""
    if x._dtype == BOOL:
        raise RunError("linalg.vander supports floating point, complex, and integer tensors")
    count = (x._shape[-1] if x.ndim else 1) if N is None else _whole(N)
    if count <= 1:
        raise RunError("N must be greater than 1.")
    return _powers(reshape(x, (1,)) if not x.ndim else x, count)


@row(method=False)
def vander(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:
    """Descending powers of the elements of a vector, a row for each"""
    if x.ndim != 1:
        raise RunError("x must be a one-dimensional tensor.")
    count = x._shape[0] if N is None else _whole(N)
    if count < 0:
        raise RunError("N must be non-negative.")
    kind = x._dtype
    wide = x if is_float(kind) or is_complex(kind) else x._cast(np.dtype(np.int64))
    if count == 0:
        return wrap(np.empty((x._shape[0], 0), wide._dtype))
    made = _powers(wide, count) if count > 1 else wrap(np.ones((len(array_of(x)), 1), wide._dtype))
    return made if increasing else flip(made, (-1,))


def _whole(N: Any) -> int:
    if not isinstance(N, (int, np.integer)):
        raise InvalidType(f"vander(): argument 'N' must be int, not {type(N).__name__}")
    return int(N)


def _powers(x: Tensor, count: int) -> Tensor:
    kind = x._dtype
    x = x if is_float(kind) or is_complex(kind) else x._cast(np.dtype(np.int64))
    rest = expand(unsqueeze(x, -1), (*x._shape, count - 1))
    ones = wrap(np.ones((*x._shape, 1), x._dtype))
    return cat([ones, rest.cumprod(-1)], -1)
