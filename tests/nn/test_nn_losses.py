"""Losses as modules, against PyTorch's: values, gradients, states, texts, refusals, old arguments."""

import pickle
import warnings

import numpy as np
import pytest
from twin_modules import compare, made_alike, refused_alike

import weft

RNG = np.random.default_rng(1)
REDUCTIONS = ("mean", "sum", "none")


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


def chances(*shape):
    return RNG.uniform(0.05, 0.95, shape).astype("float32")


def shares(*shape):
    raw = chances(*shape)
    return raw / raw.sum(1, keepdims=True)


def classes(count, *shape):
    return RNG.integers(0, count, shape)


def signs(*shape):
    return np.where(RNG.random(shape) < 0.5, -1, 1).astype("float32")


def fixed(make, *args):
    """An input that gets no gradient, since losses have none for it."""
    array = make(*args)
    return lambda lib: lib.from_numpy(array.copy())


# name: [(settings, inputs)]; each runs with every reduction
LOSSES = {
    "L1Loss": [({}, (numbers(4, 3), numbers(4, 3))), ({}, (numbers(5), numbers(5)))],
    "MSELoss": [({}, (numbers(4, 3), numbers(4, 3))), ({}, (numbers(5), numbers(5)))],
    "SmoothL1Loss": [({"beta": beta}, (numbers(4, 3), numbers(4, 3))) for beta in (1.0, 0.3, 0.0)],
    "HuberLoss": [({"delta": delta}, (numbers(4, 3), numbers(4, 3))) for delta in (1.0, 0.3, 2.0)],
    "PoissonNLLLoss": [
        ({}, (numbers(4, 3), fixed(classes, 5, 4, 3))),
        ({"full": True}, (numbers(4, 3), fixed(chances, 4, 3))),
        ({"log_input": False, "full": True, "eps": 1e-3}, (chances(4, 3), fixed(classes, 5, 4, 3))),
    ],
    "GaussianNLLLoss": [
        ({}, (numbers(4, 3), numbers(4, 3), chances(4, 3))),
        ({"full": True, "eps": 0.4}, (numbers(4, 3), numbers(4, 3), chances(4, 1))),
        ({"full": True}, (numbers(4, 3), numbers(4, 3), 0.7)),
    ],
    "KLDivLoss": [({}, (numbers(4, 3), chances(4, 3))), ({"log_target": True}, (numbers(4, 3), numbers(4, 3)))],
    "NLLLoss": [
        ({}, (numbers(4, 5), classes(5, 4))),
        ({"weight": chances(5), "ignore_index": 2}, (numbers(8, 5), classes(5, 8))),
        ({"weight": chances(5)}, (numbers(2, 5, 3, 2), classes(5, 2, 3, 2))),
    ],
    "CrossEntropyLoss": [
        ({}, (numbers(4, 5), classes(5, 4))),
        ({"weight": chances(5), "ignore_index": 2}, (numbers(8, 5), classes(5, 8))),
        ({"weight": chances(5), "label_smoothing": 0.3}, (numbers(2, 5, 3), classes(5, 2, 3))),
        ({"label_smoothing": 0.2, "ignore_index": 1}, (numbers(8, 5), classes(5, 8))),
        ({}, (numbers(4, 5), shares(4, 5))),
        ({"weight": chances(5), "label_smoothing": 0.1}, (numbers(4, 5, 2), shares(4, 5, 2))),
        ({}, (numbers(5), classes(5))),
    ],
    "BCELoss": [({}, (chances(4, 3), chances(4, 3))), ({"weight": chances(4, 3)}, (chances(4, 3), chances(4, 3)))],
    "BCEWithLogitsLoss": [
        ({}, (numbers(4, 3), chances(4, 3))),
        ({"weight": chances(3)}, (numbers(4, 3), chances(4, 3))),
        ({"weight": chances(4, 1), "pos_weight": chances(3)}, (numbers(4, 3), chances(4, 3))),
    ],
    "LinearCrossEntropyLoss": [
        ({"in_features": 3, "num_classes": 5}, (numbers(4, 3), classes(5, 4))),
        (
            {"in_features": 3, "num_classes": 5, "bias": True, "weight": chances(5), "label_smoothing": 0.2},
            (numbers(4, 3), classes(5, 4)),
        ),
        (
            {"in_features": 3, "num_classes": 5, "out_features": (2, 2), "bias": True, "ignore_index": 1},
            (numbers(4, 3), classes(5, 4, 2, 2)),
        ),
    ],
    "SoftMarginLoss": [({}, (numbers(4, 3), fixed(signs, 4, 3))), ({}, (numbers(5), fixed(signs, 5)))],
    "MultiLabelMarginLoss": [
        ({}, (numbers(2, 4), np.array([[3, 0, -1, 1], [1, -1, 2, 2]]))),
        ({}, (numbers(4), np.array([3, 0, -1, 1]))),
    ],
    "MultiLabelSoftMarginLoss": [
        ({}, (numbers(4, 3), fixed(classes, 2, 4, 3))),
        ({"weight": chances(3)}, (numbers(4, 3), fixed(classes, 2, 4, 3))),
    ],
    "MultiMarginLoss": [
        ({}, (numbers(4, 5), classes(5, 4))),
        ({"p": 2, "margin": 0.4}, (numbers(4, 5), classes(5, 4))),
        ({"weight": chances(5), "margin": 2.0}, (numbers(4, 5), classes(5, 4))),
    ],
    "HingeEmbeddingLoss": [({"margin": margin}, (numbers(4, 3), fixed(signs, 4, 3))) for margin in (1.0, 0.2, 3.0)],
    "CosineEmbeddingLoss": [
        ({}, (numbers(4, 3), numbers(4, 3), fixed(signs, 4))),
        ({"margin": 0.3}, (numbers(4, 3), numbers(4, 3), fixed(signs, 4))),
        ({"margin": -0.5}, (numbers(3), numbers(3), fixed(signs))),
    ],
    "MarginRankingLoss": [
        ({"margin": margin}, (numbers(6), numbers(6), fixed(signs, 6))) for margin in (0.0, 0.5, -0.2)
    ],
    "TripletMarginLoss": [
        ({}, (numbers(4, 3), numbers(4, 3), numbers(4, 3))),
        ({"margin": 0.5, "p": 1.0}, (numbers(4, 3), numbers(4, 3), numbers(4, 3))),
        ({"margin": 2.0, "p": 3.0, "swap": True, "eps": 1e-3}, (numbers(4, 3), numbers(4, 3), numbers(4, 3))),
    ],
    "TripletMarginWithDistanceLoss": [
        ({}, (numbers(4, 3), numbers(4, 3), numbers(4, 3))),
        (
            {"distance_function": lambda lib: lib.nn.PairwiseDistance(1.0), "swap": True},
            (numbers(4, 3), numbers(4, 3), numbers(4, 3)),
        ),
        (
            {"distance_function": lambda lib: lambda a, b: 1 - lib.cosine_similarity(a, b), "margin": 0.4},
            (numbers(4, 3), numbers(4, 3), numbers(4, 3)),
        ),
    ],
}
SAMPLES = [(name, *case) for name, cases in LOSSES.items() for case in cases]


