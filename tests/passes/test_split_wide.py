"""Joins of very many tensors: the same values, and kernels whose code does not grow with them."""

from dataclasses import replace

import numpy as np
import pytest
from passes.graphs import F, Variable, op_names, typed

import weft
from weft.base import config
from weft.codegen.cpu.emit import emit_kernel
from weft.compiler import backends
from weft.compiler.backends.cpu import CPU
from weft.compiler.groups import forget_groups
from weft.core.passes import apply_passes
from weft.passes.fuse import MAX_GROUP_INPUTS, fusible_groups
from weft.passes.pipeline import optimize
from weft.passes.split_wide import MAX_JOINED

JOINS = {
    "concatenate": (lambda xs: F.concatenate(*xs, axis=0, name="j"), np.concatenate),
    "concatenate rows": (lambda xs: F.concatenate(*xs, axis=-1, name="j"), lambda xs: np.concatenate(xs, 1)),
    "stack": (lambda xs: F.stack(*xs, axis=-1, name="j"), lambda xs: np.stack(xs, -1)),
    "elemwise_sum": (lambda xs: F.elemwise_sum(*xs, num_args=len(xs), name="j"), lambda xs: np.sum(xs, axis=0)),
}


def parts(count):
    given = {f"x{number}": np.full((2, 3), number, "f") for number in range(count)}
    return [Variable(name) for name in given], given


@pytest.mark.sampled(3)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("count", [MAX_JOINED + 1, 3 * MAX_JOINED, 700])
@pytest.mark.parametrize("name", JOINS)
def test_values_of_wide_joins(name, count, level):
    join, expected = JOINS[name]
    symbols, given = parts(count)
    shapes = {key: x.shape for key, x in given.items()}
    model = weft.compile(join(symbols), shape=shapes, opt_level=level)
    assert list(model.outputs) == ["j_output"]
    np.testing.assert_array_equal(model.run(given)[0], expected(list(given.values())))


@pytest.mark.parametrize("name", JOINS)
def test_nothing_wide_is_left(name):
    symbols, given = parts(MAX_JOINED**2 + 1)
    joined = JOINS[name][0]([F.relu(x) for x in symbols])
    graph = optimize(typed(joined, **{key: x.shape for key, x in given.items()}))
    assert max(len(node.inputs) for node in graph.indexed.nodes) <= MAX_JOINED
    groups = fusible_groups(graph)
    assert max(len(group.inputs) for group in groups) <= MAX_GROUP_INPUTS


def test_narrow_joins_stay():
    symbols, given = parts(MAX_JOINED)
    joined = JOINS["concatenate"][0](symbols)
    graph = typed(joined, **{key: x.shape for key, x in given.items()})
    assert op_names(apply_passes(graph, ["SplitWide"])).count("concatenate") == 1


def chain(count):
    x = Variable("x")
    for _ in range(count):
        x = F.tanh(x) * 1.5
    return x, {"x": (8, 8)}


def joined(name):
    def make(count):
        symbols, given = parts(count)
        return JOINS[name][0](symbols), {key: x.shape for key, x in given.items()}

    return make


@pytest.mark.parametrize("make", [chain, *map(joined, JOINS)])
def test_the_code_of_kernels_has_a_bound(make, monkeypatch):
    sizes = []

    def measured(kernel, target):
        text = emit_kernel(kernel, target)
        sizes.append(len(text))
        return text

    backend = replace(CPU, codegen=replace(CPU.codegen, emit=measured))
    monkeypatch.setitem(backends._backends, "cpu", backend)
    longest = []
    for count in (300, 900):
        sizes.clear()
        symbol, shapes = make(count)
        forget_groups()
        with config.override(cache=False):
            weft.compile(symbol, shape=shapes)
        longest.append(max(sizes))
    assert longest[1] <= 1.2 * longest[0]
