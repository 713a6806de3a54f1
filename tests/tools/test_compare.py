"""weft compare and weft bisect: a wrong kernel and a wrong pass that are planted are found by name, and cut out."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base import config
from weft.base.errors import Unsupported
from weft.compiler.groups import forget_groups
from weft.core.passes import _passes, register_pass
from weft.core.walk import rewrite
from weft.lower.lowering import Lowering
from weft.passes import pipeline
from weft.te import is_open
from weft.tools.bisect import bisect_model
from weft.tools.compare import compare_model
from weft.tools.differences import difference_of
from weft.tools.values import plain_forms

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"


@pytest.fixture
def fresh_kernels():
    """No kernel that was compiled before is taken, and none that is compiled here stays."""
    forget_groups()
    with config.override(cache=False):
        yield
    forget_groups()


def lowered_as(right, name, other, least, only_open=False):
    """A lowering in which groups of at least so many nodes that end in an operator are taken for groups that end in
    another."""

    def lower(self, group, fact, target, strides=None):
        node, result = group.nodes[-1], group.outputs[-1]
        spared = only_open and not any(map(is_open, fact(result).shape))
        if node.op_name != name or len(group.nodes) < least or spared:
            return right(self, group, fact, target, strides)
        kept = {key: node.attrs[key] for key in ("pool_size", "strides", "padding", "layout") if key in node.attrs}
        swapped = type(node)(weft.Op.get(other), node.name, kept, node.inputs)
        entry = result._replace(node=swapped)
        master = swapped if group.master is node else group.master
        wrong = group._replace(nodes=(*group.nodes[:-1], swapped), outputs=(entry,), master=master)
        made = right(self, wrong, lambda e: fact(result if e == entry else e), target, strides)
        back = lambda a: result if a == entry else a
        return [kernel._replace(arguments=tuple(map(back, kernel.arguments))) for kernel in made]

    return lower


@pytest.fixture
def wrong_kernel(monkeypatch, fresh_kernels):
    """Kernels of max_pool2d take averages."""
    monkeypatch.setattr(Lowering, "lower", lowered_as(Lowering.lower, "max_pool2d", "avg_pool2d", 1))


@pytest.fixture
def wrong_open_kernel(monkeypatch, fresh_kernels):
    """The same, but only of kernels that serve many sizes."""
    monkeypatch.setattr(Lowering, "lower", lowered_as(Lowering.lower, "max_pool2d", "avg_pool2d", 1, only_open=True))


@pytest.fixture
def wrong_fused_kernel(monkeypatch, fresh_kernels):
    """Kernels of what ends in relu, and has something before it, end in tanh."""
    monkeypatch.setattr(Lowering, "lower", lowered_as(Lowering.lower, "relu", "tanh", 2))


@pytest.fixture
def wrong_pass(monkeypatch):
    """A pass that takes every max_pool2d for an avg_pool2d, at the end of the pipeline's first steps."""

    @register_pass("SwapPools")
    def swap_pools(graph):
        def rule(walker, node, inputs):
            if node.op_name != "max_pool2d":
                return None
            attrs = {name: node.attrs[name] for name in ("pool_size", "strides", "padding")}
            return walker.make("avg_pool2d", inputs, attrs, node.name)

        return rewrite(graph, rule)

    step = pipeline.Step("SwapPools", ("SwapPools",), "it is wrong")
    monkeypatch.setattr(pipeline, "PIPELINE", (*pipeline.PIPELINE[:4], step, *pipeline.PIPELINE[4:]))
    monkeypatch.setitem(pipeline.OPT_PASS_LEVEL, "SwapPools", 0)
    yield
    _passes.pop("SwapPools")


def test_what_is_right_agrees_with_every_reference():
    for ref in ("fp64", "reference"):
        found = compare_model(DIGITS, ref=ref)
        assert found.ok, found
        assert found.first is None
        assert max(output.difference.relative for output in found.outputs) < 1e-5
    named = {layer.counterpart for layer in found.layers}
    assert {"layer2", "layer5", "layer6", "layer9", "layer12"} <= named  # through fusion and blocked layouts


def test_onnxruntime_as_the_reference():
    oracle("onnxruntime")
    found = compare_model(DIGITS, ref="ort", shape={"input": (3, 1, 8, 8)})
    assert found.ok, found
    assert {"layer2", "layer6", "layer12"} <= {layer.counterpart for layer in found.layers}


