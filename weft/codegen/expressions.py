"""te expressions become LLVM values. Index arithmetic (int64) stays symbolic as long as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..base.dtype import INT64, DType
from ..base.errors import InvalidValue, NotFound
from ..base.sizes import QUESTIONS
from ..te.evaluate import fold_index, function_of
from ..te.expr import Binary, Broadcast, Call, Cast, Compare, Const, Expr, Load, Ramp, Select, Shuffle, Unary, Var
from ..te.linear import ONE, ZERO, Affine, Linear, LinearForms, scalar, wrapped
from ..te.loops import Buffer
from ..te.visit import parts
from . import arithmetic, memory
from .affine import Index, Sum, as_vector, lane_numbers, materialise, multiply, sum_of
from .builder import Builder, Value
from .convert import cast, from_memory
from .intrinsics import intrinsic
from .llvm_types import register_type
from .memory import Access, Place

_Rule = Callable[..., Index]
_Step = tuple[_Rule, Expr, list[int]]  # how, what, and which steps before it give its parts
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Expressions:
    """Evaluates expressions under the current bindings of variables, places and registers."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.variables: dict[Var, Index] = {}
        self.places: dict[Buffer, Place] = {}
        self.registers: dict[Buffer, list[Value]] = {}
        self.nonnegative: set[str] = set()
        self._forms = LinearForms()
        self._plans: dict[int, tuple[_Rule, tuple[Expr, ...]]] = {}
        self._steps: dict[int, list[_Step]] = {}
        self._places: dict[tuple[int, int], tuple[Affine[Expr] | None, tuple[Expr, ...], Any]] = {}

    def index(self, root: Expr) -> Index:
        """The value of an expression; int64 ones as an Affine when they are one."""
        steps = self._steps.get(id(root)) or self._steps_to(root)
        found: list[Index] = []
        for rule, expr, inner in steps:
            found.append(rule(self, expr, *[found[number] for number in inner]))
        return found[-1]

    def _steps_to(self, root: Expr) -> list[_Step]:
        """What is evaluated for an expression, in order: code of unrolled loops evaluates it again in each turn."""
        plans = self._plans
        steps: list[_Step] = []
        done: dict[int, int] = {}
        stack = [root]
        while stack:
            expr = stack[-1]
            key = id(expr)
            if key in done:
                stack.pop()
                continue
            rule, inner = plans.get(key) or self._plan(expr)
            waiting = [part for part in inner if id(part) not in done]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            done[key] = len(steps)
            steps.append((rule, expr, [done[id(part)] for part in inner]))
        self._steps[id(root)] = steps
        return steps

    def _plan(self, expr: Expr) -> tuple[_Rule, tuple[Expr, ...]]:
        """How an expression is evaluated, and what has to be evaluated before."""
        plan = self._sum_plan(expr) or self._load_plan(expr) or (_RULES[type(expr)], parts(expr))
        self._plans[id(expr)] = plan
        return plan

    def _sum_plan(self, expr: Expr) -> tuple[_Rule, tuple[Expr, ...]] | None:
        form = self._forms.of(expr)
        if form is None or expr in form.base.terms:
            return None
        return (lambda self, expr, *opaque: self.bound(form, opaque)), _opaque(form)

    def _load_plan(self, expr: Expr) -> tuple[_Rule, tuple[Expr, ...]] | None:
        if not isinstance(expr, Load):
            return None
        buffer: Any = expr.source
        form = self._forms.flat(expr.indices, buffer.strides)
        if form is None:
            return None
        opaque = _opaque(form)

        def rule(self: Expressions, expr: Load, *inner: Index) -> Index:
            return _loaded(self, expr, self.bound(form, inner), inner[len(opaque) :])

        return rule, opaque if expr.mask is None else (*opaque, expr.mask)

    def access(self, buffer: Buffer, indices: Sequence[Expr]) -> Access:
        """Where a store or prefetch goes: evenly spaced elements if it can be told, else all the indices."""
        key = id(buffer), id(indices)
        if key not in self._places:
            flat = self._forms.flat(indices, buffer.strides)
            kept = buffer, indices  # ids are keys only as long as what they are of lives
            self._places[key] = flat, () if flat is None else _opaque(flat), kept
        form, opaque, _ = self._places[key]
        if form is None:
            return [self.index(index) for index in indices]
        return self.bound(form, [self.index(term) for term in opaque])

    def bound(self, form: Affine[Expr], opaque: Iterable[Index]) -> Affine[Value]:
        """The form over what variables stand for now, and over the values of the other terms."""
        if not form.base.terms:
            return form  # type: ignore[return-value]
        values = iter(opaque)
        terms = [_base_of(_var(self, t) if type(t) is Var else next(values)) for t in form.base.terms]
        return Affine(form.base.substitute(terms), Linear(form.stride.constant, {}), form.lanes)

    def value(self, root: Expr) -> Value:
        return self.settled(self.index(root))

    def settled(self, index: Index) -> Value:
        return index if isinstance(index, Value) else as_vector(self.b, index)

    def linear(self, root: Expr) -> Sum:
        """A scalar int64 expression as a sum."""
        return _base_of(self.index(root))

    def register_slot(self, buffer: Buffer, access: Access) -> int:
        """Which element of a register buffer is meant; it must be a constant by now."""
        flat = access.base if isinstance(access, Affine) else self._flat(buffer, access)
        if not flat.is_constant:
            raise InvalidValue(
                f"an index of register buffer {buffer.name} is not constant",
                why="registers have no addresses",
                hint="unroll the loops that index it, or make it scratch",
            )
        if not 0 <= flat.constant < len(self.registers[buffer]):
            raise InvalidValue(f"element {flat.constant} of register buffer {buffer.name}")
        return flat.constant

    def _flat(self, buffer: Buffer, indices: Sequence[Index]) -> Sum:
        flat: Sum = ZERO
        for index, stride in zip(indices, buffer.strides):
            flat = flat.plus(multiply(self.b, _base_of(index), self.linear(stride)))
        return flat

    def is_nonnegative(self, form: Sum) -> bool:
        known = all(coefficient >= 0 and value.ref in self.nonnegative for value, coefficient in form.terms.items())
        return known and form.constant >= 0


