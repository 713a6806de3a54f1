"""Operands of which only one has a layout that the compiler may change."""

import numpy as np
import pytest

import weft
from weft import symbol as S
from weft.core.interpret import evaluate


def _convolution(x, name):
    return S.conv2d(x, channels=32, kernel_size=(3, 3), padding=(1, 1), name=name)


def _flat(y):
    """The same elements in no known layout."""
    return S.reshape(y, shape=(1, 32, 6, 6))


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: S.elemwise_mul(a, b),
        lambda a, b: S.elemwise_mul(b, a),
        lambda a, b: S.elemwise_sum(a, b, num_args=2),
        lambda a, b: S.elemwise_sum(b, a, num_args=2),
        lambda a, b: S.concatenate(a, b, axis=1),
        lambda a, b: S.concatenate(b, a, axis=1),
    ],
)
def test_a_convolution_beside_something_reshaped(join):
    rng = np.random.default_rng(3)
    x, y = S.Variable("x", shape=(1, 16, 6, 6)), S.Variable("y", shape=(1, 32 * 36))
    weights = {
        "a_weight": rng.normal(size=(32, 16, 3, 3)),
        "a_bias": rng.normal(size=32),
        "b_weight": rng.normal(size=(32, 32, 3, 3)),
        "b_bias": rng.normal(size=32),
    }
    params = {name: array.astype("float32") for name, array in weights.items()}
    deep = _convolution(S.relu(_convolution(x, "a")), "b")
    made = S.relu(join(deep, _flat(y)))
    inputs = {
        "x": rng.normal(size=(1, 16, 6, 6)).astype("float32"),
        "y": rng.normal(size=(1, 32 * 36)).astype("float32"),
    }
    [native] = weft.compile((made, params)).run(inputs)
    [expected] = evaluate(made, {**params, **inputs})
    np.testing.assert_allclose(native, expected, rtol=0, atol=5e-5 * np.abs(expected).max())
