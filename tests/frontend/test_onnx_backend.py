"""onnx's own backend tests, with its own runner and expected values: what each operator must give.

`onnx_backend_gaps.txt` lists the cases that weft refuses, under the reason. Each of them must be refused by an error
that says so: one that passes has to leave the list, and a wrong value, or any other error, is a failure that no list
excuses. The cases are run in groups, so that collecting tests does not make 2,000 models.
"""

import unittest
import warnings
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.runner import Runner

import weft
import weft.tools.onnx_backend as backend
from weft.base.errors import InvalidType, InvalidValue, Unsupported
from weft.tools.onnx_table import page, read_gaps

GAPS = Path(__file__).with_name("onnx_backend_gaps.txt")
PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
GROUPS = 48
KINDS = ("NodeModel", "SimpleModel", "PyTorchConvertedModel", "PyTorchOperatorModel")  # not "Real": those are downloads
TOLERANCES = {
    "test_dft_inverse": {"atol": 1e-6},  # zeros, of which float32 left 2e-7 in the expected values
    "test_dft_inverse_opset19": {"atol": 1e-6},
}
DRAWN = [
    *(f"bernoulli{form}{body}" for form in ("", "_double", "_seed") for body in ("", "_expanded")),
    *(f"training_dropout{form}{mask}" for form in ("", "_default") for mask in ("", "_mask")),
]
HALF_RTOL = 2**-9  # two units in the last place of float16, as the runner has it for bfloat16

rng = np.random.default_rng(0)


class Everything(backend.WeftBackend):
    """Tries every model, so that what is not supported says why; the runner hands its tolerances on."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        return True

    @classmethod
    def prepare(cls, model, device="CPU", rtol=None, atol=None):
        return super().prepare(model, device)


class Strict(Runner):
    """Compares sequences item by item, where the runner looks at the rows of each, and at no item that is missing;
    float16 may differ as bfloat16 may."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, model_dir=None):
        assert len(ref_outputs) == len(outputs)
        for expected, value in zip(ref_outputs, outputs):
            assert isinstance(value, list) == isinstance(expected, list)
            if isinstance(expected, list):
                cls.assert_similar_outputs(expected, value, rtol, atol)
            else:
                least = HALF_RTOL if expected.dtype == np.float16 else 0
                super().assert_similar_outputs([expected], [value], max(rtol, least), atol)


def assert_similar_draws(ref_outputs, outputs, rtol, atol, model_dir=None):
    """What is drawn at random is 0 or the number that it would be for other draws too."""
    assert len(ref_outputs) == len(outputs)
    for expected, value in zip(ref_outputs, outputs):
        both = (expected != 0) & (value != 0)
        Strict.assert_similar_outputs([expected * both], [value * both], rtol, atol)


@pytest.fixture(scope="module")
def cases():
    """Name -> function that runs the case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, about numbers that onnx makes
        runner = Strict(Everything, test_kwargs=TOLERANCES)
    named = {}
    for kind in KINDS:
        for name, item in runner._test_items[kind].items():
            if name.endswith("_cpu"):
                named[name.removeprefix("test_").removesuffix("_cpu")] = item.func
    return named | {name: drawing(runner, named[name]) for name in DRAWN}


def drawing(runner, run):
    """A case whose expected values numpy's generator drew, which no other generator does."""

    def run_drawing(_):
        runner.assert_similar_outputs = assert_similar_draws
        try:
            run(None)
        finally:
            del runner.assert_similar_outputs

    return run_drawing


def outcome(run) -> str:
    """How a case ends: "passed", "refused", or what went wrong."""
    try:
        with np.errstate(all="ignore"):
            run(None)
    except Unsupported:
        return "refused"
    except unittest.SkipTest as error:
        return f"skipped: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "passed"


@pytest.mark.whole
@pytest.mark.parametrize("group", range(GROUPS))
def test_cases_pass_but_for_the_listed(cases, group):
    gaps = read_gaps(GAPS)
    wrong = {}
    for name, run in cases.items():
        if zlib.crc32(name.encode()) % GROUPS == group:
            found = outcome(run)
            if found != ("refused" if name in gaps else "passed"):
                wrong[name] = found
    assert wrong == {}


def test_the_list_names_cases_that_there_are(cases):
    assert set(read_gaps(GAPS)) <= set(cases)


def test_the_list_is_short(cases):
    assert len(cases) > 2000
    assert len(read_gaps(GAPS)) + len(DRAWN) <= 0.02 * len(cases)


def test_the_page_is_up_to_date():
    written = PAGE.read_text(encoding="utf-8")
    if f"ONNX {onnx.__version__} " not in written:
        pytest.skip(f"the page is about the operators of another onnx than {onnx.__version__}")
    assert page(read_gaps(GAPS)) == written, "run `make docs`"


# The interface itself.


def relu_and_sum():
    text = "m (float[2] x, float[2] w) => (float[2] y, float[2] z) { y = Relu(x) z = Add(x, w) }"
    graph = onnx.parser.parse_graph(text)
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([0.5, -3], "float32"), "w"))
    return helper.make_model(graph)


def test_inputs_are_given_in_order_or_by_name_without_initialisers():
    x = np.array([-1.5, 2], "float32")
    prepared = backend.prepare(relu_and_sum())
    for outputs in (prepared.run([x]), prepared.run({"x": x}), backend.run_model(relu_and_sum(), (x,))):
        np.testing.assert_array_equal(outputs[0], [0, 2])
        np.testing.assert_array_equal(outputs["z"], [-1, -1])
    with pytest.raises(InvalidValue, match="2 values for 1 inputs"):
        prepared.run([x, x])
    with pytest.raises(InvalidType, match="a list, or a dict by name"):
        prepared.run(x)
    with pytest.raises(InvalidType, match="run takes no 'rtol'"):
        prepared.run([x], rtol=1)


def test_a_node_runs_by_itself():
    a, b = rng.random((2, 3), "float32"), rng.random((3,), "float32")
    node = helper.make_node("Gemm", ["a", "", "c"], ["y"])
    with pytest.raises(weft.Error):
        backend.run_node(node, [a, b])  # its second input is not optional
    node = helper.make_node("Sub", ["a", "b"], ["y"])
    np.testing.assert_array_equal(backend.run_node(node, [a, b])[0], a - b)
    node = helper.make_node("Mul", ["a", "a"], ["y"])
    np.testing.assert_array_equal(backend.run_node(node, {"a": a}).y, a * a)
    node = helper.make_node("Softmax", ["a"], ["y"])  # of all axes but the first before opset 13, of the last since
    cube = rng.random((2, 3, 2), "float32")
    for opset, axes in ((12, (1, 2)), (13, (2,))):
        shares = np.exp(cube) / np.exp(cube).sum(axes, keepdims=True)
        np.testing.assert_allclose(backend.run_node(node, [cube], opset_version=opset)[0], shares, rtol=1e-5)


def test_what_is_not_there_is_said_before_a_model_runs():
    unknown = helper.make_graph(
        [helper.make_node("Nowhere", ["x"], ["y"], domain="test")],
        "unknown",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
    )
    model = helper.make_model(unknown, opset_imports=[helper.make_opsetid("test", 1)])
    assert not backend.is_compatible(model)
    assert backend.is_compatible(relu_and_sum())
    assert not backend.is_compatible(relu_and_sum(), "CUDA")
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:1")
    with pytest.raises(Unsupported, match="device 'CUDA'"):
        backend.prepare(relu_and_sum(), "CUDA")
