"""Rows: complex numbers of parts and parts of complex numbers, conjugates, adjoint matrices."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.dtype import DTYPES, is_complex
from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, bind
from ...tensor.types import OF_NUMPY
from ...tensor.viewing import viewed
from ..operands import floating, must_be_tensors
from ..shape.shape import transpose
from ..table import FUNCTIONS, row
from .arithmetic import mul
from .compare import choose, eq, lt, ne
from .unary import cos, sin

_CONJ, _REAL, _IMAG, _COMPLEX, _ANGLE, _AS_REAL, _AS_COMPLEX, _SIGN = (
    Op.get(name) for name in "conj real imag complex angle view_as_real view_as_complex sign".split()
)
_PARTS = (DTYPES["float32"], DTYPES["float64"])


def _of_complex(input: Tensor) -> bool:
    return is_complex(input._dtype)


@row(method=False)
def real(input: Tensor) -> Tensor:
    """The real part, a view; a real tensor itself"""
    if not _of_complex(input):
        return input
    return viewed(_REAL, None, input, array_of(input).real)


@row(method=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part, a view"""
    if not _of_complex(input):
        raise RunError("imag is not implemented for tensors with non-complex dtypes.")
    return viewed(_IMAG, None, input, array_of(input).imag)


def _part(get: Callable[[Tensor], Tensor]) -> property:
    """The part as an attribute, which can be written to."""

    def write(self: Tensor, value: Tensor) -> None:
        get(self).copy_(value)

    return property(get, write)


bind(**{name: _part(FUNCTIONS["weft"][name]) for name in ("real", "imag")})


@row
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself"""
    return apply(_CONJ, None, [input])[0] if _of_complex(input) else input


@row(inplace=True, out=True)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate; a real tensor itself"""
    return conj(input)


@row(aliases=["resolve_neg"])
def resolve_conj(input: Tensor) -> Tensor:
    """Itself: conjugates are never kept for later"""
    return input


@row(aliases=["is_neg"])
def is_conj(input: Tensor) -> bool:
    """False: conjugates are never kept for later"""
    return False


@row
def isreal(input: Tensor) -> Tensor:
    """where the imaginary part is zero"""
    if _of_complex(input):
        return eq(imag(input), 0)
    return eq(input, input) | ne(input, input)


@row(out=True)
def angle(input: Tensor) -> Tensor:
    """the angle of a number in the plane: of real ones 0, or pi if negative"""
    if _of_complex(input):
        return apply(_ANGLE, None, [input])[0]
    values = floating(input)
    nothing = mul(apply(_SIGN, None, [values])[0], 0.0)
    return choose(lt(values, 0), math.pi, nothing)


# Pairs of parts.


@row(method=False)
def view_as_real(input: Tensor) -> Tensor:
    """The real and imaginary parts along a new last dimension, a view"""
    if not _of_complex(input):
        raise RunError("view_as_real is only supported for complex tensors")
    array = array_of(input)
    part = array.real
    strides = (*part.strides, part.itemsize)
    pairs = np.lib.stride_tricks.as_strided(part, (*array.shape, 2), strides)
    return viewed(_AS_REAL, None, input, pairs)


@row(method=False)
def view_as_complex(input: Tensor) -> Tensor:
    """Complex numbers of the parts along the last dimension, a view"""
    array = array_of(input)
    if array.dtype not in _PARTS:
        raise RunError(
            "view_as_complex is only supported for floating point tensors, but got a tensor of "
            f"scalar type: {input.dtype.title}"
        )
    if not array.ndim or array.shape[-1] != 2:
        raise RunError("Tensor must have a last dimension of size 2")
    _check_strides(input)
    kind = DTYPES["complex64" if array.dtype == _PARTS[0] else "complex128"]
    numbers = array.view(kind)[..., 0] if array.size else np.empty(array.shape[:-1], kind)
    return viewed(_AS_COMPLEX, None, input, numbers)


def _check_strides(input: Tensor) -> None:
    *others, last = input.stride()
    if last != 1:
        raise RunError("Tensor must have a last dimension with stride 1")
    for axis, stride in enumerate(others):
        if stride % 2:
            raise RunError(f"Tensor must have a stride divisible by 2 for dimension {axis}")
    if input.storage_offset() % 2:
        raise RunError("Tensor must have a storage_offset divisible by 2")


def _check_parts(name: str, first: Tensor, second: Tensor) -> None:
    must_be_tensors(name, input=first, other=second)
    kinds = first._dtype, second._dtype
    if any(kind not in _PARTS for kind in kinds):
        shown = " and ".join(OF_NUMPY[kind].title for kind in kinds)
        raise RunError(f"Expected both inputs to be Float or Double tensors but got {shown}")
    if kinds[0] != kinds[1]:
        raise RunError(
            f"Expected object of scalar type {OF_NUMPY[kinds[0]].title} but got scalar type "
            f"{OF_NUMPY[kinds[1]].title} for second argument"
        )


@row(method=False, out="strict")
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + 1j * imag"""
    _check_parts("complex", real, imag)
    return apply(_COMPLEX, None, [real, imag])[0]


@row(method=False, out="strict")
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """abs * cos(angle) + 1j * abs * sin(angle)"""
    _check_parts("polar", abs, angle)
    return apply(_COMPLEX, None, [mul(abs, cos(angle)), mul(abs, sin(angle))])[0]


# Adjoint matrices.


@row
def adjoint(input: Tensor) -> Tensor:
    """The last two dimensions swapped, conjugated if complex"""
    if input.ndim < 2:
        raise RunError(f"adjoint() expects tensors with two or more dimensions, got {input.ndim}")
    return conj(transpose(input, -2, -1))


def _adjoint_of_matrix(self: Tensor) -> Tensor:
    rank = self.ndim
    if rank not in (0, 2):
        raise RunError(f"tensor.H is only supported on matrices (2-D tensors). Got {rank}-D tensor.")
    made: Tensor = self.adjoint() if rank else self.conj()
    return made


def _adjoint_of_matrices(self: Tensor) -> Tensor:
    rank = self.ndim
    if rank == 1:
        raise RunError("tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor.")
    made: Tensor = self.adjoint() if rank else self.conj()
    return made


bind(H=property(_adjoint_of_matrix), mH=property(_adjoint_of_matrices))


def _of_real_numbers(write: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """An in-place form of which complex numbers have none: the result is real."""

    @functools.wraps(write)
    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(self, Tensor) and _of_complex(self):
            raise RunError(f"In-place {name} is not supported for complex tensors.")
        return write(self, *args, **kwargs)

    return call


for _name in ("abs_", "absolute_"):
    _call = _of_real_numbers(FUNCTIONS["weft"][_name], _name[:-1])
    FUNCTIONS["weft"][_name] = _call
    bind(**{_name: _call})


def magnitude_squared(input: Tensor) -> Any:
    """|x|^2, real: for sums of squares of complex numbers."""
    x, y = real(input), imag(input)
    return mul(x, x) + mul(y, y)
