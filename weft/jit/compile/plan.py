"""What a traced function does when it is called again: steps over a table of arrays, one row for each memory that the
function used, and how its results are made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import RunError
from ...base.kept import Kept
from ...eager.autograd.backward import grad as gradients_of
from ...eager.autograd.modes import enable_grad, modes
from ...eager.autograd.node import FREED, Grad, Meta, Node
from ...eager.devices.calls import CALLS, host_of
from ...eager.devices.memory import empty_on
from ...eager.recording import part_of_memory
from ...eager.tensor.tensor import Tensor, untraced, wrap
from ...runtime.addresses import address_of
from ...runtime.executor import Executor
from ...runtime.outputs import new_output
from .structure import Place, built

Array = np.ndarray[Any, Any]
Table = list[Any]  # arrays, by the number of their memory
KEPT_BUFFERS = 2  # for an output: what the caller has from the last call, and what the next one fills
KEPT_BRANCHES = 8  # ways that values decided, of one place that asks


class Buffer:
    """Memory for an output, which is taken again when nobody else has it, nor a view of it."""

    __slots__ = ("address", "array", "count", "owner", "owner_count")

    def __init__(self, make: Callable[[], Any]) -> None:
        self.array = make()
        self.owner: Any = self.array
        while isinstance(self.owner, np.ndarray) and self.owner.base is not None:
            self.owner = self.owner.base
        self.owner = getattr(self.owner, "owner", self.owner)  # of memory of a device
        self.address: int = address_of(self.array) if isinstance(self.array, np.ndarray) else self.array.address
        self.count, self.owner_count = getrefcount(self.array), getrefcount(self.owner)


class Buffers:
    """The memory of an output: that of the last calls, or new."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.kept: deque[Buffer] = deque(maxlen=KEPT_BUFFERS)  # one more has the oldest go

    def take(self) -> Buffer:
        kept = self.kept
        for _ in range(len(kept)):
            try:
                buffer = kept.pop()  # the last used, whose address native code and graphs know
            except IndexError:  # another thread has it
                break
            if getrefcount(buffer.array) == buffer.count and getrefcount(buffer.owner) == buffer.owner_count:
                return buffer  # nobody else has it
            kept.appendleft(buffer)
        return Buffer(self._make)


