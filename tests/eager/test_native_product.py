"""Products of numpy arrays by open kernels, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from lower.accuracy import agrees
from oracles import oracle

import weft
from weft.base.cpu_facts import ThreadFacts
from weft.base.errors import DTypeError, LayoutError, ShapeError
from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import apply
from weft.eager.native.product import multiply, worth_native
from weft.runtime.cpu import open_program

rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def check(a, b, bias=None):
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    found = multiply(a, b, bias)
    assert found.dtype == a.dtype
    assert found.flags.c_contiguous
    agrees(found, expected if bias is None else expected + bias)


def view_of(rows, columns, dtype):
    """A matrix of some layout: plain, transposed, sliced, reversed, or one row again and again."""
    kind = rng.integers(5)
    if kind == 0:
        return normal(rows, columns, dtype=dtype)
    if kind == 1:
        return normal(columns, rows, dtype=dtype).T
    if kind == 2:
        return normal(rows * 2, columns * 3 + 1, dtype=dtype)[1::2, 1::3]
    if kind == 3:
        return normal(rows, columns, dtype=dtype)[::-1, ::-1]
    return np.broadcast_to(normal(columns, dtype=dtype), (rows, columns))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_matrices_of_any_size_and_strides(dtype):
    for _ in range(60):
        rows, depth, columns = (int(2 ** rng.uniform(0, 8.5)) for _ in range(3))
        bias = normal(columns, dtype=dtype) if rng.integers(2) else None
        check(view_of(rows, depth, dtype), view_of(depth, columns, dtype), bias)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_products_at_once(dtype):
    for _ in range(30):
        leading = [int(n) for n in rng.integers(1, 4, int(rng.integers(1, 4)))]
        rows, depth, columns = (int(2 ** rng.uniform(0, 7)) for _ in range(3))
        of_a = [n if rng.integers(3) else 1 for n in leading][int(rng.integers(2)) :]
        of_b = [n if rng.integers(3) else 1 for n in leading][int(rng.integers(2)) :]
        a, b = normal(*of_a, rows, depth, dtype=dtype), normal(*of_b, depth, columns, dtype=dtype)
        if rng.integers(2):
            a = np.swapaxes(normal(*of_a, depth, rows, dtype=dtype), -1, -2)
        if rng.integers(2):
            b = np.swapaxes(normal(*of_b, columns, depth, dtype=dtype), -1, -2)
        if len(of_a) > 1 and rng.integers(2):
            a = np.swapaxes(a, 0, 1)
            b = np.swapaxes(b, 0, 1) if len(of_b) == len(of_a) else normal(depth, columns, dtype=dtype)
        check(a, b)


def test_rows_that_are_shared_by_products():
    check(np.broadcast_to(normal(30, 40), (5, 30, 40)), normal(40, 50))
    check(np.broadcast_to(normal(1, 40), (5, 30, 40)), np.broadcast_to(normal(40, 50), (5, 40, 50)))
    check(normal(30, 5, 40).swapaxes(0, 1), normal(40, 50))
    check(normal(40, 5, 1)[:, ::-2].transpose(1, 2, 0), normal(40, 50))


@pytest.mark.parametrize("shape", [(128, 784, 1024), (1024, 128, 96), (3, 700, 1100), (90, 70, 10), (700, 500, 1)])
def test_large_products(shape):
    rows, depth, columns = shape
    check(normal(rows, depth), normal(columns, depth).T, normal(columns))
    check(normal(depth, rows).T, normal(depth, columns))
    check(normal(rows, depth), normal(depth, columns))


def test_nothing_to_multiply():
    bias = normal(3)
    np.testing.assert_array_equal(multiply(normal(4, 0), normal(0, 3)), np.zeros((4, 3)))
    np.testing.assert_array_equal(multiply(normal(2, 0), normal(0, 3), bias), [bias, bias])
    for a, b in (((0, 5), (5, 3)), ((4, 5), (5, 0)), ((0, 4, 5), (5, 3)), ((2, 4, 0), (0, 3))):
        found = multiply(normal(*a), normal(*b))
        assert found.shape == np.matmul(normal(*a), normal(*b)).shape
        assert not found.any()


def test_a_given_place():
    a, b = normal(17, 300), normal(300, 130)
    out = np.full((17, 130), np.nan, np.float32)
    assert multiply(a, b, out=out) is out
    agrees(out, a.astype(np.float64) @ b.astype(np.float64))


def test_a_bias_that_is_a_column():
    a, b, column = normal(20, 30), normal(30, 40), normal(40, 2)[:, 1]
    np.testing.assert_array_equal(multiply(a, b, column), multiply(a, b, column.copy()))
    np.testing.assert_allclose(multiply(a, b, column) - multiply(a, b), [column] * 20, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(130, 900, 310), (6, 500, 2000), (20, 2000, 300), (700, 90, 8)])
def test_any_number_of_threads_gives_the_same_bits(shape, transposed, monkeypatch):
    rows, depth, columns = shape
    a, b = normal(rows, depth), normal(depth, columns)
    if transposed:
        b = normal(columns, depth).T
    found = []
    monkeypatch.setattr(open_program, "THREADS", ThreadFacts(wake=0.0))
    for threads in (1, 2, 4):
        monkeypatch.setattr(open_program, "eager_threads", lambda count=threads: count)
        found.append(multiply(a, b))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    agrees(found[0], a.astype(np.float64) @ b.astype(np.float64))


def test_as_pytorch_has_it():
    torch = oracle("torch")
    for _ in range(10):
        a = normal(3, int(rng.integers(1, 90)), 65)
        b = normal(3, int(rng.integers(1, 200)), 65)
        expected = torch.matmul(torch.from_numpy(a), torch.from_numpy(b).transpose(1, 2))
        agrees(multiply(a, b.swapaxes(1, 2)), expected.numpy())


def test_small_products_are_left_to_numpy():
    assert not worth_native((4, 4), (4, 4))
    assert worth_native((128, 784), (784, 1024))
    assert worth_native((12, 128, 64), (12, 64, 128))
    assert worth_native((64, 64, 64), (64, 64))
    assert not worth_native((64, 64), (64, 64))
    assert worth_native((1, 128), (128, 128))
    assert worth_native((128, 128), (128, 1))
    assert not worth_native((1, 64), (64, 64))


def test_what_is_no_product():
    a, b = normal(4, 5), normal(5, 6)
    for bad in (normal(4, 6), normal(5)):
        with pytest.raises(ShapeError):
            multiply(a, bad)
    with pytest.raises(DTypeError):
        multiply(a, b.astype(np.float64))
    with pytest.raises(DTypeError):
        multiply(a.astype(">f4"), b.astype(">f4"))
    with pytest.raises(DTypeError):
        multiply(a.astype(np.int32), b.astype(np.int32))
    with pytest.raises(ShapeError):
        multiply(a, b, bias=normal(5))
    with pytest.raises(ShapeError):
        multiply(a, b, out=normal(6, 4))
    with pytest.raises(LayoutError):
        multiply(a, b, out=normal(6, 4).T)
    cut = np.zeros(4, [("x", "u1"), ("y", "f4", 5)])["y"]
    with pytest.raises(LayoutError):
        multiply(cut, b)


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("shapes", [((40, 50, 60), (60, 70)), ((40, 60), (60, 20, 30)), ((10, 40, 60), (60, 20, 30))])
def test_products_of_tensors_with_more_axes(shapes, turned):
    """NNVM's matmul and its gradients, against numpy's tensordot."""
    a, b = (normal(*shape) for shape in shapes)
    given = [weft.from_numpy((x.T if t else x).copy()).requires_grad_() for x, t in zip((a, b), turned)]
    op = Op.get("matmul")
    params = params_of(op, {"transpose_a": turned[0], "transpose_b": turned[1]})
    (made,) = apply(op, params, given)
    np.testing.assert_allclose(made.detach().numpy(), np.tensordot(a, b, 1), atol=1e-4)
    g = normal(*made.shape)
    made.backward(weft.from_numpy(g))
    rows = list(range(a.ndim - 1))
    wanted = [
        np.tensordot(g, b, (list(range(a.ndim - 1, g.ndim)), list(range(1, b.ndim)))),
        np.tensordot(a, g, (rows, rows)),
    ]
    for tensor, expected, is_turned in zip(given, wanted, turned):
        found = tensor.grad.numpy()
        np.testing.assert_allclose(found.T if is_turned else found, expected, atol=2e-3)
