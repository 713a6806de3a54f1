"""weft._utils: lists of tensors, old casts and wrapped exceptions, as PyTorch's own behave."""

import pickle

import pytest
from oracles import oracle

import weft
import weft._utils as ours

NAMES = [name for name in ours.__all__ if name not in ("_cuda", "_accumulate")]
MADE_HERE = {"_rebuild_from_type_v2"}  # which PyTorch has in another module


def libraries():
    torch = oracle("torch")
    return (weft, ours), (torch, torch._utils)


def lists(lib):
    """Tensors of two types, in turns."""
    return [
        lib.arange(6.0).reshape(2, 3),
        lib.arange(4.0).double(),
        lib.ones(2, 2),
        lib.zeros(()),
        lib.full((3,), 7.0).double(),
    ]


def shown(tensors):
    return [(str(t.dtype).split(".")[1], t.tolist()) for t in tensors]


def test_names():
    torch = oracle("torch")
    for name in NAMES:
        assert name in MADE_HERE or hasattr(torch._utils, name), name
    assert weft._utils is ours


def test_flat_and_back():
    results = []
    for lib, module in libraries():
        tensors = lists(lib)[::2][:2]
        flat = module._flatten_dense_tensors(tensors)
        parts = module._unflatten_dense_tensors(flat, tensors)
        assert type(parts) is tuple
        parts[0][0, 0] = 9  # which is a view
        results.append((shown([flat]), shown(parts)))
    assert results[0] == results[1]


def test_gradients_go_through():
    x, y = weft.ones(2, requires_grad=True), weft.ones(1, 2, requires_grad=True)
    flat = ours._flatten_dense_tensors([x, y])
    (flat * weft.tensor([1.0, 2, 3, 4])).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1, 2], [[3, 4]])


@pytest.mark.parametrize("limit", [0, 8, 30, 50, 10**6])
def test_groups_and_their_order(limit):
    results = []
    for lib, module in libraries():
        groups = list(module._take_tensors(lists(lib), limit))
        taken = [tensor for group in groups for tensor in group]
        results.append([[shown(group) for group in groups], shown(module._reorder_tensors_as(taken, lists(lib)))])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda u: u._flatten_dense_tensors([]), ValueError),
        (lambda u: u._flatten_dense_tensors(3), TypeError),
        (lambda u: u._flatten_dense_tensors([3]), TypeError),
        (lambda u: u._flatten_dense_tensors(weft.ones(2)), TypeError),
        (lambda u: u._unflatten_dense_tensors(weft.ones(3), [weft.ones(4)]), RuntimeError),
        (lambda u: u._unflatten_dense_tensors(weft.ones(3, 1), [weft.ones(3)]), RuntimeError),
        (lambda u: u._unflatten_dense_tensors("a", [weft.ones(3)]), TypeError),
        (lambda u: u._flatten_sparse_tensors([weft.ones(2)]), NotImplementedError),
        (lambda u: u._unflatten_sparse_tensors(weft.ones(2), []), NotImplementedError),
        (lambda u: u._take_tensors([weft.ones(2)], "a"), TypeError),
        (lambda u: u._reorder_tensors_as([weft.ones(2)], [weft.ones(2).long()]), ValueError),
        (lambda u: u._type(3), TypeError),
        (lambda u: u._type(weft.UntypedStorage(4), weft.float32), TypeError),
        (lambda u: u._type(weft.ones(2), blocking=True), TypeError),
        (lambda u: u._cuda(weft.ones(2)), NotImplementedError),
        (lambda u: u._import_dotted_name("weft.nothing"), KeyError),
        (lambda u: u._import_dotted_name(3), TypeError),
        (lambda u: u._element_size(3), TypeError),
        (lambda u: u.ExceptionWrapper(), TypeError),
        (lambda u: u.ExceptionWrapper(3), TypeError),
    ],
)
def test_what_is_refused(call, error):
    with pytest.raises(weft.Error) as raised:
        call(ours)
    assert isinstance(raised.value, error)


def test_types():
    assert ours._type(weft.ones(2)) == "weft.FloatTensor"
    assert ours._type(weft.ones(2), "weft.LongTensor").tolist() == [1, 1]
    assert ours._type(weft.FloatStorage([1.5]), weft.IntStorage).tolist() == [1]
    with pytest.warns(UserWarning, match="non_blocking"):
        assert ours._type(weft.ones(2), weft.int8, **{"async": True}).dtype is weft.int8
    for name in ("float16", "float64", "bool", "complex64"):
        theirs = oracle("torch")._utils._element_size(getattr(oracle("torch"), name))
        assert ours._element_size(getattr(weft, name)) == theirs
    assert ours._import_dotted_name("weft.nn.functional.relu") is weft.nn.functional.relu


class Odd(Exception):
    """Is not made from a text."""

    def __init__(self, a, b):
        super().__init__(a, b)


def raised_again(wrapper, failing):
    try:
        failing()
    except Exception:
        kept = pickle.loads(pickle.dumps(wrapper(where="in worker 3")))
    with pytest.raises(Exception) as found:
        kept.reraise()
    return type(found.value), str(found.value)


@pytest.mark.parametrize("failing", [lambda: {}["a"], lambda: 1 / 0, lambda: Odd(1, 2).missing])
def test_exceptions_travel(failing):
    theirs = oracle("torch")._utils.ExceptionWrapper
    assert raised_again(ours.ExceptionWrapper, failing) == raised_again(theirs, failing)


def test_exceptions_that_cannot_be_made_again():
    def fail():
        raise Odd(1, 2)

    kind, text = raised_again(ours.ExceptionWrapper, fail)
    assert kind is RuntimeError
    assert text.startswith("Caught Odd in worker 3.\nOriginal Traceback")


def test_weft_counts():
    x = weft.symbol.Variable("x")
    logger, name = weft.LockingLogger(), "weft.{}".format
    before = weft.loggers.set_logger(logger)
    try:
        assert weft.loggers.get_logger() is logger
        model = weft.compile(weft.symbol.relu(x) * 37.25, shape={"x": (None, 2)})
        for rows in (1, 1, 2, 1, 2):
            model(weft.ones(rows, 2).numpy())
    finally:
        weft.loggers.set_logger(before)
    model(weft.ones(3, 2).numpy())
    counted = {
        key: logger.get_counter_val(name(key))
        for key in (
            "compiled_models_constructed",
            "compiled_model_invocations",
            "program_cache_hit",
            "program_cache_miss",
        )
    }
    assert list(counted.values()) == [1, 5, 3, 2]
    assert logger.get_counter_val(name("compile_nanoseconds")) > 0
    kernels = [logger.get_counter_val(name(f"kernel_cache_{way}")) for way in ("hit", "miss")]
    assert sum(kernels) > 0
