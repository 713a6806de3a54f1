"""`weft bisect`: what `compare` found is cut out of the model: a few nodes with the values they read, which show the
same difference alone, written as a folder with a script."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import Error
from ..base.extents import names_of
from ..base.param_dict import save_param_dict
from ..base.shown import Shown
from ..compiler.model import opened
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.json_save import graph_to_json
from ..core.symbol import Symbol, Variable
from ..core.symbolic import bound_symbol, names_in
from ..runtime.program import Array
from .compare import TOLERANCE, Blame, Comparison, compared, graph_outputs, joined, model_and_inputs
from .differences import difference_of
from .model_files import Shapes
from .progress import Stages
from .values import CallSizes, Compilation, Reference, visit_programs

MOST_NODES = 4  # of a cut that is looked for first
LARGEST = 12  # of one that is taken if no smaller one shows it
MOST_TRIES = 200


class Cut(NamedTuple):
    """Some nodes of a model as a model: values that they read are inputs, weights parameters. Dimensions of the inputs
    have names where the model leaves them open."""

    nodes: tuple[str, ...]
    symbol: Symbol
    params: dict[str, Array]
    inputs: dict[str, Array]
    shapes: dict[str, tuple[int | str, ...]]

    @property
    def names(self) -> dict[str, int]:
        """What the names of dimensions stand for."""
        pairs = [pair for name, dims in self.shapes.items() for pair in zip(dims, self.inputs[name].shape)]
        return {dim: size for dim, size in pairs if isinstance(dim, str)}

    def __repr__(self) -> str:
        return f"Cut({', '.join(self.nodes)})"


@dataclass(frozen=True, repr=False)
class Bisection(Shown):
    """What is to blame, and the smallest cut that shows it: its nodes, how far it is off, and the folder it is in."""

    file: str
    blame: Blame | None
    nodes: tuple[str, ...]
    relative: float
    folder: str
    comparison: Comparison

    @property
    def ok(self) -> bool:
        return self.blame is None

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **super().to_dict()}

    def text(self, width: int | None = None) -> str:
        if self.blame is None:
            return f"{self.file}: nothing differs beyond {self.comparison.tolerance:g}"
        if not self.nodes:
            return f"to blame: {self.blame}\nno part of the model shows it alone: the values of all of it are needed"
        count = len(self.nodes)
        told = f"{count} node{'s' * (count != 1)} show it alone ({', '.join(self.nodes)}): off by {self.relative:.2g}"
        return f"to blame: {self.blame}\n{told}\nwrote {self.folder}: python {Path(self.folder) / 'repro.py'}"


def bisect_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    folder: Path | str = "weft-repro",
    tolerance: float = TOLERANCE,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    threads: int | None = None,
    opt_level: int = 3,
    seed: int = 0,
    stages: Stages | None = None,
) -> Bisection:
    """Which pass or kernel makes a model differ from its reference in double precision, and the fewest nodes that show
    it, written to `folder`.

    >>> import weft
    >>> bisect_model(weft.symbol.tanh(weft.symbol.Variable("x", shape=(2, 8)))).ok
    True
    """
    stages = stages or Stages()
    source, feed = model_and_inputs(model, inputs, shape, params, threads, opt_level, seed, stages)
    name = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
    parts: list[Comparison] = []
    wrong: list[tuple[Compilation, dict[str, Array]]] = []  # the first program that is, and what it ran on

    def visit(found: Compilation, arrays: Mapping[str, Array]) -> None:
        if not wrong:
            stages.begin("compare")
            parts.append(compared(name, found, arrays, "fp64", None, tolerance, threads, stages))
            if parts[-1].blame is not None:
                wrong.append((found, {key: np.array(array) for key, array in arrays.items()}))

    visit_programs(source, feed, visit, stages.progress)
    comparison = joined(parts, name, "fp64", tolerance)
    if comparison.blame is None:
        return Bisection(name, None, (), 0.0, "", comparison)
    stages.begin("cut")
    best = smallest_cut(*wrong[0], comparison.blame, tolerance, opt_level, stages)
    if best is None:
        return Bisection(name, comparison.blame, (), 0.0, "", comparison)
    cut, relative = best
    write_repro(Path(folder), cut, comparison.blame, tolerance, opt_level)
    return Bisection(name, comparison.blame, cut.nodes, relative, str(folder), comparison)


def smallest_cut(
    found: Compilation, feed: Mapping[str, Array], blame: Blame, tolerance: float, opt_level: int, stages: Stages
) -> tuple[Cut, float] | None:
    """The fewest nodes that differ alone, and by how much; None if no few of them do."""
    ends = _ends(found, blame)
    for tries, region in enumerate(_regions(ends)):
        if tries >= MOST_TRIES:
            return None
        stages.progress(tries, MOST_TRIES)
        for cut in _cuts(found, feed, region):
            relative = off_by(cut, opt_level)
            if not relative <= tolerance:
                return cut, relative
    return None


def _ends(found: Compilation, blame: Blame) -> list[Node]:
    """Nodes of the model at which a cut may end: those to blame, the last first, and those that the pass changed."""
    by_name = {node.name: node for node in found.graph.indexed.nodes if node.op is not None}
    named = [by_name[name] for name in reversed(blame.nodes) if name in by_name]
    changed: list[Node] = []
    for run in found.passes:
        if blame.kind == "pass" and run.name == blame.name:
            old = set(run.before.indexed.nodes)
            new = [node for node in run.after.indexed.nodes if node not in old]
            changed += [source for node in new for source in run.after.sources.get(node, (node,))]
    return list(dict.fromkeys([*named, *(node for node in changed if by_name.get(node.name) is node)]))


def _regions(ends: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes up to an end, few before many: each node is a reader of the region's others, nearest first."""
    grown = {end: _before(end) for end in ends}
    seen: set[frozenset[Node]] = set()
    for size in range(1, LARGEST + 1):
        for end in ends:
            region = grown[end][:size]
            if len(region) == size and frozenset(region) not in seen:
                seen.add(frozenset(region))
                yield region


