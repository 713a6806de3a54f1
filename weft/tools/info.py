"""`weft info`: what a model is made of, layer by layer; without a model, what weft finds on this machine."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from ..base.cpu_target import host
from ..base.file_cache import cache_folder
from ..base.shape import Dim, is_static, show_dims
from ..base.shown import Shown, bytes_text, count_text, rows, table
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import list_ops
from ..runtime.artifact import LoadedModel, load
from ..runtime.cpu.pool import thread_count
from ..version import __version__
from .check import planned_memory
from .flops import node_flops
from .model_files import Opened, kind_of, open_model
from .scripts import likely_script_shapes, load_script


@dataclass(frozen=True, repr=False)
class MachineInfo(Shown):
    """Versions, the target, threads and the cache, as rows."""

    about: dict[str, str]

    def text(self, width: int | None = None) -> str:
        return rows(list(self.about.items()))

    def to_dict(self) -> dict[str, Any]:
        return dict(self.about)


def machine_info() -> MachineInfo:
    """What weft finds on this machine.

    >>> "threads" in machine_info().to_dict()
    True
    """
    target = host()
    kibibytes = [f"{size // 1024} kB" for size in target.caches]
    return MachineInfo(
        {
            "weft": __version__,
            "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
            "numpy": np.__version__,
            "llvm": f"{'.'.join(map(str, llvm.llvm_version_info))} (llvmlite {llvmlite.__version__})",
            "target": f"{target.cpu}, {target.isa}, {target.vector_bits}-bit vectors",
            "caches": ", ".join(kibibytes),
            "threads": f"{thread_count()} of {target.cores} cores",
            "operators": str(len(list_ops())),
            "kernel cache": str(cache_folder() or "off"),
        }
    )


class Layer(NamedTuple):
    """A node of the model. `flops` is None where the operator does not tell."""

    name: str
    operator: str
    output: str
    parameters: int
    flops: int | None
    bytes: int


@dataclass(frozen=True, repr=False)
class ModelInfo(Shown):
    """A model in numbers. Of programs that are compiled already, kernels stand in place of layers."""

    file: str
    kind: str
    inputs: list[str]
    outputs: list[str]
    operators: dict[str, int]
    parameters: int
    parameter_bytes: int
    flops: int | None  # None if it cannot be told
    arena_bytes: int | None  # the least for values between inputs and outputs; None if it cannot be told
    layers: list[Layer]
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def text(self, width: int | None = None) -> str:
        arena = "-" if self.arena_bytes is None else bytes_text(self.arena_bytes)
        pairs: list[tuple[str, object]] = [
            ("model", f"{self.file} ({self.kind})"),
            *[("input", text) for text in self.inputs],
            *[("output", text) for text in self.outputs],
            *[("taken", f"{name} as {dims}; --shape tells others") for name, dims in self.taken.items()],
            *[("about", f"{key}: {value}") for key, value in _told(self.metadata)],
            ("parameters", f"{count_text(self.parameters)} ({bytes_text(self.parameter_bytes)})"),
            *([] if self.flops is None else [("work", f"{count_text(self.flops)}FLOP a run")]),
            *([] if self.arena_bytes is None else [("memory", f"{arena} for values between inputs and outputs")]),
            ("operators", ", ".join(f"{name} x{count}" for name, count in self.operators.items())),
        ]
        cells = [
            (
                layer.name,
                layer.operator,
                layer.output,
                count_text(layer.parameters),
                "-" if layer.flops is None else count_text(layer.flops),
                bytes_text(layer.bytes),
            )
            for layer in self.layers
        ]
        made = table(("layer", "operator", "output", "parameters", "FLOP", "bytes"), cells, width)
        return rows(pairs) + ("\n\n" + made if cells else "")


def _told(metadata: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What the file says of itself, without what it leaves empty."""
    return [(key, value) for key, value in metadata.items() if value not in ("", None, {}, [], 0)]


