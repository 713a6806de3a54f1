"""Whole models with the outputs that the real MXNet gave; WEFT_FIXTURES names their folder."""

import os
from pathlib import Path

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.core.interpret import evaluate
from weft.frontend import from_mxnet
from weft.lower.cpu import layouts
from weft.tools.convert import convert_model

FOLDERS = (
    "squeezenet1.1 mobilenet0.25 gcv_cifar_resnet20_v1 nlp_bert_tiny nlp_awd_lstm_600 "
    "nlp_transformer_enc rnn_gru_bi_TNC rnn_lstm_bi_TNC rnn_lstm_uni_NTC rnn_rnn_tanh_uni_TNC"
).split()
MODELS = {name: (f"{name}/model", f"{name}/") for name in FOLDERS}
MODELS |= {f"det{i}": (f"real_mtcnn/det{i}", f"real_mtcnn/det{i}_") for i in range(1, 5)}


def _loaded(name):
    """The symbol file, inputs by name, and the outputs that MXNet gave."""
    if "WEFT_FIXTURES" not in os.environ:
        pytest.skip("WEFT_FIXTURES is not set: it names the folder that holds mxnet/")
    root = Path(os.environ["WEFT_FIXTURES"]) / "mxnet"
    model, files = MODELS[name]
    inputs = [np.load(path) for path in _numbered(root / f"{files}input")]
    names = ["data"] if len(inputs) == 1 else [f"data{i}" for i in range(len(inputs))]
    expected = [np.load(path) for path in _numbered(root / f"{files}output")]
    return root / f"{model}-symbol.json", dict(zip(names, inputs)), expected


def _numbered(stem):
    """STEM.npy, or STEM_0.npy, STEM_1.npy..."""
    found = [stem.with_name(f"{stem.name}_{i}.npy") for i in range(100)]
    return [path for path in [stem.with_name(f"{stem.name}.npy"), *found] if path.exists()]


def _check(outputs, expected):
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        assert output.shape == wanted.shape
        assert output.dtype == wanted.dtype
        assert np.abs(output - wanted).max() < 1e-4 * np.abs(wanted).max()


def _shapes(inputs):
    return {name: array.shape for name, array in inputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_reference_matches_mxnet(name):
    path, inputs, expected = _loaded(name)
    symbol, params = from_mxnet(path, shape=_shapes(inputs))
    _check(evaluate(symbol, {**params, **inputs}), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_native_code_matches_mxnet(name):
    path, inputs, expected = _loaded(name)
    _check(weft.compile(path, shape=_shapes(inputs)).run(inputs), expected)


def _relative_error(outputs, exact):
    """The largest root mean square error of an output, relative to the output's own."""
    errors = [((y - e) ** 2).mean() / (e**2).mean() for y, e in zip(outputs, exact)]
    return max(errors) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet1.1", "gcv_cifar_resnet20_v1", "det1", "det3"])
def test_winograd_is_nearly_as_exact_as_the_direct_form(name, monkeypatch):
    """Against the reference in float64."""
    path, inputs, _ = _loaded(name)
    symbol, params = from_mxnet(path, shape=_shapes(inputs))
    given = {**{key: value.numpy() for key, value in params.items()}, **inputs}
    exact = evaluate(symbol, {key: value.astype("float64") for key, value in given.items()})
    assert all(value.dtype == np.float64 for value in exact)
    errors = []
    for winograd in (True, False):
        if not winograd:
            monkeypatch.setattr(layouts, "winograd_tile", lambda *facts: None)
        model = weft.compile(path, shape=_shapes(inputs))
        used = any("_winograd_conv2d" in kernel.operators for kernel in model.report().kernels)
        assert used == winograd
        errors.append(_relative_error(model.run(inputs), exact))
    assert errors[0] <= 2.5 * errors[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_converted_to_onnx(name, tmp_path):
    """`weft convert`, then ONNX Runtime: what MXNet gave, from the parameters of the file."""
    path, inputs, expected = _loaded(name)
    out = tmp_path / "model.onnx"
    convert_model(path, out, None, _shapes(inputs), 17)
    session = oracle("onnxruntime").InferenceSession(str(out))
    given = {item.name: inputs[item.name] for item in session.get_inputs()}
    _check(session.run(None, given), expected)
