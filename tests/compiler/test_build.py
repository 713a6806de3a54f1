"""NNVM's way to compile: build, build_config, and the functions beside them."""

from __future__ import annotations

import gc
import traceback
from dataclasses import replace

import numpy as np
import pytest
from compiler.models import LEVELS, agree, convolutional, floats
from core.core_ops import fresh_name

import weft
from weft import symbol as sym
from weft.base.errors import GraphError, InvalidType, InvalidValue, NotFound, Unsupported
from weft.compiler import build_module
from weft.core.interpret import evaluate
from weft.core.symbol import variable_inits

BATCH_NORM_INPUTS = ("gamma", "beta", "moving_mean", "moving_var")


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture(autouse=True)
def no_initial_values():
    variable_inits.clear()
    yield
    variable_inits.clear()


def run(graph, lib, params, **inputs):
    module = weft.runtime.create(graph, lib, weft.cpu(0))
    if params:
        module.set_input(**params)
    module.run(**inputs)
    return [module.get_output(i).asnumpy() for i in range(module.get_num_outputs())]


def sum_of_exp():
    return sym.exp(sym.Variable("y") + sym.Variable("x"))


def test_compiled_graphs_have_a_node_for_each_group(rng):
    shapes = {"x": (10, 128), "y": (10, 128)}
    graph, lib, params = weft.compiler.build(sum_of_exp(), "llvm", shapes)
    assert graph.index.num_nodes == 3
    assert params is None
    with weft.compiler.build_config(opt_level=0):
        plain, plain_lib, _ = weft.compiler.build(sum_of_exp(), "llvm", shapes)
    assert plain.index.num_nodes == 4
    x, y = floats(rng, (10, 128)), floats(rng, (10, 128))
    for made in ((graph, lib), (plain, plain_lib)):
        np.testing.assert_allclose(run(*made, None, x=x, y=y)[0], np.exp(x + y), rtol=1e-5)


def test_what_a_compiled_graph_says():
    y = sym.flatten(sym.Variable("x") * 2) + 1
    graph, _, _ = weft.compiler.build(y, "llvm", {"x": (10, 2, 3)})
    assert graph.index.num_nodes == 2
    assert graph.json_attr("shape") == [[10, 2, 3], [10, 6]]
    assert graph.json_attr("dltype") == ["float32", "float32"]
    assert len(set(graph.json_attr("storage_id"))) == 2
    node = graph.index.nodes[1]
    assert node["op"] == "tvm_op"
    assert node["attrs"]["num_inputs"] == "1"
    assert node["attrs"]["func_name"].startswith("fuse_")
    again = weft.graph.load_json(graph.json())
    assert again.json() == graph.json()


