"""The operators of Python on tensors and numbers, against PyTorch: values and dtypes."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from oracles import oracle

import weft

torch = oracle("torch")
KINDS = "bool uint8 int16 int64 float16 float32 float64".split()
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
    operator.ilshift,
    operator.irshift,
]
NUMBERS = [True, 3, 2.5]
name = lambda value: getattr(value, "__name__", str(value))


def both(kind, shape, seed):
    """The same numbers from 1 to 5 in both systems."""
    values = torch.from_numpy(np.random.default_rng(seed).integers(1, 6, shape))
    theirs = values.to(getattr(torch, kind))
    return weft.from_numpy(theirs.numpy().copy()), theirs


def agree(run, ours, theirs):
    """The same result, or a refusal of the same type."""
    try:
        expected = run(*theirs)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        with pytest.raises(next(k for k in type(error).__mro__ if k.__module__ == "builtins")):
            run(*ours)
        return
    got = run(*ours)
    assert str(got.dtype).removeprefix("weft.") == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got.numpy().astype("float64"), expected.numpy().astype("float64"), rtol=2e-3)


@pytest.mark.parametrize("run", ARITHMETIC + COMPARISONS + BITS, ids=name)
@pytest.mark.parametrize("left", KINDS)
def test_two_tensors(run, left):
    for seed, right in enumerate(KINDS):
        for shapes in (((2, 3), (3,)), ((), (3,)), ((3,), ())):
            pairs = [both(k, s, seed) for k, s in zip((left, right), shapes)]
            agree(run, [p[0] for p in pairs], [p[1] for p in pairs])


@pytest.mark.parametrize("run", ARITHMETIC + COMPARISONS + BITS, ids=name)
@pytest.mark.parametrize("kind", KINDS)
def test_tensor_and_number(run, kind):
    for seed, number in enumerate(NUMBERS):
        for shape in ((2, 3), ()):
            mine, yours = both(kind, shape, seed)
            agree(run, [mine, number], [yours, number])
            agree(lambda x, n: run(n, x), [mine, number], [yours, number])


@pytest.mark.parametrize("run", IN_PLACE, ids=name)
@pytest.mark.parametrize("kind", KINDS)
def test_in_place(run, kind):
    for seed, number in enumerate(NUMBERS):
        mine, yours = both(kind, (2, 3), seed)
        agree(run, [mine, number], [yours, number])
        for other in KINDS:
            pair = both(other, (3,), seed)
            mine, yours = both(kind, (2, 3), seed)
            agree(run, [mine, pair[0]], [yours, pair[1]])


@pytest.mark.parametrize("run", [operator.neg, operator.pos, operator.invert, abs], ids=name)
@pytest.mark.parametrize("kind", KINDS)
def test_prefix(run, kind):
    mine, yours = both(kind, (4,), 1)
    agree(run, [mine], [yours])


def test_in_place_keeps_the_tensor():
    x = weft.ones(3)
    before = x
    x += 1
    x *= 3
    x -= weft.ones(3)
    assert x is before
    assert x.tolist() == [5, 5, 5]
    assert x._version == 3


def test_comparison_with_what_is_no_number():
    x = weft.ones(2)
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(TypeError):
        x < "a"  # noqa: B015
    with pytest.raises(TypeError):
        x + "a"
    with pytest.raises(TypeError):
        [1] + x


def test_tensors_are_keys():
    x, y = weft.ones(2), weft.ones(2)
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y}) == 2


def test_numpy_numbers_are_numbers():
    x = weft.ones(2)
    assert (x * np.float64(2)).dtype is weft.float32
    assert (np.float64(2) * x).dtype is weft.float32
    assert (x + np.int64(1)).tolist() == [2, 2]
