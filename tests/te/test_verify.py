"""The rules of kernels with a grid: what is refused, and why. Each case breaks one rule only."""

import re

import numpy as np
import pytest

from weft import te
from weft.base.errors import InvalidValue, Unsupported
from weft.te.expr import Var, as_expr
from weft.te.interpret import run_kernel
from weft.te.jam import jam
from weft.te.loops import Alloc, Barrier, For, If, Kernel, Let, Parallel, Seq, Store, While, buffer
from weft.te.transform import lower_vectors
from weft.te.verify import verify

n, i, j, k = Var("n"), Var("i"), Var("j"), Var("k")
NOTHING = Seq(())
X = buffer("x", "int64", (8,))
OWN = buffer("own", "float32", (8,), scope="scratch")


def loop(var, extent, kind, body=NOTHING):
    return For(var, as_expr(extent), body, kind)


def blocks(body=NOTHING, extent=4):
    return loop(i, extent, "block.x", body)


def threads(body=NOTHING, extent=8):
    return loop(j, extent, "thread.x", body)


def shared(name="s", shape=(8,), lanes=1, strides=None):
    return buffer(name, "float32", shape, scope="shared", lanes=lanes, strides=strides)


def kernel(body, parallel=None):
    return Kernel("k", (X,), body, parallel, (n,))


S = shared()
ACCEPTED = {
    "blocks and threads": blocks(threads()),
    "blocks along all axes": blocks(loop(j, n, "block.y", loop(k, n * 2, "block.z")), n + 1),
    "threads along all axes": blocks(threads(loop(k, 2, "thread.y", loop(Var("l"), 64, "thread.z")))),
    "as many threads as there may be": blocks(threads(extent=1024)),
    "as much shared memory as there may be": blocks(Alloc(shared(shape=(58111,)), Alloc(shared("t", (1,)), threads()))),
    "lets between": Let(k, n * 2, blocks(Let(Var("l"), k + i, threads(Barrier())))),
    "memory of each kind in its place": blocks(Alloc(S, threads(Alloc(OWN, Barrier())))),
    "a barrier in a loop that all take alike": blocks(threads(loop(k, n + i, "serial", Barrier()))),
    "a barrier under a condition on blocks": blocks(threads(If(i < 2, Barrier(), Barrier()))),
    "a barrier under what memory says": blocks(threads(If(X[j] > 2, Barrier()))),
    "a barrier while memory says so": blocks(threads(While(X[j] > 2, Barrier()))),
    "a condition on the one thread there is": blocks(threads(If(j < 1, Barrier()), 1)),
    "a barrier after a condition": blocks(threads(Seq((If(j < 1, Store(X, (j,), j)), Barrier())))),
    "a name that was a thread's": blocks(threads(Seq((Let(k, j + 1, NOTHING), Let(k, i + 1, If(k < 2, Barrier())))))),
}
REFUSED = [
    ("loop j is bound to thread.x outside all blocks", threads()),
    ("loop k, bound to block.y, is inside j, bound to thread.x", blocks(threads(loop(k, 2, "block.y")))),
    ("loops i and k are both bound to block.x", blocks(loop(k, 4, "block.x"))),
    ("loops j and k are both bound to thread.x", blocks(threads(loop(k, 8, "thread.x")))),
    ("loop i, bound to block.x, is not one of the outermost", loop(k, 2, "serial", blocks())),
    ("loop j, bound to thread.x, is not one of the outermost", blocks(loop(k, 2, "serial", threads()))),
    ("loop j, bound to thread.x, is not one of the outermost", blocks(If(i < 2, threads()))),
    ("loop j, bound to thread.x, is not one", blocks(Seq((threads(), threads())))),
    ("the extent of loop i, bound to block.x, depends on x", blocks(threads(), X[0])),
    ("the extent of loop k, bound to block.y, depends on i", blocks(loop(k, i, "block.y"))),
    ("loop j, bound to thread.x, has no constant extent", blocks(threads(extent=n))),
    ("loop j, bound to thread.x, has 0 turns", blocks(threads(extent=0))),
    ("loop j, bound to thread.x, has 1025 turns", blocks(threads(extent=1025))),
    ("loop k, bound to thread.z, has 65 turns", blocks(loop(k, 65, "thread.z"))),
    ("a block of 64 x 17 threads", blocks(threads(loop(k, 17, "thread.y"), 64))),
    ("shared memory s is not allocated between blocks and threads", Alloc(S, blocks(threads()))),
    ("shared memory s is not allocated between blocks and threads", Alloc(S, NOTHING)),
    ("shared memory s is not allocated", blocks(Alloc(S, loop(j, 2, "block.y", threads())), 2)),
    ("shared memory s is not allocated between", blocks(threads(Alloc(S, NOTHING)))),
    ("shared memory s is not allocated between", blocks(threads(loop(k, 2, "serial", Alloc(S, NOTHING))))),
    ("scratch memory own is allocated outside of loop j", blocks(Alloc(OWN, threads()))),
    ("shared memory s has an extent or a stride that is not constant", blocks(Alloc(shared(shape=(n,)), threads()))),
    ("or a stride that is not constant", blocks(Alloc(shared(strides=(n,)), threads()))),
    ("the elements of shared memory s are vectors of 4", blocks(Alloc(shared(lanes=4), threads()))),
    (
        "a block shares 232452 bytes of memory",
        blocks(Alloc(shared(shape=(58112,)), Alloc(shared("t", (1,)), threads()))),
    ),
    ("a barrier outside all blocks", Seq((Barrier(),))),
    ("a barrier is inside a condition on j", blocks(threads(If(j < 4, Barrier())))),
    ("inside a condition on j", blocks(threads(If(j < 4, NOTHING, loop(k, 2, "serial", Barrier()))))),
    ("inside a condition on j", blocks(threads(While(X[0] < j, Barrier())))),
    ("inside a condition on j", blocks(threads(Let(k, j * 2, If(k < 4, Barrier()))))),
    ("a barrier is inside loop k, whose extent depends on j", blocks(threads(loop(k, j + 1, "serial", Barrier())))),
    ("a barrier is inside vector loop k", blocks(threads(loop(k, 4, "vector", Barrier())))),
]


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_well_formed(body):
    verify(kernel(body))


@pytest.mark.parametrize(("message", "body"), REFUSED)
def test_refused(message, body):
    with pytest.raises(InvalidValue, match=re.escape(message)) as caught:
        verify(kernel(body))
    assert caught.value.where == "kernel k"


def test_a_grid_and_a_parallel_loop():
    with pytest.raises(InvalidValue, match="has a parallel loop, k, and loops bound to a grid"):
        verify(kernel(blocks(), Parallel(k, as_expr(2))))


def test_kernels_are_checked_where_they_are_built_and_run():
    b = te.KernelBuilder("built")
    with b.loop("k", 2), b.block("i", 4):
        pass
    with pytest.raises(InvalidValue, match="not one of the outermost"):
        b.finish()
    with pytest.raises(InvalidValue, match="a barrier outside all blocks"):
        run_kernel(kernel(Barrier()), [np.arange(8)], [1])


def test_no_vector_loop_goes_around_a_barrier():
    with pytest.raises(Unsupported, match="vector loop k contains a barrier"):
        lower_vectors(kernel(blocks(threads(loop(k, 4, "vector", Barrier())))))


def test_turns_that_are_jammed_wait_once():
    body = Seq((Store(X, (k,), k), Barrier(), Store(X, (k,), k)))
    made = jam(loop(k, 4, "unroll", body))
    assert [type(part) for part in made.body] == [For, Barrier, For]
