"""Gradient: names and structure as the original had them, values against finite differences."""

import numpy as np
import pytest
from passes.graphs import F, Graph, Group, Variable, assert_same, names, op_names, typed, values

from weft.base.errors import GraphError, InvalidType, InvalidValue, Unsupported
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.passes.gradient import get_gradient_graph, gradients


def numeric(symbol, given, name, step=1e-4):
    """The gradient of the sum of the outputs by central differences, in float64."""
    base = {key: value.astype("float64") for key, value in given.items()}
    result = np.zeros_like(base[name])
    for index in np.ndindex(result.shape):
        sums = []
        for sign in (1, -1):
            moved = {**base, name: base[name].copy()}
            moved[name][index] += sign * step
            sums.append(sum(float(out.sum()) for out in evaluate(symbol, moved)))
        result[index] = (sums[0] - sums[1]) / (2 * step)
    return result


def check(symbol, *wrt, **shapes):
    given = values(typed(symbol, "float64", **shapes), seed=3)
    for x, grad in zip(wrt, gradients(symbol, list(wrt)), strict=True):
        name = x.attr("name")
        (found,) = evaluate(grad, given)
        np.testing.assert_allclose(found, numeric(symbol, given, name), rtol=1e-5, atol=1e-7)


def test_golden_structure_of_exp_x_times_x():
    x = Variable("x")
    y = F.exp(x) * x
    graph = get_gradient_graph(y, x)
    found = [node for node in graph.indexed.nodes if node.op is not None]
    counts = {}
    for node in found[2:]:  # without exp(x) * x itself
        counts[node.op_name] = counts.get(node.op_name, 0) + 1
    assert counts == {"ones_like": 1, "broadcast_mul": 2, "collapse_sum": 2, "elemwise_mul": 1, "elemwise_sum": 1}
    last = graph.outputs[0].node
    assert (last.op_name, last.name, last.attrs) == ("elemwise_sum", "grad_sum", {"num_args": "2"})
    check(y, x, x=(3,))


def test_golden_names_of_softmax():
    sm = F.softmax(Variable("x"), name="sm")
    found = names(get_gradient_graph(sm, sm.list_input_variables()))
    assert [n for n in found if n.startswith("sm_")] == ["sm_grad_sub0", "sm_grad_sub1", "sm_grad_sub2", "sm_grad"]


def test_golden_name_of_dense():
    x = Variable("x")
    graph = get_gradient_graph(F.dense(x, units=3, name="fc"), x)
    assert graph.symbol.list_output_names() == ["fc_data_grad_output"]


def test_unnamed_inputs_are_numbered():
    a, b = Variable("a"), Variable("b")
    graph = get_gradient_graph(F.elemwise_mul(a, b, name="m"), [a, b])
    assert [entry.node.name for entry in graph.outputs] == ["m_grad_0", "m_grad_1"]


@pytest.mark.parametrize("op", ["sigmoid", "tanh", "exp", "log", "sqrt", "negative", "sin"])
def test_values_of_unary_chains(op):
    x = Variable("x")
    check(getattr(F, op)(F.sqrt(x) + 1), x, x=(2, 3))


def test_values_of_a_shared_and_broadcast_graph():
    x, b = Variable("x"), Variable("b")
    h = F.tanh(x * b)
    check(h * h + F.exp(h) / b + x, x, b, x=(2, 3), b=(3,))


def test_several_outputs_and_given_heads():
    x = Variable("x")
    check(Group([x * x, F.exp(x)]), x, x=(4,))
    head = Variable("head")
    (grad,) = gradients(x * 3, x, grad_ys=head)
    given = {"x": np.ones(2), "head": np.array([2.0, 5.0])}
    assert evaluate(grad, given)[0].tolist() == [6, 15]


def test_with_respect_to_an_inner_value_and_an_output_itself():
    x = Variable("x")
    h = F.exp(x)
    dh, dx = gradients(F.tanh(h), [h, x])
    given = {"x": np.array([0.1, 0.4])}
    hv = np.exp(given["x"])
    np.testing.assert_allclose(evaluate(dh, given)[0], 1 - np.tanh(hv) ** 2)
    np.testing.assert_allclose(evaluate(dx, given)[0], (1 - np.tanh(hv) ** 2) * hv)
    (own,) = gradients(x, x)
    assert evaluate(own, given)[0].tolist() == [1, 1]


def test_zero_gradients():
    x = Variable("x")
    graph = get_gradient_graph(F.block_grad(x) * 2, x)
    assert op_names(graph)[-1] == "zeros_like"
    assert evaluate(graph, {"x": np.ones(3)})[0].tolist() == [0, 0, 0]
    check(F.block_grad(x) * 0 + x * x, x, x=(3,))


def test_nothing_flows_gives_zero_grad():
    nothing = Op.register("nothing_flows_in_gradient_test").set_num_inputs(1)
    if not Op.gradient.contains(nothing):
        nothing.gradient = lambda ctx, g: [None]
    x = Variable("x")
    graph = get_gradient_graph(nothing(x), x)
    assert (graph.outputs[0].node.op_name, graph.outputs[0].node.name) == ("zeros_like", "zero_grad")


def test_unreachable():
    with pytest.raises(GraphError, match="0-th variable"):
        gradients(F.exp(Variable("x")), Variable("y"))


