"""Numbers along height and width: one alone stands for both, and other counts are refused."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base.errors import InvalidValue
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.schema import EXTENT_SIDES, PADS, SIDES, fields_of, parse_field
from weft.ops import OWN

FIELDS = [
    (op.name, field)
    for op in weft.list_ops()
    if op.name in OWN and isinstance(op.parser, type)
    for field in fields_of(op.parser)
    if field.kind in (SIDES, PADS, EXTENT_SIDES)
]
CONV = {"channels": 16, "kernel_size": 3, "use_bias": False}
CALLS = {  # operator, attributes with single ints, the same as pairs
    "conv2d": (
        {**CONV, "strides": 2, "padding": 1, "dilation": 2},
        {**CONV, "kernel_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "dilation": (2, 2)},
    ),
    "conv2d_transpose": (
        {**CONV, "strides": 3, "padding": 1, "output_padding": 2},
        {**CONV, "kernel_size": (3, 3), "strides": (3, 3), "padding": (1, 1), "output_padding": (2, 2)},
    ),
    "max_pool2d": (
        {"pool_size": 3, "strides": 2, "padding": 1, "dilation": 2},
        {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "dilation": (2, 2)},
    ),
    "avg_pool2d": (
        {"pool_size": 3, "strides": 2, "padding": 1},
        {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)},
    ),
    "adaptive_avg_pool2d": ({"output_size": 3}, {"output_size": (3, 3)}),
    "resize": ({"size": 5}, {"size": (5, 5)}),
}


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", CALLS)
def test_one_int_is_a_pair(name, level):
    (single, pairs), rng = CALLS[name], np.random.default_rng(0)
    op, x = Op.get(name), rng.normal(size=(2, 16, 11, 12)).astype("float32")
    weights = {}
    if "channels" in single:
        weights = {"w": rng.normal(size=(16, 16, 3, 3)).astype("float32")}
    inputs = [sym.Variable(key) for key in ("x", *weights)]
    [expected] = evaluate(op(*inputs, **pairs), {"x": x, **weights})
    with weft.compiler.build_config(opt_level=level):
        model = weft.compile(op(*inputs, **single), shape={"x": x.shape}, params=weights)
    np.testing.assert_allclose(model(x)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("field", [f for _, f in FIELDS], ids=[f"{n}.{f.name}" for n, f in FIELDS])
def test_counts(field):
    assert parse_field(field, "2") == parse_field(field, "(2,)") == (2, 2)
    assert parse_field(field, "(2, 3)") == (2, 3)
    wrong = ["()", "(1, 2, 3)", "(1, 2, 3, 4, 5)"] + (["(1, 2, 3, 4)"] if field.kind is not PADS else [])
    for text in wrong:
        with pytest.raises(InvalidValue, match=field.name):
            parse_field(field, text)


def test_every_window_is_there():
    names = {field.name for _, field in FIELDS}
    assert names >= {
        "kernel_size",
        "strides",
        "padding",
        "dilation",
        "pool_size",
        "output_padding",
        "output_size",
        "pooled_size",
        "size",
    }
