"""Recurrent layers of ONNX against ONNX Runtime: all options, drawn at random."""

import numpy as np
import pytest
from onnx import helper
from onnx_runs import model_of, onnxruntime_run, weft_runs

import weft
from weft.base.errors import FormatError, Unsupported
from weft.core.ir import topo_order
from weft.frontend import from_onnx

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
WITH_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
WITH_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}
NAMES = [*sorted(WITH_ALPHA), "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"]


def layer(rng, kind, direction="forward", steps=5, batch=3, features=4, size=6, dtype=np.float32, without=(), **attrs):
    """A node of one layer, and its inputs by name."""
    count, gates = 2 if direction == "bidirectional" else 1, GATES[kind]
    shapes = {
        "x": (steps, batch, features),
        "w": (count, gates * size, features),
        "r": (count, gates * size, size),
        "b": (count, 2 * gates * size),
        "lengths": (batch,),
        "h": (count, batch, size),
        "c": (count, batch, size),
        "p": (count, 3 * size),
    }
    names = [name for name in shapes if kind == "LSTM" or name not in "cp"]
    names = ["" if name in without else name for name in names]
    inputs = {name: (rng.standard_normal(shapes[name]) * 0.6).astype(dtype) for name in names if name}
    if "lengths" in inputs:
        inputs["lengths"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    outputs = ["y", "last", "cell"][: 3 if kind == "LSTM" else 2]
    while not names[-1]:
        names.pop()
    return helper.make_node(kind, names, outputs, hidden_size=size, direction=direction, **attrs), inputs


def check(node, inputs, opset=14, constants=("w", "r", "b", "p"), wanted=None, tolerance=2e-5):
    known = {name: inputs[name] for name in constants if name in inputs}
    given = {name: x for name, x in inputs.items() if name not in known}
    model = model_of([node], given, list(node.output), known, opset)
    wanted = onnxruntime_run(model, given) if wanted is None else wanted
    for how, got in weft_runs(model, given):
        assert len(got) == len(wanted)
        for mine, theirs in zip(got, wanted):
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=how)


def operators(node, inputs, opset=14):
    known = {name: inputs[name] for name in ("w", "r", "b", "p") if name in inputs}
    given = {name: x for name, x in inputs.items() if name not in known}
    symbol, _ = from_onnx(
        model_of([node], given, list(node.output), known, opset), {n: x.shape for n, x in given.items()}
    )
    return [each.op.name for each in topo_order(symbol.outputs) if each.op is not None]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_usual_layers_are_one_operator_for_each_direction(rng, kind, direction):
    for attrs in [{}, {"linear_before_reset": 1}] if kind == "GRU" else [{}]:
        node, inputs = layer(rng, kind, direction, without=("p", "lengths"), **attrs)
        check(node, inputs)
        found = operators(node, inputs)
        assert found.count("rnn") == (2 if direction == "bidirectional" else 1)
        assert "scan" not in found


def test_constant_weights_are_packed_once(rng):
    node, inputs = layer(rng, "LSTM", without=("p", "lengths"))
    known = {name: inputs.pop(name) for name in ("w", "r", "b")}
    with weft.compile(model_of([node], inputs, list(node.output), known, 14)) as model:
        operators = [name for kernel in model.report().kernels for name in kernel.operators]
    assert operators.count("_packed_rnn") == 1
    assert not {"rnn", "_pack_panels", "take"} & set(operators)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_with_lengths_of_their_own(rng, kind, direction):
    node, inputs = layer(rng, kind, direction, clip=0.9)
    check(node, inputs)  # with a limit, and peepholes: composed
    for attrs in [{}, {"linear_before_reset": 1}] if kind == "GRU" else [{}]:
        node, inputs = layer(rng, kind, direction, without=("p",), **attrs)
        check(node, inputs)


@pytest.mark.parametrize("kind", GATES)
def test_what_may_be_left_out_and_weights_that_are_inputs(rng, kind):
    node, inputs = layer(rng, kind, without=("b", "lengths", "h", "c", "p"))
    check(node, inputs, opset=7, constants=())
    del node.attribute[:]  # the size follows from the weights
    node.output[0] = ""
    model = model_of([node], inputs, [name for name in node.output if name], opset=14)
    node.attribute.append(helper.make_attribute("hidden_size", 6))
    wanted = onnxruntime_run(model_of([node], inputs, [n for n in node.output if n], opset=14), inputs)
    for _, got in weft_runs(model, inputs, levels=(3,)):
        for mine, theirs in zip(got, wanted):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(24))
