"""Control flow and recurrent layers of MXNet, where the real one runs no CPU code, or where files
are damaged. What it does run is in the probes."""

import copy
import json

import numpy as np
import pytest
from mxnet_files import graph, node
from oracles import oracle
from test_mxnet_probes import PROBES

import weft
from weft.base.errors import Error, FormatError
from weft.core.interpret import evaluate
from weft.core.ir import topo_order
from weft.frontend import from_mxnet

CONTROL = [name for name in PROBES if name.startswith(("foreach", "while", "cond"))]


def _imported(name, change=lambda tree: None, **shapes):
    probe = PROBES[name]
    tree = json.loads(str(probe["json"]))
    change(tree)
    arrays = {key[3:]: value for key, value in probe.items() if key.startswith("in/")}
    params = {key: value for key, value in arrays.items() if key not in "xyz"}
    inputs = {key: value for key, value in arrays.items() if key in "xyz"}
    given = {**{key: value.shape for key, value in inputs.items()}, **shapes}
    return *from_mxnet(tree, params, shape=given), inputs


@pytest.mark.parametrize("name", CONTROL)
def test_a_loop_is_one_operator(name):
    symbol, _, _ = _imported(name)
    ops = {node.op_name for node in topo_order(symbol.outputs)}
    assert ops & {"scan", "while_loop", "cond"}


