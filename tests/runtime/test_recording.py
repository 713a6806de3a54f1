"""What single threads do in a run, as a profile tells it."""

import os
import time

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.runtime.cpu import recording
from weft.runtime.cpu.pool_code import PIECES_PER_THREAD, has_threads

pytestmark = pytest.mark.skipif(not has_threads(), reason="no native threads here")


def network(rows=512):
    """A product that threads share, a small step that they do not, and a step on the host between them."""
    rng = np.random.default_rng(0)
    x = sym.Variable("x", shape=(rows, 512))
    y = sym.dense(sym.tanh(x, name="t"), units=512, use_bias=False, name="d")
    weight = rng.standard_normal((512, 512)).astype("float32") / 20
    small = sym.det(sym.strided_slice(y, begin=(0, 0), end=(6, 6), name="cut"), name="det")
    data = rng.standard_normal((rows, 512)).astype("float32")
    return sym.Group([y, small]), {"d_weight": weight}, data


@pytest.mark.parametrize("threads", [1, 2])
def test_pieces_are_those_of_the_steps_in_order(threads):
    graph, params, data = network()
    model = weft.compile(graph, params=params, threads=threads)
    start = time.perf_counter()
    found = model.profile(data, rounds=3)
    spent = time.perf_counter() - start
    assert {piece.step for piece in found.pieces} == set(range(len(found.steps)))
    assert {piece.thread for piece in found.pieces} <= set(range(threads))
    ends, last = dict.fromkeys(range(threads), 0.0), 0.0
    for number, step in enumerate(found.steps):
        mine = sorted([piece for piece in found.pieces if piece.step == number], key=lambda piece: piece.began)
        assert len(mine) <= (threads * PIECES_PER_THREAD if step.native else 1)
        for piece in mine:
            assert piece.began >= last - 1e-9  # a step begins when the one before is done
            assert piece.seconds >= 0
            assert piece.began >= ends[piece.thread] - 1e-9  # and a thread does one thing at a time
            ends[piece.thread] = piece.began + piece.seconds
        last = max(ends.values())
    assert 0 < last < spent
    det = next(number for number, step in enumerate(found.steps) if not step.native)
    assert [piece.thread for piece in found.pieces if piece.step == det] == [0]


def test_two_threads_share_a_step():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core alone")
    graph, params, data = network(4096)
    model = weft.compile(graph, params=params, threads=2)
    for _ in range(20):  # where the machine is busy, the second thread may come too late
        found = model.profile(data, rounds=1)
        if {piece.thread for piece in found.pieces} == {0, 1}:
            break
    product = next(number for number, step in enumerate(found.steps) if "d" in step.sources)
    assert {piece.thread for piece in found.pieces if piece.step == product} == {0, 1}
    assert 2 < sum(piece.step == product for piece in found.pieces) <= 2 * PIECES_PER_THREAD
    lanes = [event for event in found.trace()["traceEvents"] if event["pid"] == 1 and event["ph"] == "X"]
    assert {event["tid"] for event in lanes if event["name"] == found.steps[product].name} == {0, 1}


def test_recording_changes_no_result_and_keeps_to_its_memory(monkeypatch):
    graph, params, data = network()
    model = weft.compile(graph, params=params, threads=2)
    before = [*model.run({"x": data})]
    monkeypatch.setattr(recording, "MOST_PIECES", 3)
    assert len([piece for piece in model.profile(data, rounds=2).pieces if piece.step < 2]) <= 3
    for one, two in zip(before, model.run({"x": data})):
        np.testing.assert_array_equal(one, two)
    expected = np.tanh(data.astype("float64")) @ params["d_weight"].T.astype("float64")
    np.testing.assert_allclose(before[0], expected, rtol=1e-4, atol=1e-4)


def test_what_parts_of_a_model_did_follows_one_another():
    x = sym.Variable("x", shape=(8, 8))
    model = weft.compile(sym.det(sym.tanh(x, name="t"), name="d"))
    found = model.profile(np.random.default_rng(0).standard_normal((8, 8)).astype("float32"), rounds=1)
    assert [piece.step for piece in found.pieces] == [0, 1]
    assert found.pieces[1].began >= found.pieces[0].began + found.pieces[0].seconds
