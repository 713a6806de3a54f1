"""Every row of the algebra table: the graph it should leave, and equal values."""

import numpy as np
import pytest
from passes.graphs import F, Graph, Group, Variable, agree, assert_same, op_names, text, typed

from weft.passes.algebra import algebra_rules


def x():
    return Variable("x")


SHAPE = (2, 3, 4)
ROWS = {
    "x + 0": (lambda: x() + 0, lambda: x()),
    "x - 0": (lambda: x() - 0, lambda: x()),
    "x * 1": (lambda: x() * 1, lambda: x()),
    "x / 1": (lambda: x() / 1, lambda: x()),
    "x ** 1": (lambda: x() ** 1, lambda: x()),
    "x * 2 stays": (lambda: x() * 2, lambda: x() * 2),
    "x + zeros": (lambda: x() + F.zeros(shape=(4,)), lambda: x()),
    "zeros + x": (lambda: F.elemwise_add(F.zeros(shape=SHAPE), x()), lambda: x()),
    "x - zeros": (lambda: x() - F.zeros(shape=(1,)), lambda: x()),
    "ones * x": (lambda: F.ones(shape=SHAPE) * x(), lambda: x()),
    "x / ones": (lambda: x() / F.ones(shape=(4,)), lambda: x()),
    "a larger operand of ones stays": (
        lambda: x() * F.ones(shape=(5, 2, 3, 4)),
        lambda: x() * F.ones(shape=(5, 2, 3, 4)),
    ),
    "copy": (lambda: F.copy(x()), lambda: x()),
    "sum of one": (lambda: F.elemwise_sum(x(), num_args=1), lambda: x()),
    "concatenate one": (lambda: F.concatenate(x(), axis=1), lambda: x()),
    "cast to itself": (lambda: F.cast(x(), dtype="float32"), lambda: x()),
    "cast through wider": (
        lambda: F.cast(F.cast(x(), dtype="float64"), dtype="float16"),
        lambda: F.cast(x(), dtype="float16"),
    ),
    "cast there and back": (lambda: F.cast(F.cast(x(), dtype="float64"), dtype="float32"), lambda: x()),
    "cast through narrower stays": (
        lambda: F.cast(F.cast(x(), dtype="float16"), dtype="float32"),
        lambda: F.cast(F.cast(x(), dtype="float16"), dtype="float32"),
    ),
    "cast through another kind stays": (
        lambda: F.cast(F.cast(x(), dtype="int32"), dtype="float32"),
        lambda: F.cast(F.cast(x(), dtype="int32"), dtype="float32"),
    ),
    "broadcast_to its shape": (lambda: F.broadcast_to(x(), shape=SHAPE), lambda: x()),
    "collapse to its shape": (lambda: F.collapse_sum(x(), F.zeros(shape=SHAPE)), lambda: x()),
    "slice_like its shape": (lambda: F.slice_like(x(), F.zeros(shape=SHAPE)), lambda: x()),
    "whole slice": (lambda: F.strided_slice(x(), begin=(0, 0), end=(2, 3)), lambda: x()),
    "reversed slice stays": (
        lambda: F.strided_slice(x(), begin=(1,), end=(-3,), stride=(-1,)),
        lambda: F.strided_slice(x(), begin=(1,), end=(-3,), stride=(-1,)),
    ),
    "no padding": (lambda: F.pad(x(), pad_width=((0, 0), (0, 0), (0, 0))), lambda: x()),
    "relu twice": (lambda: F.relu(F.relu(x())), lambda: F.relu(x())),
    "floor twice": (lambda: F.floor(F.floor(x())), lambda: F.floor(x())),
    "negative twice": (lambda: F.negative(F.negative(x())), lambda: x()),
    "flip twice": (lambda: F.flip(F.flip(x(), axis=1), axis=-2), lambda: x()),
    "flips of other axes stay": (
        lambda: F.flip(F.flip(x(), axis=1), axis=0),
        lambda: F.flip(F.flip(x(), axis=1), axis=0),
    ),
    "transposes compose": (
        lambda: F.transpose(F.transpose(x(), axes=(1, 2, 0)), axes=(0, 2, 1)),
        lambda: F.transpose(x(), axes=(1, 0, 2)),
    ),
    "transposes cancel": (lambda: F.transpose(F.transpose(x(), axes=(1, 2, 0)), axes=(2, 0, 1)), lambda: x()),
    "default transposes cancel": (lambda: F.transpose(F.transpose(x())), lambda: x()),
    "identity transpose": (lambda: F.transpose(x(), axes=(0, 1, 2)), lambda: x()),
    "reshape of reshape": (
        lambda: F.reshape(F.reshape(x(), shape=(6, 4)), shape=(3, 8)),
        lambda: F.reshape(x(), shape=(3, 8)),
    ),
    "reshape back": (lambda: F.reshape(F.flatten(x()), shape=SHAPE), lambda: x()),
    "squeeze of expand_dims": (lambda: F.squeeze(F.expand_dims(x(), axis=1), axis=1), lambda: x()),
    "three views": (
        lambda: F.reshape(F.expand_dims(F.flatten(x()), axis=0), shape=(4, 6)),
        lambda: F.reshape(x(), shape=(4, 6)),
    ),
    "reshape_like": (lambda: F.reshape_like(x(), F.zeros(shape=(4, 6))), lambda: F.reshape(x(), shape=(4, 6))),
    "clip of clip": (
        lambda: F.clip(F.clip(x(), a_min=0.6, a_max=1.5), a_min=0.7, a_max=9),
        lambda: F.clip(x(), a_min=0.7, a_max=1.5),
    ),
    "clips that do not meet": (
        lambda: F.clip(F.clip(x(), a_min=0, a_max=1), a_min=2, a_max=3),
        lambda: F.clip(x(), a_min=2, a_max=2),
    ),
    "clip of relu": (lambda: F.clip(F.relu(x()), a_min=-1, a_max=6), lambda: F.clip(x(), a_min=0, a_max=6)),
    "zeros_like": (lambda: F.zeros_like(x()), lambda: F.zeros(shape=SHAPE)),
    "a moved constant": (
        lambda: x() + F.expand_dims(F.full(shape=(3, 1), fill_value=2), axis=0),
        lambda: x() + F.full(shape=(1, 3, 1), fill_value=2),
    ),
    "a repeated constant": (lambda: x() * F.broadcast_to(F.ones(shape=(1, 3, 1)), shape=SHAPE), lambda: x()),
    "full_like": (lambda: F.full_like(x(), fill_value=2), lambda: F.full(shape=SHAPE, fill_value=2)),
    "a chain": (lambda: F.relu(F.relu(F.negative(F.negative(F.copy(x() + 0))))) * 1, lambda: F.relu(x())),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(name):
    before, expected = ROWS[name]
    graph = typed(before(), x=SHAPE)
    simple = graph.apply("SimplifyAlgebra")
    assert_same(simple, expected())
    given = {"x": np.random.default_rng(0).normal(size=SHAPE).astype("float32")}
    agree(graph, simple, given, rtol=0, atol=0)
    assert simple.fact(simple.outputs[0])[:2] == graph.fact(graph.outputs[0])[:2]


def test_layout_transforms_cancel_and_compose():
    def moved(data, source, target):
        return F.__layout_transform__(data, src_layout=source, dst_layout=target)

    there = moved(Variable("x"), "NCHW", "NCHW4c")
    shape = {"x": (1, 8, 2, 2)}
    assert_same(typed(moved(there, "NCHW4c", "NCHW"), **shape).apply("SimplifyAlgebra"), x())
    graph = typed(moved(there, "NCHW4c", "NHWC"), **shape)
    simple = graph.apply("SimplifyAlgebra")
    assert_same(simple, moved(Variable("x"), "NCHW", "NHWC"))
    agree(graph, simple)


def test_every_row_has_a_formula():
    assert all(row.formula for rows in algebra_rules.values() for row in rows)


def test_untyped_graphs_keep_what_needs_shapes():
    graph = Graph(F.transpose(F.transpose(F.copy(x()))).outputs)
    assert op_names(graph.apply("SimplifyAlgebra")) == ["null", "transpose", "transpose"]
    cast = Graph(F.cast(x(), dtype="float64").outputs)
    assert op_names(cast.apply("SimplifyAlgebra")) == ["null", "cast"]


def test_a_copy_of_a_mutated_variable_stays():
    w = Variable("w")
    saved = F.copy(w)
    twice = F.negative(F.negative(w))
    update = F._assign(w, w + 1)
    graph = Graph(Group([update, saved * 2, twice]).outputs)
    assert text(graph.apply("SimplifyAlgebra")) == text(graph)


def test_initialisers_are_settled():
    graph = typed(F.elemwise_add(x(), F.ones()), x=(2, 3))
    settled = graph.apply("SettleInitialisers")
    assert_same(settled, F.elemwise_add(x(), F.ones(shape=(2, 3))))


@pytest.mark.parametrize("attrs", [{"axis": (-1, 1)}, {"axis": (0, 2), "exclude": True}])
def test_reduced_axes_are_counted_from_the_front(attrs):
    graph = typed(F.mean(Variable("x"), keepdims=True, **attrs), x=(2, 3, 4, 5))
    done = graph.apply("SimplifyAlgebra")
    assert done.outputs[0].node.params.axis == (1, 3)
    assert not done.outputs[0].node.params.exclude
    agree(graph, done)


def test_sums_between_products_are_computed_once():
    """Blocks of a transformer: what is added to a product in another shape is no reason to add it in both."""
    state, shapes = F.broadcast_add(Variable("x"), Variable("p")), {"x": (1, 6, 8), "p": (1, 6, 8)}
    for number in range(2):
        flat = F.dense(F.reshape(state, shape=(6, 8)), Variable(f"w{number}"), units=8, use_bias=False)
        state = F.broadcast_add(F.reshape(flat, shape=(1, 6, 8)), state)
        inner = F.matmul(F.relu(state), Variable(f"v{number}"))
        state = F.broadcast_add(state, F.broadcast_add(inner, Variable(f"b{number}")))
        shapes |= {f"w{number}": (8, 8), f"v{number}": (8, 8), f"b{number}": (8,)}
    graph = typed(F.relu(state), **shapes)
    simple = graph.apply("SimplifyAlgebra")
    assert op_names(simple).count("broadcast_add") == op_names(graph).count("broadcast_add") == 7
    agree(graph, simple)
