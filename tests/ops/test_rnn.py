"""Recurrent layers whose weights are larger than what stays near a core: several blocks of
sequences a thread."""

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.core.symbol import Group, Symbol, Variable
from weft.ops import F
from weft.passes.gradient import gradients


@pytest.mark.parametrize("batch", [8, 10])
def test_large_layers(batch):
    torch = oracle("torch")
    rng = np.random.default_rng(0)
    steps, size = 3, 264
    layer = torch.nn.LSTM(size, size)
    shapes = {"gates": (steps, batch, 4 * size), "state": (batch, size), "cell": (batch, size)}
    arrays = {name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()}
    arrays["weight"] = layer.weight_hh_l0.detach().numpy().T.copy()
    arrays["bias"] = layer.bias_hh_l0.detach().numpy()
    names = ["gates", "weight", "bias", "state", "cell"]
    inputs = [Variable(name) for name in names]
    made = F.rnn(*inputs, mode="lstm")
    heads = [Variable(f"h{i}") for i in range(3)]
    everything = Group([made, *gradients(made, inputs, heads)])
    ends = [(steps, batch, size), (batch, size), (batch, size)]
    given = {f"h{i}": rng.uniform(-1, 1, shape).astype("float32") for i, shape in enumerate(ends)}
    arrays |= given
    model = weft.compile(everything, shape={name: value.shape for name, value in arrays.items()})
    tensors = {name: torch.tensor(arrays[name], requires_grad=True) for name in names}
    h, c, outs = tensors["state"], tensors["cell"], []
    for x in tensors["gates"]:
        i, f, g, o = (x + h @ tensors["weight"] + tensors["bias"]).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outs.append(h)
    forward = [torch.stack(outs), h, c]
    seeds = [torch.tensor(given[f"h{i}"]) for i in range(3)]
    backward = torch.autograd.grad(forward, [tensors[name] for name in names], seeds)
    for a, b in zip(model.run(arrays), [*forward, *backward], strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-4, rtol=1e-4)


def test_outputs_have_names():
    made = F.rnn(*(Variable(name) for name in "gwbsc"), mode="lstm", name="r")
    assert isinstance(made, Symbol)
    assert made.list_output_names() == ["r_output", "r_state", "r_cell"]
