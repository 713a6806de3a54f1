"""How long a kernel takes, from its loops: for comparing two kernels that compute the same, made for open sizes and for
numbers. Whether the unit is a cycle of some processor does not matter then."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

from ...base.sizes import OPERATIONS, QUESTIONS
from ...te.expr import Binary, Broadcast, Call, Cast, Compare, Const, Expr, Load, Ramp, Select, Shuffle, Unary, Var
from ...te.loops import Alloc, Buffer, For, If, Kernel, Let, Parallel, Seq, Stmt, Store, While
from ...te.visit import parts, postorder

ARITHMETIC, LOAD, STORE = 0.5, 0.5, 1.0  # cycles between two of them
FUNCTION, QUOTIENT = 10.0, 4.0
LATENCY = 4.0  # from a sum to the next that it goes into
TURN, LAUNCH = 1.0, 200.0  # of a loop, and of a kernel
PIECES = 512  # that the turns of a loop are looked at in, at most

_LOGIC: dict[str, Callable[[int, int], int]] = {"and": operator.and_, "or": operator.or_}
_OPERATIONS: dict[str, Callable[[int, int], int]] = {**OPERATIONS, **QUESTIONS, **_LOGIC}

Numbers = Mapping[Var, int]
Chain = tuple[Buffer, tuple[object, ...]]  # an element of registers that sums go into one after the other


class _Cost(NamedTuple):
    """Cycles if nothing waits, and how often each register is read and written again."""

    cycles: float
    chains: Counter[Chain]

    @property
    def spent(self) -> float:
        """Where sums wait for each other, that is what counts."""
        return max(self.cycles, LATENCY * max(self.chains.values(), default=0))


def kernel_cycles(kernel: Kernel, sizes: Numbers) -> float:
    """About how many cycles one thread takes for a kernel whose scalars are these sizes."""
    body: Stmt = kernel.body
    if isinstance(kernel.parallel, Parallel):
        body = For(kernel.parallel.var, kernel.parallel.extent, body)
    return LAUNCH + _Counted().cost(body, sizes, {}).spent


def kernel_operations(kernel: Kernel, sizes: Numbers) -> float:
    """How many operations on data a kernel does: sums, products, comparisons and functions of floats and of vectors,
    each lane for itself. Of two branches it is the longer one."""
    body: Stmt = kernel.body
    if isinstance(kernel.parallel, Parallel):
        body = For(kernel.parallel.var, kernel.parallel.extent, body)
    return _Operations().cost(body, sizes, {}).cycles


class _Counted:
    """Counts the work of statements; loops in which conditions change are looked at in pieces."""

    turn = TURN
    vector_is_one = True  # whether the turns of a vector loop are done by one instruction

    def __init__(self) -> None:
        self._decides: dict[int, set[Var]] = {}

    def cost(self, stmt: Stmt, known: Numbers, copies: Numbers) -> _Cost:
        """Of a statement that stands there once for each turn of the loops that `copies` are unrolled from."""
        costs: list[_Cost] = []
        while True:  # what is bound holds to the end of a block, so that blocks of many are nested deep
            match stmt:
                case Seq(body=(*first, last)):
                    costs += [self.cost(part, known, copies) for part in first]
                    stmt = last
                case Let(var=var, value=value, body=inner):
                    costs.append(_Cost(self._value(value, copies), Counter()))
                    number = _number(value, known)
                    known, stmt = (known if number is None else {**known, var: number}), inner
                case Alloc(body=inner) | While(body=inner):
                    stmt = inner
                case For(kind="unroll", var=var, extent=Const(value=turns), body=inner) if not _has_loops(inner):
                    copies, stmt = {**copies, var: int(turns)}, inner
                case _:
                    return _sum([*costs, self._last(stmt, known, copies)])

    def _last(self, stmt: Stmt, known: Numbers, copies: Numbers) -> _Cost:
        """Of what does not go on in one statement inside it."""
        match stmt:
            case If(condition=condition, then=then, otherwise=otherwise):
                holds = _number(condition, known)
                sides = [then] if holds or holds is None else []
                sides += [otherwise] if otherwise is not None and not holds else []
                costs = (self.cost(side, known, copies) for side in sides)
                return max(costs, key=lambda cost: cost.spent, default=_NOTHING)
            case For():
                return self._loop(stmt, known)
            case Store():
                return self._store(stmt, copies)
            case _:
                return _NOTHING

    def _loop(self, loop: For, known: Numbers) -> _Cost:
        turns = _number(loop.extent, known)
        if turns is None or (loop.kind == "vector" and self.vector_is_one):
            turns = 1
        if turns <= 0:
            return _NOTHING
        turn = self.turn if loop.kind == "serial" else 0.0
        if loop.var not in self._deciding(loop):
            return _Cost(turns * (self.cost(loop.body, known, {}).spent + turn), Counter())
        costs: dict[int, float] = {}

        def at(number: int) -> float:
            if number not in costs:
                costs[number] = self.cost(loop.body, {**known, loop.var: number}, {}).spent
            return costs[number]

        return _Cost(_total(at, turns) + turns * turn, Counter())

    def _value(self, value: Expr, copies: Numbers) -> float:
        return _cycles_of(value, copies)

    def _store(self, stmt: Store, copies: Numbers) -> _Cost:
        return _store(stmt, copies)

    def _deciding(self, loop: For) -> set[Var]:
        """Variables that conditions and extents inside a loop follow from."""
        if id(loop) not in self._decides:
            found: set[Var] = set()
            bound: dict[Var, Expr] = {}
            nodes = list(postorder((loop.body,)))
            for node in nodes:
                if isinstance(node, Let):
                    bound[node.var] = node.value
            asked = [
                node.condition if isinstance(node, If) else node.extent for node in nodes if isinstance(node, (If, For))
            ]
            while asked:
                for node in postorder((asked.pop(),)):
                    if isinstance(node, Var) and node not in found:
                        found.add(node)
                        if node in bound:
                            asked.append(bound[node])
            self._decides[id(loop)] = found
        return self._decides[id(loop)]


class _Operations(_Counted):
    """Counts operations, whether or not they wait for each other."""

    turn = 0.0
    vector_is_one = False

    def _value(self, value: Expr, copies: Numbers) -> float:
        return sum(_operations(node) * _times((node,), copies) for node in _values(value))

    def _store(self, stmt: Store, copies: Numbers) -> _Cost:
        return _Cost(self._value(stmt.value, copies), Counter())


def _operations(node: Expr) -> int:
    """Of one node of an expression: moves are none, and a product that is summed at once is two."""
    if isinstance(node, (Load, Var, Const, Broadcast, Ramp, Shuffle, Cast)):
        return 0
    if node.dtype.kind != "f" and node.lanes == 1:
        return 0  # counts, places and conditions
    return node.lanes * (2 if isinstance(node, Call) and node.name == "fma" else 1)


_NOTHING = _Cost(0.0, Counter())


def _sum(costs: list[_Cost]) -> _Cost:
    chains: Counter[Chain] = Counter()
    for cost in costs:
        chains.update(cost.chains)
    return _Cost(sum(cost.cycles for cost in costs), chains)


def _total(at: Callable[[int], float], turns: int) -> float:
    """The sum over all turns of what takes the same in most: halved where ends and middle differ."""
    total, pieces = 0.0, 0
    todo = [(0, turns - 1)]
    while todo:
        first, last = todo.pop()
        count, middle = last - first + 1, (first + last) // 2
        ends = at(first), at(last)
        pieces += 1
        if count <= 2 or pieces > PIECES or ends[0] == at(middle) == ends[1]:
            total += count * sum(ends) / 2
        else:
            todo += [(first, middle), (middle + 1, last)]
    return total


def _has_loops(body: Stmt) -> bool:
    return any(isinstance(node, For) and node.kind != "unroll" for node in postorder((body,)))


def _store(stmt: Store, copies: Numbers) -> _Cost:
    cycles = _cycles_of(stmt.value, copies)
    if stmt.buffer.scope != "register":
        return _Cost(cycles + STORE * _accesses(stmt.indices) * _times(stmt.indices, copies), Counter())
    place = _place(stmt.buffer, stmt.indices)
    loaded = [node for node in _values(stmt.value) if isinstance(node, Load) and isinstance(node.source, Buffer)]
    if not any(_place(load.source, load.indices) == place for load in loaded):  # type: ignore[arg-type]
        return _Cost(cycles, Counter())
    return _Cost(cycles, Counter({place: prod(copies.values()) // _times(stmt.indices, copies)}))


def _place(buffer: Buffer, indices: tuple[Expr, ...]) -> Chain:
    return buffer, tuple(index.value if isinstance(index, Const) else id(index) for index in indices)


def _times(exprs: tuple[Expr, ...], copies: Numbers) -> int:
    """How many values expressions have in all copies."""
    if not copies:
        return 1
    used = {node for node in postorder(exprs) if isinstance(node, Var)}
    return prod(count for var, count in copies.items() if var in used)


def _cycles_of(expr: Expr, copies: Numbers) -> float:
    """Of an expression in all its copies, what they share counted once."""
    fused = [node for node in _values(expr) if isinstance(node, Binary) and _is_fused(node)]
    return sum(_cycles(node) * _times((node,), copies) for node in _values(expr)) - ARITHMETIC * sum(
        _times((node,), copies) for node in fused
    )


def _values(expr: Expr) -> list[Expr]:
    """What is computed of data: indices are left out."""
    found: dict[int, Expr] = {}
    todo = [expr]
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo += () if isinstance(node, Load) else parts(node)
    return list(found.values())


def _is_fused(node: Binary) -> bool:
    """Whether a product becomes a part of the sum that it goes into."""
    products = [x for x in (node.a, node.b) if isinstance(x, Binary) and x.op == "mul"]
    return node.op in ("add", "sub") and bool(products) and node.dtype.kind == "f"


def _cycles(node: Expr) -> float:
    match node:
        case Load(source=Buffer(scope="register")) | Var() | Const() | Broadcast() | Ramp():
            return 0.0
        case Load(indices=indices):
            return LOAD * _accesses(indices)
        case Call(name=name):
            return ARITHMETIC if name == "fma" else FUNCTION
        case Binary(op="div"):
            return QUOTIENT
        case _ if node.dtype.kind == "i" and node.lanes == 1:
            return 0.0  # counts and places
        case _:
            return ARITHMETIC


def _accesses(indices: tuple[Expr, ...]) -> int:
    """How many elements or lines an access touches one by one."""
    ramps = [index for index in indices if index.lanes > 1]
    dense = all(isinstance(index, Ramp) and _is_one(index.stride) for index in ramps)
    return 1 if dense else max(index.lanes for index in ramps)


def _is_one(stride: Expr) -> bool:
    return isinstance(stride, Const) and stride.value == 1


def _number(expr: Expr, known: Numbers) -> int | None:
    """What an expression of known numbers is; None if it depends on others."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return known.get(expr)
    if expr.lanes > 1 or expr.dtype.kind == "f":
        return None
    found: dict[int, int] = {}
    for node in postorder((expr,)):
        number: int | None = None
        match node:
            case Const(value=value):
                number = int(value)
            case Var():
                number = known.get(node)
            case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b) if op in _OPERATIONS:
                if op not in ("floordiv", "floormod") or found[id(b)]:
                    number = int(_OPERATIONS[op](found[id(a)], found[id(b)]))
            case Select(condition=condition, a=a, b=b):
                number = found[id(a)] if found[id(condition)] else found[id(b)]
            case Cast(a=a):
                number = found[id(a)]
            case Unary(op=op, a=a):
                number = -found[id(a)] if op == "neg" else int(not found[id(a)])
        if number is None:
            return None
        found[id(node)] = number
    return found[id(expr)]
