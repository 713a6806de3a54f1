"""Attention and layer normalisation as chains of operators: which are found, which are left alone,
and what stands for them."""

import numpy as np
import pytest
import scipy.special

import weft
import weft.symbol as sym
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.ir import NodeEntry
from weft.core.passes import apply_passes
from weft.core.symbolic import bound_symbol
from weft.passes._views import _reshaped, view_of

rng = np.random.default_rng(3)
CHAINS = ("FuseLayerNorm", "FuseAttention", "SimplifyAlgebra")


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def fused(symbol, values):
    """The graph with its chains fused, and what it gives for some values."""
    shapes = {name: value.shape for name, value in values.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    graph = apply_passes(infer(Graph(symbol.outputs), shapes, dtypes), CHAINS)
    return [node.op_name for node in graph.indexed.nodes if node.op], evaluate(graph, values)


def heads(length=9, width=5, count=2, dtype="f"):
    return {name: normal(1, count, length, width).astype(dtype) for name in "qkv"}


def attention(values, scale=1.0, mask=0.0):
    q, k, v = (values[name].astype("d") for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    return scipy.special.softmax(scores, -1) @ v


Q, K, V, M = (sym.Variable(name) for name in "qkvm")


def scores(q=Q, k=K):
    return sym.batch_matmul(q, k, transpose_b=True)


FORMS = {
    "plain": (lambda: sym.softmax(scores()), 1.0),
    "scaled after": (lambda: sym.softmax(scores() * 0.5), 0.5),
    "divided": (lambda: sym.softmax(scores() / 4, axis=3), 0.25),
    "scaled before": (lambda: sym.softmax(scores(Q * 0.5, K / 2)), 0.25),
    "transposed": (lambda: sym.softmax(sym.batch_matmul(Q, sym.transpose(K, axes=(0, 1, 3, 2)) * 2)), 2.0),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_attention(form):
    make, scale = FORMS[form]
    values = heads()
    ops, (found,) = fused(sym.batch_matmul(make(), V), values)
    assert ops == ["_strided_attention"]
    np.testing.assert_allclose(found, attention(values, scale), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (2, 0, 1, 3), (3, 1, 0, 2), (0, 1, 2, 3)])
def test_the_result_comes_in_the_order_that_is_read(axes):
    values = heads()
    y = sym.transpose(sym.batch_matmul(sym.softmax(scores()), V), axes=axes)
    ops, (found,) = fused(y, values)
    assert ops == ["_strided_attention"]
    np.testing.assert_allclose(found, attention(values).transpose(axes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(9, 9), (1, 2, 9, 9), (9,), (1, 1, 1, 9), (2, 9, 1)])
@pytest.mark.parametrize("mask_first", [False, True])
def test_a_mask_is_added(shape, mask_first):
    values = {**heads(), "m": normal(*shape)}
    pair = (M, scores() * 0.5) if mask_first else (scores() * 0.5, M)
    ops, (found,) = fused(sym.batch_matmul(sym.softmax(sym.broadcast_add(*pair)), V), values)
    assert "_strided_attention" in ops
    assert "softmax" not in ops
    expected = attention(values, 0.5, values["m"])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_nan", [lambda p: sym.broadcast_not_equal(p, p), sym.isnan])
def test_rows_without_any_key_become_zeros_where_the_model_says_so(is_nan):
    values = {**heads(), "m": np.zeros((9, 9), "f")}
    values["m"][4] = -np.inf
    p = sym.softmax(sym.broadcast_add(scores(), M))
    clean = sym.where(is_nan(p), sym.zeros(shape=(1, 2, 9, 9)), p)
    ops, (found,) = fused(sym.batch_matmul(clean, V), values)
    assert "_strided_attention" in ops
    assert not found[:, :, 4].any()
    ops, (found,) = fused(sym.batch_matmul(p, V), values)
    assert np.isnan(found[:, :, 4]).all()
    assert not np.isnan(found[:, :, :4]).any()


@pytest.mark.parametrize("scale", [None, 0.3])
def test_the_operator_is_a_chain_too(scale):
    values = {**heads(), "m": np.where(rng.random((9, 9)) < 0.3, -np.inf, 0).astype("f")}
    values["m"][2] = -np.inf
    attrs = {} if scale is None else {"scale": scale}
    y = sym.scaled_dot_product_attention(Q, K, V, M, mask="additive", **attrs)
    ops, (found,) = fused(y, values)
    assert ops == ["transpose", "_strided_attention"]
    assert not found[:, :, 2].any()
    values["m"][2] = 0
    expected = attention(values, scale or 5**-0.5, values["m"])
    rows = [row for row in range(9) if row != 2]
    np.testing.assert_allclose(found[:, :, rows], expected[:, :, rows], rtol=1e-4, atol=1e-5)


def probabilities_as_output():
    p = sym.softmax(scores())
    return sym.Group([sym.batch_matmul(p, V), p])


def scores_read_twice():
    s = scores()
    return sym.batch_matmul(sym.softmax(s), V) + sym.sum(s)


HIDDEN = np.where(np.tri(9, dtype=bool), 0.0, -np.inf)
SEEN = rng.random((2, 1, 9)) < 0.6
SEEN[..., 0] = True
OPERATORS = {  # and values, scale, what is added to scores
    "causal": ({"is_causal": True}, heads(), 5**-0.5, HIDDEN),
    "causal, many keys": ({"is_causal": True, "scale": 0.4}, heads(2500, 2, 1), 0.4, None),
    "a condition": ({"mask": "boolean"}, {**heads(), "m": SEEN}, 5**-0.5, np.where(SEEN, 0.0, -np.inf)),
    "both": ({"mask": "boolean", "is_causal": True}, {**heads(), "m": SEEN}, 5**-0.5, np.where(SEEN, HIDDEN, -np.inf)),
    "float64": ({}, heads(dtype="d"), 5**-0.5, 0.0),
    "many keys": ({}, heads(2500, 2, 1), 2**-0.5, 0.0),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_of_attention(case):
    attrs, values, scale, added = OPERATORS[case]
    y = sym.scaled_dot_product_attention(*([Q, K, V, M] if "m" in values else [Q, K, V]), **attrs)
    ops, (found,) = fused(y, values)
    assert "_strided_attention" in ops
    length = values["q"].shape[-2]
    added = np.where(np.tri(length, dtype=bool), 0.0, -np.inf) if added is None else added
    np.testing.assert_allclose(found, attention(values, scale, added), rtol=1e-4, atol=1e-5)


LEFT_ALONE = {
    "probabilities are an output": (probabilities_as_output, heads()),
    "scores are read twice": (scores_read_twice, heads()),
    "softmax over queries": (lambda: sym.batch_matmul(sym.softmax(scores(), axis=2), V), heads()),
    "few queries": (lambda: sym.batch_matmul(sym.softmax(scores()), V), heads(length=3)),
    "a mask that is scaled too": (
        lambda: sym.batch_matmul(sym.softmax(sym.broadcast_add(scores(), M) * 2), V),
        {**heads(), "m": normal(9, 9)},
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    make, values = LEFT_ALONE[case]
    ops, _ = fused(make(), values)
    assert "_strided_attention" not in ops


def test_key_and_query_of_different_heads_are_left_alone():
    values = {"q": normal(1, 2, 9, 5), "k": normal(1, 1, 9, 5), "v": normal(1, 2, 9, 5)}
    ops, (found,) = fused(sym.batch_matmul(sym.softmax(scores()), V), values)
    assert "_strided_attention" not in ops
    np.testing.assert_allclose(found, attention(values), rtol=1e-4, atol=1e-5)


# Extents by name


def open_fused(symbol, shapes):
    """The graph of inputs whose shapes have names, with its chains fused."""
    graph = infer(Graph(symbol.outputs), shapes, dict.fromkeys(shapes, np.dtype("f")))
    return apply_passes(graph, CHAINS)


def bound_results(graph, names, values):
    """What a graph gives once its names are numbers."""
    shapes = {name: value.shape for name, value in values.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    symbol = bound_symbol(graph.symbol, names)
    return evaluate(infer(Graph(symbol.outputs), shapes, dtypes), values)


def ops_of(graph):
    return [node.op_name for node in graph.indexed.nodes if node.op]


def transformer_attention(mask=False):
    """x W as queries, keys and values side by side, cut into heads; the mask is for each item of the batch."""
    y = sym.matmul(sym.Variable("x"), sym.Variable("w"))
    parts = sym.split(y, indices_or_sections=3, axis=2)
    q, k, v = (sym.transpose(sym.reshape(parts[i], shape=("batch", "seq", 3, 8)), axes=(0, 2, 1, 3)) for i in range(3))
    scores = sym.batch_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))) / 4.0
    p = sym.softmax(sym.broadcast_add(scores, sym.Variable("m")) if mask else scores)
    y = sym.transpose(sym.batch_matmul(p, v), axes=(0, 2, 1, 3))
    return sym.reshape(y, shape=("batch", "seq", 24))


@pytest.mark.parametrize("mask", [None, ("batch", 1, 1, "seq"), ("seq", "seq"), ("seq",), (3, 1, "seq")])
def test_a_transformer_of_open_batch_and_length(mask):
    shapes = {"x": ("batch", "seq", 5), "w": (5, 72), **({"m": mask} if mask else {})}
    graph = open_fused(transformer_attention(bool(mask)), shapes)
    ops = ops_of(graph)
    assert ops.count("_strided_attention") == 1
    assert not {"softmax", "batch_matmul", "split"} & set(ops)
    (node,) = (node for node in graph.indexed.nodes if node.op_name == "_strided_attention")
    assert graph.fact(NodeEntry(node)).shape == ("batch", "seq", 3, 8)
    assert (node.params.batch, node.params.queries, node.params.keys) == (("batch", 3), "seq", "seq")
    for batch, seq in [(1, 1), (2, 7), (3, 12)]:
        names = {"batch": batch, "seq": seq}
        values = {name: normal(*(names.get(n, n) for n in shape)) for name, shape in shapes.items()}
        (found,) = bound_results(graph, names, values)
        parts = (values["x"].astype("d") @ values["w"]).reshape(batch, seq, 3, 3, 8).transpose(2, 0, 3, 1, 4)
        y = attention(dict(zip("qkv", parts)), 0.25, values.get("m", 0.0)).transpose(0, 2, 1, 3)
        np.testing.assert_allclose(found, y.reshape(batch, seq, 24), rtol=1e-4, atol=1e-5)


def test_names_that_are_no_words():
    shapes = {"q": ("x:0", 2, "x:1", 8), "k": ("x:0", 2, 20, 8), "v": ("x:0", 2, 20, 8)}
    graph = open_fused(sym.scaled_dot_product_attention(Q, K, V), shapes)
    assert ops_of(graph) == ["_strided_attention"]
    values = {"q": normal(3, 2, 9, 8), "k": normal(3, 2, 20, 8), "v": normal(3, 2, 20, 8)}
    (found,) = bound_results(graph, {"x:0": 3, "x:1": 9}, values)
    np.testing.assert_allclose(found, attention(values, 8**-0.5), rtol=1e-4, atol=1e-5)


def test_a_cache_of_past_keys():
    """Keys of a part of a longer buffer, from a place that is a number."""
    shapes = {"q": ("n", 2, "s", 8), "k": ("n", 2, "t + 3", 8), "v": ("n", 2, "t", 8)}
    k = sym.strided_slice(K, begin=(0, 0, 3), end=("n", 2, "t + 3"))
    graph = open_fused(sym.batch_matmul(sym.softmax(scores(k=k)), V), shapes)
    assert ops_of(graph) == ["_strided_attention"]
    values = {"q": normal(1, 2, 4, 8), "k": normal(1, 2, 8, 8), "v": normal(1, 2, 5, 8)}
    (found,) = bound_results(graph, {"n": 1, "s": 4, "t": 5}, values)
    expected = attention({**values, "k": values["k"][:, :, 3:]})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"m": ("m", 9, "k")},  # one for all heads, or one for each
        {"q": ("n", 2, 9, "e"), "k": ("n", 2, "k", "e")},
        {"v": ("n", 2, "k", "v")},
        {"k": ("i", 2, "k", 5)},
        {"v": ("n", 2, "k", 4000)},  # too much for scratch
    ],
)
def test_open_attention_left_alone(change):
    shapes = {"q": ("n", 2, 9, 5), "k": ("n", 2, "k", 5), "v": ("n", 2, "k", 5), "m": ("n", 1, 1, "k"), **change}
    graph = open_fused(sym.batch_matmul(sym.softmax(sym.broadcast_add(scores(), M)), V), shapes)
    assert "_strided_attention" not in ops_of(graph)


