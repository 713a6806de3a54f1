"""A model in float64: every float32 or float16 of it made wider, run by ONNX's own reference.

    python benchmarks/onnx_double.py model.onnx FOLDER 1

computes FOLDER/double0.npz and so on from FOLDER/in0.npz and so on, in the types of the model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from side_by_side import load_arrays, save_arrays

NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16)
NARROW_DTYPES = (np.float32, np.float16)


class BatchNormalization(OpRun):
    """With the statistics that are given, where ONNX's reference takes older opsets to be training."""

    op_domain = ""

    def _run(self, x, scale, bias, mean, variance, epsilon=1e-5, **_):  # type: ignore[no-untyped-def]
        across = (-1, *[1] * (x.ndim - 2))
        factor = scale / np.sqrt(variance + epsilon)
        return (x * factor.reshape(across) + (bias - mean * factor).reshape(across),)


def widen(model: onnx.ModelProto) -> None:
    """Changes the model to float64, in place."""
    for function in model.functions:
        _widen_nodes(function.node)
    _widen_graph(model.graph)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Iterator[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if attribute.name in ("to", "dtype") and attribute.i in NARROW:
                attribute.i = TensorProto.DOUBLE
            if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = np.array(attribute.f if attribute.name == "value_float" else attribute.floats, np.float64)
                attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(numbers)))


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))


def main() -> None:
    path, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    model = onnx.load(path)
    kinds = [value.type.tensor_type.elem_type for value in model.graph.output]
    widen(model)
    evaluator = ReferenceEvaluator(model, new_ops=[BatchNormalization])
    for k in range(count):
        inputs = load_arrays(folder / f"in{k}.npz")
        wide = {n: a.astype(np.float64) if a.dtype.type in NARROW_DTYPES else a for n, a in inputs.items()}
        outputs = evaluator.run(None, wide)
        arrays = [np.asarray(y, onnx.helper.tensor_dtype_to_np_dtype(kind)) for y, kind in zip(outputs, kinds)]
        save_arrays(folder / f"double{k}.npz", {str(i): array for i, array in enumerate(arrays)})
    print("true")


if __name__ == "__main__":
    main()
