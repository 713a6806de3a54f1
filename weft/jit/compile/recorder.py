"""The recording of a whole function: which tensors it uses, what it writes to them, and where it asks for values.
Graphs that are recorded become segments of a plan, and run as soon as a value is asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import RunError
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Node, NodeEntry, topo_order
from ...core.op import Op
from ...eager.autograd.engine import Engine
from ...eager.autograd.modes import modes
from ...eager.devices.calls import host_of
from ...eager.dispatch import apply, is_shape_alone
from ...eager.recording import Recording, StandIn, Storage, part_of_memory
from ...eager.tensor.device import device
from ...eager.tensor.memory import Memory, array_of, index_of
from ...eager.tensor.tensor import Tensor, untraced, wrap
from ...optim.optimizer import Optimizer
from ...runtime.cuda.executor import CudaExecutor
from .device_segment import DeviceSegment
from .frames import shown_line, sized_by_values, user_frame
from .guards import Asked
from .memories import is_real, is_same, laid_out_as, layout_of, meta_of, owner_of, seen_in
from .naming import Metas, Recorded
from .plan import Act, Array, Backward, Host, NativeSegment, Path, Seen, Segment, SetGrads, Table, Touch
from .sizes import Made, Programs
from .updates import Update

_NOTHING = np.empty(0, np.uint8)
VIEWS = frozenset(Op.get(name) for name in ("reshape", "transpose", "broadcast_to", "part"))


class Break(NamedTuple):
    """Where a function asks for values, and why."""

    why: str
    where: str


class GivenUp(BaseException):
    """A function does something that no plan does again; raised where nothing has been done yet."""


class Outside(NamedTuple):
    """A tensor that was there before: what it looked at, and its place in the graph."""

    tensor: Tensor
    array: Memory
    memory: StandIn
    grad_fn: Any
    output_nr: int
    argument: int | None


class Recorder(Recording):
    """Records a call. `done` are the steps of the call that have run already, whose results are in the table."""

    def __init__(
        self,
        fullgraph: bool,
        path: Path,
        done: Sequence[Any] = (),
        table: Table | None = None,
        programs: Programs | None = None,
    ) -> None:
        super().__init__()
        self.fullgraph, self.path = fullgraph, path
        self.programs = Programs() if programs is None else programs
        self.done = deque(done)
        self.before: Table = [] if table is None else table
        self.table: Table = []
        self.outsiders: dict[int, Outside] = {}  # by the identity of a tensor
        self.memories: dict[int, list[Outside]] = {}  # by that of the memory it is a part of
        self.rows: dict[int, Outside] = {}  # by the number of its storage
        self.fresh: dict[int, Any] = {}  # arrays that were made meanwhile
        self.replaced: dict[int, StandIn] = {}  # memory of constants that is written to, by its identity
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, int] = {}  # variables of rows, by name
        self.known: dict[int, NodeEntry] = {}  # the variable of what a row holds now
        self.fixed: dict[int, Memory] = {}  # rows that are the same memory in every call
        self.written: dict[int, Outside] = {}
        self.grads: dict[int, Any] = {}  # the gradient that a tensor is known to have, by its identity
        self.guards: list[Asked] = []
        self.first_grads: dict[int, Any] = {}
        self.held: list[Any] = []  # stand-ins that the results are
        self.asked: set[int] = set()
        self.settled: set[int] = set()
        self.dropped: list[Tensor] = []  # whose gradients nothing asks for that they had before
        self.breaks: list[Break] = []
        self.lines: dict[str, str] = {}  # of the user's, by the names of nodes that were made there
        self.generators: dict[int, tuple[Any, Any]] = {}  # those that draw, with what they were before
        self.acted = bool(done)  # whether something outside has changed already

    # Tensors from outside.

    def adopt(self, tensor: Tensor, argument: int | None = None) -> None:
        """Has a stand-in as the memory of a tensor, as long as the function is recorded."""
        array: Any = tensor._array
        if id(tensor) in self.outsiders or not is_real(array):
            return
        layout = layout_of(array)
        others = self.memories.setdefault(id(owner_of(array)), [])
        same = [other.memory for other in others if is_same(other.array, array)]
        if same:
            memory = same[0]
        elif any(np.may_share_memory(layout_of(other.array), layout) for other in others):
            self.give_up("two tensors that it takes share memory")
        else:
            seen = laid_out_as(layout)
            storage = Storage(self, NodeEntry(Node(None, "none")), seen, index_of([array]))
            self._row(storage, array, argument is None)
            memory = StandIn(seen, storage)
        outside = Outside(tensor, array, memory, tensor._grad_fn, tensor._output_nr, argument)
        self.outsiders[id(tensor)] = outside
        others.append(outside)
        self.rows[memory.storage.number] = outside
        self.grads[id(tensor)] = self.first_grads[id(tensor)] = tensor._grad
        tensor._array = outside.memory
        if tensor._grad_fn is not None:  # what it was computed from is outside
            tensor._grad_fn, tensor._output_nr, tensor._accumulator = None, 0, None

    def restore(self) -> None:
        """Gives tensors from outside their own memory back."""
        for outside in self.outsiders.values():
            tensor = outside.tensor
            if isinstance(tensor._array, StandIn):
                tensor._array = outside.array
            if outside.grad_fn is not None:
                tensor._grad_fn, tensor._output_nr, tensor._accumulator = outside.grad_fn, outside.output_nr, None
            grad = self.grads.get(id(tensor))
            if isinstance(grad, Tensor) and isinstance(grad._array, StandIn) and grad._array.storage.real is not None:
                grad._array = self.stored(grad._array)

    def draws(self, generator: Any) -> None:
        if id(generator) not in self.generators:
            with _untraced():
                self.generators[id(generator)] = (generator, generator.get_state())

    def rewind(self) -> None:
        """Gives generators the states that they had."""
        for generator, state in self.generators.values():
            generator.set_state(state)

    def release(self) -> None:
        """Lets values go, which cycles of references would keep, and with them the memory of outputs."""
        self.table, self.before = [], []
        for storage in self.live:
            storage.real = None

    def undo(self) -> None:
        """Gives tensors the gradients that they had, after a function that failed."""
        for outside in self.outsiders.values():
            outside.tensor._grad = self.first_grads[id(outside.tensor)]

    def check_memory(self) -> None:
        """Refuses functions that give tensors from outside other memory."""
        if any(outside.tensor._array is not outside.memory for outside in self.outsiders.values()):
            self.give_up("it assigns to the data of a tensor")

    def _row(self, storage: Storage, array: Memory, fixed: bool) -> None:
        """A storage whose values are an array."""
        self._grow(storage.number + 1)
        self.table[storage.number] = array
        if fixed:
            self.fixed[storage.number] = array
        self._renew(storage)

    def _grow(self, rows: int) -> None:
        self.table += [None] * (rows - len(self.table))

    def _renew(self, storage: Storage) -> None:
        """A variable stands for what a storage holds now."""
        name = f"v{storage.number}_{len(self.inputs)}"
        variable = NodeEntry(Node(None, name))
        if storage.entry.node.name in self.lines:
            self.lines[name] = self.lines[storage.entry.node.name]
        self.inputs[name] = storage.number
        self.known[storage.number] = storage.entry = variable
        storage.real = self.table[storage.number]

    def outside(self, tensor: Tensor) -> NodeEntry:
        array: Any = tensor._array
        if not is_real(array):
            self.give_up(f"a tensor is on {str(tensor.device)!r}")
        written = self.replaced.get(id(owner_of(array)))
        if written is not None:
            tensor._array = seen_in(written, array)
            return self.entry_of(tensor)
        if id(owner_of(array)) in self.fresh:
            return self.constant(array)
        if self.adopt_view(tensor):
            return self.entry_of(tensor)
        if is_shape_alone(array):
            return self._kept(np.zeros(array.shape, array.dtype))  # memory that is never touched
        if tensor._wrapped or tensor._base is not None:
            return self._alone(tensor)
        self.adopt(tensor)
        self.guards.append(("_array", tensor, array))
        return self.entry_of(tensor)

    def adopt_view(self, tensor: Tensor) -> bool:
        """Has a view that was made before be one of its base's stand-in, where nothing else decides what that is."""
        base: Any = tensor._base
        array: Any = tensor._array
        if base is None or not is_real(array) or base._wrapped or tensor._requires_grad:
            return False
        if id(base) not in self.outsiders:
            memory = base._array
            if base._requires_grad or not is_real(memory) or id(owner_of(memory)) in self.memories:
                return False
            self.adopt(base)
            self.guards.append(("_array", base, memory))
        known = self.outsiders[id(base)]
        if known.argument is not None or known.tensor._requires_grad:
            return False
        part = part_of_memory(known.memory.layout, layout_of(array), layout_of(known.array))
        seen = seen_in(known.memory, part)
        self.outsiders[id(tensor)] = Outside(tensor, array, seen, None, 0, None)
        self.grads[id(tensor)] = self.first_grads[id(tensor)] = tensor._grad
        self.guards.append(("_array", tensor, array))
        tensor._array = seen
        return True

    def viewed(self, view: Tensor, source: Tensor) -> None:
        array: Any = view._array
        memory: Any = source._array
        if not is_real(array):
            return
        if id(owner_of(memory)) in self.fresh:
            self.made(view)
            return
        self.entry_of(source)  # which has a stand-in from then on, or is read alone
        memory = source._array
        if isinstance(memory, StandIn):
            real = layout_of(self.outsiders[id(source)].array)
            view._array = seen_in(memory, part_of_memory(memory.layout, layout_of(array), real))

    def _alone(self, tensor: Tensor) -> NodeEntry:
        """A view of memory that nothing else here sees; it is read, and not written."""
        array: Any = tensor._array
        if id(owner_of(array)) in self.memories:
            self.give_up("it reads a view that was made before of a tensor that it uses")
        found = self.fresh.get(id(tensor))
        if found is None:
            storage = Storage(self, NodeEntry(Node(None, "none")), laid_out_as(layout_of(array)), index_of([array]))
            self._row(storage, array, True)
            found = self.fresh[id(tensor)] = (tensor, storage)
        return found[1].entry

    def made(self, tensor: Tensor) -> None:
        array = tensor._array
        if isinstance(array, np.ndarray):
            self.fresh[id(owner_of(array))] = array

    def is_fresh(self, array: Any) -> bool:
        """Whether an array was made meanwhile."""
        return id(owner_of(array)) in self.fresh

    def constant(self, values: Array) -> NodeEntry:
        return self._kept(values.copy())

    def _kept(self, values: Array) -> NodeEntry:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return NodeEntry(Node(None, name))

    def node(self, op: Op, params: Any, inputs: Sequence[NodeEntry]) -> NodeEntry:
        made = super().node(op, params, inputs)
        here = user_frame()
        if here is not None:
            self.lines[made.node.name] = f"{here.f_code.co_filename}:{here.f_lineno}, in {here.f_code.co_name}"
        return made

    # What functions of tensors ask.

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Applies an operator, as dispatch does; to constants at once."""
        values = self._constants(inputs)
        if values is None:
            return super().add(op, params, inputs)
        with _untraced():
            made = apply(op, params, [untraced(array) for array in values])
        index = index_of([tensor._array for tensor in inputs])
        for tensor in made:
            self.made(tensor)
            if index is not None:
                self.bring(tensor, index)
        return made

    def _constants(self, tensors: Sequence[Tensor]) -> list[Array] | None:
        """The values of tensors of which none depends on the call, wherever they are."""
        found: list[Array] = []
        for tensor in tensors:
            memory: Any = tensor._array
            if isinstance(memory, StandIn):
                array = self._constant_at(memory)
            else:
                array = memory if is_real(memory) and self._is_constant(memory) else None
            if array is None or tensor._requires_grad:
                return None
            found.append(array)
        return found

    def _constant_at(self, memory: StandIn) -> Array | None:
        """The values of a constant on a device."""
        storage = memory.storage
        known = None if storage.index is None else self.constants.get(storage.entry.node.name)
        return None if known is None else part_of_memory(known, memory.layout, storage.layout)

    def moved(self, tensor: Tensor, where: device) -> StandIn:
        if where.type == "cpu":
            return self._hosted(np.asarray, [tensor], None)
        return self.value(tensor._shape, tensor._dtype, self.entry_of(tensor), where.index)

    def bring(self, tensor: Tensor, index: int) -> None:
        tensor._array = self.value(tensor._shape, tensor._dtype, self.entry_of(tensor), index)

    def _is_constant(self, array: Memory) -> bool:
        owner = id(owner_of(array))
        return owner in self.fresh and owner not in self.replaced

    def put(self, target: Tensor, result: Tensor) -> None:
        value = self.entry_of(result)
        memory: Any = target._array
        if is_real(memory):
            if id(owner_of(memory)) in self.fresh:
                memory = self._replaced(target)
            else:
                self.entry_of(target)
                memory = target._array
        if not isinstance(memory, StandIn):
            self.give_up("it writes to a view that was made before")
        memory.put(value)
        outside = self.rows.get(memory.storage.number)
        if outside is not None:
            self.written[id(outside.tensor)] = outside

    def _replaced(self, target: Tensor) -> StandIn:
        """A tensor of constants that is written to becomes a stand-in, and so does the memory that it is a view of."""
        array = array_of(target)
        owner = owner_of(array)
        if id(owner) not in self.replaced:
            storage = Storage(self, self.constant(owner), owner)
            self.replaced[id(owner)] = StandIn(owner, storage)
        made = target._array = seen_in(self.replaced[id(owner)], array)
        return made

    def asks_grad(self, tensor: Tensor) -> None:
        """Told before the gradient of a tensor is looked at."""
        if id(tensor) in self.asked or tensor._grad is not self.grads.get(id(tensor), tensor._grad):
            return
        self.asked.add(id(tensor))
        self.guards.append(("_grad", tensor, tensor._grad))
        if tensor._grad is not None:
            self.outside(tensor._grad)

    def sets_grad(self, tensor: Tensor) -> None:
        """Told when the gradient of a tensor is replaced, whatever it was."""
        outside = self.outsiders.get(id(tensor))
        if id(tensor) not in self.asked and outside is not None and outside.argument is None:
            self.dropped.append(tensor)
        self.asked.add(id(tensor))
        self.settled.add(id(tensor))

    def host(self, function: Callable[..., Array], tensors: Sequence[Tensor]) -> StandIn | Array:
        """Has numpy compute something, now and in every call; of constants only now."""
        index, values = index_of([tensor._array for tensor in tensors]), self._constants(tensors) if tensors else None
        if values is None:
            return self._hosted(function, tensors, index)
        with _untraced():
            made = function(*values)
        return made if index is None else self.value(made.shape, made.dtype, self.constant(made), index)

    def _hosted(self, function: Callable[..., Array], tensors: Sequence[Tensor], index: int | None) -> StandIn:
        """What numpy computes, on the GPU of a number or on the processor."""
        inputs = [self._computed(tensor) for tensor in tensors]
        done = self._next(Host)
        number = self.storages
        self._grow(number + 1)
        if done is None:
            step = Host(function, inputs, number, index)
            with _untraced():
                step.run(self.table)
            self.path.steps.append(step)
        else:
            self.table[number] = self.before[done.output]
        made = self.table[number]
        storage = Storage(self, NodeEntry(Node(None, "none")), np.empty(made.shape, made.dtype), index)
        self._renew(storage)
        return StandIn(storage.layout, storage)

    def _computed(self, tensor: Tensor) -> Seen:
        """Where the values of a tensor are, which are computed if they are not there yet."""
        entry = self.entry_of(tensor)
        memory: Any = tensor._array
        if not isinstance(memory, StandIn):
            memory = self.value(tensor._shape, tensor._dtype, entry, index_of([memory]))
        if memory.storage.entry != self.known.get(memory.storage.number):
            self._break("numpy computes on values")
            self.close()
        return seen_of(memory)

    def check(self, check: Callable[[Array], None], tensor: Tensor) -> None:
        """Has values looked at, now and in every call."""

        def looked_at(array: Array) -> Array:
            check(array)
            return _NOTHING

        self.held.append(self.host(looked_at, [tensor]))

    def act(self, function: Callable[[], Any], optimizer: Optimizer | None = None) -> Any:
        """Has something done to objects, now and in every call; it may be the step of an optimiser."""
        self.close()
        self.flush_grads()
        if self._next(Act) is None:
            self.acted = True
            step = None if optimizer is None else self._update(function, optimizer)
            self._outside_in(function)
            self.path.steps.append(step or Act(function))
        return None

    def _update(self, function: Callable[[], Any], optimizer: Optimizer) -> Update | None:
        """A step that the program before it may do, which has computed all gradients: each is all of a row."""
        steps = list(self.path.steps)
        while steps and isinstance(steps[-1], (SetGrads, Touch)):
            steps.pop()
        if not steps or not isinstance(steps[-1], Segment) or not steps[-1].is_native:
            return None
        grads: list[tuple[Tensor, int]] = []
        for group in optimizer.param_groups:
            for p in group["params"]:
                memory: Any = None if p._grad is None else p._grad._array
                if memory is None:
                    continue
                if not isinstance(memory, StandIn) or not memory.layout.flags.c_contiguous:
                    return None
                seen = seen_of(memory)
                if seen.view is not seen.whole or (memory.shape, memory.dtype) != meta_of(p._array):
                    return None
                grads.append((p, seen.number))
        self.storages += 1  # a row that says whether the program did it
        return Update(function, optimizer, grads, steps[-1], self.storages - 1)

    def _outside_in(self, function: Callable[[], Any]) -> None:
        swapped = []
        for outside in list(self.outsiders.values()):
            for tensor in (outside.tensor, outside.tensor._grad):
                memory = None if tensor is None else tensor._array
                if isinstance(memory, StandIn):
                    assert tensor is not None
                    swapped.append((tensor, memory))
                    tensor._array = self.stored(memory)
        try:
            with _untraced():
                function()
        finally:
            for tensor, memory in swapped:
                tensor._array = memory

    def stored(self, memory: StandIn) -> Any:
        """The values of a stand-in that has been computed."""
        return seen_of(memory).of(self.table)

    def decline(self, why: str) -> None:
        self.give_up(why)

    def values(self, storage: Storage) -> Array:
        """What a stand-in holds; from then on the plan depends on it."""
        if modes.trace is not self:
            made = self.lines.get(storage.entry.node.name)
            raise RunError(
                "a tensor without values is used",
                where=None if made is None else f"it was made at {made}",
                why="it was made while a function was traced by weft.compile, and was kept outside of it",
                hint="return it from the function",
            )
        if storage.index is not None and storage.entry.node.name in self.constants:
            known: Array = self.constants[storage.entry.node.name]
            return known
        if storage.entry != self.known.get(storage.number):
            self._break("the value of a tensor is asked for")
            self.close()
        else:
            self._break("the value of a tensor that is given is asked for")
        array: Array = host_of(self.table[storage.number])
        self.path.decides = storage.number
        key = array.tobytes()
        self.path = self.path.branches.find(key, Path)
        self._next(bytes)
        return array

    def _break(self, why: str) -> None:
        here = user_frame()
        where = "" if here is None else f"{here.f_code.co_filename}:{here.f_lineno}"
        if self.fullgraph:
            sized = sized_by_values()
            if sized is not None:
                raise BrokenGraph(
                    f"weft.compile(fullgraph=True) cannot record {sized}",
                    where=shown_line(here),
                    why="the shape of what it gives depends on values",
                    hint="keep the shape: weft.where, masked_fill, or a sum of products with the mask; or leave "
                    "fullgraph out",
                )
            raise BrokenGraph(
                f"weft.compile(fullgraph=True) cannot record that {why}",
                where=shown_line(here),
                why="what comes next may depend on it",
                hint="return the tensor, use weft.where in place of if, or leave fullgraph out",
            )
        self.breaks.append(Break(why, where))

    def give_up(self, why: str) -> None:
        """Has the function run as it is from now on."""
        here = user_frame()
        if self.fullgraph:
            raise BrokenGraph(
                f"weft.compile(fullgraph=True) cannot record what is done here: {why}",
                where=shown_line(here),
                hint="leave fullgraph out, or do it outside of the function",
            )
        raise GivenUp(why if here is None else f"{why} ({here.f_code.co_filename}:{here.f_lineno})")

    # Segments.

    def _next(self, kind: type) -> Any:
        """The step that this call has run already, if it has."""
        while self.done and isinstance(self.done[0], (SetGrads, Touch)) and kind is not SetGrads and kind is not Touch:
            self.done.popleft()
        return self.done.popleft() if self.done and isinstance(self.done[0], kind) else None

    def close(self) -> None:
        """Computes all that there is, and goes on with its values."""
        dirty = [s for s in sorted(self.live, key=_number) if s.entry != self.known.get(s.number)]
        if not dirty:
            return
        outputs = [storage.entry for storage in dirty]
        numbers = [storage.number for storage in dirty]
        done = self._next(Segment)
        self._grow(self.storages)
        if done is None:
            segment = self._segment(outputs, dirty)
            self.path.steps.append(segment)
            segment.run(self.table)
        else:
            if done.outputs != numbers:
                raise RunError(
                    "the function did other things than in the same call before",
                    why="a value decided, and what came before it was not the same again",
                    hint="compile a function that depends on its arguments alone",
                )
            for number in numbers:
                self.table[number] = self.before[number]
        for storage in dirty:
            self._renew(storage)
        self.acted = self.acted or bool(self.written)
        if self.written and done is None:
            self.path.steps.append(Touch([outside.tensor._counter for outside in self.written.values()]))
        self.written = {}

    def _segment(self, outputs: Sequence[NodeEntry], dirty: Sequence[Storage]) -> Segment:
        names = self._variables(outputs)
        rows = [self.table[self.inputs[name]] for name in names]
        metas = {name: meta_of(row) for name, row in zip(names, rows)}
        constants = {name: values for name, values in self.constants.items() if name not in metas}
        index = self._one_device([*rows, *dirty])
        made = self._program(outputs, metas, constants, index)
        return _segment(made, self.inputs, [storage.number for storage in dirty], self.fixed, index, dirty)

    def _one_device(self, memories: Sequence[Any]) -> int | None:
        """The number of the GPU that a program is for."""
        found = dict.fromkeys([at for at in map(index_of, zip(memories)) if at is not None])
        if len(found) > 1:
            self.give_up(f"it computes on {' and '.join(f'cuda:{at}' for at in found)}")
        return next(iter(found), None)

    def _program(
        self, outputs: Sequence[NodeEntry], metas: Metas, constants: Mapping[str, Array], index: int | None
    ) -> Made:
        """Code for a graph, of which it is told where its inputs are from."""
        rows = {name: self.inputs.get(name, -1) for name in metas}
        fixed = [name for name, row in rows.items() if row in self.fixed]
        computed = [name for name, row in rows.items() if row not in self.fixed and row not in self.rows]
        return self.programs.made(Recorded(outputs, metas, constants, fixed, computed), index)

    def _variables(self, outputs: Sequence[NodeEntry]) -> list[str]:
        return [node.name for node in topo_order(outputs) if node.op is None and node.name in self.inputs]

    def flush_grads(self) -> None:
        """Says which gradients tensors have now."""
        rows: list[tuple[Tensor, Seen | None]] = []
        for outside in self.outsiders.values():
            tensor = outside.tensor
            grad = tensor._grad
            if grad is self.grads[id(tensor)] and id(tensor) not in self.settled:
                continue
            self.settled.discard(id(tensor))
            self.grads[id(tensor)] = grad
            seen = None
            if grad is not None:
                self.entry_of(grad)
                memory: Any = grad._array
                if not isinstance(memory, StandIn):
                    self.give_up("a gradient is a tensor that was there before")
                seen = seen_of(memory)
                if outside.argument is not None or outside.grad_fn is not None:
                    self.give_up("the gradient of a tensor that it is given is computed inside")
            rows.append((tensor, seen))
        if rows and not self.done:
            self.path.steps.append(SetGrads(rows))

    # Gradients that are computed outside.

    def backward(self, outputs: Sequence[Tensor]) -> Backward | RunError:
        """The gradients of results as a program, and what the call saves for it; or why there are none."""
        leaves = [outside for outside in self.outsiders.values() if outside.tensor._requires_grad]
        first = self.storages
        seeds = [self.value(t._shape, t._dtype, self._seed(n), index_of([t._array])) for n, t in enumerate(outputs)]
        forward = {id(node) for node in topo_order([s.entry for s in self.live])}
        try:
            with _grad_off():
                found = Engine().run_backward(
                    tuple(outputs),
                    tuple(wrap(seed) for seed in seeds),
                    False,
                    False,
                    tuple(outside.tensor for outside in leaves),
                    allow_unreachable=True,
                )
        except RunError as error:
            return RunError(error.what, where=error.where, why=error.why, hint=error.hint)
        finally:
            for storage in list(self.live):
                if storage.number >= first:
                    self.live.discard(storage)
        entries = [None if grad is None else self.entry_of(grad) for grad in found]
        wanted = [entry for entry in entries if entry is not None]
        saved = self._saved(wanted, forward)
        return self._backward_program(outputs, leaves, entries, saved)

    def _seed(self, number: int) -> NodeEntry:
        return NodeEntry(Node(None, f"g{number}"))

    def _saved(self, wanted: Sequence[NodeEntry], forward: set[int]) -> list[NodeEntry]:
        """What the gradients need of the call: views are taken again."""
        saved: dict[NodeEntry, None] = {}
        stack, met = list(wanted), set(wanted)
        while stack:
            entry = stack.pop()
            node = entry.node
            if node.op is not None and id(node) in forward and node.op not in VIEWS:
                saved[entry] = None
                continue
            for source in node.inputs:
                if source not in met:
                    met.add(source)
                    stack.append(source)
        return list(saved)

    def _backward_program(
        self, outputs: Sequence[Tensor], leaves: Sequence[Outside], entries: Sequence[Any], saved: Sequence[NodeEntry]
    ) -> Backward:
        metas = {name: meta_of(self.table[number]) for name, number in self.inputs.items()}
        shapes = {name: meta[0] for name, meta in metas.items()}
        shapes |= {name: value.shape for name, value in self.constants.items()}
        dtypes = {name: meta[1] for name, meta in metas.items()}
        dtypes |= {name: value.dtype for name, value in self.constants.items()}
        names = {node.name for node in topo_order(saved) if node.op is None}
        graph = infer(
            Graph(list(saved)),
            {name: shape for name, shape in shapes.items() if name in names},
            {name: dtype for name, dtype in dtypes.items() if name in names},
        )
        index = self._one_device([*self.live, *[tensor._array for tensor in outputs]])
        kept = [self.value(*graph.fact(entry)[:2], entry, index) for entry in saved]
        variables = {entry: NodeEntry(Node(None, f"s{n}")) for n, entry in enumerate(saved)}
        wanted = [entry for entry in entries if entry is not None]
        moved = replaced(wanted, variables)
        inputs: dict[str, tuple[int | None, Any]] = {}
        for variable, memory in zip(variables.values(), kept):
            inputs[variable.node.name] = (memory.storage.number, (memory.shape, memory.dtype))
        used = {node.name for node in topo_order(moved) if node.op is None}
        for name in used:
            if name in self.inputs:
                inputs[name] = (self.inputs[name], metas[name])
        inputs = {name: value for name, value in inputs.items() if name in used}
        grads = {f"g{n}": (t._shape, t._dtype) for n, t in enumerate(outputs)}
        rows = {name: row for row, name in enumerate([*inputs, *grads])}
        results, count = [], len(rows)
        for entry in entries:
            results.append(None if entry is None else count)
            count += entry is not None
        read = {name: meta for name, (_, meta) in inputs.items()} | {n: m for n, m in grads.items() if n in used}
        self.held += kept
        constants = {name: value for name, value in self.constants.items() if name in used}
        made = self._program(moved, read, constants, index)
        segment = _segment(made, rows, [row for row in results if row is not None], {}, index)
        numbers = {number for number, _ in inputs.values()}
        counters = [(o.tensor._counter, 0) for o in self.outsiders.values() if o.memory.storage.number in numbers]
        return Backward(
            segment,
            count,
            [(number, rows[name]) for name, (number, _) in inputs.items()],  # type: ignore[misc]
            [(rows[name], meta) for name, meta in grads.items()],
            [outside.tensor if outside.argument is None else outside.argument for outside in leaves],
            results,
            counters,
        )


def _segment(
    made: Made,
    rows: Mapping[str, int],
    outputs: Sequence[int],
    fixed: dict[int, Any],
    index: int | None,
    storages: Sequence[Storage] = (),
) -> Segment:
    """A program as a step. Constants that it takes as inputs are in no row of the table: numbers below 0 stand for
    them."""
    given = {-1 - place: values for place, values in enumerate(made.constants)}
    inputs, known = [*[rows[name] for name in made.inputs], *given], {**fixed, **given} if given else fixed
    if index is None:
        return NativeSegment(made.executor, inputs, outputs, known)
    on_host = [storage.number for storage in storages if storage.index is None]
    assert isinstance(made.executor, CudaExecutor)
    return DeviceSegment(made.executor, inputs, outputs, known, on_host)


def seen_of(memory: StandIn) -> Seen:
    """Where a stand-in lies in its row of the table."""
    return Seen(memory.storage.number, memory.layout, memory.storage.layout)


class BrokenGraph(RunError):
    """A function that was to be one graph is not."""


def replaced(outputs: Sequence[NodeEntry], variables: dict[NodeEntry, NodeEntry]) -> list[NodeEntry]:
    """The graph in which variables stand for entries."""
    moved: dict[Node, Node] = {}

    def at(entry: NodeEntry) -> NodeEntry:
        return variables.get(entry) or NodeEntry(moved.get(entry.node, entry.node), entry.index)

    stack = [entry.node for entry in outputs if entry not in variables]
    while stack:
        node = stack[-1]
        if node in moved:
            stack.pop()
            continue
        waiting = [e.node for e in node.inputs if e not in variables and e.node not in moved]
        if waiting:
            stack += waiting
            continue
        moved[node] = node if node.op is None else node.copy_with([at(entry) for entry in node.inputs])
        stack.pop()
    return [at(entry) for entry in outputs]


def _number(storage: Storage) -> int:
    return storage.number


class _untraced:
    """Inside, operators run."""

    def __enter__(self) -> None:
        self.before, modes.trace = modes.trace, None

    def __exit__(self, *exc: object) -> None:
        modes.trace = self.before


class _grad_off:
    def __enter__(self) -> None:
        self.before, modes.grad = modes.grad, False

    def __exit__(self, *exc: object) -> None:
        modes.grad = self.before