class Segment:
    """A program, from rows of the table to others."""

    def __init__(self, executor: Executor, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        self.executor, self.inputs, self.outputs = executor, list(inputs), list(outputs)
        self.follower: Any = None  # what runs in the same native call, behind the program

    @property
    def is_native(self) -> bool:
        """Whether all of it is one native call."""
        return self.executor.is_native

    def run(self, table: Table) -> None:
        raise NotImplementedError


class NativeSegment(Segment):
    """A program of the processor. Rows that are written and that others see are computed apart, and then copied."""

    def __init__(
        self, executor: Executor, inputs: Sequence[int], outputs: Sequence[int], fixed: dict[int, Array]
    ) -> None:
        super().__init__(executor, inputs, outputs)
        self.buffers = [Buffers(partial(new_output, spec)) for spec in executor.program.outputs]
        self.kept = [fixed[number] for number in self.inputs if number in fixed]  # whose addresses are known
        plain = {number: address_of(array) for number, array in fixed.items() if array.flags.carray}
        self.moving = [number for number in self.inputs if number not in plain]
        self.known = {n: plain[row] for n, row in enumerate(self.inputs) if row in plain}  # addresses, by input
        self.call = executor.repeated(self.known)
        self.results = [(n, b, fixed.get(n)) for n, b in zip(self.outputs, self.buffers, strict=True)]

    def run(self, table: Table) -> None:
        addresses, held = [], []
        for number in self.moving:
            array = table[number]
            if not array.flags.carray:
                array = np.require(array, requirements=["C", "A"])
                held.append(array)
            addresses.append(address_of(array))
        made = [buffers.take() for buffers in self.buffers]
        addresses += [buffer.address for buffer in made]
        follower = self.follower
        more = None if follower is None else follower.begin(table, made)
        if more is None:
            self.call(addresses)
        else:
            follower.call(addresses + more)
            follower.end(table)
        for (number, buffers, known), buffer in zip(self.results, made):
            if known is None and table[number] is None:
                table[number] = buffer.array
            else:  # memory that others see, too
                np.copyto(table[number] if known is None else known, buffer.array)
            buffers.kept.append(buffer)


class Host:
    """A function of arrays that gives an array of the same shape and dtype each time."""

    def __init__(
        self, function: Callable[..., Array], inputs: Sequence[Seen], output: int, index: int | None = None
    ) -> None:
        """What it gives may be wanted on the GPU of a number."""
        self.function, self.inputs, self.output, self.index = function, inputs, output, index
        self.meta: Meta | None = None  # of the first
        self.buffers: Buffers | None = None  # on the GPU

    def run(self, table: Table) -> None:
        made = self.function(*[host_of(seen.of(table)) for seen in self.inputs])
        shape, dtype = self.meta = self.meta or (made.shape, made.dtype)
        if made.shape != shape or made.dtype != dtype:
            raise RunError(
                f"a step on the host gave {made.dtype}{list(made.shape)}",
                why=f"it gave {dtype}{list(shape)} when the function was traced",
            )
        table[self.output] = np.require(made, requirements="C")
        if self.index is not None:
            self.buffers = self.buffers or Buffers(partial(empty_on, self.index, shape, dtype))
            buffer = self.buffers.take()
            buffer.array.write(made)
            table[self.output] = buffer.array
            self.buffers.kept.append(buffer)


class Act:
    """Something that is done to objects: a step of an optimiser."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def run(self, table: Table) -> None:
        self.function()


class Seen(NamedTuple):
    """A tensor over a row of the table: where it lies there, by arrays that nobody reads."""

    number: int
    view: Array
    whole: Array

    def of(self, table: Table) -> Any:
        memory = table[self.number]
        return memory if self.view is self.whole else part_of_memory(memory, self.view, self.whole)


class SetGrads:
    """The gradients that tensors have from then on."""

    def __init__(self, rows: Sequence[tuple[Tensor, Seen | None]]) -> None:
        self.rows = rows

    def run(self, table: Table) -> None:
        for tensor, seen in self.rows:
            tensor._grad = None if seen is None else untraced(seen.of(table))


class Touch:
    """Tensors that a step has written to: their versions go on."""

    def __init__(self, counters: Sequence[list[int]]) -> None:
        self.counters = counters

    def run(self, table: Table) -> None:
        for counter in self.counters:
            counter[0] += 1


class Path:
    """Steps up to where a value decides what comes next, or to the end."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.decides: int | None = None
        self.branches: Kept[Path] = Kept(KEPT_BRANCHES)
        self.finish: Finish | None = None


Again = Callable[[Sequence[Tensor]], list[Tensor]]  # the function as it is: arguments to results with gradients


class Backward(NamedTuple):
    """The gradients of a function's results as a program of its own."""

    segment: Segment
    rows: int  # of its table
    saved: Sequence[tuple[int, int]]  # rows of the call, and of its own
    grads: Sequence[tuple[int, Meta]]  # its rows for the gradients of results
    leaves: Sequence[Any]  # tensors, or numbers of arguments
    results: Sequence[int | None]  # its rows, one a leaf
    counters: Sequence[tuple[list[int], int]]  # versions of tensors, and how much the call itself adds to them


class CompiledNode(Node):
    """The backward call of a compiled function. Where its gradients are to be differentiated again, or are those of a
    batch, the function runs as it is, and autograd knows the rest."""

    def __init__(
        self,
        backward: Backward,
        table: Table,
        leaves: Sequence[Tensor],
        again: Again | None,
        arguments: Sequence[Tensor],
    ) -> None:
        metas = tuple(meta for _, meta in backward.grads)
        super().__init__(tuple(leaf._edge() for leaf in leaves), metas)
        self.backward = backward
        self.again, self.arguments, self.leaves = again, arguments, leaves
        self.before = [tensor._counter[0] for tensor in arguments]
        self.saved_rows: list[Any] | None = [table[number] for number, _ in backward.saved]
        self.versions = [counter[0] for counter, _ in backward.counters]

    def name(self) -> str:
        return "CompiledBackward0"

    def release(self) -> None:
        self.saved_rows = None
        self.arguments = self.leaves = ()

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        if self.saved_rows is None:
            raise RunError(FREED, hint="specify retain_graph=True when calling backward the first time")
        counters = [*[c for c, _ in self.backward.counters], *[tensor._counter for tensor in self.arguments]]
        if any(counter[0] != version for counter, version in zip(counters, [*self.versions, *self.before])):
            raise RunError(
                "one of the variables needed for gradient computation has been modified by an inplace operation "
                "after a compiled function used it",
                hint="call backward() first, or change a clone()",
            )
        if modes.grad or modes.trace not in (None, CALLS):
            return self._by_autograd(grads)
        table: Table = [None] * self.backward.rows
        for (_, number), array in zip(self.backward.saved, self.saved_rows):
            table[number] = array
        for (number, (shape, dtype)), grad in zip(self.backward.grads, grads):
            memory: Any = np.zeros(shape, dtype) if grad is None else grad._array
            table[number] = np.require(memory, requirements="C") if isinstance(memory, np.ndarray) else memory
        self.backward.segment.run(table)
        return [None if number is None else wrap(table[number]) for number in self.backward.results]

    def _by_autograd(self, grads: list[Grad]) -> Sequence[Grad]:
        if self.again is None:
            raise RunError(
                "the gradient of a compiled function cannot be differentiated",
                why="it writes to tensors, draws random numbers, or asks for values, and would do so twice",
                hint="compile a function that computes the gradient of the gradient, too",
            )
        with enable_grad():
            outputs = self.again(self.arguments)
        pairs = [(y, g) for y, g in zip(outputs, grads) if g is not None]
        ys, gs = zip(*pairs)
        return gradients_of(ys, self.leaves, gs, retain_graph=True, create_graph=modes.grad, allow_unused=True)


class EndNode(Node):
    """Behind a result that has no gradients any more, and says why."""

    def __init__(self, why: RunError, outputs: tuple[Meta, ...]) -> None:
        super().__init__((), outputs)
        self.why = why

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        raise RunError(self.why.what, where=self.why.where, why=self.why.why, hint=self.why.hint)


class Result(NamedTuple):
    """A tensor that a function gives: one that was there, or a new one over a row of the table."""

    tensor: Tensor | int | None  # an int is the number of an argument
    seen: Seen | None = None
    output: int | None = None  # of the compiled node
    whole: int | None = None  # the row, where the tensor is all of it
    end: RunError | None = None  # why there is no gradient


class Finish:
    """How results are made: a structure in which numbers stand for tensors."""

    def __init__(
        self, structure: Any, results: Sequence[Result], backward: Backward | None, again: Again | None = None
    ) -> None:
        self.structure, self.results, self.backward, self.again = structure, results, backward, again
        whole = [result.whole for result in results if result.end is None and backward is None]
        self.row = whole[0] if isinstance(structure, Place) and len(whole) == 1 else None  # of one new tensor, alone

    def run(self, table: Table, arguments: Sequence[Tensor]) -> Any:
        if self.row is not None:
            return untraced(table[self.row])
        node: Node | None = None
        if self.backward is not None:
            leaves = [arguments[leaf] if isinstance(leaf, int) else leaf for leaf in self.backward.leaves]
            node = CompiledNode(self.backward, table, leaves, self.again, arguments)
        made: list[Any] = []
        for result in self.results:
            if result.seen is None:
                made.append(arguments[result.tensor] if isinstance(result.tensor, int) else result.tensor)
                continue
            tensor = wrap(result.seen.of(table))
            if result.output is not None:
                tensor._requires_grad, tensor._grad_fn, tensor._output_nr = True, node, result.output
            elif result.end is not None:
                end = EndNode(result.end, ((tensor._array.shape, tensor._array.dtype),))
                tensor._requires_grad, tensor._grad_fn = True, end
            made.append(tensor)
        return built(self.structure, made)


def straight(path: Path, rows: Sequence[tuple[int, int]]) -> Callable[[Sequence[Tensor]], Any] | None:
    """A call without a table or loops over outputs, where a path is one program from arguments to one new tensor:
    around a small operator, those would cost more than it does. `rows` are those of arguments, and which they are."""
    places, finish, steps = dict(rows), path.finish, path.steps
    if finish is None or finish.row is None or len(steps) != 1 or not isinstance(steps[0], NativeSegment):
        return None
    segment = steps[0]
    if segment.results[0][2] is not None or segment.outputs != [finish.row] or finish.row in places:
        return None
    if any(row not in places for row in segment.moving):
        return None
    read, call = [places[row] for row in segment.moving], segment.call
    take, give = segment.buffers[0].take, segment.buffers[0].kept.append

    def run(tensors: Sequence[Tensor]) -> Any:
        addresses, held = [], []
        for number in read:
            array: Any = tensors[number]._array
            if not array.flags.carray:
                array = np.require(array, requirements=["C", "A"])
                held.append(array)
            addresses.append(address_of(array))
        buffer = take()
        addresses.append(buffer.address)
        call(addresses)
        result = untraced(buffer.array)
        give(buffer)  # after somebody has it, for the sake of other threads
        return result

    return run
