"""`weft compare`: the compiled program of a model is walked group by group, by its own kernels, and each value is held
against two references that compute along: the graph that the passes made, which tells what the kernels should have
given, and the model itself, which tells what the passes should have kept."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..base.errors import Error, InvalidValue
from ..base.shown import Shown, table
from ..compiler.model import CompiledModel
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..runtime.program import Array
from .differences import Difference, difference_of
from .inputs import complete_inputs
from .model_files import Shapes, arrays_of, model_as_read
from .onnx_values import OrtValues
from .progress import Stages
from .values import (
    CallSizes,
    Compilation,
    KeptValues,
    Reference,
    Walked,
    group_reference,
    plain_forms,
    visit_programs,
    walked,
)

TOLERANCE = 1e-3  # of the largest magnitude of a value, in float32
OWN_PART = 0.1  # of it may be a single kernel's
EXACT = 1e-4  # between two graphs that mean the same: what passes computed from weights is rounded to their types
REFERENCES = ("fp64", "fp32", "reference", "ort")
SHOWN = 30  # layers of the text
MOST_CANDIDATES = 8  # nodes of the model that a value is held against


@dataclass(frozen=True)
class Layer:
    """A group of operators of the compiled program, and how far its value is from the reference. `counterpart` is the
    node of the model whose value it is, None where the passes left nothing that is equal to one; it is then compared
    with its own operators. `own` is what its kernels add, asked for where values differ."""

    number: int
    name: str
    kernels: tuple[str, ...]
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    output: str
    counterpart: str | None
    difference: Difference
    own: float | None
    differs: bool


class OutputDifference(NamedTuple):
    """An output of the model: that of the compiled program, and that of the graph which the passes made, against the
    model's own."""

    name: str
    difference: Difference
    by_passes: float


class Blame(NamedTuple):
    """What makes a model differ: a `kernel`, a `pass`, or `rounding` that grows; its name; nodes of the model."""

    kind: str
    name: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f", at {', '.join(self.nodes)}" if self.nodes else "")


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """All layers in order; the `first` that differs, and what is to blame."""

    file: str
    reference: str
    tolerance: float
    layers: list[Layer]
    outputs: list[OutputDifference]
    blame: Blame | None
    largest_bytes: int  # that references kept at once

    @property
    def first(self) -> Layer | None:
        """The first layer that differs beyond the tolerance."""
        return next((layer for layer in self.layers if layer.differs), None)

    @property
    def ok(self) -> bool:
        return self.blame is None

    def to_dict(self) -> dict[str, Any]:
        made = super().to_dict()
        first = self.first
        return {"ok": self.ok, **made, "first": None if first is None else first.number}

    def text(self, width: int | None = None) -> str:
        cells = [_cells(layer) for layer in self._shown()]
        made = table(("layer", "kernel", "max abs", "relative", "ulp", "1 - cosine", "own", ""), cells, width)
        hidden = len(self.layers) - len(cells)
        more = f"\n... {hidden} more layers, which differ less" if hidden else ""
        return f"{made}{more}\n{self._verdict()}"

    def _shown(self) -> list[Layer]:
        """Of many layers those that differ most, and the first that does, in order."""
        if len(self.layers) <= SHOWN:
            return self.layers
        first = self.first
        worst = sorted(self.layers, key=lambda layer: (layer is not first, -layer.difference.relative))[:SHOWN]
        return sorted(worst, key=lambda layer: layer.number)

    def _verdict(self) -> str:
        worst = max((output.difference.relative for output in self.outputs), default=0.0)
        told = f"{self.file} against {self.reference}: outputs differ by {worst:.2g} of their largest magnitude"
        if self.blame is None:
            return f"{told}, within {self.tolerance:g}"
        first = self.first
        where = "" if first is None else f"\nfirst beyond {self.tolerance:g}: {first.name}"
        if first is not None and first.difference.first_nan is not None:
            where += f", with the first number that is not finite at {first.difference.first_nan}"
        return f"{told}{where}\nto blame: {self.blame}"


def _cells(layer: Layer) -> tuple[str, ...]:
    found = layer.difference
    return (
        layer.name,
        ", ".join(layer.kernels) or "(a view)",
        f"{found.max_abs:.2e}",
        f"{found.relative:.2e}",
        f"{found.ulp:.3g}",
        f"{max(1 - found.cosine, 0.0):.1e}",
        "" if layer.own is None else f"{layer.own:.1e}",
        "DIFFERS" if layer.differs else "" if layer.counterpart else "by its operators",
    )


class SourceValues(Protocol):
    """Values of the model's own nodes, by entry; None of those that cannot be had."""

    def value(self, entry: NodeEntry) -> Array | None: ...

    def release(self, entry: NodeEntry) -> None: ...


