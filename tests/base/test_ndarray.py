import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.device import cpu
from weft.base.dtype import DTYPES
from weft.base.errors import DTypeError, InvalidType, InvalidValue, OutOfRange, RunError, ShapeError
from weft.base.ndarray import ALIGNMENT, NDArray, array, empty

NAMES = list(DTYPES)
shapes = st.lists(st.integers(0, 4), max_size=5).map(tuple)


def sample(shape, name, seed=0):
    random = np.random.default_rng(seed)
    values = random.integers(0, 2 if name == "bool" else 100, shape)
    return np.asarray(values + (1j if name.startswith("complex") else 0)).astype(DTYPES[name])


@given(shapes, st.sampled_from(NAMES))
def test_empty(shape, name):
    made = empty(shape, name, cpu(1))
    assert (made.shape, made.dtype, made.device, made.ctx) == (shape, name, cpu(1), cpu(1))
    assert (made.ndim, made.size) == (len(shape), int(np.prod(shape)))
    view = made.numpy()
    assert view.flags.carray
    assert view.ctypes.data == made.address
    assert made.address % 64 == 0 == ALIGNMENT % 64
    assert made.nbytes == view.nbytes


@given(shapes, st.sampled_from(NAMES), st.integers(0, 1000))
def test_array_copies_the_values(shape, name, seed):
    source = sample(shape, name, seed)
    made = array(source)
    assert made.dtype == name
    assert made.aligned
    np.testing.assert_array_equal(made.asnumpy(), source)
    assert made.asnumpy().dtype == source.dtype
    assert not np.shares_memory(made.numpy(), source)


def test_booleans_are_never_other_bytes():
    assert not empty(10_000, "bool").numpy().view(np.uint8).any()


@pytest.mark.parametrize("view", [np.s_[::-1], np.s_[:, ::2], np.s_[1:, 1:], np.s_[..., None]])
def test_array_of_strided_data(view):
    source = sample((5, 6), "float32")[view]
    made = array(source)
    np.testing.assert_array_equal(made.numpy(), source)
    assert made.numpy().flags.c_contiguous
    np.testing.assert_array_equal(array(np.asfortranarray(source)).numpy(), source)


@pytest.mark.parametrize(
    ("data", "dtype", "expected"),
    [
        ([1, 2], None, np.array([1, 2], np.int64)),
        ([[1.5], [2]], "float32", np.array([[1.5], [2]], np.float32)),
        (True, None, np.array(True)),
        ((), "int8", np.empty(0, np.int8)),
        ([1.75], "int32", np.array([1], np.int32)),
        (np.float32(2), None, np.array(2, np.float32)),
        (np.array([1, 2], ">i4"), None, np.array([1, 2], np.int32)),
        (np.array([1, 2], ">f8"), "float32", np.array([1, 2], np.float32)),
        (range(3), "uint8", np.arange(3, dtype=np.uint8)),
    ],
)
def test_array_of_other_data(data, dtype, expected):
    made = array(data, dtype=dtype).asnumpy()
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


def test_array_of_an_ndarray_is_a_copy():
    first = array([1, 2])
    second = array(first)
    second[0] = 9
    assert first.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "dtype", "error", "message"),
    [
        (["a"], None, DTypeError, "an array of <U1"),
        ([None], None, DTypeError, "an array of object"),
        ([[1], [2, 3]], None, InvalidValue, "a list does not make an array"),
        ([300], "uint8", InvalidValue, "does not make an array of dtype uint8"),
        ([float("nan")], "int32", InvalidValue, "does not make an array of dtype int32"),
        (np.array([1j]), "float32", DTypeError, "imaginary parts would be lost"),
        ([1], "float31", InvalidValue, "unknown dtype 'float31'"),
        (object(), None, DTypeError, "an array of object"),
        (np.array(["2020"], "datetime64[D]"), None, DTypeError, "datetime64"),
    ],
)
def test_array_refused(data, dtype, error, message):
    with pytest.raises(error, match=message):
        array(data, dtype=dtype)


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((2, -1), ShapeError, "negative extent"),
        ((2.5,), InvalidType, "a shape is whole numbers"),
        ("ab", InvalidType, "a shape is whole numbers"),
        (None, InvalidType, "a shape is whole numbers"),
        ((2**40, 2**40), RunError, "cannot allocate"),
        ((2**58,), RunError, "cannot allocate"),
        ((1,) * 100, RunError, "cannot allocate"),
    ],
)
def test_empty_refused(shape, error, message):
    with pytest.raises(error, match=message):
        empty(shape)


