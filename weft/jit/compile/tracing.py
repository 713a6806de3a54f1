"""A function or module with example inputs as a graph of the core: a Symbol, and the parameters that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from ...base.errors import Unsupported
from ...core.ir import Node, NodeEntry, topo_order
from ...core.op import Op
from ...core.schema import text_of
from ...core.symbol import Symbol
from ...eager.autograd.modes import modes, no_grad
from ...eager.recording import StandIn, Storage
from ...eager.tensor.tensor import Tensor, root_of
from ...nn.modules.module import Module
from .guards import Reached
from .memories import owner_of
from .plan import Array, Path
from .recorder import GivenUp, Recorder, replaced
from .scopes import Scope
from .structure import flattened


class OneGraph(Recorder):
    """A recording that must be one graph: what is only looked at is left out. Branches and loops of programs are
    recorded in scopes, and become nodes with subgraphs."""

    def __init__(self) -> None:
        super().__init__(True, Path())
        self.scopes: list[Scope] = []
        self.births: dict[int, int] = {}  # of arrays that were made meanwhile: how many storages there were
        self.shared: WeakSet[Storage] = WeakSet()  # memory that is, or is not, that of another tensor

    # Subgraphs.

    def enter(self, states: Sequence[Storage] | None = None) -> Scope:
        """Has what is recorded from now on be part of a subgraph."""
        self.storages += 1  # so that what was made before is older
        self.scopes.append(Scope(self.storages, states))
        return self.scopes[-1]

    def leave(self) -> None:
        """Ends the innermost scope. Memory from outside holds again what it held before."""
        scope = self.scopes.pop()
        for storage, before in scope.written.items():
            storage.entry = before
        if self.scopes:
            self.scopes[-1].join(scope)

    def control(self, name: str, inputs: Sequence[NodeEntry], subgraphs: Sequence[Symbol], **attrs: Any) -> Node:
        """A node with subgraphs."""
        self.nodes += 1
        texts = {key: text_of(value) for key, value in attrs.items()}
        return self._inside(Node(Op.get(name), f"{name}{self.nodes}", texts, inputs, subgraphs=subgraphs))

    def node(self, op: Op, params: Any, inputs: Sequence[NodeEntry]) -> NodeEntry:
        made = super().node(op, params, inputs)
        self._inside(made.node)
        return made

    def _inside(self, node: Node) -> Node:
        if self.scopes:
            self.scopes[-1].made.add(node)
        return node

    def made(self, tensor: Tensor) -> None:
        super().made(tensor)
        array = tensor._array
        if isinstance(array, np.ndarray):
            self.births.setdefault(id(owner_of(array)), self.storages)

    def entry_of(self, tensor: Tensor) -> NodeEntry:
        entry = super().entry_of(tensor)
        memory: Any = tensor._array
        if self.scopes and isinstance(memory, StandIn):
            self.scopes[-1].read.add(memory.storage)
        return entry

    def put(self, target: Tensor, result: Tensor) -> None:
        if self.scopes or self.shared:
            memory = self.memory_of(target)
            if memory.storage in self.shared:
                raise Unsupported(
                    "a tensor is written to that may be a part of another one",
                    why="which one follows from values",
                    hint="clone() it first, or write x = x + y in place of x += y",
                )
            self.writes(memory.storage)
        super().put(target, result)

    def share(self, *tensors: Any) -> None:
        """Says that tensors are each other's memory in some runs, and in others not."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self.shared.add(self.memory_of(tensor).storage)

    def memory_of(self, tensor: Tensor) -> StandIn:
        """The stand-in of a tensor, which one of constants has from then on, so that it is known who sees it."""
        memory: Any = tensor._array
        if not isinstance(memory, StandIn):
            if self.is_fresh(memory):
                self._replaced(tensor)
            else:
                self.entry_of(tensor)
            memory = tensor._array
        if not isinstance(memory, StandIn):
            raise Unsupported("a view that was made before may be written to", hint="clone() it first")
        return memory

    def is_outer(self, tensor: Tensor, scope: Scope) -> bool:
        """Whether a tensor was there before a scope."""
        memory: Any = tensor._array
        if isinstance(memory, StandIn):
            return self._birth(memory.storage) < scope.first
        return self.births.get(id(owner_of(memory)), 0) < scope.first

    def _birth(self, storage: Storage) -> int:
        return self.births.get(id(storage.layout), storage.number)

    def writes(self, storage: Storage) -> None:
        """Told before memory is written to."""
        for scope in reversed(self.scopes):
            if self._birth(storage) >= scope.first:
                return
            if scope.states is not None and storage not in scope.states:
                raise Unsupported(
                    "a loop writes to a tensor from outside of it",
                    why="what goes from turn to turn are the variables that the loop assigns to",
                    hint="write x = x + y in place of x.add_(y)",
                )
            scope.written.setdefault(storage, storage.entry)

    def check(self, check: Callable[[Array], None], tensor: Tensor) -> None:
        pass

    def host(self, function: Any, tensors: Sequence[Tensor]) -> Any:
        if tensors and all(isinstance(t._array, np.ndarray) for t in tensors):
            return super().host(function, tensors)
        raise Unsupported(
            "a function that numpy computes a part of is not one graph",
            why="random numbers, and classes of losses, are of that kind",
            hint="trace the part of it that gives the tensors they are computed from",
        )

    def act(self, function: Any, optimizer: Any = None) -> Any:
        raise Unsupported("a function that steps an optimiser is not one graph", hint="weft.compile takes it")


