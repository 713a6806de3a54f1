"""take, pick, Embedding and the like on indices of every dtype, in range and out of it."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_files import CODES, graph, node

import weft
from weft.base.errors import Error, FormatError, Unsupported
from weft.core.interpret import evaluate
from weft.frontend import from_mxnet

DTYPES = ("int8", "uint8", "int32", "int64", "float32", "float64")


def runs(op, arrays, **attrs):
    """By the references, and compiled."""
    given = {f"x{i}": array for i, array in enumerate(arrays)}
    nodes = [node("null", name, __dtype__=str(CODES[a.dtype.name])) for name, a in given.items()]
    nodes.append(node(op, "y", [(i, 0) for i in range(len(arrays))], **attrs))
    shapes = {name: array.shape for name, array in given.items()}
    symbol, params = from_mxnet(graph(nodes, [[len(arrays), 0, 0]]), shape=shapes)
    dtypes = {name: array.dtype.name for name, array in given.items()}
    model = weft.compile(symbol, shape=shapes, dtype=dtypes, params=params)
    return [evaluate(symbol, {**params, **given})[0], model(**given)[0]]


def indices_of(dtype, extent):
    """In range, at its ends, and far outside, as far as the dtype goes."""
    far = [-3 * extent - 1, -extent - 1, -extent, -1, 0, 1, extent - 1, extent, 5 * extent + 2]
    if np.dtype(dtype).kind == "f":
        return np.array([*far, 1.7, -0.3, 3e9, -3e9], dtype)
    limits = np.iinfo(dtype)
    inside = [i for i in (*far, 2**31 - 1, -(2**31)) if limits.min <= i <= limits.max]
    return np.array([*inside, min(limits.max, extent + 100)], dtype)


def whole(indices):
    return np.trunc(indices).astype("int64")


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("extent", [5, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_take(dtype, extent, mode):
    data = np.random.default_rng(0).normal(size=(2, extent, 3)).astype("float32")
    indices = indices_of(dtype, extent)
    expected = np.take(data, whole(indices), axis=1, mode=mode)
    for made in runs("take", [data, indices], axis="1", mode=mode):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("extent", [5, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pick(dtype, extent, mode):
    indices = indices_of(dtype, extent)
    data = np.random.default_rng(0).normal(size=(len(indices), extent)).astype("float32")
    expected = [np.take(row, i, mode=mode) for row, i in zip(data, whole(indices))]
    for made in runs("pick", [data, indices], axis="1", mode=mode):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("extent", [5, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(dtype, extent):
    weight = np.random.default_rng(0).normal(size=(extent, 3)).astype("float32")
    indices = indices_of(dtype, extent)
    expected = np.take(weight, whole(indices), axis=0, mode="clip")
    attrs = {"input_dim": str(extent), "output_dim": "3"}
    for made in runs("Embedding", [indices, weight], **attrs):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_nd_and_one_hot(dtype):
    data = np.arange(300, dtype="float32") * 0.5
    indices = np.array([0, 3, 120], dtype)
    for made in runs("gather_nd", [data, indices[None]]):
        np.testing.assert_array_equal(made, [0, 1.5, 60])
    for made in runs("one_hot", [indices], depth="300"):
        np.testing.assert_array_equal(made, np.eye(300)[[0, 3, 120]])


def test_nothing_to_take():
    empty, none = np.zeros((0, 3), "float32"), np.zeros((0,), "int32")
    for mode in ("clip", "wrap"):
        for made in runs("take", [empty, none], mode=mode):
            assert made.shape == (0, 3)
        with pytest.raises(Error, match="without elements"):
            runs("take", [empty, np.zeros(2, "int32")], mode=mode)


def test_modes_that_are_refused():
    data, indices = np.zeros((3, 4), "float32"), np.zeros(3, "int32")
    with pytest.raises(Unsupported, match="out of range"):
        runs("take", [data, indices], mode="raise")
    for op in ("take", "pick"):
        with pytest.raises(FormatError, match="mode cannot be 'nearest'"):
            runs(op, [data, indices], mode="nearest")
    with pytest.raises(Unsupported, match="without an axis"):
        runs("pick", [data, indices], axis="None")