def test_device_has_to_be_one():
    with pytest.raises(InvalidType, match="expected a Device"):
        empty(3, device="cpu")


def test_wrapping_shares_memory():
    memory = np.zeros((2, 3))
    made = NDArray(memory)
    made[1, 2] = 4
    assert memory[1, 2] == 4


@pytest.mark.parametrize(
    "memory",
    [
        np.zeros((4, 4))[:, 1:],
        np.zeros(4)[::-1],
        np.broadcast_to(1.0, (3,)),
        np.zeros(33, np.int8)[1:].view(np.float32),
    ],
)
def test_wrapping_refused(memory):
    with pytest.raises(InvalidValue, match="row-major, writable, aligned"):
        NDArray(memory)


def test_wrapping_something_else():
    with pytest.raises(InvalidType, match="not a list"):
        NDArray([1, 2])
    with pytest.raises(InvalidValue, match="is no dtype of weft"):
        NDArray(np.array(["a"]))


def test_numpy_shares_and_asnumpy_copies():
    made = array([1, 2, 3])
    made.numpy()[0] = 7
    made.asnumpy()[1] = 8
    assert made.asnumpy().tolist() == [7, 2, 3]
    made.numpy().shape = (3, 1)
    assert made.shape == (3,)


def test_copyto():
    source, target = array([[1, 2]], dtype="float32"), empty((1, 2))
    assert source.copyto(target) is target
    assert target.asnumpy().tolist() == [[1, 2]]
    moved = source.copyto(cpu(1))
    assert (moved.device, moved.asnumpy().tolist()) == (cpu(1), [[1, 2]])
    assert not np.shares_memory(moved.numpy(), source.numpy())


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (empty((2, 1)), ShapeError, r"expected data of shape \(2, 1\), got shape \(1, 2\)"),
        (empty((1, 2), "int32"), DTypeError, "dtype int32 from one of dtype float32"),
        (np.zeros((1, 2)), InvalidType, "takes an NDArray or a Device, not a ndarray"),
    ],
)
def test_copyto_refused(target, error, message):
    with pytest.raises(error, match=message):
        array([[1, 2]], dtype="float32").copyto(target)


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("float32", np.array([1.5, 2]), [1.5, 2]),
        ("float32", [1, 2], [1, 2]),
        ("bfloat16", np.array([1.5, 2], np.float32), [1.5, 2]),
        ("uint8", [1, 255], [1, 255]),
        ("complex64", [1.0, 2.0], [1, 2]),
        ("int32", array([True, False]), [1, 0]),
    ],
)
def test_copyfrom(name, source, expected):
    made = empty(2, name)
    assert made.copyfrom(source) is made
    assert made.asnumpy().astype(complex).tolist() == expected


@pytest.mark.parametrize(
    ("name", "source", "error", "message"),
    [
        ("int32", [1.5, 2.0], DTypeError, "int32 is not filled from dtype float64"),
        ("uint8", np.array([1, 2]), DTypeError, "uint8 is not filled from dtype int64"),
        ("uint8", [1, 256], InvalidValue, "does not make an array of dtype uint8"),
        ("float32", [1j, 2], DTypeError, "float32 is not filled from dtype complex128"),
        ("float32", [1, 2, 3], ShapeError, r"expected data of shape \(2,\), got shape \(3,\)"),
        ("float32", 1, ShapeError, r"got shape \(\)"),
    ],
)
def test_copyfrom_refused(name, source, error, message):
    with pytest.raises(error, match=message):
        empty(2, name).copyfrom(source)


