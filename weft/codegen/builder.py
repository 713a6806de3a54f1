"""Builds the text of one LLVM function, with structured scopes.

A scope is the body of a loop or a branch. Its lines are kept apart until it closes, so that an
instruction whose operands all come from outer scopes can still be appended to the outermost of them
that holds: loop-invariant code motion is a choice of list. Equal pure instructions are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from ..base.dtype import DType
from .llvm_types import BITS, HALF_FLOATS, literal, vector_of


class Value(NamedTuple):
    """An SSA value or a constant; `level` is the scope that computes it."""

    ref: str
    element: str
    lanes: int
    level: int

    @property
    def type(self) -> str:
        return self.element if self.lanes == 1 else f"<{self.lanes} x {self.element}>"


@dataclass(slots=True)
class Scope:
    block: str
    lines: list[str] = field(default_factory=list)
    known: dict[str, Value] = field(default_factory=dict)
    loaded: dict[str, dict[Hashable, Value]] = field(default_factory=dict)  # by base pointer


class Machine(Protocol):
    """What the instructions that are chosen depend on."""

    @property
    def has_fma(self) -> bool: ...
    @property
    def has_half_floats(self) -> bool: ...
    def has(self, feature: str, /) -> bool: ...


class Builder:
    """Instructions of one function. `may_alias` says whether different base pointers may lead to the same memory."""

    has_masks = True  # instructions that load and store some lanes of a vector only
    has_library = True  # C's functions of float64
    has_bfloats = False  # instructions that convert to bfloat16
    has_propagating = False  # min and max of float32 that give NaN where one of both is
    short_functions: ClassVar[Mapping[str, Callable[..., Value]]] = {}  # of 16-bit floats, where others are better
    short_floats: tuple[DType, ...] = HALF_FLOATS  # those of which they are

    def __init__(self, target: Machine, may_alias: bool = False) -> None:
        self.has = target.has
        self.has_fma = target.has_fma
        self.has_half_floats = target.has_half_floats
        self.may_alias = may_alias
        self.scopes = [Scope("entry")]
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.uses_nowhere = False
        self.in_all_lanes: dict[str, Value] = {}  # by vectors: the value that all of their lanes have
        self._count = 0

    # Names, scopes and raw lines

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    @property
    def scope(self) -> Scope:
        return self.scopes[-1]

    def fresh(self, hint: str = "") -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def line(self, text: str) -> None:
        self.scope.lines.append("  " + text)

    def open(self, block: str) -> None:
        self.scopes.append(Scope(block))

    def close(self) -> Scope:
        return self.scopes.pop()

    def begin_block(self, name: str) -> None:
        self.scope.lines.append(f"{name}:")
        self.scope.block = name

    # Instructions

    def pure(self, element: str, lanes: int, text: str, operands: Sequence[Value], hoist: bool = False) -> Value:
        """The value of an instruction without effects; at the shallowest scope when hoisted."""
        lowest = 0
        for operand in operands:
            if operand.level > lowest:
                lowest = operand.level
        for scope in self.scopes[lowest:]:
            found = scope.known.get(text)
            if found is not None:
                return found
        level = lowest if hoist else self.depth
        value = Value(f"%v{self.fresh()}", element, lanes, level)
        scope = self.scopes[level]
        scope.lines.append(f"  {value.ref} = {text}")
        scope.known[text] = value
        return value

    def effect(self, element: str, lanes: int, text: str) -> Value:
        """The value of an instruction that reads memory or otherwise stays where it is."""
        value = Value(f"%v{self.fresh()}", element, lanes, self.depth)
        self.scope.lines.append(f"  {value.ref} = {text}")
        return value

    def loaded_from(self, base: Value) -> dict[Hashable, Value]:
        """What the current scope knows to be in memory, for `memory` to keep."""
        return self.scope.loaded.setdefault(base.ref, {})

    def forget_loaded(self, base: Value) -> None:
        """A store was made through this pointer: what scopes around it know may be old."""
        for scope in self.scopes:
            if self.may_alias:
                scope.loaded.clear()
            else:
                scope.loaded.pop(base.ref, None)

    def const(self, element: str, lanes: int, number: float) -> Value:
        text = literal(element, number)
        return Value(text if lanes == 1 else f"splat ({element} {text})", element, lanes, 0)

    def like(self, value: Value, number: float) -> Value:
        """A constant of the type of another value."""
        return self.const(value.element, value.lanes, number)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        hoist = a.lanes == 1 and a.element in ("i64", "i1") and "div" not in op and "rem" not in op
        return self.pure(a.element, a.lanes, f"{op} {a.type} {a.ref}, {b.ref}", (a, b), hoist)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        word = "fcmp" if a.element in ("float", "double") else "icmp"
        hoist = a.lanes == 1 and a.element == "i64"
        return self.pure("i1", a.lanes, f"{word} {op} {a.type} {a.ref}, {b.ref}", (a, b), hoist)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        text = f"select {condition.type} {condition.ref}, {a.type} {a.ref}, {b.type} {b.ref}"
        hoist = a.lanes == 1 and a.element == "i64"
        return self.pure(a.element, a.lanes, text, (condition, a, b), hoist)

    def convert(self, op: str, a: Value, element: str) -> Value:
        if a.element == element:
            return a
        target = vector_of(element, a.lanes)
        hoist = a.lanes == 1 and a.element in ("i64", "i32") and element in ("i64", "i32")
        return self.pure(element, a.lanes, f"{op} {a.type} {a.ref} to {target}", (a,), hoist)

    def splat(self, a: Value, lanes: int) -> Value:
        if lanes == 1:
            return a
        if not a.ref.startswith("%"):
            return Value(f"splat ({a.element} {a.ref})", a.element, lanes, 0)
        target = vector_of(a.element, lanes)
        text = f"insertelement {target} poison, {a.type} {a.ref}, i64 0"
        first = self.pure(a.element, lanes, text, (a,), hoist=True)
        text = f"shufflevector {target} {first.ref}, {target} poison, <{lanes} x i32> zeroinitializer"
        made = self.pure(a.element, lanes, text, (first,), hoist=True)
        self.in_all_lanes[made.ref] = a
        return made

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """The lanes of that order among those of two vectors."""
        lanes = ", ".join(f"i32 {lane}" for lane in order)
        text = f"shufflevector {a.type} {a.ref}, {b.type} {b.ref}, <{len(order)} x i32> <{lanes}>"
        return self.pure(a.element, len(order), text, (a, b))

    def extract(self, a: Value, lane: int) -> Value:
        if a.lanes == 1:
            return a
        return self.pure(a.element, 1, f"extractelement {a.type} {a.ref}, i64 {lane}", (a,))

    def insert(self, a: Value, item: Value, lane: int) -> Value:
        text = f"insertelement {a.type} {a.ref}, {item.type} {item.ref}, i64 {lane}"
        return self.pure(a.element, a.lanes, text, (a, item))

    def poison(self, element: str, lanes: int) -> Value:
        return Value("poison", element, lanes, 0)

    def intrinsic(self, name: str, *args: Value, suffix: str | None = None) -> Value:
        """A pure LLVM intrinsic that returns the type of its first argument."""
        first = args[0]
        return self.call(f"{name}.{suffix or mangled(first)}", first, *args)

    def any_of(self, mask: Value) -> Value:
        """Whether a lane of a mask is set."""
        if mask.lanes == 1:
            return mask
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        self.declarations.setdefault(name, f"declare i1 @{name}({mask.type})")
        return self.pure("i1", 1, f"call i1 @{name}({mask.type} {mask.ref})", (mask,))

    def call(self, name: str, like: Value, *args: Value) -> Value:
        """A pure LLVM intrinsic by its full name, which returns the type of a value."""
        full = f"llvm.{name}"
        types = ", ".join(a.type for a in args)
        self.declarations.setdefault(full, f"declare {like.type} @{full}({types})")
        passed = ", ".join(f"{a.type} {a.ref}" for a in args)
        return self.pure(like.element, like.lanes, f"call {like.type} @{full}({passed})", args)

    def branch(self, condition: Value, compute: Callable[[], list[Value]], otherwise: list[Value]) -> list[Value]:
        """What `compute` gives, run only if a scalar condition holds; else the other values."""
        arm, join = self.fresh("arm"), self.fresh("join")
        self.open(arm)
        results = compute()
        self.line(f"br label %{join}")
        inner, came_from = self.close(), self.scope.block
        self.line(f"br i1 {condition.ref}, label %{arm}, label %{join}")
        self.scope.lines.extend([f"{arm}:", *inner.lines])
        self.begin_block(join)
        return [
            self.effect(a.element, a.lanes, f"phi {a.type} [ {a.ref}, %{inner.block} ], [ {b.ref}, %{came_from} ]")
            for a, b in zip(results, otherwise)
        ]

    # Arithmetic on floats. Nothing here lets LLVM assume that NaN or infinity do not occur.

    def add(self, a: Value, b: Value) -> Value:
        return self.binary("fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.binary("fsub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.binary("fmul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.binary("fdiv", a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a*b + c, rounded once where the machine can and twice elsewhere."""
        if self.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.add(self.mul(a, b), c)

    def neg(self, a: Value) -> Value:
        return self.pure(a.element, a.lanes, f"fneg {a.type} {a.ref}", (a,))

    def fabs(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self.intrinsic("copysign", magnitude, sign)

    def smaller(self, a: Value, b: Value) -> Value:
        """a < b ? a : b, one machine instruction; gives b when either is NaN."""
        return self.select(self.compare("olt", a, b), a, b)

    def larger(self, a: Value, b: Value) -> Value:
        """a > b ? a : b, one machine instruction; gives b when either is NaN."""
        return self.select(self.compare("ogt", a, b), a, b)

    def reinterpret(self, a: Value, element: str) -> Value:
        """The same bits as a vector of other elements."""
        lanes = a.lanes * BITS[a.element] // BITS[element]
        return self.pure(element, lanes, f"bitcast {a.type} {a.ref} to {vector_of(element, lanes)}", (a,))

    def bits(self, a: Value) -> Value:
        """The bits of a float as an integer of the same size."""
        return self.convert("bitcast", a, f"i{BITS[a.element]}")

    def from_bits(self, a: Value) -> Value:
        return self.convert("bitcast", a, "float" if a.element == "i32" else "double")

    def horner(self, x: Value, coefficients: Sequence[float]) -> Value:
        """c[0] + x*(c[1] + x*(c[2] + ...))."""
        result = self.like(x, coefficients[-1])
        for number in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.like(x, number))
        return result


def mangled(value: Value) -> str:
    """The suffix of an overloaded intrinsic: f32, v16f32, v8i64."""
    scalar = {"float": "f32", "double": "f64"}.get(value.element, value.element)
    return scalar if value.lanes == 1 else f"v{value.lanes}{scalar}"
