import ctypes
import datetime
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from bounds import PATIENCE
from oracles import oracle

from weft.base import dlpack
from weft.base.device import cpu
from weft.base.dlpack import DLManagedTensor, DLManagedTensorVersioned, DLPackError, to_dlpack
from weft.base.dtype import DTYPES
from weft.base.errors import InvalidType, InvalidValue
from weft.base.ndarray import array, empty, from_dlpack

NAMES = list(DTYPES)
SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3, 4), (1, 1)]
VERSIONS = [None, (0, 8), (1, 0), (1, 5)]
# Code and bits of each dtype, from the DLPack specification.
ELEMENTS = {
    "bool": (6, 8),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "float16": (2, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
}


def sample(shape, name):
    values = np.arange(int(np.prod(shape))).reshape(shape) % (2 if name == "bool" else 100)
    return np.asarray(values + (1j if name.startswith("complex") else 0)).astype(DTYPES[name])


def struct_of(capsule):
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    if '"dltensor"' in repr(capsule):
        return DLManagedTensor.from_address(get(capsule, b"dltensor"))
    return DLManagedTensorVersioned.from_address(get(capsule, b"dltensor_versioned"))


class Foreign:
    """A producer that hands out a struct written field by field, and counts deleter calls."""

    def __init__(self, owner, versioned=True, **fields):
        self.deleted = 0
        kind = DLManagedTensorVersioned if versioned else DLManagedTensor
        self.managed = kind()
        self.data = owner
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.delete)
        self.managed.deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value
        tensor = self.managed.tensor
        tensor.data = owner.ctypes.data
        tensor.device_type, tensor.lanes = 1, 1
        tensor.code, tensor.bits = ELEMENTS[owner.dtype.name]
        self.fill(fields)

    def fill(self, fields):
        tensor = self.managed.tensor
        shape = fields.pop("shape", self.data.shape)
        strides = fields.pop("strides", None)
        self.dims = (ctypes.c_int64 * len(shape))(*shape)
        tensor.ndim, tensor.shape = len(shape), self.dims
        if strides is not None:
            self.steps = (ctypes.c_int64 * len(strides))(*strides)
            tensor.strides = self.steps
        if isinstance(self.managed, DLManagedTensorVersioned):
            self.managed.major = fields.pop("major", 1)
            self.managed.flags = fields.pop("flags", 0)
        for name, value in fields.items():
            setattr(tensor, name, value)

    def delete(self, address):
        assert address == ctypes.addressof(self.managed)
        self.deleted += 1

    def capsule(self):
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        return new(ctypes.addressof(self.managed), self.name, None)

    def __dlpack__(self, max_version=None):
        return self.capsule()

    def __dlpack_device__(self):
        return (self.managed.tensor.device_type, self.managed.tensor.device_id)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_export_writes_what_the_specification_says(name, shape, version):
    made = array(sample(shape, name))
    capsule = made.__dlpack__(max_version=version)
    managed = struct_of(capsule)
    versioned = version is not None and version[0] >= 1
    assert isinstance(managed, DLManagedTensorVersioned) == versioned
    tensor = managed.tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == (*ELEMENTS[name], 1)
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (1, 0, len(shape))
    assert tuple(tensor.shape[: tensor.ndim]) == shape
    if made.size:
        assert tensor.data + tensor.byte_offset == made.address
    if versioned:
        assert (managed.major, managed.flags) == (1, 0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_there_and_back(name, shape, version):
    made = array(sample(shape, name))
    back = from_dlpack(made.__dlpack__(max_version=version))
    assert (back.shape, back.dtype) == (shape, name)
    np.testing.assert_array_equal(back.asnumpy(), sample(shape, name))
    if made.size:
        assert back.same_as(made)


TORCH_NAMES = [name for name in NAMES if name not in ("uint16", "uint32", "uint64")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_torch_takes_ours(name, shape):
    torch = oracle("torch")
    made = array(sample(shape, name))
    theirs = torch.from_dlpack(made)
    assert (theirs.dtype, tuple(theirs.shape)) == (getattr(torch, name), shape)
    as_list = sample(shape, name).astype(complex).tolist()
    assert theirs.to(torch.complex128).tolist() == as_list
    if made.size:
        assert theirs.data_ptr() == made.address
        theirs.zero_()
        assert not np.any(made.asnumpy().astype(complex))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TORCH_NAMES)
def test_we_take_torchs(name, shape):
    torch = oracle("torch")
    theirs = torch.arange(int(np.prod(shape))).reshape(shape).to(getattr(torch, name))
    ours = from_dlpack(theirs)
    assert (ours.shape, ours.dtype) == (shape, name)
    assert ours.asnumpy().astype(complex).tolist() == theirs.to(torch.complex128).tolist()
    if ours.size:
        assert ours.address == theirs.data_ptr()
        ours[...] = 1
        assert bool((theirs == 1).all())


def test_memory_of_torch_outlives_its_tensor():
    torch = oracle("torch")
    ours = from_dlpack(torch.arange(1000))
    gc.collect()
    torch.arange(1000) * 7
    assert ours.asnumpy().tolist() == list(range(1000))


def test_our_memory_outlives_its_array():
    torch = oracle("torch")
    theirs = torch.from_dlpack(array(np.arange(1000)))
    gc.collect()
    array(np.zeros(1000, np.int64))
    assert theirs.tolist() == list(range(1000))


def test_torch_refuses_with_a_reason():
    torch = oracle("torch")
    with pytest.raises(DLPackError, match="Tensor refused to be exported") as caught:
        from_dlpack(torch.ones(3, requires_grad=True))
    assert "require" in caught.value.why


def test_transposed_torch_is_copied():
    torch = oracle("torch")
    theirs = torch.arange(6).reshape(2, 3).T
    ours = from_dlpack(theirs)
    assert ours.asnumpy().tolist() == theirs.tolist()
    assert ours.address != theirs.data_ptr()
    assert np.shares_memory(dlpack.from_dlpack(theirs), theirs.numpy())


def test_array_of_a_torch_bfloat16():
    torch = oracle("torch")
    assert array(torch.ones(2, dtype=torch.bfloat16)).dtype == "bfloat16"


def test_numpy_takes_ours():
    made = array(np.arange(6.0))
    theirs = np.from_dlpack(made)
    assert theirs.tolist() == list(range(6))
    assert np.shares_memory(theirs, made.numpy())


@pytest.mark.parametrize(
    "view", [np.s_[::-1], np.s_[:, ::-2], np.s_[1:, 1:3], np.s_[:0], np.s_[..., None], np.s_[1, 2]]
)
def test_numpy_of_any_strides(view):
    theirs = np.arange(20, dtype=np.int16).reshape(4, 5)[view]
    seen = dlpack.from_dlpack(np.asarray(theirs))
    np.testing.assert_array_equal(seen, theirs)
    np.testing.assert_array_equal(from_dlpack(np.asarray(theirs)).numpy(), theirs)
    if seen.size and isinstance(theirs, np.ndarray):
        assert np.shares_memory(seen, theirs)


def test_read_only_numpy_comes_as_a_copy():
    theirs = np.arange(4)
    theirs.flags.writeable = False
    assert not dlpack.from_dlpack(theirs).flags.writeable
    ours = from_dlpack(theirs)
    ours[0] = 9
    assert theirs.tolist() == [0, 1, 2, 3]


def test_copies():
    made = array([1, 2, 3])
    capsule = made.__dlpack__(copy=True, max_version=(1, 0))
    assert struct_of(capsule).flags == 2
    other = from_dlpack(capsule)
    assert other.address != made.address
    assert other.asnumpy().tolist() == [1, 2, 3]
    assert from_dlpack(made.__dlpack__(copy=False)).same_as(made)


def test_export_refused():
    made = array([1, 2, 3])
    assert made.__dlpack_device__() == (1, 0)
    assert empty(1, device=cpu(1)).__dlpack_device__() == (1, 0)
    with pytest.raises(DLPackError, match="no streams, got stream=1"):
        made.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"cannot export to device \(2, 0\)"):
        made.__dlpack__(dl_device=(2, 0))
    made.__dlpack__(dl_device=(1, 0))
    for version in (1, "10", (1,)):
        with pytest.raises(InvalidType, match="max_version is a pair"):
            made.__dlpack__(max_version=version)
    with pytest.raises(DLPackError, match="backwards"):
        to_dlpack(np.arange(4)[::-1])
    with pytest.raises(InvalidValue, match="is no dtype of weft"):
        to_dlpack(np.array(["a"]))


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_is_consumed_once(version):
    capsule = array([1, 2]).__dlpack__(max_version=version)
    kept = from_dlpack(capsule)
    with pytest.raises(DLPackError, match="was consumed already"):
        from_dlpack(capsule)
    assert kept.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("source", [None, [1], "dltensor", 5])
