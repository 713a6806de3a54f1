"""Gradients by the symbolic route, interpreted and compiled, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import symbol as sym
from weft.compiler.graph_util import gradients, infer_shape
from weft.core.interpret import evaluate


def mlp(x):
    net = sym.tanh(sym.dense(x, units=7, name="fc1"))
    net = sym.leaky_relu(sym.dense(net, units=5, name="fc2"), alpha=0.1)
    return sym.log_softmax(sym.dense(net, units=3, name="fc3"))


def torch_mlp(torch, p):
    F = torch.nn.functional
    net = torch.tanh(F.linear(p["x"], p["fc1_weight"], p["fc1_bias"]))
    net = F.leaky_relu(F.linear(net, p["fc2_weight"], p["fc2_bias"]), 0.1)
    return F.log_softmax(F.linear(net, p["fc3_weight"], p["fc3_bias"]), 1)


def cnn(x):
    """Two convolutions with batch norm in training, both kinds of pooling, a shortcut."""
    net = sym.conv2d(x, channels=4, kernel_size=(3, 3), padding=(1, 1), name="c1")
    net = sym.relu(sym.batch_norm(net, name="bn1", training=True))
    net = short = sym.max_pool2d(net, pool_size=(2, 2), strides=(2, 2))
    net = sym.conv2d(net, channels=4, kernel_size=(3, 3), padding=(1, 1), use_bias=False, name="c2")
    net = sym.relu(sym.batch_norm(net, name="bn2", training=True) + short)
    net = sym.avg_pool2d(net, pool_size=(2, 2), strides=(2, 2))
    return sym.dense(sym.flatten(net), units=3, name="fc")


def torch_cnn(torch, p):
    F = torch.nn.functional

    def norm(value, name):
        return F.batch_norm(value, None, None, p[f"{name}_gamma"], p[f"{name}_beta"], training=True, eps=1e-5)

    net = F.relu(norm(F.conv2d(p["x"], p["c1_weight"], p["c1_bias"], padding=1), "bn1"))
    net = short = F.max_pool2d(net, 2)
    net = F.relu(norm(F.conv2d(net, p["c2_weight"], padding=1), "bn2") + short)
    return F.linear(F.avg_pool2d(net, 2).flatten(1), p["fc_weight"], p["fc_bias"])


LENGTH, WIDTH, HEADS = 5, 8, 2


def attention(x):
    """Multi-head attention written out, with a residual and a layer norm."""
    shape = (-1, LENGTH, HEADS, WIDTH // HEADS)

    def split(name):
        flat = sym.dense(sym.reshape(x, shape=(-1, WIDTH)), units=WIDTH, name=name)
        return sym.transpose(sym.reshape(flat, shape=shape), axes=(0, 2, 1, 3))

    q, k, v = split("q"), split("k"), split("v")
    scores = sym.batch_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))) / np.sqrt(WIDTH / HEADS)
    mixed = sym.batch_matmul(sym.softmax(scores, axis=-1), v)
    joined = sym.reshape(sym.transpose(mixed, axes=(0, 2, 1, 3)), shape=(-1, WIDTH))
    out = sym.reshape(sym.dense(joined, units=WIDTH, name="o"), shape=(-1, LENGTH, WIDTH)) + x
    return sym.layer_norm(out, name="ln")


def torch_attention(torch, p):
    F = torch.nn.functional

    def split(name):
        value = F.linear(p["x"], p[f"{name}_weight"], p[f"{name}_bias"])
        return value.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(split("q"), split("k"), split("v"))
    out = F.linear(mixed.transpose(1, 2).flatten(2), p["o_weight"], p["o_bias"]) + p["x"]
    return F.layer_norm(out, (WIDTH,), p["ln_gamma"], p["ln_beta"])


NETWORKS = {
    "mlp": (mlp, torch_mlp, (6, 9)),
    "cnn": (cnn, torch_cnn, (3, 2, 8, 8)),
    "attention": (attention, torch_attention, (2, LENGTH, WIDTH)),
}


def random_values(symbol, shape, rng):
    """A value for each input. Moving moments are written and not read, so they have no gradient."""
    names = symbol.list_input_names()
    shapes, _ = infer_shape(symbol, x=shape)
    values = {n: rng.standard_normal(s) * 0.5 for n, s in zip(names, shapes)}
    for name in names:
        if name.endswith("_gamma"):
            values[name] = rng.uniform(0.5, 1.5, values[name].shape)
    return values


def by_torch(torch, network, values, head):
    """The gradient of each input it reads, and the output, in float64."""
    leaves = {n: torch.tensor(v, requires_grad=True) for n, v in values.items()}
    out = network(torch, leaves)
    out.backward(torch.tensor(head))
    grads = {n: v.grad.numpy() for n, v in leaves.items() if v.grad is not None}
    return out.detach().numpy(), grads


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_are_those_of_pytorch(name, seed):
    torch = oracle("torch")
    ours, theirs, shape = NETWORKS[name]
    rng = np.random.default_rng(seed)
    symbol = ours(sym.Variable("x", shape=shape))
    values = random_values(symbol, shape, rng)
    head = rng.standard_normal(infer_shape(symbol, x=shape)[1][0])
    output, wanted = by_torch(torch, theirs, values, head)
    inputs = [v for v in symbol.list_input_variables() if v.attr("name") in wanted]
    assert len(inputs) == len(wanted) >= len(symbol.list_input_names()) - 4
    grads = gradients(symbol, inputs, grad_ys=sym.Variable("head", shape=head.shape))
    both = sym.Group([symbol, *grads])
    names = [v.attr("name") for v in inputs]

    exact = evaluate(both, {**values, "head": head})
    np.testing.assert_allclose(exact[0], output, rtol=1e-6, atol=1e-7)
    for key, found in zip(names, exact[1:], strict=True):
        np.testing.assert_allclose(found, wanted[key], rtol=1e-6, atol=1e-7, err_msg=key)

    for level in (0, 3):
        with weft.compiler.build_config(opt_level=level):
            graph, lib, _ = weft.compiler.build(both, "llvm")
        module = weft.runtime.create(graph, lib)
        given = {n: v.astype("float32") for n, v in {**values, "head": head}.items()}
        module.run(**given)
        for number, key in enumerate(names, start=1):
            found, scale = module.get_output(number).asnumpy(), np.abs(wanted[key]).max()
            np.testing.assert_allclose(found, wanted[key], rtol=1e-3, atol=1e-4 * max(scale, 0.1), err_msg=key)