def test_items():
    made = array(np.arange(12.0).reshape(3, 4))
    assert made[1, 2] == 6
    made[0] = 0
    made[:, 1] = [9, 8, 7]
    made[2, 3] = array(5)
    expected = [[0, 9, 0, 0], [4, 8, 6, 7], [8, 7, 10, 5]]
    assert made.asnumpy().tolist() == expected
    part = made[1:]
    part[0, 0] = -1
    assert made[1, 0] == -1
    assert [row.tolist() for row in made] == made.asnumpy().tolist()
    assert len(made) == 3


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (5, 1, OutOfRange),
        ((0, 0), 1, OutOfRange),
        (np.s_[:], [1, 2], InvalidValue),
        (0, 1j, InvalidValue),
        (0, np.array(1j), DTypeError),
        (0, "a", DTypeError),
    ],
)
def test_setting_refused(key, value, error):
    made = array([1.0, 2.0, 3.0])
    with pytest.raises(error):
        made[key] = value
    assert made.asnumpy().tolist() == [1, 2, 3]


def test_getting_refused():
    with pytest.raises(OutOfRange, match=r"index 3 of shape \(3,\)"):
        array([1, 2, 3])[3]


def test_rank_zero():
    scalar = array(2.5)
    assert scalar[()] == 2.5
    assert bool(scalar)
    for function in (len, iter):
        with pytest.raises(InvalidType, match="rank 0"):
            function(scalar)
    with pytest.raises(InvalidValue, match="neither true nor false"):
        bool(array([1, 2]))


@pytest.mark.parametrize("name", NAMES)
def test_numpy_reads_it_without_a_copy(name):
    made = array(sample((3, 2), name))
    seen = np.asarray(made)
    assert seen.dtype == DTYPES[name]
    assert np.shares_memory(seen, made.numpy())
    copied = np.array(made)
    assert copied.dtype == DTYPES[name]
    assert not np.shares_memory(copied, made.numpy())


def test_array_protocol():
    made = array([1, 2])
    assert np.shares_memory(made.__array__(copy=False), made.numpy())
    assert not np.shares_memory(made.__array__(copy=True), made.numpy())
    assert made.__array__("float32").dtype == np.float32
    with pytest.raises(InvalidValue, match="only as a copy"):
        made.__array__("float32", copy=False)
    assert made.__array_interface__["data"][0] == made.address
    assert not hasattr(array([1], dtype="bfloat16"), "__array_interface__")


def test_memory_outlives_the_ndarray():
    seen = np.asarray(array(np.arange(1000)))
    assert seen.tolist() == list(range(1000))


def test_same_as_and_equality():
    a, b = array([1, 2]), array([1, 2])
    assert a.same_as(a)
    assert a.same_as(NDArray(a.numpy()))
    assert not a.same_as(b)
    assert not a.same_as(NDArray(a.numpy()[:1]))
    assert not a.same_as(a.numpy())
    assert a != b
    assert len({a, b}) == 2
    assert not empty(0).same_as(empty(0))


@pytest.mark.parametrize("name", NAMES)
def test_pickle_and_copy(name):
    source = sample((2, 3), name)
    made = array(source, cpu(1))
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.copy(made)):
        np.testing.assert_array_equal(other.asnumpy(), source)
        assert (other.dtype, other.device, other.aligned) == (name, cpu(1), True)
        assert not np.shares_memory(other.numpy(), made.numpy())


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        ([1, 2], "int32", "NDArray([1, 2], shape=(2,), dtype=int32, device=cpu(0))"),
        (1.5, "bfloat16", "NDArray(1.5, shape=(), dtype=bfloat16, device=cpu(0))"),
        ([], "float32", "NDArray([], shape=(0,), dtype=float32, device=cpu(0))"),
    ],
)
def test_repr(data, name, text):
    assert repr(array(data, dtype=name)) == text


def test_repr_of_much_is_short():
    assert len(repr(empty((100, 1000)))) < 2000
