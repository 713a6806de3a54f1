"""The kernel builder: scopes of lets and allocs, branches, and what is refused."""

import numpy as np
import pytest

from weft import te
from weft.base.errors import DTypeError, InvalidValue
from weft.te.interpret import run_kernel
from weft.te.loops import Alloc, For, If, Let, Seq, While


def test_lets_and_allocs_hold_for_the_rest_of_the_block():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    b.store(x, 0, 1)
    v = b.let("v", x[0] + 1)
    t = b.alloc("t", "int64", (2,))
    b.store(t, 1, v)
    b.store(x, 1, t[1])
    body = b.finish().body
    assert isinstance(body, Seq)
    assert isinstance(body.body[1], Let)
    assert isinstance(body.body[1].body, Alloc)
    assert isinstance(body.body[1].body.body, Seq)


def test_branches_and_while():
    b = te.KernelBuilder("collatz")
    x = b.arg("x", "int64", (2,))
    with b.repeat_while(x[0].not_equal(1)):
        with b.when((x[0] % 2).equal(0)):
            b.store(x, 0, x[0] // 2)
        with b.otherwise():
            b.store(x, 0, x[0] * 3 + 1)
        b.store(x, 1, x[1] + 1)
    kernel = b.finish()
    assert isinstance(kernel.body, While)
    data = np.array([27, 0])
    run_kernel(kernel, [data])
    assert data.tolist() == [1, 111]


def test_numbers_take_the_dtype_and_lanes_of_the_buffer():
    b = te.KernelBuilder("k")
    acc = b.alloc("acc", "float16", (1,), scope="register", lanes=8)
    b.store(acc, 0, 0)
    (store,) = [b.finish().body.body]
    assert (store.value.dtype, store.value.lanes) == (np.dtype("float16"), 8)


def test_registers_begin_with_a_value():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    b.store(x, 0, 5)
    start = b.let("start", x[0])
    pair, single = b.registers("pair", "int64", (2,), start), b.registers("single", "int64")
    b.store(x, 1, pair[0] + pair[1])
    b.store(x, 2, single[()] + 3)
    data = np.array([0, 0, 0, 7])
    run_kernel(b.finish(), [data])
    assert data.tolist() == [5, 10, 3, 7]


def test_loop_kinds():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4, 8))
    with b.unrolled("i", 4) as i, b.vector("j", 8) as j:
        b.store(x, (i, j), 0)
    outer = b.finish().body
    assert isinstance(outer, For)
    assert isinstance(outer.body, For)
    assert (outer.kind, outer.body.kind) == ("unroll", "vector")


def test_parallel_is_outermost_and_alone():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    with b.loop("i", 4), pytest.raises(InvalidValue, match="outermost"), b.parallel("j", 4):
        pass
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    with b.parallel("i", 4) as i:
        b.store(x, i, 0)
    b.store(x, 0, 0)
    with pytest.raises(InvalidValue, match="after its parallel loop"):
        b.finish()


def test_misuse_is_refused():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    with pytest.raises(InvalidValue, match="follows no when"), b.otherwise():
        pass
    with pytest.raises(DTypeError), b.when(x[0]):
        pass
    with pytest.raises(InvalidValue, match="2 indices"):
        b.store(x, (0, 0), 1)
    with pytest.raises(DTypeError):
        b.store(x, 0, te.const(1, "float32"))
    with pytest.raises(InvalidValue, match="scope"):
        b.alloc("t", "int64", (1,), scope="arg")
    with b.loop("i", 4), pytest.raises(InvalidValue, match="open block"):
        b.finish()


def test_an_empty_branch_stays_legal():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (4,))
    with b.when(x[0] > 0):
        pass
    kernel = b.finish()
    assert isinstance(kernel.body, If)
    run_kernel(kernel, [np.zeros(4, "int64")])
