"""GraphCompile by name: NNVM's passes one after the other, down to something that runs."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.models import agree, convolutional, floats

import weft
from weft import symbol as sym
from weft.base.errors import GraphError
from weft.core.interpret import evaluate, final_values

STEPS = ["InferShape", "InferType", "GraphFindFusibleGroups", "GraphFuse", "GraphCompile"]


def compiled(symbol, steps=STEPS, level=None, **shapes):
    graph = weft.graph.create(symbol)
    weft.compiler.graph_attr.set_shape_inputs(graph, shapes)
    weft.compiler.graph_attr.set_dtype_inputs(graph, "float32")
    if level is not None:
        graph._set_json_attr("opt_level", level, "int")
    return graph.apply(steps)


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.mark.parametrize(("level", "kernels"), [(None, 2), (0, 4)])
def test_what_is_left_and_that_it_runs(rng, level, kernels):
    symbol = sym.relu(sym.conv2d(sym.tanh(sym.Variable("x")), channels=4, kernel_size=(3, 3))) + 1
    graph = compiled(symbol, level=level, x=(1, 3, 6, 6))
    assert [node["op"] for node in graph.index.nodes].count("tvm_op") == kernels
    assert graph.json_attr("dltype") == ["float32"] * (kernels + 3)
    assert len(graph.json_attr("storage_id")) == kernels + 3
    assert graph.json_attr("shape")[-1] == [1, 4, 4, 4]
    module = weft.runtime.create(graph, graph.attr("module"))
    names = symbol.list_input_names()
    values = {n: floats(rng, s) for n, s in zip(names, graph.json_attr("shape")) if n == "x"}
    for name in names:
        values[name] = floats(rng, module.get_input(name).shape)
    module.run(**values)
    agree([module.get_output(0).asnumpy()], symbol, values)


def test_a_network(rng):
    symbol, params = convolutional(rng)
    graph = compiled(symbol, x=(2, 3, 9, 9))
    values = {**params, "x": floats(rng, (2, 3, 9, 9))}
    module = weft.runtime.create(graph, graph.attr("module"))
    module.run(**values)
    agree([module.get_output(0).asnumpy()], symbol, values)


def test_variables_are_written(rng):
    w = sym.Variable("w", shape=(3,))
    old = sym.exp(w)
    symbol = sym.Group([sym._assign(w, w * 2), old + w])
    graph = compiled(symbol)
    module = weft.runtime.create(graph, graph.attr("module"))
    value = {"w": floats(rng, (3,))}
    module.run(**value)
    for position, wanted in enumerate(evaluate(symbol, value)):
        np.testing.assert_allclose(module.get_output(position).asnumpy(), wanted, rtol=1e-5)
    np.testing.assert_allclose(module.get_input("w").asnumpy(), final_values(symbol, value)["w"])


def test_what_is_missing_is_said():
    symbol = sym.exp(sym.Variable("x"))
    with pytest.raises(GraphError, match="apply GraphFuse first"):
        compiled(symbol, [*STEPS[:3], "GraphCompile"], x=(2,))
    fused = compiled(sym.relu(symbol), STEPS[:4], x=(2,))
    fused._set_json_attr("group_root", [0, 1, 1], "list_int")
    with pytest.raises(GraphError, match="no root of a group"):
        fused.apply("GraphCompile")
