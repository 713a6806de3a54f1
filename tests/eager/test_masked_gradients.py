"""Where a function is constant its gradient is 0, whatever comes from above: infinite and undefined
gradients at such places, against PyTorch; in numpy's small sizes and in native code."""

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.core.op import Op
from weft.eager.autograd.derivative import Wanted, gradient_program, params_of

INF, NAN = np.inf, np.nan
PLACES = np.float32([-INF, -4, -3, -1, -0.5, 0, 0.5, 1, 2, 3, 6, 7, INF])
GRADIENTS = np.float32([1, INF, -INF, NAN, 0])
OTHERS = np.float32([1, -3, 0, 2, INF, -INF])
REPEATED = [1, 40]  # one pass by numpy, and enough elements for native code


def of_functional(name, *args, **options):
    return lambda m, *x: getattr(m.nn.functional, name)(*x, *args, **options)


def of_module(name, *args, **options):
    return lambda m, *x: getattr(m, name)(*x, *args, **options)


ACTIVATIONS = "relu relu6 elu selu celu hardtanh hardsigmoid hardswish leaky_relu softshrink"
SMOOTH = (
    "abs sqrt rsqrt exp log log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh sigmoid erf reciprocal square neg floor ceil round trunc frac"
)
OF_ONE = {
    **{name: of_functional(name) for name in [*ACTIVATIONS.split(), "hardshrink", "silu", "gelu"]},
    **{f"torch_{name}": of_module(name) for name in SMOOTH.split()},
    "threshold": of_functional("threshold", 1.0, 5.0),
    "hardtanh_wide": of_functional("hardtanh", -3.0, 2.0),
    "flat_leaky_relu": of_functional("leaky_relu", 0.0),
    "clamp": of_module("clamp", -1.0, 2.0),
    "clamp_below": of_module("clamp", min=0.5),
    "clamp_above": of_module("clamp", max=0.5),
    "clamp_tensors": lambda m, x: m.clamp(x, m.full_like(x, -1.0), m.full_like(x, 2.0)),
    "where": lambda m, x: m.where(x > 0, x, m.zeros_like(x)),
    "where_not": lambda m, x: m.where(x > 0, m.zeros_like(x), x),
    "masked_fill": lambda m, x: x.masked_fill(x > 0, 3.0),
    "tril": lambda m, x: m.tril(x.reshape(-1, 5)).reshape(-1),
    **{f"pow_{p}": lambda m, x, p=p: x**p for p in (0, 0.5, 1, 2, 3, -1)},
}
OF_TWO = {
    **{name: of_module(name) for name in "maximum minimum fmax fmin pow mul div hypot".split()},
    "prelu": lambda m, x, y: m.nn.functional.prelu(x, y[:1]),
    "smooth_l1_loss": of_functional("smooth_l1_loss", reduction="none"),
    "huber_loss": of_functional("huber_loss", reduction="none"),
}
ROWS = np.float32([[1, 2, 2, 0], [3, -1, -5, 0.5], [0, 0, 0, 0], [4, 1, 4, 4]])
REDUCTIONS = {
    "max": of_module("max"),
    "min": of_module("min"),
    **{f"{n}_along": lambda m, x, n=n: getattr(m, n)(x, dim=1)[0] for n in ("max", "min", "cummax")},
    "std": of_module("std", dim=1),
    "std_of_all": of_module("std"),
    "var": of_module("var", dim=1),
    "norm": of_module("norm", dim=1),
    "sum": of_module("sum", dim=1),
    "mean": of_module("mean", dim=1),
    "logsumexp": of_module("logsumexp", dim=1),
}


def gradients(m, function, arrays, above):
    inputs = [m.tensor(array, requires_grad=True) for array in arrays]
    made = function(m, *inputs)
    above = np.broadcast_to(above, tuple(made.shape)).copy()
    return [g.numpy() for g in m.autograd.grad([made], inputs, [m.tensor(above)])]


def must_agree(function, arrays, above, first=2):
    torch = oracle("torch")
    ours = gradients(weft, function, arrays, above)[:first]
    for found, expected in zip(ours, gradients(torch, function, arrays, above)):
        np.testing.assert_allclose(found, expected, 1e-3, 1e-5)


@pytest.mark.parametrize("times", REPEATED)
@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_tensor(name, times):
    x, above = (np.tile(v.reshape(-1), times) for v in np.meshgrid(PLACES, GRADIENTS))
    must_agree(OF_ONE[name], [x], above)


@pytest.mark.parametrize("times", REPEATED)
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_tensors(name, times):
    grid = np.meshgrid(PLACES, OTHERS, GRADIENTS)
    x, y, above = (np.tile(v.reshape(-1), times) for v in grid)
    must_agree(OF_TWO[name], [x, y], above, first=1 if name == "pow" else 2)


@pytest.mark.parametrize("above", [INF, -INF, NAN])
@pytest.mark.parametrize("times", REPEATED)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_of_reductions(name, times, above):
    must_agree(REDUCTIONS[name], [np.tile(ROWS, (1, times))], np.float32(above))


@pytest.mark.parametrize("name", ["relu", "maximum"])
def test_beside_nan(name):
    """What NaN stands in is not known to be constant."""
    x, above = np.float32([NAN, NAN, 1, 1]), np.float32([1, INF, 2, NAN])
    y = [np.float32([1, 2, NAN, NAN])] if name == "maximum" else []
    must_agree(of_module(name), [x, *y], above)


RULES = {  # operator: its attributes, inputs, and steps of its gradient at most
    "relu": ({}, 1, 1),
    "clip": ({"a_min": 0, "a_max": 6}, 1, 1),
    "leaky_relu": ({}, 1, 4),
    "hard_sigmoid": ({}, 1, 7),
    "hard_swish": ({}, 1, 7),
    "elu": ({}, 1, 9),
    "prelu": ({}, 2, 9),
    "broadcast_max": ({}, 2, 10),
    "max": ({"axis": (1,)}, 1, 6),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_few_steps(name):
    attrs, inputs, most = RULES[name]
    op = Op.get(name)
    program = gradient_program(op, params_of(op, attrs), inputs, 1)
    assert len(Wanted(program, (True,) * inputs).plan.steps) <= most
