"""x[index] and x[index] = value against PyTorch's, on random indices of every kind."""

from __future__ import annotations

import warnings
from operator import getitem, setitem

import numpy as np
import pytest
from oracles import oracle

import weft.eager.functions.all  # noqa: F401  dispatch and its tensors
from weft.eager.autograd.engine import Engine
from weft.eager.tensor.tensor import Tensor, wrap

torch = oracle("torch")
KINDS = ("int", "slice", "none", "dots", "bool", "array", "mask", "list")


def _items(rng, shape):
    """A random index, now and then one that does not fit."""
    items, axis = [], 0
    wide = [(2,), (3, 1), (1,), (2, 3)][rng.integers(4)]
    for kind in rng.choice(KINDS, rng.integers(0, 6)):
        size = shape[axis] if axis < len(shape) else 3
        if kind == "none":
            items.append(None)
        elif kind == "dots":
            items += [] if any(item is Ellipsis for item in items) else [Ellipsis]
        elif kind == "bool":
            items.append(bool(rng.integers(2)))
        elif kind == "mask":
            count = int(rng.integers(1, 3))
            items.append(np.asarray(rng.random(shape[axis : axis + count]) < 0.5))
            axis += count
        else:
            items.append(_along(rng, kind, size, wide))
            axis += 1
    return items[0] if len(items) == 1 and rng.integers(2) else tuple(items)


def _along(rng, kind, size, wide):
    if kind == "int":
        return int(rng.integers(-size - (rng.random() < 0.1), max(size, 1)))
    if kind == "slice":
        starts, stops, steps = (None, 0, 1, -2, 5), (None, 0, 2, -1, 7), (None, 1, 2, 3)
        return slice(*(options[rng.integers(len(options))] for options in (starts, stops, steps)))
    if kind == "array":
        shapes = [wide, (1,), wide[-1:], ()]
        return rng.integers(-size, max(size, 1), shapes[rng.integers(4)])
    return rng.integers(-size, max(size, 1), wide).tolist()


def _in(index, make):
    one = lambda item: make(item.copy()) if isinstance(item, np.ndarray) else item
    return tuple(map(one, index)) if isinstance(index, tuple) else one(index)


def _tried(function, *args):
    with warnings.catch_warnings(action="ignore"):
        try:
            return function(*args), None
        except Exception as error:
            return None, error


def _cases():
    rng = np.random.default_rng(20)
    for _ in range(700):
        shape = tuple(int(n) for n in rng.integers(0, 5, rng.integers(0, 5)))
        yield rng, rng.standard_normal(shape).astype("float32"), _items(rng, shape)


def _must_fail_alike(ours, theirs, place):
    assert (ours is None) == (theirs is None), f"{place}: {ours!r}, not {theirs!r}"
    if theirs is not None:
        assert isinstance(ours, type(theirs)), f"{place}: {ours!r}, not {theirs!r}"


def test_reading_and_its_gradient():
    compared = 0
    for rng, array, index in _cases():
        place = f"{array.shape}[{index}]"
        theirs, ours = torch.from_numpy(array.copy()).requires_grad_(), wrap(array.copy())
        ours.requires_grad_()
        want, error = _tried(getitem, theirs, _in(index, torch.from_numpy))
        got, own = _tried(getitem, ours, _in(index, wrap))
        _must_fail_alike(own, error, place)
        if error is not None:
            continue
        np.testing.assert_array_equal(got._array, want.detach().numpy(), err_msg=place)
        weight = rng.standard_normal(want.shape).astype("float32")
        want.backward(torch.from_numpy(weight))
        if want is not theirs:
            Engine().run_backward((got,), (wrap(weight),), False, False)
            want, got = theirs.grad.numpy(), ours.grad._array
            np.testing.assert_allclose(got, want, 1e-5, 1e-6, err_msg=place)
        compared += 1
    assert compared > 300


def test_what_is_a_view():
    for _, array, index in _cases():
        theirs, ours = torch.from_numpy(array.copy()), wrap(array.copy())
        want, error = _tried(getitem, theirs, _in(index, torch.from_numpy))
        if error is None and want.numel():
            got = ours[_in(index, wrap)]
            shared = want.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()
            assert np.shares_memory(got._array, ours._array) == shared, f"{array.shape}[{index}]"


@pytest.mark.parametrize("recorded", [False, True])
def test_writing(recorded):
    compared = 0
    for rng, array, index in _cases():
        items = index if isinstance(index, tuple) else (index,)
        arrays = [np.asarray(item) for item in items if isinstance(item, (list, np.ndarray))]
        if any(array.dtype != bool for array in arrays):
            continue  # one element may be written twice, in an order that nothing decides
        theirs, ours = torch.from_numpy(array.copy()), wrap(array.copy())
        want, error = _tried(getitem, theirs, _in(index, torch.from_numpy))
        shape = () if error is not None else want.shape[int(rng.integers(2)) :]
        value = rng.standard_normal(shape).astype("float32")
        a, b = torch.from_numpy(value.copy()), wrap(value.copy())
        if recorded:
            a.requires_grad_(), b.requires_grad_()
        _, error = _tried(setitem, theirs, _in(index, torch.from_numpy), a)
        _, own = _tried(setitem, ours, _in(index, wrap), b)
        place = f"{array.shape}[{index}] = {value.shape}"
        _must_fail_alike(own, error, place)
        if error is not None:
            continue
        np.testing.assert_array_equal(ours._array, theirs.detach().numpy(), err_msg=place)
        if recorded and theirs.requires_grad:
            weight = rng.standard_normal(array.shape).astype("float32")
            theirs.backward(torch.from_numpy(weight))
            Engine().run_backward((ours,), (wrap(weight),), False, False)
            np.testing.assert_allclose(b.grad._array, a.grad.numpy(), 1e-5, 1e-6, err_msg=place)
        compared += 1
    assert compared > 150


def test_a_write_reaches_base_and_views():
    x = wrap(np.zeros((3, 4), np.float32))
    column = x[:, 1]
    x[1:, 1] = 5
    assert column.tolist() == [0, 5, 5]
    column[0] = 7
    assert x[0, 1].item() == 7
    assert x._version == column._version == 2


def test_backward_steps_are_refused():
    with pytest.raises(ValueError, match="step must be greater than zero"):
        wrap(np.zeros(4))[::-1]


def test_a_leaf_is_not_written():
    x = wrap(np.zeros(4, np.float32)).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1


def test_integers_from_elsewhere():
    x = wrap(np.arange(12).reshape(3, 4))
    assert x[np.int64(1), wrap(np.asarray(2))].item() == 6
    assert isinstance(x[0], Tensor)
    with pytest.raises(IndexError):
        x["a"]
    with pytest.raises(IndexError):
        x[wrap(np.zeros(2, np.float32))]
