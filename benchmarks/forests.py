"""A forest of 1,000 trees in weft and in ONNX Runtime, in turns in one process.

python benchmarks/forests.py        one thread
python benchmarks/forests.py 2      two
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

import weft

TREES = 1000
FEATURES = 30
ROUNDS = 7
SECONDS = 0.1  # of each contender in a round


def forest(seed: int, rows: int = 400, smallest: int = 3) -> ModelProto:
    """Trees that split random rows at the value of one of them until few are left, as a random forest does."""
    rng = np.random.default_rng(seed)
    names = "treeids nodeids featureids values modes truenodeids falsenodeids".split()
    nodes: dict[str, list[Any]] = {name: [] for name in names}
    leaves: list[tuple[int, int]] = []
    for tree in range(TREES):
        data = rng.standard_normal((rows, FEATURES)).astype(np.float32)
        todo, count = [(0, np.arange(rows))], 1
        while todo:
            node, here = todo.pop()
            feature = int(rng.integers(FEATURES))
            column = data[here, feature]
            value = float(column[rng.integers(len(column))])
            below = column <= value
            is_leaf = len(here) < 2 * smallest or below.all()
            row = (tree, node, feature, value, "LEAF" if is_leaf else "BRANCH_LEQ", count, count + 1)
            for name, item in zip(names, row):
                nodes[name].append(item)
            if is_leaf:
                leaves.append((tree, node))
            else:
                todo += [(count, here[below]), (count + 1, here[~below])]
                count += 2
    attrs = {f"nodes_{name}": column for name, column in nodes.items()} | {"n_targets": 1}
    attrs |= {"target_treeids": [tree for tree, _ in leaves], "target_nodeids": [node for _, node in leaves]}
    attrs |= {"target_ids": [0] * len(leaves), "target_weights": rng.standard_normal(len(leaves)).tolist()}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", FEATURES])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 1])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "forest", [given], [made]), opset_imports=opsets, ir_version=9)


def measure(threads: int = 1) -> Iterator[tuple[int, float, float]]:
    """(batch, seconds of weft, seconds of ONNX Runtime), the best of some rounds."""
    import onnxruntime

    model = forest(0)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for batch in (1, 1000):
        x = np.random.default_rng(1).standard_normal((batch, FEATURES)).astype(np.float32)
        compiled = weft.compile(model, shape={"x": x.shape}, threads=threads)
        runs = [lambda c=compiled, x=x: c.run({"x": x})[0], lambda x=x: session.run(None, {"x": x})[0]]
        np.testing.assert_allclose(*(run() for run in runs), rtol=1e-3, atol=1e-3)
        best = [min(times) for times in zip(*([_seconds(run) for run in runs] for _ in range(ROUNDS)))]
        yield batch, best[0], best[1]


def _seconds(run: Callable[[], Any]) -> float:
    """Of one run, of as many as fit."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        run()
        count += 1
    return (time.perf_counter() - begin) / count


def main() -> None:
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    for batch, ours, theirs in measure(threads):
        print(f"{TREES} trees, batch {batch}: {ours * 1e6:.0f} us, ONNX Runtime {theirs * 1e6:.0f} us", flush=True)


if __name__ == "__main__":
    main()