def _opaque(form: Affine[Expr]) -> tuple[Expr, ...]:
    """The terms of a form that have to be evaluated before it."""
    return tuple(term for term in form.base.terms if type(term) is not Var)


def _wrapped(value: Value, dtype: DType) -> Index:
    """A scalar int64 joins the index arithmetic; any other value stands for itself."""
    if dtype == INT64 and value.lanes == 1:
        number = arithmetic.constant_of(value)
        return scalar(sum_of(value) if number is None else Linear(number, {}))
    return value


def _var(self: Expressions, expr: Var) -> Index:
    index = self.variables.get(expr)
    if index is None:
        raise NotFound(f"variable {expr.name} is used outside of what binds it")
    return index


def _const(self: Expressions, expr: Const) -> Index:
    if expr.dtype == INT64:
        return scalar(Linear(int(expr.value), {}))
    return self.b.const(register_type(expr.dtype), 1, function_of(expr)().item())


def _unary(self: Expressions, expr: Unary, a: Index) -> Index:
    if expr.op == "neg" and isinstance(a, Affine):
        return a.times(-1)
    return _wrapped(arithmetic.unary(self.b, expr.op, self.settled(a), expr.dtype), expr.dtype)


def _binary(self: Expressions, expr: Binary, a: Index, b: Index) -> Index:
    if isinstance(a, Affine) and isinstance(b, Affine):
        index = _affine(self, expr.op, a, b)
        if index is not None:
            return index
    x, y = self.settled(a), self.settled(b)
    return _wrapped(arithmetic.binary(self.b, expr.op, x, y, expr.dtype), expr.dtype)


def _affine(self: Expressions, op: str, a: Affine[Value], b: Affine[Value]) -> Affine[Value] | None:
    if op in ("add", "sub"):
        return a.plus(b, 1 if op == "add" else -1)
    if op == "mul" and (a.stride == ZERO or b.stride == ZERO):
        varying, fixed = (a, b) if b.stride == ZERO else (b, a)
        stride = multiply(self.b, varying.stride, fixed.base)
        return Affine(multiply(self.b, varying.base, fixed.base), stride, a.lanes)
    if a.stride != ZERO or b.stride != ZERO:
        return None
    form = _scalar_affine(self, op, a.base, b.base)
    return None if form is None else Affine(form, ZERO, a.lanes)


def _scalar_affine(self: Expressions, op: str, a: Sum, b: Sum) -> Sum | None:
    """What is the same in all lanes is computed once; constants are folded."""
    if a.is_constant and b.is_constant:
        return Linear(fold_index(op, wrapped(a.constant), wrapped(b.constant)), {})
    x, y = materialise(self.b, a), materialise(self.b, b)
    if op in ("floordiv", "floormod") and b.is_constant and b.constant > 0:
        if self.is_nonnegative(a):
            word = "udiv" if op == "floordiv" else "urem"
            value = self.b.pure("i64", 1, f"{word} i64 {x.ref}, {y.ref}", (x,), hoist=True)
        else:
            value = arithmetic.binary(self.b, op, x, y, INT64)
        if op == "floormod" or self.is_nonnegative(a):
            self.nonnegative.add(value.ref)
        return sum_of(value)
    return _linear_of(arithmetic.binary(self.b, op, x, y, INT64))


def _linear_of(value: Value) -> Sum:
    wrapped = _wrapped(value, INT64)
    assert isinstance(wrapped, Affine)
    return wrapped.base


def _compare(self: Expressions, expr: Compare, a: Index, b: Index) -> Index:
    if isinstance(a, Affine) and isinstance(b, Affine):
        mask = _affine_compare(self, expr.op, a, b)
        if mask is not None:
            return mask
    x, y = self.settled(a), self.settled(b)
    return arithmetic.compare(self.b, expr.op, x, y, expr.a.dtype)