def test_no_exporter(source):
    with pytest.raises(InvalidType, match="cannot come in through DLPack"):
        from_dlpack(source)


def test_other_capsules():
    with pytest.raises(DLPackError, match="expected a capsule named dltensor"):
        from_dlpack(datetime.datetime_CAPI)


@pytest.mark.parametrize("versioned", [True, False])
def test_deleter_runs_once_when_the_array_goes(versioned):
    producer = Foreign(np.arange(5), versioned)
    capsule = producer.capsule()
    ours = from_dlpack(capsule)
    view = ours.numpy()[1:3]
    del capsule, ours
    gc.collect()
    assert (producer.deleted, view.tolist()) == (0, [1, 2])
    del view
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize("fields", [{"shape": (0,)}, {"shape": (2, 0), "data": None}])
def test_deleter_runs_for_nothing(fields):
    producer = Foreign(np.arange(5), **fields)
    assert from_dlpack(producer).shape == fields["shape"]
    gc.collect()
    assert producer.deleted == 1


def test_deleter_may_be_absent():
    producer = Foreign(np.arange(5))
    producer.managed.deleter = None
    assert from_dlpack(producer).asnumpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"byte_offset": 16}, [2, 3, 4, 5]),
        ({"strides": (2,)}, [0, 2, 4, 6]),
        ({"byte_offset": 56, "strides": (-1,)}, [7, 6, 5, 4]),
        ({"byte_offset": 8, "strides": (0,)}, [1, 1, 1, 1]),
        ({"flags": 1}, [0, 1, 2, 3]),
        ({"flags": 6}, [0, 1, 2, 3]),
    ],
)
def test_fields_are_followed(fields, values):
    data = np.arange(10)
    producer = Foreign(data, shape=(4,), **fields)
    seen = dlpack.from_dlpack(producer)
    assert seen.tolist() == values
    assert np.shares_memory(seen, data)
    assert seen.flags.writeable == (fields.get("flags") != 1)
    del seen
    assert from_dlpack(Foreign(data, shape=(4,), **fields)).asnumpy().tolist() == values


