"""A tensor answers for its memory, whatever that is; arrays are handed out by the processor's memory only."""

import ast
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.base.errors import RunError
from weft.eager.tensor.memory import array_of
from weft.eager.tensor.tensor import wrap

EAGER = Path(weft.__file__).parent / "eager"
KERNELS = ("native", "autograd", "devices")  # rooms of what computes
BOUNDARY = {"dispatch.py", "functions/fusion.py", "recording.py"}  # from tensors to kernels, and to graphs
BOUNDARY |= {f"tensor/{name}.py" for name in ("memory", "parameter", "tensor", "viewing")}  # memory, and views of it


class Elsewhere:
    """2 x 3 floats in the memory of a device that weft cannot compute on, column by column."""

    shape, strides, ndim = (2, 3), (4, 8), 2
    dtype, itemsize = np.dtype("float32"), 4
    size, nbytes = 6, 24
    device = weft.device("cuda", 1)

    def transpose(self, axes):
        turned = Elsewhere()
        turned.shape, turned.strides = (tuple(values[axis] for axis in axes) for values in (self.shape, self.strides))
        return turned


@pytest.fixture
def remote():
    return wrap(Elsewhere())


def test_a_tensor_answers_for_memory_of_another_device(remote):
    assert remote.device == weft.device("cuda:1")
    assert remote.shape == weft.Size([2, 3])
    assert isinstance(remote.shape, weft.Size)
    assert (remote.ndim, remote.dim(), remote.numel(), len(remote)) == (2, 2, 6, 2)
    assert remote.dtype is weft.float32
    assert (remote.size(1), remote.stride(), remote.stride(1)) == (3, (1, 2), 2)
    assert (remote.element_size(), remote.itemsize, remote.nbytes) == (4, 4, 24)
    assert (remote.is_cuda, remote.is_cpu, remote.get_device()) == (True, False, 1)
    assert remote.requires_grad_().is_leaf


def test_its_views_and_its_place_in_a_graph_stay_there(remote):
    assert remote.detach().device == weft.device("cuda:1")
    assert remote.detach()._version == remote._version
    turned = remote.t()
    assert (turned.device, turned.shape, turned.stride()) == (weft.device("cuda:1"), (3, 2), (2, 1))


@pytest.mark.parametrize(
    "use",
    [array_of, lambda x: x.numpy(), lambda x: x.tolist(), repr]
    + [lambda x: x.data_ptr(), lambda x: x.untyped_storage(), lambda x: x.is_contiguous()],
)
def test_its_elements_are_refused_by_the_name_of_the_device(use, remote):
    with pytest.raises(RunError, match=r"(?s)cuda:1.*compute on 'cpu'.*tensor\.cpu\(\)"):
        use(remote)


def test_the_processor_hands_out_its_own_memory():
    array = np.arange(6.0).reshape(2, 3)
    tensor = weft.from_numpy(array)
    assert np.shares_memory(array_of(tensor), array)
    assert np.array_equal(array_of(tensor), [[0, 1, 2], [3, 4, 5]])
    assert tensor.device == weft.device("cpu") == tensor.untyped_storage().device


def test_scalars_and_kinds_of_arrays_become_plain_arrays():
    assert type(array_of(wrap(np.float32(2)))) is np.ndarray
    assert type(array_of(wrap(np.ones(2).view(np.recarray)))) is np.ndarray


def test_only_the_boundary_names_the_memory_of_a_tensor():
    naming = set()
    for file in EAGER.rglob("*.py"):
        if file.relative_to(EAGER).parts[0] not in KERNELS:
            tree = ast.walk(ast.parse(file.read_text()))
            if any(isinstance(node, ast.Attribute) and node.attr == "_array" for node in tree):
                naming.add(file.relative_to(EAGER).as_posix())
    assert "tensor/tensor.py" in naming
    assert naming <= BOUNDARY
