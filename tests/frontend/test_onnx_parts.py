"""Open shapes and values that decide them, against ONNX Runtime: one model object answers all of them."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from oracles import oracle

import weft
from weft.compiler.parts.part import Part
from weft.compiler.parts.schedule import Schedule

BRANCHES = (
    "then_branch = t () => (float[p,q] t1) { t1 = Relu(x) }, else_branch = e () => (float[p,q] e1) { e1 = Neg(x) }"
)
SUMS = """body = b (int64 i, bool ci, float[p,q] st) => (bool co, float[p,q] so, float[q] sc) {
    co = Identity(ci) so = Add(st, x) ax = Constant <value_ints = [0]> () sc = ReduceSum <keepdims = 0> (so, ax) }"""
GROWS = """body = b (int64 i, bool ci, float[p] st) => (bool co, float[p2] so) {
    co = Identity(ci) so = Concat <axis = 0> (st, st) }"""
STEPS = """body = b (float[q] st, float[q] it) => (float[q] so, float[q] sc) { so = Add(st, it) sc = Mul(so, it) }"""

MODELS = {
    "reshape by its own shape": """m (float[n, 4] x) => (float[n, 2, 2] y) {
        s = Shape(x) i = Constant <value_int = 0> () b = Gather(s, i) o = Constant <value_ints = [0]> ()
        u = Unsqueeze(b, o) t = Constant <value_ints = [2, 2]> () z = Concat <axis = 0> (u, t)
        r = Reshape(x, z) y = Relu(r) }""",
    "how many are fed": "m (float[a,b] x, int64[1] k) => (float[a,c] v, int64[a,c] i) { v, i = TopK(x, k) }",
    "a shape that is computed from data": """m (float[a,b] x) => (float[c,d] y) {
        m = ReduceMax <keepdims = 0> (x) i = Cast <to = 7> (m) zero = Sub(i, i) one = Constant <value_int = 1> ()
        first = Add(zero, one) last = Sub(zero, one) o = Constant <value_ints = [0]> ()
        f = Unsqueeze(first, o) l = Unsqueeze(last, o) s = Concat <axis = 0> (f, l) e = Exp(x) y = Reshape(e, s) }""",
    "a branch that data decides": f"""m (float[a,b] x) => (float[a,b] y) {{
        s = ReduceSum <keepdims = 0> (x) z = Constant <value_float = 0.0> () c = Greater(s, z)
        w = If <{BRANCHES}> (c) y = Exp(w) }}""",
    "a branch that a shape decides": f"""m (float[a,b] x) => (float[a,b] y) {{
        s = Shape(x) i = Constant <value_int = 0> () n = Gather(s, i) z = Constant <value_int = 2> ()
        c = Greater(n, z) w = If <{BRANCHES}> (c) y = Exp(w) }}""",
    "a loop": f"""m (float[a,b] x, int64 n) => (float[a,b] y, float[t,b] z) {{
        o = Constant <value_int = 1> () c = Cast <to = 9> (o) y, z = Loop <{SUMS}> (n, c, x) }}""",
    "a state that grows": f"""m (float[a] x, int64 n) => (float[z] y) {{
        o = Constant <value_int = 1> () c = Cast <to = 9> (o) y = Loop <{GROWS}> (n, c, x) }}""",
    "a state that begins with a constant": f"""m (float[a,b] x, int64 n) => (float[a,b] y, float[t,b] z) {{
        o = Constant <value_int = 1> () c = Cast <to = 9> (o) start = Constant <value_floats = [2.5, 1, 3, 4]> ()
        y, z = Loop <{SUMS}> (n, c, start) }}""",
    "a loop that its counter decides": """m (float[a,b] x, int64 n) => (float[p,q] y, float[t] z) {
        y, z = Loop <body = l (int64 i, bool ci, float[p,q] st) => (bool co, float[p2,q] so, float sc) {
            co = Identity(ci) o = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
            from = Unsqueeze(i, o) to = Add(from, one) row = Slice(x, from, to, o) more = Exp(row)
            so = Concat <axis = 0> (st, more) sc = ReduceSum <keepdims = 0> (so) }> (n, , x) }""",
    "quotients of what may be negative": """m (float[a,b] x) => (int64[c] y) {
        s = Shape(x) five = Constant <value_ints = [5]> () two = Constant <value_ints = [2]> ()
        less = Sub(s, five) half = Div(less, two) rest = Mod <fmod = 1> (less, two)
        y = Concat <axis = 0> (half, rest) }""",
    "a scan": f"""m (float[a,b] x, float[b] i) => (float[b] y, float[a,b] z) {{
        y, z = Scan <num_scan_inputs = 1, {STEPS}> (i, x) }}""",
    "a scan from the end": f"""m (float[a,b] x, float[b] i) => (float[b] y, float[b,a] z) {{
        y, z = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
                     scan_output_axes = [1], {STEPS}> (i, x) }}""",
}


def fed(name: str, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Inputs of several shapes, some of them again."""
    x = rng.standard_normal((3, 4)).astype("float32")
    if name == "how many are fed":
        return [{"x": x, "k": np.array([k])} for k in (2, 3, 2)]
    if name == "a loop that its counter decides":
        return [{"x": x, "n": np.array(3)}, {"x": x[:2], "n": np.array(2)}]
    if name in ("a loop", "a state that begins with a constant"):
        return [{"x": x, "n": np.array(3)}, {"x": x[:2], "n": np.array(5)}]
    if name == "a state that grows":
        return [{"x": x[0], "n": np.array(n)} for n in (3, 0, 3)]
    if "scan" in name:
        return [{"x": x, "i": x[0]}, {"x": x[:2], "i": x[1]}]
    return [{"x": x}, {"x": x[:2]}, {"x": -x}, {"x": x}]


