"""Losses of ONNX against PyTorch: weights, an ignored class, every reduction, any number of axes."""

import numpy as np
import pytest
from onnx import helper
from onnx_runs import model_of, weft_runs
from oracles import oracle

from weft.base.errors import ShapeError
from weft.frontend import from_onnx


def drawn(rng, rank, dtype=np.float32, ignored=None):
    """Scores of five classes, classes, and weights of classes."""
    places = (3, *range(2, 2 + rank))
    scores = rng.standard_normal((places[0], 5, *places[1:]))
    classes = rng.integers(0, 5, places)
    if ignored is not None:
        classes[rng.random(places) < 0.3] = ignored
    return scores.astype(dtype), classes, rng.uniform(0.2, 2, 5).astype(dtype)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 2, -100, 17])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(rng, reduction, ignored, weighted):
    torch = oracle("torch")
    scores, classes, weights = drawn(rng, 1 + weighted, ignored=ignored)
    attrs = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = {"x": scores, "t": classes} | ({"w": weights} if weighted else {})
    tensors = [torch.tensor(array) for array in (scores, classes)]
    how = {"weight": torch.tensor(weights) if weighted else None, "reduction": reduction}
    how |= {} if ignored is None else {"ignore_index": ignored}
    wanted = torch.nn.functional.nll_loss(*tensors, **how).numpy()
    node = helper.make_node("NegativeLogLikelihoodLoss", list(inputs), ["y"], **attrs)
    for name, (got,) in weft_runs(model_of([node], inputs, ["y"], opset=13), inputs, levels=(3,)):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
    wanted = torch.nn.functional.cross_entropy(*tensors, **how).numpy()
    logarithms = torch.log_softmax(tensors[0], 1).numpy()
    node = helper.make_node("SoftmaxCrossEntropyLoss", list(inputs), ["y", "z"], **attrs)
    for name, got in weft_runs(model_of([node], inputs, ["y", "z"], opset=13), inputs, levels=(3,)):
        np.testing.assert_allclose(got[0], wanted, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(got[1], logarithms, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("rank", [0, 3])
def test_ranks_and_types(rng, dtype, rank):
    torch = oracle("torch")
    scores, classes, weights = drawn(rng, rank, dtype)
    inputs = {"x": scores, "t": classes.astype(np.int32), "w": weights}
    node = helper.make_node("SoftmaxCrossEntropyLoss", list(inputs), ["y"])
    arrays = (scores.astype(np.float64), classes, weights.astype(np.float64))
    wanted = torch.nn.functional.cross_entropy(*(torch.tensor(array) for array in arrays)).numpy()
    for name, (got,) in weft_runs(model_of([node], inputs, ["y"], opset=13), inputs, levels=(3,)):
        assert (got.dtype, got.shape) == (np.dtype(dtype), ())
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if dtype == "float16" else 1e-10, err_msg=name)


def test_an_ignored_place_may_be_infinite(rng):
    scores, classes, _ = drawn(rng, 0)
    scores[0], classes[0] = -np.inf, 4
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], ignore_index=4, reduction="sum")
    inputs = {"x": scores, "t": np.array([4, 1, 0])}
    for _, (got,) in weft_runs(model_of([node], inputs, ["y"], opset=13), inputs, levels=(3,)):
        np.testing.assert_allclose(got, -scores[1, 1] - scores[2, 0], rtol=1e-6)


def test_shapes_must_fit(rng):
    scores, classes, _ = drawn(rng, 1)
    inputs = {"x": scores, "t": classes[:, :1]}
    with pytest.raises(ShapeError, match=r"\(3, 1\) and \(3, 2\)"):
        from_onnx(model_of([helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"])], inputs, ["y"], opset=13))