@pytest.mark.parametrize("external", [False, True])
def test_onnxruntime_finds_weights_and_nothing_is_written_beside_the_model(tmp_path, external):
    oracle("onnxruntime")
    rng = np.random.default_rng(3)
    weight, bias = (rng.standard_normal(shape).astype("float32") for shape in ((200, 150), (150,)))
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        onnx.helper.make_node("Add", ["m", "b"], ["a"], name="sum"),
        onnx.helper.make_node("Tanh", ["a"], ["y"], name="end"),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 200), ("y", 150))]
    given = [onnx.numpy_helper.from_array(value, name) for name, value in (("w", weight), ("b", bias))]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], given)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    how = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0} if external else {}
    onnx.save(model, tmp_path / "model.onnx", **how)
    before = sorted(path.name for path in tmp_path.iterdir())
    found = compare_model(tmp_path / "model.onnx", ref="ort", shape={"x": (7, 200)})
    assert found.ok, found
    assert found.layers[-1].counterpart == "end"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_wrong_kernel_is_found_by_name(wrong_kernel):
    found = compare_model(DIGITS)
    assert not found.ok
    assert found.blame.kind == "kernel"
    assert found.blame.name == "fuse_avg_pool2d"  # as the kernel calls itself that stands in its place
    assert found.blame.nodes == ("layer6",)
    assert found.first.name == "layer6"
    assert found.first.own > 1e-3
    assert "to blame: kernel" in str(found)


def test_a_wrong_pass_is_found_by_name(wrong_pass):
    found = compare_model(DIGITS)
    assert (found.blame.kind, found.blame.name) == ("pass", "SwapPools")
    assert "layer6" in found.blame.nodes


def test_what_is_compared_is_what_compile_gives(wrong_open_kernel):
    """The program with open sizes, unless shapes are given."""
    x = np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype("float32")
    static, opened = (weft.compile(DIGITS, shape=shape).run({"input": x})[0] for shape in ({"input": x.shape}, None))
    assert np.abs(static - opened).max() > 1e-2
    for options in ({}, {"inputs": {"input": x}}, {"shape": {"input": (None, 1, 8, 8)}}):
        found = compare_model(DIGITS, **options)
        assert (found.blame.kind, found.blame.nodes) == ("kernel", ("layer6",))
    assert compare_model(DIGITS, shape={"input": x.shape}).ok