@pytest.mark.parametrize("name", CONTROL)
def test_saved_graphs_give_the_same(name):
    symbol, params, inputs = _imported(name)
    wanted = evaluate(symbol, {**params, **inputs})
    typed = weft.graph.create(symbol)
    for again in (weft.graph.load_json(typed.json()), weft.graph.parse(typed.ir(full=True))):
        for a, b in zip(evaluate(again, {**params, **inputs}), wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_long_loop_stays_small(rng):
    """Thousands of steps are as many nodes as six."""
    steps = 3000
    symbol, params, _ = _imported("foreach_cell", x=(steps, 2, 4))
    assert len(topo_order(symbol.outputs)) < 20
    x = rng.standard_normal((steps, 2, 4)).astype("float32")
    state = rng.standard_normal((2, 3)).astype("float32")
    model = weft.compile((symbol, params))
    assert model.report().host_steps == ("scan",)
    outputs, last = model.run({"x": x, "y": state})
    weight = params["p_weight"].numpy()
    for item, given in zip(x, outputs, strict=True):
        state = np.tanh(item @ weight.T + state)
        np.testing.assert_allclose(given, 2 * state, atol=1e-5)
    np.testing.assert_allclose(last, state, atol=1e-5)


def test_a_condition_that_is_known_chooses_at_once():
    symbol, params, inputs = _imported("cond_then")
    probe = PROBES["cond_then"]
    known = {**{k: v.numpy() for k, v in params.items()}, "x": inputs["x"]}
    shape = {"y": inputs["y"].shape}
    symbol, params = from_mxnet(json.loads(str(probe["json"])), known, shape=shape)
    assert "cond" not in {node.op_name for node in topo_order(symbol.outputs)}
    (made,) = evaluate(symbol, {**params, "y": inputs["y"]})
    np.testing.assert_allclose(made, probe["out/0"], rtol=1e-6)


def _loop(tree):
    return next(item for item in tree["nodes"] if "subgraphs" in item)


DAMAGES = [
    lambda loop: loop.update(subgraphs=[]),
    lambda loop: loop.update(subgraphs=loop["subgraphs"] * 3),
    lambda loop: loop.update(subgraphs=["graph"]),
    lambda loop: loop["subgraphs"][0].update(heads=[]),
    lambda loop: loop["subgraphs"][-1].update(heads=loop["subgraphs"][-1]["heads"] * 2),
    lambda loop: loop["subgraphs"][-1].update(arg_nodes=[]),
    lambda loop: loop["attrs"].update(num_outputs="7"),
    lambda loop: loop["inputs"].pop(),
    lambda loop: [loop["attrs"].update({k: "[9]"}) for k in loop["attrs"] if k.endswith("locs")],
    lambda loop: [loop["attrs"].update({k: "[-1]"}) for k in loop["attrs"] if k.endswith("locs")],
]


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
@pytest.mark.parametrize("name", ["foreach_cell", "while_full", "cond_else"])
def test_damaged_loops_are_refused(name, damage):
    with pytest.raises(Error):
        _imported(name, lambda tree: DAMAGES[damage](_loop(tree)))


def test_subgraphs_may_not_nest_for_ever():
    inner = graph([node("null", "y")], [[0, 0]])
    for _ in range(40):
        loop = node("_foreach", "loop", [(0, 0)])
        loop["subgraphs"] = [copy.deepcopy(inner)]
        inner = graph([node("null", "x"), loop], [[1, 0]])
    with pytest.raises(FormatError):
        from_mxnet(inner)


# Recurrent layers that MXNet runs on GPUs only: PyTorch's are the same.


def _rnn(rng, torch, layers, both, mode="lstm", projected=None, size=4, features=3):
    """A layer of PyTorch, and its weights in the order of MXNet's vector."""
    make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[mode]
    kwargs = {"proj_size": projected} if projected else {}
    layer = make(features, size, layers, bidirectional=both, **kwargs)
    ways = ("", "_reverse")[: 1 + both]
    order = [f"l{i}{way}" for i in range(layers) for way in ways]
    kinds = ["weight_ih", "weight_hh", *(["weight_hr"] if projected else [])]
    names = [f"{kind}_{place}" for place in order for kind in kinds]
    names += [f"{kind}_{place}" for place in order for kind in ("bias_ih", "bias_hh")]
    with torch.no_grad():
        for name in names:
            shape = getattr(layer, name).shape
            value = torch.from_numpy(rng.uniform(-0.7, 0.7, shape).astype("float32"))
            getattr(layer, name).copy_(value)
    parameters = np.concatenate([getattr(layer, n).detach().numpy().ravel() for n in names])
    return layer, parameters


def _run_mxnet(arrays, **attrs):
    """The outputs of an RNN node, by reference and by machine code, which agree."""
    names = list(arrays)
    nodes = [node("null", name) for name in names]
    made = {key: str(value) for key, value in attrs.items()}
    nodes.append(node("RNN", "rnn", [(i, 0) for i in range(len(names))], state_outputs="1", **made))
    count = 3 if attrs["mode"] == "lstm" else 2
    tree = graph(nodes, [[len(names), i] for i in range(count)])
    inputs = {name: array for name, array in arrays.items() if name != "p_parameters"}
    symbol, params = from_mxnet(
        tree, {"p_parameters": arrays["p_parameters"]}, shape={name: array.shape for name, array in inputs.items()}
    )
    by_reference = evaluate(symbol, {**params, **inputs})
    compiled = weft.compile((symbol, params)).run(inputs)
    for a, b in zip(compiled, by_reference, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    return by_reference


@pytest.mark.parametrize("projected", [None, 2])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
def test_projections_and_lengths(rng, layers, both, projected):
    torch = oracle("torch")
    steps, batch, size = 5, 3, 4
    layer, parameters = _rnn(rng, torch, layers, both, projected=projected)
    many = layers * (1 + both)
    arrays = {
        "x": rng.standard_normal((steps, batch, 3)).astype("float32"),
        "p_parameters": parameters,
        "y": rng.standard_normal((many, batch, projected or size)).astype("float32"),
        "z": rng.standard_normal((many, batch, size)).astype("float32"),
    }
    lengths = np.array([5, 2, 3], "float32")
    attrs = {"mode": "lstm", "state_size": size, "num_layers": layers, "bidirectional": int(both)}
    attrs |= {"projection_size": projected} if projected else {}
    x, h, c = (torch.from_numpy(arrays[name]) for name in "xyz")
    wanted, (h_last, c_last) = layer(x, (h, c))
    made = _run_mxnet(arrays, **attrs)
    for a, b in zip(made, (wanted, h_last, c_last), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-5)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    wanted, (h_last, c_last) = layer(packed, (h, c))
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, total_length=steps)
    made = _run_mxnet({**arrays, "w": lengths}, **attrs, use_sequence_length=1)
    for a, b in zip(made, (wanted, h_last, c_last), strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-5)


def test_a_projection_may_be_as_large_as_the_cells(rng):
    """With the identity it is as if there were none."""
    torch = oracle("torch")
    layer, parameters = _rnn(rng, torch, 1, False)
    x = rng.standard_normal((4, 2, 3)).astype("float32")
    state, cell = (rng.standard_normal((1, 2, 4)).astype("float32") for _ in range(2))
    split = parameters.size - 2 * 16
    identity = np.eye(4, dtype="float32").ravel()
    turned = np.concatenate([parameters[:split], identity, parameters[split:]])
    arrays = {"x": x, "p_parameters": turned, "y": state, "z": cell}
    made = _run_mxnet(arrays, mode="lstm", state_size=4, num_layers=1, projection_size=4)
    wanted, _ = layer(torch.from_numpy(x), (torch.from_numpy(state), torch.from_numpy(cell)))
    np.testing.assert_allclose(made[0], wanted.detach().numpy(), atol=1e-5)


def test_lengths_of_gru(rng):
    torch = oracle("torch")
    layer, parameters = _rnn(rng, torch, 1, True, mode="gru")
    x = rng.standard_normal((4, 2, 3)).astype("float32")
    state = rng.standard_normal((2, 2, 4)).astype("float32")
    lengths = np.array([1, 4], "float32")
    arrays = {"x": x, "p_parameters": parameters, "y": state, "w": lengths}
    made = _run_mxnet(arrays, mode="gru", state_size=4, num_layers=1, bidirectional=1, use_sequence_length=1)
    pack = torch.nn.utils.rnn.pack_padded_sequence
    packed = pack(torch.from_numpy(x), lengths, enforce_sorted=False)
    wanted, last = layer(packed, torch.from_numpy(state))
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(wanted, total_length=4)
    np.testing.assert_allclose(made[0], wanted.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(made[1], last.detach().numpy(), atol=1e-5)


def test_cells_are_clipped(rng):
    torch = oracle("torch")
    layer, parameters = _rnn(rng, torch, 1, False)
    x = rng.standard_normal((4, 2, 3)).astype("float32")
    state, cell = (rng.standard_normal((1, 2, 4)).astype("float32") for _ in range(2))
    arrays = {"x": x, "p_parameters": parameters, "y": state, "z": cell}
    low, high = -0.2, 0.3
    clip = {"lstm_state_clip_min": low, "lstm_state_clip_max": high}
    made = _run_mxnet(arrays, mode="lstm", state_size=4, num_layers=1, **clip)
    h, c = torch.from_numpy(state), torch.from_numpy(cell)
    for step, item in enumerate(torch.from_numpy(x)):
        _, (_, c) = layer(item[None], (h, c))
        gates = item @ layer.weight_ih_l0.T + layer.bias_ih_l0
        gates = gates + h[0] @ layer.weight_hh_l0.T + layer.bias_hh_l0
        c = c.clamp(low, high)
        h = torch.sigmoid(gates[:, 12:])[None] * torch.tanh(c)
        np.testing.assert_allclose(made[0][step], h[0].detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(made[2], c.detach().numpy(), atol=1e-5)


def test_many_steps_are_one_operator(rng):
    torch = oracle("torch")
    layer, parameters = _rnn(rng, torch, 1, False, mode="gru")
    x = rng.standard_normal((6000, 1, 3)).astype("float32")
    arrays = {"x": x, "p_parameters": parameters, "y": np.zeros((1, 1, 4), "float32")}
    made = _run_mxnet(arrays, mode="gru", state_size=4, num_layers=1)
    wanted, _ = layer(torch.from_numpy(x))
    np.testing.assert_allclose(made[0], wanted.detach().numpy(), atol=1e-4)
