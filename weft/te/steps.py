"""Statements as a flat list of steps with jumps, expressions as lists of operations, and the state
that they change: the machine that runs loop IR. Nothing here recurses, so nests may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.dtype import BOOL, DType, is_float
from ..base.errors import OutOfRange, RunError
from .evaluate import Function, Value, function_of
from .expr import Expr, Load, Var
from .interpret_tiles import run_tile_step
from .loops import Alloc, Barrier, Buffer, Exchange, For, If, Let, Seq, Stmt, Store, TileStep, While, WholeKernel
from .visit import parts, postorder

Array = np.ndarray[Any, np.dtype[Any]]
Place = tuple[Any, ...]  # an index into an array: for each axis a number, or one for each lane


@dataclass(slots=True)
class Frame:
    """The state of a run: what variables and buffers hold."""

    kernel: str
    values: dict[Var, Value] = field(default_factory=dict)
    arrays: dict[Buffer, Array] = field(default_factory=dict)
    shapes: dict[Buffer, tuple[int, ...]] = field(default_factory=dict)
    tiles: dict[int, Array] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What runs, as errors name it."""
        return f"kernel {self.kernel}"

    def on_read(self, buffer: Buffer, place: Place) -> None:
        """Called before elements are read."""

    def on_write(self, buffer: Buffer, place: Place) -> None:
        """Called before elements are written."""

    def show_value(self, value: Value) -> None:
        """Called before an exchange: the value that another thread takes."""

    def partner_value(self, distance: int) -> Value:
        """Called after an exchange: what the thread at that distance has shown."""
        raise RunError("an exchange outside of a grid", where=self.where)


Step = Callable[[Frame], "int | None"]  # does something; the next step's number if it jumps


def wait(frame: Frame) -> None:
    """The step of a barrier: `run` stops there."""


def wait_for_warp(frame: Frame) -> None:
    """The step of an exchange, where `run` stops too; memory is as it was before."""


def run(steps: Sequence[Step], frame: Frame, at: int = 0) -> int | None:
    """Runs from a step to the next barrier or exchange. The step after that, or None at the end."""
    while at < len(steps):
        step = steps[at]
        if step is wait or step is wait_for_warp:
            return at + 1
        jump = step(frame)
        at = at + 1 if jump is None else jump
    return None


# --- memory


def allocate(frame: Frame, buffer: Buffer) -> None:
    """Fresh memory holds a value that shows when it is used before it is written."""
    shape = tuple(int(evaluate(extent, frame)) for extent in buffer.shape)
    full = shape + ((buffer.lanes,) if buffer.lanes > 1 else ())
    frame.shapes[buffer] = shape
    frame.arrays[buffer] = np.full(full, _poison(buffer.dtype), buffer.dtype)


def _poison(dtype: DType) -> Any:
    if is_float(dtype) or dtype.kind == "c":
        return np.nan
    return True if dtype == BOOL else np.iinfo(dtype).max - 42


def _place(frame: Frame, buffer: Buffer, indices: Sequence[Value], active: Value | None) -> Place:
    """The numpy index of an access, after checking the lanes that are active."""
    if buffer not in frame.arrays:
        raise RunError(f"buffer {buffer.name} is used outside its alloc", where=frame.where)
    for axis, (index, extent) in enumerate(zip(indices, frame.shapes[buffer])):
        used = index if active is None or np.ndim(index) == 0 else index[active]
        if np.any((used < 0) | (used >= extent)):
            raise OutOfRange(
                f"index {_show_index(indices, active)} of buffer {buffer.name} is outside axis {axis}",
                where=frame.where,
                why=f"the shape is {frame.shapes[buffer]}",
            )
    return tuple(i if active is None or np.ndim(i) == 0 else i[active] for i in indices)


def _show_index(indices: Sequence[Value], active: Value | None) -> str:
    shown = [i if active is None or np.ndim(i) == 0 else i[active] for i in indices]
    return "(" + ", ".join(str(np.asarray(index).tolist()) for index in shown) + ")"


def _load(frame: Frame, node: Load, values: Sequence[Value]) -> Value:
    buffer = node.source
    if not isinstance(buffer, Buffer):
        raise RunError(f"tensor {buffer.name} is read by a kernel", hint="lower it to a buffer")
    indices = values[: buffer.rank]
    if node.mask is None:
        place = _place(frame, buffer, indices, None)
        frame.on_read(buffer, place)
        return np.copy(frame.arrays[buffer][place])[()]
    mask = np.atleast_1d(values[-1])
    result = np.zeros(node.lanes, node.dtype)
    if mask.any():
        active = mask if node.lanes > 1 and buffer.lanes == 1 else None
        place = _place(frame, buffer, indices, active)
        frame.on_read(buffer, place)
        found = frame.arrays[buffer][place]
        result[mask] = found[mask] if buffer.lanes > 1 else found
    return result if node.lanes > 1 else result[0]


def _store(frame: Frame, node: Store, values: Sequence[Value]) -> None:
    buffer = node.buffer
    indices, value = values[: buffer.rank], values[buffer.rank]
    if node.mask is None:
        place = _place(frame, buffer, indices, None)
        frame.on_write(buffer, place)
        frame.arrays[buffer][place] = value
        return
    mask = np.atleast_1d(values[-1])
    if not mask.any():
        return
    vector = node.value.lanes > 1
    place = _place(frame, buffer, indices, mask if vector and buffer.lanes == 1 else None)
    frame.on_write(buffer, place)
    place += (mask,) if buffer.lanes > 1 else ()
    frame.arrays[buffer][place] = value[mask] if vector else value


