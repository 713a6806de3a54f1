"""A script written for NNVM runs after renaming the import, and gives what NNVM gave."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import weft as nnvm
import weft.symbol as sym
from weft import te
from weft.compiler import graph_attr, graph_util
from weft.te import transform
from weft.te.loops import For, Store
from weft.top import registry


@pytest.fixture(autouse=True)
def fresh_names():
    with nnvm.name.NameManager():
        yield


def conv_net():
    x = sym.Variable("data")
    with nnvm.name.Prefix("stage1_"):
        y = sym.conv2d(x, name="conv", channels=8, kernel_size=(3, 3), padding=(1, 1))
        y = sym.relu(y)
    y = sym.max_pool2d(y, pool_size=(2, 2), strides=(2, 2), name="pool")
    return sym.dense(sym.flatten(y, name="flat"), units=10, name="fc")


def test_modules_and_names():
    assert nnvm.sym is nnvm.symbol
    assert issubclass(nnvm.NNVMError, Exception)
    assert sym.relu.__name__ == "relu"
    assert "Parameters" in sym.dense.__doc__
    for name in ("elemwise_add", "__add_scalar__", "conv2d", "Variable", "Group", "Symbol"):
        assert hasattr(sym, name)
    assert nnvm._symbol_internal.__add_scalar__ is sym.__add_scalar__
    with pytest.raises(AttributeError, match="no operator of that name"):
        sym.no_such_operator


def test_symbols():
    net = conv_net()
    assert net.list_input_names() == ["data", "stage1_conv_weight", "stage1_conv_bias", "fc_weight", "fc_bias"]
    assert net.list_output_names() == ["fc_output"]
    assert "stage1_relu0_output" in net.get_internals().list_output_names()
    assert net.attr("units") == "10"


def test_shapes_and_dtypes():
    inputs, outputs = graph_util.infer_shape(nnvm.graph.create(conv_net()), data=(2, 3, 8, 8))
    assert inputs == [[2, 3, 8, 8], [8, 3, 3, 3], [8], [10, 128], [10]]
    assert outputs == [[2, 10]]
    graph = nnvm.graph.create(conv_net())
    assert graph_util.infer_dtype(graph, data="float32") == (["float32"] * 5, ["float32"])
    x = sym.Variable("x")
    assert graph_util.infer_shape(nnvm.graph.create(sym.relu(x))) == ([[]], [[]])
    assert graph_util.infer_dtype(nnvm.graph.create(sym.relu(x))) == ([None], [None])


def test_passes_attributes_and_json():
    graph = nnvm.graph.create(conv_net())
    graph = graph_attr.set_shape_inputs(graph, {"data": (2, 3, 8, 8)})
    graph = graph_attr.set_dtype_inputs(graph, "float32")
    graph = graph.apply(["InferShape", "InferType"])
    assert graph.json_attr("shape_num_unknown_nodes") == 0
    shapes, index = graph.json_attr("shape"), graph.index
    assert shapes[index.entry_id("pool")] == [2, 8, 4, 4]
    assert graph.json_attr("dtype") == [0] * index.num_node_entries
    graph._set_json_attr("version", "0.1.0")
    again = nnvm.graph.load_json(graph.json())
    assert again.json() == graph.json()
    assert again.json_attr("version") == "0.1.0"
    data = json.loads(graph.apply("SaveJSON").json_attr("json"))
    assert data["nodes"][0] == {"op": "null", "name": "data", "inputs": []}
    with pytest.raises(nnvm.NNVMError, match="NoSuchPass"):
        graph.apply("NoSuchPass")


def test_ir_of_split_of_relu():
    x = sym.Variable("x")
    graph = nnvm.graph.create(sym.split(sym.relu(x), indices_or_sections=2, axis=1))
    graph = graph_attr.set_shape_inputs(graph, {"x": (4, 2)}).apply("InferShape")
    lines = graph.ir(join_entry_attrs=["shape"]).splitlines()
    assert lines[1:3] == ["  %x, shape=[4,2]", "  %1 = relu(%x), shape=[4,2]"]
    assert lines[3].startswith("  %2 = split(%1, indices_or_sections='2'")
    assert lines[3].endswith("shape=[[4,1], [4,1]]")
    assert lines[4] == "  ret %2.0, %2.1"
    assert lines[6].startswith("graph_attr_keys = [")


def test_attributes_as_nnvm_kept_them():
    x = sym.Variable("x")
    fc = sym.dense(x, units=3, name="fc")
    assert fc.list_attr(recursive=True) == dict.fromkeys(["fc$units", "fc_weight$units", "fc_bias$units"], "3")
    assert sym.dense(x, units=3, use_bias=False, name="d").attr("use_bias") == "False"
    assert (-x).attr("scalar") == "-1.0"
    assert (1 - x).attr("scalar") == "1"
    assert sym.relu(name="r").list_input_names() == ["r_data"]
    assert sym.concatenate(name="c").list_input_names() == []
    assert sym.zeros(shape=(1,)).debug_str() == "AtomicFunctor  Op:zeros\n"
    shapes = graph_util.infer_shape(nnvm.graph.create(sym.reshape(shape=(2, 2))))
    assert shapes == ([[2, 2]], [[2, 2]])


def test_scopes():
    with nnvm.attribute.AttrScope(__ctx_group__="dev1"):
        y = sym.relu(sym.Variable("x"))
    assert y.list_attr(recursive=True) == {"x$__ctx_group__": "dev1", "relu0$__ctx_group__": "dev1"}


def test_mutation():
    w = sym.Variable("w")
    graph = nnvm.graph.create(sym.Group([sym._assign(w, w + 1), w * 2])).apply("OrderMutation")
    text = graph.ir()
    assert "%2 = _assign(%w, %1), control_deps=[%1]" in text
    assert "%3 = __mul_scalar__(%w, scalar='2'), control_deps=[%2]" in text


def test_types():
    x = sym.Variable("x")
    infer = graph_util.infer_dtype
    assert infer(nnvm.graph.create(sym.argmax(x, axis=1)), x="float32")[1] == ["int32"]
    both = nnvm.graph.create(sym.greater(x, sym.Variable("y")))
    assert infer(both, x="int32") == (["int32", None], ["float32"])


def test_graph_equality():
    x, y = sym.Variable("x"), sym.Variable("y")
    create, equal = nnvm.graph.create, graph_util.check_graph_equal
    equal(create(sym.relu(x) + 1), create(sym.relu(y, name="other") + 1))
    for other in (sym.relu(x) + 2, sym.exp(x) + 1, sym.relu(sym.relu(x)) + 1, sym.relu(x) + x):
        with pytest.raises(ValueError, match="Graph compare error"):
            equal(create(sym.relu(x) + 1), create(other))


def test_gradients():
    x = sym.Variable("x")
    (gradient,) = graph_util.gradients(sym.exp(x) * x, [x])
    ops = [node.op_name for node in nnvm.graph.create(gradient).indexed.nodes]
    assert ops.count("elemwise_sum") == 1


def test_an_operator_of_the_user():
    op = nnvm.Op.register("t_user_cube").describe("x cubed").set_num_inputs(1)
    op.shape = nnvm.Op.get("relu").shape
    registry.register_pattern("t_user_cube", registry.OpPattern.ELEM_WISE)

    @registry.register_compute("t_user_cube")
    def compute(attrs, inputs, out_info):
        return inputs[0]

    cube = sym.t_user_cube(sym.Variable("x"), name="c")
    assert graph_util.infer_shape(nnvm.graph.create(cube), x=(2,)) == ([[2]], [[2]])
    assert sym.t_user_cube.__doc__.startswith("x cubed")
    assert op.pattern == 0


def test_a_compute_of_the_user_sees_attributes():
    """Also those of an operator that declares none."""
    op = nnvm.Op.register("t_user_scale").set_num_inputs(1)
    op.shape = nnvm.Op.get("relu").shape

    @registry.register_compute("t_user_scale")
    def compute(attrs, inputs, out_info):
        factor, (x,) = attrs.get_float("factor"), inputs
        return te.compute(x.shape, lambda *i: x[i] * te.const(factor, x.dtype))

    x = sym.Variable("x", shape=(3,))
    both = sym.Group([sym.t_user_scale(x, factor=2), sym.t_user_scale(x, factor=-0.5)])
    graph, lib, _ = nnvm.compiler.build(both, "llvm")
    module = nnvm.runtime.create(graph, lib)
    module.run(x=np.array([1, 2, 3], "float32"))
    assert module.get_output(0).asnumpy().tolist() == [2, 4, 6]
    assert module.get_output(1).asnumpy().tolist() == [-0.5, -1, -1.5]


def ran(output, **inputs):
    graph, lib, _ = nnvm.compiler.build(output, "llvm")
    module = nnvm.runtime.create(graph, lib)
    module.run(**inputs)
    return module.get_output(0).asnumpy()


def test_a_compute_that_is_replaced_is_not_used_again():
    op = nnvm.Op.register("t_user_replaced").set_num_inputs(1)
    op.shape = nnvm.Op.get("relu").shape
    for level, factor in ((10, 2), (11, 3)):
        rule = lambda attrs, ins, _, by=factor: te.compute(ins[0].shape, lambda *i: ins[0][i] * by)
        registry.register_compute("t_user_replaced", rule, level)
        out = ran(sym.t_user_replaced(sym.Variable("x", shape=(2,))), x=np.array([1, 5], "float32"))
        assert out.tolist() == [factor, 5 * factor]


def user_sums(name):
    """An operator that sums rows of a matrix."""
    op = nnvm.Op.register(name).set_num_inputs(1)
    op.shape = lambda params, ins, outs: ([None], [ins[0][:1]])
    registry.register_pattern(name, registry.OpPattern.OUT_ELEMWISE_FUSABLE)

    @registry.register_compute(name)
    def compute(attrs, inputs, out_info):
        (x,), k = inputs, te.reduce_axis(inputs[0].shape[1])
        return te.compute(x.shape[:1], lambda row: te.sum(x[row, k.var], k))


def test_a_schedule_of_the_user():
    """It gets the plain loops of a group that the operator is the master of; what it gives is what runs."""
    user_sums("t_user_sums")
    seen = []

    @registry.register_schedule("t_user_sums")
    def schedule(attrs, kernel, target):
        seen.append((attrs["axis"], te.show(kernel)))
        row = te.Var("row")
        sevens = Store(kernel.buffers[-1], (row,), te.const(7, "float32"))
        return replace(kernel, body=For(row, te.as_expr(8), sevens))

    x = np.arange(24, dtype="float32").reshape(8, 3)
    sums = sym.t_user_sums(sym.Variable("x", shape=x.shape), axis=1)
    assert ran(sym.exp(sums), x=x).tolist() == [7] * 8
    ((axis, plain),) = seen
    assert axis == "1"
    assert all(part in plain for part in ("in 0..8:", "in 0..3:", "exp("))


def test_a_schedule_keeps_the_meaning():
    user_sums("t_user_tiles")
    registry.register_schedule("t_user_tiles", lambda attrs, kernel, target: tiles(kernel))

    def tiles(kernel):
        return transform.over_threads(replace(kernel, body=transform.split(kernel.body, kernel.body.var, 4, "unroll")))

    x = np.random.default_rng(0).normal(size=(10, 7)).astype("float32")
    out = ran(sym.relu(sym.t_user_tiles(sym.Variable("x", shape=x.shape))), x=x)
    np.testing.assert_allclose(out, np.maximum(x.sum(1), 0), rtol=1e-5, atol=1e-6)
    x = te.KernelBuilder("empty")
    with pytest.raises(ValueError, match="its body is no loop"):
        transform.over_threads(x.finish())


def test_a_schedule_that_gives_no_kernel():
    user_sums("t_user_nothing")
    registry.register_schedule("t_user_nothing", lambda attrs, kernel, target: None)
    with pytest.raises(ValueError, match="the schedule of operator t_user_nothing gives None"):
        ran(sym.t_user_nothing(sym.Variable("x", shape=(2, 2))), x=np.ones((2, 2), "float32"))


def test_attr_dict():
    attrs = registry.AttrDict({"i": "3", "f": "0.5", "b": "True", "t": "[1, 2]", "p": "((1,2),)"})
    assert (attrs["i"], attrs["none"], attrs.keys()) == ("3", None, ["i", "f", "b", "t", "p"])
    assert (attrs.get_int("i"), attrs.get_float("f"), attrs.get_bool("b")) == (3, 0.5, True)
    assert (attrs.get_int_tuple("t"), attrs.get_float_tuple("t")) == ((1, 2), (1.0, 2.0))
    assert (attrs.get_int_pair_tuple("p"), attrs.get_str("i")) == (((1, 2),), "3")
    for bad in (lambda: attrs.get_bool("i"), lambda: attrs.get_int("f"), lambda: attrs.get_str("q")):
        with pytest.raises(ValueError, match="cannot be read"):
            bad()


def test_layout_inputs():
    graph = nnvm.graph.create(conv_net())
    graph_attr.set_layout_inputs(graph, {"data": "NHWC"})
    assert graph.json_attr("layout_inputs") == ["NHWC", *["__undef__"] * 4]
    assert graph_attr.DTYPE_TO_TCODE["int16"] == 7
    assert graph_attr.TCODE_TO_DTYPE[-1] is None


def test_variables_with_values():
    variable = sym.Variable("t_initialised", init=np.ones(2))
    assert variable.list_input_names() == ["t_initialised"]
    assert sym._all_var_init.pop("t_initialised").tolist() == [1, 1]


def test_moving_a_graph_out_of_an_attribute():
    x = sym.Variable("x")
    inner = nnvm.graph.create(sym.relu(x))
    graph = nnvm.graph.create(x)
    graph.attrs["part"] = inner
    move = nnvm.runtime.get_global_func("nnvm.graph._move_graph")
    assert move(graph, "part") is inner
    assert move(graph, "part") is None
    graph.attrs["part"] = 3
    with pytest.raises(TypeError, match="not a Graph"):
        move(graph, "part")


def test_global_functions():
    @nnvm.runtime.register_func("t.twice", override=True)
    def twice(value):
        return 2 * value

    assert nnvm.runtime.get_global_func("t.twice")(4) == 8
    assert "t.twice" in nnvm.runtime.list_global_func_names()
    with pytest.raises(ValueError, match="already registered"):
        nnvm.runtime.register_func("t.twice", twice)
    with pytest.raises(KeyError, match=r"did you mean 't\.twice'"):
        nnvm.runtime.get_global_func("t.twicer")
    assert nnvm.runtime.get_global_func("t.none", allow_missing=True) is None
    for bad in (3, None):
        with pytest.raises(TypeError):
            nnvm.runtime.register_func(bad)
    with pytest.raises(TypeError, match="not callable"):
        nnvm.runtime.register_func("t.bad", 3)


def test_operators_are_there_whichever_name_is_used_first():
    code = "import weft; print(len(weft.list_ops()) > 100, weft.Op.get('relu').name)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "relu"]
