"""The networks of weft.testing: their sizes, their scale, and that ONNX Runtime agrees."""

import numpy as np
import pytest
from oracles import oracle

from weft import testing
from weft.base.errors import InvalidValue
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.frontend import to_onnx

IMAGE = {"batch_size": 1, "image_shape": (3, 64, 64)}
# Arguments of get_workload, and the shape of the input.
CASES = {
    "mlp": ({"batch_size": 2, "image_shape": (1, 8, 8)}, (2, 1, 8, 8)),
    "resnet": ({**IMAGE, "num_layers": 18}, (1, 3, 64, 64)),
    "resnet-50": ({**IMAGE, "num_layers": 50, "width": 0.25}, (1, 3, 64, 64)),
    "resnet-152": ({**IMAGE, "num_layers": 152, "width": 0.125}, (1, 3, 64, 64)),
    "resnet-20": ({"image_shape": (3, 28, 28), "num_layers": 20}, (1, 3, 28, 28)),
    "vgg": ({**IMAGE, "width": 0.25}, (1, 3, 64, 64)),
    "vgg-norm": ({**IMAGE, "width": 0.125, "num_layers": 16, "batch_norm": True}, (1, 3, 64, 64)),
    "mobilenet": (IMAGE, (1, 3, 64, 64)),
    "mobilenet-shallow": ({**IMAGE, "alpha": 0.25, "is_shallow": True}, (1, 3, 64, 64)),
    "mobilenet_v2": (IMAGE, (1, 3, 64, 64)),
    "mobilenet_v2-narrow": ({**IMAGE, "multiplier": 0.35}, (1, 3, 64, 64)),
    "squeezenet": ({**IMAGE, "version": "1.0"}, (1, 3, 64, 64)),
    "squeezenet-1.1": ({**IMAGE, "version": "1.1"}, (1, 3, 64, 64)),
    "inception_v3": ({**IMAGE, "image_shape": (3, 96, 96), "width": 0.25}, (1, 3, 96, 96)),
    "densenet": ({**IMAGE, "width": 0.25}, (1, 3, 64, 64)),
    "dcgan": ({"batch_size": 2, "ngf": 8}, (2, 100)),
    "dqn": ({"batch_size": 1}, (1, 4, 84, 84)),
    "bert": (
        {
            "batch_size": 2,
            "seq_len": 12,
            "num_layers": 2,
            "hidden": 48,
            "heads": 4,
            "intermediate": 96,
            "vocabulary": 50,
        },
        (2, 12),
    ),
    "vit": (
        {
            "batch_size": 2,
            "image_shape": (3, 32, 32),
            "patch": 8,
            "num_layers": 2,
            "hidden": 48,
            "heads": 4,
            "intermediate": 96,
            "num_classes": 10,
        },
        (2, 3, 32, 32),
    ),
}


def workload(name, **extra):
    arguments, shape = CASES[name]
    net, params = getattr(testing, name.split("-")[0]).get_workload(**{**arguments, **extra})
    return net, params, shape


def without_softmax(net):
    return net.get_children() if net.attr("op_name") == "softmax" else net


@pytest.mark.parametrize("name", CASES)
def test_matches_onnxruntime_and_is_well_scaled(name):
    ort = oracle("onnxruntime")
    net, params, shape = workload(name)
    logits = without_softmax(net)
    rng = np.random.default_rng(3)
    x = rng.integers(0, 50, shape) if name == "bert" else rng.standard_normal(shape, np.float32)
    model = to_onnx(logits, params, shape={"data": shape}, dtype={"data": x.dtype})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [expected] = session.run(None, {"data": x})
    [made] = evaluate(logits, {**params, "data": x})
    largest = np.abs(expected).max()
    assert 0.2 < largest < 100
    assert np.abs(made - expected).max() < 1e-5 * largest


@pytest.mark.parametrize("name", CASES)
def test_parameters_hide_nothing(name):
    _, params, _ = workload(name)
    for key, value in params.items():
        data = value.numpy()
        assert np.isfinite(data).all()
        assert (data != 0).mean() > 0.99, key
        if key.endswith(("gamma", "var")):
            assert (np.abs(data - 1) > 1e-4).mean() > 0.9, key
        if key.endswith("var"):
            assert data.min() > 0
        if data.size > 3:
            assert data.std() > 0, key


def test_seeds_repeat_and_differ():
    first, again, other = (workload("mlp", seed=seed)[1] for seed in (1, 1, 2))
    for name, value in first.items():
        np.testing.assert_array_equal(value.numpy(), again[name].numpy())
        assert (value.numpy() != other[name].numpy()).mean() > 0.99


def count(net, params):
    return sum(value.size for value in params.values())


# Numbers of parameters that the papers and torchvision give, batch norms' statistics included.
@pytest.mark.parametrize(
    ("module", "arguments", "millions"),
    [
        ("vgg", {"num_layers": 16}, 138.36),
        ("mobilenet_v2", {}, 3.54),
        ("squeezenet", {"version": "1.1"}, 1.24),
        ("densenet", {}, 8.06),
        ("mobilenet", {}, 4.25),
        ("vit", {}, 86.57),
    ],
)
@pytest.mark.slow
def test_numbers_of_parameters(module, arguments, millions):
    made = getattr(testing, module).get_workload(batch_size=1, **arguments)
    assert count(*made) / 1e6 == pytest.approx(millions, abs=0.02)


def test_output_shapes():

    for name, wanted in (("resnet", (1, 1000)), ("dcgan", (2, 3, 64, 64)), ("dqn", (1, 18)), ("bert", (2, 12, 48))):
        net, params, shape = workload(name)
        shapes = {key: value.shape for key, value in params.items()} | {"data": shape}
        graph = infer(Graph(net.outputs), shapes)
        assert graph.fact(net.outputs[0]).shape == wanted


def test_sizes_that_do_not_exist():
    for call in (
        lambda: testing.resnet.get_symbol(10, num_layers=19),
        lambda: testing.resnet.get_symbol(10, num_layers=21, image_shape=(3, 28, 28)),
        lambda: testing.vgg.get_symbol(10, num_layers=12),
        lambda: testing.densenet.get_symbol(10, num_layers=5),
        lambda: testing.squeezenet.get_symbol(10, version="2.0"),
        lambda: testing.dcgan.get_symbol((3, 32, 32)),
    ):
        with pytest.raises(InvalidValue):
            call()


def test_initialiser_rules():
    init = testing.Xavier(seed=4)
    weight = np.empty((64, 32, 3, 3), np.float32)
    init("conv_weight", weight)
    bound = np.sqrt(3 / ((32 * 9 + 64 * 9) / 2))
    assert 0.95 * bound < np.abs(weight).max() <= bound
    depthwise = np.empty((64, 1, 3, 3), np.float32)
    init("depthwise_weight", depthwise)
    assert 0.9 * np.sqrt(3 / 9) < np.abs(depthwise).max() <= np.sqrt(3 / 9)
    with pytest.raises(InvalidValue, match="no rule"):
        init("conv_scale", weight)
    with pytest.raises(InvalidValue):
        testing.Xavier("cauchy")


def test_dtype_and_context():
    _, params = testing.mlp.get_workload(1, 10, (1, 4, 4), dtype="float64")
    assert {value.dtype for value in params.values()} == {"float64"}
    assert [name for name, _ in testing.ctx_list()] == ["llvm"]