def test_a_graph_from_json_runs(rng):
    x = floats(rng, (2, 3))
    loaded = weft.graph.load_json(weft.graph.create(sym.tanh(sym.Variable("x"))).json())
    graph, lib, _ = weft.compiler.build(loaded, "llvm", {"x": (2, 3)})
    for form in (graph, graph.json(), weft.graph.load_json(graph.json())):
        np.testing.assert_allclose(run(form, lib, None, x=x)[0], np.tanh(x), atol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_parameters_stay_inputs(rng, level):
    symbol, params = convolutional(rng)
    x = floats(rng, (2, 3, 9, 9))
    with weft.compiler.build_config(opt_level=level):
        graph, lib, kept = weft.compiler.build(symbol, "llvm", {"x": x.shape}, params=params)
    assert len(lib.program.constants) == 0
    agree(run(graph, lib, kept, x=x), symbol, {**params, "x": x})
    if level < 2:
        other = {**params, "fc_bias": params["fc_bias"] + 1}
        agree(run(graph, lib, other, x=x), symbol, {**other, "x": x})


@pytest.mark.parametrize("level", LEVELS)
def test_parameters_that_no_pass_left_a_use_for(rng, level):
    """Without scale or center nothing reads gamma or beta, so nobody is asked to set them."""
    x = sym.Variable("x")
    symbol = sym.batch_norm(sym.batch_norm(x, scale=False, name="a"), center=False, name="b")
    params = {f"{n}_{k}": 1 + floats(rng, (3,)) ** 2 for n in "ab" for k in BATCH_NORM_INPUTS}
    value = floats(rng, (2, 3, 4))
    with weft.compiler.build_config(opt_level=level):
        graph, lib, kept = weft.compiler.build(symbol, "llvm", {"x": value.shape}, params=params)
    assert set(kept) <= set(graph.index.input_names)
    p = {name: array[:, None] for name, array in params.items()}
    first = (value - p["a_moving_mean"]) / np.sqrt(p["a_moving_var"] + 1e-5) + p["a_beta"]
    scale = p["b_gamma"] / np.sqrt(p["b_moving_var"] + 1e-5)
    expected = (first - p["b_moving_mean"]) * scale
    np.testing.assert_allclose(run(graph, lib, kept, x=value)[0], expected, rtol=2e-4, atol=1e-5)


def test_precomputed_parameters(rng):
    x, a, y = sym.Variable("x") + 1, sym.Variable("a"), sym.Variable("y")
    values = {name: floats(rng, (10, 10)) for name in "axy"}
    params = {name: values[name] for name in "ax"}
    graph, lib, kept = weft.compiler.build(y + x + a, "llvm", {"y": (10, 10)}, params=params)
    assert graph.index.num_nodes == 4
    assert "x" not in kept
    module = weft.runtime.create(graph, lib)
    module["load_params"](weft.compiler.save_param_dict({**kept, "nobody": values["x"]}))
    module.run(y=values["y"])
    expected = values["y"] + values["x"] + 1 + values["a"]
    np.testing.assert_allclose(module.get_output(0).asnumpy(), expected, rtol=1e-5)


def test_no_shapes_needed_where_parameters_tell(rng):
    symbol, params = convolutional(rng)
    del params["fc_weight"]
    graph, _, kept = weft.compiler.build(symbol, "llvm", {"x": (2, 3, 9, 9)}, params=params)
    assert "fc_weight" in graph.index.input_names
    assert "fc_weight" not in kept


def test_dtypes_by_name_and_for_all(rng):
    symbol = sym.take(sym.Variable("table"), sym.Variable("ids"), axis=0)
    shapes = {"table": (5, 3), "ids": (2,)}
    for dtype in ({"ids": "int32"}, {"ids": "int32", "table": "float64"}):
        graph, lib, _ = weft.compiler.build(symbol, "llvm", shapes, dtype)
        table = floats(rng, (5, 3), dtype.get("table", "float32"))
        got = run(graph, lib, None, table=table, ids=np.array([4, 1], "int32"))[0]
        np.testing.assert_array_equal(got, table[[4, 1]])
    _, lib, _ = weft.compiler.build(sum_of_exp(), "llvm", {"x": (2,), "y": (2,)}, "float64")
    assert {str(spec.dtype) for spec in lib.program.inputs} == {"float64"}


def test_layouts(rng):
    symbol = sym.conv2d(sym.Variable("x"), channels=4, kernel_size=(3, 3), use_bias=False, name="c")
    x, w = floats(rng, (1, 5, 5, 3)), floats(rng, (4, 3, 3, 3))
    plain = evaluate(symbol, {"x": x.transpose(0, 3, 1, 2), "c_weight": w})[0]
    for layout in ("NHWC", {"x": "NHWC"}):
        graph, lib, _ = weft.compiler.build(symbol, "llvm", {"x": (1, 5, 5, 3)}, layout=layout, params={"c_weight": w})
        np.testing.assert_allclose(run(graph, lib, {"c_weight": w}, x=x)[0], plain, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"target": None}, ValueError, "Target is not set"),
        ({"target": "rocm"}, ValueError, "rocm"),
        ({"target_host": "rocm"}, ValueError, "rocm"),
        ({"shape": [(1, 2)]}, TypeError, "require shape to be dict"),
        ({"shape": {"x": 3}}, TypeError, "shape value must be Integer types iterator"),
        ({"shape": {"x": (1.5,)}}, TypeError, "shape value must be Integer types iterator"),
        ({"shape": {"x": "(1,)"}}, TypeError, "shape value must be Integer types iterator"),
        ({"shape": {"x": (-1,)}}, ValueError, "negative"),
        ({"shape": {"q": (1,)}}, KeyError, "'q'"),
        ({"dtype": ["float32"]}, TypeError, "require dtype to be dict"),
        ({"layout": 3}, ValueError, "Input layout must be str or dict"),
        ({"shape": {}}, ValueError, "not known"),
    ],
)
def test_arguments_that_make_no_sense(options, error, match):
    with pytest.raises(error, match=match) as caught:
        weft.compiler.build(sum_of_exp(), **{"shape": {"x": (2,), "y": (2,)}, **options})
    assert isinstance(caught.value, weft.Error)


def test_a_parameter_of_another_dtype():
    params = {"x": np.zeros(2, "float64")}
    with pytest.raises(InvalidValue, match="x: dtype not expected float32 vs float64"):
        weft.compiler.build(sum_of_exp(), "llvm", {"y": (2,)}, params=params)
    with pytest.raises(InvalidType, match="no graph"):
        weft.compiler.build("graph", "llvm")


