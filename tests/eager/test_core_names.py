"""Every public name of the imperative core: one use, and one misuse that is refused as PyTorch
refuses it."""

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from oracles import oracle

import weft

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:torch.set_default_tensor_type")
NINE = "Double Float Half Long Int Short Char Byte Bool".split()
TITLES = [title for title in NINE if title not in ("Half", "Bool")]


class Theirs:
    """PyTorch, with what has moved into its core since."""

    def __getattr__(self, name):
        torch = oracle("torch")
        return getattr(torch, name, None) or getattr(torch._C, name)


def archived(m, names=("a",)):
    """The bytes of an archive with records of two bytes."""
    file = io.BytesIO()
    writer = m.PyTorchFileWriter(file)
    for name in names:
        writer.write_record(name, b"xy", 2)
    writer.write_end_of_file()
    return file.getvalue()


def written_twice(m):
    archived(m, ("a", "a"))


def saved(m, value):
    file = io.BytesIO()
    m.save(value, file)
    file.seek(0)
    return m.load(file)


def restored(change, back):
    """What holds while something is changed."""
    try:
        return change()
    finally:
        back()


def threads(m):
    before = m.get_num_threads()
    return restored(lambda: (m.set_num_threads(1), m.get_num_threads())[1], lambda: m.set_num_threads(before))


def anomalies(m):
    return restored(
        lambda: (m.set_anomaly_enabled(True), m.is_anomaly_enabled())[1], lambda: m.set_anomaly_enabled(False)
    )


def default_type(m):
    kind = m.DoubleTensor
    return restored(
        lambda: (m.set_default_tensor_type(kind), str(m.get_default_dtype()).split(".")[1])[1],
        lambda: m.set_default_tensor_type(m.FloatTensor),
    )


def printed(m):
    return restored(
        lambda: (m.set_printoptions(precision=2), str(m.tensor([0.12345])))[1],
        lambda: m.set_printoptions(profile="default"),
    )


def streams(m, count):
    """Numbers of a state that is put back."""
    state = m.get_rng_state()
    return restored(
        lambda: (m.manual_seed(4), m.rand(count).tolist(), m.initial_seed())[1:], lambda: m.set_rng_state(state)
    )


def modes(m, mode):
    with mode(m):
        return m.is_grad_enabled(), (m.ones(1, requires_grad=True) * 2).requires_grad


def zero(m):
    return m.tensor([1e-310], dtype=m.float64) * 1


def flushed(m):
    return restored(lambda: (m.set_flush_denormal(True), float(zero(m)[0]))[0], lambda: m.set_flush_denormal(False))


def no_such_file(m):
    with tempfile.TemporaryDirectory() as folder:
        m.PyTorchFileReader(str(Path(folder) / "none.pt"))


def typed(title):
    """A storage and a tensor of a dtype: what they hold, and what they do not take."""
    storage, tensor = f"{title}Storage", f"{title}Tensor"
    return {
        storage: (lambda m: list(getattr(m, storage)([1, 0, 1])), lambda m: getattr(m, storage)([1, "x"])),
        tensor: (
            lambda m: (getattr(m, tensor)([1, 0]).tolist(), getattr(m, tensor)(2, 3).shape[1]),
            lambda m: getattr(m, tensor)("x"),
        ),
    }


