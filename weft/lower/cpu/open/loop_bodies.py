"""Operators whose body is written as loops, as open kernels: the rule that writes them runs on
extents that are arguments. What it asks about sizes becomes guards, as with computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....base.cpu_facts import COSTS
from ....base.dtype import DType
from ....base.errors import Unsupported
from ....base.sizes import NUMBER, OPERATIONS, SIZE
from ....core.op import Op
from ....core.schema import Params
from ....te.expr import Binary, Const, Expr, Var, as_expr
from ....te.extents import Trace
from ....te.loops import Kernel
from ....te.transform import legalise
from .generic import OpenMemory, OpenProgram, OpenStep, extents

Spec = tuple[tuple[int, ...], DType]
NANOSECONDS = COSTS.counted


def lower_loop_body(op: Op, params: Params, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> OpenProgram[Kernel]:
    """The kernels of one call, for all calls like it. Its sizes are those of the inputs, then those
    of the outputs."""
    trace = Trace()
    specs = [(tuple(extents(trace, number, shape)), dtype) for number, (shape, dtype) in enumerate([*inputs, *outputs])]
    count = len(inputs)
    made = op.call_with(Op.kernels[op], params, specs[:count], specs[count:])
    memory = {number: OpenMemory(tuple(map(trace.row_of, shape)), dtype) for number, (shape, dtype) in enumerate(specs)}
    steps = []
    for kernel, positions, work in made:
        for buffer, position in zip(kernel.buffers, positions):
            if position not in memory:
                shape = tuple(_row(extent, trace) for extent in buffer.shape)
                memory[position] = OpenMemory(shape, buffer.dtype)
        turns = as_expr(1) if kernel.parallel is None else kernel.parallel.extent
        whole = replace(legalise(kernel), scalars=tuple(trace.arguments))
        rows = _row(turns, trace), trace.row_of(work)
        steps.append(OpenStep(whole, tuple(positions), *rows, NANOSECONDS))
    order = sorted(memory)
    if order != list(range(len(order))):
        raise Unsupported(f"the kernels of {op.name} leave out memory they named")
    allocated = tuple(memory[number] for number in order[count:])
    outputs_at = tuple(range(count, count + len(outputs)))
    return OpenProgram(trace.table(), allocated, outputs_at, tuple(steps))


def _row(expr: Expr, trace: Trace) -> int:
    """An expression of the arguments as a row of the table of sizes."""
    if isinstance(expr, Const):
        return trace.row(NUMBER, int(expr.value))
    if isinstance(expr, Var) and expr in trace.arguments:
        return trace.row(SIZE, trace.arguments.index(expr))
    if isinstance(expr, Binary) and expr.op in OPERATIONS:
        return trace.row(expr.op, _row(expr.a, trace), _row(expr.b, trace))
    raise Unsupported(f"an extent of a kernel is no function of sizes: {expr!r}")