def _before(end: Node) -> list[Node]:
    """A node and those it is computed from, nearest first."""
    order, place = [end], 0
    while place < len(order) and len(order) < LARGEST:
        for entry in order[place].inputs:
            if entry.node.op is not None and entry.node not in order:
                order.append(entry.node)
        place += 1
    return order


def _cuts(found: Compilation, feed: Mapping[str, Array], region: Sequence[Node]) -> Iterator[Cut]:
    """Some nodes as a model: one that is as open as they are, as other kernels may serve open sizes, and one for the
    sizes at hand."""
    inside = set(region)
    order = [node for node in found.graph.indexed.nodes if node in inside]
    border = dict.fromkeys(entry for node in order for entry in node.inputs if entry.node not in inside)
    outside = [entry for entry in border if entry.node.name not in found.params or entry.node.op is not None]
    values = _values(found, feed, outside)
    numbers = {entry: tuple(value.shape) for entry, value in values.items()}
    named = _named_dims(found, outside)
    if named != numbers and names_in(order) <= {dim for dims in named.values() for dim in dims}:
        yield _cut(found, order, region[0], values, named, {})
    yield _cut(found, order, region[0], values, numbers, found.sizes.names)


def _named_dims(found: Compilation, entries: Sequence[NodeEntry]) -> dict[NodeEntry, tuple[int | str, ...]]:
    """The shapes of entries, with names for what is open: those of the model, and others for what follows from them."""
    others: dict[str, str] = {}

    def named(dim: Any) -> Any:
        if not isinstance(dim, str) or names_of(dim) == {dim}:
            return dim
        return others.setdefault(dim, f"size{len(others)}")

    return {entry: tuple(map(named, found.graph.fact(entry).shape or ())) for entry in entries}


def _cut(
    found: Compilation,
    order: Sequence[Node],
    end: Node,
    values: Mapping[NodeEntry, Array],
    dims: Mapping[NodeEntry, tuple[int | str, ...]],
    bound: Mapping[str, int],
) -> Cut:
    made: dict[NodeEntry, NodeEntry] = {}
    inputs: dict[str, Array] = {}
    shapes: dict[str, tuple[int | str, ...]] = {}
    for number, (entry, value) in enumerate(values.items()):
        dtype, name = found.graph.fact(entry).dtype, f"x{number}"
        inputs[name], shapes[name] = value.astype(dtype), dims[entry]
        made[entry] = Variable(name, dtype=str(dtype)).outputs[0]
    for node in order:
        copy = node.copy_with([made.get(entry, entry) for entry in node.inputs])
        made.update({NodeEntry(node, index): NodeEntry(copy, index) for index in range(node.num_outputs)})
    symbol = bound_symbol(Symbol([made[NodeEntry(end, index)] for index in range(end.num_visible_outputs)]), bound)
    names = set(symbol.list_input_names())
    params = {name: value for name, value in found.params.items() if name in names}
    return Cut(tuple(node.name for node in order), symbol, params, inputs, shapes)


