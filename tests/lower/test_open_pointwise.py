"""Element-wise calls of any layout by one kernel for each way of walking, against numpy."""

import numpy as np
import pytest
from codegen.guard import guarded
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import ops  # noqa: F401
from weft.compiler.open import programs as open_programs
from weft.core.op import Op
from weft.eager.native.pointwise import element, op_key, run_pointwise
from weft.runtime.cpu import pool

ADD, SIN = Op.get("broadcast_add"), Op.get("sin")


def run(op, *arrays):
    body = element(op, None, tuple(a.dtype for a in arrays))
    return run_pointwise(op_key(op, None), body, arrays)


@st.composite
def layouts(draw):
    """An array of some shape whose axes are permuted, stepped over, reversed or stretched."""
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 17, 33]), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    operands = []
    for _ in range(2):
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else n for n in shape]
        order = draw(st.permutations(range(len(own))))
        steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in own]
        base = rng.standard_normal([abs(s) * own[a] for a, s in zip(order, steps)])
        view = base.astype("float32")[tuple(slice(None, None, s) for s in steps)]
        operands.append(view.transpose(np.argsort(order)))
    return operands


@given(layouts())
@settings(max_examples=150, deadline=None)
def test_any_layout(operands):
    np.testing.assert_array_equal(run(ADD, *operands), np.add(*operands))


def test_layout_of_the_result_is_that_of_the_operand():
    x = np.random.default_rng(0).standard_normal((40, 30)).astype("float32").T
    made = run(SIN, x)
    assert made.strides == x.strides
    np.testing.assert_allclose(made, np.sin(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4095, 4096, 4097, 70001])
def test_no_memory_but_its_own_is_touched(size):
    x = np.random.default_rng(size).standard_normal(size).astype("float32")
    for front in (False, True):
        np.testing.assert_array_equal(run(ADD, guarded(x, front), guarded(x, front)), x + x)


def test_one_kernel_serves_all_sizes():
    run(ADD, np.ones((3, 5), "float64"), np.ones((3, 5), "float64"))
    before = len(open_programs._programs)
    for shape in [(1,), (7, 9), (2, 3, 4, 5), (100000,)]:
        run(ADD, np.ones(shape, "float64"), np.ones(shape, "float64"))
    assert len(open_programs._programs) == before


def test_bits_do_not_depend_on_threads(monkeypatch):
    x = np.random.default_rng(1).standard_normal((300, 1001)).astype("float32")
    made = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(pool, "_chosen", threads)
        made.append(run(SIN, x))
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool", "float16"])
def test_other_dtypes(dtype):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 2 if dtype == "bool" else 100, 5000).astype(dtype) for _ in range(2))
    op = Op.get("broadcast_max")
    np.testing.assert_array_equal(run(op, a, b), np.maximum(a, b))


@pytest.mark.parametrize("name", ["sum", "softmax", "cumsum", "transpose", "conv2d", "take"])
def test_what_is_not_element_wise_has_no_element(name):
    op = Op.get(name)
    params = op.parse({"channels": "2", "kernel_size": "(1, 1)"} if name == "conv2d" else {})
    assert element(op, params, (np.dtype("float32"),) * (2 if name in ("conv2d", "take") else 1)) is None