# name: (use, misuse), both of a module
NAMES = {
    "AVG": (lambda m: (int(m.AVG), m.AVG.name), lambda m: m.AVG()),
    "AggregationType": (lambda m: sorted(m.AggregationType.__members__), lambda m: m.AggregationType("SUM")),
    "SUM": (lambda m: (int(m.SUM), m.SUM == 0), lambda m: m.SUM()),
    "FatalError": (lambda m: issubclass(m.FatalError, Exception), lambda m: m.FatalError.with_traceback(3)),
    "Future": (lambda m: m.wait(m.fork(lambda: 5)), lambda m: m.wait(3)),
    "Generator": (lambda m: m.Generator().manual_seed(-1).initial_seed(), lambda m: m.Generator().manual_seed("x")),
    "default_generator": (lambda m: m.default_generator.device.type, lambda m: m.default_generator.set_state([1])),
    "LockingLogger": (
        lambda m: m.LockingLogger().get_counter_val("none"),
        lambda m: m.LockingLogger().set_aggregation_type("a", 1),
    ),
    "NoopLogger": (lambda m: m.NoopLogger() is not None, lambda m: m.NoopLogger().get_counter_val()),
    "PyTorchFileReader": (
        lambda m: m.PyTorchFileReader(io.BytesIO(archived_by_torch())).get_record("data"),
        no_such_file,
    ),
    "PyTorchFileWriter": (lambda m: archived(m)[:2], written_twice),
    "Size": (lambda m: m.Size([2, 3]).numel(), lambda m: m.Size(["x"])),
    "device": (lambda m: str(m.device("cuda", 1)), lambda m: m.device("toaster")),
    "dtype": (lambda m: m.float16.itemsize, lambda m: m.dtype()),
    "finfo": (lambda m: m.finfo(m.float16).max, lambda m: m.finfo(m.int8)),
    "iinfo": (lambda m: m.iinfo(m.int8).min, lambda m: m.iinfo(m.float32)),
    "layout": (lambda m: str(m.strided).split(".")[1], lambda m: m.layout()),
    "fork": (lambda m: m.wait(m.fork(max, 2, 7)), lambda m: m.fork(3)),
    "wait": (lambda m: m.wait(m.fork(str, 4)), lambda m: m.wait("x")),
    "get_default_dtype": (lambda m: str(m.get_default_dtype()).split(".")[1], lambda m: m.get_default_dtype(3)),
    "get_num_threads": (threads, lambda m: m.get_num_threads(2)),
    "set_num_threads": (threads, lambda m: m.set_num_threads("x")),
    "is_anomaly_enabled": (lambda m: m.is_anomaly_enabled(), lambda m: m.is_anomaly_enabled(1)),
    "set_anomaly_enabled": (anomalies, lambda m: m.set_anomaly_enabled()),
    "is_grad_enabled": (lambda m: m.is_grad_enabled(), lambda m: m.is_grad_enabled(1)),
    "set_grad_enabled": (lambda m: modes(m, lambda m: m.set_grad_enabled(False)), lambda m: m.set_grad_enabled()),
    "no_grad": (lambda m: modes(m, lambda m: m.no_grad()), lambda m: m.no_grad(1, 2)),
    "enable_grad": (lambda m: modes(m, lambda m: m.enable_grad()), lambda m: m.enable_grad(1, 2)),
    "set_flush_denormal": (flushed, lambda m: m.set_flush_denormal(1)),
    "typename": (lambda m: m.typename(3), lambda m: m.typename()),
    "is_tensor": (lambda m: (m.is_tensor(m.ones(1)), m.is_tensor(3)), lambda m: m.is_tensor()),
    "is_storage": (lambda m: (m.is_storage(m.FloatStorage(1)), m.is_storage(3)), lambda m: m.is_storage()),
    "set_default_tensor_type": (default_type, lambda m: m.set_default_tensor_type(3)),
    "set_rng_state": (lambda m: streams(m, 3), lambda m: m.set_rng_state(m.zeros(3, dtype=m.uint8))),
    "get_rng_state": (lambda m: m.get_rng_state().shape[0], lambda m: m.get_rng_state(3, 4)),
    "manual_seed": (lambda m: streams(m, 20), lambda m: m.manual_seed("x")),
    "initial_seed": (lambda m: streams(m, 1)[1], lambda m: m.initial_seed(3)),
    "save": (lambda m: saved(m, [m.ones(2), 3])[0].tolist(), lambda m: m.save([1], 5)),
    "load": (lambda m: saved(m, {"a": 1.5}), lambda m: m.load(5)),
    "set_printoptions": (printed, lambda m: m.set_printoptions(speed=3)),
    "chunk": (lambda m: [c.tolist() for c in m.chunk(m.arange(5), 2)], lambda m: m.chunk(m.arange(5), 0)),
    "split": (lambda m: [c.tolist() for c in m.split(m.arange(5), [1, 4])], lambda m: m.split(m.arange(5), [1, 1])),
    "stack": (lambda m: m.stack([m.ones(2), m.zeros(2)]).tolist(), lambda m: m.stack([])),
    "matmul": (lambda m: m.matmul(m.ones(2, 3), m.ones(3)).tolist(), lambda m: m.matmul(m.ones(2, 3), m.ones(2, 3))),
    "rand": (lambda m: m.rand(2, 0).shape[0], lambda m: m.rand(-1)),
    "randn": (lambda m: m.randn(2, 0).shape[0], lambda m: m.randn("x")),
    "Tensor": (lambda m: m.Tensor([1, 2]).tolist(), lambda m: m.Tensor("x")),
    **{name: pair for title in TITLES for name, pair in typed(title).items()},
}
# What a build has is a truth of the build; called like a function it is refused.
FEATURES = "has_cuda has_cudnn has_lapack has_mkl has_mkldnn has_openmp".split()
# Of PyTorch 1.1, without a counterpart to ask.
ALONE = {"ExtraFilesMap"}
# Where PyTorch goes on and gives a wrong answer, or none.
STRICTER = {
    "Future": TypeError,
    "wait": TypeError,
    "fork": TypeError,
    "FatalError": TypeError,
    "AggregationType": ValueError,
}
ERRORS = (KeyError, AttributeError, IndexError, TypeError, ValueError, RuntimeError)


