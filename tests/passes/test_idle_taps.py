"""SkipIdleTaps: convolutions whose filters reach beyond the image, against PyTorch in float64."""

import numpy as np
import pytest
from oracles import oracle
from passes.graphs import F, Variable, op_names, typed

import weft
from weft.core.passes import apply_passes

rng = np.random.default_rng(5)
CLOSE = 5e-5  # of the largest magnitude


# (height, width), (kernel height, width), padding, dilation, stride, groups; what is left: parts, taps of all of them
CASES = {
    "one tap is left": ((7, 9), (3, 3), (12, 12), (12, 12), 1, 1, 1, 1),
    "a row of taps is left": ((5, 17), (3, 3), (8, 4), (8, 4), 1, 1, 1, 3),
    "nine parts": ((15, 13), (3, 3), (12, 11), (12, 11), 1, 1, 9, 25),
    "rows apart": ((31, 12), (3, 3), (26, 1), (26, 1), 1, 1, 3, 15),
    "fewer taps of a line": ((1, 21), (1, 64), (0, 32), (1, 1), 1, 4, 1, 42),
    "a step of two": ((11, 11), (3, 3), (12, 12), (12, 12), 2, 1, 1, 1),
    "a depthwise one": ((9, 9), (5, 5), (20, 20), (10, 10), 1, 32, 1, 1),
    "an odd border": ((6, 5), (4, 3), (9, 0), (7, 2), 1, 1, None, None),
    "all taps are needed": ((9, 9), (3, 3), (1, 1), (1, 1), 1, 1, 1, 9),
}


def network(size, kernel, padding, dilation, stride, groups, *_):
    shape = {"x": (2, 32, *size)}
    weight = rng.standard_normal((48 if groups < 32 else 32, 32 // groups, *kernel)).astype("f")
    params = {"c_weight": weight, "c_bias": rng.standard_normal(len(weight)).astype("f")}
    made = F.conv2d(
        Variable("x"),
        name="c",
        channels=len(weight),
        kernel_size=kernel,
        padding=padding,
        dilation=dilation,
        strides=(stride, stride),
        groups=groups,
    )
    return made, params, shape


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_pytorch(case):
    torch = oracle("torch")
    made, params, shape = network(*CASES[case])
    _, _, padding, dilation, stride, groups, *_ = CASES[case]
    x = rng.standard_normal(shape["x"]).astype("f")
    model = weft.compile(F.relu(made), params=params, shape=shape, threads=1)
    wide = [torch.tensor(value, dtype=torch.float64) for value in (x, *params.values())]
    expected = torch.relu(torch.conv2d(*wide, stride, padding, dilation, groups)).numpy()
    found = model.run({"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * np.abs(expected).max())
    twice = weft.compile(F.relu(made), params=params, shape=shape, threads=2)
    np.testing.assert_array_equal(found, twice.run({"x": x})[0])


@pytest.mark.parametrize("case", [name for name, row in CASES.items() if row[-1] is not None])
def test_parts_and_their_taps(case):
    made, _, shape = network(*CASES[case])
    graph = apply_passes(typed(made, **shape), ["SkipIdleTaps"])
    convolutions = [node for node in graph.indexed.nodes if node.op_name == "conv2d"]
    taps = [int(np.prod(node.params.kernel_size)) for node in convolutions]
    assert (len(taps), sum(taps)) == CASES[case][-2:]


def test_outputs_that_read_nothing_but_padding_stay_as_they_are():
    made = F.conv2d(Variable("x"), channels=8, kernel_size=(1, 1), padding=(3, 3), use_bias=False)
    graph = typed(made, x=(1, 8, 4, 4))
    assert op_names(apply_passes(graph, ["SkipIdleTaps"])) == op_names(graph)
