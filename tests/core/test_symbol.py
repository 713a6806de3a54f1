"""Symbols: composition and its errors, structure, attributes, versions, operators, copies."""

import copy

import numpy as np
import pytest
from core.core_ops import add, assign, fresh, linear, parts, relu, scale, total

import weft.ops  # noqa: F401  (registers the roles of + - * /)
from weft.base.errors import Error, GraphError, InvalidType, InvalidValue, NotFound, OutOfRange
from weft.core.graph import Graph
from weft.core.naming import NameManager
from weft.core.op import Op
from weft.core.symbol import Group, Symbol, Variable, variable_inits


class Traced(Symbol):
    __slots__ = ()


@pytest.fixture
def x():
    return Variable("x")


# Variables and groups


def test_variable():
    v = Variable("v", shape=(1, 2), dtype=0)
    assert v.list_attr() == {"shape": "(1, 2)", "dtype": "0"}
    assert v.attr("op_name") == "null"
    assert v.list_output_names() == v.list_input_names() == ["v"]
    assert Variable("v", dtype="int8").attr("dtype") == "5"
    assert Variable("v", dtype=np.float64).attr("dtype") == "1"


def test_variable_takes_a_str_name():
    with pytest.raises(InvalidType, match="must be a str"):
        Variable(3)


def test_variable_init():
    value = np.ones(3)
    try:
        Variable("init_of_test", init=value)
        assert variable_inits["init_of_test"] is value
    finally:
        variable_inits.pop("init_of_test")
    with pytest.raises(InvalidType, match="Symbol or a numpy array"):
        Variable("v", init=[1])


def test_group(x):
    y = parts()(x, parts=2, name="p")
    group = Group([y, x])
    assert group.list_output_names() == ["p_output0", "p_output1", "x"]
    assert len(group) == 3
    assert len(Group([])) == 0
    with pytest.raises(InvalidType, match="Group takes Symbols"):
        Group([x, 1])


# Composition


def test_positional(x):
    y = add()(x, relu()(x, name="r"), name="a")
    assert [e.node.name for e in y.outputs[0].node.inputs] == ["x", "r"]


def test_missing_inputs_become_variables_with_a_copy_of_the_attributes(x):
    y = linear()(x, factor=3, name="fc")
    assert y.list_input_names() == ["x", "fc_weight", "fc_bias"]
    assert y.list_attr(recursive=True) == {"fc$factor": "3", "fc_weight$factor": "3", "fc_bias$factor": "3"}
    assert relu()(name="r").list_input_names() == ["r_data"]
    assert total()(name="c").list_input_names() == []


def test_keywords(x):
    y = linear()(weight=x, name="fc")
    assert y.list_input_names() == ["fc_data", "x", "fc_bias"]
    y = linear()(data=x, bias=None, name="fc")
    assert y.list_input_names() == ["x", "fc_weight", "fc_bias"]
    assert y.list_attr() == {}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda x: relu()(x, x), InvalidValue, "takes 1 inputs, 2 were given"),
        (lambda x: add()(x), InvalidValue, "not enough inputs for operator t_add"),
        (lambda x: add()(lhs=x), InvalidValue, "not enough inputs"),
        (lambda x: linear()(wait=x), NotFound, "no open input 'wait'"),
        (lambda x: linear()(x, weight=x), InvalidType, "by position or by keyword, not both"),
        (lambda x: total()(a=x), InvalidValue, "takes no keyword inputs"),
        (lambda x: relu()(3), InvalidType, "argument 0 of t_relu must be a Symbol, not int"),
        (lambda x: relu()(Group([x, x])), InvalidValue, "has 2 outputs"),
        (lambda x: relu()(data=Group([])), InvalidValue, "argument data of t_relu has 0 outputs"),
        (lambda x: scale()(x, factr=1), InvalidValue, "unknown attribute 'factr'"),
        (lambda x: scale()(x, factor=11), InvalidValue, "within"),
        (lambda x: parts()(x), InvalidValue, "required attribute 'parts'"),
        (lambda x: relu()(x)(x), InvalidType, "by keyword only"),
        (lambda x: relu()(x)(y=x), NotFound, "has no variable 'y'"),
        (lambda x: relu()(x)(x=3), InvalidType, "must be a Symbol"),
        (lambda x: relu()(x)(x=Group([x, x])), InvalidValue, "2 outputs"),
        (lambda x: relu()(x)(x, x=x), InvalidType, "not both"),
        (lambda x: assign()(relu()(x), x), GraphError, "no variable"),
        (lambda x: relu()(x)(x=x, name=3), InvalidType, "name must be a str"),
    ],
)
def test_errors_of_composition(x, call, error, match):
    with pytest.raises(error, match=match):
        call(x)


