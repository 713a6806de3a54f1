"""The reference interpreter: runs a graph by each operator's numpy reference. Slow and right:
what compiled code is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..base.errors import Error, InvalidType, NotFound, OutOfMemory, RunError
from .graph import Graph
from .ir import Mutations, Node, NodeEntry, mutation_deps, topo_order
from .op import Op
from .symbol import Symbol

Array = np.ndarray[Any, np.dtype[Any]]


def evaluate(target: Symbol | Graph, inputs: Mapping[str, Any]) -> list[Array]:
    """The values of the outputs, given one array for each variable by name.

    A variable's entry has the value of the version it names; `final_values` gives what variables
    hold at the end.
    """
    return _Run(target.outputs, inputs).results()


def evaluate_spending(
    target: Graph, inputs: MutableMapping[str, Any], spent: Collection[str], keep: Callable[[Array], Array]
) -> list[Array]:
    """What `keep` makes of the same as soon as they are computed, for a graph that mutates nothing; inputs that are
    `spent` are taken out when nothing more reads them."""
    return _Spending(target.outputs, inputs, spent, keep).results()


def final_values(target: Symbol | Graph, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """What every variable that the graph mutates holds after a run."""
    run = _Run(target.outputs, inputs)
    run.results()
    last: dict[str, tuple[int, Array]] = {}
    for (node, _, version), value in run.values.items():
        if node.op is None and version >= last.get(node.name, (1, value))[0]:
            last[node.name] = (version, value)
    return {name: value for name, (_, value) in last.items()}


class _Run:
    def __init__(self, outputs: Sequence[NodeEntry], inputs: Mapping[str, Any]) -> None:
        self.outputs = outputs
        self.inputs = inputs
        self.values: dict[NodeEntry, Array] = {}
        nodes = topo_order(outputs)
        self.mutations = Mutations(nodes)
        self.order = topo_order(outputs, mutation_deps(nodes))
        self.uses: dict[NodeEntry, int] = {}
        for entry in [*outputs, *(entry for node in nodes for entry in node.inputs)]:
            self.uses[entry] = self.uses.get(entry, 0) + 1

    def results(self) -> list[Array]:
        for node in self.order:
            if node.op is None:
                self.values[NodeEntry(node)] = self._input(node)
            else:
                self._step(node, node.op)
        return [self._read(entry, False) for entry in self.outputs]

    def _input(self, node: Node) -> Array:
        if node.name not in self.inputs:
            raise NotFound(
                f"no value for input {node.name!r}", why="given: " + (", ".join(sorted(self.inputs)) or "none")
            )
        return np.asarray(self.inputs[node.name])

    def _step(self, node: Node, op: Op) -> None:
        mutated = op.mutates_of(node.params)
        args = [self._read(entry, i in mutated) for i, entry in enumerate(node.inputs)]
        try:
            results = run_reference(op, node.params, args, node.subgraphs)
        except Error as error:
            error.at(f"node {node.name!r}")
            raise
        except Exception as error:
            raise RunError(
                f"the reference of operator {op.name} failed",
                where=f"node {node.name!r}",
                why=f"{type(error).__name__}: {error}",
            ) from error
        count = node.num_outputs
        if len(results) not in (count, count + len(mutated)):
            raise RunError(
                f"the reference of operator {op.name} gave {len(results)} values",
                where=f"node {node.name!r}",
                why=f"it has {count} outputs and mutates {len(mutated)} inputs",
            )
        for index, value in enumerate(results[:count]):
            self.values[NodeEntry(node, index)] = value
        news = results[count:] or [args[index] for index in mutated]
        for index, value in zip(mutated, news):
            self.values[node.inputs[index]] = value
        self._release(node, mutated)

    def _read(self, entry: NodeEntry, mutated: bool) -> Array:
        node, index, version = entry
        if node.op is None:
            version = self.mutations.made_version(node, version - mutated)
        return self.values[NodeEntry(node, index, version)]

    def _release(self, node: Node, mutated: Sequence[int]) -> None:
        """Forgets values nobody will read again."""
        for index, entry in enumerate(node.inputs):
            self.uses[entry] -= 1
            if not self.uses[entry] and entry.node.op is not None and index not in mutated:
                del self.values[entry]


class _Spending(_Run):
    """A run of a graph that mutates nothing."""

    def __init__(
        self,
        outputs: Sequence[NodeEntry],
        inputs: MutableMapping[str, Any],
        spent: Collection[str],
        keep: Callable[[Array], Array],
    ) -> None:
        super().__init__(outputs, inputs)
        self._left, self._keep, self._kept = inputs, keep, set(outputs)
        nodes = Counter(node.name for node in self.order if node.op is None)
        self._spent = {name for name in spent if nodes[name] == 1}  # others might be read again

    def _release(self, node: Node, mutated: Sequence[int]) -> None:
        super()._release(node, mutated)
        for entry in (NodeEntry(node, index) for index in range(node.num_outputs)):
            if entry in self._kept:
                self.values[entry] = self._keep(self.values[entry])
        for entry in node.inputs:
            if not self.uses[entry] and entry.node.op is None:
                self.values.pop(entry, None)
                if entry.node.name in self._spent:
                    self._left.pop(entry.node.name, None)


def run_reference(op: Op, params: Any, args: Sequence[Array], subgraphs: Sequence[Symbol] = ()) -> list[Array]:
    """The outputs of one operator on arrays, by its reference."""
    rule = Op.reference.get(op)
    if rule is None:
        raise InvalidType(f"operator {op.name} has no reference", hint=f"set {op.name}.reference = f(*arrays)")
    extra = {"subgraphs": subgraphs} if subgraphs else {}
    try:
        results = rule(params, *args, **extra) if op.parser is not None else rule(*args, **extra)
    except OutOfMemory:
        raise
    except MemoryError as error:
        raise OutOfMemory(f"there is not enough memory for operator {op.name}", why=str(error)) from None
    if not isinstance(results, (tuple, list)):
        results = (results,)
    return [np.asarray(value) for value in results]


def input_facts(arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, DType]]:
    """Shapes and dtypes of named arrays, as `infer` takes them."""
    made = {name: np.asarray(value) for name, value in arrays.items()}
    return {n: a.shape for n, a in made.items()}, {n: a.dtype for n, a in made.items()}
