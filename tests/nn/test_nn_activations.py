"""Activations, dropouts and changes of shape as modules, against PyTorch's."""

import warnings

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, made_alike, refused_alike

import weft

RNG = np.random.default_rng(0)


def numbers(*shape):
    """Random numbers, some of them far from zero."""
    return (RNG.normal(size=shape) * 3).astype("float32")


# name: settings, each a tuple of positional arguments or a dictionary
ACTIVATIONS = {
    "ReLU": [(), (True,), {"inplace": False}],
    "ReLU6": [(), (True,), {"inplace": False}],
    "SELU": [(), (True,), {"inplace": False}],
    "SiLU": [(), (True,), {"inplace": False}],
    "Mish": [(), (True,), {"inplace": False}],
    "Hardsigmoid": [(), (True,), {"inplace": False}],
    "Hardswish": [(), (True,), {"inplace": False}],
    "Sigmoid": [()],
    "Tanh": [()],
    "LogSigmoid": [()],
    "Softsign": [()],
    "Tanhshrink": [()],
    "Threshold": [(0.1, 20), (-1.5, 2.5, True), {"threshold": 1, "value": -3.0}],
    "RReLU": [(), (0.1, 0.9), (0.2, 0.3, True)],
    "Hardtanh": [
        (),
        (-2, 3),
        {"min_val": -0.5, "max_val": 4.0, "inplace": True},
        {"min_value": -3.0, "max_value": 0.5},
    ],
    "ELU": [(), (0.4,), (2, True)],
    "CELU": [(), (0.4,), (2.0, True)],
    "LeakyReLU": [(), (0.3,), (0.2, True)],
    "PReLU": [(), (6,), (6, 0.4), {"init": 0.7}],
    "GELU": [(), ("tanh",), {"approximate": "none"}],
    "Softplus": [(), (2, 1.5), {"beta": 0.5, "threshold": 3.0}],
    "Hardshrink": [(), (1.5,), {"lambd": 0.1}],
    "Softshrink": [(), (1.5,), {"lambd": 0.1}],
    "GLU": [(), (1,), {"dim": 0}],
    "Softmax": [(1,), (-1,), {"dim": 0}, ()],
    "LogSoftmax": [(1,), (-1,), {"dim": 0}, ()],
    "Softmin": [(1,), (-1,), {"dim": 0}, ()],
    "Softmax2d": [()],
}
CASES = [(name, setting) for name, settings in ACTIVATIONS.items() for setting in settings]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "setting"), CASES)
def test_activations(name, setting):
    args, kwargs = ((), setting) if isinstance(setting, dict) else (setting, {})
    built = lambda lib: getattr(lib.nn, name)(*args, **kwargs)
    with warnings.catch_warnings(action="ignore"):
        if not getattr(built(weft), "inplace", False):  # which writes to no leaf
            compare(built, inputs=(numbers(2, 6, 4) if name == "Softmax2d" else numbers(4, 6),))
        compare(lambda lib: lib.nn.Sequential(lib.nn.Softsign(), built(lib)), inputs=(numbers(2, 6, 4, 2),))


def test_every_class_of_pytorch_is_there():
    files = oracle("torch").nn.modules
    for file in ("activation", "dropout", "flatten", "sparse", "distance", "adaptive", "loss"):
        names = set(getattr(files, file).__all__) - {"MultiheadAttention"}
        assert names <= set(weft.nn.__all__), file
        assert names <= set(getattr(weft.nn.modules, file).__all__), file


def test_writing_activations_write():
    for name in ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "ELU", "CELU", "LeakyReLU"):
        x = weft.from_numpy(numbers(5))
        assert getattr(weft.nn, name)(inplace=True)(x) is x, name


def test_settings_may_change_later():
    layer = weft.nn.LeakyReLU(0.1)
    layer.negative_slope, layer.inplace = 0.5, True
    x = weft.tensor([-2.0])
    assert layer(x).item() == x.item() == -1.0
    assert repr(layer) == "LeakyReLU(negative_slope=0.5, inplace=True)"


