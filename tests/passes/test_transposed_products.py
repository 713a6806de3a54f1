"""TransposedAsProducts: transposed convolutions to very few channels, against PyTorch in float64."""

import numpy as np
import pytest
from oracles import oracle
from passes.graphs import F, Variable, op_names, typed

import weft
from weft.core.passes import apply_passes

rng = np.random.default_rng(6)
CLOSE = 5e-5  # of the largest magnitude

# (images, channels, height, width), channels of the output, kernel, stride, padding, output padding
CASES = {
    "frames to samples": ((2, 37, 1, 29), 1, (1, 16), (1, 8), (0, 0), (0, 0)),
    "twice as large": ((1, 19, 9, 7), 3, (2, 2), (2, 2), (0, 0), (0, 0)),
    "over each other": ((2, 16, 5, 11), 4, (4, 6), (2, 2), (1, 2), (0, 0)),
    "more at the end": ((1, 8, 6, 5), 2, (4, 3), (2, 3), (0, 0), (1, 2)),
    "all cut off but a few": ((1, 33, 4, 4), 1, (4, 4), (2, 2), (3, 2), (1, 0)),
    "channels that fill no vectors": ((2, 24, 6, 5), 24, (2, 2), (2, 2), (0, 0), (0, 0)),
    "the same, cut off": ((1, 40, 5, 7), 21, (3, 2), (3, 2), (1, 0), (2, 1)),
    "a step of one": ((1, 12, 7, 6), 1, (3, 3), (1, 1), (1, 1), (0, 0)),
}


def network(shape, channels, kernel, stride, padding, extra, bias=True):
    params = {"t_weight": rng.standard_normal((shape[1], channels, *kernel)).astype("f")}
    params |= {"t_bias": rng.standard_normal(channels).astype("f")} if bias else {}
    sizes = {"kernel_size": kernel, "strides": stride, "padding": padding, "output_padding": extra}
    return F.conv2d_transpose(Variable("x"), name="t", channels=channels, use_bias=bias, **sizes), params


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_pytorch(case, bias):
    torch = oracle("torch")
    shape, _, _, stride, padding, extra = CASES[case]
    made, params = network(*CASES[case], bias=bias)
    assert "conv2d" in op_names(apply_passes(typed(made, x=shape), ["TransposedAsProducts"]))
    x = rng.standard_normal(shape).astype("f")
    wide = [torch.tensor(value, dtype=torch.float64) for value in (x, *params.values())]
    expected = torch.conv_transpose2d(*wide, stride=stride, padding=padding, output_padding=extra).sigmoid().numpy()
    found, twice = (
        weft.compile(F.sigmoid(made), params=params, shape={"x": shape}, threads=count).run({"x": x})[0]
        for count in (1, 2)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    np.testing.assert_array_equal(found, twice)


@pytest.mark.parametrize(
    "changed",
    [
        {"channels": 5, "kernel_size": (4, 2)},
        {"channels": 32},
        {"kernel_size": (3, 2)},
        {"dilation": (2, 1)},
        {"groups": 2},
        {"strides": (1, 1)},
    ],
)
def test_others_stay_as_they_are(changed):
    attrs = {"channels": 2, "kernel_size": (2, 2), "strides": (2, 2), "use_bias": False, **changed}
    if "strides" in changed:
        attrs["kernel_size"] = (5, 5)  # more taps fall on a place than are worth it
    graph = typed(F.conv2d_transpose(Variable("x"), **attrs), x=(1, 6, 5, 5))
    assert op_names(apply_passes(graph, ["TransposedAsProducts"])) == op_names(graph)
