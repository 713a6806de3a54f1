"""Loads, stores and prefetches: contiguous vectors, strided and gathered lanes, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

from ..base.dtype import DType
from ..te.linear import ONE, ZERO, Affine, Linear
from .affine import Index, Sum, as_vector, byte_address, lane_numbers, multiply
from .builder import Builder, Value, mangled
from .llvm_types import BITS, memory_type, vector_of

BACKWARDS: Sum = Linear(-1, {})
EVERY_OTHER: Sum = Linear(2, {})
Access = Affine[Value] | Sequence[Index]  # evenly spaced elements of a buffer, or an index of each dimension


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer in memory: where it starts, its strides in elements, the bytes of an element."""

    base: Value
    dtype: DType
    strides: tuple[Sum, ...]
    lanes: int
    alignment: int

    @property
    def element(self) -> str:
        return memory_type(self.dtype)

    @property
    def item_bytes(self) -> int:
        return BITS[self.element] // 8


@dataclass(frozen=True, slots=True)
class Span:
    """Evenly spaced elements from a pointer on; `step` is in elements."""

    pointer: Value
    step: Sum
    lanes: int
    alignment: int


def load(b: Builder, place: Place, access: Access, mask: Value | None) -> Value:
    """Elements as they lie in memory; lanes that the mask leaves out are 0 and not touched.

    What this scope has loaded is not loaded again until something is stored there.
    """
    if not isinstance(access, Affine):
        return _load(b, place, access, mask)
    offset, step, lanes = access
    key = (offset.constant, *offset.terms.items(), step.constant, lanes, mask)
    known = b.loaded_from(place.base)
    value = known.get(key)
    if value is None:
        value = known[key] = _load(b, place, access, mask)
    return value


def _load(b: Builder, place: Place, access: Access, mask: Value | None) -> Value:
    span = _span(b, place, access)
    if span is None:
        return _gather(b, place, _pointers(b, place, access), mask)  # type: ignore[arg-type]
    if mask is not None and span.lanes == 1 and mask.lanes == 1:
        return _load_if(b, place, span, mask)
    if span.step == ZERO:
        return _load_one(b, place, span, mask)
    if span.step == ONE:
        return _load_run(b, place, span, mask)
    if span.step == BACKWARDS and mask is None:
        return _load_backwards(b, place, span)
    if span.step == EVERY_OTHER and b.has_masks:
        return _load_every_other(b, place, span, mask)
    return _gather(b, place, _spread(b, place, span), mask)


def store(b: Builder, place: Place, access: Access, value: Value, mask: Value | None) -> None:
    """Values, already as they lie in memory, into the lanes that the mask names."""
    b.forget_loaded(place.base)
    span = _span(b, place, access)
    if span is None:
        _scatter(b, place, _pointers(b, place, access), value, mask)  # type: ignore[arg-type]
    elif mask is not None and value.lanes == 1 and not b.has_masks:
        b.branch(mask, lambda: _store_plain(b, span, value), [])
    elif mask is not None and value.lanes == 1:
        pointer = _masked_pointer(b, span.pointer, mask)
        b.line(f"store {value.type} {value.ref}, {pointer.type} {pointer.ref}, align {span.alignment}")
    elif span.lanes == 1 or span.step == ONE:
        _store_run(b, place, span, value, mask)
    else:
        _scatter(b, place, _spread(b, place, span), value, mask)


def _store_plain(b: Builder, span: Span, value: Value) -> list[Value]:
    b.line(f"store {value.type} {value.ref}, {span.pointer.type} {span.pointer.ref}, align {span.alignment}")
    return []


def pointer_to(b: Builder, place: Place, access: Access) -> Value:
    """Where one element is."""
    span = _span(b, place, access)
    assert span is not None
    return span.pointer


def prefetch(b: Builder, place: Place, access: Access, level: int) -> None:
    span = _span(b, place, access)
    if span is None:
        return
    name = "llvm.prefetch.p0"
    b.declarations.setdefault(name, f"declare void @{name}(ptr, i32, i32, i32)")
    locality = min(max(4 - level, 0), 3)
    b.line(f"call void @{name}({span.pointer.type} {span.pointer.ref}, i32 0, i32 {locality}, i32 1)")


