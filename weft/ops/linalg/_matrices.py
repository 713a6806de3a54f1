"""What operators of linear algebra share: shapes of matrices, references in double precision by
LAPACK, products and parts of matrices for rules of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.dtype import DType, is_complex, is_integer
from ...base.errors import LinAlgError, ShapeError
from ...base.shape import Shape, show, unify, unify_dim
from .._families import Array, F, Inferred, Shapes, define, floating
from ..math.complex import part_dtype, whole_dtype


def must_be_matrices(shape: Shape, name: str) -> None:
    if shape is not None and len(shape) < 2:
        raise ShapeError(f"{name} takes matrices, not shape {show(shape)}")


def square_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    """All are square matrices of one size."""
    shape: Shape = None
    for known in (*ins, *outs):
        must_be_matrices(known, "the operator")
        shape = unify(shape, known)
    if shape is not None:
        side = unify_dim(shape[-1], shape[-2])
        shape = (*shape[:-2], side, side)
    return [shape] * len(ins), [shape] * len(outs)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that computes in double precision and gives the dtype of its first array, or
    that of the parts if the result is real; integers stay."""

    def reference(*args: Any) -> Any:
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        params = [arg for arg in args if not isinstance(arg, np.ndarray)]
        try:
            made = function(*params, *(array.astype(_double(array.dtype)) for array in arrays))
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"the matrices {show(arrays[0].shape)} cannot be taken apart", why=str(error)) from None
        if isinstance(made, tuple):
            return tuple(_narrow(part, arrays[0].dtype) for part in made)
        return _narrow(made, arrays[0].dtype)

    return reference


def _double(dtype: DType) -> Any:
    if is_integer(dtype):
        return dtype
    return np.complex128 if is_complex(dtype) else np.float64


def _narrow(made: Any, dtype: DType) -> Array:
    array = np.asarray(made)
    if is_integer(array.dtype):
        return array
    if is_complex(array.dtype):
        return array.astype(dtype if is_complex(dtype) else whole_dtype(dtype))
    return array.astype(part_dtype(dtype))


def lapack(name: str, doc: str, reference: Callable[..., Any], **columns: Any) -> Any:
    """An operator that runs on the host; its dtype rule is that all are one, if none is given."""
    given = {"dtype": floating, **columns}
    return define(name, doc, level=5, reference=in_double(reference), **given)


def product(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    return F.batch_matmul(a, b, transpose_a=ta, transpose_b=tb)


def adjoint_product(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    """The same of complex matrices, where what is transposed is conjugated, too."""
    return product(F.conj(a) if ta else a, F.conj(b) if tb else b, ta, tb)


def with_adjoints(rule: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The rule of a gradient with adjoint matrices where it has transposed ones."""
    return lambda ctx, *grads: rule(ctx, *grads, times=adjoint_product)


def swapped(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def lower_part(x: Any, diagonal: int = 0) -> Any:
    return F.triangle(x, lower=True, diagonal=diagonal)


def diagonal_part(x: Any) -> Any:
    return F.triangle(lower_part(x), lower=False)


def swapped_axes(x: Any) -> Any:
    """Square matrices transposed, whatever their rank: multiplied with those of one."""
    return product(x, diagonal_part(F.ones_like(x)), ta=True)