def _values(found: Compilation, feed: Mapping[str, Array], entries: Sequence[NodeEntry]) -> dict[NodeEntry, Array]:
    """What the nodes of a cut read, by references."""
    graph = Graph(entries, facts=found.graph.facts) if entries else found.graph
    reference = Reference(graph, {**found.params, **feed}, Counter(entries), found.sizes)
    return {entry: reference.value(entry) for entry in entries}


def off_by(cut: Cut, opt_level: int = 3) -> float:
    """How far a cut that is compiled alone is from its reference, as a part of the largest magnitude."""
    try:
        model = opened((cut.symbol, cut.params), shape=cut.shapes, opt_level=opt_level)
        given = model.run(cut.inputs)
        wanted = graph_outputs(model.graph, {**cut.params, **cut.inputs}, CallSizes(cut.names, ()))
    except Error:
        return 0.0  # what does not compile alone shows nothing
    return max((difference_of(a, b).relative for a, b in zip(given, wanted)), default=0.0)


# The folder

_SCRIPT = '''"""{title}

The model has {count} nodes: {nodes}. This compiles it, runs it on inputs.npz, and holds the outputs against the
references of its operators in double precision: the exit status is 1 if they differ.

    python repro.py
"""

import sys
from pathlib import Path

import numpy as np

import weft
from weft.core.interpret import evaluate
from weft.core.json_load import graph_from_json
from weft.core.symbolic import bound_symbol

HERE = Path(__file__).parent
SHAPES = {shapes!r}
NAMES = {names!r}  # what open dimensions are here
TOLERANCE = {tolerance!r}


def main():
    symbol = graph_from_json((HERE / "model.json").read_text()).symbol
    params = {{name: value.numpy() for name, value in weft.load_param_dict((HERE / "params.bin").read_bytes()).items()}}
    with np.load(HERE / "inputs.npz") as file:
        inputs = dict(file)
    model = weft.compile((symbol, params), shape=SHAPES, opt_level={opt_level})
    double = {{n: v.astype("float64") if v.dtype.kind == "f" else v for n, v in {{**params, **inputs}}.items()}}
    results = evaluate(bound_symbol(symbol, NAMES), double)
    worst = 0.0
    for name, got, wanted in zip(model.outputs, model.run(inputs), results):
        off = np.nan_to_num(np.abs(got.astype("float64") - wanted), nan=np.inf).max(initial=0.0)
        relative = off / (np.abs(wanted).max(initial=0.0) or 1.0)
        print(f"{{name}}: off by {{off:.3g}}, {{relative:.3g}} of the largest magnitude")
        worst = max(worst, relative)
    print("DIFFERS" if worst > TOLERANCE else "the same")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
'''


def write_repro(folder: Path, cut: Cut, blame: Blame, tolerance: float, opt_level: int) -> None:
    """The model, its parameters and inputs, and a script that shows the difference."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.json").write_text(graph_to_json(Graph(cut.symbol.outputs)), encoding="utf-8")
    (folder / "params.bin").write_bytes(bytes(save_param_dict(cut.params)))
    np.savez(folder / "inputs.npz", **cut.inputs)  # type: ignore[arg-type]
    title = re.sub(r'[\\"{}]', "", f"To blame: {blame}.")
    text = _SCRIPT.format(
        title=title,
        count=len(cut.nodes),
        nodes=re.sub(r'[\\"{}]', "", ", ".join(cut.nodes)),
        shapes=cut.shapes,
        names=cut.names,
        tolerance=tolerance,
        opt_level=opt_level,
    )
    (folder / "repro.py").write_text(text, encoding="utf-8")
