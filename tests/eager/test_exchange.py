"""Tensors and other libraries over one memory, through DLPack and numpy."""

import ml_dtypes
import numpy as np
import pytest
from oracles import oracle

import weft


def test_numpy_and_tensors_share_memory():
    tensor = weft.arange(6, dtype=weft.float32).reshape(2, 3).t()
    array = np.from_dlpack(tensor)
    assert array.shape == (3, 2)
    array[0, 1] = 50
    assert tensor[0, 1].item() == 50
    again = weft.from_dlpack(array)
    again.add_(1)
    assert tensor[0, 1].item() == 51


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_pytorch_and_tensors_share_memory(dtype):
    torch = oracle("torch")
    ours = weft.ones(4, dtype=getattr(weft, dtype))
    theirs = torch.from_dlpack(ours)
    assert str(theirs.dtype) == f"torch.{dtype}"
    theirs[1] = 0
    assert ours.tolist() == [1, 0, 1, 1]
    back = weft.from_dlpack(theirs)
    back[2] = 0
    assert theirs.tolist() == [1, 0, 0, 1]
    assert back.dtype is getattr(weft, dtype)


def test_a_capsule_is_taken_once():
    capsule = weft.to_dlpack(weft.ones(2))
    assert weft.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises((RuntimeError, BufferError, ValueError)):
        weft.from_dlpack(capsule)


def test_copies_on_request():
    tensor = weft.ones(2)
    copied = weft.from_dlpack(tensor, copy=True)
    copied.add_(1)
    assert tensor.tolist() == [1, 1]


def test_what_is_refused():
    with pytest.raises(BufferError, match="require gradient"):
        weft.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="streams"):
        weft.ones(2).__dlpack__(stream=1)
    with pytest.raises(BufferError, match="device"):
        weft.ones(2).__dlpack__(dl_device=(2, 0))
    assert weft.ones(2).__dlpack_device__() == (1, 0)


def test_bfloat16_arrays():
    array = weft.ones(2, dtype=weft.bfloat16).numpy()
    assert array.dtype == ml_dtypes.bfloat16