def test_code_for_another_processor_does_not_run_here():
    graph, lib, _ = weft.compiler.build(sum_of_exp(), "llvm", {"x": (2,), "y": (2,)})
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+neon -vector-bits=128"
    other = weft.runtime.CompiledLibrary(replace(lib.program, target=target))
    with pytest.raises(Unsupported, match="another processor"):
        weft.runtime.create(graph, other)


# Configuration


def test_configurations_nest_and_merge():
    with weft.compiler.build_config(opt_level=3):
        with weft.compiler.build_config(add_pass={"OpFusion"}):
            inner = weft.compiler.BuildConfig.current()
            assert inner.opt_level == 3
            assert inner.pass_enabled("FoldScaleAxis")
        with weft.compiler.build_config(opt_level=0, add_pass=["PrecomputePrune"]):
            inner = weft.compiler.BuildConfig.current()
            assert inner.pass_enabled("PrecomputePrune")
            assert not inner.pass_enabled("OpFusion")
        assert weft.compiler.BuildConfig.current().opt_level == 3
    assert weft.compiler.BuildConfig.current().opt_level == 2


def test_configurations_that_make_no_sense():
    with pytest.raises(ValueError, match="invalid argument level") as caught:
        weft.compiler.build_config(level=3)
    assert "opt_level" in str(caught.value)
    with pytest.raises(NotFound, match="Nonsense"):
        weft.compiler.BuildConfig.current().pass_enabled("Nonsense")
    for level in (-1, 4, "3", None):
        with pytest.raises(weft.Error, match="opt_level"):
            weft.compiler.build_config(opt_level=level)
    with pytest.raises(NotFound, match="Nonsense"):
        weft.compiler.build_config(add_pass=["Nonsense"])


def test_an_added_pass_runs(rng):
    params = {"a": floats(rng, (2,))}
    symbol = sym.Variable("x") + sym.exp(sym.Variable("a"))
    with weft.compiler.build_config(opt_level=0):
        graph, _, kept = weft.compiler.build(symbol, "llvm", {"x": (2,)}, params=params)
        assert list(kept) == ["a"]
    with weft.compiler.build_config(opt_level=0, add_pass=["PrecomputePrune"]):
        graph, _, kept = weft.compiler.build(symbol, "llvm", {"x": (2,)}, params=params)
    assert graph.index.num_nodes == 3
    np.testing.assert_allclose(next(iter(kept.values())).asnumpy(), np.exp(params["a"]), rtol=1e-5)


# The functions beside build


def test_run_graph(rng):
    x, y = floats(rng, (10, 10)), floats(rng, (10, 10))
    symbol = sym.Group([sum_of_exp(), sym.Variable("x") * 2])
    first, second = build_module._run_graph(weft.graph.create(symbol), {"x": x, "y": y})
    np.testing.assert_allclose(first.asnumpy(), np.exp(x + y), rtol=1e-5)
    np.testing.assert_array_equal(second.asnumpy(), x * 2)


def test_precompute_prune(rng):
    a = floats(rng, (4,))
    symbol = sym.Variable("x") + sym.exp(sym.Variable("a"), name="ea")
    graph, params = build_module.precompute_prune(weft.graph.create(symbol), {"a": a})
    assert graph.index.input_names == ["x", "ea"]
    assert list(params) == ["ea"]
    np.testing.assert_allclose(params["ea"].asnumpy(), np.exp(a), rtol=1e-5)
    same, kept = build_module.precompute_prune(weft.graph.create(sum_of_exp()), {"x": a})
    assert same.index.input_names == ["y", "x"]
    np.testing.assert_array_equal(kept["x"].asnumpy(), a)


def test_optimize_follows_the_configuration():
    symbol = sym.relu(sym.batch_norm(sym.Variable("x"), name="bn"))
    made = build_module.optimize(weft.graph.create(symbol), {"x": (2, 3, 4, 4)})
    names = {node["op"] for node in made.index.nodes}
    assert "batch_norm" not in names
    assert "relu" in names
    assert made.json_attr("shape") is not None


def test_initial_values(rng):
    first = np.arange(6, dtype="float32").reshape(2, 3)
    w = sym.Variable("w", init=first)
    t = sym.Variable("t", init=sym.ones_like(w) * 2)
    shapes = {"w": (2, 3)}
    values = build_module.initialize_variables(shapes, "float32")
    np.testing.assert_array_equal(values["w"].asnumpy(), first)
    np.testing.assert_array_equal(values["t"].asnumpy(), np.full((2, 3), 2, "float32"))
    assert list(shapes["t"]) == [2, 3]
    assert not variable_inits
    assert t.list_input_names() == ["t"]


