"""Attention in models whose batch, queries and keys are open: one program serves all sizes. numpy in float64 and
PyTorch have the answers."""

from __future__ import annotations

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
F = torch.nn.functional

HEADS, SIZE = 3, 8
WIDTH = HEADS * SIZE
NAMES = {"batch": 0, "length": 1, "total": 2}
SIZES = [(2, 7, 9), (1, 1, 1), (3, 40, 20), (1, 1, 700), (2, 33, 241)]


def split(x):
    return x.astype("d").reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def attended(q, k, v, added=0.0):
    """Of (batch, length, heads x size), by definition; a query that sees no key has zeros."""
    scores = split(q) @ split(k).swapaxes(-1, -2) / SIZE**0.5 + added
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    y = e / np.where(total == 0, 1, total) @ split(v)
    return y.transpose(0, 2, 1, 3).reshape(*q.shape[:2], -1)


def model_of_node(node, shapes, kinds):
    infos = [onnx.helper.make_tensor_value_info(name, kinds.get(name, 1), shape) for name, shape in shapes.items()]
    out = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([node], "attention", infos, [out])
    opsets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


TENSORS = {"q": ("batch", "length", WIDTH), "k": ("batch", "total", WIDTH), "v": ("batch", "total", WIDTH)}
BOOL, INT32 = onnx.TensorProto.BOOL, onnx.TensorProto.INT32
NODES = {  # the node, the shape and kind of the mask, what is added to the scores
    "microsoft": ("MultiHeadAttention", "qkv", None, 1, lambda m: 0.0),
    "microsoft with keys": (
        "MultiHeadAttention",
        ("q", "k", "v", "", "m"),
        ("batch", "total"),
        INT32,
        lambda m: np.where(m[:, None, None], 0, -10000.0),
    ),
    "microsoft with a bias": (
        "MultiHeadAttention",
        ("q", "k", "v", "", "", "m"),
        ("batch", HEADS, "length", "total"),
        1,
        lambda m: m,
    ),
    "plain": ("Attention", "qkv", None, 1, lambda m: 0.0),
    "additive": ("Attention", "qkvm", ("length", "total"), 1, lambda m: m),
    "of the batch": ("Attention", "qkvm", ("batch", 1, 1, "total"), 1, lambda m: m),
    "boolean": ("Attention", "qkvm", ("length", "total"), BOOL, lambda m: np.where(m, 0, -np.inf)),
}


def drawn(rng, shape, kind):
    if kind == 1:
        return rng.standard_normal(shape).astype("f")
    return (rng.random(shape) < 0.6).astype(bool if kind == BOOL else np.int32)


@pytest.mark.parametrize("name", NODES)
def test_nodes_of_onnx(name):
    op_type, inputs, mask, kind, added = NODES[name]
    heads = {"num_heads": HEADS} if op_type != "Attention" else {"q_num_heads": HEADS, "kv_num_heads": HEADS}
    domain = "com.microsoft" if op_type != "Attention" else ""
    node = onnx.helper.make_node(op_type, list(inputs), ["y"], domain=domain, **heads)
    shapes = {**TENSORS, **({} if mask is None else {"m": mask})}
    model = weft.compile(model_of_node(node, shapes, {"m": kind}))
    rng = np.random.default_rng(0)
    for sizes in SIZES:
        values = {}
        for tensor, shape in shapes.items():
            numbers = tuple(sizes[NAMES[dim]] if dim in NAMES else dim for dim in shape)
            values[tensor] = drawn(rng, numbers, kind if tensor == "m" else 1)
        expected = attended(*(values[tensor] for tensor in "qkv"), added(values.get("m")))
        np.testing.assert_allclose(model.run(values)[0], expected, rtol=1e-4, atol=1e-5)
    assert model.compilations == 1


class Attention(torch.nn.Module):
    """Attention of one product, with what PyTorch has for masks; and keys of the past before its own."""

    def __init__(self, form):
        super().__init__()
        self.parts, self.form = torch.nn.Linear(WIDTH, 3 * WIDTH), form

    def forward(self, x, *given):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, HEADS, SIZE).transpose(1, 2) for y in self.parts(x).chunk(3, -1))
        if self.form == "past":
            k, v = torch.cat([given[0], k], 2), torch.cat([given[1], v], 2)
        mask = None
        if self.form == "padding":
            mask = (1.0 - given[0].float())[:, None, None] * -1e4
        elif self.form == "seen":
            mask = given[0].bool()[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.form == "causal")
        return y.transpose(1, 2).reshape(batch, length, WIDTH)


def inputs_of(form, batch, length, past):
    given = {"x": torch.randn(batch, length, WIDTH)}
    if form == "past":
        return {**given, **{name: torch.randn(batch, HEADS, past, SIZE) for name in ("keys", "values")}}
    seen = torch.randint(0, 2, (batch, length))
    seen[:, 0] = 1
    return {**given, "seen": seen} if form in ("padding", "seen") else given


AXES = {"x": {0: "batch", 1: "length"}, "seen": {0: "batch", 1: "length"}}
AXES |= {name: {0: "batch", 2: "past"} for name in ("keys", "values")}


@pytest.mark.parametrize("form", ["plain", "causal", "padding", "seen", "past"])
def test_scaled_dot_product_attention_of_pytorch(form, tmp_path):
    torch.manual_seed(5)
    network, example = Attention(form).eval(), inputs_of(form, 2, 6, 4)
    path = tmp_path / "model.onnx"
    axes = {name: AXES[name] for name in example}
    torch.onnx.export(
        network, tuple(example.values()), str(path), input_names=list(example), dynamic_axes=axes, dynamo=False
    )
    model = weft.compile(path)
    for sizes in SIZES:
        values = inputs_of(form, *sizes)
        (found,) = model.run({name: value.numpy() for name, value in values.items()})
        expected = network(*values.values()).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert model.compilations == 1
