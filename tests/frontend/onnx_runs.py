"""One ONNX graph run every way there is: by weft's reference, compiled at levels 0 and 3, and by
ONNX Runtime."""

import numpy as np
import onnx
from onnx import helper, numpy_helper
from oracles import oracle

import weft
from weft.core.interpret import evaluate
from weft.frontend import from_onnx

LEVELS = (0, 3)


def model_of(nodes, inputs, outputs, constants=None, opset=21):
    """`inputs` and `constants` map names to arrays; the dtypes of outputs are left open."""
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        given,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), n) for n, x in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def weft_runs(model, inputs, levels=LEVELS):
    """(how, outputs) by the reference and by machine code."""
    symbol, params = from_onnx(model, {name: x.shape for name, x in inputs.items()})
    read = set(symbol.list_input_names())
    given = {name: x for name, x in inputs.items() if name in read}
    with np.errstate(all="ignore"):
        runs = [("reference", evaluate(symbol, {**params, **given}))]
    shapes = {name: x.shape for name, x in given.items()}
    for level in levels:
        with weft.compile((symbol, params), shape=shapes, opt_level=level) as compiled:
            runs.append((f"level {level}", compiled.run(given)))
    return runs


def onnxruntime_run(model, inputs):
    """What ONNX Runtime says, operator by operator: its own rewriting of graphs is off."""
    ort = oracle("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def one_node(op_type, *arrays, constants=(), opset=21, **attrs):
    """A model of one node, and its inputs; None among the arrays is an input left out. The last
    ones may be constants."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate([*arrays, *constants])]
    inputs = {n: np.asarray(x) for n, x in zip(names, arrays) if x is not None}
    known = dict(zip(names[len(arrays) :], constants))
    node = helper.make_node(op_type, names, ["y"], **attrs)
    return model_of([node], inputs, ["y"], {n: x for n, x in known.items() if n}, opset), inputs