def test_errors_name_the_node(x):
    with pytest.raises(Error, match="node 'mine'"):
        relu()(x, x, name="mine")


def test_atomic_symbol_composes_later_and_stays_untouched(x):
    atom = total()(name="t")
    y = atom(x, x, name="u")
    assert (y.attr("name"), atom.attr("name")) == ("u", "t")
    assert (y.list_input_names(), atom.list_input_names()) == (["x"], [])


def test_general_composition_replaces_variables_in_a_copy(x):
    net = relu()(add()(x, Variable("y"), name="a"), name="r")
    made = net(y=scale()(Variable("z"), name="s"), name="top")
    assert made.list_input_names() == ["x", "z"]
    assert net.list_input_names() == ["x", "y"]
    assert (made.attr("name"), net.attr("name")) == ("top", "r")
    assert made.get_internals().list_output_names() == ["x", "z", "s_output", "a_output", "top_output"]


def test_grouped_outputs_that_are_variables_are_replaced_too(x):
    made = Group([x, relu()(x, name="r")])(x=Variable("u"))
    assert made.list_output_names() == ["u", "r_output"]
    assert made.list_input_names() == ["u"]


def test_composition_never_renames_an_argument(x):
    u = Variable("u")
    with pytest.raises(InvalidValue, match="cannot name the output"):
        x(x=u, name="other")
    assert u.attr("name") == "u"


def test_a_replacement_may_contain_a_variable_of_the_replaced_name(x):
    made = relu()(x, name="r")(x=relu()(Variable("x"), name="s"))
    assert made.get_internals().list_output_names() == ["x", "s_output", "r_output"]


def test_classes_of_symbols_are_kept():
    traced = Traced(Variable("x").outputs)
    for made in (relu()(traced), traced + traced, 2 * traced, traced[0], copy.deepcopy(traced)):
        assert type(made) is Traced
    assert type(Group([traced])) is Traced


def test_none_of_these_is_a_name_collision(x):
    assert [relu()(x, name="same").attr("name") for _ in range(2)] == ["same", "same"]


# Versions of mutated variables


def test_versions_as_nnvm_saves_them():
    w = Variable("w")
    with NameManager():
        a = assign()(w, w + 1)
        b = w * 2
    index = Graph(Group([a, b]).outputs).index
    inputs = {node["name"]: node["inputs"] for node in index.nodes}
    assert inputs["t_assign0"] == [[0, 0, 1], [1, 0, 0]]
    assert inputs["__mul_scalar__0"] == [[0, 0, 1]]


def test_a_node_that_reads_what_it_mutates_reads_the_version_before():
    w = Variable("w")
    node = assign()(w, w).outputs[0].node
    assert [entry.version for entry in node.inputs] == [1, 0]


def test_a_failed_mutation_leaves_the_version():
    op = fresh().set_num_inputs(2)
    op.mutates = [0, 1]
    w = Variable("w")
    with pytest.raises(GraphError, match="no variable"):
        op(w, relu()(Variable("x")))
    assert w.outputs[0].node.params.version == 0


def test_replaced_variables_keep_the_order_of_mutations():
    v, u = Variable("v"), Variable("u")
    before = relu()(v, name="before")
    a = assign()(v, before, name="a")
    after = relu()(v, name="after")
    made = Group([before, a, after])(v=u)
    nodes = {e.node.name: e.node for e in made.outputs}
    versions = {name: node.inputs[0].version for name, node in nodes.items()}
    assert versions == {"before": 0, "a": 1, "after": 1}
    assert u.outputs[0].node.params.version == 1
    with pytest.raises(GraphError, match="no variable"):
        Group([a, after])(v=relu()(u))


