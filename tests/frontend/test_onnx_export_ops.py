"""Every row of the exporter: the samples of its operator give the same in ONNX Runtime as by the
operator's reference, and again after the model is read back."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from oracles import oracle

from weft.base.dtype import dtype_name, is_float
from weft.base.errors import Unsupported
from weft.core.interpret import evaluate, run_reference
from weft.core.ir import topo_order
from weft.core.op import Op
from weft.core.schema import text_of
from weft.core.symbol import Symbol, Variable, apply_op
from weft.frontend import from_mxnet, from_onnx, to_onnx
from weft.frontend.onnx.writing import find_writer, written_ops

OPS = Path(__file__).parent.parent / "ops"
sys.path.insert(0, str(OPS))
for _path in sorted(OPS.glob("samples_*.py")):
    importlib.import_module(_path.stem)

from sample import all_samples  # noqa: E402
from test_mxnet_probes import INPUTS, PROBES  # noqa: E402

# What ONNX leaves to the runtime: where NaN stands among numbers.
NAN_ANYWHERE = {"argsort", "max", "min", "sort", "topk"}
# Written with a loop, or as a recurrent layer: these are not read back.
NOT_READ_BACK = {"non_max_suppression", "rnn"}
# Operators of which some samples are refused, because ONNX or its runtimes cannot say them.
REFUSES = {
    "__pow_scalar__",
    "__rpow_scalar__",
    "batch_norm",
    "broadcast_pow",
    "conv2d",
    "conv2d_transpose",
    "dequantize",
    "dropout",
    "elemwise_pow",
    "isfinite",
    "isinf",
    "isnan",
    "quantize",
    "rnn",
}
# Volumes, and bits of integers.
REFUSES_BEFORE_20 = {"grid_sample", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"}
# Operators with subgraphs, which have no samples; MXNet's own are converted below.
WITH_SUBGRAPHS = {"cond", "scan", "while_loop"}
# How many of MXNet's probes can be written as ONNX: the number may only grow.
CONVERTED = 440


def session(model):
    ort = oracle("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    data = model.SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def ort_run(model, inputs):
    """The outputs; None if the runtime lacks a kernel for these dtypes."""
    ort = oracle("onnxruntime")
    try:
        made = session(model)
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    return made.run(None, {item.name: inputs[item.name] for item in made.get_inputs()})


def exported(op, sample, opset):
    """The model of one operator, and its inputs by name."""
    inputs = {f"v{i}": array for i, array in enumerate(sample.inputs)}
    variables = tuple(Variable(name, shape=x.shape, dtype=dtype_name(x.dtype)) for name, x in inputs.items())
    symbol = apply_op(Symbol, op, op.name, variables, {**sample.attrs, "name": "y"})
    shapes = {name: x.shape for name, x in inputs.items()}
    dtypes = {name: x.dtype for name, x in inputs.items()}
    return to_onnx(symbol, {}, shape=shapes, dtype=dtypes, opset=opset), inputs


def expected_of(op, sample):
    params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
    with np.errstate(all="ignore"):
        return run_reference(op, params, list(sample.inputs))


def check(outputs, expected, what):
    for output, wanted in zip(outputs, expected):
        assert output.shape == wanted.shape, what
        assert output.dtype == wanted.dtype, what
        wide = wanted.astype("float64")
        scale = max(1.0, np.abs(np.nan_to_num(wide, posinf=0, neginf=0)).max(initial=0))
        tolerance = 2e-3 if wanted.dtype.itemsize == 2 else 2e-5
        np.testing.assert_allclose(output.astype("float64"), wide, rtol=tolerance, atol=tolerance * scale, err_msg=what)


@pytest.mark.parametrize("name", [name for name in written_ops() if name not in WITH_SUBGRAPHS])
@pytest.mark.parametrize("opset", [17, 21])
def test_row(name, opset):
    op, agreed, refused = Op.get(name), 0, 0
    for sample in all_samples(name):
        floats = [x for x in sample.inputs if is_float(x.dtype)]
        if name in NAN_ANYWHERE and any(np.isnan(x).any() for x in floats):
            continue
        try:
            model, inputs = exported(op, sample, opset)
        except Unsupported:
            refused += 1
            continue
        outputs = ort_run(model, inputs)
        if outputs is None:
            continue
        expected = expected_of(op, sample)
        check(outputs, expected, f"ONNX Runtime on {sample}")
        agreed += 1
        if name not in NOT_READ_BACK:
            symbol, params = from_onnx(model)
            given = {name: inputs[name] for name in symbol.list_input_names() if name in inputs}
            with np.errstate(all="ignore"):
                check(evaluate(symbol, {**params, **given}), expected, f"read back: {sample}")
    assert agreed, f"no sample of {name} ran"
    assert bool(refused) == (name in REFUSES or (opset < 20 and name in REFUSES_BEFORE_20))


def _without_writer(symbol):
    ops = {node.op.name for node in topo_order(symbol.outputs) if node.op is not None}
    return sorted(name for name in ops if find_writer(name) is None)


def _imported(name):
    """The symbol and parameters of a probe, and its inputs."""
    probe = PROBES[name]
    arrays = {key[3:]: value for key, value in probe.items() if key.startswith("in/")}
    inputs = {key: value for key, value in arrays.items() if key in INPUTS}
    params = {key: value for key, value in arrays.items() if key not in INPUTS}
    shapes = {key: value.shape for key, value in inputs.items()}
    return *from_mxnet(str(probe["json"]), params, shape=shapes), inputs


def test_most_of_mxnet_can_be_written():
    assert sum(not _without_writer(_imported(name)[0]) for name in PROBES) >= CONVERTED


@pytest.mark.parametrize("name", PROBES)
def test_mxnet_operator(name):
    """From MXNet's file to ONNX Runtime: what MXNet itself gave."""
    symbol, params, inputs = _imported(name)
    missing = _without_writer(symbol)
    if missing:
        with pytest.raises(Unsupported, match="cannot be written as ONNX: " + ", ".join(missing)):
            to_onnx(symbol, params)
        return
    model = to_onnx(symbol, params)
    probe = PROBES[name]
    expected = [probe[f"out/{i}"] for i in range(len(probe)) if f"out/{i}" in probe]
    outputs = ort_run(model, inputs)
    assert outputs is not None
    check(outputs, expected, name)
