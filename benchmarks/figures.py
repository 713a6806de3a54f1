"""Every claim with a number: its bound, and the value measured now.

    python benchmarks/figures.py core        one group
    python benchmarks/figures.py all         all of them

A group is a function that yields figures; `@group("name")` adds one. The exit code is 1 if any
figure is over its bound.
"""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import compiled
import cpu
import decisions
import eager
import first_calls
import forests
import generate
import mxnet_network
import numpy as np
import onnx_import
import open_sizes
import start
import training_memory

import viewer
import weft
import weft.passes  # registers them
from weft.core.graph import Graph
from weft.core.graph_attrs import JsonAttr
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.json_load import graph_from_json
from weft.core.op import Op
from weft.core.parse import parse_graph
from weft.core.passes import list_passes
from weft.core.symbol import Symbol, Variable
from weft.lower.cpu import layouts

SIZE = 100_000
FAN_IN = 8
ROUNDS = 3


class Figure(NamedTuple):
    """A claim: a value, its unit, and the closed range it must be in."""

    name: str
    value: float
    unit: str
    low: float
    high: float

    @property
    def ok(self) -> bool:
        return self.low <= self.value <= self.high

    def line(self) -> str:
        low = f"{self.low:g} to " if self.low else "at most "
        bound = f"{low}{self.high:g} {self.unit}"
        verdict = "ok" if self.ok else "OVER"
        return f"{self.name:<44} {bound:>20} {self.value:>10.3f} {self.unit:<4} {verdict}"


Group = Callable[[], Iterator[Figure]]
GROUPS: dict[str, Group] = {}


def group(name: str) -> Callable[[Group], Group]:
    """Adds a function that yields figures."""

    def add(function: Group) -> Group:
        GROUPS[name] = function
        return function

    return add


# core: every step over a graph is linear in its nodes.


def _same_shape(params: Any, ins: list[Any], outs: list[Any]) -> tuple[list[Any], list[Any]]:
    known = next((shape for shape in (*ins, *outs) if shape is not None), None)
    return [known] * len(ins), [known] * len(outs)


def chain(count: int) -> Symbol:
    """A chain of nodes."""
    unary = Op.register("figures_unary")
    symbol = Variable("x")
    for _ in range(count):
        symbol = unary(symbol)
    return symbol


def braid(count: int) -> Symbol:
    """Nodes that each read the eight before them."""
    many = Op.register("figures_many").set_num_inputs(FAN_IN)
    symbols = [Variable(f"x{i}") for i in range(FAN_IN)]
    for _ in range(count):
        symbols = [*symbols[1:], many(*symbols)]
    return symbols[-1]


def _declare_operators() -> None:
    for name in ("figures_unary", "figures_many"):
        if Op.register(name) not in Op.shape:
            Op.register(name).shape = _same_shape


