"""Runs loop IR on numpy arrays, slowly and with every index checked: the meaning of a kernel.

Statements become a flat list of steps with jumps, expressions a list of operations; nothing here
recurses, so nests may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.dtype import BOOL, DType, is_float
from ..base.errors import InvalidValue, OutOfRange, RunError
from .evaluate import Function, Value, function_of
from .expr import Expr, Load, Var
from .loops import Alloc, Buffer, For, If, Kernel, Let, Seq, Stmt, Store, While
from .visit import parts, postorder

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class _Frame:
    """The state of a run."""

    kernel: str
    values: dict[Var, Value] = field(default_factory=dict)
    arrays: dict[Buffer, Array] = field(default_factory=dict)
    shapes: dict[Buffer, tuple[int, ...]] = field(default_factory=dict)


_Step = Callable[[_Frame], "int | None"]  # does something; the next step's number if it jumps


def run_kernel(
    kernel: Kernel,
    arrays: Sequence[Array],
    scalars: Sequence[int] = (),
    begin: int = 0,
    end: int | None = None,
) -> None:
    """Runs iterations begin .. end - 1 of a kernel (all of them by default) on arrays, in place.

    An array has the shape and strides of its buffer, or one dimension: then it is the memory that
    the buffer's strides address.

    >>> from .build import KernelBuilder
    >>> b = KernelBuilder("double")
    >>> x = b.arg("x", "float32", (3,))
    >>> with b.loop("i", 3) as i:
    ...     b.store(x, i, x[i] * 2)
    >>> data = np.arange(3, dtype="float32")
    >>> run_kernel(b.finish(), [data])
    >>> data.tolist()
    [0.0, 2.0, 4.0]
    """
    if len(arrays) != len(kernel.buffers) or len(scalars) != len(kernel.scalars):
        raise InvalidValue(
            f"kernel {kernel.name} takes {len(kernel.buffers)} arrays and {len(kernel.scalars)} "
            f"scalars, not {len(arrays)} and {len(scalars)}"
        )
    frame = _Frame(kernel.name)
    for var, scalar in zip(kernel.scalars, scalars):
        frame.values[var] = var.dtype.type(scalar)
    with np.errstate(all="ignore"):
        for buffer, array in zip(kernel.buffers, arrays):
            _bind(frame, buffer, array)
        _run_range(kernel, frame, begin, end)


def _run_range(kernel: Kernel, frame: _Frame, begin: int, end: int | None) -> None:
    steps = _compile(kernel.body)
    whole = 1 if kernel.parallel is None else int(_evaluate(kernel.parallel.extent, frame))
    stop = whole if end is None else end
    if not 0 <= begin <= stop <= whole and begin != stop:
        raise OutOfRange(f"iterations {begin}..{stop} of kernel {kernel.name}, which has {whole}")
    for iteration in range(begin, stop):
        if kernel.parallel is not None:
            frame.values[kernel.parallel.var] = np.int64(iteration)
        _run(steps, frame)


def _run(steps: Sequence[_Step], frame: _Frame) -> None:
    at = 0
    while at < len(steps):
        jump = steps[at](frame)
        at = at + 1 if jump is None else jump


# --- memory


def _bind(frame: _Frame, buffer: Buffer, array: Array) -> None:
    """Makes an array the memory of an argument, seen through the buffer's shape and strides."""
    where = f"kernel {frame.kernel}, buffer {buffer.name}"
    if array.dtype != buffer.dtype:
        raise InvalidValue(f"array of {array.dtype} for {buffer.dtype}", where=where)
    shape = tuple(int(_evaluate(extent, frame)) for extent in buffer.shape)
    strides = tuple(int(_evaluate(stride, frame)) * array.itemsize for stride in buffer.strides)
    frame.shapes[buffer] = shape
    if array.shape == shape and (array.size <= 1 or _same_strides(array, strides)):
        frame.arrays[buffer] = array
        return
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides)) // array.itemsize
    fits = 0 in shape or (min(strides, default=0) >= 0 and last < array.size)
    if array.ndim != 1 or array.strides[0] != array.itemsize or not fits:
        raise InvalidValue(
            f"array of shape {array.shape} and strides {array.strides} for {shape}, {strides}",
            where=where,
            hint="pass an array of the buffer's shape and strides, or its memory as a flat one",
        )
    frame.arrays[buffer] = np.lib.stride_tricks.as_strided(array, shape, strides)


def _same_strides(array: Array, strides: tuple[int, ...]) -> bool:
    return all(a == b for a, b, extent in zip(array.strides, strides, array.shape) if extent > 1)


def _allocate(frame: _Frame, buffer: Buffer) -> None:
    """Fresh memory holds a value that shows when it is used before it is written."""
    shape = tuple(int(_evaluate(extent, frame)) for extent in buffer.shape)
    full = shape + ((buffer.lanes,) if buffer.lanes > 1 else ())
    frame.shapes[buffer] = shape
    frame.arrays[buffer] = np.full(full, _poison(buffer.dtype), buffer.dtype)


def _poison(dtype: DType) -> Any:
    if is_float(dtype) or dtype.kind == "c":
        return np.nan
    return True if dtype == BOOL else np.iinfo(dtype).max - 42