PLANTED = {
    "wrong_kernel": ("layer6",),
    "wrong_open_kernel": ("layer6",),
    "wrong_fused_kernel": ("layer1", "layer2"),  # relu alone has no such kernel
    "wrong_pass": ("layer6",),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_bisect_writes_a_small_model_that_shows_it(planted, request, tmp_path, capsys):
    request.getfixturevalue(planted)
    found = bisect_model(DIGITS, folder=tmp_path / "repro")
    assert not found.ok
    assert found.nodes == PLANTED[planted]
    assert sorted(item.name for item in (tmp_path / "repro").iterdir()) == [
        "inputs.npz",
        "model.json",
        "params.bin",
        "repro.py",
    ]
    forget_groups()
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tmp_path / "repro" / "repro.py"), run_name="__main__")
    assert ended.value.code == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_the_script_of_a_healthy_weft_says_the_same(tmp_path, capsys, request):
    request.getfixturevalue("wrong_pass")
    bisect_model(DIGITS, folder=tmp_path)
    pipeline_without = [step for step in pipeline.PIPELINE if step.name != "SwapPools"]
    request.getfixturevalue("monkeypatch").setattr(pipeline, "PIPELINE", tuple(pipeline_without))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(tmp_path / "repro.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "the same" in capsys.readouterr().out


def onnx_model(text):
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(onnx.parser.parse_graph(text), opset_imports=opsets, ir_version=8)


BRANCHES = """m (float[n, 4] x) => (float[n, 4] y) {
    t = Tanh(x)
    s = ReduceSum<keepdims=0>(x)
    zero = Constant<value_float=0.0>()
    c = Greater(s, zero)
    z = If(c) <then_branch = a () => (float[p, q] u) { u = Exp(t) },
               else_branch = b () => (float[p, q] v) { v0 = Mul(t, t)  v1 = Add(v0, t)  v = Relu(v1) }>
    y = Softmax(z)
}"""
NONZERO = """m (float[n] x) => (float[k] z) {
    t = Tanh(x)  r = Relu(t)  y = NonZero(r)  q = Transpose(y)  g = GatherND(x, q)  z = Exp(g)
}"""
TURNS = """m (float[n] x, int64 turns) => (float[n] y) {
    go = Constant<value = bool {1}>()
    y = Loop(turns, go, x) <body = b (int64 i, bool c, float[n] a) => (bool d, float[n] e) { d = Identity(c)
        f = Tanh(a)  e = Add(f, a) }>
}"""


@pytest.mark.parametrize(("sign", "walked"), [(1, "u"), (-1, "v")])
def test_a_branch_is_walked_as_it_is_taken(sign, walked):
    x = sign * np.random.default_rng(0).uniform(0.1, 2, (5, 4)).astype("float32")
    found = compare_model(onnx_model(BRANCHES), inputs={"x": x})
    assert found.ok, found
    names = [layer.name for layer in found.layers]
    assert names[-2:] == [walked, "y"]
    assert "t" in names
    assert [layer.number for layer in found.layers] == [*range(len(names))]
    assert 0 <= max(output.difference.relative for output in found.outputs) < 1e-5


def test_parts_behind_a_shape_that_values_decide_are_walked():
    x = np.random.default_rng(0).standard_normal(50).astype("float32")
    found = compare_model(onnx_model(NONZERO), inputs={"x": x})
    assert found.ok, found
    assert [layer.name for layer in found.layers] == ["r", "z"]
    assert found.layers[-1].output == f"float32[{(x > 0).sum()}]"


def test_bodies_of_loops_are_walked_once():
    x = np.random.default_rng(0).standard_normal(6).astype("float32")
    found = compare_model(onnx_model(TURNS), inputs={"x": x, "turns": np.int64(7)})
    assert found.ok, found
    assert [layer.name for layer in found.layers] == ["e"]


def test_onnxruntime_beside_a_model_in_parts(tmp_path):
    oracle("onnxruntime")
    onnx.save(onnx_model(NONZERO), tmp_path / "m.onnx")
    found = compare_model(tmp_path / "m.onnx", ref="ort", shape={"x": (64,)})
    assert found.ok, found
    assert found.layers[-1].counterpart == "z"


def test_a_wrong_kernel_of_a_branch_is_found_and_cut_out(wrong_fused_kernel, tmp_path):
    x = -np.random.default_rng(0).uniform(0.1, 2, (5, 4)).astype("float32")
    found = bisect_model(onnx_model(BRANCHES), inputs={"x": x}, folder=tmp_path / "repro")
    assert found.blame.kind == "kernel"
    assert "v" in found.blame.nodes
    assert 1 < len(found.nodes) < 5
    right = compare_model(onnx_model(BRANCHES), inputs={"x": -x})
    assert right.ok, right


@pytest.mark.parametrize("shape", [None, {"x": (None, 4)}])
def test_open_sizes_are_those_of_the_inputs(shape):
    text = "m (float[n, 4] x) => (float[n, 4] y) { t = Tanh(x)  y = Softmax(t) }"
    x = np.random.default_rng(0).standard_normal((11, 4)).astype("float32")
    found = compare_model(onnx_model(text), inputs={"x": x}, shape=shape)
    assert found.ok, found
    assert found.layers[-1].output == "float32[11, 4]"
    assert compare_model(onnx_model(text), shape=shape).ok  # likely ones, where none are given


def test_attributes_that_hold_open_sizes():
    """A shape that is computed of others, in an attribute; halves of an axis, whose extents are no names."""
    text = """m (float[n, 6, s] x) => (float[n, k] y) {
        size = Shape<start=0, end=1>(x)
        rest = Constant<value_ints=[-1]>()
        want = Concat<axis=0>(size, rest)
        pooled = MaxPool<kernel_shape=[2], strides=[2]>(x)
        flat = Reshape(pooled, want)
        y = Softmax(flat)
    }"""
    x = np.random.default_rng(0).standard_normal((3, 6, 10)).astype("float32")
    found = compare_model(onnx_model(text), inputs={"x": x})
    assert found.ok, found
    assert found.layers[-1].output == "float32[3, 30]"
    assert weft.compile(onnx_model(text)).run({"x": x})[0].shape == (3, 30)


def test_what_cannot_be_walked_says_why():
    with pytest.raises(Unsupported, match="draws random numbers"):
        compare_model(onnx_model("m (float[4] x) => (float[4] y) { r = RandomNormalLike(x)  y = Add(r, x) }"))


def test_two_models(tmp_path):
    x = sym.Variable("x", shape=(2, 8))
    one = sym.tanh(sym.dense(x, units=4, name="fc"), name="act")
    rng = np.random.default_rng(3)
    params = {"fc_weight": rng.standard_normal((4, 8)), "fc_bias": rng.standard_normal(4)}
    params = {name: value.astype("float32") for name, value in params.items()}
    other = {**params, "fc_bias": params["fc_bias"] + np.float32(0.5)}
    same = compare_model((one, params), (one, params))
    assert same.ok
    assert same.outputs[0].difference.max_abs == 0
    assert compare_model(DIGITS, DIGITS).outputs[0].difference.max_abs == 0  # both with an open batch
    found = compare_model((one, params), (one, other))
    assert found.blame.kind == "model"
    wanted = np.tanh(0.5)  # at most: tanh is steepest at 0
    assert 0.01 < found.outputs[0].difference.max_abs < wanted


def test_memory_of_references_is_that_of_live_values():
    """A chain of 12 values keeps a few at once."""
    y = sym.Variable("x", shape=(64, 32))
    for number in range(12):
        y = sym.softmax(y, name=f"s{number}")  # each a kernel of its own
    found = compare_model(y)
    assert found.ok
    assert len(found.layers) == 12
    assert found.largest_bytes <= 6 * 64 * 32 * 8


PEAK = """
import resource, sys
from weft.tools import bisect_model, compare_model
import numpy as np, weft  # all that is loaded counts before
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
compare_model(sys.argv[2])  # and so does what the first of its kind compiles and loads
before = peak()
if sys.argv[3] == "compare":
    found = compare_model(sys.argv[1])
else:
    found = bisect_model(sys.argv[1], tolerance=1e-12, folder=sys.argv[4]).comparison
print(peak() - before, len(found.layers))
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "bisect"])
def test_memory_is_a_few_times_that_of_the_model(tmp_path, command):
    """Weights once as they are read, once packed; what references make of them in float64 goes layer by layer."""
    rng = np.random.default_rng(0)

    def written(name, size, layers):
        nodes, weights, last = [], [], "x"
        for number in range(layers):
            weights.append(rng.standard_normal((size, size), np.float32) / np.float32(size**0.5))
            nodes.append(onnx.helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"], name=f"m{number}"))
            nodes.append(onnx.helper.make_node("Tanh", [f"m{number}"], [f"t{number}"], name=f"t{number}"))
            last = f"t{number}"
        ends = [onnx.helper.make_tensor_value_info(end, 1, [4, size]) for end in ("x", last)]
        given = [onnx.numpy_helper.from_array(weight, f"w{number}") for number, weight in enumerate(weights)]
        model = onnx.helper.make_model(
            onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], given),
            opset_imports=[onnx.helper.make_opsetid("", 17)],
            ir_version=8,
        )
        onnx.save(model, tmp_path / name)
        return sum(weight.nbytes for weight in weights)

    size, layers = written("large.onnx", 1024, 24), 24
    assert size > 100e6
    written("small.onnx", 1024, 1)
    files = [str(tmp_path / name) for name in ("large.onnx", "small.onnx")]
    run = [sys.executable, "-c", PEAK, *files, command, str(tmp_path / "repro")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    peak, walked = map(int, done.stdout.split())
    assert walked == layers
    assert peak < 3.2 * size


def test_differences():
    one = np.float32([1, 2, np.nan, 4])
    same = difference_of(one, one)
    assert (same.max_abs, same.ulp, same.first_nan) == (0, 0, None)
    found = difference_of(np.float32([1, np.nan, np.nan, 4]), one)
    assert found.relative == np.inf
    assert found.first_nan == (1,)
    next_one = difference_of(np.nextafter(np.float32([1]), np.float32(2)), np.float64([1]))
    assert next_one.ulp == pytest.approx(1)
    assert difference_of(np.float32([1, 0]), np.float32([0, 1])).cosine == 0
    assert difference_of(one, one[:2]).relative == np.inf
    assert difference_of(np.float32(3), np.float64(2)).max_abs == 1
    assert difference_of(np.array(np.nan), np.array(2.0)).first_nan == ()


def test_plain_forms_are_those_of_numpy():
    plain = np.random.default_rng(0).standard_normal((2, 8, 3, 5))
    blocked = plain.reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2)
    assert any(np.array_equal(form, plain) for form in plain_forms(blocked, plain.shape))
    assert any(np.array_equal(form, plain) for form in plain_forms(plain.transpose(0, 2, 3, 1), plain.shape))
    assert plain_forms(plain, (2, 9, 15)) == []
