"""Writes the IR of a kernel around inline assembly: named values of threads, branches, loops that carry values, and
expressions by the compiler of expressions that all kernels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from ....base.dtype import DTYPES, DType
from ....te.expr import Expr, Var, as_expr
from ....te.expr import cast as as_dtype_of
from ....te.extents import Extent
from ....te.linear import Linear, scalar
from ...builder import Builder, Value
from ...expressions import Expressions

UINT32 = DTYPES["uint32"]
_LETTERS = {"i16": "h", "i32": "r", "i64": "l", "float": "f"}
_SCRATCH = "~{memory}"
Operand = Expr | Value | int


def u32(number: int) -> Expr:
    """A constant among numbers of threads."""
    return as_expr(number % 2**32, UINT32)


class Loop:
    """A loop being written: what it carries, by name, and what the next turn begins with."""

    def __init__(self, carried: dict[str, Var]) -> None:
        self.carried = carried
        self.following: dict[str, Operand] = {}

    def __getattr__(self, name: str) -> Var:
        return cast(Var, self.__dict__["carried"][name])

    def next(self, **values: Operand) -> None:
        """What the next turn begins with."""
        self.following.update(values)


class Writer:
    """The lines of one kernel. Numbers of threads, tiles and stages are uint32 expressions; they are computed where
    they are first used."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.e = Expressions(builder)
        self._kept: list[Expr] = []  # plans of expressions are found by their ids

    # Values

    def named(self, name: str, value: Value, dtype: DType = UINT32) -> Var:
        """A variable that stands for a value."""
        var = Var(f"{name}{self.b.fresh()}", dtype, value.lanes)
        self._kept.append(var)
        self.e.variables[var] = value
        return var

    def value(self, operand: Operand) -> Value:
        """An operand as it stands in an instruction; plain numbers are of 32 bits."""
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, int):
            return self.b.const("i32", 1, operand)
        self._kept.append(operand)
        return self.e.value(operand)

    def wide(self, operand: Expr) -> Value:
        """A uint32 as a number of 64 bits."""
        return self.b.convert("zext", self.value(operand), "i64")

    def count(self, size: int | Extent) -> Expr:
        """A size among numbers of threads: one that is open follows from the kernel's scalars."""
        return self.let("count", as_dtype_of(size.expr, UINT32)) if isinstance(size, Extent) else u32(size)

    def long(self, size: int | Extent) -> Value:
        """A size as a number of 64 bits."""
        return self.value(size.expr) if isinstance(size, Extent) else self.b.const("i64", 1, size)

    def let(self, name: str, expression: Expr) -> Var:
        """A name for what an expression is here."""
        return self.named(name, self.value(expression), expression.dtype)

    def number_at(self, expression: Expr, var: Var, number: Expr) -> Var:
        """What an int64 expression of one variable is for a number; it fits 32 bits."""
        self.e.variables[var] = scalar(Linear(0, {self.wide(number): 1}))
        return self.let("number", as_dtype_of(expression, UINT32))

    def special(self, register: str) -> Var:
        """A number that the machine knows of a thread: tid.x, ctaid.x, cluster.ctarank, ..."""
        name = f"llvm.nvvm.read.ptx.sreg.{register}"
        self.b.declarations.setdefault(name, f"declare i32 @{name}()")
        return self.named(register.replace(".", "_"), self.b.pure("i32", 1, f"call i32 @{name}()", ()))

    # Assembly

    def asm(self, text: str, *operands: Operand, also: str = "") -> None:
        """An instruction with an effect. $0, $1, ... are the operands."""
        arguments = [self.value(operand) for operand in operands]
        constraints = ",".join([*(_LETTERS[a.element] for a in arguments), _SCRATCH, *filter(None, [also])])
        self.b.line(f'call void asm sideeffect "{_escaped(text)}", "{constraints}"({_passed(arguments)})')

    def read(self, text: str, element: str, *operands: Operand, effect: bool = True) -> Value:
        """An instruction that gives one value, $0; $1, ... are the operands."""
        arguments = [self.value(operand) for operand in operands]
        letters = [f"={_LETTERS[element]}", *(_LETTERS[a.element] for a in arguments), *([_SCRATCH] if effect else [])]
        word = "asm sideeffect" if effect else "asm"
        call = f'call {element} {word} "{_escaped(text)}", "{",".join(letters)}"({_passed(arguments)})'
        return self.b.effect(element, 1, call) if effect else self.b.pure(element, 1, call, arguments)

    def read_many(
        self, text: str, elements: Sequence[str], *operands: Operand, early: bool = True, tied: Sequence[Value] = ()
    ) -> list[Value]:
        """The same with many results. `early` ones are written before all operands are read; those that are `tied` to
        the first results come before the other operands, and are the same registers."""
        arguments = [*tied, *(self.value(operand) for operand in operands)]
        mark = "=&" if early else "="
        letters = [mark + _LETTERS[e] for e in elements]
        letters += [str(number) for number in range(len(tied))]
        letters += [*(_LETTERS[a.element] for a in arguments[len(tied) :]), _SCRATCH]
        kind = "{ " + ", ".join(elements) + " }"
        text = f'call {kind} asm sideeffect "{_escaped(text)}", "{",".join(letters)}"({_passed(arguments)})'
        made = self.b.effect(kind, 1, text)
        return [
            self.b.effect(element, 1, f"extractvalue {kind} {made.ref}, {number}")
            for number, element in enumerate(elements)
        ]

    # Control flow

    def condition(self, expression: Expr) -> Value:
        return self.value(expression)

    @contextmanager
    def when(self, condition: Expr | Value) -> Iterator[None]:
        """What threads do for which a condition holds."""
        asked = self.value(condition)
        arm, join = self.b.fresh("arm"), self.b.fresh("join")
        self.b.open(arm)
        self.b.begin_block(arm)
        yield
        self.b.line(f"br label %{join}")
        inner = self.b.close()
        self.b.line(f"br i1 {asked.ref}, label %{arm}, label %{join}")
        self.b.scope.lines.extend(inner.lines)
        self.b.begin_block(join)

    def either(self, condition: Expr, first: Callable[[], None], second: Callable[[], None]) -> None:
        """One of two things, by threads."""
        asked = self.value(condition)
        labels, join, bodies = (self.b.fresh("arm"), self.b.fresh("arm")), self.b.fresh("join"), list[str]()
        for label, write in zip(labels, (first, second)):
            self.b.open(label)
            self.b.begin_block(label)
            write()
            self.b.line(f"br label %{join}")
            bodies.extend(self.b.close().lines)
        self.b.line(f"br i1 {asked.ref}, label %{labels[0]}, label %{labels[1]}")
        self.b.scope.lines.extend(bodies)
        self.b.begin_block(join)

    @contextmanager
    def repeat(self, goes_on: Callable[[Loop], Expr], **initial: Operand) -> Iterator[Loop]:
        """A loop that carries values: as long as a condition of them, asked before each turn, holds."""
        first = {name: self.value(operand) for name, operand in initial.items()}
        head, body, leave = (self.b.fresh(word) for word in ("loop", "turn", "done"))
        self.b.open(head)
        phis = {name: Value(f"%{name}{self.b.fresh()}", v.element, v.lanes, self.b.depth) for name, v in first.items()}
        loop = Loop({name: self.named(name, phi, _dtype(phi)) for name, phi in phis.items()})
        asked = self.value(goes_on(loop))
        self.b.line(f"br i1 {asked.ref}, label %{body}, label %{leave}")
        self.b.begin_block(body)
        yield loop
        last = {name: self.value(loop.following.get(name, loop.carried[name])) for name in phis}
        self.b.line(f"br label %{head}")
        inner, came_from = self.b.close(), self.b.scope.block
        self.b.line(f"br label %{head}")
        self.b.begin_block(head)
        for name, phi in phis.items():
            ways = f"[ {first[name].ref}, %{came_from} ], [ {last[name].ref}, %{inner.block} ]"
            self.b.line(f"{phi.ref} = phi {phi.type} {ways}")
        self.b.scope.lines.extend(inner.lines)
        self.b.begin_block(leave)
        for name, phi in phis.items():  # what the last turn left is there from here on
            self.e.variables[loop.carried[name]] = phi._replace(level=self.b.depth)

    # Vectors

    def pair(self, first: Value, second: Value) -> Value:
        """Two values as a vector."""
        empty = self.b.poison(first.element, 2)
        return self.b.insert(self.b.insert(empty, first, 0), second, 1)

    def vector(self, values: Sequence[Value]) -> Value:
        made = self.b.poison(values[0].element, len(values))
        for lane, item in enumerate(values):
            made = self.b.insert(made, item, lane)
        return made

    def lanes_of(self, vector: Value) -> list[Value]:
        return [self.b.extract(vector, lane) for lane in range(vector.lanes)]

    def packed(self, low: Value, high: Value, dtype: DType) -> Value:
        """Two floats as 16-bit ones in a register, rounded to the nearest."""
        word = "cvt.rn.bf16x2.f32" if dtype == DTYPES["bfloat16"] else "cvt.rn.f16x2.f32"
        return self.read(f"{word} $0, $1, $2;", "i32", high, low, effect=False)

    def unpacked(self, both: Value, dtype: DType) -> tuple[Value, Value]:
        """The two floats of a register."""
        b = self.b
        if dtype == DTYPES["bfloat16"]:
            low, high = b.binary("shl", both, b.like(both, 16)), b.binary("and", both, b.like(both, -65536))
            return b.from_bits(low), b.from_bits(high)
        halves = b.pure("half", 2, f"bitcast i32 {both.ref} to <2 x half>", (both,))
        low, high = b.extract(halves, 0), b.extract(halves, 1)
        return b.convert("fpext", low, "float"), b.convert("fpext", high, "float")

    def as_u32(self, expression: Expr) -> Expr:
        return as_dtype_of(expression, UINT32)


def _dtype(value: Value) -> DType:
    names = {"i32": "uint32", "i64": "int64", "float": "float32", "i1": "bool"}
    return DTYPES[names[value.element]]


def _escaped(text: str) -> str:
    return text.replace("\n", "\\0A").replace('"', "\\22")


def _passed(arguments: Sequence[Value]) -> str:
    return ", ".join(f"{a.type} {a.ref}" for a in arguments)
