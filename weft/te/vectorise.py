"""A vector loop comes in, its body on vectors goes out: the loop variable becomes a Ramp, what
depends on it has as many lanes, conditions on it become masks, buffers inside it get lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..base.dtype import INT64
from ..base.errors import InvalidValue, Unsupported
from .expr import Broadcast, Const, Expr, Load, Ramp, Unary, Var, access_lanes, as_expr, binary, widen
from .intervals import Interval, Ranges
from .linear import LinearForms, expression
from .loops import Alloc, Barrier, Buffer, Exchange, For, If, Kernel, Let, Prefetch, Seq, Stmt, Store, TileStep, While
from .simplify import Simplifier, simplify
from .simplify_loops import sequence, statements
from .visit import in_order, loads, masked_load, over, parts, substitute

_Task = Callable[[], None]


def lower_vector_loop(loop: For, name: str, ranges: Ranges) -> Stmt:
    """The loop of a kernel as straight vector code; its iterations must be independent of each other."""
    extent = simplify(loop.extent)
    if not isinstance(extent, Const):
        raise InvalidValue(f"vector loop {loop.var.name} has no constant extent", where=name)
    lanes = int(extent.value)
    if lanes <= 1:
        return substitute(loop.body, {loop.var: as_expr(0)}) if lanes == 1 else Seq(())
    return _Widening(loop.var, lanes, name, ranges).run(loop.body)


def constant_ranges(kernel: Kernel) -> dict[Var, Interval]:
    """The ranges of loops of constant extent; a variable bound twice has the larger one."""
    ranges: dict[Var, Interval] = {}
    loops = [(s.var, s.extent) for s in statements(kernel.body) if isinstance(s, For)]
    if kernel.parallel is not None:
        loops.append((kernel.parallel.var, kernel.parallel.extent))
    unknown = {var for var, extent in loops if not isinstance(extent, Const)}
    for var, extent in loops:
        if isinstance(extent, Const) and var not in unknown:
            ranges[var] = (0, max(int(extent.value) - 1, ranges.get(var, (0, 0))[1]))
    return ranges


class _Widening:
    """One vector loop. Statements wait on a stack with the mask they are under; finished ones
    stand in `done` until the statement around them takes them."""

    def __init__(self, var: Var, lanes: int, name: str, ranges: Ranges) -> None:
        self.var = var
        self.lanes = lanes
        self.name = name
        self.prove = Simplifier(ranges)
        self.simplify = Simplifier({})
        self.forms = LinearForms()
        self.lane = Ramp(as_expr(0), as_expr(1), lanes)
        self.values: dict[Var, Expr] = {var: self.lane}
        self.private: dict[Buffer, Buffer] = {}
        self.todo: list[_Task] = []
        self.done: list[Stmt] = []

    def run(self, body: Stmt) -> Stmt:
        self._later(body, None)
        while self.todo:
            self.todo.pop()()
        return self.done.pop()

    def _later(self, node: Stmt, mask: Expr | None) -> None:
        self.todo.append(lambda: self._visit(node, mask))

    def _wrap(self, body: Stmt, mask: Expr | None, around: Callable[[Stmt], Stmt]) -> None:
        """Visits a body, then puts something around it."""
        self.todo.append(lambda: self.done.append(around(self.done.pop())))
        self._later(body, mask)

    def _visit(self, node: Stmt, mask: Expr | None) -> None:
        match node:
            case Store():
                self.done.append(self._store(node, mask))
            case Let():
                self._let(node, mask)
            case For():
                extent = self._scalar(node.extent, mask, f"the extent of {node.var.name}")
                self._wrap(node.body, mask, lambda body: For(node.var, extent, body, node.kind))
            case While():
                condition = self._scalar(node.condition, mask, "a while condition")
                self._wrap(node.body, mask, lambda body: While(condition, body))
            case Alloc(buffer=buffer):
                copy = self.private[buffer] = self._own(buffer)
                self._wrap(node.body, mask, lambda body: Alloc(copy, body))
            case If():
                self._branch(node, mask)
            case Seq(body=body):
                self._sequence(list(body), [mask] * len(body))
            case Prefetch():
                indices = [self._first_lane(self.expr(index, mask)) for index in node.indices]
                known = [index for index in indices if index is not None]
                whole = len(known) == len(indices)
                self.done.append(replace(node, indices=tuple(known)) if whole else Seq(()))
            case Barrier() | Exchange() | TileStep():
                what = {Barrier: "a barrier", Exchange: "an exchange"}.get(type(node), "a step of tiles")
                raise Unsupported(
                    f"vector loop {self.var.name} contains {what}",
                    why="the lanes of a vector are one thread, which waits once",
                    hint="vectorise the loops before and after the barrier",
                )

    def _let(self, node: Let, mask: Expr | None) -> None:
        var, value = node.var, self.expr(node.value, mask)
        if value.lanes > 1 and var.dtype == INT64 and not loads(value):
            # an index stays visible, so that consecutive elements are known to be so
            self.values[var] = value
            self._later(node.body, mask)
            return
        bound = var if value.lanes == 1 else Var(var.name, var.dtype, self.lanes)
        self.values[var] = bound
        self._wrap(node.body, mask, lambda body: Let(bound, value, body))

    def _sequence(self, body: list[Stmt], masks: list[Expr | None]) -> None:
        def join() -> None:
            taken = [self.done.pop() for _ in body]
            self.done.append(sequence(taken[::-1]))

        self.todo.append(join)
        for node, mask in zip(reversed(body), reversed(masks)):
            self._later(node, mask)

    def _branch(self, node: If, mask: Expr | None) -> None:
        condition = self.expr(node.condition, mask)
        sides = [node.then] + ([node.otherwise] if node.otherwise is not None else [])
        if condition.lanes == 1:
            self.todo.append(lambda: self.done.append(_rejoined(condition, self.done.pop(), len(sides))))
            self._pair(sides, [mask] * len(sides))
            return
        name = self._named(condition)
        masks = [_both(mask, name), _both(mask, Unary("not", name))]
        if name is not condition:
            # the branches may change what the condition reads
            bound = name
            assert isinstance(bound, Var)
            self.todo.append(lambda: self.done.append(Let(bound, condition, self.done.pop())))
        self._sequence(sides, masks[: len(sides)])

    def _pair(self, sides: list[Stmt], masks: list[Expr | None]) -> None:
        def join() -> None:
            taken = [self.done.pop() for _ in sides]
            self.done.append(Seq(tuple(taken[::-1])))

        self.todo.append(join)
        for node, mask in zip(reversed(sides), reversed(masks)):
            self._later(node, mask)

    def _named(self, condition: Expr) -> Expr:
        if not loads(condition):
            return condition
        return Var("mask", condition.dtype, condition.lanes)

    def _own(self, buffer: Buffer) -> Buffer:
        """The buffer with one copy per lane."""
        if buffer.scope == "register":
            return replace(buffer, lanes=self.lanes)
        width = as_expr(self.lanes)
        strides = tuple(simplify(stride * width) for stride in buffer.strides)
        return replace(buffer, shape=(*buffer.shape, width), strides=(*strides, as_expr(1)))

    # --- expressions

    def _scalar(self, value: Expr, mask: Expr | None, what: str) -> Expr:
        vector = self.expr(value, mask)
        if vector.lanes > 1:
            raise Unsupported(f"{what} differs between the lanes of vector loop {self.var.name}")
        return vector

    def expr(self, root: Expr, mask: Expr | None) -> Expr:
        """The expression with lanes wherever it depends on the loop variable."""
        done: dict[int, Expr] = {}
        for node, inner in in_order((root,)):
            if node.lanes > 1:
                raise Unsupported(f"vector loop {self.var.name} contains vectors", where=self.name)
            if type(node) is Var:
                done[id(node)] = self.values.get(node, node)
            elif type(node) is Load:
                done[id(node)] = self._load(node, [done[id(part)] for part in inner], mask)
            else:
                done[id(node)] = over(node, inner, done)
        return done[id(root)]

    def _load(self, node: Load, inner: list[Expr], mask: Expr | None) -> Expr:
        indices = inner[: node.source.rank]
        own_mask = inner[-1] if node.mask is not None else None
        source, indices = self._place(node.source, indices)
        if mask is None or self._in_bounds(source, indices):
            return masked_load(source, indices, own_mask)
        return masked_load(source, indices, _both(own_mask, mask))

    def _place(self, source: object, indices: list[Expr]) -> tuple[object, list[Expr]]:
        """Where a lane's own copy of a private buffer is."""
        copy = self.private.get(source)  # type: ignore[call-overload]
        if copy is None:
            return source, indices
        if copy.scope != "register":
            return copy, [*indices, self.lane]
        if any(index.lanes > 1 for index in indices):
            raise Unsupported(
                f"register buffer {copy.name} is indexed by vector loop {self.var.name}", hint="give it scope 'scratch'"
            )
        return copy, indices

    def _in_bounds(self, source: object, indices: list[Expr]) -> bool:
        """Whether an access is inside its buffer whatever the mask says."""
        if not isinstance(source, Buffer):
            return False
        for index, extent in zip(indices, source.shape):
            low, high = self.prove.interval(self.prove(index))
            if low < 0 or not isinstance(extent, Const) or high >= extent.value:
                return False
        return True

    def _first_lane(self, index: Expr) -> Expr | None:
        form = self.forms.of(index)
        if form is not None:
            return index if index.lanes == 1 else expression(form.base)
        simple = self.simplify(index)
        if isinstance(simple, Ramp):
            return simple.base
        if isinstance(simple, Broadcast):
            return simple.value
        return simple if simple.lanes == 1 else None

    def _store(self, node: Store, mask: Expr | None) -> Stmt:
        rank = node.buffer.rank
        inner = [self.expr(part, mask) for part in parts(node) if isinstance(part, Expr)]
        own_mask = inner[-1] if node.mask is not None else None
        buffer, indices = self._place(node.buffer, inner[:rank])
        assert isinstance(buffer, Buffer)
        value, guard = inner[rank], _both(own_mask, mask)
        lanes = access_lanes(buffer, indices)
        carried = lanes == 1 and any(load.source is buffer for load in loads(value))
        if carried or (lanes == 1 and value.lanes > 1):
            raise InvalidValue(
                f"every lane of vector loop {self.var.name} writes the same element of {buffer.name}",
                hint="allocate it inside the loop, or vectorise another one",
            )
        if lanes == 1 and guard is not None and guard.lanes > 1:
            indices = [widen(index, self.lanes) for index in indices]
            lanes = self.lanes if indices else 1
            if not indices:
                raise Unsupported(f"a masked store into the scalar {buffer.name}")
        guard = None if guard is None else widen(guard, lanes)
        return Store(buffer, tuple(indices), widen(value, lanes), guard)


def _rejoined(condition: Expr, sides: Stmt, count: int) -> Stmt:
    assert isinstance(sides, Seq)
    return If(condition, sides.body[0], sides.body[1] if count == 2 else None)


def _both(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return b if a is None else a
    return binary("and", a, b)
