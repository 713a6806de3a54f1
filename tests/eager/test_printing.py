"""Tensors print as PyTorch's do, letter by letter."""

import math
import re

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.eager.tensor import types
from weft.eager.tensor.printing import format_tensor, get_printoptions, printoptions, set_printoptions

NAMES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
).split()


@pytest.fixture(autouse=True)
def defaults():
    yield
    set_printoptions(profile="default")
    oracle("torch").set_printoptions(profile="default")


def to_torch(array):
    torch = oracle("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)


def check(array, **notes):
    theirs = to_torch(array)
    if notes.get("requires_grad"):
        theirs.requires_grad_()
    ours, expected = format_tensor(array, **notes), repr(theirs).replace("torch.", "weft.")
    if "dtype=" in expected:  # names of dtypes are a letter shorter: lines break later
        ours, expected = (re.sub(r",\s+(?=[a-z_]+=)", ", ", text) for text in (ours, expected))
    assert ours == expected


def random_array(rng, name):
    kind = types.as_dtype(name).numpy
    rank = rng.integers(0, 4)
    shape = tuple(rng.integers(1, 9, rank)) if rng.random() < 0.8 else (rng.integers(1, 40),)
    if rng.random() < 0.08:
        shape = tuple(rng.integers(0, 3, rank))
    if kind.kind in "biu":
        most = min(10.0 ** rng.integers(1, 12), float(np.iinfo(kind).max) if kind.kind != "b" else 1)
        values = rng.integers(0, int(most) + 1, shape)
        return np.asarray(values).astype(kind)

    def part():
        style = rng.integers(6)
        scale = 10.0 ** rng.integers(-6, 7)
        values = rng.standard_normal(shape) * (scale if style < 4 else 1)
        if style == 1:
            values = np.round(values)
        if style == 2:
            values = values * 10.0 ** rng.integers(-4, 4, shape)
        if style == 3:
            values = np.where(rng.random(shape) < 0.3, 0, values)
        if style == 4:
            special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.5], shape)
            values = np.where(rng.random(shape) < 0.5, special, values)
        return np.asarray(values)

    with np.errstate(all="ignore"):
        values = part() + 1j * part() if kind.kind == "c" else part()
        return np.asarray(values).astype(kind)


@pytest.mark.parametrize("name", NAMES)
def test_random_arrays(name):
    rng = np.random.default_rng(NAMES.index(name))
    for _ in range(120):
        check(random_array(rng, name))


@pytest.mark.parametrize("name", ["float32", "int64", "complex64", "bool", "float16"])
@pytest.mark.parametrize("seed", range(25))
def test_random_options(name, seed):
    rng = np.random.default_rng(seed)
    options = {
        "precision": int(rng.integers(0, 9)),
        "threshold": [0, 10, 100, math.inf][rng.integers(4)],
        "edgeitems": int(rng.integers(1, 5)),
        "linewidth": int(rng.integers(10, 150)),
        "sci_mode": [None, None, True, False][rng.integers(4)],
    }
    set_printoptions(**options)
    oracle("torch").set_printoptions(**options)
    for _ in range(10):
        check(random_array(rng, name))


def test_large_arrays_show_their_edges():
    rng = np.random.default_rng(3)
    for shape in [(1001,), (40, 40), (7, 200), (11, 12, 13), (2, 3, 4, 100), (1000,)]:
        check(rng.standard_normal(shape).astype(np.float32))
        check(rng.integers(-5, 500, shape))
    set_printoptions(edgeitems=0)
    oracle("torch").set_printoptions(edgeitems=0)
    check(np.arange(2000.0))
    check(np.ones((40, 50), np.float32))
    check(np.ones(5, np.float32))


@pytest.mark.parametrize("profile", ["default", "short", "full", "nonsense", None])
def test_profiles(profile):
    set_printoptions(profile=profile)
    oracle("torch").set_printoptions(profile=profile)
    array = np.random.default_rng(1).standard_normal((30, 40))
    check(array)
    check(array[:2, :3])


def test_notes():
    torch = oracle("torch")
    x = torch.ones(2, 3, requires_grad=True)
    check(np.ones((2, 3), np.float32), requires_grad=True)
    y = x * 2
    theirs = repr(y)
    assert format_tensor(np.full((2, 3), 2, np.float32), grad_fn="MulBackward0") == theirs
    for shape in [(0,), (2, 0), (0, 2, 3)]:
        for name in NAMES:
            check(np.empty(shape, types.as_dtype(name).numpy))
    for width in range(10, 90, 7):
        set_printoptions(linewidth=width)
        torch.set_printoptions(linewidth=width)
        check(np.ones((2, 5)), requires_grad=True)
        check(np.ones(()), requires_grad=True)


@pytest.mark.parametrize("default", ["float64", "float16", "bfloat16"])
def test_the_default_dtype_is_not_named(default):
    torch = oracle("torch")
    types.set_default_dtype(types.as_dtype(default))
    torch.set_default_dtype(getattr(torch, default))
    try:
        for name in NAMES:
            check(np.ones(3, types.as_dtype(name).numpy))
            check(np.empty((0, 1), types.as_dtype(name).numpy))
    finally:
        types.set_default_dtype(types.float32)
        torch.set_default_dtype(torch.float32)


def test_options_come_and_go():
    with printoptions(precision=2, sci_mode=True):
        assert format_tensor(np.array([1.5], np.float32)) == "tensor([1.50e+00])"
        assert get_printoptions()["precision"] == 2
    assert get_printoptions() == {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
    set_printoptions(sci_mode=True)
    set_printoptions(precision=3)
    assert get_printoptions()["sci_mode"] is None
    with pytest.raises(TypeError):
        set_printoptions(colour="red")


def test_tensors_print_themselves():
    torch = oracle("torch")
    for library in (weft, torch):
        x = library.tensor([[1.0, 2.0], [3.0, 4.5]], requires_grad=True)
        texts = [repr(x), str(x.detach()), f"{library.tensor(2.5):.2f}", f"{library.tensor([1])}"]
        assert texts == [
            "tensor([[1.0000, 2.0000],\n        [3.0000, 4.5000]], requires_grad=True)",
            "tensor([[1.0000, 2.0000],\n        [3.0000, 4.5000]])",
            "2.50",
            "tensor([1])",
        ]
        assert repr(x.sum()).startswith("tensor(10.5000, grad_fn=<")
