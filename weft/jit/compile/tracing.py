"""A function or module with example inputs as a graph of the core: a Symbol, and the parameters that it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import Unsupported
from ...core.ir import Node, NodeEntry, topo_order
from ...core.symbol import Symbol
from ...eager.autograd.modes import modes, no_grad
from ...eager.tensor.tensor import Tensor, root_of
from ...nn.modules.module import Module
from .guards import Reached
from .plan import Array, Path
from .recorder import GivenUp, Recorder, replaced
from .structure import flattened


class OneGraph(Recorder):
    """A recording that must be one graph: what is only looked at is left out."""

    def __init__(self) -> None:
        super().__init__(True, Path())

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
