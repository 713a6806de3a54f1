"""Embeddings, bags of them, distances and the adaptive softmax as modules, against PyTorch's."""

import warnings

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, made_alike, randomise, refused_alike, same_call, same_tensor

import weft

RNG = np.random.default_rng(2)


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


PLACES = np.array([[1, 2, 2], [0, 6, 2]])
EMBEDDINGS = [
    {},
    {"padding_idx": 2},
    {"padding_idx": -1, "scale_grad_by_freq": True},
    {"scale_grad_by_freq": True},
    {"max_norm": 0.6},
    {"max_norm": 0.7, "norm_type": 1.0, "padding_idx": 0},
    {"dtype": lambda lib: lib.float64},
]


@pytest.mark.parametrize("settings", EMBEDDINGS)
def test_embeddings(settings):
    compare("Embedding", 7, 4, **settings, inputs=(PLACES,))


def test_embeddings_take_places_of_any_shape():
    for places in (np.array(3), np.array([], "int64"), PLACES.astype("int32"), np.zeros((0, 2), "int64")):
        compare("Embedding", 7, 4, inputs=(places,))


BAGS = [
    ({}, (PLACES,)),
    ({"mode": "sum"}, (np.array([1, 2, 2, 0, 6]), np.array([0, 2, 2]))),
    ({"mode": "max"}, (np.array([1, 2, 2, 0, 6]), np.array([0, 2, 4]))),
    ({"mode": "mean", "padding_idx": 2}, (np.array([1, 2, 2, 0, 6]), np.array([0, 2]))),
    ({"mode": "sum", "include_last_offset": True}, (np.array([1, 2, 2, 0, 6]), np.array([0, 2, 5]))),
    ({"mode": "sum"}, (np.array([1, 2, 2, 0, 6]), np.array([0, 2]), numbers(5))),
    ({"mode": "sum", "padding_idx": -1}, (PLACES, None, numbers(2, 3))),
    ({"max_norm": 0.6, "scale_grad_by_freq": True}, (np.array([[1, 6, 6], [0, 2, 6]]),)),
    ({"max_norm": 0.7, "norm_type": 1.0, "mode": "sum"}, (PLACES,)),
]


@pytest.mark.parametrize(("settings", "inputs"), BAGS)
def test_bags(settings, inputs):
    compare("EmbeddingBag", 7, 4, **settings, inputs=inputs)


def test_bags_count_how_often_each_row_is_used():
    """PyTorch's counts are those of other rows where a row that is used again is not the last."""
    bags = weft.nn.EmbeddingBag(7, 1, mode="sum", scale_grad_by_freq=True)
    bags(weft.from_numpy(PLACES)).sum().backward()
    assert bags.weight.grad.reshape(-1).tolist() == [1, 1, 1, 0, 0, 0, 1]


PRETRAINED = [
    ("Embedding", {}),
    ("Embedding", {"freeze": False, "padding_idx": 1}),
    ("Embedding", {"max_norm": 1.0, "norm_type": 3.0, "scale_grad_by_freq": True}),
    ("EmbeddingBag", {}),
    ("EmbeddingBag", {"freeze": False, "mode": "sum", "padding_idx": 1}),
    ("EmbeddingBag", {"mode": "max", "include_last_offset": True}),
]


@pytest.mark.parametrize(("name", "settings"), PRETRAINED)
def test_pretrained(name, settings):
    matrix = numbers(7, 4)
    built = lambda lib: getattr(lib.nn, name).from_pretrained(lib.from_numpy(matrix.copy()), **settings)
    inputs = (PLACES.reshape(-1), np.array([0, 3, 6])) if "include_last_offset" in settings else (PLACES,)
    compare(built, inputs=inputs, randomised=False)
    given = weft.from_numpy(matrix)
    table = getattr(weft.nn, name).from_pretrained(given, **settings)
    assert table.weight.data_ptr() == given.data_ptr()
    assert table.weight.requires_grad is not settings.get("freeze", True)


def test_weights_that_are_given():
    matrix = numbers(7, 4)
    compare("Embedding", 7, 4, _weight=matrix, inputs=(PLACES,), randomised=False)
    compare("Embedding", 7, 4, _freeze=True, inputs=(PLACES,))