# Views


@pytest.mark.parametrize("trial", range(40))
def test_random_moves_are_views(trial):
    own = np.random.default_rng(trial)
    array = np.arange(2 * 6 * 4 * 5, dtype="f").reshape(2, 6, 4, 5)
    x = sym.Variable("x", shape=array.shape)
    flat, made = array.reshape(-1), x
    for _ in range(own.integers(1, 6)):
        kind = own.choice(["transpose", "slice", "reshape", "split", "scale"])
        if kind == "transpose":
            axes = tuple(int(a) for a in own.permutation(array.ndim))
            made, array = sym.transpose(made, axes=axes), array.transpose(axes)
        elif kind == "slice":
            first = int(own.integers(0, array.shape[0]))
            made = sym.strided_slice(made, begin=(first,), end=(array.shape[0],), stride=(2,))
            array = array[first::2]
        elif kind == "reshape":
            cut = int(own.integers(0, array.ndim))
            shape = (*array.shape[:cut], 1, -1)
            made, array = sym.reshape(made, shape=shape), array.reshape(shape)
        elif kind == "split" and array.shape[-1] % 2 == 0:
            parts = sym.split(made, indices_or_sections=2, axis=array.ndim - 1)
            made, array = parts[1], np.split(array, 2, -1)[1]
        else:
            made, array = made * 2.0, array * 2
    graph = infer(Graph(made.outputs), {}, {"x": np.dtype("f")})
    view = view_of(graph, graph.outputs[0])
    assert view.shape == array.shape
    source = Graph([view.source], facts=graph.facts)
    (given,) = evaluate(source, {"x": flat.reshape(2, 6, 4, 5)})
    steps = [step * 4 for step in view.steps]
    begin = np.ascontiguousarray(given).reshape(-1)[view.start :]
    seen = np.lib.stride_tricks.as_strided(begin, view.shape, steps) * view.factor
    np.testing.assert_array_equal(seen, array)


