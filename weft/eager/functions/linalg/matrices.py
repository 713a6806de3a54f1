"""What rows of linalg ask of matrices before anything else."""

from __future__ import annotations

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import RunError
from ...tensor.tensor import Tensor, wrap

LINALG = "weft.linalg"


def must_be_matrices(name: str, A: Tensor) -> None:
    if A.ndim < 2:
        raise RunError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if not (is_float(A._dtype) or is_complex(A._dtype)):
        raise RunError(f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.title}")


def must_be_square(name: str, A: Tensor) -> None:
    shape = A._shape
    if len(shape) < 2:
        raise RunError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if shape[-1] != shape[-2]:
        raise RunError(
            f"{name}: A must be batches of square matrices, but they are {shape[-2]} by {shape[-1]} matrices"
        )


def must_be_squares(name: str, A: Tensor) -> None:
    must_be_matrices(name, A)
    must_be_square(name, A)


def must_be_systems(name: str, b: Tensor, A: Tensor) -> None:
    for label, tensor in (("b", b), ("A", A)):
        if tensor.ndim < 2:
            raise RunError(
                f"{name}: {label} should have at least 2 dimensions, but has {tensor.ndim} dimensions instead"
            )
    must_be_squares(name, A)
    if A._dtype != b._dtype:
        raise RunError(
            f"{name}: Expected b and A to have the same dtype, but found b of type "
            f"{b.dtype.title} and A of type {A.dtype.title} instead"
        )


def eye(A: Tensor, rows: int, columns: int) -> Tensor:
    """Matrices with 1 on the diagonal, as many as A is."""
    one = np.eye(rows, columns, dtype=A._dtype)
    return wrap(np.broadcast_to(one, (*A._shape[:-2], rows, columns)))