def test_builds_take_the_initial_values_of_their_own_variables():
    w = sym.Variable("w", init=np.array([1, 2], "float32"))
    sym.Variable("w", init=np.array([7, 7], "float32"))  # another one of that name
    t = sym.Variable("t", init=sym.ones_like(w) * 3)
    symbol = w * 2 + t
    for net in (symbol, symbol, symbol.__deepcopy__()):
        graph, lib, params = weft.compiler.build(net, "llvm")
        assert sorted(params) == ["t", "w"]
        assert run(graph, lib, params)[0].tolist() == [5, 7]
        assert run(graph, lib, None)[0].tolist() == [5, 7]


@pytest.mark.parametrize("shape", [None, {"x": (2,)}])
def test_compile_takes_initial_values(shape):
    x, w = sym.Variable("x"), sym.Variable("w", init=np.array([1, 2], "float32"))
    t = sym.Variable("t", init=sym.ones_like(w) * 3)
    model = weft.compile(x * w + t, shape=shape)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert model(np.array([10, 10], "float32"))[0].tolist() == [13, 23]
    other = weft.compile(x * w + t, shape=shape, params={"w": np.array([5, 5], "float32")})
    assert other(np.array([10, 10], "float32"))[0].tolist() == [53, 53]


def test_a_variable_that_nobody_holds_has_no_initial_value():
    sym.Variable("gone", init=np.zeros(3, "float32"))
    gc.collect()
    assert "gone" not in variable_inits


def test_a_given_parameter_wins_over_an_initial_value():
    w = sym.Variable("w", init=np.array([1, 2], "float32"))
    graph, lib, params = weft.compiler.build(w * 2, params={"w": np.array([5, 5], "float32")})
    assert run(graph, lib, params)[0].tolist() == [10, 10]


def test_create_checks_what_it_is_given():
    graph, lib, _ = weft.compiler.build(sum_of_exp(), "llvm", {"x": (2,), "y": (2,)})
    other, _, _ = weft.compiler.build(sym.Variable("q") * 2, "llvm", {"q": (2,)})
    with pytest.raises(GraphError, match="do not belong together"):
        weft.runtime.create(other, lib)
    with pytest.raises(InvalidType, match="lib"):
        weft.runtime.create(graph, "lib")
    with pytest.raises(InvalidType, match="graph"):
        weft.runtime.create(3, lib)
    with pytest.raises(InvalidType, match="ctx"):
        weft.runtime.create(graph, lib, "cpu")


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: weft.compiler.build(x * 2, "llvm", {"x": (2,)}, layout={"zz": "NCHW"}),
        lambda x: weft.compiler.build(x * 2, "llvm", {"x": (2,), "zz": (2,)}),
        lambda x: weft.compiler.build(x * 2, "llvm", {"x": (2,)}, dtype={"zz": "float32"}),
        lambda x: weft.compiler.graph_util.infer_shape(x * 2, zz=(2,)),
        lambda x: weft.compiler.graph_util.infer_dtype(x * 2, zz="float32"),
    ],
)
def test_names_of_no_input_are_refused(ask):
    with pytest.raises(NotFound, match=r"(?s)no input 'zz'.*x"):
        ask(sym.Variable("x"))


def test_questions_about_no_graph():
    x = sym.Variable("x")
    util = weft.compiler.graph_util
    for ask in (
        lambda: util.gradients(3, x),
        lambda: util.gradients(sym.exp(x), 3),
        lambda: util.gradients(sym.exp(x), x, 3),
        lambda: util.infer_shape(3),
        lambda: util.check_graph_equal(x, x),
        lambda: weft.runtime.get_global_func(3),
    ):
        with pytest.raises(InvalidType):
            ask()


def operator_of_test():
    name = fresh_name()
    op = weft.top.Op.register(name)
    op.shape = lambda params, ins, outs: (ins, ins)
    return op


def raising(*args):
    return 1 / 0


def test_an_operator_without_a_shape_rule_is_named():
    op = weft.top.Op.register(fresh_name())
    with pytest.raises(GraphError, match=rf"(?s)operator {op.name} has no shape rule.*node 'n'"):
        weft.compiler.build(op(sym.Variable("x"), name="n"), "llvm", {"x": (2,)})