def is_pickled(settings):
    return settings.get("distance_function") is None  # functions of tests are not


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("name", "settings", "inputs"), SAMPLES)
def test_losses(name, settings, inputs, reduction):
    compare(name, **settings, reduction=reduction, inputs=inputs, modes=(True,), pickled=is_pickled(settings))


@pytest.mark.parametrize(("name", "settings", "inputs"), [next(s for s in SAMPLES if s[0] == name) for name in LOSSES])
def test_double_precision_and_names(name, settings, inputs):
    """Settings and inputs by their names, in float64."""
    if "in_features" in settings:
        settings = {**settings, "dtype": lambda lib: lib.float64}
    wide = lambda x: x.astype("float64") if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
    names = getattr(weft.nn, name).forward.__code__.co_varnames[1 : 1 + len(inputs)]
    named = {key: wide(x) if not callable(x) else x for key, x in zip(names, inputs)}
    compare(name, **settings, named_inputs=named, modes=(True,), rtol=1e-6, atol=1e-8)


def test_batchmean():
    compare("KLDivLoss", reduction="batchmean", inputs=(numbers(4, 3), chances(4, 3)), modes=(True,))


LENGTHS = (np.array([6, 5, 4]), np.array([3, 2, 1]))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("settings", [{}, {"blank": 4}, {"zero_infinity": True, "blank": 2}])
def test_ctc(settings, reduction):
    scores = numbers(6, 3, 5)
    places = [label for label in range(5) if label != settings.get("blank", 0)]
    targets = RNG.choice(places, (3, 3))
    scored = lambda lib: _Scored(lib)(lib.nn.CTCLoss(**settings, reduction=reduction))
    compare(scored, inputs=(scores, targets, *LENGTHS), modes=(True,), pickled=False)
    short = (np.array([2, 2, 2]), np.array([3, 2, 1]))  # no alignment is that short
    if settings.get("zero_infinity"):
        compare(scored, inputs=(scores, targets, *short), modes=(True,), pickled=False)


