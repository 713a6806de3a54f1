"""Integer index arithmetic kept symbolic: sums of coefficient times value, plus a constant.

An Affine is `base + lane * stride`. Addresses are assembled from it outermost value first, so that
each partial sum is computed in the loop that changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from .builder import Builder, Value

# Above this many terms a product of two sums is computed rather than multiplied out.
MAX_DISTRIBUTED_TERMS = 4


@dataclass(frozen=True, slots=True)
class Linear:
    """constant + the sum of value * coefficient; arithmetic is modulo 2**64."""

    constant: int
    terms: dict[str, tuple[Value, int]]

    @staticmethod
    def of(value: Value) -> Linear:
        return Linear(0, {value.ref: (value, 1)})

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def add(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for ref, (value, coefficient) in other.terms.items():
            total = terms[ref][1] if ref in terms else 0
            total += coefficient * factor
            if total:
                terms[ref] = (value, total)
            else:
                terms.pop(ref, None)
        return Linear(self.constant + other.constant * factor, terms)

    def scale(self, factor: int) -> Linear:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        terms = {ref: (value, c * factor) for ref, (value, c) in self.terms.items()}
        return Linear(self.constant * factor, terms)

    def divisor(self) -> int:
        """The largest number known to divide every value this can take; 0 if it is always 0."""
        result = self.constant
        for _, coefficient in self.terms.values():
            result = gcd(result, coefficient)
        return abs(result)


ZERO = Linear(0, {})
ONE = Linear(1, {})


@dataclass(frozen=True, slots=True)
class Affine:
    """A scalar index (`lanes` 1, stride 0) or a vector of evenly spaced ones."""

    base: Linear
    stride: Linear
    lanes: int


def scalar(linear: Linear) -> Affine:
    return Affine(linear, ZERO, 1)


def multiply(b: Builder, x: Linear, y: Linear) -> Linear:
    """The product; multiplied out when one side is constant or a single value."""
    if x.is_constant:
        return y.scale(x.constant)
    if y.is_constant:
        return x.scale(y.constant)
    if len(x.terms) == 1 and not x.constant:
        x, y = y, x
    if len(y.terms) == 1 and not y.constant and len(x.terms) <= MAX_DISTRIBUTED_TERMS:
        ((factor, scale),) = y.terms.values()
        result = Linear(0, {factor.ref: (factor, x.constant * scale)} if x.constant else {})
        for value, coefficient in x.terms.values():
            product = Linear.of(b.binary("mul", *_ordered(value, factor)))
            result = result.add(product, coefficient * scale)
        return result
    return Linear.of(b.binary("mul", materialise(b, x), materialise(b, y)))


def materialise(b: Builder, linear: Linear) -> Value:
    """The sum as one i64, each partial sum in the outermost scope that has its values."""
    total: Value | None = None
    for value, coefficient in sorted(linear.terms.values(), key=lambda t: (t[0].level, t[0].ref)):
        term = value
        if coefficient != 1:
            term = b.binary("mul", value, b.like(value, coefficient))
        total = term if total is None else b.binary("add", total, term)
    constant = b.const("i64", 1, linear.constant)
    if total is None:
        return constant
    return b.binary("add", total, constant) if linear.constant else total


def as_vector(b: Builder, index: Affine) -> Value:
    """The index as an i64, or as a vector of them."""
    base = materialise(b, index.base)
    if index.lanes == 1:
        return base
    result = b.splat(base, index.lanes)
    if index.stride.is_constant and index.stride.constant == 0:
        return result
    if index.stride.is_constant:
        steps = lane_numbers("i64", index.lanes, index.stride.constant)
    else:
        stride = b.splat(materialise(b, index.stride), index.lanes)
        steps = b.binary("mul", lane_numbers("i64", index.lanes), stride)
    return b.binary("add", result, steps)


def lane_numbers(element: str, lanes: int, step: int = 1) -> Value:
    """<0, step, 2*step, ...>."""
    numbers = ", ".join(f"{element} {lane * step}" for lane in range(lanes))
    return Value(f"<{numbers}>", element, lanes, 0)


def byte_address(b: Builder, base: Value, offset: Linear) -> Value:
    """base + offset in bytes; the constant comes last, where the machine adds it for free."""
    pointer = base
    for value, coefficient in sorted(offset.terms.values(), key=lambda t: (t[0].level, t[0].ref)):
        step = value if coefficient == 1 else b.binary("mul", value, b.like(value, coefficient))
        text = f"getelementptr i8, ptr {pointer.ref}, i64 {step.ref}"
        pointer = b.pure("ptr", 1, text, (pointer, step), hoist=True)
    if offset.constant:
        text = f"getelementptr i8, ptr {pointer.ref}, i64 {offset.constant}"
        pointer = b.pure("ptr", 1, text, (pointer,))
    return pointer


def _ordered(x: Value, y: Value) -> tuple[Value, Value]:
    return (x, y) if x.ref <= y.ref else (y, x)
