"""Element-wise operators as open kernels: one kernel for an operator, its dtypes, and how its
operands are walked; sizes and strides are arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import BOOL, DType
from ....base.errors import Error
from ....te.build import KernelBuilder
from ....te.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Reduce, Var, as_expr, minimum
from ....te.loops import Buffer, Kernel, Store
from ....te.printer import show
from ....te.schedule import bind_shared, inline
from ....te.tensor import Tensor
from ....te.transform import lower_vectors
from ....te.visit import loads, parts, postorder, rewrite
from ...group import reached_tensors
from .nest import vector_loop

BLOCK = 4096  # elements of one turn
# Shapes for which an operator is asked what it does to an element, which must not depend on them.
STANDS_IN, STANDS_IN_TOO = (2, 3), (5, 7)


class Element(NamedTuple):
    """What is done to one element of each operand; `places` says which of the arrays given those
    are, for some may not be read. `calls` counts functions and divisions, which cost more than
    moving an element. `plans` is for whoever runs it, to keep what calls have in common."""

    operands: tuple[Tensor, ...]
    places: tuple[int, ...]
    value: Expr
    calls: int
    plans: dict[Any, Any]


def element_of(compute: Callable[..., Any], dtypes: Sequence[DType]) -> Element | None:
    """The element of a computation that is element-wise; None where it is not, or where it depends
    on the shape, as a division by the number of elements does."""
    element, other = (_element_for(shape, compute, dtypes) for shape in (STANDS_IN, STANDS_IN_TOO))
    if element is None or other is None or show(element.value) != show(other.value):
        return None
    return element


def _element_for(shape: tuple[int, ...], compute: Callable[..., Any], dtypes: Sequence[DType]) -> Element | None:
    inputs = [te.placeholder(shape, dtype, f"x{n}") for n, dtype in enumerate(dtypes)]
    try:
        made = compute(*inputs)
    except (Error, TypeError, ValueError, IndexError):
        return None
    if not isinstance(made, Tensor) or made.shape != shape or made.body is None:
        return None
    between = [tensor for tensor in reached_tensors(made) if tensor.body is not None]
    if made.is_reduction or any(tensor.is_reduction for tensor in between):
        return None
    value = inline(made, between).body
    assert value is not None
    value = rewrite(value, _without_masks)
    if not _is_element(value, made.axes):
        return None
    read = {load.source for load in loads(value)}
    places = tuple(n for n, tensor in enumerate(inputs) if tensor in read)
    calls = sum(map(_is_call, postorder((value,))))
    return Element(tuple(inputs[n] for n in places), places, value, calls, {}) if places else None


def _without_masks(node: Any) -> Any:
    """cast(condition) != 0 -> condition"""
    if isinstance(node, Compare) and node.op == "ne" and isinstance(node.a, Cast):
        mask, zero = node.a.a, node.b
        if mask.dtype == BOOL and isinstance(zero, Const) and zero.value == 0:
            return mask
    return node


def _is_call(node: Any) -> bool:
    return isinstance(node, Call) or (isinstance(node, Binary) and node.op == "div")


def _is_element(value: Expr, axes: Sequence[Var]) -> bool:
    """Whether every load reads at the index itself, which nothing else looks at."""
    stack: list[Any] = [value]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Load):
            own = zip(node.indices, axes)
            if node.mask is not None or not all(index is axis for index, axis in own):
                return False
        elif node in axes or isinstance(node, Reduce):
            return False
        else:
            stack.extend(parts(node))
    return True


class Walk(NamedTuple):
    """How a kernel goes through memory: over how many axes, for each operand whether neighbours
    along the innermost one are neighbours in memory or one and the same element, and whether rows
    of the result have places of their own instead of following each other."""

    rank: int
    dense: tuple[bool, ...]
    placed: bool = False


def pointwise_kernel(name: str, element: Element, walk: Walk, target: CpuTarget) -> Kernel:
    """Scalars: the extents of the axes, then for each operand its strides along all axes but the
    innermost, then those of the result if it is placed. A turn is a block of elements, or a row
    where there are rows."""
    b = KernelBuilder(name)
    extents = [b.scalar(f"n{axis}") for axis in range(walk.rank)]
    strides = [
        [b.scalar(f"s{number}_{axis}") for axis in range(walk.rank - 1)]
        for number in range(len(element.operands) + walk.placed)
    ]
    size = as_expr(1)
    for extent in extents:
        size = size * extent
    buffers = [b.arg(t.name, t.dtype, (size,)) for t in element.operands]
    out = b.arg("y", element.value.dtype, (size,))
    lanes = min(target.lanes(buffer.dtype) for buffer in (*buffers, out))
    if walk.rank == 1:
        with b.parallel("p", (extents[0] + (BLOCK - 1)) // BLOCK) as p:
            first = b.let("first", p * BLOCK)
            last = b.let("last", minimum(first + BLOCK, extents[0]))
            starts = [as_expr(0)] * len(buffers)
            _emit_row(b, element, walk, buffers, starts, out, as_expr(0), first, last, lanes)
    else:
        rows = as_expr(1)
        for extent in extents[:-1]:
            rows = rows * extent
        with b.parallel("p", rows) as p:
            starts = row_starts(b, p, extents[:-1], strides)
            at = starts.pop() if walk.placed else b.let("at", p * extents[-1])
            _emit_row(b, element, walk, buffers, starts, out, at, as_expr(0), extents[-1], lanes)
    return lower_vectors(b.finish())


def row_starts(b: KernelBuilder, row: Expr, extents: Sequence[Expr], strides: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Where each operand's row begins."""
    index: list[Expr] = []
    for extent in reversed(extents[1:]):
        index.append(b.let("i", row % extent))
        row = b.let("rest", row // extent)
    index.append(row)
    index.reverse()
    starts: list[Expr] = []
    for steps in strides:
        total = as_expr(0)
        for i, step in zip(index, steps):
            total = total + i * step
        starts.append(b.let("start", total))
    return starts


def _emit_row(
    b: KernelBuilder,
    element: Element,
    walk: Walk,
    buffers: Sequence[Buffer],
    starts: Sequence[Expr],
    out: Buffer,
    at: Expr,
    first: Expr,
    last: Expr,
    lanes: int,
) -> None:
    """One row's elements from `first` up to `last`; those that are the same for all of it are read
    once."""
    i = Var("i")
    same = {
        tensor: b.let("same", buffer[start])
        for tensor, buffer, start, dense in zip(element.operands, buffers, starts, walk.dense)
        if not dense
    }
    places: dict[Any, tuple[Buffer, Expr]] = dict(zip(element.operands, zip(buffers, starts)))

    def read(node: Any) -> Any:
        if not isinstance(node, Load):
            return node
        if node.source in same:
            return same[node.source]
        buffer, start = places[node.source]
        return buffer[start + i]

    store = Store(out, (at + i,), rewrite(element.value, read))
    b.emit(vector_loop(i, first, last, lanes, bind_shared([store])))