def _affine_compare(self: Expressions, op: str, a: Affine[Value], b: Affine[Value]) -> Value | None:
    """Lane by lane, but with 32-bit lane numbers: a + lane < b is lane < b - a."""
    slope = a.stride.plus(b.stride, -1)
    gap = b.base.plus(a.base, -1)
    if slope == ZERO:
        x, y = materialise(self.b, a.base), materialise(self.b, b.base)
        if gap.is_constant:
            return self.b.const("i1", a.lanes, QUESTIONS[op](0, gap.constant))
        return self.b.splat(arithmetic.compare(self.b, op, x, y, INT64), a.lanes)
    if not slope.is_constant or abs(slope.constant) != 1 or op not in _MIRRORED:
        return None
    if slope.constant == -1:
        op, gap = _MIRRORED[op], gap.times(-1)
    # lane <= gap is lane < gap + 1, and lane > gap is the opposite of lane <= gap.
    limit = gap.plus(ONE) if op in ("le", "gt") else gap
    below = _lanes_below(self.b, materialise(self.b, limit), a.lanes)
    if op in ("lt", "le"):
        return below
    return self.b.binary("xor", below, self.b.const("i1", a.lanes, True))


def _lanes_below(b: Builder, limit: Value, lanes: int) -> Value:
    """The mask of the lanes whose number is below a limit."""
    limit = b.select(b.compare("slt", limit, b.like(limit, 0)), b.like(limit, 0), limit)
    most = b.like(limit, lanes)
    limit = b.select(b.compare("sgt", limit, most), most, limit)
    narrow = b.splat(b.convert("trunc", limit, "i32"), lanes)
    text = f"icmp slt {narrow.type} {lane_numbers('i32', lanes).ref}, {narrow.ref}"
    return b.pure("i1", lanes, text, (narrow,), hoist=True)


def _select(self: Expressions, expr: Select, condition: Index, a: Index, b: Index) -> Index:
    chosen = self.b.select(self.settled(condition), self.settled(a), self.settled(b))
    return _wrapped(chosen, expr.dtype)


def _cast(self: Expressions, expr: Cast, a: Index) -> Index:
    if expr.dtype == expr.a.dtype:
        return a
    value = cast(self.b, self.settled(a), expr.a.dtype, expr.dtype)
    return _wrapped(value, expr.dtype)


def _call(self: Expressions, expr: Call, *args: Index) -> Index:
    values = [self.settled(arg) for arg in args]
    return _wrapped(intrinsic(self.b, expr.name, values, expr.args[0].dtype), expr.dtype)


def _load(self: Expressions, expr: Load, *inner: Index) -> Index:
    count = len(expr.indices)
    return _loaded(self, expr, list(inner[:count]), inner[count:])


def _loaded(self: Expressions, expr: Load, access: Access, mask: Sequence[Index]) -> Index:
    buffer: Any = expr.source
    allowed = self.settled(mask[0]) if mask else None
    if buffer in self.registers:
        loaded = self.registers[buffer][self.register_slot(buffer, access)]
        if allowed is not None:
            loaded = self.b.select(allowed, loaded, self.b.like(loaded, 0))
        return _wrapped(loaded, expr.dtype)
    if buffer not in self.places:
        raise NotFound(f"buffer {buffer.name} is used outside of what allocates it")
    loaded = memory.load(self.b, self.places[buffer], access, allowed)
    return _wrapped(from_memory(self.b, loaded, expr.dtype), expr.dtype)


def _ramp(self: Expressions, expr: Ramp, base: Index, stride: Index) -> Index:
    return Affine(_base_of(base), _base_of(stride), expr.lanes)


def _base_of(index: Index) -> Sum:
    return index.base if isinstance(index, Affine) else sum_of(index)


def _broadcast(self: Expressions, expr: Broadcast, value: Index) -> Index:
    if isinstance(value, Affine) and value.lanes == 1:
        return Affine(value.base, ZERO, expr.lanes)
    return self.b.splat(self.settled(value), expr.lanes)


def _shuffle(self: Expressions, expr: Shuffle, a: Index, b: Index) -> Index:
    x, y = self.settled(a), self.settled(b)
    if len(expr.order) > 1:
        return self.b.shuffle(x, y, expr.order)
    (lane,) = expr.order
    item = self.b.extract(x, lane) if lane < x.lanes else self.b.extract(y, lane - x.lanes)
    return _wrapped(item, expr.dtype)


_RULES: dict[type, _Rule] = {
    Var: _var,
    Const: _const,
    Unary: _unary,
    Binary: _binary,
    Compare: _compare,
    Select: _select,
    Cast: _cast,
    Call: _call,
    Load: _load,
    Ramp: _ramp,
    Broadcast: _broadcast,
    Shuffle: _shuffle,
}