def archived_by_torch():
    file = io.BytesIO()
    writer = oracle("torch")._C.PyTorchFileWriter(file)
    writer.write_record("data", b"xy", 2)
    writer.write_end_of_file()
    return file.getvalue()


def test_every_name_is_here():
    rooms = {"Error", "NNVMError", "__version__", *weft._MODULES, *weft._NAMES}
    assert set(weft.__all__) - rooms == {*NAMES, *FEATURES, *ALONE}


@pytest.mark.parametrize("name", NAMES)
def test_use(name):
    ours, theirs = NAMES[name][0](weft), NAMES[name][0](Theirs())
    assert ours == theirs


@pytest.mark.parametrize("name", NAMES)
def test_misuse(name):
    wanted = STRICTER.get(name)
    if wanted is None:
        with pytest.raises(ERRORS) as theirs:
            NAMES[name][1](Theirs())
        wanted = next(error for error in ERRORS if isinstance(theirs.value, error))
    with pytest.raises(wanted):
        NAMES[name][1](weft)


@pytest.mark.parametrize("name", FEATURES)
def test_features(name):
    assert getattr(weft, name) in (True, False)
    with pytest.raises(TypeError):
        getattr(weft, name)()


def test_extra_files():
    files = weft.ExtraFilesMap({"a": "1"})
    assert dict(files.items()) == {"a": "1"}
    with pytest.raises(TypeError):
        weft.ExtraFilesMap({"a": 1})


def test_dictionaries_of_modules():
    module = weft.cpp.nn.Module()
    weight = module.register_parameter("weight", weft.ones(2))
    assert module.named_parameters()["weight"] is weight
    assert module.named_buffers().keys() == []
    with pytest.raises(KeyError):
        module.named_parameters()["none"]


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (lambda: None, TypeError),
        (lambda: np.zeros(5056, np.uint8), TypeError),
        (lambda: weft.zeros(5056), TypeError),
        (lambda: weft.zeros(5056, dtype=weft.int8), TypeError),
        (lambda: weft.zeros(5055, dtype=weft.uint8), RuntimeError),
        (lambda: weft.zeros(5056, dtype=weft.uint8), RuntimeError),
        (lambda: weft.get_rng_state()[:-1], RuntimeError),
    ],
)
def test_states_that_are_refused_change_nothing(state, error):
    before = weft.get_rng_state().tolist()
    with pytest.raises(error):
        weft.set_rng_state(state())
    assert weft.get_rng_state().tolist() == before
