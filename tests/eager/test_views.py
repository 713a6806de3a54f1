"""Views: what shares memory, strides, and what refuses to be one."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

from weft.eager.functions.all import FUNCTIONS
from weft.eager.tensor.tensor import wrap
from weft.eager.tensor.types import as_dtype

torch = oracle("torch")
W = FUNCTIONS["weft"]

VIEWS = {
    "view": lambda x: x.view(6, 4),
    "reshape": lambda x: x.reshape(4, -1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(2, -1),
    "expand": lambda x: x.unsqueeze(0).expand(5, -1, -1, -1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 3), 4),
    "mT": lambda x: x.mT,
    "split": lambda x: x.split(2, 2)[1],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "unbind": lambda x: x.unbind(1)[1],
    "tensor_split": lambda x: x.tensor_split((1, 2), 1)[1],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_their_strides_and_shares_memory(name):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    ours, theirs = wrap(array.copy()), torch.from_numpy(array.copy())
    got, want = VIEWS[name](ours), VIEWS[name](theirs)
    assert tuple(got.shape) == tuple(want.shape)
    assert got.stride() == want.stride()
    assert got.storage_offset() == want.storage_offset()
    np.testing.assert_array_equal(got._array, want.numpy())
    ours._array.fill(7)
    assert (got._array == 7).all()
    assert got._version == ours._version


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_what_lies_otherwise(name):
    array = np.arange(24, dtype=np.float32).reshape(4, 3, 2).transpose(2, 1, 0)
    ours, theirs = wrap(array), torch.from_numpy(array)
    try:
        want = VIEWS[name](theirs)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            VIEWS[name](ours)
        return
    got = VIEWS[name](ours)
    np.testing.assert_array_equal(got._array, want.numpy())
    same = want.data_ptr() - theirs.data_ptr() == got.data_ptr() - ours.data_ptr()
    assert same == np.shares_memory(got._array, array)


def test_reshape_copies_when_it_must():
    x = wrap(np.arange(6).reshape(2, 3)).transpose(0, 1)
    flat = x.reshape(-1)
    assert flat.tolist() == [0, 3, 1, 4, 2, 5]
    assert not np.shares_memory(flat._array, x._array)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.view(-1)


def test_view_of_bytes():
    x = wrap(np.float32([[1, 2], [3, 4]]))
    want = torch.tensor([[1.0, 2], [3, 4]])
    for ours, theirs in (("int32", torch.int32), ("int16", torch.int16), ("float64", torch.float64)):
        got = x.view(as_dtype(ours))
        assert got.tolist() == want.view(theirs).tolist()
    with pytest.raises(RuntimeError, match="divisible"):
        x[:, :1].view(as_dtype("float64"))


def test_strides_stay_inside_the_storage():
    x = wrap(np.arange(6, dtype=np.float32))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        x.as_strided((3, 3), (3, 1))
    with pytest.raises(RuntimeError, match="Negative strides"):
        x.as_strided((2,), (-1,))


def test_resize_grows_the_storage():
    x = wrap(np.arange(4, dtype=np.int64))
    view = x[1:]
    view.untyped_storage()
    x.resize_(2, 5)
    assert x.shape == (2, 5)
    assert x.reshape(-1)[:4].tolist() == [0, 1, 2, 3]
    x[0, 1] = 9
    assert view.tolist() == [9, 2, 3]
    x.resize_(3)
    assert x.tolist() == [0, 9, 2]
    with pytest.raises(RuntimeError, match="require grad"):
        wrap(np.zeros(2, np.float32)).requires_grad_().resize_(3)


def test_messages_as_users_know_them():
    x = wrap(np.arange(10, dtype=np.float32))
    with pytest.raises(RuntimeError, match="greater than 0, got: 0"):
        x.chunk(0)
    with pytest.raises(IndexError, match=r"range of \[-1, 0\], but got 3"):
        x.chunk(2, 3)
    with pytest.raises(RuntimeError, match=r"sum exactly to 10 .*split_sizes=\[3, 3\]"):
        x.split([3, 3])
    with pytest.raises(RuntimeError, match=r"got \[2\] at entry 0 and \[3\] at entry 1"):
        W["stack"]([x[:2], x[:3]])
    with pytest.raises(TypeError):
        W["stack"](x)
    with pytest.raises(TypeError, match="element 1"):
        W["cat"]([x, 3])
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        x.view(2, 5) @ x.view(2, 5)
    assert [len(piece) for piece in wrap(np.zeros(13)).chunk(6)] == [3, 3, 3, 3, 1]


def test_an_expanded_tensor_is_not_written():
    x = wrap(np.zeros((1, 2), np.float32)).expand(3, 2)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)
    x[0].add_(1)
    assert x.tolist() == [[1, 1]] * 3
