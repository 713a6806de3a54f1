"""Graphs that write to their variables: order, versions, storage between runs."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.models import LEVELS, floats
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import symbol as sym
from weft.base.errors import GraphError
from weft.compiler.graph_util import gradients
from weft.core.interpret import evaluate, final_values
from weft.runtime.program import TensorSpec


def module_of(symbol, level=2, shape=None):
    with weft.compiler.build_config(opt_level=level):
        graph, lib, _ = weft.compiler.build(symbol, "llvm", shape)
    return weft.runtime.create(graph, lib)


def same_as_reference(symbol, values, level, runs=3, tolerance=1e-5):
    """Runs a module a few times; outputs and variables must be what the interpreter says."""
    module = module_of(symbol, level, {name: value.shape for name, value in values.items()})
    module.set_input(**values)
    state = dict(values)
    for _ in range(runs):
        module.run()
        expected = evaluate(symbol, state)
        state.update(final_values(symbol, state))
        for position, value in enumerate(expected):
            got = module.get_output(position).asnumpy()
            np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance)
        for name, value in state.items():
            got = module.get_input(name).asnumpy()
            np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.fixture
def rng():
    return np.random.default_rng(2)


@pytest.mark.parametrize("level", LEVELS)
def test_a_counter(level):
    t = sym.Variable("t", shape=(1,), dtype="int32")
    module = module_of(sym._assign(t, t + 1), level)
    module.set_input("t", np.array([0], "int32"))
    for step in range(1, 5):
        module.run()
        assert module.get_output(0).asnumpy().tolist() == [step]
        assert module.get_input("t").asnumpy().tolist() == [step]
    module.set_input("t", np.array([40], "int32"))
    module.run()
    assert module.get_output(0).asnumpy().tolist() == [41]


def written_and_read():
    """Reads before, between and after two writes, also through views and as results."""
    w = sym.Variable("w", shape=(2, 3))
    before = sym.reshape(w, shape=(3, 2), name="before")
    alone = w * 1  # becomes the old version itself
    first = sym._assign(w, w * 2, name="first")
    between = sym.flatten(w, name="between")
    second = sym._assign(w, sym.exp(w * 0.1), name="second")
    after = sym.transpose(w, name="after")
    mixed = sym.elemwise_add(sym.elemwise_mul(alone, second), first)
    return sym.Group([after, second, before, w, first, between, mixed, alone])


@pytest.mark.parametrize("level", LEVELS)
def test_versions(rng, level):
    same_as_reference(written_and_read(), {"w": floats(rng, (2, 3))}, level)


@pytest.mark.parametrize("level", LEVELS)
def test_two_variables_that_swap(rng, level):
    a, b = sym.Variable("a", shape=(4,)), sym.Variable("b", shape=(4,))
    kept = a * 1
    symbol = sym.Group([sym._assign(a, b), sym._assign(b, kept)])
    values = {"a": floats(rng, (4,)), "b": floats(rng, (4,))}
    module = module_of(symbol, level)
    module.set_input(**values)
    module.run()
    np.testing.assert_array_equal(module.get_input("a").asnumpy(), values["b"])
    np.testing.assert_array_equal(module.get_input("b").asnumpy(), values["a"])
    same_as_reference(symbol, values, level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_part_of_what_was_composed(rng, level):
    """The graph has the second write and not the first."""
    w = sym.Variable("w", shape=(3,))
    before = sym.exp(w)
    sym._assign(w, w * 100)
    between = sym.tanh(w)
    kept = sym._assign(w, w + 1)
    symbol = sym.Group([kept, between, before, w * 3])
    same_as_reference(symbol, {"w": floats(rng, (3,))}, level)


@pytest.mark.parametrize("level", LEVELS)
def test_the_transpose_of_itself(rng, level):
    w = sym.Variable("w", shape=(5, 5))
    same_as_reference(sym._assign(w, sym.transpose(w)), {"w": floats(rng, (5, 5))}, level)


@pytest.mark.parametrize("level", LEVELS)
def test_batch_norm_in_training_moves_its_statistics(rng, level):
    x = sym.Variable("x", shape=(4, 3, 5, 5))
    y = sym.batch_norm(x, name="bn", training=True, momentum=0.8)
    values = {
        "x": floats(rng, (4, 3, 5, 5)) * 2 + 1,
        "bn_gamma": floats(rng, (3,)),
        "bn_beta": floats(rng, (3,)),
        "bn_moving_mean": np.zeros(3, "float32"),
        "bn_moving_var": np.ones(3, "float32"),
    }
    same_as_reference(sym.relu(y), values, level)
    module = module_of(y, level)
    module.set_input(**values)
    module.run()
    mean = values["x"].mean(axis=(0, 2, 3))
    np.testing.assert_allclose(module.get_input("bn_moving_mean").asnumpy(), 0.2 * mean, rtol=1e-4)


@pytest.mark.parametrize("level", LEVELS)
def test_gradient_descent_learns(rng, level):
    """The whole loop of training in one graph: loss, gradients, updates."""
    x, target = sym.Variable("x", shape=(32, 4)), sym.Variable("target", shape=(32, 1))
    hidden = sym.tanh(sym.dense(x, units=8, name="l1"))
    out = sym.dense(hidden, units=1, name="l2")
    error = sym.elemwise_sub(out, target)
    loss = sym.sum(sym.elemwise_mul(error, error)) * (1 / 32)
    names = ["l1_weight", "l1_bias", "l2_weight", "l2_bias"]
    variables = {v.attr("name"): v for v in loss.list_input_variables()}
    weights = [variables[name] for name in names]
    slopes = gradients(loss, weights)
    updates = [sym._assign(w, w - g * 0.1) for w, g in zip(weights, slopes)]
    module = module_of(sym.Group([loss, *updates]), level)
    shapes = [(8, 4), (8,), (1, 8), (1,)]
    state = {name: floats(rng, shape) * 0.5 for name, shape in zip(names, shapes)}
    data = floats(rng, (32, 4))
    goal = np.sin(data.sum(axis=1, keepdims=True)).astype("float32")
    module.set_input(**state)
    losses = []
    for _ in range(60):
        module.run(x=data, target=goal)
        losses.append(float(module.get_output(0).asnumpy().reshape(())))
    assert losses[-1] < 0.35 * losses[0]
    assert all(np.isfinite(losses))
    expected = evaluate(loss, {**state, "x": data, "target": goal})[0].reshape(())
    np.testing.assert_allclose(losses[0], expected, rtol=1e-4)


@settings(max_examples=40)
@given(st.data(), st.sampled_from(LEVELS))
def test_random_writes_and_reads(data, level):
    """Programs of reads and writes on two variables, against the interpreter."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    variables = [sym.Variable("a", shape=(3,)), sym.Variable("b", shape=(3,))]
    pool = [v * 1 for v in variables]
    for _ in range(data.draw(st.integers(2, 8))):
        variable = variables[data.draw(st.integers(0, 1))]
        value = data.draw(st.sampled_from([*pool, variable]))
        kind = data.draw(st.sampled_from(["write", "read", "mix", "view"]))
        if kind == "write":
            pool.append(sym._assign(variable, sym.tanh(value)))
        elif kind == "read":
            pool.append(variable * 0.5)
        elif kind == "mix":
            pool.append(sym.elemwise_add(variable, value))
        else:
            pool.append(sym.reshape(variable, shape=(3,)))
    chosen = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    symbol = sym.Group(chosen)
    values = {name: floats(rng, (3,)) for name in symbol.list_input_names()}
    same_as_reference(symbol, values, level, runs=2)


def test_an_ambiguous_variable_is_refused():
    w, same = sym.Variable("w", shape=(2,)), sym.Variable("w", shape=(2,))
    with pytest.raises(GraphError, match="2 variables are called 'w'"):
        weft.compiler.build(sym.Group([sym._assign(w, w + 1), same * 2]), "llvm")


def test_arrays_of_the_caller_are_not_written(rng):
    w = sym.Variable("w", shape=(4,))
    with weft.compiler.build_config(opt_level=1):
        graph, lib, _ = weft.compiler.build(sym._assign(w, w + 1), "llvm")
    value = floats(rng, (4,))
    kept = value.copy()
    module = weft.runtime.create(graph, lib)
    module.run(w=value)
    np.testing.assert_array_equal(value, kept)
    assert lib.program.written == ("w",)
    assert lib.program.inputs == (TensorSpec("w", (4,), np.dtype("float32")),)
