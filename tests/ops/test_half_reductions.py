"""Reductions of float16 and bfloat16 over more elements than float16 can count: steps between are
wide enough, and only what is beyond the range in the end is infinite."""

import ml_dtypes
import numpy as np
import pytest
from oracles import oracle

import weft
import weft.ops
from weft.core.interpret import evaluate
from weft.core.op import Op

COUNT = 70_000
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
EXPECTED = {
    "mean": lambda x: x.mean(1),
    "_variance": lambda x: x.var(1, ddof=1),
    "_norm": lambda x: np.sqrt((x**2).sum(1)),
    "logsumexp": lambda x: np.log(np.exp(x).sum(1)),
    "sum": lambda x: x.sum(1),
}


def values(dtype):
    return np.random.default_rng(3).uniform(0.6, 1.4, (2, COUNT)).astype(DTYPES[dtype])


def tolerance(dtype):
    return 2e-3 if dtype == "float16" else 1e-2


@pytest.mark.parametrize("level", [None, 0, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXPECTED)
def test_graphs(name, dtype, level):
    x = values(dtype)
    made = Op.get(name)(weft.symbol.Variable("x"), axis=(1,))[0]
    if level is None:
        found = evaluate(made, {"x": x})[0]
    else:
        with weft.compile(made, shape={"x": x.shape}, dtype={"x": dtype}, opt_level=level) as model:
            found = model(x)[0]
    expected = EXPECTED[name](x.astype("float64"))
    if name == "sum" and dtype == "float16":
        expected = np.full(2, np.inf)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype("float64"), expected, tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["mean", "sum", "var", "std", "norm"])
def test_tensors_and_their_gradients(name, dtype):
    torch = oracle("torch")
    wide = values(dtype).astype("float32")
    found = {}
    for m in (weft, torch):
        x = m.tensor(wide).to(getattr(m, dtype)).requires_grad_()
        made = getattr(m, name)(x, dim=1)
        [slope] = m.autograd.grad([made], [x], [m.ones_like(made)])
        found[m.__name__] = [value.detach().float().numpy() for value in (made, slope)]
    for ours, theirs in zip(found["weft"], found["torch"]):
        np.testing.assert_allclose(ours, theirs, tolerance(dtype), 1e-6)


@pytest.mark.parametrize("level", [0, 3])
def test_the_share_of_each_summand(level):
    """What the gradient of a mean is made of."""
    g, x = weft.symbol.Variable("g"), weft.symbol.Variable("x")
    made = Op.get("_divide_by_count")(g, x, axis=(1,))
    shapes, dtypes = {"g": (2,), "x": (2, COUNT)}, {"g": "float16", "x": "float16"}
    above = np.float16([700, -7000])
    with weft.compile(made, shape=shapes, dtype=dtypes, opt_level=level) as model:
        found = model(above, values("float16"))[0]
    np.testing.assert_allclose(found, [0.01, -0.1], rtol=1e-3)
