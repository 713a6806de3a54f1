"""`quantize`: a model and sample data in, the same model with products of bytes out, with what that costs by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ...base.errors import InvalidType, InvalidValue, Unsupported
from ...base.shape import Dim
from ...base.shown import Shown, table
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.op import Op
from ...core.passes import apply_passes
from ...core.symbol import Symbol
from ...runtime.inputs import by_name
from ...runtime.program import Array
from ..model import CompiledModel, compile, opened
from ..prepare import folded
from .equalise import Reach, channel_axis, equalised
from .ranges import Ends, Histogram, Range
from .rewrite import (
    TAKES_BIAS,
    Point,
    Quantised,
    Scale,
    points_of,
    products_of,
    quantised,
    quantised_apart,
    scale_of,
    with_biases,
)

JUDGED = 16  # batches
PROBABILITIES = frozenset({"softmax", "log_softmax", "sigmoid"})
RANGES = ("minmax", "percentile", "mse")
METHODS = (*RANGES, "auto")
ACTIVATIONS = ("uint8", "int8")
# What makes a graph of layers as they are computed: scales of norms in the weights, equal nodes one.
SIMPLER = "SettleInitialisers DropEmpty SimplifyInference SimplifyAlgebra FoldScaleAxis SimplifyAlgebra CommonSubexpr"

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class LayerAccuracy:
    """What a layer gives in bytes beside what it gives in floats: signal to noise in dB, and the part of the largest
    magnitude by which it is off at most."""

    name: str
    operator: str
    decibels: float
    largest: float


@dataclass(frozen=True, repr=False)
class QuantiseReport(Shown):
    """By layers in order, on the first batch, and then of the model's outputs, on the first few batches: of
    probabilities, what they are made of."""

    method: str
    batches: int
    layers: tuple[LayerAccuracy, ...]
    outputs: tuple[LayerAccuracy, ...]

    def text(self, width: int | None = None) -> str:
        rows = [
            (row.name, row.operator, f"{row.decibels:.1f}", f"{row.largest:.4f}") for row in self.layers + self.outputs
        ]
        title = f"{len(self.layers)} products in bytes; ranges by {self.method} of {self.batches} batches"
        return title + "\n" + table(("layer", "operator", "SNR dB", "off by"), rows, width)


class QuantisedModel(tuple[Symbol, dict[str, Array]]):
    """A pair of a symbol and its parameters, which `weft.compile` takes; `report` tells what it costs."""

    report: QuantiseReport

    def __new__(cls, symbol: Symbol, params: dict[str, Array], report: QuantiseReport) -> QuantisedModel:
        made = super().__new__(cls, (symbol, params))
        made.report = report
        return made

    @property
    def symbol(self) -> Symbol:
        return self[0]

    @property
    def params(self) -> dict[str, Array]:
        return self[1]

    def __repr__(self) -> str:
        worst = min((row.decibels for row in self.report.outputs), default=float("inf"))
        return f"QuantisedModel({len(self.report.layers)} products in bytes, outputs at {worst:.1f} dB)"


def quantize(
    model: Any,
    calibration_data: Iterable[Any],
    method: str = "minmax",
    *,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    params: Mapping[str, Any] | None = None,
    activations: str = "uint8",
    percentile: float = 99.99,
    keep: Collection[str] = (),
    least_decibels: float = 20.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> QuantisedModel:
    """A model whose convolutions and products with constant weights multiply bytes: what `compile` takes in the place
    of `model`. Weights have a scale for each column, values one, from what they reach while `calibration_data` runs:
    batches, one at a time, that are dicts by the names of inputs, tuples in their order, or arrays for the only one.

    `method`: "minmax", all that was seen; "percentile", but for a few numbers at either end; "mse", the ends for which
    levels differ least from numbers; "auto", the one of these that outputs lose least by with all products in bytes.
    Channels that reach little beside others are made larger before that, and weights that read them smaller. Nodes
    named in `keep` stay as they are, and so do the products that lose most by themselves, as many as it takes for
    outputs of the first few batches to have `least_decibels` of signal over noise. `progress(done, total)` is called
    after each batch.

    >>> import numpy as np
    >>> import weft
    >>> x, w = weft.symbol.Variable("x", shape=(4, 64)), np.random.default_rng(0).standard_normal((8, 64), "f")
    >>> y = weft.symbol.dense(x, weft.symbol.Variable("w"), units=8, use_bias=False)
    >>> quantised = weft.quantize((y, {"w": w}), [np.linspace(-1, 1, 256, dtype="f").reshape(4, 64)])
    >>> weft.compile(quantised).report().kernels[-1].operators[0]
    '_byte_matmul'
    """
    _check(method, activations, percentile)
    source = opened(model, shape=shape, params=params, threads=threads)
    _check_model(source, keep)
    graph, constants = _simple(source)
    products = products_of(graph, constants, keep)
    batches = _Batches(source, calibration_data, progress)
    graph, constants = equalised(
        graph, constants, products, _reached(graph, constants, products, batches, source, threads)
    )
    products = products_of(graph, constants, keep)
    points = points_of(graph, products)
    watch = _Watch(graph, constants, points, products, method, source, threads)
    for batch in batches:
        watch.add(batch)
    sides = _Sides(graph, constants, batches.judged, source, threads)

    def trial(chosen: list[Node], scales: Mapping[NodeEntry, Scale]) -> _Trial:
        chosen_scales = {p: scales[p.measured] for p in points_of(graph, chosen)}
        made = quantised(graph, constants, chosen, chosen_scales, watch.means)
        return _Trial(made, chosen, sides.outputs(made))

    trials = {}
    for name in RANGES if method == "auto" else (method,):
        reached = watch.ranges(name, percentile)
        scales = {point.measured: scale_of(found, activations) for point, found in zip(points, reached)}
        trials[name] = (trial(products, scales), scales)
    method = max(trials, key=lambda name: trials[name][0].decibels)
    whole, scales = trials[method]
    ranked = _Ranked(products, lambda: sides.apart(products, scales, watch.means))
    fewer = lambda floats: trial(ranked.without(floats), scales) if floats else whole
    best = _fewest_floats(fewer, len(products), least_decibels)
    layers = sides.layers(best.made, best.products)
    report = QuantiseReport(method, batches.count, tuple(layers), tuple(best.outputs))
    return QuantisedModel(Symbol(best.made.graph.outputs), best.made.params, report)


class _Ranked:
    """Products in order, of which those that lose most by themselves can be left out: what that is, is measured when it
    is first asked for."""

    def __init__(self, products: list[Node], measure: Callable[[], Sequence[float]]) -> None:
        self._products, self._measure = products, measure
        self._worst: list[Node] = []

    def without(self, count: int) -> list[Node]:
        if count and not self._worst:
            decibels = dict(zip(self._products, self._measure()))
            self._worst = sorted(self._products, key=lambda node: decibels[node])
        left = set(self._worst[:count])
        return [node for node in self._products if node not in left]


class _Trial(NamedTuple):
    made: Quantised
    products: list[Node]
    outputs: list[LayerAccuracy]

    @property
    def decibels(self) -> float:
        return min((row.decibels for row in self.outputs), default=float("inf"))


def _fewest_floats(trial: Callable[[int], _Trial], count: int, least: float) -> _Trial:
    """With as few products in floats as outputs allow: 1, 2, 4, ... are tried, then what is between."""
    best = trial(0)
    if best.decibels >= least:
        return best
    low, high = 0, 1
    while high < count and (best := trial(high)).decibels < least:
        low, high = high, 2 * high
    if high >= count:
        high, best = count, trial(count)
    while high - low > 1:
        middle = (low + high) // 2
        found = trial(middle)
        low, high, best = (low, middle, found) if found.decibels >= least else (middle, high, best)
    return best


def _check(method: str, activations: str, percentile: float) -> None:
    for what, given, known in (("method", method, METHODS), ("activations", activations, ACTIVATIONS)):
        if given not in known:
            raise InvalidValue(f"{what} {given!r}", why="it is one of " + ", ".join(map(repr, known)))
    if not 50 < percentile <= 100:
        raise InvalidValue(f"percentile {percentile}", why="it is above 50 and at most 100")


def _check_model(source: CompiledModel, keep: Collection[str]) -> None:
    if not source.is_whole:
        raise Unsupported(
            "a model that runs in parts is not quantised", why="values decide its shapes", hint="shape={...}"
        )
    unknown = set(keep) - {node.name for node in source.graph.indexed.nodes}
    if unknown:
        raise InvalidValue(f"the model has no node {min(unknown)!r} to keep")


def _simple(source: CompiledModel) -> tuple[Graph, dict[str, Array]]:
    """The graph with norms folded into weights, and constants computed."""
    graph, constants, own = folded(source.graph, source.source.params, ())
    for _ in range(2):  # biases become one number for each channel only when scales are folded
        graph = with_biases(apply_passes(graph, SIMPLER.split()))
        graph, constants, own = folded(graph, constants, own)
    return graph, constants


class _Batches:
    """Batches by the names of inputs, one at a time."""

    def __init__(self, source: CompiledModel, data: Iterable[Any], progress: Progress | None) -> None:
        if isinstance(data, (str, bytes, Mapping, np.ndarray)):
            raise InvalidType(
                f"calibration data is a {type(data).__name__}", why="it is a list or a generator of batches", hint="[x]"
            )
        self.specs, self.progress = source.inputs, progress
        self.total = len(data) if isinstance(data, Sequence) else None
        self.count = 0
        self.judged: list[dict[str, Any]] = []  # the first few, by which outputs are judged
        self._rest = iter(data)
        for batch in self._rest:
            self.first = self._named(batch)
            return
        raise InvalidValue("no batch of calibration data was given", hint="a list of arrays or of dicts by input")

    def _named(self, batch: Any) -> dict[str, Any]:
        if isinstance(batch, Mapping):
            return dict(batch)
        return by_name(self.specs, batch if isinstance(batch, (tuple, list)) else (batch,), {})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in chain([self.first], map(self._named, self._rest)):
            self.judged += [batch] * (len(self.judged) < JUDGED)
            yield batch
            self.count += 1
            if self.progress is not None:
                self.progress(self.count, self.total)


def _reached(
    graph: Graph,
    constants: Mapping[str, Array],
    products: Sequence[Node],
    batches: _Batches,
    source: CompiledModel,
    threads: int | None,
) -> dict[NodeEntry, Reach]:
    """What channels of the data of products reach in the first batch."""
    rows = {node.inputs[0]: node for node in products}
    outputs = [made.outputs[0] for entry, node in rows.items() for made in _symbolic_reach(graph, entry, node)]
    if not outputs:
        return {}
    model = _model(outputs, constants, source, threads)
    values = model.run({spec.name: batches.first[spec.name] for spec in model.inputs if spec.name in batches.first})
    pairs = zip(values[::2], values[1::2])
    return {entry: Reach(a.astype(np.float64), np.sqrt(b.astype(np.float64))) for entry, (a, b) in zip(rows, pairs)}


def _symbolic_reach(graph: Graph, entry: NodeEntry, node: Node) -> list[Symbol]:
    """The largest magnitude and the mean square of each channel."""
    axis = channel_axis(node, len(graph.fact(entry).shape or ()))
    value = Symbol([entry])
    square = Op.get("broadcast_mul")(value, value)
    return [
        Op.get("max")(Op.get("abs")(value), axis=axis, exclude=True),
        Op.get("mean")(square, axis=axis, exclude=True),
    ]


class _Watch:
    """The values that are quantised, as batches run in floats."""

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[str, Array],
        points: Sequence[Point],
        products: Sequence[Node],
        method: str,
        source: CompiledModel,
        threads: int | None,
    ) -> None:
        self.method, self.points, self.batches = method, points, 0
        kind = Ends if method == "minmax" else Histogram
        self.found = [kind(point.measured.node.name) for point in points]
        watched = [point.measured for point in points]
        if method == "minmax":  # of which two numbers leave the program
            ends = [Op.get(name)(Symbol([entry])) for entry in watched for name in ("min", "max")]
            outputs = [symbol.outputs[0] for symbol in ends]
        else:
            outputs = watched
        rows = {node.inputs[0]: node for node in products if node.op_name in TAKES_BIAS}
        self.means: dict[NodeEntry, Array] = {}  # of each channel of what products read
        self.rows = list(rows)
        outputs = outputs + [_channel_mean(graph, *pair).outputs[0] for pair in rows.items()]
        self.model = _model(outputs, constants, source, threads) if outputs else None

    def add(self, batch: Mapping[str, Any]) -> None:
        if self.model is None:
            return
        values = self.model.run({spec.name: batch[spec.name] for spec in self.model.inputs if spec.name in batch})
        count = len(values) - len(self.rows)
        self.batches += 1
        for entry, mean in zip(self.rows, values[count:]):
            before = self.means.get(entry, np.zeros(mean.shape))
            self.means[entry] = before + (mean - before) / self.batches
        values = values[:count]
        if self.method == "minmax":
            values = [np.concatenate([a.reshape(-1), b.reshape(-1)]) for a, b in zip(values[::2], values[1::2])]
        for found, value in zip(self.found, values):
            found.add(value)

    def ranges(self, method: str, percentile: float) -> list[Range]:
        if method == "percentile":
            return [found.percentile(percentile) for found in self.found if isinstance(found, Histogram)]
        if method == "mse":
            return [found.mse() for found in self.found if isinstance(found, Histogram)]
        return [found.minmax() for found in self.found]


def _channel_mean(graph: Graph, entry: NodeEntry, node: Node) -> Symbol:
    """Of what a product reads, over all but its channels."""
    axis = channel_axis(node, len(graph.fact(entry).shape or ()))
    made: Symbol = Op.get("mean")(Symbol([entry]), axis=axis, exclude=True)
    return made


def _model(
    outputs: Sequence[NodeEntry], constants: Mapping[str, Array], source: CompiledModel, threads: int | None
) -> CompiledModel:
    symbol = Symbol(list(outputs))
    read = set(symbol.list_input_names())
    shapes = {spec.name: spec.shape for spec in source.inputs if spec.name in read and spec.shape is not None}
    dtypes = {spec.name: spec.dtype for spec in source.inputs if spec.name in read and spec.dtype is not None}
    known = {name: value for name, value in constants.items() if name in read}
    made = compile((symbol, known), shape=shapes, dtype=dtypes, threads=threads)
    assert isinstance(made, CompiledModel)
    return made


class _Sides:
    """The model in floats and in bytes. Values of layers meet inside of one program, of which four numbers for each
    leave it: memory is that of two runs, however many layers there are."""

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[str, Array],
        batches: Sequence[Mapping[str, Any]],
        source: CompiledModel,
        threads: int | None,
    ) -> None:
        self.graph, self.constants, self.batches = graph, constants, batches
        self.source, self.threads = source, threads
        self.floats: list[list[Array]] = []

    def outputs(self, made: Quantised) -> list[LayerAccuracy]:
        """What each output loses."""
        self.floats = self.floats or self._values(_scores(self.graph), self.constants, self.batches)
        levels = self._values(_scores(made.graph), made.params, self.batches)
        sums = [[_sums(a, b) for a, b in zip(*pair)] for pair in zip(self.floats, levels)]
        rows = [reduce(_together, map(Sums._make, rows)) for rows in zip(*sums)]
        return [_accuracy(name, "output", *map(float, row)) for name, row in zip(self.source.outputs, rows)]

    def apart(
        self, products: Sequence[Node], scales: Mapping[NodeEntry, Scale], means: Mapping[NodeEntry, Array]
    ) -> list[float]:
        """Decibels of each product that alone reads levels."""
        found, params = quantised_apart(self.graph, self.constants, products, scales, means)
        return [row.decibels for row in self._beside(products, [found[node] for node in products], params)]

    def layers(self, made: Quantised, products: Sequence[Node]) -> list[LayerAccuracy]:
        """What each product loses, with what those before it have lost."""
        names = {node.name: node for node in made.graph.indexed.nodes}
        entries = [NodeEntry(names[node.name]) for node in products]
        return self._beside(products, entries, {**self.constants, **made.params})

    def _beside(
        self, products: Sequence[Node], entries: Sequence[NodeEntry], params: Mapping[str, Array]
    ) -> list[LayerAccuracy]:
        """Products beside what stands for them, on the first batch."""
        pairs = zip(products, entries)
        sums = [made.outputs[0] for a, b in pairs for made in _symbolic_sums(Symbol([NodeEntry(a)]), Symbol([b]))]
        found = self._values(sums, params, self.batches[:1])[0] if sums else []
        rows = [found[4 * number : 4 * number + 4] for number in range(len(products))]
        return [
            _accuracy(node.name, node.op_name, *(float(value.reshape(())) for value in row))
            for node, row in zip(products, rows)
        ]

    def _values(
        self, entries: Sequence[NodeEntry], params: Mapping[str, Array], batches: Sequence[Mapping[str, Any]]
    ) -> list[list[Array]]:
        """For each batch."""
        model = _model(entries, params, self.source, self.threads)
        return [model.run({spec.name: batch[spec.name] for spec in model.inputs}) for batch in batches]


def _scores(graph: Graph) -> list[NodeEntry]:
    """The outputs, and of probabilities what they are made of: these say little of how near another decision is."""
    return [entry.node.inputs[0] if entry.node.op_name in PROBABILITIES else entry for entry in graph.outputs]


class Sums(NamedTuple):
    """Of a value in floats and in levels: squares of the first, and of what lies between; the largest of both."""

    signal: float
    noise: float
    scale: float
    largest: float


def _together(one: Sums, other: Sums) -> Sums:
    """Of two batches."""
    ends = max(one.scale, other.scale), max(one.largest, other.largest)
    return Sums(one.signal + other.signal, one.noise + other.noise, *ends)


def _sums(wanted: Array, found: Array) -> tuple[Any, ...]:
    """Signal, noise, the largest magnitude and the largest difference."""
    wide, apart = wanted.astype(np.float64), wanted.astype(np.float64) - found
    return np.square(wide).sum(), np.square(apart).sum(), np.abs(wide).max(initial=0), np.abs(apart).max(initial=0)


def _symbolic_sums(wanted: Symbol, found: Symbol) -> list[Symbol]:
    """The same of values of a program."""
    apart = Op.get("broadcast_sub")(wanted, found)
    squares = [Op.get("sum")(Op.get("broadcast_mul")(x, x)) for x in (wanted, apart)]
    return squares + [Op.get("max")(Op.get("abs")(x)) for x in (wanted, apart)]


def _accuracy(name: str, operator: str, signal: float, noise: float, scale: float, largest: float) -> LayerAccuracy:
    decibels = float("inf") if noise == 0 else 10 * float(np.log10(signal / noise)) if signal else float("-inf")
    return LayerAccuracy(name, operator, decibels, largest / scale if scale else largest)