def test_kinds_are_pytorch_s():
    assert isinstance(weft.nn.ReLU6(), weft.nn.Hardtanh)
    assert not isinstance(weft.nn.CELU(), weft.nn.ELU)
    assert not isinstance(weft.nn.Softshrink(), weft.nn.Hardshrink)


REFUSED = {
    "Hardtanh": lambda lib: lib.nn.Hardtanh(2.0, 1.0),
    "Softmax2d": lambda lib: lib.nn.Softmax2d()(lib.rand(2, 3)),
    "Dropout": lambda lib: lib.nn.Dropout(1.5),
    "Dropout below": lambda lib: lib.nn.AlphaDropout(-0.1),
    "Unflatten": lambda lib: lib.nn.Unflatten(1, 2),
    "Unflatten text": lambda lib: lib.nn.Unflatten(1, (2, "a")),
    "Unflatten names": lambda lib: lib.nn.Unflatten("a", (("x", 2), ("y", 3))),
    "Unflatten size": lambda lib: lib.nn.Unflatten(1, (2, 4))(lib.rand(2, 6)),
    "GLU": lambda lib: lib.nn.GLU()(lib.rand(3)),
    "GELU": lambda lib: lib.nn.GELU("fast")(lib.rand(3)),
    "PReLU": lambda lib: lib.nn.PReLU(3)(lib.rand(2, 4)),
    "ReLU": lambda lib: lib.nn.ReLU(False, 3),
    "Sigmoid": lambda lib: lib.nn.Sigmoid(3),
    "Threshold": lambda lib: lib.nn.Threshold(3),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    refused_alike(REFUSED[case], assertion=ValueError)


def test_old_names_of_bounds_warn():
    with pytest.warns(FutureWarning, match="`min_value` is deprecated and renamed to `min_val`"):
        weft.nn.Hardtanh(min_value=-3.0)
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        weft.nn.Softmax()(weft.rand(3))


DROPOUTS = {
    "Dropout": (5, 7),
    "Dropout1d": (4, 6, 3),
    "Dropout2d": (4, 6, 3, 2),
    "Dropout3d": (2, 6, 3, 2, 2),
    "AlphaDropout": (5, 7),
    "FeatureAlphaDropout": (4, 6, 3),
}


@pytest.mark.parametrize("setting", [(), (0.2,), (0.8, True), (0.0,), (1.0,)])
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropouts_leave_out_the_same(name, setting):
    inside = lambda lib: lib.nn.Sequential(lib.nn.Softsign(), getattr(lib.nn, name)(*setting))
    compare(inside, inputs=(numbers(*DROPOUTS[name]),))
    if True not in setting:
        compare(name, *setting, inputs=(numbers(*DROPOUTS[name]),))


def test_dropout_of_an_item_alone():
    compare("Dropout1d", 0.4, inputs=(numbers(6, 3),))


SHAPES = [
    ("Flatten", (), (2, 3, 4)),
    ("Flatten", (0, 1), (2, 3, 4)),
    ("Flatten", (-2,), (2, 3, 4)),
    ("Unflatten", (1, (2, 3)), (4, 6)),
    ("Unflatten", (-1, [3, -1]), (4, 6)),
    ("Unflatten", (0, (2, 1, 2)), (4, 6)),
    ("Unflatten", (1, (6,)), (4, 6)),
]


@pytest.mark.parametrize(("name", "setting", "shape"), SHAPES)
def test_shapes(name, setting, shape):
    ours, theirs = compare(name, *setting, inputs=(numbers(*shape),))
    assert type(ours) is getattr(weft.nn, name)
    if name == "Unflatten":
        assert ours.unflattened_size == theirs.unflattened_size


def test_unflatten_takes_a_size():
    ours, theirs = made_alike(lambda lib: lib.nn.Unflatten(1, lib.Size([2, 3])))
    assert ours(weft.zeros(4, 6)).shape == (4, 2, 3)
    assert repr(ours) == repr(theirs).replace("torch.", "weft.")
