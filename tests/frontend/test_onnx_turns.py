"""Loops whose body is one program, of which turns behind the first look nothing up: against ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from oracles import oracle

import weft
from weft.compiler.parts import schedule, turns

BODIES = {
    "two states that change places": """(int64 i, bool ci, float[a,b] p, float[a,b] q)
        => (bool co, float[a,b] po, float[a,b] qo, float[a,b] item) {
        co = Identity(ci) po = Identity(q) s = Sin(p) qo = Add(s, x) item = Mul(po, qo) }""",
    "the number of the turn": """(int64 i, bool ci, float[a,b] p, float[a,b] q)
        => (bool co, float[a,b] po, float[a,b] qo, float[b] item) {
        co = Identity(ci) number = Cast <to = 1> (i) w = Sin(number) po = Mul(x, w) qo = Identity(q)
        zero = Constant <value_ints = [0]> () item = ReduceMax <keepdims = 0> (po, zero) }""",
    "a condition that ends it": """(int64 i, bool ci, float[a,b] p, float[a,b] q)
        => (bool co, float[a,b] po, float[a,b] qo, float item) {
        w = Constant <value_float = 1.125> () po = Mul(p, w) qo = Add(q, x) item = ReduceMax <keepdims = 0> (po)
        most = Constant <value_float = 900.0> () co = Less(item, most) }""",
}


def model_of(body: str) -> onnx.ModelProto:
    items = "float[t]" if "float item" in body else "float[t,b]" if "float[b] item" in body else "float[t,a,b]"
    text = f"""m (float[a,b] x, int64 n) => (float[a,b] p, float[a,b] q, {items} all) {{
        start = Abs(x) p, q, all = Loop <body = l {body}> (n, , start, x) }}"""
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(parser.parse_graph(text), opset_imports=opsets, ir_version=8)


@pytest.fixture
def quick(monkeypatch):
    """Whether loops ran quickly: how many of their turns did."""
    counted = []
    run = turns.Turns.run

    def counting(self, most):
        made = run(self, most)
        counted.append(made.turns)
        return made

    monkeypatch.setattr(turns.Turns, "run", counting)
    return counted


@pytest.mark.parametrize("name", BODIES)
def test_all_turns_are_those_of_onnx_runtime(name, rng, quick):
    """As many as fill the memory of some items, one less and one more, few, and none."""
    proto = model_of(BODIES[name])
    peer, model = oracle("onnxruntime").InferenceSession(proto.SerializeToString()), weft.compile(proto)
    for shape, count in (((3, 4), 1 + turns.BLOCK), ((3, 4), turns.BLOCK), ((3, 4), turns.BLOCK + 2), ((5, 2), 3)):
        feed = {"x": rng.standard_normal(shape).astype("f"), "n": np.array(count)}
        for expected, result in zip(peer.run(None, feed), model.run(feed), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert len(quick) == 4


def test_results_are_not_written_again(rng):
    """Those of one run are the caller's, though states go to and fro."""
    model = weft.compile(model_of(BODIES["two states that change places"]))
    feed = {"x": rng.standard_normal((3, 4)).astype("f"), "n": np.array(9)}
    first = model.run(feed)
    kept = [array.copy() for array in first]
    model.run({**feed, "x": feed["x"] + 1})
    assert all(map(np.array_equal, first, kept))


def test_states_that_grow_take_the_longer_way(rng, quick):
    body = """(int64 i, bool ci, float[p] st) => (bool co, float[p2] so, float item) {
        co = Identity(ci) so = Concat <axis = 0> (st, x) item = ReduceSum <keepdims = 0> (so) }"""
    text = f"m (float[a] x, int64 n) => (float[b] y, float[t] z) {{ y, z = Loop <body = l {body}> (n, , x) }}"
    proto = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    feed = {"x": rng.standard_normal(3).astype("f"), "n": np.array(6)}
    expected = oracle("onnxruntime").InferenceSession(proto.SerializeToString()).run(None, feed)
    for want, got in zip(expected, weft.compile(proto).run(feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert not quick


def test_a_loop_without_end(monkeypatch, rng):
    monkeypatch.setattr(schedule, "MOST_TURNS", 20)
    model = weft.compile(model_of(BODIES["two states that change places"]))
    with pytest.raises(weft.Error, match="did not end"):
        model.run({"x": rng.standard_normal((2, 2)).astype("f"), "n": np.array(2**40)})