def _span(b: Builder, place: Place, access: Access) -> Span | None:
    """The access as evenly spaced elements, or None when an index is an arbitrary vector."""
    if isinstance(access, Affine):
        offset, step, lanes = access
    else:
        offset, step, lanes = ZERO, ZERO, 1
        for index, stride in zip(access, place.strides):
            if isinstance(index, Value):
                return None
            offset = offset.plus(multiply(b, index.base, stride))
            if index.lanes > 1:
                lanes = index.lanes
                step = step.plus(multiply(b, index.stride, stride))
    if place.lanes > 1:
        offset, step, lanes = offset.times(place.lanes), ONE, place.lanes
    offset = offset.times(place.item_bytes)
    alignment = gcd(place.alignment or place.item_bytes, offset.divisor())
    return Span(byte_address(b, place.base, offset), step, lanes, alignment)


def _load_plain(b: Builder, place: Place, span: Span) -> Value:
    text = f"load {place.element}, {span.pointer.type} {span.pointer.ref}, align {span.alignment}"
    return b.effect(place.element, 1, text)


def _load_one(b: Builder, place: Place, span: Span, mask: Value | None) -> Value:
    if mask is not None:
        return _gather(b, place, _spread(b, place, span), mask)
    return b.splat(_load_plain(b, place, span), span.lanes)


def _load_if(b: Builder, place: Place, span: Span, mask: Value) -> Value:
    if not b.has_masks:
        return b.branch(mask, lambda: [_load_plain(b, place, span)], [b.const(place.element, 1, 0)])[0]
    pointer = _masked_pointer(b, span.pointer, mask)
    text = f"load {place.element}, {pointer.type} {pointer.ref}, align {span.alignment}"
    loaded = b.effect(place.element, 1, text)
    return b.select(mask, loaded, b.like(loaded, 0))


def _masked_pointer(b: Builder, pointer: Value, mask: Value) -> Value:
    """The pointer, or one to bytes nobody reads when the mask is false."""
    b.uses_nowhere = True
    text = f"select i1 {mask.ref}, ptr {pointer.ref}, ptr %nowhere"
    return b.pure("ptr", 1, text, (mask, pointer))


def _load_run(b: Builder, place: Place, span: Span, mask: Value | None) -> Value:
    kind = vector_of(place.element, span.lanes)
    text = f"load {kind}, {span.pointer.type} {span.pointer.ref}, align {span.alignment}"
    if mask is None:
        return b.effect(place.element, span.lanes, text)
    if not b.has_masks and mask.ref in b.in_all_lanes:
        zeros = Value("zeroinitializer", place.element, span.lanes, 0)
        return b.branch(b.in_all_lanes[mask.ref], lambda: [b.effect(place.element, span.lanes, text)], [zeros])[0]
    if not b.has_masks:
        return _gather(b, place, _spread(b, place, span), mask)
    empty = Value("zeroinitializer", place.element, span.lanes, 0)
    name = f"llvm.masked.load.{mangled(empty)}.p0"
    b.declarations.setdefault(name, f"declare {kind} @{name}(ptr, i32, {mask.type}, {kind})")
    where = f"{span.pointer.type} {span.pointer.ref}, i32 {span.alignment}"
    text = f"call {kind} @{name}({where}, {mask.type} {mask.ref}, {kind} {empty.ref})"
    return b.effect(place.element, span.lanes, text)


def _load_backwards(b: Builder, place: Place, span: Span) -> Value:
    """The elements that end at the pointer, the last one first."""
    run = _load_run(b, place, _run_from(b, place, span, 1 - span.lanes), None)
    return b.shuffle(run, run, range(span.lanes - 1, -1, -1))


