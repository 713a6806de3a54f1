"""Small models, their inputs, and what the reference interpreter says of them."""

from __future__ import annotations

import numpy as np

from weft import symbol as sym
from weft.compiler.graph_util import infer_shape
from weft.core.interpret import evaluate

LEVELS = (0, 1, 2, 3)


def floats(rng, shape, dtype="float32"):
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def with_params(symbol, rng, **shapes):
    """Random parameters for all inputs but those whose shapes are given."""
    names = symbol.list_input_names()
    inferred, _ = infer_shape(symbol, **shapes)
    return {
        name: floats(rng, shape) * np.float32(0.3)
        for name, shape in zip(names, inferred)
        if name not in shapes
    }


def convolutional(rng, batch=2, size=9, channels=3):
    """Convolutions with batch norms, a shortcut, pooling and a classifier; (symbol, params)."""
    x = sym.Variable("x")
    y = sym.conv2d(x, channels=5, kernel_size=(3, 3), padding=(1, 1), name="c1")
    y = sym.relu(sym.batch_norm(y, name="bn"))
    z = sym.conv2d(y, channels=5, kernel_size=(3, 3), padding=(1, 1), name="c2") + y
    z = sym.max_pool2d(z, pool_size=(2, 2), strides=(2, 2))
    out = sym.softmax(sym.dense(sym.flatten(z), units=7, name="fc"))
    params = with_params(out, rng, x=(batch, channels, size, size))
    params["bn_moving_var"] = np.abs(params["bn_moving_var"]) + 0.5
    return out, params


def agree(outputs, symbol, values, tolerance=1e-5):
    """Asserts that outputs are what the reference interpreter gives."""
    for got, expected in zip(outputs, evaluate(symbol, values), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        scale = max(float(np.abs(expected.astype("float64")).max(initial=0)), 1e-3)
        worst = np.abs(got.astype("float64") - expected.astype("float64")).max(initial=0)
        assert worst <= tolerance * scale, f"{worst} of {scale}"
