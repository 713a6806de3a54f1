"""Element-wise updates of lists of arrays as one kernel of open sizes: how many arrays there are, where they lie and
how long they are stands in a table, which is an argument."""

from __future__ import annotations

from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT64, INT64
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, cast, minimum
from ....te.loops import Kernel, Let, Stmt, Store
from ....te.schedule import bind_shared
from ....te.transform import lower_vectors
from ....te.visit import substitute
from .hoist import vector_loop

TURN = 8192  # elements that one turn changes at most


class Update(NamedTuple):
    """What is done to one element of each list: variables for it, and for the numbers that an array's elements share,
    and what is written to which list. `calls` counts functions and divisions."""

    operands: tuple[Var, ...]
    numbers: tuple[Var, ...]
    results: tuple[tuple[int, Expr], ...]
    calls: int


def list_kernel(name: str, update: Update, target: CpuTarget) -> Kernel:
    """Buffers: the first array of each list; the table, with a row for the arrays that belong together, which has for
    each list how many elements its array is away from the first, their size, and their row of numbers; the numbers;
    the turns, each a row of the table and its first element. Scalars: how many turns, rows, and rows of numbers.
    How far lists reach no buffer says: the table does."""
    b = KernelBuilder(name)
    turns, rows, kinds = (b.scalar(name) for name in ("turns", "rows", "kinds"))
    width = len(update.operands)
    lists = [b.arg(var.name, var.dtype, (rows,)) for var in update.operands]
    table = b.arg("table", INT64, (rows, width + 2))
    numbers = b.arg("numbers", FLOAT64, (kinds, max(len(update.numbers), 1)))
    places = b.arg("places", INT64, (turns, 2))
    lanes = min(target.lanes(var.dtype) for var in update.operands)
    with b.parallel("turn", turns) as turn:
        row = b.let("row", places[turn, 0])
        first = b.let("first", places[turn, 1])
        last = b.let("last", minimum(first + TURN, table[row, width]))
        kind = b.let("kind", table[row, width + 1])
        starts = [b.let("start", table[row, number]) for number in range(width)]
        known: dict[Var, Expr] = {
            var: b.let(var.name, cast(numbers[kind, number], var.dtype)) for number, var in enumerate(update.numbers)
        }
        i = Var("i")
        stores = [
            Store(lists[number], (starts[number] + i,), as_expr(substitute(value, known)))
            for number, value in update.results
        ]
        body: Stmt = bind_shared(stores)
        for var, memory, start in zip(update.operands, lists, starts):  # all is read before anything is written
            body = Let(var, memory[start + i], body)
        b.emit(vector_loop(i, first, last, lanes, body))
    return lower_vectors(b.finish())
