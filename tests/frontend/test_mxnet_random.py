"""Random operators of MXNet: shapes, dtypes and distributions; the numbers are of weft's stream."""

import json

import numpy as np
import pytest
from scipy import stats

import weft
from weft.base.bits import MersenneTwister
from weft.base.errors import Error, Unsupported
from weft.core.interpret import evaluate, final_values
from weft.frontend import from_mxnet


def model(op, inputs=(), **attrs):
    """A graph of one operator."""
    nodes = [{"op": "null", "name": name, "inputs": []} for name in inputs]
    places = [[number, 0, 0] for number in range(len(nodes))]
    given = {key: str(value) for key, value in attrs.items()}
    nodes.append({"op": op, "name": "drawn", "attrs": given, "inputs": places})
    made = {"nodes": nodes, "arg_nodes": list(range(len(inputs))), "heads": [[len(inputs), 0, 0]]}
    return json.dumps(made)


def drawn(op, arrays=None, **attrs):
    """What two runs of the interpreter give, from a seed; machine code gives the same."""
    arrays = arrays or {}
    shapes = {name: value.shape for name, value in arrays.items()}
    symbol, params = from_mxnet(model(op, arrays, **attrs), shape=shapes)
    assert list(params) == ["drawn_random_state"]
    read = symbol.list_input_names()  # of some inputs, only the shape counts
    arrays = {name: value for name, value in arrays.items() if name in read}
    values = {"drawn_random_state": MersenneTwister(7).state(), **arrays}
    module = compiled(symbol, values)
    found = []
    for _ in range(2):
        found.append(evaluate(symbol, values)[0])
        values.update(final_values(symbol, values))
        module.run(**arrays)
        made = module.get_output(0).asnumpy()
        np.testing.assert_allclose(made, found[-1], rtol=1e-5, atol=1e-5)
    return found


def compiled(symbol, values):
    shapes = {name: value.shape for name, value in values.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    graph, library, _ = weft.compiler.build(symbol, "llvm", shapes, dtypes)
    module = weft.runtime.create(graph, library)
    module.set_input(**values)
    return module


FLAT = [
    ("_random_uniform", {"low": -1, "high": 3}, stats.uniform(-1, 4)),
    ("random_uniform", {}, stats.uniform(0, 1)),
    ("uniform", {"dtype": "float64"}, stats.uniform(0, 1)),
    ("_random_normal", {"loc": 2, "scale": 3}, stats.norm(2, 3)),
    ("_random_exponential", {"lam": 4}, stats.expon(scale=0.25)),
]


@pytest.mark.parametrize(("op", "attrs", "law"), FLAT)
def test_numbers_of_a_shape(op, attrs, law):
    first, second = drawn(op, shape=(40, 50), **attrs)
    assert first.shape == (40, 50)
    assert first.dtype == attrs.get("dtype", "float32")
    assert not np.array_equal(first, second)
    for numbers in (first, second):
        assert stats.kstest(numbers.reshape(-1), law.cdf).pvalue > 1e-6


@pytest.mark.parametrize(("op", "attrs", "law"), [row for row in FLAT if row[0][0] == "_"])
def test_numbers_like_an_input(op, attrs, law):
    like = np.zeros((30, 40), "float32")
    first, _ = drawn(f"{op}_like", {"x": like}, **attrs)
    assert first.shape == like.shape
    assert stats.kstest(first.reshape(-1), law.cdf).pvalue > 1e-6


def test_whole_numbers():
    first, _ = drawn("_random_randint", low=-2, high=3, shape=1000)
    assert first.dtype == np.int32
    assert np.array_equal(np.unique(first), np.arange(-2, 3))
    first, _ = drawn("_npi_random_randint", low=0, high=9, shape=(2, 3), dtype="int64")
    assert (first.shape, first.dtype) == ((2, 3), np.int64)


def test_a_shape_that_is_left_out_is_one_number():
    assert drawn("_random_normal")[0].shape == (1,)


def test_a_law_for_each_parameter():
    low = np.array([[0, 10], [-5, 100]], "float32")
    first, _ = drawn("_sample_uniform", {"a": low, "b": low + 2}, shape=(800,))
    assert first.shape == (2, 2, 800)
    for place in np.ndindex(2, 2):
        assert stats.kstest(first[place], stats.uniform(low[place], 2).cdf).pvalue > 1e-6
    mean, std = np.array([1, -7], "float32"), np.array([0.5, 3], "float32")
    first, _ = drawn("_sample_normal", {"a": mean, "b": std}, shape=(20, 40))
    for row, m, s in zip(first, mean, std):
        assert stats.kstest(row.reshape(-1), stats.norm(m, s).cdf).pvalue > 1e-6
    first, _ = drawn("_sample_exponential", {"a": np.array([2.0, 8], "float32")}, shape=(800,))
    for row, rate in zip(first, (2, 8)):
        assert stats.kstest(row, stats.expon(scale=1 / rate).cdf).pvalue > 1e-6
    assert drawn("_sample_normal", {"a": mean, "b": std})[0].shape == (2,)


def test_classes():
    chances = np.array([[0.1, 0.6, 0.3], [0, 0, 1]], "float32")
    first, _ = drawn("_sample_multinomial", {"a": chances}, shape=(2000,), get_prob=True)
    assert first.shape == (2, 2000)
    assert first.dtype == np.int32
    assert (first[1] == 2).all()
    counts = np.bincount(first[0], minlength=3)
    assert stats.chisquare(counts, 2000 * chances[0] / chances[0].sum()).pvalue > 1e-6
    assert drawn("_sample_multinomial", {"a": chances[0]})[0].shape == (1,)


@pytest.mark.parametrize("attrs", [{"shape": (0, 3)}, {"dtype": "int7"}, {"low": 2, "high": 1}])
def test_bad_attributes(attrs):
    with pytest.raises(Error):
        from_mxnet(model("_random_uniform", **attrs))


@pytest.mark.parametrize("op", ["_random_gamma", "_random_poisson", "_sample_gamma"])
def test_laws_without_an_operator_are_reported(op):
    with pytest.raises(Unsupported, match=op):
        from_mxnet(model(op, shape=(2,)))
