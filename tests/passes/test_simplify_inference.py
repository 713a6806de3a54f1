"""SimplifyInference: the exact expansion of batch_norm, and what must stay."""

import numpy as np
import pytest
from passes.graphs import F, Graph, Group, Variable, agree, assert_same, op_names, typed

from weft.base.errors import ShapeError
from weft.core.interpret import evaluate


def expansion(x, gamma, beta, mean, var, eps, axis, rank, *, scale=True, center=True):
    """What a reader of the formula would write down."""
    a = F.__rdiv_scalar__(F.sqrt(F.__add_scalar__(var, scalar=eps)), scalar=1)
    a = F.elemwise_mul(a, gamma) if scale else a
    b = F.elemwise_mul(F.negative(mean), a)
    b = F.elemwise_add(b, beta) if center else b
    after = rank - axis - 1
    if after:
        a = F.expand_dims(a, axis=1, num_newaxis=after)
        b = F.expand_dims(b, axis=1, num_newaxis=after)
    return F.broadcast_add(F.broadcast_mul(x, a), b)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_batch_norm_expands_to_the_golden_sequence(axis, scale, center):
    shape = (2, 3, 4, 5)
    inputs = [Variable(n) for n in ("x", "bn_gamma", "bn_beta", "bn_mean", "bn_var")]
    eps = 1e-5
    attrs = {"axis": axis, "epsilon": eps, "scale": scale, "center": center}
    graph = typed(F.batch_norm(*inputs, name="bn", **attrs)[0], x=shape)
    simple = graph.apply("SimplifyInference")
    expected = expansion(*inputs, eps, axis, 4, scale=scale, center=center)
    for entry in expected.outputs[0].node.inputs:
        assert entry.version == 0
    fresh = [Variable(n.name) for n in (s.outputs[0].node for s in inputs)]
    assert_same(simple, expansion(*fresh, eps, axis, 4, scale=scale, center=center))
    agree(graph, simple)
    assert simple.fact(simple.outputs[0]).shape == shape


def test_names_of_the_expansion():
    graph = typed(F.batch_norm(Variable("x"), name="bn")[0], x=(2, 3, 4, 4))
    nodes = graph.apply("SimplifyInference").indexed.nodes
    found = {node.name: node.op_name for node in nodes if node.op is not None}
    found = {name: op for name, op in found.items() if op != "expand_dims"}
    assert found == {
        "bn_add_eps": "__add_scalar__",
        "bn_sqrt": "sqrt",
        "bn_div": "__rdiv_scalar__",
        "bn_gamma_mul_div": "elemwise_mul",
        "bn_a_mul_data": "broadcast_mul",
        "bn_neg_mean": "negative",
        "bn_neg_mean_mul_a": "elemwise_mul",
        "bn_add_beta": "elemwise_add",
        "bn_out": "broadcast_add",
    }


def test_small_epsilon_keeps_its_value():
    graph = typed(F.batch_norm(Variable("x"), epsilon=1e-9, name="bn")[0], x=(2, 3))
    simple = graph.apply("SimplifyInference")
    (eps,) = [n.params.scalar for n in simple.indexed.nodes if n.op_name == "__add_scalar__"]
    assert eps == 1e-9


def test_moving_averages_are_no_longer_written():
    mean, var = Variable("mean"), Variable("var")
    x = Variable("x")
    first = F.batch_norm(x, Variable("g"), Variable("b"), mean, var, name="one")[0]
    second = F.batch_norm(first, Variable("g2"), Variable("b2"), mean, var, name="two")[0]
    graph = typed(Group([second, mean * 2]), x=(2, 3))
    simple = graph.apply("SimplifyInference")
    assert not simple.indexed.mutable_inputs
    assert all(e.version == 0 for n in simple.indexed.nodes for e in n.inputs)
    agree(graph, simple)


def test_dropout_is_the_identity_and_its_mask_undefined():
    drop = F.dropout(F.exp(Variable("x")), rate=0.4, name="drop")
    graph = typed(F.relu(drop), x=(2, 3))
    assert_same(graph.apply("SimplifyInference"), F.relu(F.exp(Variable("x"))))
    mask = drop.outputs[0]._replace(index=1)
    hidden = Graph([mask], facts=graph.facts).apply("SimplifyInference")
    assert op_names(hidden) == ["__undef__"]


def test_training_stays():
    x = Variable("x")
    symbol = F.batch_norm(x, training=True, name="bn")[0]
    graph = typed(symbol, x=(2, 3))
    assert op_names(graph.apply("SimplifyInference"))[-1] == "batch_norm"
    trained = Graph(F.dropout(Variable("x"), training=True, name="d").outputs)
    assert "dropout" in op_names(trained.apply("SimplifyInference"))


def test_unknown_rank_is_named():
    graph = Graph(F.batch_norm(Variable("x"), name="bn")[0].outputs)
    with pytest.raises(ShapeError, match="'bn'"):
        graph.apply("SimplifyInference")


def test_inference_reads_the_value_before_a_training_step_wrote():
    """A training batch_norm and an inference one share their averages."""
    mean, var = Variable("mean"), Variable("var")
    x, g, b = Variable("x"), Variable("g"), Variable("b")
    idle = F.batch_norm(x, g, b, mean, var, name="idle")[0]
    busy = F.batch_norm(x, g, b, mean, var, training=True, name="busy")[0]
    graph = typed(Group([idle, busy]), x=(4, 3))
    simple = graph.apply("SimplifyInference")
    given = {n: np.random.default_rng(0).uniform(1, 2, (3,)).astype("float32") for n in "gb"}
    given |= {n: np.full(3, 1.5, "float32") for n in ("mean", "var")}
    given["x"] = np.random.default_rng(1).normal(size=(4, 3)).astype("float32")
    wanted = (given["x"] - 1.5) / np.sqrt(1.5 + 1e-5) * given["g"] + given["b"]
    np.testing.assert_allclose(evaluate(simple, given)[0], wanted, rtol=1e-5, atol=1e-6)
    agree(graph, simple, given)