def test_all_options_at_random(seed):
    rng = np.random.default_rng(seed)
    kind = list(GATES)[seed % 3]
    direction = ["forward", "reverse", "bidirectional"][seed // 3 % 3]
    count = len(ACTIVATIONS[kind]) * (2 if direction == "bidirectional" else 1)
    names = [str(name) for name in rng.choice(NAMES, count)]
    attrs = {"activations": names}
    alphas = [float(rng.uniform(0.1, 0.9)) for name in names if name in WITH_ALPHA]
    betas = [float(rng.uniform(0.1, 0.9)) for name in names if name in WITH_BETA]
    attrs |= {"activation_alpha": alphas} if alphas else {}
    attrs |= {"activation_beta": betas} if betas else {}
    attrs |= {"clip": float(rng.uniform(0.3, 1.5))} if rng.random() < 0.5 else {}
    if kind == "GRU":
        attrs["linear_before_reset"] = int(rng.integers(2))
    if kind == "LSTM":
        attrs["input_forget"] = int(rng.integers(2))
    without = [name for name in ("b", "lengths", "h", "c", "p") if rng.random() < 0.3]
    sizes = {name: int(rng.integers(1, 8)) for name in ("steps", "batch", "features", "size")}
    node, inputs = layer(rng, kind, direction, without=without, **sizes, **attrs)
    check(node, inputs, opset=int(rng.choice([7, 14, 22])))


@pytest.mark.parametrize("kind", GATES)
def test_batches_first(rng, kind):
    """ONNX Runtime has the other layout only."""
    node, inputs = layer(rng, kind, "bidirectional")
    names = list(node.output)
    wanted = onnxruntime_run(model_of([node], inputs, names, opset=14), inputs)
    node.attribute.append(helper.make_attribute("layout", 1))
    swapped = {name: inputs[name].swapaxes(0, 1).copy() for name in ("x", "h", "c") if name in inputs}
    wanted = [wanted[0].transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in wanted[1:])]
    check(node, {**inputs, **swapped}, wanted=wanted)


@pytest.mark.parametrize("kind", GATES)
def test_double_precision(rng, kind):
    """ONNX Runtime computes these in single precision only."""
    node, inputs = layer(rng, kind, "bidirectional", clip=0.9)
    wanted = onnxruntime_run(model_of([node], inputs, list(node.output), opset=14), inputs)
    wide = {name: x if name == "lengths" else x.astype(np.float64) for name, x in inputs.items()}
    check(node, wide, wanted=[x.astype(np.float64) for x in wanted])


@pytest.mark.parametrize("usual", [True, False])
@pytest.mark.parametrize("kind", GATES)
def test_half_precision_rounds_results_only(rng, kind, usual):
    node, inputs = layer(rng, kind, without=("p",), **({} if usual else {"clip": 0.9}))
    halves = {name: x if name == "lengths" else x.astype(np.float16) for name, x in inputs.items()}
    floats = {name: x if name == "lengths" else x.astype(np.float32) for name, x in halves.items()}
    wanted = onnxruntime_run(model_of([node], floats, list(node.output), opset=14), floats)
    check(node, halves, wanted=[x.astype(np.float16) for x in wanted], tolerance=5e-3)


@pytest.mark.parametrize("clip", [{}, {"clip": 0.9}])
def test_steps_and_batches_that_only_a_run_knows(rng, clip):
    node, inputs = layer(rng, "GRU", "bidirectional", without=("h",), **clip)
    known = {name: inputs.pop(name) for name in ("w", "r", "b")}
    model = model_of([node], inputs, list(node.output), known, 14)
    for item, names in zip(model.graph.input, (("steps", "batch"), ("batch",))):
        for dim, name in zip(item.type.tensor_type.shape.dim, names):
            dim.dim_param = name
    with weft.compile(model) as compiled:
        for steps, batch in ((5, 3), (2, 1)):
            given = {"x": rng.standard_normal((steps, batch, 4)).astype(np.float32)}
            given["lengths"] = rng.integers(1, steps + 1, batch).astype(np.int32)
            for mine, theirs in zip(compiled.run(given), onnxruntime_run(model, given), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_what_makes_no_sense_is_refused(rng):
    node, inputs = layer(rng, "LSTM", activations=["Sigmoid", "Tanh"])
    with pytest.raises(FormatError, match="3 for each of 1 directions"):
        operators(node, inputs)
    node, inputs = layer(rng, "RNN", activations=["Sine"])
    with pytest.raises(Unsupported, match="Sine"):
        operators(node, inputs)
    node, inputs = layer(rng, "GRU")
    inputs["r"] = inputs["r"][:, :-1]
    with pytest.raises(FormatError, match="input 2 of shape"):
        operators(node, inputs)