# --- expressions


def _compile_exprs(roots: Sequence[Expr]) -> Callable[[Frame], list[Value]]:
    """Evaluates several expressions at once; a part they share is evaluated once."""
    slots: dict[int, int] = {}
    code: list[tuple[Expr, Function | None, list[int]]] = []
    for node in postorder(roots):
        assert isinstance(node, Expr)
        slots[id(node)] = len(code)
        direct = None if isinstance(node, (Var, Load)) else function_of(node)
        code.append((node, direct, [slots[id(part)] for part in parts(node)]))
    wanted = [slots[id(root)] for root in roots]

    def evaluate(frame: Frame) -> list[Value]:
        values: list[Value] = []
        for node, function, args in code:
            inputs = [values[arg] for arg in args]
            if function is not None:
                values.append(function(*inputs))
            elif isinstance(node, Load):
                values.append(_load(frame, node, inputs))
            else:
                values.append(_lookup(frame, node))
        return [values[slot] for slot in wanted]

    return evaluate


def _lookup(frame: Frame, var: Any) -> Value:
    if var not in frame.values:
        raise RunError(f"variable {var.name} has no value", where=frame.where)
    return frame.values[var]


def evaluate(expr: Expr, frame: Frame) -> Value:
    return _compile_exprs((expr,))(frame)[0]


# --- statements


def compile_steps(root: Stmt) -> list[Step]:
    """The steps of a statement. Work still to be done is kept on a stack: statements, and
    functions that add a step when what precedes them is in place."""
    steps: list[Step] = []
    todo: list[Stmt | Callable[[], None]] = [root]
    while todo:
        item = todo.pop()
        if isinstance(item, Seq):
            todo.extend(reversed(item.body))
        elif isinstance(item, Stmt):
            todo.extend(reversed(_pieces(item, steps)))
        else:
            item()
    return steps


def _pieces(node: Stmt, steps: list[Step]) -> list[Stmt | Callable[[], None]]:
    match node:
        case For() if node.is_bound:  # its variable has a value in every thread
            return [node.body]
        case For():
            return _loop(node, steps)
        case While():
            head, end = _Label(steps), _Label(steps)
            test = _unless(node.condition, end)
            return [head.set, lambda: steps.append(test), node.body, head.jump, end.set]
        case If():
            other, end = _Label(steps), _Label(steps)
            test = _unless(node.condition, other)
            tail: list[Stmt | Callable[[], None]] = [end.jump, other.set]
            tail += [node.otherwise] if node.otherwise is not None else []
            return [lambda: steps.append(test), node.then, *tail, end.set]
        case Let(var=var):
            value = _compile_exprs((node.value,))
            bind = lambda frame: frame.values.__setitem__(var, value(frame)[0])
            return [lambda: steps.append(bind), node.body]
        case Alloc(buffer=buffer) if buffer.scope == "shared":  # every thread finds it there
            return [node.body]
        case Alloc(buffer=buffer):
            return [lambda: steps.append(lambda frame: allocate(frame, buffer)), node.body]
        case Store():
            values = _compile_exprs([part for part in parts(node) if isinstance(part, Expr)])
            return [lambda: steps.append(lambda frame: _store(frame, node, values(frame)))]
        case Barrier():
            return [lambda: steps.append(wait)]
        case WholeKernel():
            return [node.loops()]
        case Exchange():
            return _exchange(node, steps)
        case TileStep():
            place = _compile_exprs(node.indices)
            return [lambda: steps.append(lambda frame: run_tile_step(frame, node, place(frame)))]
    return []


def _loop(node: For, steps: list[Step]) -> list[Stmt | Callable[[], None]]:
    extent, var = _compile_exprs((node.extent,)), node.var
    head, end = _Label(steps), _Label(steps)
    limit = Var(f"{var.name}.extent")

    def start(frame: Frame) -> None:
        frame.values[limit] = extent(frame)[0]
        frame.values[var] = np.int64(0)

    def test(frame: Frame) -> int | None:
        return None if frame.values[var] < frame.values[limit] else end.at

    def advance(frame: Frame) -> int | None:
        frame.values[var] += np.int64(1)
        return head.at

    return [
        lambda: steps.append(start),
        head.set,
        lambda: steps.append(test),
        node.body,
        lambda: steps.append(advance),
        end.set,
    ]


def _exchange(node: Exchange, steps: list[Step]) -> list[Stmt | Callable[[], None]]:
    """Every thread shows its value and waits; then each takes that of its partner."""
    values = _compile_exprs([*node.indices, node.value])

    def take(frame: Frame) -> None:
        *indices, _ = values(frame)
        frame.arrays[node.buffer][tuple(indices)] = frame.partner_value(node.distance)

    return [
        lambda: steps.append(lambda frame: frame.show_value(values(frame)[-1])),
        lambda: steps.append(wait_for_warp),
        lambda: steps.append(take),
    ]


def _unless(condition: Expr, target: _Label) -> Step:
    value = _compile_exprs((condition,))
    return lambda frame: None if value(frame)[0] else target.at


class _Label:
    """A place among the steps, known once everything before it is compiled."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.at = 0

    def set(self) -> None:
        self.at = len(self.steps)

    def jump(self) -> None:
        self.steps.append(lambda frame: self.at)