def test_misaligned_memory():
    data = np.zeros(41, np.uint8)
    data[1:].view(np.uint8)[:] = np.arange(5, dtype=np.float64).view(np.uint8)
    producer = Foreign(np.zeros(5), data=data.ctypes.data, byte_offset=1)
    assert not dlpack.from_dlpack(producer).flags.aligned
    ours = from_dlpack(producer)
    assert ours.asnumpy().tolist() == [0, 1, 2, 3, 4]
    assert ours.aligned


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device_type": 2}, r"lives on cuda\(0\)"),
        ({"device_type": 10, "device_id": 3}, r"lives on rocm\(3\)"),
        ({"device_type": 77}, "device type 77"),
        ({"lanes": 4}, "4 lanes"),
        ({"code": 3}, "code 3, 64 bits"),
        ({"code": 2, "bits": 8}, "code 2, 8 bits"),
        ({"shape": (-1,)}, "negative extent"),
        ({"ndim": -1}, "-1 dimensions"),
        ({"ndim": 1000}, "1000 dimensions"),
        ({"data": None}, "without memory"),
        ({"major": 2}, "version 2.0 is not understood"),
    ],
)
def test_refused_and_left_unconsumed(fields, message):
    producer = Foreign(np.arange(5), **fields)
    capsule = producer.capsule()
    for source in (producer, capsule, capsule):
        with pytest.raises(DLPackError, match=message):
            from_dlpack(source)
    assert producer.deleted == 0


def test_producers_before_version_one():
    class Old:
        def __dlpack__(self):
            return np.arange(3).__dlpack__()

    assert from_dlpack(Old()).asnumpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "bool"])
def test_unconsumed_capsules_let_go(name, version):
    memory = array(sample((3,), name)).numpy()
    owner = memory
    while owner.base is not None:
        owner = owner.base
    watched = weakref.ref(owner)
    capsule = to_dlpack(memory, version)
    del memory, owner
    gc.collect()
    assert watched() is not None
    del capsule
    gc.collect()
    assert watched() is None


def test_capsules_of_our_arrays_through_the_function():
    made = array([1, 2], dtype="bfloat16")
    assert from_dlpack(to_dlpack(made)).same_as(made)


def test_a_numpy_without_versions_gives_the_legacy_capsule(monkeypatch):
    monkeypatch.setattr(dlpack, "_NUMPY_HAS_VERSIONS", False)
    made = array([1, 2], dtype="bfloat16")
    capsule = made.__dlpack__(max_version=(1, 0), copy=True)
    assert isinstance(struct_of(capsule), DLManagedTensor)
    assert from_dlpack(capsule).asnumpy().astype(int).tolist() == [1, 2]


@pytest.fixture
def _eager_threads():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_eager_threads")
def test_one_capsule_goes_to_one_thread():
    for _ in range(50):
        producer = Foreign(np.arange(5))
        capsule, start, got = producer.capsule(), threading.Barrier(4), []

        def take(capsule=capsule, start=start, got=got):
            start.wait(PATIENCE)
            try:
                got.append(from_dlpack(capsule))
            except DLPackError:
                got.append(None)

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(one is not None for one in got) == 1
        got.clear()
        gc.collect()
        assert producer.deleted == 1


def test_ten_thousand_exports_do_not_leak():
    torch = oracle("torch")
    made = array(np.zeros(100, np.float32))
    memory = made._array
    before = sys.getrefcount(memory)
    for turn in range(10_000):
        capsule = made.__dlpack__(max_version=(1, 0) if turn % 2 else None)
        if turn % 3 == 0:
            torch.from_dlpack(capsule)
        elif turn % 3 == 1:
            from_dlpack(capsule)
    del capsule
    gc.collect()
    assert sys.getrefcount(memory) == before


def test_leaving_python_with_arrays_alive():
    program = (
        "import numpy as np, weft.base.ndarray as nd\n"
        "a = nd.array(np.arange(5)); c = a.__dlpack__(); b = nd.from_dlpack(a)\n"
        "d = np.from_dlpack(nd.array([1.0])); e = nd.from_dlpack(np.arange(3)[::-1])\n"
        "import builtins; builtins.kept = (a, b, c, d, e)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
