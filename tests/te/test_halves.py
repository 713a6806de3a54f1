"""Vector loops of two turns around vectors: what the kernel computes is what numpy does, whether the halves of a vector
lie side by side in memory or apart."""

import numpy as np
import pytest

from weft import te
from weft.base.errors import Unsupported
from weft.te.build import KernelBuilder
from weft.te.expr import Load
from weft.te.interpret import run_kernel
from weft.te.loops import Store
from weft.te.simplify_loops import statements
from weft.te.transform import legalise, lower_vectors

LANES = 4
rng = np.random.default_rng(17)


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def stores(kernel):
    return [node for node in statements(kernel.body) if isinstance(node, Store) and node.buffer.scope == "arg"]


@pytest.mark.parametrize("apart", [LANES, 24])
def test_sums_in_registers_with_what_follows(apart):
    """Rows times panels of weights, halves of which lie side by side or apart, then a bias, and as many others."""
    rows, depth = 3, 5
    x, w, bias, other = normal(rows, depth), normal(2, depth, LANES), normal(2 * LANES), normal(rows, 2, LANES)
    b = KernelBuilder("sums")
    left, right = b.arg("x", "float32", x.shape), b.arg("w", "float32", w.shape)
    added, more = b.arg("bias", "float32", bias.shape), b.arg("more", "float32", (other.size,))
    out = b.arg("out", "float32", (rows * 64,))
    with b.vector("half", 2) as half, b.vector("lane", LANES) as lane, b.loop("row", rows) as row:
        acc = b.registers("acc", "float32", ())
        b.store(acc, (), 0.0)
        with b.loop("k", depth) as k:
            factor = b.let("factor", left[row, k])
            b.store(acc, (), acc[()] + factor * right[half, k, lane])
        shift = b.let("shift", added[half * LANES + lane])
        sum_ = b.let("sum", acc[()] + shift)
        b.store(out, row * 64 + half * apart + lane, sum_ * more[row * 2 * LANES + half * LANES + lane])
    kernel = lower_vectors(b.finish())
    assert {store.value.lanes for store in stores(kernel)} == {2 * LANES if apart == LANES else LANES}
    made = np.zeros((rows, 64), "f")
    run_kernel(legalise(b.finish()), [x, w, bias, other.reshape(-1), made.reshape(-1)])
    expected = (np.einsum("rk,hkl->rhl", x, w) + bias.reshape(2, LANES)) * other
    for half in range(2):
        found = made[:, half * apart : half * apart + LANES]
        np.testing.assert_allclose(found, expected[:, half], rtol=1e-5, atol=1e-6)
    assert np.count_nonzero(made) == expected.size


def test_results_in_scratch_and_masks():
    """Each lane's own memory, a number that differs between halves, and elements that are not there."""
    x, scale = normal(2, 3, LANES), normal(2)
    b = KernelBuilder("scratch")
    source, factors = b.arg("x", "float32", x.shape), b.arg("scale", "float32", (2,))
    out = b.arg("out", "float32", (2, 3, 8))
    with b.vector("half", 2) as half, b.vector("lane", LANES) as lane:
        kept = b.alloc("kept", "float32", (3,))
        factor = b.let("factor", factors[half])
        with b.loop("i", 3) as i:
            b.store(kept, i, source[half, i, lane] * factor)
        with b.loop("j", 3) as j:
            there = Load(source, (half, 2 - j, lane), lane + half * 2 < 3)
            b.store(out, (half, j, lane), te.exp(kept[2 - j]) + there, lane < 3)
    made = np.full((2, 3, 8), 7, "f")
    run_kernel(legalise(b.finish()), [x, scale, made])
    lanes = np.arange(LANES)
    for half in range(2):
        there = np.where(lanes + half * 2 < 3, x[half, ::-1], 0)
        expected = np.exp(x[half, ::-1] * scale[half]) + there
        np.testing.assert_allclose(made[half, :, :3], expected[:, :3], rtol=1e-5)
    assert (made[:, :, 3:] == 7).all()


def test_a_condition_that_differs_between_halves_is_refused():
    b = KernelBuilder("refused")
    out = b.arg("out", "float32", (2, LANES))
    with b.vector("half", 2) as half, b.when(half < 1), b.vector("lane", LANES) as lane:
        b.store(out, (half, lane), te.cast(lane, "float32"))
    with pytest.raises(Unsupported, match="what If does differs between its turns"):
        lower_vectors(b.finish())