def test_auxiliary_states_are_what_is_mutated(x):
    w = Variable("w")
    y = add()(assign()(w, x), Variable("z"))
    assert y.list_input_names() == ["w", "x", "z"]
    assert y.list_input_names("aux_state") == ["w"]
    assert y.list_input_names("read_only") == ["x", "z"]
    assert y.list_input_variables("aux_state").list_output_names() == ["w"]
    with pytest.raises(InvalidValue, match="unknown kind of inputs 'auxiliary'"):
        y.list_input_names("auxiliary")


def test_on_compose_sees_variables_only(x):
    seen = []
    op = fresh().set_num_inputs(2)
    op.on_compose = lambda attrs, variable, index: seen.append((variable.name, index))
    op(relu()(x), x)
    assert seen == [("x", 1)]


# Structure


def test_outputs_by_position_and_name(x):
    y = parts()(x, parts=3, name="p")
    assert y[1].list_output_names() == ["p_output1"]
    assert y["p_output2"].outputs == [y.outputs[2]]
    assert [part.list_output_names()[0] for part in y] == ["p_output0", "p_output1", "p_output2"]
    for index in (-1, 3):
        with pytest.raises(OutOfRange, match=f"output {index} of a symbol with 3"):
            y[index]
    with pytest.raises(InvalidValue, match="cannot find an output with name 'q'"):
        y["q"]
    with pytest.raises(InvalidValue, match="multiple outputs"):
        Group([x, x])["x"]
    with pytest.raises(InvalidType, match="indexed by"):
        y[1.5]


def test_output_names():
    op = fresh("named").set_num_outputs(2)
    op.output_names = ["mean", "var"]
    assert op(Variable("x"), name="n").list_output_names() == ["n_mean", "n_var"]
    assert relu()(Variable("x"), name="n").list_output_names() == ["n_output"]


def test_hidden_outputs_are_not_seen(x):
    op = fresh("hides").set_num_outputs(3)
    op.visible_outputs = 1
    y = op(x, name="h")
    assert len(y) == 1
    assert y.get_internals().list_output_names() == ["x", "h_output0"]
    assert Graph(y.outputs).index.entry_ptr == [0, 1, 4]


def test_order_is_inputs_from_left_to_right_then_control_dependencies(x):
    late, early = relu()(Variable("c"), name="c1"), relu()(Variable("b"), name="b1")
    y = add()(early, x, name="y")
    y._add_control_deps([late])
    names = y.get_internals().list_output_names()
    assert names == ["b", "b1_output", "x", "c", "c1_output", "y_output"]


def test_children(x):
    z = Variable("z")
    y = Group([add()(x, z), relu()(z)])
    assert y.get_children().list_output_names() == ["x", "z", "z"]
    assert x.get_children() is None
    assert Group([]).get_children() is None


def test_control_dependencies(x):
    a, b = relu()(x, name="a"), relu()(x, name="b")
    a._add_control_deps(b)
    assert a.outputs[0].node.control_deps == [b.outputs[0].node]
    with pytest.raises(InvalidType):
        a._add_control_deps([3])
    with pytest.raises(GraphError, match="wait for itself"):
        a._add_control_deps(a)
    with pytest.raises(InvalidValue, match="of a group"):
        Group([a, b])._add_control_deps(x)
    b._add_control_deps(a)
    with pytest.raises(GraphError, match="cycle"):
        a.list_input_names()


# Attributes


def test_attr(x):
    y = parts()(x, parts=2, name="p")
    assert (y.attr("name"), y.attr("op_name"), y.attr("_value_index")) == ("p", "t_parts", "0, 1")
    assert (y.attr("parts"), y.attr("absent")) == ("2", None)
    assert Group([x, y]).attr("name") is None
    assert Group([]).list_attr() == {}


def test_set_attr_parses_again_and_renames(x):
    y = scale()(x, name="s")
    y._set_attr(factor=3, name="t")
    assert (y.attr("name"), y.attr("factor"), y.outputs[0].node.params.factor) == ("t", "3", 3.0)
    with pytest.raises(InvalidValue, match="'factor' cannot be"):
        y._set_attr(factor="x")
    assert y.attr("factor") == "3"
    with pytest.raises(InvalidValue, match="of a group"):
        Group([x, y])._set_attr(a="b")
    with pytest.raises(InvalidType, match="name must be a str"):
        y._set_attr(name=5)