@pytest.mark.parametrize("name", MODELS)
def test_one_model_answers_every_shape(name: str, rng: np.random.Generator) -> None:
    opsets = [helper.make_opsetid("", 17)]
    proto: onnx.ModelProto = helper.make_model(parser.parse_graph(MODELS[name]), opset_imports=opsets, ir_version=8)
    peer = oracle("onnxruntime").InferenceSession(proto.SerializeToString())
    model = weft.compile(proto)
    for feed in fed(name, rng):
        for expected, result in zip(peer.run(None, feed), model.run(feed), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_copies_answer_alike_and_one_program_is_only_saved_if_it_is_all(name: str, rng, tmp_path) -> None:
    """A program for one value of an input would ignore the others."""
    proto = helper.make_model(parser.parse_graph(MODELS[name]), opset_imports=[helper.make_opsetid("", 17)])
    model, (feed, *_) = weft.compile(proto), fed(name, rng)
    outputs = model.run(feed)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert all(map(np.array_equal, outputs, other.run(feed)))
    if name in ("reshape by its own shape", "a branch that a shape decides", "quotients of what may be negative"):
        model.save(tmp_path / "m.weft")
        assert all(map(np.array_equal, outputs, weft.compile(tmp_path / "m.weft").run(feed)))
    else:
        with pytest.raises(weft.Error, match="cannot be saved as one program"):
            model.save(tmp_path / "m.weft")


@pytest.mark.parametrize("name", MODELS)
def test_a_copy_outlives_the_model(name: str, rng: np.random.Generator) -> None:
    proto = helper.make_model(parser.parse_graph(MODELS[name]), opset_imports=[helper.make_opsetid("", 17)])
    model, (feed, *_) = weft.compile(proto), fed(name, rng)
    outputs = model.run(feed)
    other = copy.copy(model)
    model.close()
    assert all(map(np.array_equal, outputs, other.run(feed)))


def test_turns_of_a_loop_share_code(rng: np.random.Generator) -> None:
    """What the counter decides is no part of the key of what follows."""
    text = """m (float[a,b] x, int64 n) => (float[t,q] z) {
        y, z = Loop <body = l (int64 i, bool ci, float[q] st) => (bool co, float[q] so, float[q] sc) {
            co = Identity(ci) o = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
            from = Unsqueeze(i, o) to = Add(from, one) row = Slice(x, from, to, o) flat = Squeeze(row, o)
            so = Add(st, flat) sc = Exp(so) }> (n, , start) }"""
    graph = parser.parse_graph(text)
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones(4, "float32"), "start"))
    model = weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x = rng.standard_normal((30, 4)).astype("float32")
    (z,) = model.run({"x": x, "n": np.array(30)})
    np.testing.assert_allclose(z, np.exp(1 + np.cumsum(x, 0)), rtol=1e-4)
    assert sum(part.compilations for part in every_part(model._schedule)) <= 4


