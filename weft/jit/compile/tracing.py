"""`weft.jit.trace`: a function or module with example inputs in, something to call out, which knows its graph: a Symbol
with the parameters that it reads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidType, RunError, Unsupported
from ...compiler.model import compile as compile_model
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry, topo_order
from ...core.symbol import Symbol
from ...eager.autograd.modes import modes, no_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.memory import array_of
from ...eager.tensor.tensor import Tensor, root_of
from ...nn.modules.module import Module
from .compiled import Compiled
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


class Traced(Compiled):
    """What `trace` gives: it is called as the function is, and can be had as a graph."""

    def __init__(self, function: Any, inputs: Sequence[Tensor]) -> None:
        module = function if isinstance(function, Module) else None
        super().__init__(function.__call__ if module is not None else function, False, module)
        self.traced, self.example = function, inputs

    @property
    def graph(self) -> Graph:
        """What it does to the example inputs, as operators of the core."""
        return Graph(self.model()[0].outputs)

    def model(self, names: Sequence[str] = ()) -> tuple[Symbol, dict[str, Array]]:
        """The symbol, and the parameters that it reads: what `weft.compile` and exporters take."""
        return symbol_of(self.traced, self.example, names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a program for inputs like the examples, which `weft.runtime.load` runs without Python code."""
        symbol, params = self.model()
        read = set(symbol.list_input_names())
        known = {f"input{n}": array_of(t) for n, t in enumerate(self.example) if f"input{n}" in read}
        shapes = {name: array.shape for name, array in known.items()}
        dtypes = {name: array.dtype for name, array in known.items()}
        compile_model((symbol, params), shape=shapes, dtype=dtypes).save(path)


def trace(
    func: Any,
    example_inputs: Any,
    *,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    **options: Any,
) -> Traced:
    """A function or module as native code, for inputs like the examples and others. Unless `check_trace` is off, its
    results are compared with those of the function, on the examples and on `check_inputs`.

    >>> import weft
    >>> traced = weft.jit.trace(lambda x: (x * 2).relu(), weft.tensor([-1.0, 3.0]))
    >>> traced(weft.tensor([4.0, -5.0]))
    tensor([8., 0.])
    >>> [node.op_name for node in traced.graph.indexed.nodes]
    ['null', 'null', 'broadcast_mul', 'relu']
    """
    unknown = options.keys() - {"optimize", "strict", "example_kwarg_inputs", "check_trace"}
    if unknown:
        raise InvalidType(f"trace() got an unexpected keyword argument {min(unknown)!r}")
    inputs = _tuple(example_inputs)
    made = Traced(func, inputs)
    for given in [inputs, *map(_tuple, check_inputs or ())] if check_trace else []:
        _check(made, func, given, check_tolerance)
    return made


def _tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, Tensor):
        return (inputs,)
    if isinstance(inputs, Mapping) or not isinstance(inputs, (tuple, list)):
        raise InvalidType(f"example inputs are a tensor or a tuple of tensors, not {type(inputs).__name__}")
    return tuple(inputs)


def _check(made: Traced, function: Any, inputs: tuple[Any, ...], tolerance: float) -> None:
    """Raises where the function gives something else for the same inputs: it draws random numbers, or keeps a state."""
    close = FUNCTIONS["weft"]["allclose"]
    found: list[Tensor] = []
    wanted: list[Tensor] = []
    with no_grad():
        flattened(function(*inputs), wanted)
        flattened(made(*inputs), found)
    pairs = list(zip(found, wanted))
    fits = len(found) == len(wanted) and all(one._shape == other._shape for one, other in pairs)
    fits = fits and all(close(one, other, tolerance, tolerance, True) for one, other in pairs)
    if not fits:
        raise RunError(
            "the traced function does not give what the function gives",
            why="it gives something else each time it is called, or depends on more than its inputs",
            hint="call eval() on modules that are random in training, or give check_trace=False",
        )