@pytest.mark.parametrize("column", ["shape", "compute", "gradient", "reference"])
def test_what_a_rule_of_a_user_raises_is_the_cause(column):
    op = operator_of_test() if column != "shape" else weft.top.Op.register(fresh_name())
    setattr(op, column, raising)
    net = op(sym.Variable("x", shape=(2,)), name="n")
    asks = {
        "gradient": lambda: weft.compiler.graph_util.gradients(net, net.list_input_variables()),
        "reference": lambda: evaluate(net, {"x": np.zeros(2, "float32")}),
    }
    with pytest.raises(weft.Error, match=rf"(?s){op.name}.*node 'n'") as caught:
        asks.get(column, lambda: weft.compiler.build(net, "llvm"))()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert frames[-1].name == "raising"


def test_versions_count_the_writes_of_a_graph():
    def net(writes_before):
        w = sym.Variable("w")
        for _ in range(writes_before):
            sym._assign(w, w + 1)
        return weft.graph.create(sym.Group([sym._assign(w, w * 2), w + 3]))

    weft.compiler.graph_util.check_graph_equal(net(0), net(2))
    w = sym.Variable("w")
    early = w + 3
    late = weft.graph.create(sym.Group([sym._assign(w, w * 2), early]))
    with pytest.raises(GraphError, match="inputs differ"):
        weft.compiler.graph_util.check_graph_equal(net(0), late)


class OfMxnet:
    """What live MXNet arrays have: `asnumpy`, and nothing that numpy reads itself."""

    def __init__(self, value):
        self.value = value

    def asnumpy(self):
        return self.value


def test_parameters_that_have_asnumpy_only(rng):
    x, w = floats(rng, (2, 3)), floats(rng, (2, 3))
    product = sym.Variable("x") * sym.Variable("w")
    _, _, kept = weft.compiler.build(product, "llvm", {"x": x.shape}, params={"w": OfMxnet(w)})
    np.testing.assert_array_equal(kept["w"].asnumpy(), w)
    model = weft.compile(product, params={"w": OfMxnet(w)}, shape={"x": x.shape})
    np.testing.assert_allclose(model(x)[0], x * w, rtol=1e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_attributes_that_an_operator_does_not_have_are_ignored(level):
    x = sym.Variable("x", shape=(2,))
    for name, expected in (("ones_like", 1), ("zeros_like", 0)):
        net = getattr(sym, name)(x, fill_value=3, shape=(7,)) + x
        with weft.compiler.build_config(opt_level=level):
            graph, lib, _ = weft.compiler.build(net, "llvm")
        assert run(graph, lib, None, x=np.zeros(2, "float32"))[0].tolist() == [expected] * 2


@pytest.mark.parametrize("level", LEVELS)
def test_a_transposed_convolution_with_any_output_padding(rng, level):
    """What is added lies behind every window, so it is the bias alone."""
    x, params = floats(rng, (1, 2, 3, 3)), {}
    net = sym.conv2d_transpose(
        sym.Variable("x"), channels=4, kernel_size=(2, 2), strides=(2, 2), output_padding=(3, 5), name="c"
    )
    params = {"c_weight": floats(rng, (2, 4, 2, 2)), "c_bias": floats(rng, (4,))}
    with weft.compiler.build_config(opt_level=level):
        graph, lib, kept = weft.compiler.build(net, "llvm", {"x": x.shape}, params=params)
    (made,) = run(graph, lib, kept, x=x)
    expected = np.zeros((1, 4, 9, 11)) + params["c_bias"][:, None, None]
    blocks = np.einsum("nihw,iokl->nohkwl", x, params["c_weight"]).reshape(1, 4, 6, 6)
    expected[:, :, :6, :6] += blocks
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
def test_gradients_by_the_statistics_of_a_batch_norm(rng, level):
    net = sym.batch_norm(sym.Variable("x"), name="b")
    x = floats(rng, (2, 3, 4))
    params = {f"b_{kind}": 1 + floats(rng, (3,)) ** 2 for kind in BATCH_NORM_INPUTS}
    inputs = net.list_input_variables()
    wanted = [inputs["b_moving_mean"], inputs["b_moving_var"]]
    slopes = sym.Group(weft.compiler.graph_util.gradients(sym.sum(net), wanted))
    with weft.compiler.build_config(opt_level=level):
        graph, lib, kept = weft.compiler.build(slopes, "llvm", {"x": x.shape}, params=params)
    by_mean, by_var = run(graph, lib, kept, x=x)
    gamma, mean = params["b_gamma"], params["b_moving_mean"]
    spread = params["b_moving_var"] + 1e-5
    np.testing.assert_allclose(by_mean, -gamma / np.sqrt(spread) * 8, rtol=1e-4)
    centred = (x - mean[:, None]).sum((0, 2))
    np.testing.assert_allclose(by_var, -gamma * centred * spread**-1.5 / 2, rtol=1e-3)