def compare_model(
    model: Any,
    other: Any = None,
    inputs: Mapping[str, Any] | None = None,
    *,
    ref: str = "fp64",
    tolerance: float = TOLERANCE,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    threads: int | None = None,
    precision: str = "fp32",
    opt_level: int = 3,
    seed: int = 0,
    stages: Stages | None = None,
) -> Comparison:
    """Where the values of a compiled model differ from those of a reference: `fp64`, each operator's reference in
    double precision; `reference`, the same in the model's own types; `fp32`, the same model compiled in float32, which
    tells what another precision costs; `ort`, ONNX Runtime, of an ONNX file; or from those of an `other` model: its
    outputs, and layers that have the same names.

    >>> import weft
    >>> found = compare_model(weft.symbol.tanh(weft.symbol.Variable("x", shape=(2, 8)), name="y"))
    >>> found.ok, [layer.name for layer in found.layers]
    (True, ['y'])
    """
    if ref not in REFERENCES:
        raise InvalidValue(f"reference {ref!r}", why="there are " + ", ".join(REFERENCES))
    stages = stages or Stages()
    source, feed = model_and_inputs(model, inputs, shape, params, threads, opt_level, seed, stages, precision)
    with ExitStack() as stack:
        beside: SourceValues | None = None
        if other is not None or ref == "fp32":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weft-compare-")))
            second, weights = (model, params) if other is None else (other, None)
            beside = _other_values(second, weights, feed, shape, threads, opt_level, folder)
            ref = ref if other is None else _title(other)
        elif ref == "ort":
            beside = OrtValues(Path(model), feed)
        parts: list[Comparison] = []

        def visit(found: Compilation, arrays: Mapping[str, Array]) -> None:
            stages.begin("compare")
            parts.append(compared(_title(model), found, arrays, ref, beside, tolerance, threads, stages))

        visit_programs(source, feed, visit, stages.progress)
        return joined(parts, _title(model), ref, tolerance)


def _title(model: Any) -> str:
    return Path(model).name if isinstance(model, (str, Path)) else type(model).__name__


def model_and_inputs(
    model: Any,
    inputs: Mapping[str, Any] | None,
    shape: Shapes | None,
    params: Path | str | None,
    threads: int | None,
    opt_level: int,
    seed: int,
    stages: Stages,
    precision: str = "fp32",
) -> tuple[CompiledModel, dict[str, Array]]:
    """A model as `weft.compile` gives it, open where its shapes are and none are given, and arrays for all of its
    inputs: of likely sizes where nothing tells them."""
    stages.begin("compile")
    arrays = arrays_of(model, inputs or {}, shape or {}, params)
    how: dict[str, Any] = {"threads": threads, "opt_level": opt_level, "precision": precision}
    source = model_as_read(model, shape, params, arrays, **how)
    return source, complete_inputs(source.inputs, arrays, shape, seed)


def joined(parts: Sequence[Comparison], name: str, ref: str, tolerance: float) -> Comparison:
    """The programs of a model as one: what is to blame is what the first that differs tells."""
    layers: list[Layer] = []
    for part in parts:
        layers += [replace(layer, number=len(layers) + number) for number, layer in enumerate(part.layers)]
    outputs = [output for part in parts for output in part.outputs]
    blame = next((part.blame for part in parts if part.blame is not None), None)
    largest = max((part.largest_bytes for part in parts), default=0)
    return Comparison(name, ref, tolerance, layers, outputs, blame, largest)


def compared(
    name: str,
    found: Compilation,
    feed: Mapping[str, Array],
    ref: str,
    beside: SourceValues | None,
    tolerance: float,
    threads: int | None,
    stages: Stages,
) -> Comparison:
    """Walks through a compiled model and holds it against a reference."""
    walk = _Walk(found, feed, beside, ref, tolerance)
    layers: list[Layer] = []
    assert found.assembled is not None
    total = len(found.assembled.groups)
    for done in walked(found, feed, threads):
        layers += walk.layers(done)
        stages.progress(done.number + 1, total)
    outputs = walk.outputs()
    blame = walk.blame(layers, outputs)
    if blame is None:  # what is called as a node of another model may still be something else
        layers = [replace(layer, differs=False) for layer in layers]
    return Comparison(name, ref, tolerance, layers, outputs, blame, walk.largest)


