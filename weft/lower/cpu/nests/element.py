"""Element-wise operators as kernels of open sizes: one for an operator, its dtypes, and how its
operands are walked; sizes and strides are arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import BOOL, DType
from ....base.errors import Error
from ....te.expr import Binary, Call, Cast, Compare, Const, Expr, Load, Reduce, Var, as_expr
from ....te.extents import MANY, Trace
from ....te.loops import Buffer, Kernel, Store, buffer
from ....te.printer import show
from ....te.schedule import bind_shared, inline
from ....te.tensor import Tensor
from ....te.visit import loads, parts, postorder, rewrite
from ...axes import Axis, Nest
from ...group import reached_tensors
from ..nest import BLOCK_ELEMENTS
from ..squares import BLOCK
from .open_stages import walked_kernel

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
    """How a kernel goes through memory: over how many axes, for each operand how many elements a
    step along the innermost one goes (1, 0 or -1; None of one that has its neighbours along the axis before it), and
    whether rows of the result have places of their own instead of following each other."""

    rank: int
    steps: tuple[int | None, ...]
    placed: bool = False


def element_kernel(element: Element, walk: Walk, target: CpuTarget) -> Kernel:
    """Scalars: the extents of the axes, then for each operand its strides along all axes but the
    one along which it has neighbours, then those of the result if it is placed. A turn is a block of elements, a row
    where there are rows, or some lines of an operand whose neighbours are along another axis."""
    trace, outer = Trace(), range(walk.rank - 1)
    axes = [Axis(Var("i"), trace.extent(f"n{axis}", MANY)) for axis in range(walk.rank)]
    shape, index = [axis.extent for axis in axes], tuple([axis.var for axis in axes])

    def strided(name: str, dtype: DType, step: int | None = 1) -> Buffer:
        given: list[Any] = [trace.extent(f"{name}_{axis}", MANY) for axis in outer]
        return buffer(name, dtype, shape, strides=[*given, step] if step is not None else [*given[:-1], 1, given[-1]])

    buffers: dict[Any, Buffer] = {t: strided(t.name, t.dtype, step) for t, step in zip(element.operands, walk.steps)}
    single = {t for t, step in zip(element.operands, walk.steps) if step == 0}
    dtype = element.value.dtype
    out = strided("y", dtype) if walk.placed else buffer("y", dtype, shape)

    def read(node: Any) -> Any:
        if not isinstance(node, Load):
            return node
        return Load(buffers[node.source], (*index[:-1], as_expr(0)) if node.source in single else index)

    nest = Nest(axes, bind_shared([Store(out, index, rewrite(element.value, read))]))
    kernel = walked_kernel("pointwise", [*buffers.values(), out], nest, target, trace)
    return replace(kernel, scalars=tuple(trace.arguments))


def numbers_of(walk: Walk, extents: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], int]:
    """The scalars of such a kernel and its turns, by the strides of each operand and of the result along all axes."""
    own = [each[:-1] if step is not None else (*each[:-2], each[-1]) for each, step in zip(strides, (*walk.steps, 1))]
    if None in walk.steps:
        turns = prod(extents[:-2]) * -(-extents[-2] // BLOCK)
    else:
        turns = prod(extents[:-1]) if len(extents) > 1 else -(-extents[0] // BLOCK_ELEMENTS)
    return (*extents, *chain(*own)), turns


def copy_kernel(dtype: DType, walk: Walk, target: CpuTarget) -> Kernel:
    """Elements as they are, in other places."""
    element = element_of(lambda x: te.compute(x.shape, lambda *i: x[i]), [dtype])
    assert element is not None
    return element_kernel(element, walk, target)
