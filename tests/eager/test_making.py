"""Tensors from Python data, arrays and buffers, and conversions, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.errors import Error

torch = oracle("torch")
KINDS = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64".split()


def same(ours, theirs):
    assert str(ours.dtype).removeprefix("weft.") == str(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


DATA = [
    3,
    2.5,
    True,
    1 + 2j,
    [],
    [[], []],
    [1, 2],
    [1, 2.5],
    [True, False],
    [True, 2],
    [1, 2j],
    [[1, 2], [3, 4]],
    ([1.5, 2], (3, 4)),
    [[[]]],
    np.float32([1, 2]),
    np.float64(2.5),
    np.int8(3),
    [np.float32(1), np.float32(2)],
    [np.float64(1)],
    np.arange(6).reshape(2, 3)[:, ::2],
    range(4),
    -(2**63),
    [2**62],
    1e300,
    float("inf"),
]


@pytest.mark.parametrize("data", DATA, ids=str)
def test_tensor_of_data(data):
    same(weft.tensor(data), torch.tensor(data))


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_in_a_dtype(kind):
    rng = np.random.default_rng(len(kind))
    data = rng.integers(0, 100, (2, 3)).tolist()
    same(weft.tensor(data, dtype=getattr(weft, kind)), torch.tensor(data, dtype=getattr(torch, kind)))


BAD = [None, "text", [1, "b"], [[1, 2], [3]], [1, [2]], object(), [object()], 2**70, [2**64]]


@pytest.mark.parametrize("data", BAD, ids=lambda data: str(type(data)) + str(data)[:9])
def test_bad_data(data):
    with pytest.raises(Exception) as theirs:
        torch.tensor(data)
    with pytest.raises((TypeError, ValueError, RuntimeError)) as ours:
        weft.tensor(data)
    assert isinstance(ours.value, Error)
    if data not in ([1, [2]], [1, "b"]):  # where PyTorch's message depends on what comes first
        assert isinstance(ours.value, theirs.type)


def test_overflow_is_refused():
    for value, kind in ((256, "uint8"), (-256, "uint8"), (2**31, "int32"), (1e10, "int16")):
        with pytest.raises(RuntimeError, match="without overflow"):
            weft.tensor(value, dtype=getattr(weft, kind))


def test_deep_nesting_is_refused():
    data = 1
    for _ in range(100_000):
        data = [data]
    with pytest.raises(ValueError, match="dimensions"):
        weft.tensor(data)


def test_tensors_inside_of_data():
    mine, yours = weft.tensor(2.5), torch.tensor(2.5)
    same(weft.tensor([mine, mine]), torch.tensor([yours, yours]))
    same(weft.tensor(mine), yours)


def test_tensor_copies_and_as_tensor_shares():
    array = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    copied, shared, cast = (weft.tensor(array), weft.as_tensor(array), weft.as_tensor(array, weft.int32))
    array[0, 0] = 7
    assert copied[0, 0].item() != 7
    assert shared[0, 0].item() == 7
    assert cast[0, 0].item() != 7
    assert weft.as_tensor(shared) is shared


def test_from_numpy_shares_memory():
    array = np.arange(12.0).reshape(3, 4)[:, ::2]
    made = weft.from_numpy(array)
    made.mul_(2)
    np.testing.assert_array_equal(array[1], [8, 12])
    assert made.stride() == (4, 2)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([1, 2], TypeError),
        (np.arange(4)[::-1], ValueError),
        (np.array(["a"]), TypeError),
        (np.array([1], ">i4"), Exception),
        (np.array([object()]), TypeError),
    ],
)
def test_from_numpy_refuses(value, error):
    with pytest.raises(error):
        torch.from_numpy(value)
    with pytest.raises((TypeError, ValueError)) as raised:
        weft.from_numpy(value)
    assert isinstance(raised.value, Error)


def test_frombuffer():
    data = bytearray(np.arange(8, dtype="int16").tobytes())
    for options in ({}, {"offset": 4}, {"count": 3}, {"offset": 2, "count": 2}):
        same(weft.frombuffer(data, dtype=weft.int16, **options), torch.frombuffer(data, dtype=torch.int16, **options))
    made = weft.frombuffer(data, dtype=weft.int16)
    data[0] = 9
    assert made[0].item() == 9


@pytest.mark.parametrize("options", [{"offset": 16}, {"offset": -1}, {"offset": 1}, {"count": 9}, {"count": 0}])
def test_frombuffer_refuses(options):
    data = bytearray(16)
    with pytest.raises(ValueError):
        torch.frombuffer(data, dtype=torch.int16, **options)
    with pytest.raises(ValueError):
        weft.frombuffer(data, dtype=weft.int16, **options)


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_casts(source, target):
    values = np.random.default_rng(3).uniform(-100, 100, (3, 5))
    if source == "complex64" and target != "complex64":
        pytest.skip("PyTorch warns that the imaginary part is lost")
    yours = torch.from_numpy(values).abs().to(getattr(torch, source))
    mine = weft.from_numpy(yours.numpy().copy())
    kind = getattr(weft, target)
    same(mine.to(kind), yours.to(getattr(torch, target)))
    same(mine.type(kind), yours.type(getattr(torch, target)))
    same(mine.type_as(weft.zeros(1, dtype=kind)), yours.to(getattr(torch, target)))


def test_to_gives_itself_when_nothing_changes():
    x = weft.ones(2, 3)
    assert x.to(weft.float32) is x
    assert x.to("cpu") is x
    assert x.to("cpu", weft.float32) is x
    assert x.float() is x
    assert x.to(weft.zeros(1)) is x
    assert x.to(weft.float32, copy=True) is not x
    assert x.to(weft.zeros(1, dtype=weft.int64)).dtype is weft.int64
    with pytest.raises(RuntimeError):
        x.to("cuda")
    with pytest.raises(TypeError):
        x.to(weft.float32, colour=3)


def test_type_by_name():
    x = weft.ones(2)
    assert x.type() == "weft.FloatTensor"
    assert x.type("weft.LongTensor").dtype is weft.int64
    with pytest.raises(ValueError):
        x.type("weft.NoTensor")


def test_casts_are_differentiable():
    x = weft.tensor([1.5, 2.5], requires_grad=True)
    x.double().mul(3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert x.grad.dtype is weft.float32
    assert not x.int().requires_grad


def test_copy_fill_and_zero():
    x = weft.zeros(2, 3)
    assert x.copy_(weft.tensor([1, 2, 3])) is x
    assert x.tolist() == [[1, 2, 3]] * 2
    assert x.fill_(2.5).tolist() == [[2.5] * 3] * 2
    assert x.fill_(weft.tensor(3)).tolist() == [[3] * 3] * 2
    assert x.zero_().tolist() == [[0] * 3] * 2
    for bad in (weft.ones(4), weft.ones(3, 2)):
        with pytest.raises(RuntimeError):
            x.copy_(bad)
    with pytest.raises(RuntimeError):
        x.fill_(weft.ones(2))
    with pytest.raises(TypeError):
        x.fill_("a")


def test_copy_is_differentiable():
    source = weft.tensor([1.0, 2.0], requires_grad=True)
    target = weft.zeros(3, 2)
    target.copy_(source)
    target.sum().backward()
    assert source.grad.tolist() == [3, 3]


def test_sizes_are_checked():
    for make in (weft.zeros, weft.ones, weft.empty):
        assert make(2, 3).shape == make((2, 3)).shape == make(size=(2, 3)).shape == (2, 3)
        assert make(()).shape == ()
        with pytest.raises(RuntimeError, match="negative dimension -1"):
            make(2, -1)
        with pytest.raises(TypeError):
            make("a")
        with pytest.raises(TypeError):
            make(2.0)
        with pytest.raises(TypeError):
            make(2, colour=1)
        assert make(2, requires_grad=True).requires_grad


def test_default_dtype_rules_creation():
    weft.set_default_dtype(weft.float64)
    try:
        assert weft.tensor(1.5).dtype is weft.zeros(2).dtype is weft.float64
        assert weft.tensor([1, 2]).mul(1.5).dtype is weft.float64
        assert weft.tensor([1]).sqrt().dtype is weft.float64
        assert weft.tensor([1j]).dtype is weft.complex128
    finally:
        weft.set_default_dtype(weft.float32)
