"""A function or module with example inputs as a graph of the core: a Symbol, and the parameters that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import Unsupported
from ...core.ir import Node, NodeEntry, topo_order
from ...core.symbol import Symbol
from ...eager.autograd.modes import modes, no_grad
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from .guards import Reached
from .plan import Array, Path
from .recorder import GivenUp, Recorder, replaced
from .structure import flattened


class _OneGraph(Recorder):
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

    def act(self, function: Any) -> Any:
        raise Unsupported("a function that steps an optimiser is not one graph", hint="weft.compile takes it")


def symbol_of(function: Any, inputs: Sequence[Tensor], names: Sequence[str] = ()) -> tuple[Symbol, dict[str, Array]]:
    """A function of tensors as a symbol, and the parameters that it reads: those of a module by their names there.

    >>> import weft
    >>> symbol, params = symbol_of(weft.nn.Linear(3, 2), [weft.ones(1, 3)], ["x"])
    >>> symbol.list_input_names(), sorted(params)
    (['x', 'weight', 'bias'], ['bias', 'weight'])
    """
    module = function if isinstance(function, Module) else None
    recorder = _OneGraph()
    reached = Reached([function])
    called = [*names, *[f"input{n}" for n in range(len(names), len(inputs))]]
    own = {id(p): name for name, p in _named_tensors(module)}
    before = modes.trace
    try:
        for number, tensor in enumerate(inputs):
            recorder.adopt(tensor, number)
        for tensor in reached.tensors.values():
            if tensor._base is None and tensor._grad_fn is None:
                recorder.adopt(tensor)
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