def test_debug_str(x):
    assert x.debug_str() == "Variable:x\n"
    assert total()(name="t").debug_str() == "AtomicFunctor  Op:t_total\n"
    y = scale()(x, factor=3, name="s")
    y._add_control_deps(relu()(Variable("z"), name="r"))
    assert y.debug_str() == (
        "Symbol Outputs:\n\toutput[0]=s(0)\nVariable:x\nVariable:z\n--------------------\n"
        "Op:t_relu, Name=r\nInputs:\n\targ[0]=z(0) version=0\n--------------------\n"
        "Op:t_scale, Name=s\nInputs:\n\targ[0]=x(0) version=0\nAttrs:\n\tfactor=3\n"
        "Control deps:\n\tcdep[0]=r\n"
    )


def test_repr(x):
    assert repr(relu()(x, name="r")) == "<Symbol r>"
    assert repr(Group([x, x])) == "<Symbol group of 2: x, x>"
    assert repr(Group([x] * 4)) == "<Symbol group of 4: x, x, x, x>"
    assert repr(Group([x] * 5)) == "<Symbol group of 5: x, x, x, x, x>"
    assert repr(Group([x] * 6)) == "<Symbol group of 6: x, x, x, x, x, ...>"
    assert repr(Group([])) == "<Symbol group of 0>"


# Operators

OPERATORS = [
    (lambda x, y: x + y, "broadcast_add", None),
    (lambda x, y: x - y, "broadcast_sub", None),
    (lambda x, y: x * y, "broadcast_mul", None),
    (lambda x, y: x / y, "broadcast_div", None),
    (lambda x, y: x**y, "broadcast_pow", None),
    (lambda x, y: x + 2, "__add_scalar__", "2"),
    (lambda x, y: 2 + x, "__add_scalar__", "2"),
    (lambda x, y: x - 0.5, "__sub_scalar__", "0.5"),
    (lambda x, y: 1 - x, "__rsub_scalar__", "1"),
    (lambda x, y: x * np.float32(2), "__mul_scalar__", "2.0"),
    (lambda x, y: np.float64(2) * x, "__mul_scalar__", "2.0"),
    (lambda x, y: x / 3, "__div_scalar__", "3"),
    (lambda x, y: 3 / x, "__rdiv_scalar__", "3"),
    (lambda x, y: x**2, "__pow_scalar__", "2"),
    (lambda x, y: 2**x, "__rpow_scalar__", "2"),
    (lambda x, y: x << 1, "__lshift_scalar__", "1"),
    (lambda x, y: x >> 1, "__rshift_scalar__", "1"),
    (lambda x, y: -x, "__mul_scalar__", "-1.0"),
]


@pytest.mark.parametrize(("make", "op", "scalar"), OPERATORS, ids=[f"{o[1]}" for o in OPERATORS])
def test_operators(x, make, op, scalar):
    made = make(x, Variable("y"))
    assert made.outputs[0].node.op is Op.get(op)
    assert made.attr("scalar") == scalar


def test_operators_name_their_nodes_as_nnvm_did(x):
    with NameManager():
        assert (x + x).attr("name") == "__add_symbol__0"
        assert (1 - x).attr("name") == "__rsub_scalar__0"


@pytest.mark.parametrize("other", ["text", None, [1], np.ones(2)])
def test_operators_on_other_types(x, other):
    for make in (lambda: x + other, lambda: other - x, lambda: x**other, lambda: x << other):
        with pytest.raises(InvalidType, match=r"type .* not supported"):
            make()


def test_equality_is_identity(x):
    assert x == x
    assert x != Variable("x")
    assert len({x, Variable("x")}) == 2


# Copies


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
def test_copies_share_no_node_and_keep_everything(x, copying):
    w = Variable("w")
    y = Group([assign()(w, x), scale()(w, factor=3, name="s")])
    y[1]._add_control_deps(y[0])
    made = copying(y)
    old = {e.node for e in y.get_internals().outputs}
    new = {e.node for e in made.get_internals().outputs}
    assert not old & new
    assert Graph(made.outputs).json() == Graph(y.outputs).json()
    made[1]._set_attr(factor=4)
    assert y[1].attr("factor") == "3"
    assign()(made.list_input_variables("aux_state"), Variable("q"))
    assert w.outputs[0].node.params.version == 1