def test_steps_of_another_shape():
    assert _reshaped((4, 6), (12, 1), (2, 2, 3, 2)) == (24, 12, 2, 1)
    assert _reshaped((4, 6), (6, 1), (24,)) == (1,)
    assert _reshaped((4, 6), (12, 1), (3, 8)) is None
    assert _reshaped((6, 4), (1, 6), (24,)) is None
    assert _reshaped(("n", "s", 6), ("12*s", 12, 1), ("n*s", 3, 2)) == (12, 2, 1)
    assert _reshaped(("n", "s"), ("2*s", 1), ("n*s",)) is None
    assert _reshaped(("n",), (1,), ("n//2", 2)) is None
    assert _reshaped(("n",), (1,), ("n", "m")) is None


# Layer normalisation


def norm(x, square, swap=False, axes=(-1,)):
    centred = sym.broadcast_sub(x, sym.mean(x, axis=axes, keepdims=True))
    variance = sym.mean(square(centred), axis=axes, keepdims=True)
    unit = sym.broadcast_div(centred, sym.sqrt(variance + 1e-3))
    g, b = sym.Variable("g"), sym.Variable("b")
    scaled = sym.broadcast_mul(g, unit) if swap else sym.broadcast_mul(unit, g)
    return sym.broadcast_add(b, scaled) if swap else sym.broadcast_add(scaled, b)


