"""What reading ONNX files costs: a shape that was seen before, twice as many nodes, a file of 500 MB."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import weft

ROUNDS = 9
WEIGHT = (4096, 4096)  # 64 MiB
WEIGHTS = 8

PEAK = """
import sys
import weft.frontend.onnx.importer as importer
def field(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
before = field("VmRSS")
symbol, params = importer.from_onnx(sys.argv[1])
print((field("VmHWM") - before) * 1024)
"""


def open_model() -> onnx.ModelProto:
    """Rows that are split into heads by their own shape, as exporters write it."""
    text = """m (float[n, s, 16] x) => (float[n, 4, s, 4] y) {
        shape = Shape(x) i = Constant <value_ints = [0, 1]> () first = Gather(shape, i)
        rest = Constant <value_ints = [4, 4]> () target = Concat <axis = 0> (first, rest)
        r = Reshape(x, target) t = Transpose <perm = [0, 2, 1, 3]> (r) y = Relu(t) }"""
    return helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)])


def open_microseconds() -> float:
    """What a run costs more where shapes are open, of a shape that was seen: the median of alternating rounds."""
    x = {"x": np.ones((1, 2, 16), "float32")}
    fixed, free = weft.compile(open_model(), shape={"x": (1, 2, 16)}, threads=1), weft.compile(open_model(), threads=1)
    free.run(x)
    more = []
    for _ in range(ROUNDS):
        seconds = [min(timeit.repeat(lambda m=m: m.run(x), number=2000, repeat=3)) / 2000 for m in (fixed, free)]
        more.append(1e6 * (seconds[1] - seconds[0]))
    return sorted(more)[ROUNDS // 2]


def chain(count: int) -> onnx.ModelProto:
    """A chain of additions with open rows."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Add", [f"v{i}", f"b{i}"], [f"v{i + 1}"]) for i in range(count)]
    stored = [numpy_helper.from_array(rng.standard_normal(8).astype("f"), f"b{i}") for i in range(count)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 8]) for name in ("v0", f"v{count}")]
    return helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:], stored))


def import_ratio(count: int = 4000) -> float:
    """The time that a model of twice as many nodes takes, over that of one."""
    seconds = {count: float("inf"), 2 * count: float("inf")}
    models = {size: chain(size) for size in seconds}
    for _ in range(ROUNDS):
        for size, model in models.items():
            start = time.perf_counter()
            weft.frontend.from_onnx(model)
            seconds[size] = min(seconds[size], time.perf_counter() - start)
    return seconds[2 * count] / seconds[count]


def memory_ratio() -> float:
    """The memory that reading a file of 500 MB takes, over its size."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.onnx"
        nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(WEIGHTS)]
        stored = [numpy_helper.from_array(rng.random(WEIGHT, "float32"), f"w{i}") for i in range(WEIGHTS)]
        ends = [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", WEIGHT[0]])
            for name in ("v0", f"v{WEIGHTS}")
        ]
        onnx.save(helper.make_model(helper.make_graph(nodes, "large", ends[:1], ends[1:], stored)), path)
        size = path.stat().st_size
        peak = int(subprocess.check_output([sys.executable, "-c", PEAK, str(path)]))
    return peak / size
