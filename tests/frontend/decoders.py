"""Small decoders in PyTorch, GPT-2 and Llama, with a cache of keys and values that grows by every token; each as an
ONNX file with open lengths, as exporters write them."""

import io
import math

import numpy as np
import onnx
from onnx import helper, numpy_helper
from oracles import oracle

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST = 50, 32, 4, 2, 64


def gpt2():
    """Learned positions, LayerNorm, one matrix for query, key and value, gelu."""
    torch = oracle("torch")
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.project, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, past_key, past_value, mask):
            parts = self.project(self.before(x)).split(WIDTH, dim=2)
            query, key, value = (p.view(p.size(0), p.size(1), HEADS, -1).transpose(1, 2) for p in parts)
            key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
            scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
            seen = torch.softmax(scores.masked_fill(mask, torch.finfo(torch.float32).min), -1) @ value
            x = x + self.join(seen.transpose(1, 2).reshape(x.shape))
            inner = nn.functional.gelu(self.widen(self.between(x)), approximate="tanh")
            return x + self.narrow(inner), key, value

    class Gpt2(nn.Module):
        heads = HEADS

        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens, *past):
            before, length = past[0].size(2), tokens.size(1)
            places = torch.arange(before, before + length)
            mask = torch.arange(before + length)[None, :] > places[:, None]
            x, present = self.words(tokens) + self.places(places), []
            for block, key, value in zip(self.blocks, past[::2], past[1::2]):
                x, *new = block(x, key, value, mask)
                present += new
            return self.head(self.last(x)), *present

    return drawn(Gpt2())


