"""Which inputs are read where they are, and which are copied. PyTorch and numpy say what is right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import DTypeError, InvalidValue
from weft.base.ndarray import NDArray
from weft.runtime.cpu.executor import CpuExecutor
from weft.runtime.shared import overlapping, span

torch = oracle("torch")


@pytest.fixture
def rng():
    return np.random.default_rng(31)


class Exporter:
    """An array that has nothing but DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Interface:
    """An array that has nothing but numpy's protocol."""

    def __init__(self, array):
        self._array = array

    @property
    def __array_interface__(self):
        return self._array.__array_interface__


def frozen(array):
    array.flags.writeable = False
    return array


def address(array):
    return array.__array_interface__["data"][0]


@pytest.fixture
def read_at(monkeypatch):
    """The addresses that kernels were given for the inputs of each run."""
    seen, run_into = [], CpuExecutor.run_into

    def watched(executor, inputs, outputs):
        seen.append([address(array) for array in inputs])
        return run_into(executor, inputs, outputs)

    monkeypatch.setattr(CpuExecutor, "run_into", watched)
    return seen


@pytest.fixture(scope="module")
def model():
    return weft.compile(sym.exp(sym.Variable("x", shape=(3, 4))))


SHARED = {
    "numpy": lambda a: a,
    "read-only numpy": frozen,
    "NDArray": NDArray,
    "PyTorch": lambda a: torch.from_numpy(a),
    "detached": lambda a: torch.from_numpy(a).requires_grad_().detach(),
    "weft": lambda a: weft.from_numpy(a),
    "DLPack": Exporter,
    "read-only DLPack": lambda a: Exporter(frozen(a)),
    "interface": Interface,
    "read-only interface": lambda a: Interface(frozen(a)),
    "one of a larger array": lambda a: a.base[1:].reshape(3, 4),
}


@pytest.mark.parametrize("kind", SHARED)
def test_arrays_that_are_dense_are_read_where_they_are(model, read_at, kind, rng):
    memory = rng.standard_normal(13).astype("float32")
    array = memory[1:].reshape(3, 4)
    right, at = np.exp(array), address(array)
    np.testing.assert_allclose(model.run({"x": SHARED[kind](array)})[0], right, rtol=1e-6)
    assert read_at == [[at]]


def off_by_a_byte(array):
    raw = np.zeros(array.nbytes + 1, "uint8")
    raw[1:] = array.reshape(-1).view("uint8")
    return raw[1:].view(array.dtype).reshape(array.shape)


COPIED = {
    "columns": lambda a: np.asfortranarray(a),
    "backwards": lambda a: a[::-1].copy()[::-1],
    "with gaps": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "one row for all": lambda a: np.broadcast_to(a[0], a.shape),
    "unaligned": off_by_a_byte,
    "unaligned DLPack": lambda a: Exporter(off_by_a_byte(a)),
    "another byte order": lambda a: a.astype(">f4"),
    "PyTorch with gaps": lambda a: torch.from_numpy(np.repeat(a, 2, axis=1))[:, ::2],
    "a list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("kind", COPIED)
def test_what_is_not_dense_is_copied(model, read_at, kind, rng):
    value = COPIED[kind](rng.standard_normal((3, 4)).astype("float32"))
    right = np.exp(np.asarray(getattr(value, "_array", value), "float32"))
    np.testing.assert_allclose(model.run({"x": value})[0], right, rtol=1e-6)
    ((at,),) = read_at
    assert at % 4 == 0


@pytest.mark.parametrize("name", ["bfloat16", "bool", "float16", "int64", "uint8"])
def test_dtypes_of_pytorch(read_at, name, rng):
    values = rng.integers(0, 2, (2, 5))
    theirs = torch.from_numpy(values).to(getattr(torch, name))
    model = weft.compile(sym.reshape(sym.Variable("x", shape=(2, 5)), shape=(5, 2)), dtype={"x": name})
    (made,) = model.run({"x": theirs})
    assert made.dtype == (ml_dtypes.bfloat16 if name == "bfloat16" else name)
    np.testing.assert_array_equal(made.astype("int64"), values.reshape(5, 2))
    assert read_at == [[theirs.data_ptr()]]


def test_outputs_go_to_other_libraries_without_a_copy(model, rng):
    x = rng.standard_normal((3, 4)).astype("float32")
    (made,) = model.run({"x": torch.from_numpy(x)})
    theirs = torch.from_dlpack(made)
    assert theirs.data_ptr() == address(made)
    torch.testing.assert_close(theirs, torch.from_numpy(x).exp())


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: torch.ones(3, 4, requires_grad=True), InvalidValue, r"(?s)require gradient.*x\.detach\(\)"),
        (lambda: weft.ones(3, 4, requires_grad=True), InvalidValue, r"(?s)require gradient.*x\.detach\(\)"),
        (lambda: torch.ones(3, 4, device="meta"), InvalidValue, r"(?s)x\.cpu\(\).*on meta"),
        (lambda: torch.ones(3, 4).to_sparse(), InvalidValue, "layout other than torch.strided"),
        (lambda: torch.ones(3, 4, dtype=torch.bfloat16), DTypeError, r"(?s)bfloat16.*x\.to\(torch\.float32\)"),
        (lambda: weft.ones(3, 4).double(), DTypeError, r"(?s)float64.*x\.to\(weft\.float32\)"),
        (lambda: np.ones((3, 4)), DTypeError, r'(?s)float64.*x\.astype\("float32"\)'),
    ],
)
def test_refusals_say_what_to_do(model, make, error, match):
    with pytest.raises(error, match=match):
        model.run({"x": make()})


class OnGpu(Exporter):
    """What an array in the memory of a GPU says of itself."""

    def __dlpack_device__(self):
        return (2, 0)


def test_arrays_of_another_device(model):
    with pytest.raises(InvalidValue, match=r"(?s)lives on cuda\(0\).*copy it to the CPU"):
        model.run({"x": OnGpu(np.ones((3, 4), "float32"))})


def test_overlaps_are_those_that_numpy_finds(rng):
    """Random slices, some of them backwards, with gaps, or of no extent: bounds that meet are an overlap."""
    for _ in range(300):
        memory = np.zeros(24, "int16")

        def a_slice(memory=memory):
            start, stop = rng.integers(0, 25, 2)
            return memory[start : stop : rng.choice([-3, -1, 1, 2])]

        arrays, others = ([a_slice() for _ in range(rng.integers(0, 4))] for _ in range(2))
        expected = {
            number
            for number, one in enumerate(arrays)
            if any(np.may_share_memory(one, other) for i, other in enumerate(arrays + others) if i != number)
        }
        assert overlapping(arrays, others) == expected
    low, high = span(memory[10:2:-2])
    assert (low - address(memory), high - address(memory)) == (8, 22)
