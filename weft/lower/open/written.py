"""Operators whose body is written as loops, as open kernels: the rule that writes them runs on
extents that are arguments. What it asks about sizes becomes guards, as with computes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...base.dtype import DType
from ...base.errors import Unsupported
from ...core.op import Op
from ...core.schema import Params
from ...te.expr import Binary, Const, Expr, Var, as_expr
from ...te.extents import Size, Trace, size_of
from ...te.transform import legalise
from .generic import Memory, OpenProgram, OpenStep, extents

Spec = tuple[tuple[int, ...], DType]
NANOSECONDS = 0.5  # of a unit of work


def lower_written(
    op: Op, params: Params, inputs: Sequence[Spec], outputs: Sequence[Spec]
) -> OpenProgram:
    """The kernels of one call, for all calls like it. Its sizes are those of the inputs, then those
    of the outputs."""
    trace = Trace()
    specs = [
        (tuple(extents(trace, number, shape)), dtype)
        for number, (shape, dtype) in enumerate([*inputs, *outputs])
    ]
    count = len(inputs)
    made = op.call_with(Op.kernels[op], params, specs[:count], specs[count:])
    memory = {
        number: Memory(tuple(map(size_of, shape)), dtype)
        for number, (shape, dtype) in enumerate(specs)
    }
    steps = []
    for kernel, positions, work in made:
        for buffer, position in zip(kernel.buffers, positions):
            if position not in memory:
                shape = tuple(_size(extent, trace) for extent in buffer.shape)
                memory[position] = Memory(shape, buffer.dtype)
        turns = as_expr(1) if kernel.parallel is None else kernel.parallel.extent
        whole = replace(legalise(kernel), scalars=tuple(trace.arguments))
        steps.append(
            OpenStep(whole, tuple(positions), _size(turns, trace), size_of(work), NANOSECONDS)
        )
    order = sorted(memory)
    if order != list(range(len(order))):
        raise Unsupported(f"the kernels of {op.name} leave out memory they named")
    allocated = tuple(memory[number] for number in order[count:])
    return OpenProgram(trace, allocated, tuple(range(count, count + len(outputs))), tuple(steps))


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
}


def _size(expr: Expr, trace: Trace) -> Size:
    """An expression of the arguments as a function of them."""
    if isinstance(expr, Const):
        number = int(expr.value)
        return lambda sizes: number
    if isinstance(expr, Var) and expr in trace.arguments:
        place = trace.arguments.index(expr)
        return lambda sizes: sizes[place]
    if isinstance(expr, Binary) and expr.op in _OPERATIONS:
        operation, a, b = _OPERATIONS[expr.op], _size(expr.a, trace), _size(expr.b, trace)
        return lambda sizes: operation(a(sizes), b(sizes))
    raise Unsupported(f"an extent of a kernel is no function of sizes: {expr!r}")
