"""Small networks in PyTorch as ONNX files: BERT, written as the Transformers library writes it, so that ONNX Runtime's
optimiser knows it, and convolutions."""

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


# A network of convolutions.


def convolutional():
    """Convolutions with all that ONNX Runtime fuses into them, and quantises."""
    torch = oracle("torch")
    nn, functions = torch.nn, torch.nn.functional

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16)
            self.grouped, self.narrow = nn.Conv2d(16, 16, 3, padding=1, groups=4), nn.Conv2d(16, 16, 1)
            self.last, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(32, 10)

        def forward(self, x):
            x = torch.relu(self.norm(self.first(x)))
            y = torch.relu(self.narrow(functions.leaky_relu(self.grouped(x), 0.1)) + x)
            y = functions.max_pool2d(torch.sigmoid(y) * y, 2)
            y = torch.cat([functions.hardswish(self.last(y)), functions.avg_pool2d(y, 3, 1, 1)], 1)
            return torch.softmax(self.head(functions.adaptive_avg_pool2d(y, 1).flatten(1)), -1)

    return drawn(Network())


def images(seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((2, 3, 16, 16)).astype(np.float32)}


def export_convolutional(path):
    torch = oracle("torch")
    sample = torch.from_numpy(images()["x"])
    options = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}}, "opset_version": 17}
    torch.onnx.export(convolutional(), sample, path, **options, dynamo=False)