def _place(
    frame: _Frame, buffer: Buffer, indices: Sequence[Value], active: Value | None
) -> tuple[Any, ...]:
    """The numpy index of an access, after checking the lanes that are active."""
    if buffer not in frame.arrays:
        raise RunError(f"buffer {buffer.name} is used outside its alloc", where=frame.kernel)
    for axis, (index, extent) in enumerate(zip(indices, frame.shapes[buffer])):
        used = index if active is None or np.ndim(index) == 0 else index[active]
        if np.any((used < 0) | (used >= extent)):
            raise OutOfRange(
                f"index {_show_index(indices, active)} of buffer {buffer.name} is outside axis "
                f"{axis}",
                where=f"kernel {frame.kernel}",
                why=f"the shape is {frame.shapes[buffer]}",
            )
    return tuple(i if active is None or np.ndim(i) == 0 else i[active] for i in indices)


def _show_index(indices: Sequence[Value], active: Value | None) -> str:
    shown = [i if active is None or np.ndim(i) == 0 else i[active] for i in indices]
    return "(" + ", ".join(str(np.asarray(index).tolist()) for index in shown) + ")"


def _load(frame: _Frame, node: Load, values: Sequence[Value]) -> Value:
    buffer = node.source
    if not isinstance(buffer, Buffer):
        raise RunError(f"tensor {buffer.name} is read by a kernel", hint="lower it to a buffer")
    indices = values[: buffer.rank]
    if node.mask is None:
        place = _place(frame, buffer, indices, None)
        return np.copy(frame.arrays[buffer][place])[()]
    mask = np.atleast_1d(values[-1])
    result = np.zeros(node.lanes, node.dtype)
    if mask.any():
        active = mask if node.lanes > 1 and buffer.lanes == 1 else None
        place = _place(frame, buffer, indices, active)
        found = frame.arrays[buffer][place]
        result[mask] = found[mask] if buffer.lanes > 1 else found
    return result if node.lanes > 1 else result[0]


def _store(frame: _Frame, node: Store, values: Sequence[Value]) -> None:
    buffer = node.buffer
    indices, value = values[: buffer.rank], values[buffer.rank]
    if node.mask is None:
        place = _place(frame, buffer, indices, None)
        frame.arrays[buffer][place] = value
        return
    mask = np.atleast_1d(values[-1])
    if not mask.any():
        return
    vector = node.value.lanes > 1
    place = _place(frame, buffer, indices, mask if vector and buffer.lanes == 1 else None)
    place += (mask,) if buffer.lanes > 1 else ()
    frame.arrays[buffer][place] = value[mask] if vector else value


# --- expressions


def _compile_exprs(roots: Sequence[Expr]) -> Callable[[_Frame], list[Value]]:
    """Evaluates several expressions at once; a part they share is evaluated once."""
    slots: dict[int, int] = {}
    code: list[tuple[Expr, Function | None, list[int]]] = []
    for node in postorder(roots):
        assert isinstance(node, Expr)
        slots[id(node)] = len(code)
        direct = None if isinstance(node, (Var, Load)) else function_of(node)
        code.append((node, direct, [slots[id(part)] for part in parts(node)]))
    wanted = [slots[id(root)] for root in roots]

    def evaluate(frame: _Frame) -> list[Value]:
        values: list[Value] = []
        for node, function, args in code:
            inputs = [values[arg] for arg in args]
            if function is not None:
                values.append(function(*inputs))
            elif isinstance(node, Load):
                values.append(_load(frame, node, inputs))
            else:
                values.append(_lookup(frame.values, node, frame.kernel))
        return [values[slot] for slot in wanted]

    return evaluate


def _lookup(values: Mapping[Any, Value], var: Any, kernel: str) -> Value:
    if var not in values:
        raise RunError(f"variable {var.name} has no value", where=f"kernel {kernel}")
    return values[var]


def _evaluate(expr: Expr, frame: _Frame) -> Value:
    return _compile_exprs((expr,))(frame)[0]


# --- statements


def _compile(root: Stmt) -> list[_Step]:
    """The steps of a statement. Work still to be done is kept on a stack: statements, and
    functions that add a step when what precedes them is in place."""
    steps: list[_Step] = []
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


def _pieces(node: Stmt, steps: list[_Step]) -> list[Stmt | Callable[[], None]]:
    match node:
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
        case Alloc(buffer=buffer):
            return [lambda: steps.append(lambda frame: _allocate(frame, buffer)), node.body]
        case Store():
            values = _compile_exprs([part for part in parts(node) if isinstance(part, Expr)])
            return [lambda: steps.append(lambda frame: _store(frame, node, values(frame)))]
    return []


def _loop(node: For, steps: list[_Step]) -> list[Stmt | Callable[[], None]]:
    extent, var = _compile_exprs((node.extent,)), node.var
    head, end = _Label(steps), _Label(steps)
    limit = Var(f"{var.name}.extent")

    def start(frame: _Frame) -> None:
        frame.values[limit] = extent(frame)[0]
        frame.values[var] = np.int64(0)

    def test(frame: _Frame) -> int | None:
        return None if frame.values[var] < frame.values[limit] else end.at

    def advance(frame: _Frame) -> int | None:
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


def _unless(condition: Expr, target: _Label) -> _Step:
    value = _compile_exprs((condition,))
    return lambda frame: None if value(frame)[0] else target.at


class _Label:
    """A place among the steps, known once everything before it is compiled."""

    def __init__(self, steps: list[_Step]) -> None:
        self.steps = steps
        self.at = 0

    def set(self) -> None:
        self.at = len(self.steps)

    def jump(self) -> None:
        self.steps.append(lambda frame: self.at)
