"""Convolutions of channels that fill vectors badly, and of groups of several vectors, against PyTorch in float64."""

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.target import Target
from weft.lower.cpu import layouts

rng = np.random.default_rng(8)
CLOSE = 5e-5  # of the largest magnitude

# channels of data and output, groups, (height, width), (kernel height, width), stride
CASES = {
    "two blocks of a group": (128, 128, 4, (7, 5), (3, 3), 1),
    "three blocks of a group": (144, 96, 3, (6, 9), (3, 1), 2),
    "a group of a line": (96, 96, 2, (1, 23), (1, 9), 1),
    "one block of a group": (64, 48, 4, (5, 6), (3, 3), 1),
    "halves of vectors": (24, 40, 1, (9, 7), (1, 1), 1),
    "an odd number of halves": (40, 104, 1, (7, 9), (3, 3), 2),
    "halves among many": (232, 152, 1, (5, 4), (3, 3), 1),
    "quarters of vectors": (20, 116, 1, (9, 7), (1, 1), 1),
    "from quarters of vectors": (68, 76, 1, (6, 7), (3, 3), 1),
    "half vectors filled up, by tiles": (96, 24, 1, (24, 40), (3, 3), 1),
    "half vectors filled up": (72, 72, 1, (36, 17), (3, 1), 1),
    "odd counts": (33, 67, 1, (5, 8), (3, 3), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_pytorch(case):
    torch = oracle("torch")
    inputs, channels, groups, size, kernel, stride = CASES[case]
    padding = tuple(side // 2 for side in kernel)
    shape = (2, inputs, *size)
    x = rng.standard_normal(shape).astype("f")
    params = {
        "c_weight": rng.standard_normal((channels, inputs // groups, *kernel)).astype("f"),
        "c_bias": rng.standard_normal(channels).astype("f"),
    }
    sizes = {"kernel_size": kernel, "strides": (stride, stride), "padding": padding}
    made = weft.symbol.conv2d(weft.symbol.Variable("x"), name="c", channels=channels, groups=groups, **sizes)
    wide = [torch.tensor(value, dtype=torch.float64) for value in (x, *params.values())]
    expected = torch.conv2d(*wide, stride, padding, 1, groups).relu().numpy()
    models = [weft.compile(weft.symbol.relu(made), params=params, shape={"x": shape}, threads=n) for n in (1, 2)]
    one, two = (model.run({"x": x})[0] for model in models)
    np.testing.assert_allclose(one, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("channels", [24, 40, 56])
def test_what_follows_halves_of_vectors(channels):
    """A gate, whose function is long, and another image that is added: PyTorch in float64."""
    torch = oracle("torch")
    x, other = rng.standard_normal((2, 20, 6, 5)).astype("f"), rng.standard_normal((2, channels, 6, 5)).astype("f")
    weight = rng.standard_normal((channels, 20, 1, 1)).astype("f")
    made = weft.symbol.conv2d(
        weft.symbol.Variable("x"), name="c", channels=channels, kernel_size=(1, 1), use_bias=False
    )
    gated = made * weft.symbol.sigmoid(made) + weft.symbol.Variable("other")
    shape = {"x": x.shape, "other": other.shape}
    models = [weft.compile(gated, params={"c_weight": weight}, shape=shape, threads=n) for n in (1, 2)]
    one, two = (model.run({"x": x, "other": other})[0] for model in models)
    wide = [torch.tensor(value, dtype=torch.float64) for value in (x, weight, other)]
    expected = (torch.nn.functional.silu(torch.conv2d(*wide[:2])) + wide[2]).numpy()
    np.testing.assert_allclose(one, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("cpu", "inputs", "side", "more"),
    [
        ("x86-64-v4", 96, 64, True),
        ("x86-64-v4", 8, 64, False),  # what is made is most of what is moved
        ("x86-64-v3", 96, 64, False),  # 24 fill its vectors
    ],
)
def test_more_channels_are_made_where_that_is_less_work(cpu, inputs, side, more):
    """24 of them fill one and a half vectors of 512 bits."""
    made = weft.symbol.conv2d(weft.symbol.Variable("x"), channels=24, kernel_size=(3, 3), padding=(1, 1))
    params, target = made.outputs[0].node.params, Target.create(f"llvm -mtriple=x86_64-linux -mcpu={cpu}")
    assert layouts._fills_up(params, (1, inputs, side, side), target) == more


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize(("depth", "units"), [(77, 93), (768, 515), (1600, 64)])
def test_products_of_few_rows(rows, depth, units):
    """numpy's product in float64."""
    weight, x = rng.standard_normal((units, depth)).astype("f"), rng.standard_normal((rows, depth)).astype("f")
    made = weft.symbol.dense(weft.symbol.Variable("x"), name="d", units=units, use_bias=False)
    models = [weft.compile(made, params={"d_weight": weight}, shape={"x": x.shape}, threads=n) for n in (1, 2)]
    one, two = (model.run({"x": x})[0] for model in models)
    expected = x.astype("d") @ weight.astype("d").T
    np.testing.assert_allclose(one, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    np.testing.assert_array_equal(one, two)
