"""What samples do not show: large convolutions, randomness, moving statistics, NaN, layouts."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft.ops  # noqa: F401
from weft.base.layout import Layout
from weft.core.interpret import final_values, run_reference
from weft.core.op import Op
from weft.core.schema import text_of
from weft.core.symbol import Variable
from weft.ops._layouts import rearrange


def run(name, *arrays, **attrs):
    op = Op.get(name)
    params = op.parse({key: text_of(value) for key, value in attrs.items()})
    return run_reference(op, params, arrays)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "size", "stride", "padding", "extent"),
    [(3, 32, 1, 7, 2, 3, 61), (32, 48, 1, 3, 1, 1, 27), (48, 48, 48, 5, 2, 2, 19)],
)
def test_large_conv2d(rng, channels, outputs, groups, size, stride, padding, extent):
    torch = oracle("torch")
    x = rng.standard_normal((2, channels, extent, extent + 3)).astype(np.float32)
    w = rng.standard_normal((outputs, channels // groups, size, size)).astype(np.float32)
    b = rng.standard_normal(outputs).astype(np.float32)
    made = run(
        "conv2d",
        x,
        w,
        b,
        channels=outputs,
        kernel_size=(size, size),
        strides=(stride, stride),
        padding=(padding, padding),
        groups=groups,
    )[0]
    said = torch.nn.functional.conv2d(*map(torch.tensor, (x, w, b)), stride, padding, 1, groups).numpy()
    assert np.abs(made - said).max() <= 5e-6 * np.abs(said).max()


def test_conv2d_in_half_precision_sums_in_float32(rng):
    x = rng.standard_normal((1, 64, 6, 6)).astype(np.float16)
    w = rng.standard_normal((4, 64, 3, 3)).astype(np.float16)
    attrs = {"channels": 4, "kernel_size": (3, 3), "use_bias": False}
    made = run("conv2d", x, w, **attrs)[0]
    exact = run("conv2d", x.astype(np.float64), w.astype(np.float64), **attrs)[0]
    assert made.dtype == np.float16
    np.testing.assert_allclose(made, exact, rtol=2e-3, atol=2e-2)


def test_moving_statistics(rng):
    x = rng.standard_normal((6, 3)).astype(np.float64)
    inputs = {
        "x": x,
        "bn_gamma": np.ones(3),
        "bn_beta": np.zeros(3),
        "bn_moving_mean": np.array([1.0, 2, 3]),
        "bn_moving_var": np.array([1.0, 4, 9]),
    }
    for training in (False, True):
        made = Op.get("batch_norm")(Variable("x"), training=training, momentum=0.75, name="bn")
        after = final_values(made, inputs)
        mean = 0.75 * inputs["bn_moving_mean"] + 0.25 * x.mean(0)
        var = 0.75 * inputs["bn_moving_var"] + 0.25 * x.var(0)
        wanted = (mean, var) if training else (inputs["bn_moving_mean"], inputs["bn_moving_var"])
        np.testing.assert_allclose(after["bn_moving_mean"], wanted[0], rtol=1e-12)
        np.testing.assert_allclose(after["bn_moving_var"], wanted[1], rtol=1e-12)


def test_effects_follow_training():
    for name, effect in (("dropout", "random"), ("batch_norm", "mutates")):
        op = Op.get(name)
        assert op.effect_of(op.parse({})) == "pure"
        assert op.effect_of(op.parse({"training": "True"})) == effect


def test_pools_keep_nan_and_infinity():
    x = np.array([[[[1, np.nan, 3, 4], [-np.inf] * 4]]], np.float32)
    y = run("max_pool2d", x, pool_size=(2, 2), strides=(2, 2))[0]
    np.testing.assert_array_equal(y, np.array([[[[np.nan, 4]]]], np.float32))
    g = np.array([[[[2, 5]]]], np.float32)
    back = run("_max_pool2d_grad", g, x, y, pool_size=(2, 2), strides=(2, 2))[0]
    assert back[0, 0].tolist() == [[0, 2, 0, 5], [0, 0, 0, 0]]


def test_resize_does_not_mix_in_infinity():
    x = np.array([[[[1, np.inf]]]], np.float32)
    made = run("resize", x, size=(1, 4))[0]  # places stand on 0, 1/2, 1, 3/2
    assert made[0, 0, 0].tolist() == [1, np.inf, np.inf, np.inf]


def test_pools_carry_blocks_along(rng):
    x = rng.standard_normal((1, 8, 5, 6)).astype(np.float32)
    plain, blocked = Layout("NCHW"), Layout("NCHW4c")
    attrs = {"pool_size": (3, 2), "strides": (2, 2), "padding": (1, 0)}
    for name in ("max_pool2d", "avg_pool2d"):
        wanted = rearrange(run(name, x, **attrs)[0], plain, blocked)
        made = run(name, np.ascontiguousarray(rearrange(x, plain, blocked)), **attrs)[0]
        np.testing.assert_array_equal(made, wanted)


def test_layouts_that_are_kept():
    blocked, nhwc = Layout("NCHW16c"), Layout("NHWC")
    undefined = [Layout()]
    pool = Op.get("max_pool2d")
    params = pool.parse({"pool_size": "(2, 2)"})
    assert pool.layout(params, [blocked], [Layout("NCHW")], undefined) == ([blocked], [blocked])
    plain = Layout("NCHW")
    assert pool.layout(params, [nhwc], [plain], undefined) == ([plain], [plain])
    norm = Op.get("batch_norm")
    last = [plain, Layout("C"), Layout("C"), *undefined * 2]
    ins, outs = norm.layout(norm.parse({}), [blocked] + undefined * 4, last, undefined * 3)
    assert [str(layout) for layout in ins] == ["NCHW16c", *["C16c"] * 4]
    assert [str(layout) for layout in outs] == ["NCHW16c", "C16c", "C16c"]


def test_rearrange_is_undone(rng):
    x = rng.standard_normal((8, 12, 3, 2))
    for name in ("HWIO", "OIHW4i8o", "OHWI2o", "IHW3iO"):
        there = rearrange(x, Layout("OIHW"), Layout(name))
        np.testing.assert_array_equal(rearrange(there, Layout(name), Layout("OIHW")), x)
    blocks = rearrange(x, Layout("OIHW"), Layout("OIHW4i8o"))
    assert blocks.shape == (1, 3, 3, 2, 4, 8)
    assert blocks[0, 2, 1, 0, 3, 5] == x[5, 11, 1, 0]
