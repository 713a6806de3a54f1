"""The nine networks that benchmarks/export_networks.py writes; WEFT_NETWORKS names their folder."""

import os
from pathlib import Path

import numpy as np
import pytest

from weft.core.interpret import evaluate
from weft.frontend import from_onnx

NETWORKS = ("resnet50 mobilenet_v2 vgg16 densenet121 efficientnet_b0 squeezenet1_1 inception_v3 vit_b_16 bert").split()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_reference_matches_pytorch(name):
    if "WEFT_NETWORKS" not in os.environ:
        pytest.skip("WEFT_NETWORKS is not set: benchmarks/export_networks.py FOLDER makes them")
    folder = Path(os.environ["WEFT_NETWORKS"])
    symbol, params = from_onnx(folder / f"{name}.onnx")
    data = np.load(folder / f"{name}.npz")
    [made] = evaluate(symbol, {**params, "input": data["x"]})
    assert made.dtype == data["y"].dtype
    assert np.abs(made - data["y"]).max() < 1e-4 * np.abs(data["y"]).max()