def llama():
    """Positions that turn queries and keys, root-mean-square norms, heads that share keys, gated layers."""
    torch = oracle("torch")
    nn = torch.nn
    shared, size = 2, WIDTH // HEADS

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    def turned(x, cos, sin):
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-second, first], -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = Norm(), Norm()
            linear = lambda a, b: nn.Linear(a, b, bias=False)
            self.query, self.key, self.value = (linear(WIDTH, n * size) for n in (HEADS, shared, shared))
            self.join, self.gate, self.up = linear(WIDTH, WIDTH), linear(WIDTH, 64), linear(WIDTH, 64)
            self.down = linear(64, WIDTH)

        def forward(self, x, past_key, past_value, mask, cos, sin):
            y = self.before(x)
            query, key, value = (
                part(y).view(y.size(0), y.size(1), -1, size).transpose(1, 2)
                for part in (self.query, self.key, self.value)
            )
            query, key = turned(query, cos, sin), turned(key, cos, sin)
            key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
            spread = [part.repeat_interleave(HEADS // shared, dim=1) for part in (key, value)]
            seen = nn.functional.scaled_dot_product_attention(query, *spread, attn_mask=mask)
            x = x + self.join(seen.transpose(1, 2).reshape(x.shape))
            y = self.between(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)), key, value

    class Llama(nn.Module):
        heads = shared

        def __init__(self):
            super().__init__()
            self.words, self.last = nn.Embedding(VOCABULARY, WIDTH), Norm()
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.register_buffer("rates", 100.0 ** (-torch.arange(0, size, 2) / size))

        def forward(self, tokens, *past):
            before, length = past[0].size(2), tokens.size(1)
            places = torch.arange(before, before + length)
            angles = (places[:, None] * self.rates[None, :]).repeat(1, 2)
            hidden = torch.arange(before + length)[None, :] > places[:, None]
            mask = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
            x, present = self.words(tokens), []
            for block, key, value in zip(self.blocks, past[::2], past[1::2]):
                x, *new = block(x, key, value, mask, angles.cos(), angles.sin())
                present += new
            return self.head(self.last(x)), *present

    return drawn(Llama())


def drawn(model):
    """All parameters at random, none of them 0 or 1."""
    torch = oracle("torch")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.rand(parameter.shape, generator=generator) - 0.5
            parameter.copy_(noise if parameter.dim() > 1 else noise + 1.2)
    return model.eval()


def names(kind):
    return [f"{kind}_{layer}_{part}" for layer in range(LAYERS) for part in ("key", "value")]


def empty_cache(model):
    return [np.zeros((1, model.heads, 0, WIDTH // HEADS), np.float32) for _ in range(2 * LAYERS)]


def exported(model):
    """The ONNX model: tokens and a cache of open lengths come in, logits and the longer cache go out."""
    torch = oracle("torch")
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    past = [torch.zeros(1, model.heads, 2, WIDTH // HEADS) for _ in range(2 * LAYERS)]
    file = io.BytesIO()
    torch.onnx.export(
        model,
        (tokens, *past),
        file,
        input_names=["tokens", *names("past")],
        output_names=["logits", *names("present")],
        dynamic_axes={
            "tokens": {0: "batch", 1: "length"},
            **{name: {0: "batch", 2: "before"} for name in names("past")},
        },
        opset_version=17,
        dynamo=False,
    )
    return onnx.load_from_string(file.getvalue())


def torch_step(model, tokens, cache):
    torch = oracle("torch")
    with torch.no_grad():
        return [part.numpy() for part in model(*(torch.from_numpy(part) for part in (tokens, *cache)))]


# A decoder as ONNX Runtime's model builder writes it.


class Generative:
    """Llama in operators of com.microsoft: weights of four bits, GroupQueryAttention with its own positions, norms with
    their residuals. Lengths follow from a mask of tokens."""

    heads, shared, size, block = 4, 2, 16, 16

    def __init__(self):
        self.rng = np.random.default_rng(3)
        self.nodes, self.stored = [], {}
        self._decoder()

    def _store(self, name, array):
        self.stored[name] = array
        return name

    def _add(self, op_type, inputs, outputs, domain="com.microsoft", **attrs):
        self.nodes.append(helper.make_node(op_type, inputs, outputs, domain=domain, **attrs))
        return outputs[0]

    def _norm_scale(self, name):
        return self._store(name, self.rng.uniform(0.7, 1.6, WIDTH).astype(np.float32))

    def _product(self, x, name, columns, rows):
        """A product with weights of four bits, of which two share a byte."""
        blocks = columns // self.block
        packed = self.rng.integers(0, 256, (rows, blocks, self.block // 2)).astype(np.uint8)
        scales = self.rng.uniform(0.02, 0.06, (rows, blocks)).astype(np.float32)
        inputs = [x, self._store(f"{name}_weight", packed), self._store(f"{name}_scales", scales)]
        attrs = {"K": columns, "N": rows, "bits": 4, "block_size": self.block}
        return self._add("MatMulNBits", inputs, [f"{name}_out"], **attrs)

    def _lengths(self):
        """How long each sequence is, less one, and the longest of them, from the mask."""
        axes, one = self._store("axes", np.array([1])), self._store("one", np.array(1))
        self._add("ReduceSum", ["attention_mask", axes], ["count"], "", keepdims=0)
        self._add("Sub", ["count", one], ["last"], "")
        self._add("Cast", ["last"], ["seqlens_k"], "", to=onnx.TensorProto.INT32)
        self._add("Shape", ["attention_mask"], ["mask_shape"], "")
        self._add("Gather", ["mask_shape", one], ["total"], "", axis=0)
        self._add("Cast", ["total"], ["total_length"], "", to=onnx.TensorProto.INT32)

    def _decoder(self):
        self._lengths()
        angles = np.arange(LONGEST)[:, None] * 100.0 ** (-np.arange(0, self.size, 2) / self.size)
        tables = [self._store(name, f(angles).astype(np.float32)) for name, f in (("cos", np.cos), ("sin", np.sin))]
        table = self._store("words", self.rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32))
        x = self._add("Gather", [table, "tokens"], ["embedded"], "", axis=0)
        scale = self._norm_scale("norm_0")
        y = self._add("SimplifiedLayerNormalization", [x, scale], ["normed_0"], "", axis=-1, epsilon=1e-5)
        for layer in range(LAYERS):
            x, y = self._block(layer, x, y, tables)
        self._product(y, "head", WIDTH, VOCABULARY)
        self.nodes[-1].output[0] = "logits"

    def _block(self, layer, x, y, tables):
        counts = {"query": self.heads, "key": self.shared, "value": self.shared}
        parts = [self._product(y, f"{n}_{layer}", WIDTH, count * self.size) for n, count in counts.items()]
        past = [f"past_{layer}_{part}" for part in ("key", "value")]
        present = [f"present_{layer}_{part}" for part in ("key", "value")]
        inputs = [*parts, *past, "seqlens_k", "total_length", *tables]
        attrs = {"num_heads": self.heads, "kv_num_heads": self.shared, "do_rotary": 1}
        seen = self._add("GroupQueryAttention", inputs, [f"seen_{layer}", *present], **attrs)
        joined = self._product(seen, f"join_{layer}", self.heads * self.size, WIDTH)
        x, y = self._normed(x, joined, f"between_{layer}")
        gate, up = (self._product(y, f"{name}_{layer}", WIDTH, 64) for name in ("gate", "up"))
        self._add("Sigmoid", [gate], [f"open_{layer}"], "")
        self._add("Mul", [gate, f"open_{layer}"], [f"silu_{layer}"], "")
        gated = self._add("Mul", [f"silu_{layer}", up], [f"gated_{layer}"], "")
        return self._normed(x, self._product(gated, f"down_{layer}", 64, WIDTH), f"after_{layer}")

    def _normed(self, x, more, name):
        """The sum, and its norm."""
        outputs = [f"{name}_normed", "", "", f"{name}_sum"]
        inputs = [x, more, self._norm_scale(f"{name}_scale")]
        self._add("SkipSimplifiedLayerNormalization", inputs, outputs, epsilon=1e-5)
        return f"{name}_sum", f"{name}_normed"

    def empty_cache(self):
        return [np.zeros((1, self.shared, 0, self.size), np.float32) for _ in range(2 * LAYERS)]

    def model(self):
        cache = [self._tensor(name, ["batch", self.shared, "before", self.size]) for name in names("past")]
        grown = [self._tensor(name, ["batch", self.shared, "total", self.size]) for name in names("present")]
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [
                self._tensor("tokens", ["batch", "length"], onnx.TensorProto.INT64),
                self._tensor("attention_mask", ["batch", "total"], onnx.TensorProto.INT64),
                *cache,
            ],
            [self._tensor("logits", ["batch", "length", VOCABULARY]), *grown],
            [numpy_helper.from_array(array, name) for name, array in self.stored.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def _tensor(self, name, shape, kind=onnx.TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)
