"""The statements of loop IR become LLVM instructions, on any backend.

Register buffers become SSA values with phis at loops and branches, so no IR pass is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..base.errors import Unsupported
from ..te.expr import Expr, Var
from ..te.linear import Linear, scalar
from ..te.loops import (
    Alloc,
    Barrier,
    Buffer,
    Exchange,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    TileStep,
    While,
    span,
)
from ..te.simplify_loops import statements
from ..te.visit import parts
from . import memory
from .affine import Index, materialise, sum_of
from .builder import Builder, Value
from .convert import to_memory
from .expressions import Expressions
from .llvm_types import is_signed, memory_type, register_type
from .memory import Place

SCRATCH_ALIGNMENT = 64
MAX_SCRATCH_BYTES = 2 << 20  # a thread's stack is 8 MB by default
MAX_REGISTERS = 4096
_NO_BUFFERS: frozenset[Buffer] = frozenset()

Step = Stmt | Callable[[], None]


@dataclass(slots=True)
class Loop:
    """A loop being emitted: its label, where it was entered from, the registers it changes."""

    label: str
    counter: Value | None
    phis: dict[Buffer, list[Value]]
    before: dict[Buffer, list[Value]]


class KernelEmitter:
    """Emits the statements of a kernel. Backends say how arguments come in and what stands around the body."""

    pointer = "ptr"  # the type of arguments that are buffers
    max_scratch = MAX_SCRATCH_BYTES

    def __init__(self, kernel: Kernel, builder: Builder) -> None:
        self.kernel = kernel
        self.b = builder
        self.e = Expressions(self.b)
        self.written = {s.buffer for s in statements(kernel.body) if isinstance(s, Store)}
        self.allocas: list[str] = []
        self._changed: dict[int, frozenset[Buffer]] = {}

    # Arguments

    def _bind_arguments(self) -> None:
        for number, buffer in enumerate(self.kernel.buffers):
            base = Value(f"%buffer{number}", self.pointer, 1, 0)
            self.e.places[buffer] = Place(base, buffer.dtype, (), buffer.lanes, buffer.alignment)
        for number, var in enumerate(self.kernel.scalars):
            self.e.variables[var] = self._scalar_argument(number, var)
        for buffer in self.kernel.buffers:
            self._place(buffer, self.e.places[buffer].base)

    def _place(self, buffer: Buffer, base: Value) -> None:
        strides = tuple(self.e.linear(stride) for stride in buffer.strides)
        self.e.places[buffer] = Place(base, buffer.dtype, strides, buffer.lanes, buffer.alignment)

    def _scalar_argument(self, number: int, var: Var) -> Index:
        """A scalar arrives as an i64: an integer by value, a float by its bits."""
        raw = Value(f"%scalar{number}", "i64", 1, 0)
        element = register_type(var.dtype)
        if element == "i64":
            return scalar(sum_of(raw)) if is_signed(var.dtype) else raw
        if element == "double":
            return self.b.convert("bitcast", raw, "double")
        if element == "float":
            return self.b.convert("bitcast", self.b.convert("trunc", raw, "i32"), "float")
        return self.b.convert("trunc", raw, element)

    def _pointer_argument(self, number: int) -> str:
        buffer = self.kernel.buffers[number]
        words = [self.pointer] + ([] if self.b.may_alias else ["noalias"])
        words += [f"align {buffer.alignment}"] if buffer.alignment else []
        words += [] if buffer in self.written else ["readonly"]
        return " ".join([*words, f"%buffer{number}"])

    # Statements

    def _run(self, first: Step) -> None:
        stack: list[Step] = [first]
        while stack:
            step = stack.pop()
            if isinstance(step, partial):
                step()
            else:
                getattr(self, _STATEMENTS[type(step)])(step, stack)

    def _seq(self, stmt: Seq, stack: list[Step]) -> None:
        stack.extend(reversed(stmt.body))

    def _let(self, stmt: Let, stack: list[Step]) -> None:
        self.e.variables[stmt.var] = self.e.index(stmt.value)
        stack.append(stmt.body)

    def _store(self, stmt: Store, stack: list[Step]) -> None:
        buffer = stmt.buffer
        access = self.e.access(buffer, stmt.indices)
        mask = None if stmt.mask is None else self.e.value(stmt.mask)
        value = self.e.value(stmt.value)
        if buffer in self.e.registers:
            slot = self.e.register_slot(buffer, access)
            if mask is not None:
                value = self.b.select(mask, value, self.e.registers[buffer][slot])
            self.e.registers[buffer][slot] = value
            return
        raw = to_memory(self.b, value, buffer.dtype)
        memory.store(self.b, self.e.places[buffer], access, raw, mask)

    def _barrier(self, stmt: Barrier, stack: list[Step]) -> None:
        raise NotImplementedError

    def _exchange(self, stmt: Exchange, stack: list[Step]) -> None:
        raise NotImplementedError

    def _tile_step(self, stmt: TileStep, stack: list[Step]) -> None:
        raise NotImplementedError

    def _prefetch(self, stmt: Prefetch, stack: list[Step]) -> None:
        access = self.e.access(stmt.buffer, stmt.indices)
        memory.prefetch(self.b, self.e.places[stmt.buffer], access, stmt.level)

    def _alloc(self, stmt: Alloc, stack: list[Step]) -> None:
        buffer = stmt.buffer
        elements = self._element_count(buffer)
        if buffer.scope == "register":
            if elements > MAX_REGISTERS:
                raise Unsupported(f"register buffer {buffer.name} of {elements} elements")
            empty = self.b.poison(register_type(buffer.dtype), buffer.lanes)
            self.e.registers[buffer] = [empty] * elements
        else:
            self._scratch(buffer, elements)
        stack.append(stmt.body)

    def _element_count(self, buffer: Buffer) -> int:
        """How many elements from the first to the last one that a buffer reaches."""
        extents = [self.e.linear(extent) for extent in buffer.shape]
        strides = [self.e.linear(stride) for stride in buffer.strides]
        if not all(part.is_constant for part in extents + strides):
            raise Unsupported(
                f"buffer {buffer.name}, allocated in a kernel, has an extent that is not constant",
                hint="pass it in as an argument",
            )
        return span([max(n.constant, 0) for n in extents], [s.constant for s in strides])

    def _scratch(self, buffer: Buffer, elements: int) -> None:
        element = memory_type(buffer.dtype)
        size = elements * buffer.lanes * buffer.dtype.itemsize
        if size > self.max_scratch:
            raise Unsupported(
                f"scratch buffer {buffer.name} of {size} bytes",
                why=f"scratch lies on the stack of a thread, at most {self.max_scratch} bytes",
                hint="pass it in as an argument",
            )
        name = f"%scratch{self.b.fresh()}"
        count = max(elements * buffer.lanes, 1)
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align {SCRATCH_ALIGNMENT}")
        self._place(buffer, Value(name, "ptr", 1, 0))

    # Loops

    def _for(self, stmt: For, stack: list[Step]) -> None:
        extent = self.e.linear(stmt.extent)
        if extent.is_constant and (stmt.kind == "unroll" or extent.constant <= 1):
            for number in reversed(range(extent.constant)):
                stack.append(stmt.body)
                stack.append(partial(self._bind_constant, stmt.var, number))
            return
        zero = self.b.const("i64", 1, 0)
        self._counted(stmt.var, stmt.body, zero, materialise(self.b, extent), stack)

    def _bind_constant(self, var: Var, number: int) -> None:
        self.e.variables[var] = scalar(Linear(number, {}))

    def _counted(self, var: Var, body: Stmt, begin: Value, end: Value, stack: list[Step]) -> None:
        """var = begin .. end - 1, tested before the first turn unless that is known to happen."""
        certain = not end.ref.startswith("%") and not begin.ref.startswith("%")
        guard = None if certain else self.b.compare("slt", begin, end)
        loop = self._open_loop(body, counted=True)
        assert loop.counter is not None
        self.e.variables[var] = scalar(sum_of(loop.counter))
        self.e.nonnegative.add(loop.counter.ref)
        stack.append(partial(self._close_counted, loop, begin, end, guard))
        stack.append(body)

    def _open_loop(self, body: Stmt, counted: bool) -> Loop:
        label = self.b.fresh("loop")
        before = {k: list(self.e.registers[k]) for k in self._registers_changed(body)}
        self.b.open(label)
        level = self.b.depth
        counter = Value(f"%i{self.b.fresh()}", "i64", 1, level) if counted else None
        phis: dict[Buffer, list[Value]] = {}
        for buffer, old in before.items():
            phis[buffer] = [self._phi_name(value) for value in old]
            self.e.registers[buffer] = list(phis[buffer])
        return Loop(label, counter, phis, before)

    def _phi_name(self, value: Value) -> Value:
        return Value(f"%r{self.b.fresh()}", value.element, value.lanes, self.b.depth)

    def _close_counted(self, loop: Loop, begin: Value, end: Value, guard: Value | None) -> None:
        counter = loop.counter
        assert counter is not None
        following, more, leave = (self.b.fresh(f"%{hint}") for hint in ("next", "more", "done"))
        leave = leave[1:]
        self.b.line(f"{following} = add nsw i64 {counter.ref}, 1")
        self.b.line(f"{more} = icmp slt i64 {following}, {end.ref}")
        self.b.line(f"br i1 {more}, label %{loop.label}, label %{leave}")
        inner, last = self.b.close(), {k: self.e.registers[k] for k in loop.phis}
        outer, came_from = self.b.scope, self.b.scope.block
        if guard is None:
            self.b.line(f"br label %{loop.label}")
        else:
            self.b.line(f"br i1 {guard.ref}, label %{loop.label}, label %{leave}")
        self.b.begin_block(loop.label)
        backs = f"[ {begin.ref}, %{came_from} ], [ {following}, %{inner.block} ]"
        self.b.line(f"{counter.ref} = phi i64 {backs}")
        self._write_phis(loop.phis, loop.before, came_from, last, inner.block)
        outer.lines.extend(inner.lines)
        self.b.begin_block(leave)
        if guard is not None:
            last = self._merge(loop.before, came_from, last, inner.block)
        self._leave_with(last)

    def _leave_with(self, registers: dict[Buffer, list[Value]]) -> None:
        """Values of a closed scope dominate what follows; from here on they count as ours."""
        for buffer, values in registers.items():
            level = self.b.depth
            self.e.registers[buffer] = [v._replace(level=min(v.level, level)) for v in values]

    def _write_phis(
        self,
        phis: dict[Buffer, list[Value]],
        first: dict[Buffer, list[Value]],
        first_block: str,
        second: dict[Buffer, list[Value]],
        second_block: str,
    ) -> None:
        for buffer, names in phis.items():
            for name, a, b in zip(names, first[buffer], second[buffer]):
                ways = f"[ {a.ref}, %{first_block} ], [ {b.ref}, %{second_block} ]"
                self.b.line(f"{name.ref} = phi {name.type} {ways}")

    def _merge(
        self, first: dict[Buffer, list[Value]], first_block: str, second: dict[Buffer, list[Value]], second_block: str
    ) -> dict[Buffer, list[Value]]:
        phis = {k: [self._phi_name(v) for v in values] for k, values in second.items()}
        self._write_phis(phis, first, first_block, second, second_block)
        return phis

    def _registers_changed(self, body: Stmt) -> list[Buffer]:
        if id(body) not in self._changed:
            self._find_changed(body)
        changed = self._changed[id(body)]
        return [k for k in self.e.registers if k in changed]

    def _find_changed(self, root: Stmt) -> None:
        """Which registers a statement and each one inside it store to."""
        around = list(statements(root))
        for stmt in reversed(around):
            if isinstance(stmt, (Store, Exchange)):
                own = frozenset((stmt.buffer,)) if stmt.buffer.scope == "register" else _NO_BUFFERS
            else:
                inner = [self._changed[id(s)] for s in parts(stmt) if not isinstance(s, Expr)]
                own = _NO_BUFFERS.union(*inner) if len(inner) != 1 else inner[0]
            self._changed[id(stmt)] = own

    def _while(self, stmt: While, stack: list[Step]) -> None:
        loop = self._open_loop(stmt.body, counted=False)
        condition = self.e.value(stmt.condition)
        body, leave = self.b.fresh("turn"), self.b.fresh("done")
        self.b.line(f"br i1 {condition.ref}, label %{body}, label %{leave}")
        self.b.begin_block(body)
        stack.append(partial(self._close_while, loop, leave))
        stack.append(stmt.body)

    def _close_while(self, loop: Loop, leave: str) -> None:
        self.b.line(f"br label %{loop.label}")
        inner, last = self.b.close(), {k: self.e.registers[k] for k in loop.phis}
        outer, came_from = self.b.scope, self.b.scope.block
        self.b.line(f"br label %{loop.label}")
        self.b.begin_block(loop.label)
        self._write_phis(loop.phis, loop.before, came_from, last, inner.block)
        outer.lines.extend(inner.lines)
        self.b.begin_block(leave)
        self._leave_with(loop.phis)

    # Branches

    def _if(self, stmt: If, stack: list[Step]) -> None:
        condition = self.e.value(stmt.condition)
        if not condition.ref.startswith("%"):
            taken = stmt.then if condition.ref == "true" else stmt.otherwise
            stack.extend([] if taken is None else [taken])
            return
        self._branch(condition, stmt, stack)

    def _branch(self, condition: Value, stmt: If, stack: list[Step]) -> None:
        arms = [stmt.then] + ([] if stmt.otherwise is None else [stmt.otherwise])
        changed = {k for arm in arms for k in self._registers_changed(arm)}
        before = {k: list(self.e.registers[k]) for k in self.e.registers if k in changed}
        branch = _Branch(condition, before, self.b.fresh("join"))
        stack.append(partial(self._join, branch))
        for arm in reversed(arms):
            stack.append(partial(self._close_arm, branch))
            stack.append(arm)
            stack.append(partial(self._open_arm, branch))

    def _open_arm(self, branch: _Branch) -> None:
        for buffer, values in branch.before.items():
            self.e.registers[buffer] = list(values)
        label = self.b.fresh("arm")
        self.b.open(label)
        self.b.begin_block(label)
        branch.labels.append(label)

    def _close_arm(self, branch: _Branch) -> None:
        self.b.line(f"br label %{branch.join}")
        scope = self.b.close()
        branch.lines.extend(scope.lines)
        branch.ends.append(scope.block)
        branch.results.append({k: self.e.registers[k] for k in branch.before})

    def _join(self, branch: _Branch) -> None:
        came_from = self.b.scope.block
        other = branch.labels[1] if len(branch.labels) > 1 else branch.join
        self.b.line(f"br i1 {branch.condition.ref}, label %{branch.labels[0]}, label %{other}")
        self.b.scope.lines.extend(branch.lines)
        self.b.begin_block(branch.join)
        ends, results = branch.ends, branch.results
        if len(ends) == 1:
            ends, results = [*ends, came_from], [*results, branch.before]
        merged = self._merge(results[0], ends[0], results[1], ends[1])
        self.e.registers.update(merged)


class _Branch:
    """An If being emitted: the lines and results of the arms closed so far."""

    def __init__(self, condition: Value, before: dict[Buffer, list[Value]], join: str) -> None:
        self.condition = condition
        self.before = before
        self.join = join
        self.labels: list[str] = []
        self.lines: list[str] = []
        self.ends: list[str] = []
        self.results: list[dict[Buffer, list[Value]]] = []


# The methods that emit them; a backend has its own of some.
_STATEMENTS: dict[type, str] = {
    Seq: "_seq",
    Let: "_let",
    Store: "_store",
    Prefetch: "_prefetch",
    Alloc: "_alloc",
    For: "_for",
    While: "_while",
    If: "_if",
    Barrier: "_barrier",
    Exchange: "_exchange",
    TileStep: "_tile_step",
}