def _clock(step: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()  # of this process alone: others share the machine
    result = step()
    return time.process_time() - start, result


def lifetime(build: Callable[[int], Symbol], count: int) -> dict[str, float]:
    """Seconds of each step in the life of a graph of so many nodes."""
    gc.collect()
    times = {}
    times["compose"], symbol = _clock(lambda: build(count))
    names = symbol.list_input_names()
    shapes, dtypes = dict.fromkeys(names, (2, 3)), dict.fromkeys(names, np.dtype("float32"))
    times["infer"], graph = _clock(lambda: infer(Graph(symbol.outputs), shapes, dtypes))
    times["save and load"], loaded = _clock(lambda: graph_from_json(graph.json()))
    assert loaded.indexed.num_nodes == count + len(names)
    assert loaded.fact(loaded.outputs[0]) == graph.fact(graph.outputs[0])
    del loaded
    copies = [_copy_and_destroy(symbol) for _ in range(ROUNDS)]
    times["copy"], times["destroy"] = (min(column) for column in zip(*copies))
    return times


def _copy_and_destroy(symbol: Symbol) -> tuple[float, float]:
    owned: list[Symbol] = []
    copying, _ = _clock(lambda: owned.append(copy.deepcopy(symbol)))
    destroying, _ = _clock(owned.clear)
    return copying, destroying


@group("core")
def core() -> Iterator[Figure]:
    _declare_operators()
    for shape, build in (("chain", chain), ("fan-in 8", braid)):
        build(1000)
        half: dict[str, float] = {}
        full: dict[str, float] = {}
        for _ in range(ROUNDS):  # alternating, so that a slow moment hits both sizes
            for best, count in ((half, SIZE // 2), (full, SIZE)):
                for step, seconds in lifetime(build, count).items():
                    best[step] = min(best.get(step, seconds), seconds)
        yield Figure(f"{shape}, {SIZE} nodes: compose", full["compose"], "s", 0, 3.0)
        for step in full:
            ratio = full[step] / half[step]
            yield Figure(f"{shape}: {step}, n over n/2", ratio, "x", 1.6, 2.4)
            print(f"# {shape}: {step}: {half[step]:.3f} s, {full[step]:.3f} s", file=sys.stderr)


# passes: every pass is linear in nodes.

BLOCK = 5  # nodes of a block of `residuals`, besides its parameters


def activations(count: int) -> Symbol:
    """A chain of element-wise operators."""
    F, y = weft.symbol, Variable("x")
    steps = (F.negative, F.relu, F.sigmoid, lambda v: v + 1, lambda v: v * 1)
    for number in range(count):
        y = steps[number % len(steps)](y)
    return y


def branches(count: int) -> Symbol:
    """One operator that reads many branches, some of them equal."""
    F, x = weft.symbol, Variable("x")
    half = count // 2
    return F.elemwise_sum(*[F.exp(x * (i % 1000)) for i in range(half)], num_args=half)


def residuals(count: int) -> Symbol:
    """Convolutions with batch norm, relu and a shortcut, one block after the other."""
    F, y = weft.symbol, Variable("x")
    scale = [Variable(f"bn_{name}") for name in ("gamma", "beta", "mean", "var")]
    weight = Variable("weight")
    for _ in range(count // BLOCK):
        z = F.conv2d(y, weight, channels=4, kernel_size=(1, 1), use_bias=False)
        y = F.relu(F.dropout(F.batch_norm(z, *scale))) + y
    return y


def _loss(graph: Graph) -> dict[str, Any]:
    heads = [weft.symbol.ones_like(graph.symbol).outputs[0]]
    first = [graph.indexed.nodes[graph.indexed.variables[0]].entry()]
    return {"grad_ys": graph.outputs, "grad_xs": first, "grad_ys_out_grad": heads}


def _placed(graph: Graph) -> dict[str, Any]:
    for number, node in enumerate(graph.indexed.nodes):
        if node.op is None or not node.op.has_schema:
            node.attrs["__group__"] = "ab"[number // 100 % 2]
    return {
        "device_group_attr_key": JsonAttr("str", "__group__"),
        "device_assign_map": JsonAttr("dict_str_int", {"a": 0, "b": 1}),
        "device_copy_op": JsonAttr("str", "copy"),
    }


SETTINGS: dict[str, Callable[[Graph], dict[str, Any]]] = {
    "Gradient": _loss,
    "PlaceDevice": _placed,
    "LoadJSON": lambda graph: {"json": JsonAttr("str", graph.json())},
    "PrecomputePrune": lambda graph: {"param_name_list": JsonAttr("list_str", graph.symbol.list_input_names()[1:])},
    "GraphFuse": lambda graph: graph.apply("GraphFindFusibleGroups").attrs,
}


def _typed(symbol: Symbol, shape: Any) -> Graph:
    dtypes = dict.fromkeys(symbol.list_input_names(), np.dtype("float32"))
    return infer(Graph(symbol.outputs), {"x": shape}, dtypes)


def _pass_steps() -> Iterator[tuple[str, Callable[[Graph], Graph], Callable[[Graph], Any]]]:
    """(name, what prepares a graph, what is measured on it)"""
    for step in list_passes():
        if step.name != "GraphCompile":  # makes machine code of what the others made
            attrs = SETTINGS.get(step.name, lambda graph: {})
            prepare = lambda graph, attrs=attrs: graph.replace(attrs=attrs(graph))
            yield step.name, prepare, lambda graph, name=step.name: graph.apply(name)
    yield "text", lambda graph: graph, lambda graph: parse_graph(graph.ir(full=True))


def _best_seconds(graphs: list[Graph], measured: Callable[[Graph], Any]) -> list[float]:
    """The shortest time on each graph, taken in turns, so that a slow moment hits all."""
    best = [float("inf")] * len(graphs)
    for _ in range(ROUNDS):
        for place, graph in enumerate(graphs):
            gc.collect()
            seconds, _ = _clock(lambda: measured(graph))  # noqa: B023
            best[place] = min(best[place], seconds)
    return best


@group("passes")
def passes() -> Iterator[Figure]:
    kinds = {"chain": (activations, (4,)), "wide": (branches, (4,)), "blocks": (residuals, (1, 4, 8, 8))}
    for kind, (build, shape) in kinds.items():
        graphs = [_typed(build(count), shape) for count in (SIZE // 2, SIZE)]
        assert 0.9 * SIZE < graphs[1].indexed.num_nodes < 1.1 * SIZE
        for name, prepare, measured in _pass_steps():
            if name == "PlaceDevice" and graphs[0].indexed.mutable_inputs:
                continue  # a variable that many mutate cannot be on two devices
            half, full = _best_seconds([prepare(graph) for graph in graphs], measured)
            print(f"# {kind}: {name}: {half:.3f} s, {full:.3f} s", file=sys.stderr)
            yield Figure(f"{kind}: {name}, n over n/2", full / half, "x", 1.6, 2.4)


# runtime: memory stays flat, imports and calls are quick.

CYCLES, RUNS, SHAPES = 1_000, 10_000, 64
GROWTH = 20.0  # megabytes


def _resident() -> float:
    """Megabytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _classifier() -> tuple[Symbol, dict[str, Any]]:
    x = weft.symbol.Variable("x", shape=("n", 16))
    y = weft.symbol.softmax(weft.symbol.relu(weft.symbol.dense(x, units=8, name="fc")))
    return y, {"fc_weight": np.ones((8, 16), "float32"), "fc_bias": np.ones(8, "float32")}


def _rows(count: int) -> Any:
    return np.ones((count, 16), "float32")


def _compile_and_close(count: int) -> None:
    for number in range(count):
        rows = 1 + number % 8
        with weft.compile(_classifier(), shape={"x": (rows, 16)}) as model:
            model(_rows(rows))


def _growth(what: str, warm: Callable[[], Any], work: Callable[[], Any]) -> Figure:
    warm()
    gc.collect()
    before = _resident()
    work()
    gc.collect()
    after = _resident()
    print(f"# {what}: {before:.1f} MB before, {after:.1f} MB after", file=sys.stderr)
    return Figure(what, max(after - before, 0.0), "MB", 0, GROWTH)


def _process_seconds(code: str) -> float:
    """How long a process takes from its start to its end."""
    command = [sys.executable, "-c", code]
    return min(timeit.repeat(lambda: subprocess.check_call(command), number=1, repeat=7))


@group("runtime")
def runtime() -> Iterator[Figure]:
    yield Figure("import weft, a tensor, end", _process_seconds("import weft; weft.tensor([1.0])"), "s", 0, 0.3)
    small = weft.compile(weft.symbol.relu(weft.symbol.Variable("x", shape=(8,))), threads=1)
    value = {"x": np.ones(8, "float32")}
    best = min(timeit.repeat(lambda: small.run(value), number=1000, repeat=7))
    yield Figure("run of one operator", best * 1e3, "us", 0, 100)
    step = small.bind(value)
    yield Figure("bound step of one operator", min(timeit.repeat(step, number=1000, repeat=7)) * 1e3, "us", 0, 3)
    yield _growth(f"{CYCLES} compile/close cycles", lambda: _compile_and_close(300), lambda: _compile_and_close(CYCLES))
    model = weft.compile(_classifier())
    inputs = [_rows(count) for count in range(1, SHAPES + 1)]
    yield _growth(
        f"{RUNS} runs over {SHAPES} shapes",
        lambda: [model(inputs[number % SHAPES]) for number in range(5 * SHAPES)],
        lambda: [model(inputs[number % SHAPES]) and None for number in range(RUNS)],
    )
    yield Figure("specialisations kept", len(model.specialisations), "", 1, 16)


# mxnet: a network from MXNet's files is as fast as the same one from ONNX.

NETWORK_ROUNDS = 8


def _kernels(path: Path) -> list[tuple[str, ...]]:
    """The operators of each kernel, in order. What is added in equal shapes may have two names."""
    with weft.compile(path, threads=1) as model:
        return [
            tuple(name.replace("elemwise_", "broadcast_") for name in kernel.operators)
            for kernel in model.program.kernels
        ]


def _seconds_in_turns(paths: dict[str, Path], folder: Path) -> dict[str, float]:
    """The best run of each file, each in a process of its own, of which one computes at a time."""
    running: dict[str, cpu.Contender] = {}
    results = {name: cpu.Result("resnet50_v1", name, 1, 1) for name in paths}
    try:
        for name, path in paths.items():
            running[name] = cpu.Contender("weft", path, 1, folder / "cache")
        cpu.alternate(running, results, NETWORK_ROUNDS)
    finally:
        for contender in running.values():
            contender.close()
    return {name: result.best_ms / 1e3 for name, result in results.items()}


@group("mxnet")
def mxnet() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="weft-figures-") as name:
        folder = Path(name)
        paths = dict(zip(("mxnet", "onnx"), mxnet_network.write(folder)))
        lists = [_kernels(path) for path in paths.values()]
        differing = sum(a != b for a, b in zip_longest(*lists))
        yield Figure("resnet50_v1: kernels unlike ONNX's", differing, "", 0, 0)
        best = _seconds_in_turns(paths, folder)
        print(f"# {best['mxnet']:.4f} s, as ONNX {best['onnx']:.4f} s", file=sys.stderr)
        yield Figure("resnet50_v1: ONNX's time over MXNet's", best["onnx"] / best["mxnet"], "x", 0.97, 100)


# tensors: eager calls beside PyTorch's, two threads each.

# Of a case, the most that its time may be of PyTorch's.
OVER_PYTORCH = {
    "mlp": 1.1,
    "small network": 0.9,
    "transformer": 1.1,
    "lstm": 1.0,
    "SGD, 200 parameters": 0.5,
    "Adam, 200 parameters": 0.5,
}


@group("tensors")
def tensors() -> Iterator[Figure]:
    times = eager.measure([*OVER_PYTORCH, "add 16"])
    for case, most in OVER_PYTORCH.items():
        ours, theirs = times[case]["weft"], times[case]["torch"]
        print(f"# {case}: {ours:.5f} s, PyTorch {theirs:.5f} s", file=sys.stderr)
        yield Figure(f"step over PyTorch's: {case}", ours / theirs, "x", 0, most)
    yield Figure("recorded add of 16 elements", times["add 16"]["weft"] * 1e6, "us", 0, 3)
    waits = first_calls.measure()
    print(f"# slowest first call: {max(waits, key=lambda name: waits[name])}", file=sys.stderr)
    cold, warm = (max(times) * 1e3 for times in zip(*waits.values()))
    yield Figure("slowest first call, without disk cache", cold, "ms", 0, 200)
    yield Figure("slowest first call, kernels in the disk cache", warm, "ms", 0, 30)
    first, last = training_memory.measure()
    print(f"# training: {first:.1f} MB, {last:.1f} MB", file=sys.stderr)
    what = f"memory after {training_memory.STEPS} steps over {training_memory.WARM}"
    yield Figure(what, last / first, "x", 0, 1.02)


# exact: errors against float64.


def _inexactness(tile: int | None, made: Symbol, values: dict[str, Any], wanted: Any) -> float:
    """Of a network whose convolutions all run in Winograd's tiles of that size, or directly."""
    chosen = layouts.winograd_tile
    layouts.winograd_tile = lambda *facts: tile  # type: ignore[assignment]
    try:
        params = {name: value for name, value in values.items() if name != "x"}
        model = weft.compile(made, params=params, shape={"x": values["x"].shape})
    finally:
        layouts.winograd_tile = chosen
    return float(np.square(model.run({"x": values["x"]})[0] - wanted).mean() ** 0.5)


@group("exact")
def exactness() -> Iterator[Figure]:
    rng = np.random.default_rng(0)
    made = Variable("x")
    values = {"x": rng.standard_normal((1, 64, 20, 20)).astype("f")}
    for number in range(20):
        name = f"c{number}"
        made = weft.symbol.conv2d(made, name=name, channels=64, kernel_size=(3, 3), padding=(1, 1), use_bias=False)
        made = weft.symbol.tanh(made)
        values[f"{name}_weight"] = (rng.standard_normal((64, 64, 3, 3)) / 20).astype("f")
    wide = {name: value.astype("float64") for name, value in values.items()}
    wanted = evaluate(made, wide)[0]
    errors = [_inexactness(tile, made, values, wanted) for tile in (None, 4)]
    yield Figure("F(4x4)'s error over the direct form's", errors[1] / errors[0], "x", 0, 2.5)
    tenths = np.full(2**25, 0.1, "float32")
    model = weft.compile(weft.symbol.sum(Variable("x")), shape={"x": tenths.shape})
    total = model.run({"x": tenths})[0].item() / (2**25 * float(tenths[0]))
    yield Figure("error of a sum of 2^25 tenths", abs(total - 1) * 1e6, "ppm", 0, 40)


# onnx: what reading models costs.


@group("onnx")
def onnx_files() -> Iterator[Figure]:
    yield Figure("more a run where shapes are open", max(onnx_import.open_microseconds(), 0), "us", 0, 3)
    yield Figure("import of twice as many nodes", onnx_import.import_ratio(), "x", 0, 2.4)
    yield Figure("memory to read a file, over its size", onnx_import.memory_ratio(), "x", 0, 1.3)


# open: sizes that are arguments of kernels, against numbers.


@group("open")
def open_models() -> Iterator[Figure]:
    for name in open_sizes.NETWORKS:
        least = 0.9 if name == "mobilenet_v2" else 0.95
        for row in open_sizes.measure(name):
            yield Figure(f"{name}, open batch of {row.batch}, over static", row.speed, "x", least, 10)
            yield Figure(f"{name}, first run at a batch of {row.batch}", max(row.first * 1e3, 0), "ms", 0, 20)
    yield Figure(f"memory after {open_sizes.SIZES} sizes, over one", open_sizes.memory_ratio(), "x", 0, 1.15)
    made = open_sizes.decoder_compilations()
    yield Figure(f"compilations while {open_sizes.TOKENS} tokens are decoded", made, "", 1, 2)


# forests: against ONNX Runtime.


@group("forests")
def forest_speed() -> Iterator[Figure]:
    for batch, ours, theirs in forests.measure():
        yield Figure(f"{forests.TREES} trees, batch {batch}, over ONNX Runtime's", ours / theirs, "x", 0, 1)


# integers: against floats.


@group("integers")
def integer_speed() -> Iterator[Figure]:
    rng, sym, side = np.random.default_rng(0), weft.symbol, 512
    x, w = rng.integers(0, 256, (side, side)).astype("uint8"), rng.integers(-128, 128, (side, side)).astype("int8")
    bytes_product = sym.integer_matmul(Variable("x"), Variable("w"), use_data_zero=False, use_weight_zero=False)
    inputs = [{"x": x, "w": w}, {"x": x.astype("f"), "w": w.astype("f")}]
    models = [
        weft.compile(
            symbol,
            shape={"x": x.shape, "w": w.shape},
            dtype={name: value.dtype for name, value in given.items()},
            threads=1,
        )
        for symbol, given in zip((bytes_product, sym.matmul(Variable("x"), Variable("w"))), inputs)
    ]
    best = [float("inf"), float("inf")]
    for _ in range(10 * ROUNDS):
        for number, (model, given) in enumerate(zip(models, inputs)):
            best[number] = min(best[number], _clock(lambda model=model, given=given: model.run(given))[0])
    yield Figure(f"product of {side} x {side} bytes, over floats'", best[0] / best[1], "x", 0, 0.7)


# precision: products with weights of 16 bits, against floats.


@group("precision")
def narrow_products() -> Iterator[Figure]:
    rng, sym = np.random.default_rng(0), weft.symbol
    for rows, bound in ((128, 0.67), (1, 0.8)):
        x, w = (rng.standard_normal(shape).astype("f") for shape in ((rows, 768), (3072, 768)))
        y = sym.dense(Variable("x"), Variable("w"), units=3072, use_bias=False)
        models = [
            weft.compile((y, {"w": w}), shape={"x": x.shape}, threads=1, precision=precision)
            for precision in ("bf16", "fp32")
        ]
        best = [float("inf"), float("inf")]
        for _ in range(10 * ROUNDS):
            for number, model in enumerate(models):
                best[number] = min(best[number], _clock(lambda model=model, x=x: model.run({"x": x}))[0])
        yield Figure(f"product of {rows} rows in bf16, over fp32's", best[0] / best[1], "x", 0, bound)


# decisions: of trained models in bytes, as in floats.


@group("decisions")
def decided() -> Iterator[Figure]:
    for row in decisions.measured([], decisions.default_cache()):
        print(
            f"# {row.name}: {row.decibels:.1f} dB, {row.products} products, {row.speed:.2f} times as fast", flush=True
        )
        yield Figure(f"decisions as in floats: {row.name}", 100 * row.equal, "%", 97, 100)


# compiled: whole training steps as programs, against PyTorch's eager ones.


@group("compiled")
def compiled_steps() -> Iterator[Figure]:
    for name in compiled.CASES:
        times = compiled.measure([name])[name]
        ours, theirs = times["compiled"], times["torch"]
        if name in compiled.NETWORKS:
            print(f"# {name}: {ours:.5f} s, eager {times['weft']:.5f} s, PyTorch {theirs:.5f} s", flush=True)
            yield Figure(f"compiled step over PyTorch's: {name}", ours / theirs, "x", 0, compiled.BOUND)
            yield from _beside_torch_compile(name, ours, times["torch.compile"])
        else:
            yield Figure("compiled call of one small operator", ours * 1e6, "us", 0, 5)


def _beside_torch_compile(name: str, ours: float, theirs: float) -> Iterator[Figure]:
    """What needs torch.compile is left out where it does not run, which a line has said."""
    first = compiled.first_calls(name)
    print(f"# {name}: first call {first.empty:.2f} s, in the next process {first.next:.2f} s", flush=True)
    if theirs < float("inf"):
        yield Figure(f"compiled step over torch.compile's: {name}", ours / theirs, "x", 0, compiled.COMPILED_BOUND)
    if first.torch < float("inf"):
        ratio = first.empty / first.torch
        yield Figure(f"first call over torch.compile's: {name}", ratio, "x", 0, compiled.FIRST_BOUND)
    yield Figure(f"kernels that the next process compiles: {name}", float(first.compiled_next), "", 0, 0)


# generate: tokens of a GPT-2 of 124 million parameters, against llama.cpp or PyTorch on the same weights.


@group("generate")
def generated() -> Iterator[Figure]:
    for kind in generate.KINDS:
        measured = generate.measured(kind)
        print(f"# {kind}: {measured.own:.1f} tokens/s, {generate.other_name()} {measured.other:.1f}", flush=True)
        yield Figure(f"tokens of {kind} weights, over the other's", measured.ratio, "x", 1.2, float("inf"))
        share = 100 * measured.share
        yield Figure(f"tokens of {kind} weights, of the rate at which memory is read", share, "%", 80, float("inf"))


# start: from the start of a process to the first result of a model file, and the most memory until then.

START = {"resnet50": (2.0, 0.5), "bert": (3.0, 0.8), "vgg16": (None, 0.8), "inception_v3": (4.0, None)}  # cold, cached


@group("start")
def starts() -> Iterator[Figure]:
    for name, bounds in START.items():
        cold, cached, other = start.measured(name)
        print(f"# {name}: ONNX Runtime {other.seconds:.2f} s, {other.megabytes:.0f} MB", flush=True)
        for kind, made, bound in zip(("cold", "cached"), (cold, cached), bounds):
            if bound is not None:
                yield Figure(f"first result of {name}, {kind}", made.seconds, "s", 0, bound)
            share = made.megabytes / other.megabytes
            yield Figure(f"memory of {name}, {kind}, over the other's", share, "x", 0, 1)


# viewer: pages that `weft view` writes, in Chromium.


@group("viewer")
def viewed() -> Iterator[Figure]:
    sizes = {"resnet50": 5, "10,000 operators": 10, "50,000 operators": 30}
    for name, page in viewer.measured():
        yield Figure(f"page of {name}", page.size / 1e6, "MB", 0, sizes[name])
        yield Figure(f"page of {name}, opened", page.seconds, "s", 0, 2)
        yield Figure(f"page of {name}, a click", 1e3 * page.click, "ms", 0, 200)
        yield Figure(f"page of {name}, a search", 1e3 * page.search, "ms", 0, 200)


def main(arguments: list[str]) -> int:
    wanted = arguments or ["all"]
    names = list(GROUPS) if wanted == ["all"] else wanted
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"no group {unknown[0]!r}; groups: {', '.join(GROUPS)}, all", file=sys.stderr)
        return 2
    over = 0
    for name in names:
        for figure in GROUPS[name]():
            print(figure.line(), flush=True)
            over += not figure.ok
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
