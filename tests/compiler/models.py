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
    return {name: floats(rng, shape) * np.float32(0.3) for name, shape in zip(names, inferred) if name not in shapes}


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


def branches(rng, batch=2, size=9, width=16):
    """Squeezed and expanded channels, a list of features that grows, parallel branches of which one
    pools and one is joined twice; (symbol, params)."""

    def conv(data, name, channels, kernel=1):
        pads = (kernel // 2, kernel // 2)
        made = sym.conv2d(data, channels=channels, kernel_size=(kernel, kernel), padding=pads, name=name)
        return sym.relu(made)

    y = conv(sym.Variable("x"), "first", width, 3)
    squeezed = conv(y, "squeeze", width)
    parts = [conv(squeezed, "one", width), conv(squeezed, "three", 2 * width, 3)]
    features = [sym.concatenate(*parts, axis=1)]
    for number in range(3):
        joined = sym.concatenate(*features, axis=1) if number else features[0]
        narrow = conv(sym.tanh(joined * 0.5), f"narrow{number}", width)
        features.append(conv(narrow, f"new{number}", width, 3))
    y = sym.concatenate(*features, axis=1)
    pooled = sym.avg_pool2d(y, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))
    inner = sym.concatenate(conv(y, "a", width), conv(y, "b", width, 3), axis=1)
    y = sym.concatenate(conv(pooled, "pooled", width), inner, conv(y, "c", width), axis=1)
    out = sym.Group([conv(y, "last", width, 3), sym.global_avg_pool2d(y)])
    return out, with_params(out, rng, x=(batch, 3, size, size))


def agree(outputs, symbol, values, tolerance=1e-5):
    """Asserts that outputs are what the reference interpreter gives."""
    for got, expected in zip(outputs, evaluate(symbol, values), strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        scale = max(float(np.abs(expected.astype("float64")).max(initial=0)), 1e-3)
        worst = np.abs(got.astype("float64") - expected.astype("float64")).max(initial=0)
        assert worst <= tolerance * scale, f"{worst} of {scale}"