def _Scored(lib):
    class Scored(lib.nn.Module):
        def __init__(self, loss):
            super().__init__()
            self.loss = loss

        def forward(self, scores, *rest):
            return self.loss(scores.log_softmax(2), *rest)

    return Scored


# Old arguments, and wrong ones.

OLD = [name for name in LOSSES if "size_average" in getattr(weft.nn, name).__init__.__code__.co_varnames]


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("size_average", [None, True, False])
@pytest.mark.parametrize("reduce", [None, True, False])
def test_old_arguments(name, size_average, reduce):
    with warnings.catch_warnings(action="ignore"):
        ours, theirs = made_alike(name, size_average=size_average, reduce=reduce)
    assert ours.reduction == theirs.reduction


def test_old_arguments_warn():
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        weft.nn.L1Loss(size_average=False)
    with pytest.warns(UserWarning, match="please use reduction='none' instead"):
        weft.nn.functional.mse_loss(weft.rand(2), weft.rand(2), reduce=False)
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        loss = weft.nn.NLLLoss2d(weft.rand(3), ignore_index=1)
    assert isinstance(loss, weft.nn.NLLLoss)
    assert loss.ignore_index == 1
    with warnings.catch_warnings(action="error"):
        weft.nn.L1Loss(reduction="sum")(weft.rand(2), weft.rand(2))


REFUSED = {
    "reduction": lambda lib: lib.nn.L1Loss(reduction="most")(lib.rand(2), lib.rand(2)),
    "p": lambda lib: lib.nn.MultiMarginLoss(p=3),
    "weight": lambda lib: lib.nn.MultiMarginLoss(weight=lib.rand(2, 2)),
    "margin": lambda lib: lib.nn.TripletMarginLoss(margin=-1.0),
    "distance margin": lambda lib: lib.nn.TripletMarginWithDistanceLoss(margin=0),
    "linear weight": lambda lib: lib.nn.LinearCrossEntropyLoss(3, 4, weight=lib.rand(3)),
    "linear smoothing": lambda lib: lib.nn.LinearCrossEntropyLoss(3, 4, label_smoothing=1.5),
    "class": lambda lib: lib.nn.CrossEntropyLoss()(lib.rand(2, 3), lib.tensor([0, 3])),
    "batch": lambda lib: lib.nn.NLLLoss()(lib.rand(2, 3), lib.tensor([0, 1, 2])),
    "sizes": lambda lib: lib.nn.BCELoss()(lib.rand(2), lib.rand(3)),
    "range": lambda lib: lib.nn.BCELoss()(lib.rand(2) + 2, lib.rand(2)),
    "variance": lambda lib: lib.nn.GaussianNLLLoss()(lib.rand(2), lib.rand(2), -lib.ones(2)),
    "positional": lambda lib: lib.nn.GaussianNLLLoss(True),
    "missing": lambda lib: lib.nn.MSELoss()(lib.rand(2)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    refused_alike(REFUSED[case])


def test_kinds_are_pytorch_s():
    assert not isinstance(weft.nn.CrossEntropyLoss(), weft.nn.NLLLoss)


def test_weights_move_with_the_loss():
    loss = weft.nn.CrossEntropyLoss(weft.rand(3)).double()
    assert loss.weight.dtype == weft.float64
    assert list(loss.state_dict()) == ["weight"]
    assert list(weft.nn.BCEWithLogitsLoss(pos_weight=weft.rand(3)).state_dict()) == ["pos_weight"]
    assert pickle.loads(pickle.dumps(loss)).weight.tolist() == loss.weight.tolist()


def test_a_distance_that_is_a_module_is_a_part():
    class Apart(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = weft.nn.Parameter(weft.tensor(2.0))

        def forward(self, a, b):
            return (a - b).abs().sum(-1) * self.scale

    loss = weft.nn.TripletMarginWithDistanceLoss(distance_function=Apart(), margin=9.0)
    assert list(loss.state_dict()) == ["distance_function.scale"]
    a, b, c = (weft.from_numpy(numbers(2, 3)) for _ in range(3))
    expected = ((a - b).abs().sum(-1) * 2 - (a - c).abs().sum(-1) * 2 + 9).clamp(min=0).mean()
    assert loss(a, b, c).item() == pytest.approx(expected.item(), rel=1e-5)
    loss(a, b, c).backward()
    assert loss.distance_function.scale.grad is not None
