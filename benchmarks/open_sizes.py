"""What it costs that sizes are open: networks whose batch is open (and the length of bert's text), against the same
made for each batch alone.

    python benchmarks/open_sizes.py                  # all of the list below
    python benchmarks/open_sizes.py bert             # one of them, and nothing else

Rounds of both alternate, and the best of each is compared, as others use the machine, too. `first` is what the first
run at a new batch takes beyond those that follow, in memory that a larger one has left: pages that a process never
touched cost their own time. It is processor time, the least of some models that share code and know nothing of each
other's sizes, less the least of runs that follow.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import testing

BATCHES = (1, 4, 8)
ROUNDS = 9
COPIES = 4  # of a model, each of which has a first run
SIZES = 40  # that memory is looked at after
TOKENS = 200  # that a decoder adds to its cache, one a run

DECODER = """<ir_version: 8, opset_import: ["" : 17]>
decoder (int64[batch, length] ids, float[batch, 4, past, 8] k0, float[batch, 4, past, 8] v0)
    => (float[batch, length, 50] scores, float[batch, 4, total, 8] k, float[batch, 4, total, 8] v)
{
    heads = Constant <value_ints = [0, 0, 4, 8]> ()
    whole = Constant <value_ints = [0, 0, 32]> ()
    root = Constant <value_float = 2.828427> ()
    x = Gather (words, ids)
    q1 = MatMul (x, wq)
    k1 = MatMul (x, wk)
    v1 = MatMul (x, wv)
    q2 = Reshape (q1, heads)
    k2 = Reshape (k1, heads)
    v2 = Reshape (v1, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k3 = Transpose <perm = [0, 2, 1, 3]> (k2)
    v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
    k = Concat <axis = 2> (k0, k3)
    v = Concat <axis = 2> (v0, v3)
    kt = Transpose <perm = [0, 1, 3, 2]> (k)
    s1 = MatMul (q, kt)
    s2 = Div (s1, root)
    s3 = Softmax <axis = -1> (s2)
    y1 = MatMul (s3, v)
    y2 = Transpose <perm = [0, 2, 1, 3]> (y1)
    y3 = Reshape (y2, whole)
    z = Add (x, y3)
    scores = MatMul (z, head)
}"""

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: testing.resnet.get_workload(num_layers=50),
    "mobilenet_v2": lambda: testing.mobilenet_v2.get_workload(1),
    "bert": lambda: testing.bert.get_workload(1),
    "vit_b_16": lambda: testing.vit.get_workload(1),
}
IMAGE, TEXT = (3, 224, 224), (128,)


class Open(NamedTuple):
    """How fast an open model is, over a static one; what the first run at a batch takes beyond others, in seconds."""

    name: str
    batch: int
    speed: float
    first: float


def measure(name: str) -> Iterator[Open]:
    model, rng = NETWORKS[name](), np.random.default_rng(0)
    item, dtype = (TEXT, "int64") if name == "bert" else (IMAGE, "float32")
    shape, dtypes = {"data": ("batch", *(("length",) if name == "bert" else item))}, {"data": dtype}
    open_model = weft.compile(model, shape=shape, dtype=dtypes)
    static = weft.compile(model, shape=shape, dtype=dtypes, specialise="always")

    def data(batch: int) -> Any:
        if dtype == "int64":
            return rng.integers(0, 1000, (batch, *item))
        return rng.standard_normal((batch, *item), dtype=np.float32)

    open_model(data(max(BATCHES) + 1))
    unaware = [copy.copy(open_model) for _ in range(COPIES)]
    for batch in BATCHES:
        x = data(batch)
        first = min(seconds(model, x, time.process_time) for model in unaware)
        later = min(seconds(model, x, time.process_time) for model in unaware)
        open_model(x)
        static(x)
        times = [[seconds(model, x) for model in (open_model, static)] for _ in range(ROUNDS)]
        ours, theirs = (min(column) for column in zip(*times))
        yield Open(name, batch, theirs / ours, first - later)
    assert open_model.compilations == 1


def seconds(model: Any, x: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    model(x)
    return clock() - start


def memory_ratio() -> float:
    """Resident memory after many sizes, over that after the largest of them."""
    symbol, params = NETWORKS["mobilenet_v2"]()
    model = weft.compile((symbol, params), shape={"data": ("batch", 3, 224, 224)})
    model(np.zeros((SIZES, 3, 224, 224), "float32"))
    before = resident()
    for batch in range(1, SIZES):
        model(np.zeros((batch, 3, 224, 224), "float32"))
    return resident() / before


def decoder_compilations() -> int:
    """How often code is made while a decoder adds tokens to a cache that begins empty."""
    import onnx

    model, rng = onnx.parser.parse_model(DECODER), np.random.default_rng(0)
    shapes = {"words": (50, 32), "head": (32, 50), **dict.fromkeys(("wq", "wk", "wv"), (32, 32))}
    for name, extents in shapes.items():
        weight = rng.standard_normal(extents).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    compiled = weft.compile(model)
    ids, k, v = np.array([[1, 2, 3]]), *np.zeros((2, 1, 4, 0, 8), np.float32)
    for _ in range(TOKENS):
        scores, k, v = compiled.run({"ids": ids, "k0": k, "v0": v})
        ids = scores[:, -1:].argmax(-1)
    return compiled.compilations


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    for name in sys.argv[1:] or NETWORKS:
        for row in measure(name):
            print(
                f"{row.name:<14} batch {row.batch}: {row.speed:.3f} of static speed, first {row.first * 1e3:.1f} ms",
                flush=True,
            )
    if sys.argv[1:]:
        return
    print(f"memory after {SIZES} sizes: {memory_ratio():.3f} x")
    print(f"compilations for {TOKENS} tokens: {decoder_compilations()}")


if __name__ == "__main__":
    main()
