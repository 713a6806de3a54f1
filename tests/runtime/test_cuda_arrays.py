"""Arrays of a GPU: copies, lifetimes, and memory that other libraries share, on a driver of Python."""

import gc

import numpy as np
import pytest
from runtime.test_cuda_executor import fake, given, sums, wanted  # noqa: F401

import weft
from weft.base import dlpack
from weft.base.device import Device
from weft.base.errors import DTypeError, InvalidType, InvalidValue, ShapeError
from weft.runtime.cuda.array import DeviceArray, device_empty, shared_from, to_device
from weft.runtime.cuda.context import platform
from weft.runtime.cuda.executor import CudaExecutor
from weft.runtime.cuda.stream import Stream
from weft.runtime.loading import runtime_of
from weft.runtime.shared import shared_array

rng = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "uint8", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (4, 5, 6)])
def test_copies_there_and_back(fake, dtype, shape):  # noqa: F811
    kind = weft.base.dtype.as_dtype(dtype)
    x = np.asarray(rng.standard_normal(shape) * 9).astype(kind)
    array = to_device(x)
    assert (array.shape, array.dtype, array.nbytes, array.ndim) == (x.shape, x.dtype, x.nbytes, x.ndim)
    assert array.is_dense
    found = array.numpy()
    assert found.tobytes() == x.tobytes()
    other = device_empty(shape, dtype).copyfrom(array)
    assert other.numpy().tobytes() == x.tobytes()
    transposed = np.empty(x.T.shape, kind).T
    array.copyto(transposed)
    assert transposed.tobytes() == x.tobytes()


def test_what_is_not_copied(fake):  # noqa: F811
    array = device_empty((2, 3), "float32")
    with pytest.raises(ShapeError):
        array.copyfrom(np.zeros((3, 2), "float32"))
    with pytest.raises(DTypeError):
        array.copyfrom(np.zeros((2, 3)))
    with pytest.raises(InvalidType, match="not to or from a list"):
        array.copyfrom([1, 2])
    with pytest.raises(TypeError, match=r"array\.numpy"):
        np.asarray(array)
    with pytest.raises(TypeError):
        np.add(array, 1)
    columns = DeviceArray(array.memory, array.address, (3, 2), np.dtype("float32"), (4, 12))
    with pytest.raises(InvalidValue, match="gaps"):
        columns.numpy()
    with pytest.raises(InvalidValue, match="memory of the host"):
        weft.base.ndarray.empty((2,), "float32", Device("cuda"))
    assert repr(array) == "DeviceArray(shape=(2, 3), dtype=float32, device=cuda(0))"
    assert not device_empty((3,), "bool").numpy().any()


def test_memory_is_counted_and_freed(fake):  # noqa: F811
    context = platform().context()
    before = context.allocated
    arrays = [device_empty((256,), "float32") for _ in range(5)]
    assert context.allocated == before + 5120
    view = DeviceArray(arrays[0].memory, arrays[0].address + 4, (3,), np.dtype("float32"))
    del arrays
    assert context.allocated == before + 1024
    del view
    assert (context.allocated, context.most_allocated) == (before, before + 5120)
    platform().context().trim()
    assert fake.taken == 0


# Other libraries


class Theirs:
    """An array of another library, by one of the two protocols; it tells which stream it was made ready for."""

    def __init__(self, array):
        self.array, self.streams = array, []


class ByDLPack(Theirs):
    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, max_version=max_version)


class OldDLPack(ByDLPack):
    def __dlpack__(self, *, stream=None):
        return ByDLPack.__dlpack__(self, stream=stream)


class ByInterface(Theirs):
    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("protocol", [ByDLPack, OldDLPack, ByInterface])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