def symbol_of(
    function: Any,
    inputs: Sequence[Tensor],
    names: Sequence[str] = (),
    module: Module | None = None,
    recorder: OneGraph | None = None,
) -> tuple[Symbol, dict[str, Array]]:
    """A function of tensors as a symbol, and the parameters that it reads: those of a module, which the function is or
    calls, by their names there.

    >>> import weft
    >>> symbol, params = symbol_of(weft.nn.Linear(3, 2), [weft.ones(1, 3)], ["x"])
    >>> symbol.list_input_names(), sorted(params)
    (['x', 'weight', 'bias'], ['bias', 'weight'])
    """
    module = function if isinstance(function, Module) else module
    recorder = recorder or OneGraph()
    reached = Reached([function, module])
    called = [*names, *[f"input{n}" for n in range(len(names), len(inputs))]]
    own = {id(p): name for name, p in _named_tensors(module)}
    before = modes.trace
    try:
        for number, tensor in enumerate(inputs):
            recorder.adopt(tensor, number)
        roots = Counter(id(root_of(tensor)) for tensor in reached.tensors.values())
        for tensor in reached.tensors.values():
            if tensor._grad_fn is None and (tensor._base is None or roots[id(root_of(tensor))] == 1):
                recorder.adopt(tensor)
            else:
                recorder.adopt_view(tensor)
        modes.trace = recorder
        outputs: list[Tensor] = []
        with no_grad():
            flattened(function(*inputs), outputs)
        entries = [recorder.entry_of(tensor) for tensor in outputs]
    except GivenUp as why:
        raise Unsupported(f"the function is not one graph: {why}") from None
    finally:
        modes.trace = before
        recorder.restore()
    params: dict[str, Array] = {}
    variables: dict[NodeEntry, NodeEntry] = {}
    for node in topo_order(entries):
        if node.op is not None:
            continue
        name = node.name
        if name in recorder.constants:
            params[name] = recorder.constants[name]
            continue
        number = recorder.inputs[name]
        outside = recorder.rows.get(number)
        if outside is not None and outside.argument is not None:
            name = called[outside.argument]
        else:
            name = own.get(id(outside.tensor), name) if outside is not None else name
            params[name] = recorder.table[number]
        variables[NodeEntry(node)] = NodeEntry(Node(None, name))
    return Symbol(replaced(entries, variables)), params


def _named_tensors(module: Module | None) -> list[tuple[str, Tensor]]:
    return [] if module is None else [*module.named_parameters(), *module.named_buffers()]
