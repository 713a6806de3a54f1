"""Models whose sizes are open: one program serves all of them. PyTorch has the answers."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.torch_networks import disturbed

import weft

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
nn = torch.nn


def exported(network, example, axes, tmp_path):
    path = tmp_path / "model.onnx"
    torch.onnx.export(network, (example,), str(path), input_names=["x"], dynamic_axes={"x": axes}, dynamo=False)
    return weft.compile(path)


def same(model, network, x):
    (got,) = model.run({"x": x.numpy()})
    want = network(x).detach().numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 2e-5 * max(np.abs(want).max(), 1)


class Inverted(nn.Module):
    """Expansion, one filter a channel, projection, as small networks have them."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 48, 1),
            nn.BatchNorm2d(48),
            nn.ReLU6(),
            nn.Conv2d(48, 48, 3, padding=1, groups=48),
            nn.Hardswish(),
            nn.Conv2d(48, channels, 1),
        )

    def forward(self, x):
        return x + self.body(x)


class Branches(nn.Module):
    """Convolutions side by side, whose results stand beside each other."""

    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, 32, 1), nn.Conv2d(channels, 32, 5, padding=2)

    def forward(self, x):
        return torch.cat([self.a(x), torch.relu(self.b(x)), nn.functional.max_pool2d(x, 3, 1, 1)], 1)


NETWORKS = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(32, 20, 3),
    ),
    "winograd": lambda: nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)
    ),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), Inverted(16), Inverted(16)),
    "branches": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), Branches(16), nn.Conv2d(80, 17, 1)),
    "transposed": lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ConvTranspose2d(16, 24, 4, 2, 1), nn.Sigmoid()),
    "groups": lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3, groups=4), nn.LeakyReLU(0.1)),
    "norms": lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.InstanceNorm2d(16, affine=True)),
    "pools": lambda: nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.AvgPool2d(3, 2, 1), nn.LPPool2d(2, 3), nn.AdaptiveAvgPool2d(2)
    ),
    "head": lambda: nn.Sequential(
        nn.Conv2d(3, 20, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(20, 37),
        nn.GELU(),
        nn.Linear(37, 5),
        nn.Softmax(1),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_one_program_serves_every_batch(name, tmp_path):
    torch.manual_seed(1)
    network = disturbed(NETWORKS[name]())
    model = exported(network, torch.randn(2, 3, 26, 29), {0: "batch"}, tmp_path)
    for batch in (3, 1, 2, 8, 17, 3):
        same(model, network, torch.randn(batch, 3, 26, 29))
    assert model.compilations == 1


def test_bits_of_a_size_do_not_depend_on_what_ran_before(tmp_path):
    torch.manual_seed(2)
    network = disturbed(NETWORKS["winograd"]())
    x = torch.randn(4, 3, 26, 29)
    answers = []
    for first in (1, 4, 9):
        model = exported(network, x, {0: "batch"}, tmp_path)
        model.run({"x": np.ones((first, 3, 26, 29), "float32")})
        answers.append(model.run({"x": x.numpy()})[0])
    assert all(np.array_equal(answers[0], other) for other in answers[1:])


class Tokens(nn.Module):
    """An encoder of tokens: embeddings, attention, normalisation, two dense layers."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, width), nn.Embedding(64, width)
        self.parts = nn.Linear(width, 3 * width)
        self.back, self.norm, self.heads = nn.Linear(width, width), nn.LayerNorm(width), heads
        self.dense = nn.Sequential(nn.Linear(width, 70), nn.GELU(), nn.Linear(70, width))
        self.out = nn.Linear(width, 5)

    def forward(self, ids):
        batch, length = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(length, device=ids.device))[None]
        q, k, v = (y.view(batch, length, self.heads, -1).transpose(1, 2) for y in self.parts(x).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        x = self.norm(x + self.back((weights @ v).transpose(1, 2).reshape(batch, length, -1)))
        return self.out(x + self.dense(x))


def test_a_transformer_serves_every_batch(tmp_path):
    torch.manual_seed(3)
    network = disturbed(Tokens())
    model = exported(network, torch.zeros(2, 7, dtype=torch.long), {0: "batch"}, tmp_path)
    for batch in (2, 1, 5, 8):
        same(model, network, torch.randint(0, 50, (batch, 7)))
    assert model.compilations == 1


def test_a_transformer_serves_every_length(tmp_path):
    torch.manual_seed(4)
    network = disturbed(Tokens())
    model = exported(network, torch.zeros(2, 7, dtype=torch.long), {0: "batch", 1: "sequence"}, tmp_path)
    for batch, length in ((2, 7), (1, 1), (3, 33), (1, 64), (8, 16), (1, 2)):
        same(model, network, torch.randint(0, 50, (batch, length)))
    assert model.compilations == 1


class Causal(nn.Module):
    """Attention in which a number stands in place of the scores of keys ahead, as decoders have it."""

    def __init__(self, fill, turned):
        super().__init__()
        self.parts, self.fill, self.turned = nn.Linear(16, 3 * 32), fill, turned

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (4, 8)).transpose(1, 2) for y in self.parts(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        fill = torch.full((), self.fill)
        scores = torch.where(seen, scores, fill) if self.turned else scores.masked_fill(~seen, self.fill)
        return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("fill", [-3.4028234e38, float("-inf"), -2.5])
@pytest.mark.parametrize("turned", [False, True])
def test_numbers_in_place_of_scores(fill, turned, tmp_path):
    torch.manual_seed(5)
    network = disturbed(Causal(fill, turned))
    model = exported(network, torch.randn(2, 9, 16), {0: "batch", 1: "length"}, tmp_path)
    fixed = weft.compile(tmp_path / "model.onnx", shape={"x": (2, 33, 16)})
    for batch, length in ((2, 33), (1, 1), (3, 70), (1, 250)):
        x = torch.randn(batch, length, 16)
        x[:, length // 2 :] *= 1e30 if fill != -2.5 else 1  # scores of some keys ahead are not finite
        got, want = model.run({"x": x.numpy()})[0], network(x).detach().numpy()
        assert (np.isnan(got) == np.isnan(want)).all()
        np.testing.assert_allclose(np.nan_to_num(got), np.nan_to_num(want), rtol=1e-4, atol=1e-4)
        if (batch, length) == (2, 33):
            np.testing.assert_allclose(fixed.run({"x": x.numpy()})[0], got, rtol=1e-5, atol=1e-5)
    assert model.compilations == 1
    assert any("_strided_attention" in kernel.operators for kernel in model.report().kernels)


ROWS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax of a middle axis": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "what follows": lambda x: torch.softmax(torch.relu(x), -1) + x,
    "mean": lambda x: x.mean(-1),
    "running sums": lambda x: torch.cumsum(torch.tanh(x), 2) + torch.cumsum(x, 1),
    "largest": lambda x: x.amax((1, 2)),
}


class Rows(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_any_length(name, tmp_path):
    torch.manual_seed(7)
    network = Rows(ROWS[name])
    model = exported(network, torch.randn(2, 5, 7), {0: "a", 1: "b", 2: "c"}, tmp_path)
    for shape in ((2, 5, 7), (3, 9, 33), (1, 1, 100), (4, 2, 1), (2, 64, 257)):
        same(model, network, 3 * torch.randn(shape))
    assert model.compilations == 1
