"""Linear forms over LLVM values as code. Addresses are assembled outermost value first, so that each
partial sum is computed in the loop that changes it."""

from __future__ import annotations

from collections.abc import Iterator

from ..te.linear import ZERO, Affine, Linear
from .builder import Builder, Value

# Above this many terms a product of two sums is computed rather than multiplied out.
MAX_DISTRIBUTED_TERMS = 4

Sum = Linear[Value]
Index = Affine[Value] | Value


def sum_of(value: Value) -> Sum:
    return Linear(0, {value: 1})


def multiply(b: Builder, x: Sum, y: Sum) -> Sum:
    """The product; multiplied out when one side is constant or a single value."""
    if x.is_constant:
        return y.times(x.constant)
    if y.is_constant:
        return x.times(y.constant)
    if len(x.terms) == 1 and not x.constant:
        x, y = y, x
    if len(y.terms) == 1 and not y.constant and len(x.terms) <= MAX_DISTRIBUTED_TERMS:
        ((factor, scale),) = y.terms.items()
        result = sum_of(factor).times(x.constant * scale)
        for value, coefficient in x.terms.items():
            product = sum_of(b.binary("mul", *sorted((value, factor))))
            result = result.plus(product, coefficient * scale)
        return result
    return sum_of(b.binary("mul", materialise(b, x), materialise(b, y)))


def materialise(b: Builder, form: Sum) -> Value:
    """The sum as one i64, each partial sum in the outermost scope that has its values."""
    total: Value | None = None
    for term in _scaled_terms(b, form):
        total = term if total is None else b.binary("add", total, term)
    constant = b.const("i64", 1, form.constant)
    if total is None:
        return constant
    return b.binary("add", total, constant) if form.constant else total


def as_vector(b: Builder, index: Affine[Value]) -> Value:
    """The index as an i64, or as a vector of them."""
    base = materialise(b, index.base)
    if index.lanes == 1:
        return base
    result = b.splat(base, index.lanes)
    if index.stride == ZERO:
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


def byte_address(b: Builder, base: Value, offset: Sum) -> Value:
    """base + offset in bytes; the constant comes last, where the machine adds it for free."""
    pointer = base
    for step in _scaled_terms(b, offset):
        text = f"getelementptr i8, {pointer.type} {pointer.ref}, i64 {step.ref}"
        pointer = b.pure(pointer.element, 1, text, (pointer, step), hoist=True)
    if offset.constant:
        text = f"getelementptr i8, {pointer.type} {pointer.ref}, i64 {offset.constant}"
        pointer = b.pure(pointer.element, 1, text, (pointer,))
    return pointer


def _scaled_terms(b: Builder, form: Sum) -> Iterator[Value]:
    """Coefficient times value for each term, those of outer scopes first."""
    for value, coefficient in sorted(form.terms.items(), key=lambda t: (t[0].level, t[0].ref)):
        yield value if coefficient == 1 else b.binary("mul", value, b.like(value, coefficient))
