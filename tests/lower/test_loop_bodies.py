"""Operators whose bodies are kernels: lowered, bound to entries and temporaries, run natively."""

import itertools

import numpy as np
import pytest

import weft
from weft import te
from weft.base.errors import ShapeError
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.ops import _layouts as layouts
from weft.ops._families import ELEM_WISE, OPAQUE, define
from weft.ops._kernels import Body, Rows, rows_of, sort_row
from weft.te.interpret import run_kernel
from weft.testing.op_check import Sample, check_op

_numbers = itertools.count()


def _sum_and_double(inputs, outputs):
    """(total so far, twice each) of a vector; the doubles go through memory of the body's own."""
    ((n,), dtype) = inputs[0]
    body = Body("sums", inputs, outputs)
    double = body.temporary((n,), dtype)
    with body.kernel({0: (n,), double: (n,)}, n) as (b, x, twice), b.parallel("i", n) as i:
        b.store(twice, i, x[i] * 2)
    with body.kernel({double: (n,), 1: (n,), 2: (n,)}, n) as (b, twice, total, out):
        sums = b.alloc("sum", dtype, ())
        b.store(sums, (), 0)
        with b.loop("i", n) as i:
            b.store(sums, (), sums[()] + twice[i])
            b.store(total, i, sums[()])
            b.store(out, i, twice[i])
    return body.kernels


def make(**columns):
    op = define(
        f"t_written_{next(_numbers)}",
        "Twice the sum so far, and twice each.",
        level=10,
        pattern=OPAQUE,
        layout=layouts.fixed_unknown,
        shape=lambda params, ins, outs: ([ins[0]], [ins[0]] * 2),
        **{
            "reference": lambda x: (np.cumsum(2 * x, dtype=x.dtype), 2 * x),
            "kernels": _sum_and_double,
            "gradient": lambda ctx, g, h: [Op.get("cumsum")(g, reverse=True) * 2 + h * 2],
            **columns,
        },
    )
    return op.set_num_outputs(2)


def test_check_op_takes_kernels():
    x = np.random.default_rng(3).uniform(-1, 1, 9).astype("float32")
    check_op(make().name, [Sample([x], oracle=lambda x: (np.cumsum(x) * 2, x + x), rtol=1e-4)])


def _wrong(inputs, outputs):
    (kernel, (a, b), work), last = _sum_and_double(inputs, outputs)
    return [(kernel, (a, b), work), (last[0], (last[1][0], last[1][2], last[1][1]), last[2])]


def test_check_op_finds_wrong_kernels():
    with pytest.raises(AssertionError, match="compute"):
        check_op(make(kernels=_wrong).name, [Sample([np.float32([1, 2, 3])])])


def test_check_op_wants_kernels_to_stand_alone():
    op = make()
    op.set_attr("TOpPattern", 0, 11)
    with pytest.raises(AssertionError, match="opaque"):
        check_op(op.name, [Sample([np.float32([1])])])


def test_kernels_are_never_fused():
    """Whatever the pattern says: they compute one operator."""
    op = define(
        f"t_written_{next(_numbers)}",
        "x + 1",
        level=10,
        pattern=ELEM_WISE,
        kernels=_increment,
        shape=lambda params, ins, outs: ([ins[0]], [ins[0]]),
        reference=lambda x: x + 1,
    )
    net = weft.symbol.relu(op(weft.symbol.relu(weft.symbol.Variable("x"))))
    x = np.float32([-3, 2, 5])
    np.testing.assert_array_equal(weft.compile(net, shape={"x": (3,)})(x)[0], [1, 3, 6])


def _increment(inputs, outputs):
    ((n,), _) = inputs[0]
    body = Body("increment", inputs, outputs)
    with body.kernel({0: (n,), 1: (n,)}, n) as (b, x, out), b.loop("i", n) as i:
        b.store(out, i, x[i] + 1)
    return body.kernels


@pytest.mark.parametrize("which", [[0], [1], [0, 1]])
def test_outputs_that_nobody_reads_are_left_out(which):
    x = np.random.default_rng(len(which)).integers(-9, 9, 300).astype("float32")
    made = make()(weft.symbol.Variable("x"))
    model = weft.compile(weft.symbol.Group([made[i] + 1 for i in which]), shape={"x": x.shape})
    wanted = [np.cumsum(2 * x) + 1, 2 * x + 1]
    for got, i in zip(model(x=x), which, strict=True):
        np.testing.assert_array_equal(got, wanted[i])
    assert not model.report().host_steps


def test_a_buffer_of_another_size_is_an_error():
    bad = lambda inputs, outputs: _sum_and_double([((2,), inputs[0][1])], outputs)
    made = make(kernels=bad)(weft.symbol.Variable("x"))
    with pytest.raises(ShapeError, match="stands for"):
        weft.compile(made, shape={"x": (5,)})


def test_rows():
    assert rows_of((4, 5, 6), -1 % 3) == Rows(20, 6, 1)
    assert Rows(2, 3, 32).tasks == 4
    assert Rows(2, 3, 7).block == 7
    assert Rows(1, 1, 257).block == 1
    assert Rows(3, 4, 0).tasks == 0


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 33, 100])
def test_sort_row_is_a_stable_sort(n):
    rng = np.random.default_rng(n)
    keys = rng.integers(0, max(n // 3, 1), n).astype("int32")
    b = te.KernelBuilder("sort")
    x, out = b.arg("x", "int32", (n,)), b.arg("out", "int64", (n,))
    order = b.arg("order", "int32", (1, 2, n))
    place = sort_row(b, order, te.as_expr(0), n, lambda i, j: x[i] < x[j])
    with b.loop("i", n) as i:
        b.store(out, i, place(i))
    made = np.zeros(n, "int64")
    run_kernel(b.finish(), [keys, made, np.zeros((1, 2, n), "int32")])
    np.testing.assert_array_equal(made, np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("seed", range(3))
def test_the_end_of_a_detection_network(seed):
    """Anchors, boxes, suppression, and the best three of those: all native, as interpreted."""
    rng = np.random.default_rng(seed)
    sym = weft.symbol
    anchors = sym.multibox_prior(sym.Variable("x"), sizes=(0.4, 0.3), ratios=(1.0, 2.0), clip=True)
    boxes = sym.multibox_transform_loc(sym.Variable("probs"), sym.Variable("loc"), anchors)
    kept = sym.non_max_suppression(boxes[0], boxes[1], return_indices=False, iou_threshold=0.3, invalid_to_bottom=True)
    best = sym.topk(sym.strided_slice(kept, begin=(0, 0, 1), end=(2, 75, 2)), k=3, axis=1)
    net = sym.Group([kept, best[0], best[1], boxes[1]])
    probs = rng.uniform(0, 1, (2, 4, 75)).astype("float32")
    values = {
        "x": np.zeros((2, 1, 5, 5), "float32"),
        "probs": probs / probs.sum(1, keepdims=True),
        "loc": rng.standard_normal((2, 300)).astype("float32"),
    }
    model = weft.compile(net, shape={name: value.shape for name, value in values.items()})
    assert not model.report().host_steps
    for got, wanted in zip(model(**values), evaluate(net, values), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert (model(**values)[0][..., 0] >= 0).sum() > 4
