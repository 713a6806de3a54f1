"""Convolutions, pools and products compiled at full optimisation, against PyTorch: all strides,
dilations, groups and paddings, sizes that fill no vector, batches, the three instruction sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lower.accuracy import CONTRACT, agrees, targets
from oracles import oracle

import weft
from weft.base.cpu_target import host
from weft.lower.cpu.layouts import winograd_tile

rng = np.random.default_rng(7)


def check(symbol, values, expected, target=None, threads=1):
    data = values.pop("x")
    model = weft.compile((symbol, values), shape={"x": data.shape}, target=target or host(), threads=threads)
    found = model.run({"x": data})[0]
    assert not model.report().host_steps
    agrees(found, expected)
    return model


@st.composite
def convolutions(draw):
    groups = draw(st.sampled_from([1, 1, 1, 2, 4, "depthwise"]))
    block = draw(st.sampled_from([1, 3, 8, 16, 24]))
    if groups == "depthwise":
        inputs = outputs = groups = block * draw(st.integers(1, 3))
    else:
        inputs = groups * block * draw(st.integers(1, 2))
        outputs = groups * draw(st.sampled_from([1, 5, 8, 16, 32, 48]))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    padding = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    extents = [draw(st.integers(max(r - 2 * p, 1), 19)) for r, p in zip(reach, padding)]
    return {
        "batch": draw(st.integers(1, 3)),
        "inputs": inputs,
        "outputs": outputs,
        "groups": groups,
        "kernel": kernel,
        "strides": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "dilation": dilation,
        "padding": padding,
        "extents": extents,
        "bias": draw(st.booleans()),
        "residual": draw(st.booleans()),
        "isa": draw(st.integers(0, 2)),
    }


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_any_convolution_agrees_with_torch(case):
    torch = oracle("torch")
    sym = weft.symbol
    x = rng.standard_normal((case["batch"], case["inputs"], *case["extents"])).astype("f")
    w = rng.standard_normal((case["outputs"], case["inputs"] // case["groups"], *case["kernel"])).astype("f")
    values = {"x": x, "c_weight": w}
    if case["bias"]:
        values["c_bias"] = rng.standard_normal(case["outputs"]).astype("f")
    made = sym.conv2d(
        sym.Variable("x"),
        name="c",
        channels=case["outputs"],
        kernel_size=case["kernel"],
        strides=case["strides"],
        padding=case["padding"],
        dilation=case["dilation"],
        groups=case["groups"],
        use_bias=case["bias"],
    )
    tensors = [torch.tensor(values[k]) if k in values else None for k in ("x", "c_weight", "c_bias")]
    expected = torch.nn.functional.conv2d(
        *tensors, stride=case["strides"], padding=case["padding"], dilation=case["dilation"], groups=case["groups"]
    )
    if case["residual"]:
        values["r"] = rng.standard_normal(tuple(expected.shape)).astype("f")
        made = sym.relu(made + sym.Variable("r"))
        expected = torch.relu(expected + torch.tensor(values["r"]))
    known = targets()
    check(made, values, expected.numpy(), known[case["isa"] % len(known)])


@pytest.mark.parametrize("extent", [13, 16, 28])
@pytest.mark.parametrize("channels", [(32, 32), (64, 48)])
@pytest.mark.parametrize("batch", [1, 2])
def test_winograd_agrees_with_torch(extent, channels, batch):
    torch = oracle("torch")
    sym, (inputs, outputs) = weft.symbol, channels
    x = rng.standard_normal((batch, inputs, extent, extent)).astype("f")
    values = {
        "x": x,
        "c_weight": rng.standard_normal((outputs, inputs, 3, 3)).astype("f"),
        "c_bias": rng.standard_normal(outputs).astype("f"),
        "r": rng.standard_normal((batch, outputs, extent, extent)).astype("f"),
    }
    conv = sym.conv2d(sym.Variable("x"), name="c", channels=outputs, kernel_size=(3, 3), padding=1)
    made = sym.leaky_relu(conv + sym.Variable("r"), alpha=0.1)
    expected = torch.nn.functional.leaky_relu(
        torch.nn.functional.conv2d(
            *(torch.tensor(values[k], dtype=torch.float64) for k in ("x", "c_weight", "c_bias")), padding=1
        )
        + torch.tensor(values["r"]),
        0.1,
    ).numpy()
    for target in targets():
        params = conv.outputs[0].node.params
        lanes = target.lanes(np.dtype("float32"))
        layout = f"NCHW{lanes}c"
        tile = winograd_tile(params, x.shape, {"layout": layout, "out_layout": layout}, target)
        model = check(made, dict(values), expected, target)
        used = any("_winograd_conv2d" in kernel.operators for kernel in model.report().kernels)
        assert used == (tile is not None and inputs % lanes == outputs % lanes == 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 33), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.integers(0, 2))
def test_products_with_packed_weights_agree_with_torch(rows, inner, columns, bias, isa):
    torch = oracle("torch")
    sym = weft.symbol
    values = {
        "x": rng.standard_normal((2, rows, inner)).astype("f"),
        "d_weight": rng.standard_normal((columns, inner)).astype("f"),
    }
    if bias:
        values["d_bias"] = rng.standard_normal(columns).astype("f")
    made = sym.dense(sym.Variable("x"), name="d", units=columns, use_bias=bias)
    expected = torch.nn.functional.linear(
        *(torch.tensor(values[k]) if k in values else None for k in ("x", "d_weight", "d_bias"))
    ).numpy()
    known = targets()
    check(made, values, expected, known[isa % len(known)])


def run_with_nans_in_memory(model, data):
    """Two runs, the second in memory that the first used and that NaNs fill."""
    first = model.run({"x": data})[0]
    for arena in model._whole.last._loaded.arenas._idle:
        arena.memory.numpy().view("float32")[:] = np.nan
    second = model.run({"x": data})[0]
    assert first.tobytes() == second.tobytes()
    return second


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
def test_convolutions_write_into_the_padded_image_of_the_next(target):
    torch = oracle("torch")
    sym, conv = weft.symbol, torch.nn.functional.conv2d
    x = rng.standard_normal((2, 5, 15, 13)).astype("f")
    values = {
        "a_weight": rng.standard_normal((32, 5, 1, 1)).astype("f"),
        "a_bias": rng.standard_normal(32).astype("f"),
        "b_weight": rng.standard_normal((32, 1, 3, 3)).astype("f"),
        "b_bias": rng.standard_normal(32).astype("f"),
        "c_weight": rng.standard_normal((48, 32, 5, 3)).astype("f"),
        "c_bias": rng.standard_normal(48).astype("f"),
    }
    y = sym.relu(sym.conv2d(sym.Variable("x"), name="a", channels=32, kernel_size=(1, 1)))
    y = sym.conv2d(y, name="b", channels=32, kernel_size=(3, 3), padding=1, strides=(2, 2), groups=32)
    y = sym.conv2d(sym.tanh(y), name="c", channels=48, kernel_size=(5, 3), padding=(2, 1))
    model = weft.compile((y, values), shape={"x": x.shape}, target=target)
    t = {key: torch.tensor(value) for key, value in values.items()}
    z = torch.relu(conv(torch.tensor(x), t["a_weight"], t["a_bias"]))
    z = torch.tanh(conv(z, t["b_weight"], t["b_bias"], stride=2, padding=1, groups=32))
    z = conv(z, t["c_weight"], t["c_bias"], padding=(2, 1)).numpy()
    found = run_with_nans_in_memory(model, x)
    assert np.abs(found - z).max() <= CONTRACT * np.abs(z).max()
    assert model.report().pad_copies == 0


def test_channels_that_fill_no_vector_are_cut_off_again():
    torch = oracle("torch")
    sym = weft.symbol
    x = rng.standard_normal((1, 32, 6, 5)).astype("f")
    w, b = rng.standard_normal((133, 32, 1, 1)).astype("f"), rng.standard_normal(133).astype("f")
    y = sym.relu(sym.conv2d(sym.Variable("x"), name="c", channels=133, kernel_size=(1, 1)))
    expected = torch.relu(torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), torch.tensor(b)))
    for target in targets():
        check(y, {"x": x, "c_weight": w, "c_bias": b}, expected.numpy(), target)


def test_the_same_bits_for_any_number_of_threads():
    sym = weft.symbol
    x = rng.standard_normal((2, 32, 40, 40)).astype("f")
    w = {
        "c_weight": rng.standard_normal((64, 32, 3, 3)).astype("f"),
        "d_weight": rng.standard_normal((70, 64 * 40 * 40)).astype("f") * 0.01,
    }
    conv = sym.conv2d(sym.Variable("x"), name="c", channels=64, kernel_size=(3, 3), padding=1, use_bias=False)
    made = sym.dense(sym.flatten(sym.relu(conv)), name="d", units=70, use_bias=False)
    found = [weft.compile((made, w), shape={"x": x.shape}, threads=threads).run({"x": x})[0] for threads in (1, 2, 4)]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
