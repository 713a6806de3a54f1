"""Every family of native kernels takes calls, and says why it does not take others: numpy then runs them, which is
counted and told. Operators' own columns say which of them native code runs as they are."""

import numpy as np
import pytest
from native_cases import as_list

import weft
import weft.nn.functional
from weft.base import counters
from weft.base.errors import RunError
from weft.core.op import Op, list_op_names
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import kernel_of
from weft.eager.native import calls, native_call
from weft.eager.native.calls import NEVER, Declined
from weft.eager.native.copy import copy_into
from weft.eager.native.index import add_elements, add_rows, put_elements
from weft.eager.native.pointwise import add_into
from weft.eager.native.thresholds import FROM


def normal(*shape, dtype="float32"):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


X, HALF, IMAGE, Q = normal(40, 50), normal(40, 50, dtype="float16"), normal(2, 3, 8, 8), normal(2, 9, 4)
SPREAD = np.zeros((40, 50), [("odd", "i1"), ("value", "f4")])["value"]  # steps of 5 bytes
INDICES = np.arange(2000).reshape(40, 50) % 40
CONV = {"channels": 4, "kernel_size": (3, 3), "use_bias": False}
POOL = {"pool_size": (2, 2)}
LRN = {"size": 3, "axis": 1, "alpha": 0.1, "beta": 0.7, "bias": 1.0}
SQUARE = normal(12, 12) + 5 * np.eye(12, dtype="float32")
# operator, attributes, arrays that are served; then attributes and arrays that are declined, and why
FAMILIES = [
    ("scaled_dot_product_attention", {"mask": "none"}, [Q] * 3, {"mask": "none"}, [Q.astype("float16")] * 3, "dtype"),
    ("conv2d", CONV, [IMAGE, normal(4, 3, 3, 3)], {**CONV, "layout": "NHWC"}, [IMAGE, normal(4, 3, 3, 3)], "layout"),
    ("conv2d", CONV, [IMAGE, normal(4, 3, 3, 3)], CONV, [IMAGE, normal(4, 3, 5, 5)], "shapes"),
    ("triangle", {"lower": True}, [X], {"lower": True}, [HALF], "dtype"),
    ("inverse", {}, [SQUARE], {}, [np.ones_like(SQUARE)], "singular"),
    ("lu_factor", {}, [SQUARE], {}, [SQUARE.astype("float16")], "dtype"),
    ("gather_elements", {"axis": 0}, [X, INDICES], {"axis": 0}, [X * 1j, INDICES], "dtype"),
    ("take", {"axis": 1}, [X, INDICES], {"axis": 1}, [X * 1j, INDICES], "dtype"),
    ("_take_grad", {"axis": 0}, [normal(3, 50), X, INDICES[0, :3]], {"axis": 0}, [X[:0], X, INDICES[0, :0]], "empty"),
    ("matmul", {}, [normal(90, 80), normal(80, 70)], {}, [normal(90), normal(90, 70)], "rank"),
    ("distances", {}, [X, X], {}, [HALF, HALF], "dtype"),
    ("softmax", {"axis": 1}, [X], {"axis": 1}, [HALF], "dtype"),
    ("layer_norm", {}, [X, X[0], X[1]], {}, [X, X[0, :9], X[1]], "shapes"),
    ("l2_normalize", {"eps": 1e-6, "axis": (1,)}, [X], {"eps": 1e-6, "axis": (0, 1)}, [X[:0]], "empty"),
    ("max_pool2d", {**POOL, "layout": "NHWC"}, [IMAGE], POOL, [IMAGE.astype("float16")], "dtype"),
    ("global_max_pool2d", {}, [IMAGE], {"layout": "NHWC"}, [IMAGE], "layout"),
    (
        "adaptive_avg_pool2d",
        {"output_size": (3, 3)},
        [IMAGE],
        {"output_size": (3, 3)},
        [IMAGE * np.float32("inf")],
        "not finite",
    ),
    ("sum", {}, [X], {}, [HALF], "dtype"),
    ("argmax", {"axis": (0,)}, [X], {"axis": (0,)}, [HALF], "dtype"),
    ("collapse_sum", {}, [X, X[0]], {}, [X, X[0, :7]], "shapes"),
    ("cumsum", {"axis": 0}, [X], {"axis": 0}, [X * 1j], "dtype"),
    ("_prod_others", {"axis": (0,)}, [X], {"axis": (0,)}, [X[:0]], "empty"),
    ("broadcast_add", {}, [normal(400, 400)] * 2, {}, [normal(400, 400) + 1j] * 2, "dtype"),
    ("lrn", LRN, [IMAGE], LRN, [IMAGE[:0]], "empty"),
    ("grid_sample", {}, [IMAGE, normal(2, 5, 5, 2)], {}, [IMAGE[:0], normal(0, 5, 5, 2)], "empty"),
]