@pytest.mark.parametrize("square", [lambda c: c**2, lambda c: sym.elemwise_mul(c, c)])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("axes", [(-1,), (1, 2)])
def test_layer_norm_is_found(square, swap, axes):
    x = normal(3, 4, 7)
    own = (7,) if axes == (-1,) else (4, 7)
    values = {"x": x, "g": normal(*own), "b": normal(*own)}
    ops, (found,) = fused(norm(sym.Variable("x"), square, swap, axes), values)
    assert ops == ["layer_norm"]
    centred = x.astype("d") - x.mean(axes, keepdims=True, dtype="d")
    unit = centred / np.sqrt(np.square(centred).mean(axes, keepdims=True) + 1e-3)
    np.testing.assert_allclose(found, unit * values["g"] + values["b"], rtol=1e-4, atol=1e-5)


def test_other_means_are_no_layer_norm():
    values = {"x": normal(3, 4, 7), "g": normal(7), "b": normal(7)}
    ops, _ = fused(norm(sym.Variable("x"), lambda c: c**2, axes=(1,)), values)
    assert "layer_norm" not in ops
    ops, _ = fused(norm(sym.Variable("x"), lambda c: c**3), values)
    assert "layer_norm" not in ops


def test_a_residual_is_added_inside_the_product_s_kernel():
    x, r = sym.Variable("x", shape=(6, 5)), sym.Variable("r", shape=(1, 6, 4))
    w, b = normal(4, 5), normal(4)
    y = sym.reshape(sym.dense(x, name="d", units=4), shape=(6, 1, 4))
    y = sym.broadcast_add(r, sym.transpose(y, axes=(1, 0, 2)))
    model = weft.compile((y, {"d_weight": w, "d_bias": b}))
    values = {"x": normal(6, 5), "r": normal(1, 6, 4)}
    assert len(model.report().kernels) == 1
    expected = values["x"] @ w.T + b + values["r"][0]
    np.testing.assert_allclose(model.run(values)[0][0], expected, rtol=1e-4, atol=1e-5)
