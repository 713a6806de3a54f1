"""Reductions of images, and activations after convolutions, in blocks of channels."""

import numpy as np
import pytest
from lower.accuracy import agrees, targets

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.core.op import Op

rng = np.random.default_rng(19)
REDUCE = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


def pointwise(data, weight):
    return np.einsum("nchw,oc->nohw", data.astype("float64"), weight[:, :, 0, 0])


def conv(x, channels, name, **attrs):
    return sym.conv2d(x, channels=channels, kernel_size=(1, 1), use_bias=False, name=name, **attrs)


def reduced(op, axes, keepdims, shape=(2, 16, 5, 7), channels=32, exclude=False, target=None):
    """A reduction of a convolution's result: the model, what it gives and what it should."""
    x = sym.Variable("x", shape=shape)
    y = Op.get(op)(conv(x, channels, "c"), axis=axes, keepdims=keepdims, exclude=exclude)
    weight = rng.uniform(0.5, 1.5, (channels, shape[1], 1, 1)).astype(np.float32) / shape[1]
    data = rng.uniform(0.5, 1.5, shape).astype(np.float32)
    model = weft.compile((y, {"c_weight": weight}), target=target or host(), threads=2)
    real = tuple(a for a in range(4) if (a in [x % 4 for x in axes]) != exclude)
    expected = REDUCE[op](pointwise(data, weight), axis=real, keepdims=keepdims)
    return model, model(data)[0], expected


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(2, 3), (-1, -2), (3,), (1,), (0, 2, 3), (1, 2, 3)], ids=str)
def test_reductions_of_blocked_channels(op, axes, keepdims):
    model, found, expected = reduced(op, axes, keepdims)
    agrees(found, expected)
    assert not model.report().host_steps


def test_axes_that_are_excluded():
    model, found, expected = reduced("mean", (0, 1), True, exclude=True)
    agrees(found, expected)
    assert "__layout_transform__" not in kernels_with(model, "mean")[0]


def kernels_with(model, op):
    return [k.operators for k in model.report().kernels if op in k.operators]


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
@pytest.mark.parametrize("keepdims", [True, False])
def test_the_mean_of_an_image_reads_it_in_blocks(target, keepdims):
    shape = (1, 16, 23, 29)  # turns that fill no group of eight
    model, found, expected = reduced("mean", (2, 3), keepdims, shape, target=target)
    agrees(found, expected)
    assert kernels_with(model, "mean") == [("mean",)]
    assert model.report().layout_transforms == kernel_count(model, "__layout_transform__") == 1


def kernel_count(model, op):
    return len(kernels_with(model, op))


@pytest.mark.parametrize("squeezed", [4, 6, 16, 20])
def test_squeeze_and_excite_moves_nothing(squeezed):
    """x * sigmoid(b(relu(a(mean x)))), between two convolutions."""
    x = sym.Variable("x", shape=(2, 16, 6, 5))
    y = conv(x, 32, "first")
    mean = sym.mean(y, axis=(2, 3), keepdims=True)
    gate = sym.sigmoid(conv(sym.relu(conv(mean, squeezed, "a")), 32, "b"))
    net = conv(sym.broadcast_mul(y, gate), 16, "last")
    shapes = {"first": (32, 16), "a": (squeezed, 32), "b": (32, squeezed), "last": (16, 32)}
    params = {
        f"{name}_weight": rng.standard_normal((*shape, 1, 1)).astype(np.float32) for name, shape in shapes.items()
    }
    data = rng.standard_normal((2, 16, 6, 5)).astype(np.float32)
    model = weft.compile((net, params))
    first = pointwise(data, params["first_weight"])
    small = pointwise(first.mean((2, 3), keepdims=True), params["a_weight"])
    gates = 1 / (1 + np.exp(-pointwise(np.maximum(small, 0), params["b_weight"])))
    agrees(model(data)[0], pointwise(first * gates, params["last_weight"]))
    assert model.report().layout_transforms == 2  # of the input and of the output


ACTIVATIONS = {
    "swish": (lambda x: x * sym.sigmoid(x), lambda x: x / (1 + np.exp(-x))),
    "mish": (lambda x: x * sym.tanh(sym.log(sym.exp(x) + 1)), lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "hard swish": (lambda x: x * sym.clip(x + 3, a_min=0, a_max=6) * (1 / 6), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "relu of two": (lambda x: sym.relu(x) + sym.exp(-x), lambda x: np.maximum(x, 0) + np.exp(-x)),
}


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("channels", [48, 24, 5])
def test_activations_that_read_a_result_twice_are_in_its_kernel(name, channels, target):
    ours, theirs = ACTIVATIONS[name]
    x = sym.Variable("x", shape=(1, 16, 9, 11))
    net = ours(conv(x, channels, "c"))
    weight = rng.standard_normal((channels, 16, 1, 1)).astype(np.float32) / 4
    data = rng.standard_normal((1, 16, 9, 11)).astype(np.float32)
    model = weft.compile((net, {"c_weight": weight}), target=target)
    agrees(model(data)[0], theirs(pointwise(data, weight)))
    assert [k for k in model.report().kernels if "conv2d" in k.operators] == [
        k for k in model.report().kernels if not {"__layout_transform__"} >= set(k.operators)
    ]
    assert kernel_count(model, "conv2d") == 1


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
def test_depthwise_convolution_with_swish(target):
    shape = (1, 32, 13, 10)
    x = sym.Variable("x", shape=shape)
    y = sym.conv2d(x, channels=32, groups=32, kernel_size=(3, 3), padding=(1, 1), name="c", use_bias=False)
    weight = rng.standard_normal((32, 1, 3, 3)).astype(np.float32)
    data = rng.standard_normal(shape).astype(np.float32)
    model = weft.compile((y * sym.sigmoid(y), {"c_weight": weight}), target=target)
    padded = np.pad(data.astype("float64"), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    made = np.einsum("nchwij,cij->nchw", windows, weight[:, 0])
    agrees(model(data)[0], made / (1 + np.exp(-made)))


def test_long_sums_are_more_exact_than_one_after_the_other():
    data = np.full((1, 1, 512, 512, 16), 0.1, np.float32)
    x = sym.Variable("x", shape=data.shape)
    (found,) = weft.compile(sym.sum(x, axis=(2, 3), keepdims=True))(data)
    exact = np.float64(np.float32(0.1)) * 512 * 512
    one_by_one = np.cumsum(np.full(512 * 512, 0.1, np.float32))[-1]
    assert abs(found.ravel() - exact).max() < abs(one_by_one - exact) / 4


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
@pytest.mark.parametrize("op", ["nll_loss", "softmax_cross_entropy"])
def test_sums_side_by_side(op, target):
    """A mean over the labels that count divides one sum by another, and both are made in lanes of the same loop."""
    scores, labels = rng.standard_normal((53, 7)).astype(np.float32), rng.integers(-1, 7, 53)
    x, y = sym.Variable("x", shape=scores.shape), sym.Variable("y", shape=labels.shape, dtype="int64")
    (found,) = weft.compile(Op.get(op)(x, y, reduction="mean"), target=target)(scores, labels)
    wide = scores.astype("float64")
    if op == "softmax_cross_entropy":
        wide = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    counted = labels >= 0
    agrees(found, -wide[counted, labels[counted]].mean())
