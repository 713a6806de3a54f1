"""Recurrent layers whose steps and sequences are open: one program serves all steps. PyTorch has the answers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.compiler import control_flow
from weft.compiler.open import part
from weft.ops.control_flow import cond, scan, while_loop
from weft.symbol import Variable

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
nn = torch.nn

INPUTS, CELLS = 8, 20


class Layers(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = getattr(nn, kind)(INPUTS, CELLS, **options)
        self.out = nn.Linear(CELLS * (1 + self.layers.bidirectional), 5)

    def forward(self, x):
        y, state = self.layers(x)
        return self.out(torch.relu(y)), (state[0] if isinstance(state, tuple) else state)


FORMS = {
    "lstm": ("LSTM", {}),
    "gru": ("GRU", {}),
    "rnn": ("RNN", {"nonlinearity": "relu"}),
    "both ways": ("LSTM", {"bidirectional": True}),
    "two layers": ("GRU", {"num_layers": 2}),
    "batch first": ("LSTM", {"batch_first": True}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "sequences"),
    [("gru", None), ("lstm", 3)]
    + [pytest.param(form, count, marks=pytest.mark.slow) for form, count in zip(FORMS, (None, 2, 2, 3, 4, None))],
)
def test_any_number_of_steps(form, sequences, tmp_path):
    torch.manual_seed(7)
    kind, options = FORMS[form]
    network, first = Layers(kind, **options).eval(), options.get("batch_first", False)
    shape = lambda steps, batch: (batch, steps, INPUTS) if first else (steps, batch, INPUTS)
    axes = {1 if first else 0: "steps", **({0 if first else 1: "batch"} if sequences is None else {})}
    path, example = tmp_path / "model.onnx", torch.randn(*shape(6, sequences or 2))
    torch.onnx.export(network, (example,), str(path), input_names=["x"], dynamic_axes={"x": axes}, dynamo=False)
    model = weft.compile(path)
    rng = np.random.default_rng(8)
    for steps, batch in ((5, 2), (1, 4), (40, 1), (7, 6), (3, 9), (11, 12)):
        x = rng.standard_normal(shape(steps, sequences or batch)).astype("float32")
        for got, want in zip(model.run({"x": x}), network(torch.tensor(x)), strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert model.compilations == 1


def test_sequences_of_lengths_of_their_own():
    node = onnx.helper.make_node("GRU", ["x", "w", "r", "b", "lengths"], ["y", "last"], hidden_size=CELLS)
    rng = np.random.default_rng(9)
    shapes = {"w": (1, 3 * CELLS, INPUTS), "r": (1, 3 * CELLS, CELLS), "b": (1, 6 * CELLS)}
    weights = [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype("f") / 3, name) for name, shape in shapes.items()
    ]
    inputs = [
        onnx.helper.make_tensor_value_info("x", 1, ("steps", "batch", INPUTS)),
        onnx.helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, ("batch",)),
    ]
    results = [onnx.helper.make_tensor_value_info(name, 1, None) for name in ("y", "last")]
    graph = onnx.helper.make_graph([node], "gru", inputs, results, weights)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    model, closed = (weft.compile(made, specialise=when) for when in ("never", "always"))
    for steps, batch in ((5, 2), (1, 3), (9, 1)):
        x = rng.standard_normal((steps, batch, INPUTS)).astype("f")
        lengths = rng.integers(1, steps + 1, batch).astype("int32")
        whole, last = model.run({"x": x, "lengths": lengths})
        for number, length in enumerate(lengths):
            alone, end = closed.run({"x": x[:length, number : number + 1], "lengths": np.array([length], "int32")})
            np.testing.assert_allclose(whole[:length, :, number], alone[:, :, 0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(last[:, number], end[:, 0], rtol=1e-4, atol=1e-5)
            assert not whole[length:, :, number].any()
    assert model.compilations == 1


def test_scans_over_any_number_of_turns():
    """y[t] = x[t] scale + y[t - 1], and backwards: the body is compiled once."""
    for reverse in (False, True):
        (sums, last) = scan(
            lambda x, state, fixed: ([x[0] * fixed[0] + state[0]], [x[0] * fixed[0] + state[0]]),
            [Variable("x")],
            [Variable("start")],
            [Variable("scale")],
            reverse=reverse,
        )
        symbol = weft.symbol.Group([weft.symbol.relu(sums), last])
        model = weft.compile(symbol, shape={"x": ("turns", 3), "start": (3,), "scale": (3,)})
        rng = np.random.default_rng(10)
        for turns in (4, 1, 30):
            x, start, scale = (rng.standard_normal(shape).astype("f") for shape in ((turns, 3), 3, 3))
            want = (x * scale)[:: -1 if reverse else 1].cumsum(0)[:: -1 if reverse else 1] + start
            got, end = model.run({"x": x, "start": start, "scale": scale})
            np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(end, want[0 if reverse else -1], rtol=1e-4, atol=1e-4)
        assert model.compilations == 1
        assert model.report().host_steps == ("scan",)


@pytest.fixture
def bodies(monkeypatch):
    """The programs of subgraphs that are made."""
    made, plain = [], control_flow.assemble
    monkeypatch.setattr(control_flow, "assemble", lambda *args: made.append(plain(*args)) or made[-1])
    return made


def test_bodies_serve_every_size(bodies):
    """A scan in whose body a loop doubles rows until they sum to more than a number, and a branch turns signs."""
    rng = np.random.default_rng(12)
    weight = rng.standard_normal((24, 24)).astype("f") / 5

    def is_small(states, captures):
        return weft.symbol.broadcast_less(weft.symbol.sum(weft.symbol.abs(states[0])), captures[0])

    def body(items, states, captures):
        rows = items[0] + weft.symbol.dense(states[0], captures[0], units=24, use_bias=False)
        grown = while_loop(is_small, lambda s, c: ([], [s[0] * 2]), [rows], [captures[1]], max_iterations=30)
        positive = weft.symbol.broadcast_greater(weft.symbol.sum(grown), captures[1] * 0)
        turned = cond(positive, lambda c: [-c[0]], lambda c: [c[0] * 0.5], [grown])
        return [weft.symbol.relu(turned)], [weft.symbol.tanh(turned)]

    outs, last = scan(body, [Variable("x")], [Variable("s")], [Variable("w"), Variable("least")])
    shapes = {"x": ("turns", "rows", 24), "s": ("rows", 24), "least": ()}
    model = weft.compile((weft.symbol.Group([outs * 2, last]), {"w": weight}), shape=shapes)
    counts = []
    for turns, rows in ((3, 4), (2, 1), (5, 9), (9, 40), (3, 4)):
        x, state = (rng.standard_normal(shape).astype("f") for shape in ((turns, rows, 24), (rows, 24)))
        least, want, now = np.float32(rows * 100), [], state.astype("d")
        for item in x:
            grown = item + now @ weight.T
            while np.abs(grown).sum() < least:
                grown = grown * 2
            turned = -grown if grown.sum() > 0 else grown * 0.5
            want.append(np.maximum(turned, 0) * 2)
            now = np.tanh(turned)
        got, end = model.run({"x": x, "s": state, "least": least})
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(end, now, rtol=1e-3, atol=1e-3)
        counts.append(len(bodies))
    assert model.compilations == 1
    assert counts[0] == counts[-1] > 0


NODES = {
    "scan": """agraph (float[batch, n, 3] x, float[n, 3] start) => (float[batch, n, 3] sums, float[n, 3] ends) {
        ends, sums = Scan <num_scan_inputs = 1, body = step (float[n, 3] state, float[n, 3] item)
                                                 => (float[n, 3] next, float[n, 3] out) {
            next = Add(state, item)
            out = Tanh(next)
        }> (start, x) }""",
    "loop": """agraph (float[n, 3] start) => (float[n, 3] last, float[turns, n, 3] all) {
        turns = Constant <value = int64 {4}> ()
        go = Constant <value = bool {1}> ()
        last, all = Loop <body = turn (int64 i, bool on, float[n, 3] kept)
                                 => (bool still, float[n, 3] grown, float[n, 3] seen) {
            still = Identity(on)
            half = Constant <value_float = 0.5> ()
            scaled = Mul(kept, half)
            seen = Exp(scaled)
            grown = Add(scaled, start)
        }> (turns, go, start) }""",
    "if": """agraph (float[n, 3] start, bool up) => (float[n, 3] chosen) {
        sines = Sin(start)
        chosen = If <then_branch = yes () => (float[n, 3] a) { a = Exp(sines) },
                     else_branch = no () => (float[n, 3] b) { b = Neg(sines) }> (up) }""",
}


@pytest.mark.parametrize("name", NODES)
def test_loops_and_branches_of_onnx(name, monkeypatch):
    """Code is made in the first run, and once more for the other branch."""
    runtime = pytest.importorskip("onnxruntime")
    made, plain = [], part.assemble
    monkeypatch.setattr(part, "assemble", lambda *args: made.append(args) or plain(*args))
    file = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> ' + NODES[name])
    session = runtime.InferenceSession(file.SerializeToString(), providers=["CPUExecutionProvider"])
    model, rng, counts = weft.compile(file), np.random.default_rng(13), []
    for n, up in ((4, True), (1, True), (30, True), (7, False), (9, False)):
        values = {"x": rng.standard_normal((5, n, 3)), "start": rng.standard_normal((n, 3)), "up": np.array(up)}
        given = {i.name: values[i.name].astype("bool" if i.name == "up" else "f") for i in session.get_inputs()}
        for got, want in zip(model.run(given), session.run(None, given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        counts.append(len(made))
    assert counts == ([1, 1, 1, 2, 2] if name == "if" else [1] * 5)