def test_turns_of_a_loop_with_a_branch_share_code(rng: np.random.Generator) -> None:
    """What the states of a turn decide is no part of the key of code, or each turn would make its own."""
    text = """m (float[a,b] x, int64 n) => (float[a,b] y, float[t,a,b] z) {
        y, z = Loop <body = l (int64 i, bool ci, float[p,q] st) => (bool co, float[p,q] so, float[p,q] sc) {
            co = Identity(ci) total = ReduceSum <keepdims = 0> (st) zero = Constant <value_float = 0.0> ()
            c = Greater(total, zero)
            so = If <then_branch = t () => (float[p,q] t1) { s = Sin(total) t1 = Sub(x, s) },
                     else_branch = e () => (float[p,q] e1) { one = Constant <value_ints = [1, -1]> ()
                         line = Reshape(st, one) two = Shape(x) square = Reshape(line, two) e1 = Add(square, x) }> (c)
            sc = Exp(so) }> (n, , x) }"""
    proto = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    peer, model = oracle("onnxruntime").InferenceSession(proto.SerializeToString()), weft.compile(proto)
    feed = {"x": (rng.standard_normal((3, 4)) / 4).astype("float32"), "n": np.array(40)}
    for expected, result in zip(peer.run(None, feed), model.run(feed), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert sum(part.compilations for part in every_part(model._schedule)) <= 6


def test_a_loop_that_never_ends_is_refused() -> None:
    text = f"m (float[a] x) => (float[z] y) {{ y = Loop <{GROWS}> ( , , x) }}"
    proto = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(weft.Error, match="never ends"):
        weft.compile(proto)


def test_turns_and_states_that_begin_as_constants_change(rng: np.random.Generator) -> None:
    """The number of turns, the condition and the first state are known; the body reads them anew in each turn."""
    text = """m (float[4,2] x) => (float s, float[4,2] z) {
        n = Constant <value_int = 4> () f = Constant <value_float = 0.5> ()
        s, z = Loop <body = b (int64 i, bool ci, float st) => (bool co, float so, float[2] item) {
            co = Identity(ci) row = Gather(x, i) item = Mul(row, st) so = Add(st, st) }> (n, , f) }"""
    x = rng.standard_normal((4, 2)).astype(np.float32)
    state, items = weft.compile(helper.make_model(parser.parse_graph(text))).run({"x": x})
    assert state == 8
    np.testing.assert_array_equal(items, x * np.float32([[0.5], [1], [2], [4]]))


def test_a_branch_for_other_shapes_is_an_error_only_where_it_is_taken(rng: np.random.Generator) -> None:
    """As in models for two sample rates, of which each branch takes inputs of its own length."""
    text = """m (float[a,b] x, int64 rate, float[4,3] u, float[6,3] v) => (float[a,3] y) {
        high = Constant <value_int = 16> () c = Equal(rate, high)
        y = If <then_branch = t () => (float[a,3] t1) { t0 = MatMul(x, u) t1 = Relu(t0) },
                else_branch = e () => (float[a,3] e1) { e0 = MatMul(x, v) e1 = Neg(e0) }> (c) }"""
    proto = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    peer = oracle("onnxruntime").InferenceSession(proto.SerializeToString())
    fixed = {name: rng.standard_normal(shape).astype("float32") for name, shape in {"u": (4, 3), "v": (6, 3)}.items()}
    for length, taken, other in ((4, 16, 8), (6, 8, 16)):
        feed = {"x": rng.standard_normal((2, length)).astype("float32"), "rate": np.array(taken), **fixed}
        model = weft.compile(proto, shape={name: array.shape for name, array in feed.items()})
        np.testing.assert_allclose(model.run(feed)[0], peer.run(None, feed)[0], rtol=1e-5, atol=1e-6)
        with pytest.raises(weft.Error):
            model.run({**feed, "rate": np.array(other)})


@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_as_soon_as_nobody_has_it(name: str, rng: np.random.Generator) -> None:
    """Without a collection of rubbish, which may come at any time in any thread: its code is unloaded then."""
    proto = helper.make_model(parser.parse_graph(MODELS[name]), opset_imports=[helper.make_opsetid("", 17)])
    model = weft.compile(proto)
    gc.collect()
    gc.disable()
    try:
        model.run(fed(name, rng)[0])
        executors = [weakref.ref(part.last) for part in every_part(model._schedule)]
        assert executors
        del model
        assert not any(executor() for executor in executors)
    finally:
        gc.enable()


def every_part(schedule: Schedule) -> list[Part]:
    bodies = [body for steps in schedule._steps for step in steps for body in step._bodies.values()]
    return [*schedule.compiled(), *(part for body in bodies for part in every_part(body))]
