"""Nodes of the graph are called as PyTorch calls them."""

import re

import pytest
from oracles import oracle

import weft

CALLS = [
    lambda lib, x: x.sum(),
    lambda lib, x: x.sum(1),
    lambda lib, x: x.mean(),
    lambda lib, x: x.relu(),
    lambda lib, x: x * 2,
    lambda lib, x: 1 - x,
    lambda lib, x: x - 1,
    lambda lib, x: x / 2,
    lambda lib, x: -x,
    lambda lib, x: x**2,
    lambda lib, x: x.exp(),
    lambda lib, x: x.log(),
    lambda lib, x: x.softmax(-1),
    lambda lib, x: x.log_softmax(-1),
    lambda lib, x: x.view(-1),
    lambda lib, x: x.reshape(-1),
    lambda lib, x: x.t(),
    lambda lib, x: x.T,
    lambda lib, x: x.transpose(0, 1),
    lambda lib, x: x.permute(1, 0),
    lambda lib, x: x[0],
    lambda lib, x: x[0:2],
    lambda lib, x: x[lib.tensor([0, 1])],
    lambda lib, x: x[x > 0],
    lambda lib, x: x @ x.t(),
    lambda lib, x: lib.matmul(x, x.t()),
    lambda lib, x: lib.nn.functional.linear(x, x, lib.ones(4)),
    lambda lib, x: lib.cat([x, x]),
    lambda lib, x: lib.stack([x, x]),
    lambda lib, x: x.max(),
    lambda lib, x: x.max(1)[0],
    lambda lib, x: x.min(),
    lambda lib, x: x.clamp(0, 1),
    lambda lib, x: x.sigmoid(),
    lambda lib, x: x.tanh(),
    lambda lib, x: x.abs().sqrt(),
    lambda lib, x: x.abs(),
    lambda lib, x: x.unsqueeze(0),
    lambda lib, x: x.unsqueeze(0).squeeze(0),
    lambda lib, x: x.unsqueeze(0).expand(2, 4, 5),
    lambda lib, x: lib.nn.functional.gelu(x),
    lambda lib, x: lib.nn.functional.mse_loss(x, lib.zeros(4, 5)),
    lambda lib, x: lib.nn.functional.cross_entropy(x, lib.tensor([0, 1, 2, 3])),
    lambda lib, x: lib.nn.functional.layer_norm(x, (5,)),
    lambda lib, x: x.std(),
    lambda lib, x: x.var(),
    lambda lib, x: x.norm(),
    lambda lib, x: lib.where(x > 0, x, x * 2),
    lambda lib, x: x + x,
    lambda lib, x: x.clone(),
    lambda lib, x: x.gather(1, lib.zeros(4, 1, dtype=lib.int64)),
    lambda lib, x: x.cumsum(0),
    lambda lib, x: x.sin(),
    lambda lib, x: x.prod(),
    lambda lib, x: lib.einsum("ij,kj->ik", x, x),
    lambda lib, x: x.sort()[0],
    lambda lib, x: x.topk(2)[0],
    lambda lib, x: x.flatten(),
    lambda lib, x: x.chunk(2)[0],
    lambda lib, x: x.split(2)[0],
    lambda lib, x: x.double(),
    lambda lib, x: lib.nn.functional.leaky_relu(x),
    lambda lib, x: lib.nn.functional.dropout(x, 0.5),
    lambda lib, x: lib.nn.functional.conv2d(x.view(1, 1, 4, 5), lib.ones(1, 1, 2, 2)),
    lambda lib, x: lib.nn.functional.max_pool2d(x.view(1, 1, 4, 5), 2),
    lambda lib, x: lib.nn.functional.avg_pool2d(x.view(1, 1, 4, 5), 2),
    lambda lib, x: lib.nn.functional.batch_norm(x, None, None, training=True),
    lambda lib, x: lib.nn.functional.embedding(lib.tensor([0, 1]), x),
    lambda lib, x: lib.nn.functional.nll_loss(x, lib.tensor([0, 1, 2, 3])),
    lambda lib, x: lib.nn.functional.binary_cross_entropy_with_logits(x, lib.zeros(4, 5)),
    lambda lib, x: lib.nn.functional.l1_loss(x, lib.zeros(4, 5)),
    lambda lib, x: x.logsumexp(1),
    lambda lib, x: x.amax(1),
    lambda lib, x: x.masked_fill(x > 0, 0),
    lambda lib, x: x.tril(),
    lambda lib, x: x.roll(1),
    lambda lib, x: x.flip(0),
    lambda lib, x: lib.nn.functional.pad(x, (1, 1)),
    lambda lib, x: x.unbind()[0],
    lambda lib, x: lib.bmm(x.unsqueeze(0), x.t().unsqueeze(0)),
    lambda lib, x: lib.addmm(x @ x.t(), x, x.t()),
    lambda lib, x: lib.nn.functional.silu(x),
    lambda lib, x: x.clone().add_(1),
    lambda lib, x: (x * 1).mul_(2),
    lambda lib, x: (x * 1).relu_(),
    lambda lib, x: x.t().contiguous(),
    lambda lib, x: x.norm(dim=1),
    lambda lib, x: lib.nn.functional.group_norm(x.view(1, 4, 5), 2),
    lambda lib, x: lib.nn.functional.elu(x),
    lambda lib, x: x.repeat(2, 1),
    lambda lib, x: x.index_select(0, lib.tensor([0])),
]


def last_node(library, call):
    library.manual_seed(0)
    x = library.rand(4, 5).requires_grad_()
    return re.sub(r"\d+$", "", call(library, x).grad_fn.name())


@pytest.mark.parametrize("call", CALLS)
def test_names_are_those_of_pytorch(call):
    assert last_node(weft, call) == last_node(oracle("torch"), call)


def test_what_is_handed_through_keeps_its_name():
    x = weft.rand(3, requires_grad=True)
    y = x * 2
    assert y.contiguous() is y
    assert y.grad_fn.name() == "MulBackward0"
    assert "grad_fn=<MulBackward0>" in repr(y)
