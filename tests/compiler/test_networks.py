"""Whole networks: compiled, against the reference interpreter and ONNX Runtime."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiler.models import LEVELS
from oracles import oracle

import weft
from weft import testing
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.core.interpret import evaluate

TOLERANCE = 1e-4  # of the largest magnitude, for a whole network
VOCABULARY = 50

SMALL = {
    "mlp": lambda: testing.mlp.get_workload(2, 10, image_shape=(1, 12, 12)),
    "resnet": lambda: testing.resnet.get_workload(1, 10, num_layers=18, image_shape=(3, 32, 32), width=0.25),
    "resnet_bottleneck": lambda: testing.resnet.get_workload(
        1, 10, num_layers=50, image_shape=(3, 32, 32), width=0.125
    ),
    "mobilenet": lambda: testing.mobilenet.get_workload(1, 10, image_shape=(3, 32, 32), alpha=0.25),
    "mobilenet_v2": lambda: testing.mobilenet_v2.get_workload(1, 10, multiplier=0.25, image_shape=(3, 32, 32)),
    "vgg": lambda: testing.vgg.get_workload(
        1, 10, image_shape=(3, 32, 32), num_layers=11, width=0.125, batch_norm=True
    ),
    "squeezenet": lambda: testing.squeezenet.get_workload(1, 10, version="1.1", image_shape=(3, 64, 64), width=0.25),
    "inception_v3": lambda: testing.inception_v3.get_workload(1, 10, image_shape=(3, 107, 107), width=0.125),
    "densenet": lambda: testing.densenet.get_workload(1, 10, image_shape=(3, 32, 32), width=0.25),
    "dcgan": lambda: testing.dcgan.get_workload(2, ngf=8, random_len=16),
    "dqn": lambda: testing.dqn.get_workload(2, image_shape=(4, 44, 44), width=0.5),
    "bert": lambda: testing.bert.get_workload(
        2, 12, num_layers=2, hidden=32, heads=4, intermediate=64, vocabulary=VOCABULARY
    ),
}
SHAPES = {
    "mlp": (2, 1, 12, 12),
    "squeezenet": (1, 3, 64, 64),
    "inception_v3": (1, 3, 107, 107),
    "dcgan": (2, 16),
    "dqn": (2, 4, 44, 44),
    "bert": (2, 12),
}


HEAVY = {"densenet", "inception_v3", "mobilenet_v2", "resnet_bottleneck"}
NETWORKS = [pytest.param(n, marks=pytest.mark.slow if n in HEAVY else ()) for n in SMALL]


def logits(symbol):
    """The network before its softmax, which would hide errors."""
    return symbol.get_children() if symbol.attr("op_name") == "softmax" else symbol


@cache
def network(name):
    """(symbol, params as numpy arrays, an input)."""
    symbol, params = SMALL[name]()
    symbol = logits(symbol)
    rng = np.random.default_rng(1)
    shape = SHAPES.get(name, (1, 3, 32, 32))
    if name == "bert":
        data = rng.integers(0, VOCABULARY, shape)
    else:
        data = rng.standard_normal(shape).astype("float32")
    return symbol, {key: value.numpy() for key, value in params.items()}, data


@cache
def expected(name):
    """What ONNX Runtime gives for the very same network."""
    return from_onnxruntime(*network(name))


def from_onnxruntime(symbol, params, data):
    ort = oracle("onnxruntime")
    kinds = {"data": data.dtype}
    model = weft.frontend.to_onnx(symbol, params, shape={"data": data.shape}, dtype=kinds)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"data": data})


def compiled(symbol, params, data, **options):
    kinds = {"data": data.dtype}
    return weft.compile((symbol, params), shape={"data": data.shape}, dtype=kinds, **options)


def assert_close(got, wanted, what=""):
    assert got.shape == wanted.shape, what
    assert got.dtype == wanted.dtype, what
    scale = np.abs(wanted).max(initial=0)
    worst = np.abs(got.astype("float64") - wanted).max(initial=0)
    assert worst <= TOLERANCE * max(scale, 1e-30), f"{what}: {worst} of {scale}"


def test_texts_of_any_number_and_length_by_one_program():
    symbol, params, _ = network("bert")
    model = weft.compile((symbol, params), shape={"data": ("batch", "length")}, dtype={"data": "int64"})
    rng = np.random.default_rng(2)
    for shape in ((1, 12), (3, 7), (2, 1), (5, 12)):
        data = rng.integers(0, VOCABULARY, shape)
        assert_close(model(data)[0], from_onnxruntime(symbol, params, data)[0], str(shape))
    assert model.compilations == 1


@pytest.mark.parametrize("name", NETWORKS)
def test_internals(name):
    symbol, params, data = network(name)
    internals = symbol.get_internals()
    got = compiled(internals, params, data, opt_level=0)(data)
    wanted = evaluate(internals, {**params, "data": data})
    for label, one, two in zip(internals.list_output_names(), got, wanted, strict=True):
        assert_close(one, two, label)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_at_every_level_with_any_threads(name, level):
    symbol, params, data = network(name)
    models = [compiled(symbol, params, data, opt_level=level, threads=n) for n in (1, 2, 4)]
    results = [model(data) for model in models]
    for one, two in zip(results[0], expected(name), strict=True):
        assert_close(one, two)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("isa", ["sse", "avx2", "avx512"])
@pytest.mark.parametrize("name", NETWORKS)
def test_instruction_sets(name, isa):
    try:
        target = host().with_isa(isa)
    except Unsupported as error:
        pytest.skip(str(error))
    symbol, params, data = network(name)
    for one, two in zip(compiled(symbol, params, data, target=target)(data), expected(name)):
        assert_close(one, two)


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "bert"])
def test_changing_inputs(name):
    symbol, params, data = network(name)
    model = compiled(symbol, params, data)
    for _ in range(2):
        data = data[..., ::-1]
        for one, two in zip(model(data), evaluate(symbol, {**params, "data": data}), strict=True):
            assert_close(one, two)


@pytest.mark.parametrize("name", ["resnet", "dcgan", "bert"])
def test_build_runs_the_same_network(name):
    symbol, params, data = network(name)
    kinds = {key: str(value.dtype) for key, value in {**params, "data": data}.items()}
    graph, lib, kept = weft.compiler.build(symbol, "llvm", {"data": data.shape}, kinds, params=params)
    module = weft.runtime.create(graph, lib)
    module.load_params(weft.save_param_dict(kept))
    module.run(data=data)
    assert_close(module.get_output(0).asnumpy(), expected(name)[0])


FULL = {
    "resnet18": lambda: testing.resnet.get_workload(1, num_layers=18),
    "mobilenet_v2": lambda: testing.mobilenet_v2.get_workload(1),
    "squeezenet": lambda: testing.squeezenet.get_workload(1, version="1.1"),
}


def full(name):
    symbol, params = FULL[name]()
    data = np.random.default_rng(2).standard_normal((1, 3, 224, 224)).astype("float32")
    return logits(symbol), {key: value.numpy() for key, value in params.items()}, data


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_size(name):
    symbol, params, data = full(name)
    wanted = from_onnxruntime(symbol, params, data)
    for level in LEVELS:
        results = [compiled(symbol, params, data, opt_level=level, threads=threads)(data) for threads in (1, 2, 4)]
        assert_close(results[0][0], wanted[0], f"opt_level {level}")
        for other in results[1:]:
            assert other[0].tobytes() == results[0][0].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_size_internals(name):
    symbol, params, data = full(name)
    operators = [e for e in symbol.get_internals().outputs if e.node.op is not None]
    internals = type(symbol)(operators)
    wanted = evaluate(internals, {**params, "data": data})
    for one, two in zip(compiled(internals, params, data, opt_level=0)(data), wanted, strict=True):
        assert_close(one, two)