class _Walk:
    """Holds each value of the program against the references."""

    def __init__(
        self, found: Compilation, feed: Mapping[str, Array], beside: SourceValues | None, ref: str, tolerance: float
    ) -> None:
        assert found.assembled is not None
        self.found, self.feed, self.tolerance, self.ref = found, feed, tolerance, ref
        double = ref != "reference"
        self.graph = found.assembled.graph
        groups = [steps.group for steps in found.assembled.groups]
        given = [entry for group in groups for entry in group.outputs]
        outputs = [entry._replace(version=0) for entry in self.graph.outputs]
        self.candidates = _candidates(found, given)
        own = Counter([*given, *outputs])
        theirs = Counter([entry for entries in self.candidates.values() for entry in entries])
        theirs.update(found.graph.outputs)
        values = {**found.params, **feed}
        constants = {**found.assembled.constants, **feed}
        self.passed = Reference(self.graph, constants, own, found.sizes, double)
        self.model: SourceValues = beside or Reference(found.graph, values, theirs, found.sizes, double)
        self.exact = beside is None
        self.last: dict[NodeEntry, Array] = {}  # values that are outputs, as the program gave them
        self.kept = set(outputs)

    @property
    def largest(self) -> int:
        parts = [self.passed, self.model]
        return sum(part.largest for part in parts if isinstance(part, Reference))

    def layers(self, done: Walked) -> list[Layer]:
        """The values that a group has just given."""
        made = []
        for entry in done.group.outputs:
            value = done.read(entry)
            if entry in self.kept:
                self.last[entry] = np.array(value)
            should = self.passed.value(entry)
            counterpart, wanted = self._counterpart(entry, value, should)
            by_kernels = difference_of(value, should)
            difference = by_kernels if wanted is None else difference_of(*wanted)
            differs = by_kernels.beyond(self.tolerance)
            own = self._own(done, entry) if differs else None
            differs = differs or difference.beyond(self.tolerance)
            made.append(self._layer(done, entry, counterpart, difference, own, differs))
            self.passed.release(entry)
        return made

    def _layer(
        self, done: Walked, entry: NodeEntry, counterpart: Node | None, found: Difference, own: float | None, off: bool
    ) -> Layer:
        nodes = dict.fromkeys(source for node in done.group.nodes for source in self.found.sources(node))
        name = counterpart.name if counterpart is not None else self.found.sources(entry.node)[-1].name
        fact = self.graph.fact(entry)
        return Layer(
            done.number,
            name,
            tuple(kernel.name for kernel in done.kernels),
            tuple(node.op_name for node in done.group.nodes),
            tuple(node.name for node in nodes),
            f"{fact.dtype}{list(self.found.sizes.shape(fact))}",
            None if counterpart is None else counterpart.name,
            found,
            own,
            off,
        )

    def _own(self, done: Walked, entry: NodeEntry) -> float | None:
        """What the kernels of a group add to what they were given."""
        try:
            wanted = group_reference(done.group, done.read, self.found.sizes).get(entry)
        except Error:
            return None
        return None if wanted is None else difference_of(done.read(entry), wanted).relative

    def _counterpart(
        self, entry: NodeEntry, value: Array, should: Array
    ) -> tuple[Node | None, tuple[Array, Array] | None]:
        """The node of the model that an entry is the value of, and the two as arrays of one shape. Equality of the
        references decides it, so that rounding in kernels does not."""
        best: tuple[float, Node, tuple[Array, Array]] | None = None
        for source in self.candidates[entry]:
            theirs = self.model.value(source)
            if theirs is not None:
                forms = zip(plain_forms(should, theirs.shape), plain_forms(value, theirs.shape))
                for form, mine in forms:
                    apart = difference_of(form, theirs).relative
                    if best is None or apart < best[0]:
                        best = (apart, source.node, (np.array(mine), theirs))
            self.model.release(source)
        limit = min(EXACT, self.tolerance) if self.exact else float("inf")  # names alone tell of another model
        return (best[1], best[2]) if best is not None and best[0] <= limit else (None, None)

    def outputs(self) -> list[OutputDifference]:
        """The outputs of the program and of the graph that the passes made, against the model's."""
        made = []
        for entry, theirs in zip(self.graph.outputs, self.found.graph.outputs):
            place = entry._replace(version=0)
            should = self.passed.value(place)
            mine = self.last.get(place, should)
            wanted = self.model.value(theirs)
            if wanted is None:
                wanted = should
            difference, by_passes = difference_of(mine, wanted), difference_of(should, wanted).relative
            made.append(OutputDifference(theirs.node.output_name(theirs.index), difference, by_passes))
        return made

    def blame(self, layers: Sequence[Layer], outputs: Sequence[OutputDifference]) -> Blame | None:
        """What makes the model differ: a kernel that adds more than its part, a pass that changed what is computed, or
        rounding alone."""
        wrong = [layer for layer in layers if layer.differs]
        for layer in wrong:
            if layer.own is not None and layer.own > OWN_PART * self.tolerance:
                return Blame("kernel", ", ".join(layer.kernels) or layer.operators[0], layer.sources)
        if any(not output.by_passes <= self.tolerance for output in outputs):
            name = blamed_pass(self.found, self.feed, self.tolerance)
            if name is None:
                return Blame(
                    "model", f"that computes something else than {self.ref}", wrong[0].sources if wrong else ()
                )
            return Blame("pass", name, _lost(layers))
        if any(output.difference.beyond(self.tolerance) for output in outputs):
            return Blame("rounding", "that grows from layer to layer", wrong[0].sources if wrong else ())
        return None