def test_memory_is_shared_not_copied(fake, protocol, dtype):  # noqa: F811
    x = (rng.standard_normal((3, 4)) * 3).astype(dtype)
    ours = to_device(x)
    theirs = protocol(ours)
    found = shared_array(theirs)
    assert isinstance(found, DeviceArray)
    assert (found.address, found.shape, found.dtype) == (ours.address, ours.shape, ours.dtype)
    kept = fake.taken
    del ours, theirs
    gc.collect()
    platform().context().trim()
    assert fake.taken == kept  # what is shared keeps the memory
    assert found.numpy().tobytes() == x.tobytes()
    del found
    gc.collect()
    platform().context().trim()
    assert fake.taken == 0


def test_bfloat16_goes_by_dlpack_alone(fake):  # noqa: F811
    kind = weft.base.dtype.as_dtype("bfloat16")
    ours = to_device(np.arange(4).astype(kind))
    assert not hasattr(ours, "__cuda_array_interface__")
    assert shared_from(ByDLPack(ours)).dtype == kind


def test_programs_take_arrays_of_other_libraries(fake):  # noqa: F811
    program, x = sums(), given()
    executor = CudaExecutor(program)
    side = Stream()
    theirs = ByDLPack(to_device(x))
    with side:
        (y,) = executor.run({"x": theirs}, out="cuda")
    assert theirs.streams == [side.handle]  # it is made ready for the stream that the run is on
    np.testing.assert_array_equal(y.numpy(), wanted(program, x))
    out = ByInterface(device_empty((5,), "float32"))
    assert executor.run({"x": theirs}, out=[out])[0] is out
    assert theirs.streams[-1] == 1  # the default stream, as DLPack writes it
    np.testing.assert_array_equal(out.array.numpy(), wanted(program, x))


def test_what_another_library_has_is_there_until_its_stream_is_done(fake):  # noqa: F811
    side = Stream()
    for stream in (1, side.handle, -1):
        ours = to_device(given())
        capsule = ours.__dlpack__(stream=stream, max_version=(1, 0))
        del ours
        assert fake.taken == 20
        del capsule
        gc.collect()
        platform().context().trim()
        assert fake.taken == 0


def test_exports_that_are_refused(fake):  # noqa: F811
    ours = to_device(given())
    with pytest.raises(BufferError, match="cannot export to device"):
        ours.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="copy"):
        ours.__dlpack__(copy=True)
    with pytest.raises(dlpack.DLPackError, match="lives on cuda"):
        dlpack.from_dlpack(ByDLPack(ours))
    ours.read_only = True
    assert shared_from(ByDLPack(ours)).read_only


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (-1,)},
        {"typestr": "<M8[s]"},
        {"data": (0, False)},
        {"mask": object()},
        {"strides": (4, 4)},
        {"data": 3},
    ],
)
def test_interfaces_that_make_no_sense(fake, change):  # noqa: F811
    told = {"shape": (2,), "typestr": "<f4", "data": (1 << 60, False), "version": 3, **change}
    with pytest.raises(dlpack.DLPackError, match=r"__cuda_array_interface__|elements of"):
        shared_from(type("Wrong", (), {"__cuda_array_interface__": told})())


def test_a_program_of_the_processor_refuses_arrays_of_a_gpu(fake):  # noqa: F811
    model = weft.compile(weft.symbol.exp(weft.symbol.Variable("x", shape=(5,))), dtype={"x": "float32"})
    array = to_device(given())
    with pytest.raises(InvalidValue, match=r"input 'x' is on cuda\(0\)"):
        model.run({"x": array})
    with pytest.raises(InvalidValue, match=r"out for .* is on cuda\(0\)"):
        model.run({"x": given()}, out=[array])
    with pytest.raises(InvalidValue, match="bound"):
        model.bind({"x": array})
    assert model.run({"x": given()}, out="cpu")[0].shape == (5,)
    with pytest.raises(TypeError, match="is a Device"):
        model.run({"x": given()}, out="cuda")


def test_the_runtime_allocates_and_copies(fake):  # noqa: F811
    runtime = runtime_of("cuda")
    x = given()
    made = runtime.allocate((5,), np.dtype("float32"), Device("cuda"))
    back = np.empty(5, "float32")
    runtime.copy(x, made)
    runtime.copy(made, back)
    np.testing.assert_array_equal(back, x)
