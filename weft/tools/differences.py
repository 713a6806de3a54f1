"""How far two arrays are apart: the numbers of a comparison, without the arrays."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..runtime.program import Array


class Difference(NamedTuple):
    """The largest difference, as it is and as a part of the largest magnitude; steps of the float format between the
    two values that are farthest apart; the cosine of the angle between the arrays; and where the first number is that
    is none, or infinite, in one of them alone."""

    max_abs: float
    relative: float
    ulp: float
    cosine: float
    first_nan: tuple[int, ...] | None

    def beyond(self, tolerance: float) -> bool:
        """Whether it is more than a part of the largest magnitude."""
        return not self.relative <= tolerance


SAME = Difference(0.0, 0.0, 0.0, 1.0, None)
APART = Difference(math.inf, math.inf, math.inf, 0.0, None)


def difference_of(value: Array, wanted: Array) -> Difference:
    """How far a value is from what it should be; everything, where shapes differ.

    >>> found = difference_of(np.float32([1, 2.5]), np.float64([1, 2]))
    >>> found.max_abs, found.relative, found.first_nan
    (0.5, 0.25, None)
    """
    if value.shape != wanted.shape:
        return APART
    if not value.size:
        return SAME
    if value.dtype == object or wanted.dtype == object:
        return SAME if np.array_equal(value, wanted) else APART
    if not value.ndim:
        found = difference_of(value.reshape(1), wanted.reshape(1))
        return found._replace(first_nan=None if found.first_nan is None else ())
    wide: Any = np.complex128 if "c" in (value.dtype.kind, wanted.dtype.kind) else np.float64
    a, b = value.astype(wide), wanted.astype(wide)
    broken = _broken(a, b)
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        apart[broken] = np.inf
        finite = np.isfinite(b) & np.isfinite(a)
        scale = float(np.abs(b[finite]).max(initial=0.0))
        most = float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max())
        where = tuple(int(place) for place in np.argwhere(broken)[0]) if broken.any() else None
        relative = most / (scale or 1.0)  # of what should be zero, the difference itself
        return Difference(most, relative, _ulps(value, b), _cosine(a[finite], b[finite]), where)


def _broken(a: Array, b: Array) -> Array:
    """Where one of two numbers is finite, and the other is not, or they are not in the same way."""
    same = (np.isnan(a) & np.isnan(b)) | (a == b)
    found: Array = (~np.isfinite(a) | ~np.isfinite(b)) & ~same
    return found


def _ulps(value: Array, wanted: Array) -> float:
    """How many numbers of the value's own format lie between the two, where they are farthest apart."""
    if value.dtype.kind != "f" or value.dtype.itemsize > 8:  # numpy knows the formats of its own alone
        return float(np.abs(value.astype(np.float64) - wanted.real).max())
    rounded = wanted.astype(value.dtype)
    finite = np.isfinite(rounded.astype(np.float64)) & np.isfinite(value.astype(np.float64))
    step = np.spacing(np.maximum(np.abs(rounded), np.abs(value)).astype(value.dtype))
    apart = np.abs(value.astype(np.float64) - rounded.astype(np.float64))
    ratio = apart / np.maximum(np.abs(step.astype(np.float64)), 5e-324)
    return float(ratio[finite].max(initial=0.0))


def _cosine(a: Array, b: Array) -> float:
    sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.real(np.vdot(a, b)) / sizes) if sizes else float(not a.any() and not b.any())
