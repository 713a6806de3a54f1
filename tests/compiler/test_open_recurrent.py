"""Recurrent layers whose steps and sequences are open: one program serves all steps. PyTorch has the answers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ops.control_flow import scan
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
