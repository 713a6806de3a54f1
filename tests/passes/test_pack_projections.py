"""Projections that one attention reads, as one product: PyTorch's multi-head attention is the oracle."""

import numpy as np
import pytest
from oracles import oracle

from weft.base.dtype import FLOAT32
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.passes.pipeline import optimize

torch = oracle("torch")
BATCH, TOKENS, WIDTH, HEADS = 2, 9, 32, 4


def projected(x, side, dense, bias):
    w, b = Variable(f"w{side}"), Variable(f"b{side}")
    if dense:
        return Op.get("dense")(x, w, *([b] if bias else []), units=WIDTH, use_bias=bias)
    made = Op.get("matmul")(x, w)
    return Op.get("broadcast_add")(made, b) if bias else made


def heads(x, order=(0, 2, 1, 3)):
    split = Op.get("reshape")(x, shape=(BATCH, TOKENS, HEADS, WIDTH // HEADS))
    return Op.get("transpose")(split, axes=order)


def attention(sources, dense, bias):
    q, k, v = (projected(x, side, dense, bias) for side, x in zip("qkv", sources))
    scores = Op.get("batch_matmul")(heads(q), heads(k, (0, 2, 3, 1))) * (WIDTH // HEADS) ** -0.5
    mixed = Op.get("batch_matmul")(Op.get("softmax")(scores, axis=-1), heads(v))
    return Op.get("reshape")(Op.get("transpose")(mixed, axes=(0, 2, 1, 3)), shape=(BATCH, TOKENS, WIDTH))


def typed(symbol, shapes):
    return infer(Graph(symbol.outputs), shapes, dict.fromkeys(shapes, FLOAT32))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("queries", "products"), [("x", 1), ("y", 2)])  # attention to itself, and to another tensor
def test_products_of_one_tensor_are_one(queries, products, dense, bias):
    rng = np.random.default_rng(0)
    x = Variable("x")
    made = attention([x if queries == "x" else Variable(queries), x, x], dense, bias)
    shapes = {"x": (BATCH, TOKENS, WIDTH), "y": (BATCH, TOKENS, WIDTH)}
    shapes |= {f"w{side}": (WIDTH, WIDTH) for side in "qkv"} | {f"b{side}": (WIDTH,) for side in "qkv"}
    values = {name: rng.standard_normal(shapes[name]).astype("f") / 3 for name in made.list_input_names()}
    graph = typed(made, {name: shapes[name] for name in values})
    known = [name for name in values if name[0] in "wb"]
    packed = optimize(graph, 3, ("PackProjections",), constants=known)
    kind = "dense" if dense else "matmul"
    assert [node.op_name for node in packed.indexed.nodes].count(kind) == products
    (got,) = evaluate(packed, values)
    given = {name: torch.from_numpy(value).double() for name, value in values.items()}
    sides = []
    for side, source in zip("qkv", (queries, "x", "x")):
        weight = given[f"w{side}"]
        flat = given[source] @ (weight.T if dense else weight) + given.get(f"b{side}", 0)
        sides.append(flat.unflatten(-1, (HEADS, -1)).transpose(1, 2))
    wanted = torch.nn.functional.scaled_dot_product_attention(*sides).transpose(1, 2).flatten(-2)
    np.testing.assert_allclose(np.asarray(got), wanted.numpy(), atol=1e-5)


def test_weights_that_are_inputs_stay_apart():
    made = attention([Variable("x")] * 3, True, False)
    shapes = {"x": (BATCH, TOKENS, WIDTH)} | {f"w{side}": (WIDTH, WIDTH) for side in "qkv"}
    packed = optimize(typed(made, shapes), 3, ("PackProjections",), constants=["wq", "wk"])
    assert [node.op_name for node in packed.indexed.nodes].count("dense") == 2