def model_info(
    model: Any, *, shape: Mapping[str, Sequence[Dim]] | None = None, params: Path | str | None = None
) -> ModelInfo:
    """What a model is made of: a file, or whatever `weft.compile` takes.

    >>> import weft
    >>> y = weft.symbol.dense(weft.symbol.Variable("x", shape=(2, 8)), units=4, use_bias=False, name="fc")
    >>> found = model_info((y, {"fc_weight": np.zeros((4, 8), "float32")}))
    >>> found.parameters, found.flops, found.operators
    (32, 128, {'dense': 1})
    """
    name = model.name if isinstance(model, Path) else str(model) if isinstance(model, str) else type(model).__name__
    kind = kind_of(model)
    if kind == "compiled program":
        return _program_info(name, kind, load(model))
    if kind == "TorchScript archive" and not shape and not likely_script_shapes(Path(model), {}, {}):
        return _script_info(name, kind, model)
    return _graph_info(name, kind, open_model(model, shape, params))


def _graph_info(name: str, kind: str, found: Opened) -> ModelInfo:
    model, taken, read = found
    graph, values = model.graph, model.source.params
    layers = [_layer(graph, node, values) for node in graph.indexed.nodes if node.op is not None]
    variables = {graph.indexed.nodes[number].name for number in graph.indexed.variables}
    used = {key: value for key, value in values.items() if key in variables}
    memory = planned_memory(model)
    outputs = zip(read.outputs, (read.graph.fact(entry) for entry in read.graph.outputs))
    return ModelInfo(
        name,
        kind,
        [str(spec) for spec in read.inputs],
        [f"{key}: {_shown(fact)}" for key, fact in outputs],
        dict(Counter(layer.operator for layer in layers).most_common()),
        sum(value.size for value in used.values()),
        sum(value.nbytes for value in used.values()),
        sum(layer.flops or 0 for layer in layers),
        None if memory is None else memory.arena,
        layers,
        taken,
        model.metadata,
    )


def _layer(graph: Graph, node: Node, params: Mapping[str, Any]) -> Layer:
    facts = [graph.fact(NodeEntry(node, index)) for index in range(node.num_outputs)]
    own = {entry.node.name for entry in node.inputs if entry.node.op is None}
    return Layer(
        node.name,
        node.op_name,
        _shown(facts[0]),
        sum(params[key].size for key in own if key in params),
        node_flops(graph, node),
        sum(_bytes(fact) for fact in facts),
    )


def _shown(fact: Fact) -> str:
    return f"{fact.dtype}[{show_dims(fact.shape)}]"


def _bytes(fact: Fact) -> int:
    return prod(fact.shape) * fact.dtype.itemsize if is_static(fact.shape) and fact.dtype is not None else 0


def _program_info(name: str, kind: str, model: LoadedModel) -> ModelInfo:
    report = model.report()
    kernels = model.program.kernels
    return ModelInfo(
        name,
        kind,
        [str(spec) for spec in model.inputs],
        [str(spec) for spec in model.program.outputs],
        dict(Counter(operator for kernel in kernels for operator in kernel.operators).most_common()),
        sum(array.size for array in model.program.constants),
        report.constant_bytes,
        None,
        report.arena_bytes or None,
        [],
        metadata={"target": model.program.target, "kernels": len(kernels), "code": bytes_text(report.code_bytes)},
    )


def _script_info(name: str, kind: str, path: Any) -> ModelInfo:
    module = load_script(path)
    values = {key: value.numpy() for key, value in module.state_dict().items()}
    graph = module.inlined_graph
    arguments = [str(argument) for argument in module.forward.schema.arguments[1:]]
    pending, nodes = list(graph.nodes()), []
    while pending:
        node = pending.pop()
        pending += [inner for block in node.blocks() for inner in block.nodes()]
        nodes += [node.kind()] if node.kind().startswith("aten::") else []
    return ModelInfo(
        name,
        kind,
        arguments,
        [str(result.type) for result in module.forward.schema.returns],
        dict(Counter(nodes).most_common()),
        sum(value.size for value in values.values()),
        sum(value.nbytes for value in values.values()),
        None,
        None,
        [],
        metadata={"note": "an archive tells no shapes; with --shape, what each layer does is shown"},
    )