def _load_every_other(b: Builder, place: Place, span: Span, mask: Value | None) -> Value:
    """Elements 0, 2, 4... from the pointer on: of two runs, the second of which ends at the last element, so that
    nothing behind it is touched."""
    lanes, last = span.lanes, span.lanes - 1

    def run(first: int) -> Value:
        on = None
        if mask is not None:
            off = b.const("i1", lanes, False)
            on = b.shuffle(mask, off, [n // 2 if n % 2 == 0 else lanes for n in range(first, first + lanes)])
        return _load_run(b, place, _run_from(b, place, span, first), on)

    return b.shuffle(run(0), run(last), [2 * n if 2 * n < lanes else lanes + 2 * n - last for n in range(lanes)])


def _run_from(b: Builder, place: Place, span: Span, first: int) -> Span:
    """Neighbours, as many as there are lanes, from an element before or behind the pointer on."""
    if not first:
        return Span(span.pointer, ONE, span.lanes, span.alignment)
    text = f"getelementptr i8, {span.pointer.type} {span.pointer.ref}, i64 {first * place.item_bytes}"
    return Span(b.pure(span.pointer.element, 1, text, (span.pointer,)), ONE, span.lanes, place.item_bytes)


def _store_run(b: Builder, place: Place, span: Span, value: Value, mask: Value | None) -> None:
    if mask is None:
        _store_plain(b, span, value)
        return
    if not b.has_masks and mask.ref in b.in_all_lanes:
        b.branch(b.in_all_lanes[mask.ref], lambda: _store_plain(b, span, value), [])
        return
    if not b.has_masks:
        _scatter(b, place, _spread(b, place, span), value, mask)
        return
    name = f"llvm.masked.store.{mangled(value)}.p0"
    b.declarations.setdefault(name, f"declare void @{name}({value.type}, ptr, i32, {mask.type})")
    b.line(
        f"call void @{name}({value.type} {value.ref}, {span.pointer.type} {span.pointer.ref}, "
        f"i32 {span.alignment}, {mask.type} {mask.ref})"
    )


def _spread(b: Builder, place: Place, span: Span) -> Value:
    """A vector of pointers, one for each lane."""
    step = as_vector(b, Affine(ZERO, span.step.times(place.item_bytes), span.lanes))
    text = f"getelementptr i8, {span.pointer.type} {span.pointer.ref}, {step.type} {step.ref}"
    return b.pure(span.pointer.element, span.lanes, text, (span.pointer, step))


def _pointers(b: Builder, place: Place, indices: Sequence[Index]) -> Value:
    lanes = max(index.lanes for index in indices)
    base, offsets = ZERO, None
    for index, stride in zip(indices, place.strides):
        if isinstance(index, Affine) and index.lanes == 1:
            base = base.plus(multiply(b, index.base, stride))
            continue
        vector = index if isinstance(index, Value) else as_vector(b, index)
        factor = as_vector(b, Affine(stride.times(place.item_bytes), ZERO, lanes))
        term = b.binary("mul", vector, factor)
        offsets = term if offsets is None else b.binary("add", offsets, term)
    pointer = byte_address(b, place.base, base.times(place.item_bytes))
    steps = offsets if offsets is not None else lane_numbers("i64", lanes, 0)
    text = f"getelementptr i8, {pointer.type} {pointer.ref}, {steps.type} {steps.ref}"
    return b.pure(pointer.element, lanes, text, (pointer, steps))


def _gather(b: Builder, place: Place, pointers: Value, mask: Value | None) -> Value:
    if not b.has_masks:
        return _gather_lanes(b, place, pointers, mask)
    lanes, size = pointers.lanes, place.item_bytes
    mask = mask or b.const("i1", lanes, True)
    kind = vector_of(place.element, lanes)
    empty = Value("zeroinitializer", place.element, lanes, 0)
    name = f"llvm.masked.gather.{mangled(empty)}.v{lanes}p0"
    signature = f"{pointers.type}, i32, {mask.type}, {kind}"
    b.declarations.setdefault(name, f"declare {kind} @{name}({signature})")
    text = (
        f"call {kind} @{name}({pointers.type} {pointers.ref}, i32 {size}, {mask.type} {mask.ref}, {kind} {empty.ref})"
    )
    return b.effect(place.element, lanes, text)


def _gather_lanes(b: Builder, place: Place, pointers: Value, mask: Value | None) -> Value:
    """Each lane by itself."""
    result = b.poison(place.element, pointers.lanes)
    for lane in range(pointers.lanes):
        span = Span(b.extract(pointers, lane), ZERO, 1, place.item_bytes)
        active = None if mask is None else b.extract(mask, lane)
        item = _load_plain(b, place, span) if active is None else _load_if(b, place, span, active)
        result = b.insert(result, item, lane)
    return result


def _scatter_lanes(b: Builder, place: Place, pointers: Value, value: Value, mask: Value | None) -> None:
    """Each lane by itself, the last one last."""
    for lane in range(pointers.lanes):
        span = Span(b.extract(pointers, lane), ZERO, 1, place.item_bytes)
        item = b.extract(value, lane)
        if mask is None:
            _store_plain(b, span, item)
        else:
            b.branch(b.extract(mask, lane), partial(_store_plain, b, span, item), [])


def _scatter(b: Builder, place: Place, pointers: Value, value: Value, mask: Value | None) -> None:
    if not b.has_masks:
        _scatter_lanes(b, place, pointers, value, mask)
        return
    mask = mask or b.const("i1", value.lanes, True)
    name = f"llvm.masked.scatter.{mangled(value)}.v{value.lanes}p0"
    signature = f"{value.type}, {pointers.type}, i32, {mask.type}"
    b.declarations.setdefault(name, f"declare void @{name}({signature})")
    b.line(
        f"call void @{name}({value.type} {value.ref}, {pointers.type} {pointers.ref}, "
        f"i32 {place.item_bytes}, {mask.type} {mask.ref})"
    )