REFUSED = {
    "padding": lambda lib: lib.nn.Embedding(3, 4, 5),
    "padding below": lambda lib: lib.nn.EmbeddingBag(3, 4, padding_idx=-4),
    "weight": lambda lib: lib.nn.Embedding(3, 4, _weight=lib.rand(2, 2)),
    "pretrained": lambda lib: lib.nn.Embedding.from_pretrained(lib.rand(3)),
    "place": lambda lib: lib.nn.Embedding(3, 4)(lib.tensor([3])),
    "mode": lambda lib: lib.nn.EmbeddingBag(3, 4, mode="least")(lib.tensor([[1]])),
    "offsets": lambda lib: lib.nn.EmbeddingBag(3, 4)(lib.tensor([1, 2])),
    "cutoffs": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, []),
    "order": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [5, 2]),
    "twice": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 2]),
    "zero": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [0, 2]),
    "last": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 9]),
    "half": lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2.5]),
    "target": lambda lib: soft(lib)(lib.rand(2, 8), lib.tensor([0, 20])),
    "negative": lambda lib: soft(lib)(lib.rand(2, 8), lib.tensor([0, -1])),
    "targets": lambda lib: soft(lib)(lib.rand(2, 8), lib.tensor([[0], [1]])),
    "batch": lambda lib: soft(lib)(lib.rand(2, 8), lib.tensor([0])),
    "item": lambda lib: soft(lib)(lib.rand(8), lib.tensor([0])),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    refused_alike(REFUSED[case], assertion=ValueError)


def test_sparse_gradients_are_refused_by_name():
    for name in ("Embedding", "EmbeddingBag"):
        with pytest.raises(NotImplementedError, match=f"{name} with sparse=True"):
            getattr(weft.nn, name)(3, 4, sparse=True)


DISTANCES = [
    ("PairwiseDistance", {}, [(4, 3), (4, 3)]),
    ("PairwiseDistance", {"p": 1.0, "keepdim": True}, [(4, 3), (4, 3)]),
    ("PairwiseDistance", {"p": 3.0, "eps": 0.1}, [(4, 3), (3,)]),
    ("CosineSimilarity", {}, [(4, 3), (4, 3)]),
    ("CosineSimilarity", {"dim": 0, "eps": 1e-2}, [(4, 3), (4, 3)]),
    ("CosineSimilarity", {"dim": -1}, [(2, 4, 3), (1, 3)]),
]


@pytest.mark.parametrize(("name", "settings", "shapes"), DISTANCES)
def test_distances(name, settings, shapes):
    ours, theirs = compare(name, **settings, inputs=[numbers(*shape) for shape in shapes])
    for setting in vars(theirs):
        if not setting.startswith("_"):
            assert getattr(ours, setting) == getattr(theirs, setting)


# The adaptive softmax.


def soft(lib, **settings):
    return lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, **settings)


ADAPTIVE = [
    lambda lib: soft(lib),
    lambda lib: soft(lib, head_bias=True),
    lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [10]),
    lambda lib: lib.nn.AdaptiveLogSoftmaxWithLoss(8, 20, (2, 3, 19), 1.5),
]


@pytest.mark.parametrize("built", ADAPTIVE)
def test_adaptive_softmax(built):
    with warnings.catch_warnings(action="ignore"):  # of a width that becomes zero
        ours, theirs = compare(built, inputs=(numbers(6, 8), np.array([0, 3, 4, 9, 10, 19])))
        same_call(ours, theirs, (numbers(8), np.array(13)), {})
        same_call(ours, theirs, (numbers(2, 8), np.array([0, 1])), {})
    x = numbers(40, 8) * 3
    same_tensor(ours.log_prob(weft.from_numpy(x)), theirs.log_prob(oracle("torch").from_numpy(x)), 1e-4, 1e-5)
    found = ours.predict(weft.from_numpy(x))
    assert found.tolist() == theirs.predict(oracle("torch").from_numpy(x)).tolist()
    assert len(set(found.tolist())) > 3


def test_adaptive_softmax_begins_again():
    ours, theirs = made_alike(soft)
    for module, library in ((ours, weft), (theirs, oracle("torch"))):
        library.manual_seed(4)
        module.reset_parameters()
    for name, value in ours.state_dict().items():
        same_tensor(value, theirs.state_dict()[name], 1e-6, 1e-7, name)
    randomise(ours, theirs)
    result = ours(weft.rand(2, 8), weft.tensor([0, 19]))
    assert result.loss.item() == pytest.approx(-result.output.mean().item())
    assert (ours.shortlist_size, ours.n_clusters, ours.head_size, ours.cutoffs) == (4, 2, 6, [4, 10, 20])
