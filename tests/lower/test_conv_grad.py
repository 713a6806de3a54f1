"""The templates of transposed convolutions and of gradients of convolutions, against PyTorch: all
strides, dilations, groups, paddings and layouts, infinite values, guard pages, three ISAs."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import oracle

import weft
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.core.op import Op
from weft.lower.cpu.taps import Line, phases, runs
from weft.ops.nn._windows import Window
from weft.testing.op_check import Sample, run_lowered, run_sample

CONTRACT = 5e-5  # of the output's largest magnitude
ISAS = ("sse", "avx2", "avx512")


def target_of(isa):
    try:
        return host().with_isa(isa)
    except Unsupported:
        return host()


@st.composite
def cases(draw):
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, "depthwise"]))
    if groups == "depthwise":
        inputs = outputs = groups = draw(st.sampled_from([3, 16, 20, 33]))
    else:
        inputs = groups * draw(st.sampled_from([1, 3, 8, 16, 24, 40]))
        outputs = groups * draw(st.sampled_from([1, 5, 8, 16, 33]))
    kernel = (draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    dilation = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = (draw(st.integers(0, 2)), draw(st.integers(0, 3)))
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    extents = tuple(draw(st.integers(max(r - 2 * p, 1), 21)) for r, p in zip(reach, padding))
    return {
        "batch": draw(st.integers(1, 3)),
        "inputs": inputs,
        "outputs": outputs,
        "groups": groups,
        "kernel": kernel,
        "strides": (draw(st.integers(1, 4)), draw(st.integers(1, 3))),
        "dilation": dilation,
        "padding": padding,
        "extents": extents,
        "isa": draw(st.sampled_from(ISAS)),
        "seed": draw(st.integers(0, 999)),
        "dtype": draw(st.sampled_from(["float32", "float32", "float64"])),
        "special": draw(st.booleans()),
    }


def attrs_of(case, channels):
    return {
        "channels": channels,
        "kernel_size": case["kernel"],
        "strides": case["strides"],
        "padding": case["padding"],
        "dilation": case["dilation"],
        "groups": case["groups"],
        "use_bias": False,
    }


def values_of(case, *shapes):
    """Random numbers, a few of them infinite or NaN if the case says so."""
    rng = np.random.default_rng(case["seed"])
    made = [rng.standard_normal(shape).astype(case["dtype"]) for shape in shapes]
    for x in made if case["special"] else ():
        places = rng.integers(0, x.size, 2)
        x.reshape(-1)[places] = rng.choice([np.inf, -np.inf, np.nan], 2)
    return made


def agree(found, expected):
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(found), finite)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    scale = max(float(np.abs(expected[finite]).max(initial=0)), 1e-30)
    assert np.abs(found[finite] - expected[finite]).max(initial=0) <= CONTRACT * scale


def lowered(name, inputs, attrs, case):
    """By kernels between guard pages."""
    front = case["seed"] % 2 == 0
    sample = Sample(inputs, attrs)
    (found,) = run_lowered(Op.get(name), sample, target_of(case["isa"]), lambda x: guarded(x, front))
    return found


def by_definition(case, x, w, g):
    """The gradients of a convolution's data and weight, tap by tap and window by window. (PyTorch
    multiplies padding by infinite values for some shapes, and does not for others.)"""
    dx, dw = np.zeros(x.shape), np.zeros(w.shape)
    groups = case["groups"]
    by_group = lambda v: v.reshape(len(v), groups, -1)
    for p, q, row, column in np.ndindex(*case["kernel"], *g.shape[2:]):
        y, z = (
            place * stride + tap * dilation - padding
            for place, tap, stride, padding, dilation in zip((row, column), (p, q), *geometry(case))
        )
        if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
            windows, filters = by_group(g[:, :, row, column]), w[:, :, p, q]
            filters = filters.reshape(groups, -1, filters.shape[1])
            pairs = (windows[..., None] * filters).sum(2)  # n, group, channel
            dx[:, :, y, z] += pairs.reshape(len(x), -1)
            outer = (windows[..., None] * by_group(x[:, :, y, z])[:, :, None]).sum(0)
            dw[:, :, p, q] += outer.reshape(dw.shape[:2])
    return dx, dw


def geometry(case):
    return (case["strides"], case["padding"], case["dilation"])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases())
def test_gradients_of_any_convolution_agree_with_torch(case):
    torch = oracle("torch")
    shape = (case["batch"], case["inputs"], *case["extents"])
    weight = (case["outputs"], case["inputs"] // case["groups"], *case["kernel"])
    strides, padding, dilation = geometry(case)
    out = torch.nn.functional.conv2d(torch.zeros(shape), torch.zeros(weight), None, *geometry(case), case["groups"])
    x, w, g = values_of(case, shape, weight, tuple(out.shape))
    dx, dw, _ = torch.ops.aten.convolution_backward(
        *map(torch.tensor, (g, x, w)),
        None,
        strides,
        padding,
        dilation,
        False,
        (0, 0),
        case["groups"],
        (True, True, False),
    )
    expected = (dx.numpy(), dw.numpy())
    if case["special"]:
        with np.errstate(invalid="ignore"):
            expected = by_definition(case, x, w, g)
    attrs = attrs_of(case, case["outputs"])
    agree(lowered("_conv2d_grad_data", [g, x, w], attrs, case), expected[0])
    agree(lowered("_conv2d_grad_weight", [g, x], attrs, case), expected[1])


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(cases(), st.integers(0, 2), st.integers(0, 2))
def test_any_transposed_convolution_agrees_with_torch(case, down, across):
    torch = oracle("torch")
    shape = (case["batch"], case["inputs"], *(min(e, 9) for e in case["extents"]))
    weight = (case["inputs"], case["outputs"] // case["groups"], *case["kernel"])
    strides, padding, dilation = geometry(case)
    more = [min(e, max(s, d) - 1) for e, s, d in zip((down, across), strides, dilation)]
    extents = [
        (n - 1) * s + d * (k - 1) + 1 - 2 * p + e
        for n, s, d, k, p, e in zip(shape[2:], strides, dilation, case["kernel"], padding, more)
    ]
    if min(extents) < 1:
        return
    case = {**case, "special": False}
    x, w, g = values_of(case, shape, weight, (case["batch"], case["outputs"], *extents))
    tensors = [torch.tensor(v) for v in (x, w)]
    expected = torch.nn.functional.conv_transpose2d(*tensors, None, strides, padding, more, case["groups"], dilation)
    attrs = {**attrs_of(case, case["outputs"]), "output_padding": tuple(more)}
    agree(lowered("conv2d_transpose", [x, w], attrs, case), expected.numpy())
    dx, dw, _ = torch.ops.aten.convolution_backward(
        torch.tensor(g), *tensors, None, strides, padding, dilation, True, more, case["groups"], (True, True, False)
    )
    agree(lowered("_conv2d_transpose_grad_data", [g, w], attrs, case), dx.numpy())
    agree(lowered("_conv2d_transpose_grad_weight", [g, x], attrs, case), dw.numpy())


@pytest.mark.parametrize("channels", [3, 16, 40])
@pytest.mark.parametrize("stride", [1, 2])
def test_infinite_values_meet_no_padding(channels, stride):
    """Where PyTorch does not multiply padding either."""
    torch = oracle("torch")
    case = {"dtype": "float32", "seed": channels, "special": True, "isa": "avx512"}
    shape, weight = (2, channels, 8, 7), (channels, 32, 3, 3)
    x, w = values_of(case, shape, weight)
    expected = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), None, stride, 1)
    attrs = {"channels": 32, "kernel_size": (3, 3), "strides": (stride, stride), "padding": (1, 1), "use_bias": False}
    assert not np.isfinite(expected.numpy()).all()
    agree(lowered("conv2d_transpose", [x, w], attrs, case), expected.numpy())
    (g,) = values_of({**case, "seed": 1}, expected.shape)
    dx, dw, _ = torch.ops.aten.convolution_backward(
        *map(torch.tensor, (g, x, w)), None, (stride, stride), (1, 1), (1, 1), True, (0, 0), 1, (True, True, False)
    )
    agree(lowered("_conv2d_transpose_grad_data", [g, w], attrs, case), dx.numpy())
    agree(lowered("_conv2d_transpose_grad_weight", [g, x], attrs, case), dw.numpy())


LAYOUTS = [
    ("NCHW16c", "OIHW16i16o", "NCHW16c"),
    ("NCHW4c", "OIHW", "NCHW8c"),
    ("NHWC", "HWIO", "NCHW"),
    ("NCHW", "IOHW16i", "NHWC"),
]


@pytest.mark.parametrize(("data", "kernel", "out"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_layouts_and_narrow_floats(data, kernel, out, dtype):
    rng = np.random.default_rng(3)
    attrs = {
        "channels": 16,
        "kernel_size": (3, 3),
        "strides": (2, 1),
        "padding": (1, 1),
        "use_bias": False,
        "layout": data,
        "kernel_layout": kernel,
        "out_layout": out,
    }
    shapes = {}
    for name, layout, shape in [("x", data, (2, 32, 7, 6)), ("w", kernel, (16, 32, 3, 3)), ("g", out, (2, 16, 4, 6))]:
        canonical = weft.base.layout.Layout("OIHW" if name == "w" else "NCHW")
        shapes[name] = canonical.convert_shape(shape, weft.base.layout.Layout(layout))
    values = {n: rng.standard_normal(s).astype(np.dtype(dtype)) for n, s in shapes.items()}
    for op, names in [("_conv2d_grad_data", "gxw"), ("_conv2d_grad_weight", "gx")]:
        sample = Sample([values[n] for n in names], attrs)
        (found,), (expected,) = run_lowered(Op.get(op), sample), run_sample(Op.get(op), sample)
        assert found.dtype == expected.dtype
        scale = np.abs(expected.astype("f")).max()
        limit = {"float32": CONTRACT, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
        assert np.abs(found.astype("f") - expected.astype("f")).max() <= limit * scale


def test_what_follows_is_computed_with_the_sum():
    torch = oracle("torch")
    sym, rng = weft.symbol, np.random.default_rng(5)
    values = {
        "x": rng.standard_normal((2, 24, 5, 6)).astype("f"),
        "w": rng.standard_normal((24, 20, 4, 4)).astype("f"),
        "b": rng.standard_normal(20).astype("f"),
        "r": rng.standard_normal((2, 20, 10, 12)).astype("f"),
    }
    made = sym.conv2d_transpose(
        *map(sym.Variable, "xwb"), channels=20, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1)
    )
    made = sym.relu(made + sym.Variable("r"))
    shape = {name: value.shape for name, value in values.items()}
    model = weft.compile((made, {}), shape=shape)
    assert not model.report().host_steps
    main = [k for k in model.report().kernels if "conv2d_transpose" in k.operators]
    assert any("relu" in kernel.operators for kernel in main)
    x, w, b, r = (torch.tensor(values[n]) for n in "xwbr")
    expected = torch.relu(torch.nn.functional.conv_transpose2d(x, w, b, 2, 1) + r).numpy()
    found = model.run(values)[0]
    assert np.abs(found - expected).max() <= CONTRACT * np.abs(expected).max()


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3), st.integers(1, 12), st.integers(1, 6)
)
def test_phases_are_all_taps_of_a_transposed_window(size, stride, before, dilation, sources, width):
    """Each tap of each window that stands on a result is in one run, and nothing else is."""
    window = Window(size, stride, before, before, dilation)
    outs = (sources - 1) * stride + window.reach - 2 * before
    if outs < 1:
        return
    wanted = {(y * stride + tap * dilation - before, tap, y) for y in range(sources) for tap in range(size)}
    found = []
    for phase in phases(Line(window, outs, sources, True)):
        for run in runs(phase, sources, width):
            for tile in range(run.tiles):
                for (tap, offset), columns in zip(phase.taps, run.inside):
                    places = [run.start + tile * run.width + column for column in columns]
                    found += [(phase.first + b * phase.step, tap, b + offset) for b in places]
    assert len(found) == len(set(found))
    assert set(found) == {place for place in wanted if 0 <= place[0] < outs}