@pytest.fixture
def counted():
    """How often native code declined a call, by name and reason."""
    logger = counters.LockingLogger()
    before = counters.set_logger(logger)
    yield lambda name: logger.get_counter_val(f"weft.native_declined.{name}")
    counters.set_logger(before)


@pytest.mark.parametrize(
    ("name", "attrs", "served", "others", "declined", "reason"),
    FAMILIES,
    ids=[f"{row[0]}-{row[-1]}" for row in FAMILIES],
)
def test_each_family_serves_or_says_why_not(name, attrs, served, others, declined, reason):
    op = Op.get(name)
    run = kernel_of(op).native
    expected = op.call_with(Op.reference[op], params_of(op, attrs), *served)
    outputs = run(params_of(op, attrs), served)
    for output, wanted in zip(as_list(outputs), as_list(expected), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(Declined) as caught:
        run(params_of(op, others), declined)
    assert caught.value.reason == reason


def test_what_is_declined_is_run_by_numpy_and_counted(counted):
    for _ in range(3):
        total = weft.from_numpy(HALF).sum()
    assert counted("sum.dtype") == 3
    np.testing.assert_allclose(total.item(), HALF.astype("float64").sum(), rtol=1e-2)
    weft.from_numpy(X).sum()
    assert counted("sum.dtype") == 3


def test_sizes_for_which_numpy_is_as_fast_are_not_declined(counted, capfd, monkeypatch):
    monkeypatch.setattr(calls, "_told", set())
    monkeypatch.setenv("WEFT_DEBUG", "dispatch")
    x = weft.from_numpy(normal(256, 200))
    assert (x + x).sum().item() == pytest.approx(2 * normal(256, 200).sum(dtype="float64"), rel=1e-3, abs=1e-2)
    small = weft.from_numpy(normal(33, 33))
    np.testing.assert_allclose((small @ small).numpy(), normal(33, 33) @ normal(33, 33), rtol=1e-4, atol=1e-4)
    assert "left to numpy" not in capfd.readouterr().err


def test_the_first_of_a_kind_is_told_under_debug(capfd, monkeypatch):
    monkeypatch.setattr(calls, "_told", set())
    weft.from_numpy(HALF).sum()
    assert capfd.readouterr().err == ""
    monkeypatch.setattr(calls, "_told", set())
    monkeypatch.setenv("WEFT_DEBUG", "dispatch")
    for _ in range(2):
        weft.from_numpy(HALF).sum()
    assert capfd.readouterr().err == "weft: sum is left to numpy: dtype\n"


def test_writes_that_native_code_does_not_make(counted):
    half, places = np.zeros((40, 50), "float16"), np.arange(40)
    assert not add_elements(half, 0, INDICES, HALF)
    assert not add_rows(half, 0, places, HALF)
    assert not add_rows(np.zeros((50, 40), "float32").T, 0, places, X)
    assert not put_elements(np.zeros((40, 50)) + 0j, 0, INDICES, X)
    assert not half.any()
    assert counted("add_elements.dtype") == counted("add_rows.dtype") == counted("put_elements.dtype") == 1
    assert counted("add_rows.not contiguous") == 1
    total = np.zeros((40, 50), "float32")
    assert add_rows(total, 0, places, X)
    np.testing.assert_array_equal(total, X)


def test_copies_and_sums_that_native_code_does_not_make(counted):
    large = normal(200, 150)
    for dtype, count in (("float32", 0), ("int16", 1)):
        source = (large * 100).astype(dtype).T
        target = np.empty(source.shape, dtype)
        copy_into(target, source)
        np.testing.assert_array_equal(target, source)
        assert counted("copy.dtype") == count
    total = large.copy()
    add_into(total, large)
    np.testing.assert_array_equal(total, large * 2)
    assert counted("add_into.overlap") == 0
    add_into(total, total[::-1])
    np.testing.assert_array_equal(total, large * 2 + large[::-1] * 2)
    assert counted("add_into.overlap") == 1


def test_writes_in_place_that_native_code_does_not_make(counted):
    x = weft.from_numpy(normal(200, 150))
    x.mul_(weft.from_numpy(normal(200, 150)))
    np.testing.assert_array_equal(x.numpy(), normal(200, 150) ** 2)
    assert counted("write.overlap") == 0
    y = weft.from_numpy(normal(150, 150))
    y.add_(y.t())
    np.testing.assert_array_equal(y.numpy(), normal(150, 150) + normal(150, 150).T)
    assert counted("write.overlap") == 1


def test_gradients_that_native_code_does_not_make(counted):
    for dtype, count in (("float32", 0), ("float16", 1)):
        x = weft.from_numpy(normal(40, 50).astype(dtype)).requires_grad_()
        weft.nn.functional.gelu(x).sum().backward()
        assert x.grad.dtype == x.dtype
        assert counted("gradient.dtype") == count


def test_functions_that_look_at_values_are_not_fused():
    """Integers are divided by zero in the plain call, which says so, however large the tensors are."""
    ones, zeros = weft.ones(64, 64, dtype=weft.int64), weft.zeros(64, 64, dtype=weft.int64)
    for function in (weft.floor_divide, weft.fmod):
        out = weft.empty(64, 64, dtype=weft.int64)
        assert function(ones, ones, out=out).sum() == (64 * 64 if function is weft.floor_divide else 0)
        with pytest.raises(RunError, match="ZeroDivisionError"):
            function(ones, zeros, out=out)


def test_columns_of_operators_say_which_calls_are_native():
    for name, least in (("gelu", 256), ("lgamma", 256), ("broadcast_where", 2048), ("softmax", 64), ("exp", None)):
        assert Op.get(name).native_from == least
        assert kernel_of(Op.get(name)).native_from == (FROM.functions if least is None else least)
    op = Op.register("half_again_for_test").set_num_inputs(1)
    op.reference = lambda x: x * np.float32(1.5)
    op.compute = lambda x: weft.te.compute(x.shape, lambda *i: x[i] * 1.5)
    assert kernel_of(op).native_from == NEVER
    op.native_from = 100
    assert kernel_of(op).native_from == 100
    (made,) = kernel_of(op).native(None, [X])
    np.testing.assert_array_equal(made, X * np.float32(1.5))


def test_operators_of_every_family_say_from_which_sizes_on_it_runs_them():
    native_call(Op.get("sum"))  # loads all of them
    assert {"sum", "softmax_cross_entropy", "matmul", "conv2d", "lu_factor"} <= calls._rows.keys()
    joined = [name for name in list_op_names() if Op.joined_axes.contains(Op.get(name))]
    assert {"softmax", "layer_norm", "max_pool2d"} <= {*joined}
    for name in (*calls._rows, *joined):
        assert Op.get(name).native_from >= 1
        assert kernel_of(Op.get(name)).native_from == Op.get(name).native_from
