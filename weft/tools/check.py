"""`weft check`: what stands in a model's way before it is compiled. All operators that are missing at once, which nodes
become native code, which run in Python, and how much memory a run needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import Error, ModelGaps, Unsupported
from ..base.shape import Dim, is_static
from ..base.shown import Shown, bytes_text, rows, table
from ..compiler.assemble import fused_groups, least_memory
from ..compiler.backends import backend_of
from ..compiler.model import CompiledModel
from ..compiler.parts.cut import is_whole
from ..compiler.prepare import prepare_typed
from ..core.graph import Graph
from ..core.ir import Node
from ..core.op import Op
from ..frontend.deferred import DEFERRED, HOST_STEP, IF_ELSE, LOOP
from ..passes.fuse import has_native_code_for
from .model_files import open_model

SHOWN_NODES = 5
_WAITING = (DEFERRED, HOST_STEP, IF_ELSE, LOOP)


class Gap(NamedTuple):
    """An operator, or a use of one, that weft does not have, and the nodes that ask for it."""

    operator: str
    nodes: list[str]
    why: str = ""


class Memory(NamedTuple):
    """Bytes: of weights as they are packed, and of values between inputs and outputs while it runs."""

    constants: int
    arena: int


@dataclass(frozen=True, repr=False)
class CheckReport(Shown):
    """`ok` if the model can be compiled. `native` and `host` count nodes of the model by operator."""

    file: str
    gaps: list[Gap]
    native: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)
    kernels: int = 0
    memory: Memory | None = None
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.gaps

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **super().to_dict()}

    def text(self, width: int | None = None) -> str:
        if self.gaps:
            count = sum(len(gap.nodes) for gap in self.gaps)
            cells = [(gap.operator, len(gap.nodes), _some(gap.nodes), gap.why) for gap in self.gaps]
            head = f"{self.file}: {len(self.gaps)} gaps in {count} nodes"
            return f"{head}\n{table(('operator', 'nodes', 'where', 'why'), cells, width)}"
        pairs: list[tuple[str, object]] = [
            ("model", f"{self.file}: all of it is supported"),
            *[("taken", f"{name} as {dims}; --shape tells others") for name, dims in self.taken.items()],
            ("native", f"{sum(self.native.values())} nodes, in about {self.kernels} kernels: {_counts(self.native)}"),
            ("in Python", f"{sum(self.host.values())} nodes" + (f": {_counts(self.host)}" if self.host else "")),
        ]
        if self.memory is not None:
            total = self.memory.constants + self.memory.arena
            parts = f"weights {bytes_text(self.memory.constants)}, values {bytes_text(self.memory.arena)}"
            pairs.append(("memory", f"about {bytes_text(total)}: {parts}"))
        return rows(pairs)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_NODES} more" if len(names) > SHOWN_NODES else ""
    return ", ".join(names[:SHOWN_NODES]) + more


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in counts.items())


def check_model(
    model: Any, *, shape: Mapping[str, Sequence[Dim]] | None = None, params: Path | str | None = None
) -> CheckReport:
    """What stands in the way of compiling a model: a file, or whatever `weft.compile` takes.

    >>> import weft
    >>> found = check_model(weft.symbol.relu(weft.symbol.Variable("x", shape=(2, 8))))
    >>> found.ok, found.native, found.host
    (True, {'relu': 1}, {})
    """
    name = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
    try:
        source, taken, _ = open_model(model, shape, params)
    except ModelGaps as error:
        return CheckReport(name, _gaps(error))
    except Unsupported as error:
        if error.where is None:
            raise  # it is about the file, not about a node of it
        return CheckReport(name, [Gap(error.what, [error.where], error.why or "")])
    graph = source.graph
    nodes = [node for node in graph.indexed.nodes if node.op is not None]
    native = Counter(node.op_name for node in nodes if _is_native(source, graph, node))
    host = Counter(_host_name(node) for node in nodes if not _is_native(source, graph, node))
    planned = _planned(source)
    kernels = sum(native.values()) if planned is None else planned.kernels
    memory = None if planned is None else planned.memory
    return CheckReport(name, [], dict(native.most_common()), dict(host.most_common()), kernels, memory, taken)


def _gaps(error: ModelGaps) -> list[Gap]:
    missing = [Gap(name, nodes, "no such operator") for name, nodes in sorted(error.operators.items())]
    return missing + [Gap(what, [where]) for where, what in error.uses]


def _is_native(model: CompiledModel, graph: Graph, node: Node) -> bool:
    if node.op in _WAITING:
        return node.op is DEFERRED  # it is converted when its shapes are known
    assert node.op is not None
    lowering = backend_of(model.source.target).lowering
    becomes_others = node.op not in Op.compute and not lowering.has_body(node) and node.op.alias_of(node.params)
    return bool(becomes_others) or (lowering.has_body(node) and has_native_code_for(graph, node))


def _host_name(node: Node) -> str:
    """The operator of a step on the host as its importer calls it."""
    return str(getattr(node.params, "operator", "") or node.op_name)


class _Plan(NamedTuple):
    kernels: int
    memory: Memory


def _planned(model: CompiledModel) -> _Plan | None:
    """What the passes make of a model whose shapes are all known and which is one part; None of others."""
    graph, source = model.graph, model.source
    specs_known = all(is_static(spec.shape) and spec.dtype is not None for spec in model.inputs)
    if not specs_known or not is_whole(graph):
        return None
    try:
        prepared = prepare_typed(graph, source.params, source.opt_level, source.target, source.passes)
        groups = fused_groups(prepared.graph, source.target, source.opt_level >= 1)
        arena = least_memory(prepared.graph, groups, prepared.constants, source.target)
    except Error:
        return None  # compiling it says what is wrong, and where
    constants = sum(value.nbytes for value in prepared.constants.values())
    return _Plan(len(groups), Memory(constants, arena))


def planned_memory(model: CompiledModel) -> Memory | None:
    """The least memory of a run, where it can be told without compiling."""
    planned = _planned(model)
    return None if planned is None else planned.memory
