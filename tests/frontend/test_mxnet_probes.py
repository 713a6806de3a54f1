"""Single operators against outputs of the real MXNet 1.9.1, see mxnet_probes/make.py."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.interpret import evaluate
from weft.frontend import from_mxnet

INPUTS = ("x", "y", "z")


def _probes():
    made = defaultdict(dict)
    with np.load(Path(__file__).with_name("mxnet_probes.npz")) as data:
        for key in data.files:
            name, _, rest = key.partition("/")
            made[name][rest] = data[key]
    return made


PROBES = _probes()


def _imported(name):
    """The symbol, its parameters, the inputs, and the outputs that MXNet gave."""
    probe = PROBES[name]
    arrays = {key.removeprefix("in/"): value for key, value in probe.items() if "in/" in key}
    inputs = {key: value for key, value in arrays.items() if key in INPUTS}
    params = {key: value for key, value in arrays.items() if key not in INPUTS}
    shapes = {key: value.shape for key, value in inputs.items()}
    symbol, made = from_mxnet(str(probe["json"]), params, shape=shapes)
    expected = [probe[f"out/{i}"] for i in range(len(probe)) if f"out/{i}" in probe]
    return symbol, made, inputs, expected


def _check(outputs, expected):
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        assert output.shape == wanted.shape
        assert output.dtype == wanted.dtype
        scale = max(1.0, np.abs(np.nan_to_num(wanted.astype("float64"))).max(initial=0))
        np.testing.assert_allclose(output, wanted, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("name", PROBES)
def test_reference_gives_what_mxnet_gave(name):
    symbol, params, inputs, expected = _imported(name)
    _check(evaluate(symbol, {**params, **inputs}), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES)
def test_native_code_gives_what_mxnet_gave(name):
    symbol, params, inputs, expected = _imported(name)
    model = weft.compile((symbol, params))
    _check(model.run({spec.name: inputs[spec.name] for spec in model.inputs}), expected)
