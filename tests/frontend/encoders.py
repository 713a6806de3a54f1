"""A small BERT in PyTorch, written as the Transformers library writes it, so that ONNX Runtime's optimiser knows it."""

import math

import numpy as np
from decoders import drawn
from oracles import oracle

WORDS, WIDTH, HEADS, LAYERS, LONGEST = 60, 32, 4, 2, 24


def bert():
    torch = oracle("torch")
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value, self.join = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.after, self.last = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

        def split(self, x):
            return x.view(x.size(0), x.size(1), HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

        def forward(self, x, mask):
            query, key, value = (self.split(part(x)) for part in (self.query, self.key, self.value))
            scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(WIDTH // HEADS) + mask
            seen = torch.matmul(torch.softmax(scores, -1), value).permute(0, 2, 1, 3).contiguous()
            x = self.after(self.join(seen.view(seen.size(0), seen.size(1), WIDTH)) + x)
            return self.last(self.narrow(nn.functional.gelu(self.widen(x))) + x)

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
            self.kinds, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.register_buffer("position_ids", torch.arange(LONGEST).expand(1, -1))

        def forward(self, input_ids, attention_mask, token_type_ids):
            mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * -10000.0
            places = self.places(self.position_ids[:, : input_ids.size(1)])
            x = self.norm(self.words(input_ids) + self.kinds(token_type_ids) + places)
            for block in self.blocks:
                x = block(x, mask)
            return x

    return drawn(Bert())


def questions(seed=0, batch=2, length=12):
    """Inputs of it: words, of which the first sequence has fewer, and to which of two sentences they belong."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    mask[0, length - 4 :] = 0
    words, kinds = rng.integers(0, WORDS, (batch, length)), rng.integers(0, 2, (batch, length))
    return {"input_ids": words, "attention_mask": mask, "token_type_ids": kinds}


def export_bert(path):
    """Writes an ONNX file with open batch and length."""
    torch = oracle("torch")
    inputs = {name: torch.from_numpy(array) for name, array in questions().items()}
    torch.onnx.export(
        bert(),
        tuple(inputs.values()),
        path,
        input_names=list(inputs),
        output_names=["hidden"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in inputs},
        opset_version=17,
        dynamo=False,
    )
