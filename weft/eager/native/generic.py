"""Eager calls by programs made from an operator's compute: one program serves all sizes that
pass its guards."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...base.cpu_target import host
from ...base.kept import Kept
from ...compiler.open.calls import LoweredCall, lower_compute, lower_numbers, lowered_operator
from ...compiler.open.programs import open_call
from ...core.op import Op
from ...lower.group import Written
from ...runtime.cpu.open_program import Call as NativeCall
from .calls import Array, Declined, facts_of, inferred
from .copy import dense
from .pointwise import op_key

Spec = tuple[tuple[int, ...], np.dtype[Any]]
KEPT = 4096  # calls whose sizes are known


class Call(NamedTuple):
    """What runs calls on arrays of certain shapes, what it makes, and which of the arrays it reads."""

    native: NativeCall
    outputs: list[Spec]
    read: frozenset[int]

    def run(self, arrays: Sequence[Array], out: Sequence[Array] | None = None) -> list[Array]:
        """The outputs, fresh or in arrays that are in order of memory."""
        read = self.read
        given = [a if a.flags.c_contiguous or number not in read else dense(a) for number, a in enumerate(arrays)]
        made = [np.empty(shape, dtype) for shape, dtype in self.outputs] if out is None else list(out)
        self.native.run([*given, *made])
        return made


_calls: Kept[Call] = Kept(KEPT)


def run_generic(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an operator."""

    def make() -> Call:
        inferred(op, params, facts_of(arrays))
        compute = partial(op.call_with, Op.compute[op], params)
        return computed_call(op_key(op, params), op.name, compute, facts_of(arrays))

    return _known((op, params), arrays, make).run(arrays)


def run_template(op: Op, params: Any, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of an operator that has a template, or whose body is written as loops."""
    return _known((op, params), arrays, lambda: _lowered(op, params, arrays)).run(arrays)


def run_computed(
    key: Hashable, name: str, compute: Callable[..., Any], arrays: Sequence[Array], out: Sequence[Array] | None = None
) -> list[Array]:
    """What a computation on te tensors gives for arrays; the key tells it from others, in other
    processes, too, if it is of texts and numbers."""
    return _known(key, arrays, lambda: computed_call(key, name, compute, facts_of(arrays))).run(arrays, out)


def _known(key: Hashable, arrays: Sequence[Array], make: Callable[[], Call]) -> Call:
    """The call of a key on arrays of these shapes and dtypes."""
    return _calls.find((key, *facts_of(arrays)), make)


def computed_call(key: Hashable, name: str, compute: Callable[..., Any], inputs: Sequence[Spec]) -> Call:
    """What runs a computation on te tensors for arrays of these shapes and dtypes."""
    return _made(("computed", key), name, inputs, partial(lower_compute, name, compute, inputs, host()))


def _lowered(op: Op, params: Any, arrays: Sequence[Array]) -> Call:
    inputs = facts_of(arrays)
    outputs = [(fact.shape, fact.dtype) for fact in inferred(op, params, inputs)]
    call = _made(
        ("lowered", op_key(op, params)), op.name, inputs, partial(lowered_operator, op, params, inputs, host())
    )
    if call.outputs != outputs:  # sizes that are equal by chance
        raise Declined("shapes")
    return call


def _made(key: Hashable, name: str, specs: Sequence[Spec], lower: Callable[[], LoweredCall]) -> Call:
    """A call by a program that serves these sizes; it is looked for on disk and made if none is
    there yet."""
    sizes = tuple([n for shape, _ in specs for n in shape if n != 1])
    kind = (key, *[(dtype, *[n == 1 for n in shape]) for shape, dtype in specs])
    return _program_call(kind, name, sizes, lower)


def numbers_call(write: Callable[..., Written], *form: Hashable, numbers: tuple[int, ...]) -> Call:
    """What runs the program that `write(*form, target, numbers)` writes, where all numbers are arguments. The form says
    all else that is to be known beside the machine, as that of `kernel` does."""
    lower = partial(lower_numbers, numbers, partial(write, *form, host()))
    return _program_call(("numbers", write.__name__, *form), write.__name__, numbers, lower)


def _program_call(kind: Hashable, name: str, sizes: tuple[int, ...], lower: Callable[[], LoweredCall]) -> Call:
    call = open_call(kind, name, sizes, lower)
    return Call(call, [(spec.extents, spec.dtype) for spec in call.outputs], call.used)