def _candidates(found: Compilation, given: Sequence[NodeEntry]) -> dict[NodeEntry, list[NodeEntry]]:
    """For each entry of the compiled graph, entries of the model that it may be the value of: those of the nodes that
    it came from, and of nodes behind them that passes took into it."""
    readers: dict[Node, list[Node]] = {}
    for node in found.graph.indexed.nodes:
        for entry in node.inputs:
            readers.setdefault(entry.node, []).append(node)
    alive = {source for entry in given for source in found.sources(entry.node)}
    made = {}
    for entry in given:
        nodes = [node for node in found.sources(entry.node) if node in found.graph.indexed.node_id]
        follower = nodes[-1] if nodes else None
        while follower is not None and len(nodes) < MOST_CANDIDATES:
            behind = [node for node in readers.get(follower, ()) if node not in alive]
            follower = behind[0] if len(behind) == 1 and behind[0] not in nodes else None
            nodes += [follower] if follower is not None else []
        indices = [entry.index if entry.index < node.num_outputs else 0 for node in nodes]
        made[entry] = [NodeEntry(node, index) for node, index in zip(nodes, indices) if node.op is not None]
    return made


def _lost(layers: Sequence[Layer]) -> tuple[str, ...]:
    """The nodes of the first layer from which on no value is one of the model's."""
    kept = [position for position, layer in enumerate(layers) if layer.counterpart is not None]
    behind = layers[kept[-1] + 1 :] if kept else layers
    return behind[0].sources if behind else ()


# Which pass


def blamed_pass(found: Compilation, feed: Mapping[str, Array], tolerance: float) -> str | None:
    """The first pass after which the graph gives other outputs than the model, by references."""
    wanted = graph_outputs(found.graph, {**found.params, **feed}, found.sizes)
    for run in found.passes:
        if run.after is run.before:
            continue
        values = graph_outputs(run.after, {**run.constants, **feed}, found.sizes)
        for value, right in zip(values, wanted):
            forms = plain_forms(value, right.shape)  # between two passes outputs may be stored by blocks
            if not any(difference_of(form, right).relative <= tolerance for form in forms):
                return run.name
    return None


def graph_outputs(graph: Graph, values: Mapping[str, Array], sizes: CallSizes) -> list[Array]:
    """The outputs of a graph by references in double precision."""
    reference = Reference(graph, values, Counter(graph.outputs), sizes)
    return [reference.value(entry) for entry in graph.outputs]


# Another model


class _OtherModel:
    """Values that another compiled model gave, by the names of its nodes and outputs."""

    def __init__(self, kept: KeptValues, outputs: Mapping[str, Array]) -> None:
        self._kept, self._outputs = kept, outputs

    def value(self, entry: NodeEntry) -> Array | None:
        named = self._outputs.get(entry.node.output_name(entry.index))
        return named if named is not None else self._kept.value(f"{entry.node.name}:{entry.index}")

    def release(self, entry: NodeEntry) -> None:
        """Files are removed together."""


def _other_values(
    other: Any,
    params: Path | str | None,
    feed: Mapping[str, Array],
    shape: Shapes | None,
    threads: int | None,
    opt_level: int,
    folder: Path,
) -> SourceValues:
    source = model_as_read(other, shape, params, feed, threads=threads, opt_level=opt_level)
    missing = [spec.name for spec in source.inputs if spec.name not in feed]
    if missing:
        raise InvalidValue(
            f"the models have different inputs: {', '.join(missing)}", why="values of one are given to both"
        )
    kept = KeptValues(folder)

    def keep(found: Compilation, arrays: Mapping[str, Array]) -> None:
        for done in walked(found, arrays, threads):
            for entry in done.group.outputs:
                origin = found.sources(entry.node)[-1]
                fact = found.graph.fact(NodeEntry(origin)) if origin in found.graph.indexed.node_id else None
                shape = None if fact is None or fact.shape is None else found.sizes.shape(fact)
                forms = [] if shape is None else plain_forms(done.read(entry), shape)
                if forms:
                    kept.keep(f"{origin.name}:{entry.index}", forms[0])

    outputs = visit_programs(source, feed, keep, None)
    return _OtherModel(kept, dict(zip(source.outputs, outputs)))
