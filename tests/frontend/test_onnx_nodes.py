"""ONNX's own test data for operators, through from_onnx and the reference interpreter.

A case passes, or is refused with Unsupported; a wrong answer or any other error fails. PASSING says
how many cases of each operator pass: the numbers may only grow.
"""

import warnings
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests

from weft.base.errors import Unsupported
from weft.core.interpret import evaluate
from weft.core.ir import topo_order
from weft.frontend import from_onnx

# Relative error that a dtype of fewer bits allows.
ROUNDING = {"float16": 2e-3, "bfloat16": 2e-2}

PASSING = {
    "Abs": 1,
    "Add": 8,
    "And": 8,
    "ArgMax": 16,
    "ArgMin": 16,
    "Attention": 39,
    "AveragePool": 14,
    "BatchNormalization": 2,
    "Bernoulli": 3,
    "BitShift": 28,
    "Cast": 8,
    "CastLike": 8,
    "Ceil": 2,
    "Celu": 3,
    "Clip": 12,
    "Concat": 12,
    "Constant": 1,
    "ConstantOfShape": 3,
    "Conv": 6,
    "ConvTranspose": 10,
    "Cos": 2,
    "Cosh": 2,
    "CumSum": 9,
    "DepthToSpace": 2,
    "DequantizeLinear": 4,
    "Div": 10,
    "Dropout": 12,
    "Einsum": 8,
    "Elu": 3,
    "Equal": 8,
    "Erf": 1,
    "Exp": 2,
    "Expand": 2,
    "EyeLike": 3,
    "Flatten": 9,
    "Floor": 2,
    "Gather": 4,
    "GatherElements": 3,
    "GatherND": 2,
    "Gelu": 4,
    "Gemm": 11,
    "GlobalAveragePool": 2,
    "GlobalMaxPool": 2,
    "Greater": 8,
    "GreaterOrEqual": 8,
    "GroupNormalization": 2,
    "HardSigmoid": 3,
    "HardSwish": 1,
    "Hardmax": 7,
    "Identity": 1,
    "InstanceNormalization": 2,
    "IsInf": 4,
    "IsNaN": 2,
    "LRN": 2,
    "LayerNormalization": 19,
    "LeakyRelu": 3,
    "Less": 8,
    "LessOrEqual": 8,
    "Log": 2,
    "LogSoftmax": 7,
    "LpNormalization": 6,
    "MatMul": 7,
    "Max": 14,
    "MaxPool": 13,
    "Mean": 3,
    "MeanVarianceNormalization": 1,
    "Min": 14,
    "Mish": 1,
    "Mod": 19,
    "Mul": 9,
    "Neg": 2,
    "Not": 3,
    "OneHot": 6,
    "Or": 8,
    "PRelu": 2,
    "Pad": 6,
    "Pow": 12,
    "QuantizeLinear": 4,
    "RMSNormalization": 19,
    "Range": 4,
    "Reciprocal": 2,
    "ReduceL1": 9,
    "ReduceL2": 9,
    "ReduceLogSum": 5,
    "ReduceLogSumExp": 9,
    "ReduceMax": 11,
    "ReduceMean": 8,
    "ReduceMin": 10,
    "ReduceProd": 9,
    "ReduceSum": 12,
    "ReduceSumSquare": 9,
    "Relu": 1,
    "Reshape": 10,
    "Resize": 15,
    "ReverseSequence": 3,
    "Round": 1,
    "ScatterElements": 3,
    "ScatterND": 1,
    "Selu": 3,
    "Shape": 11,
    "Shrink": 2,
    "Sigmoid": 2,
    "Sign": 1,
    "Sin": 2,
    "Sinh": 2,
    "Size": 2,
    "Slice": 8,
    "Softmax": 7,
    "Softplus": 2,
    "Softsign": 2,
    "SpaceToDepth": 4,
    "Split": 16,
    "Sqrt": 2,
    "Squeeze": 2,
    "Sub": 9,
    "Sum": 3,
    "Swish": 1,
    "Tan": 2,
    "Tanh": 2,
    "ThresholdedRelu": 3,
    "Tile": 2,
    "Transpose": 7,
    "Trilu": 18,
    "Unsqueeze": 7,
    "Upsample": 1,
    "Where": 2,
    "Xor": 8,
    "composed": 370,
}


def operator(case):
    """The operator that a case is about; those written out as others are one group."""
    nodes = case.model.graph.node
    return nodes[0].op_type if len(nodes) == 1 and "_expanded" not in case.name else "composed"


def with_constants(model, names, values, kept):
    """The model with all inputs but the first few turned into initialisers."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for name, value in list(zip(names, values))[kept:]:
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    del made.graph.input[kept:]
    return made


def imported(model, names, values):
    """The symbol, its parameters and inputs; what must be known at import is made a constant."""
    for kept in (len(names), 1, 0):
        shapes = {name: np.shape(value) for name, value in list(zip(names, values))[:kept]}
        try:
            symbol, params = from_onnx(with_constants(model, names, values, kept), shapes)
        except Unsupported as error:
            if "only known when the model runs" not in error.what or kept == 0:
                raise
        else:
            used = set(symbol.list_input_names())
            inputs = {n: np.asarray(v) for n, v in zip(names[:kept], values) if n in used}
            return symbol, {**params, **inputs}
    raise AssertionError("unreachable")


def as_array(value):
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def check(case, inputs, expected):
    inputs, expected = ([as_array(value) for value in values] for values in (inputs, expected))
    names = [item.name for item in case.model.graph.input]
    symbol, values = imported(case.model, names, inputs)
    results = evaluate(symbol, values)
    assert len(results) == len(expected)
    for made, wanted in zip(results, map(np.asarray, expected)):
        assert made.shape == wanted.shape
        assert made.dtype == wanted.dtype
        if is_random(symbol) or case.name.startswith("test_training_dropout"):
            continue
        if wanted.dtype == object:
            assert made.tolist() == wanted.tolist()
            continue
        np.testing.assert_allclose(
            made.astype(np.float64),
            wanted.astype(np.float64),
            rtol=max(case.rtol, ROUNDING.get(str(wanted.dtype), 0)),
            atol=max(case.atol, 1e-6, 0.1 * ROUNDING.get(str(wanted.dtype), 0)),
        )


def is_random(symbol):
    """Whether numbers are drawn, which nobody's data can say; test_onnx_random.py does."""
    nodes = [node for node in topo_order(symbol.outputs) if node.op is not None]
    return any(node.op.effect_of(node.params) == "random" for node in nodes)


def is_plain(case):
    """Whether all inputs and outputs are tensors."""
    values = [value for data in case.data_sets for part in data for value in part]
    return all(hasattr(v, "dtype") or isinstance(v, onnx.TensorProto) for v in values)


@pytest.mark.slow
def test_node_data():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if is_plain(case)]
    passed, wrong = Counter(), []
    for case in cases:
        try:
            for inputs, expected in case.data_sets:
                check(case, inputs, expected)
            passed[operator(case)] += 1
        except Unsupported:
            continue
        except Exception as error:
            wrong.append(f"{case.name}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
    fewer = {op: (passed[op], count) for op, count in PASSING.items() if passed[op] < count}
    assert not fewer, f"(now, before): {fewer}"
    assert passed.total() >= sum(PASSING.values()) > 1000