def test_non_differentiable_operators_are_named():
    op = Op.register("no_gradient_in_gradient_test").set_num_inputs(1)
    x = Variable("x")
    with pytest.raises(Unsupported, match="no_gradient_in_gradient_test is non-differentiable"):
        gradients(F.exp(op(x)), x)
    # It does not matter where no x passes through it, nor where only zeros come back.
    y = Variable("y")
    gradients(F.exp(x) * op(y), x)
    gradients(F.block_grad(op(x)) * 2, x)


def test_wrong_rules_are_named():
    op = Op.register("wrong_gradient_in_gradient_test").set_num_inputs(2)
    if not Op.gradient.contains(op):
        op.gradient = lambda ctx, g: [g] if ctx.params.get("few") else [g, 3]
    x, y = Variable("x"), Variable("y")
    with pytest.raises(InvalidValue, match="returned 1 gradients"):
        gradients(op(x, y, few=1), x)
    with pytest.raises(InvalidType, match="gave 3"):
        gradients(op(x, y), x)
    with pytest.raises(InvalidType, match="xs are symbols"):
        gradients(F.exp(x), ["x"])


def test_mirror_recomputes_chosen_nodes():
    x = Variable("x")
    y = F.tanh(F.exp(x, name="e"), name="t")
    attrs = {
        "grad_ys": y.outputs,
        "grad_xs": x.outputs,
        "grad_ys_out_grad": F.ones_like(y).outputs,
        "grad_mirror_fun": lambda node: node.op_name == "exp",
    }
    graph = Graph(y.outputs, attrs).apply("Gradient")
    assert "e_mirror" in names(graph)
    given = {"x": np.array([0.2, 0.3])}
    wanted = (1 - np.tanh(np.exp(given["x"])) ** 2) * np.exp(given["x"])
    np.testing.assert_allclose(evaluate(graph, given)[0], wanted)


def test_aggregation_can_be_replaced():
    x = Variable("x")
    y = x * x
    seen = []

    def first(entries):
        seen.append(len(entries))
        return entries[0]

    attrs = {
        "grad_ys": y.outputs,
        "grad_xs": x.outputs,
        "grad_ys_out_grad": F.ones_like(y).outputs,
        "grad_aggregate_fun": first,
    }
    assert Graph(y.outputs, attrs).apply("Gradient").outputs[0].node.op_name == "collapse_sum"
    assert seen == [2]


def test_results_that_repeat_can_be_copies():
    a, b = Variable("a"), Variable("b")
    y = F.exp(a, name="e") * b
    attrs = {"grad_ys": y.outputs, "grad_xs": Group([a, b, a, a]).outputs, "grad_ys_out_grad": F.ones_like(y).outputs}
    plain = Graph(y.outputs, attrs).apply("Gradient")
    assert len(set(plain.outputs)) == 2
    copied = Graph(y.outputs, {**attrs, "copy_op": "copy"}).apply("Gradient")
    assert [entry.node.name for entry in copied.outputs[2:]] == ["e_grad_1_copy", "e_grad_2_copy"]
    given = {"a": np.array([0.0, 1.0]), "b": np.array([2.0, 3.0])}
    wanted = np.exp(given["a"]) * given["b"]
    for index in (0, 2, 3):
        np.testing.assert_allclose(evaluate(copied, given)[index], wanted)


def test_typed_graphs_stay_typed_and_know_their_sources():
    x = Variable("x")
    y = F.exp(x, name="e")
    graph = typed(y, x=(2, 3))
    graph.attrs.update(grad_ys=y.outputs, grad_xs=x.outputs, grad_ys_out_grad=F.ones_like(y).outputs)
    made = graph.apply("Gradient")
    assert made.fact(made.outputs[0])[:2] == ((2, 3), np.dtype("float32"))
    assert [n.name for n in made.sources[made.outputs[0].node]] == ["e"]


def test_across_a_mutation_is_refused():
    w = Variable("w")
    update = F._assign(w, w + 1)
    with pytest.raises(Unsupported, match="mutation"):
        gradients([update, w * 2], w, grad_ys=[F.zeros_like(update), F.ones_like(w)])
    # A write that is no part of the outputs is none of their business.
    (grad,) = gradients(w * 2, w, grad_ys=Variable("g"))
    assert evaluate(grad, {"g": np.array([3.0])})[0].tolist() == [6]


def test_an_inference_batch_norm_writes_nothing():
    x = Variable("x")
    y = F.batch_norm(x, name="bn")[0]
    grads = gradients(y, y.list_input_variables())
    given = values(typed(y, "float64", x=(2, 3)))
    for name, grad in zip(y.list_input_names(), grads, strict=True):
        found = evaluate(grad, given)[0]
        np.testing.assert_allclose(found, numeric(y, given, name), rtol=1e-5, atol=1e-7)


def test_gradient_of_a_gradient():
    x = Variable("x")
    (once,) = gradients(F.exp(x) * x, x)
    (twice,) = gradients(once, x)
    given = {"x": np.array([0.5, 1.5])}
    wanted = np.exp(given["x"]) * (given["x"] + 2)
    np.testing.assert_allclose(evaluate(twice, given)[0], wanted)


def test_simple_structure():
    x, g = Variable("x"), Variable("g")
    (grad,) = gradients(F.exp(x), x, grad_ys=g)
    assert_same(Graph(grad.outputs), F.elemwise_mul(Variable("g"), F.exp(Variable("x"))))
