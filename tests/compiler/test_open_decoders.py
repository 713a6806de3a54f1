"""Decoders that grow a cache of keys and values by a token a run: one program serves all lengths, and another one the
first run, whose cache is empty. PyTorch has the answers."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.compiler.open import part as open_part

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
nn, F = torch.nn, torch.nn.functional

WORDS, WIDTH, HEADS, LAYERS, PLACES = 50, 32, 4, 2, 256
SIZE = WIDTH // HEADS


def linears(inputs, outputs, bias=False):
    return nn.ModuleList(nn.Linear(inputs, outputs, bias) for _ in range(LAYERS))


class Gpt(nn.Module):
    """Learned positions, layer norms, masks that are cut out of a triangle, as GPT-2 has them."""

    kept = HEADS

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS + 1))
        self.parts, self.back = linears(WIDTH, 3 * WIDTH, True), linears(WIDTH, WIDTH, True)
        self.up, self.down = linears(WIDTH, 4 * WIDTH, True), linears(4 * WIDTH, WIDTH, True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, *past):
        batch, length = ids.shape
        before = past[0].shape[2]
        x = self.words(ids) + self.places(torch.arange(before, before + length))
        kept = []
        for layer in range(LAYERS):
            made = self.parts[layer](self.norms[2 * layer](x)).chunk(3, -1)
            q, k, v = (y.view(batch, length, HEADS, SIZE).transpose(1, 2) for y in made)
            k, v = torch.cat([past[2 * layer], k], 2), torch.cat([past[2 * layer + 1], v], 2)
            kept += [k, v]
            seen = torch.ones(before + length, before + length, dtype=torch.bool).tril()[before:]
            scores = (q @ k.transpose(-1, -2) / SIZE**0.5).masked_fill(~seen, -1e9)
            y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, WIDTH)
            x = x + self.back[layer](y)
            x = x + self.down[layer](F.gelu(self.up[layer](self.norms[2 * layer + 1](x)), approximate="tanh"))
        return self.head(self.norms[-1](x)), *kept


class Rms(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Llama(nn.Module):
    """Rotated positions, norms by the mean square, heads that share keys, masks that are added, as Llama has them."""

    kept = 2

    def __init__(self):
        super().__init__()
        self.words, self.norms = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Rms() for _ in range(2 * LAYERS + 1))
        self.q, self.k, self.v = (
            linears(WIDTH, WIDTH),
            linears(WIDTH, self.kept * SIZE),
            linears(WIDTH, self.kept * SIZE),
        )
        self.back, self.gate = linears(WIDTH, WIDTH), linears(WIDTH, 3 * WIDTH)
        self.up, self.down = linears(WIDTH, 3 * WIDTH), linears(3 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, SIZE, 2) / SIZE))

    def forward(self, ids, *past):
        batch, length = ids.shape
        before = past[0].shape[2]
        total = before + length
        x, kept = self.words(ids), []
        angles = torch.arange(before, total)[:, None] * self.frequencies[None]
        turns = [torch.cat([y, y], -1) for y in (angles.cos(), angles.sin())]
        for layer in range(LAYERS):
            y = self.norms[2 * layer](x)
            q = rotated(self.q[layer](y).view(batch, length, HEADS, SIZE).transpose(1, 2), *turns)
            k = rotated(self.k[layer](y).view(batch, length, self.kept, SIZE).transpose(1, 2), *turns)
            v = self.v[layer](y).view(batch, length, self.kept, SIZE).transpose(1, 2)
            k, v = torch.cat([past[2 * layer], k], 2), torch.cat([past[2 * layer + 1], v], 2)
            kept += [k, v]
            each = (batch, self.kept, HEADS // self.kept, total, SIZE)
            k, v = (t[:, :, None].expand(each).reshape(batch, HEADS, total, SIZE) for t in (k, v))
            hidden = torch.full((length, total), -1e9).triu(before + 1)
            weights = torch.softmax(q @ k.transpose(-1, -2) / SIZE**0.5 + hidden, -1)
            x = x + self.back[layer]((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
            y = self.norms[2 * layer + 1](x)
            x = x + self.down[layer](F.silu(self.gate[layer](y)) * self.up[layer](y))
        return self.head(self.norms[-1](x)), *kept


PAST = [f"past{number}" for number in range(2 * LAYERS)]


def exported(network, path):
    example = (torch.zeros(2, 3, dtype=torch.long), *(torch.randn(2, network.kept, 5, SIZE) for _ in PAST))
    axes = {"ids": {0: "batch", 1: "length"}, **{name: {0: "batch", 2: "past"} for name in PAST}}
    names = ["ids", *PAST]
    torch.onnx.export(network, example, str(path), input_names=names, dynamic_axes=axes, dynamo=False)
    return weft.compile(path)


@pytest.mark.parametrize("make", [Gpt, Llama])
@pytest.mark.parametrize("tokens", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_two_programs_decode_any_number_of_tokens(make, tokens, tmp_path, monkeypatch):
    torch.manual_seed(6)
    network = make().eval()
    model = exported(network, tmp_path / "model.onnx")
    past = [np.zeros((1, network.kept, 0, SIZE), "float32") for _ in PAST]
    ids, told, scores = np.array([[3, 1, 4, 1, 5]]), [], []
    typed = []
    plain = open_part.typed_graph
    monkeypatch.setattr(open_part, "typed_graph", lambda *args: typed.append(1) or plain(*args))
    for turn in range(tokens):
        logits, *past = model.run({"ids": ids, **dict(zip(PAST, past))})
        told.append(ids)
        scores.append(logits)
        ids = logits[:, -1:].argmax(-1)
        if turn == 1:
            typed.clear()  # from here on nothing is inferred again but what a length decides
    assert model.compilations == 2
    assert typed == []
    with torch.no_grad():
        wanted = network(torch.tensor(np.concatenate(told, 1)), *(torch.zeros(1, network.kept, 0, SIZE) for _ in PAST))
    np.testing.assert_allclose(np.concatenate(scores, 1), wanted[0].numpy(), rtol=1e-3, atol=1e-3)
    for found, expected in zip(past, wanted[1:]):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-3)
