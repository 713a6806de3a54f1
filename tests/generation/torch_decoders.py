"""The GPT-2 and Llama networks in PyTorch, of parameters by the names of their files: what generated scores are held
against."""

import math

import torch
from torch.nn import functional as F


def gpt2_scores(p, s, ids):
    """Scores after each token."""
    x = p["wte.weight"][ids] + p["wpe.weight"][: len(ids)]
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], s.layer_norm_epsilon)
    product = lambda x, name: x @ p[name + ".weight"] + p[name + ".bias"]
    for number in range(s.n_layer):
        at = f"h.{number}."
        made = product(norm(x, at + "ln_1"), at + "attn.c_attn").chunk(3, -1)
        q, k, v = (y.view(len(ids), s.n_head, -1).transpose(0, 1) for y in made)
        x = x + product(_attended(q, k, v), at + "attn.c_proj")
        x = x + product(F.gelu(product(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh"), at + "mlp.c_proj")
    return norm(x, "ln_f") @ p.get("head", p["wte.weight"]).T


def _attended(q, k, v, window=None):
    """Each token sees itself and those before it, `window` in all if there is one."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if window is not None:
        seen = seen.triu(1 - window)
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    return (weights @ v).transpose(0, 1).flatten(1)


def llama_scores(p, s, ids):
    """Scores after each token. Biases, and norms of queries and keys, are those that are among the parameters."""
    x = p["embed_tokens.weight"][ids]
    width = s.head_dim or s.hidden_size // s.num_attention_heads
    norm = lambda x, name: p[name + ".weight"] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.rms_norm_eps)
    product = lambda x, name: x @ p[name + ".weight"].T + p.get(name + ".bias", 0)
    frequencies, factor = rotations(s, width)
    angles = torch.arange(len(ids))[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    cos, sin = (torch.cat([factor * y, factor * y], -1).to(x.dtype) for y in (angles.cos(), angles.sin()))

    def turned(x, name):
        x = norm(x, name) if name + ".weight" in p else x
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for number in range(s.num_hidden_layers):
        at = f"layers.{number}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (product(y, f"{at}self_attn.{part}_proj").view(len(ids), -1, width).transpose(0, 1) for part in "qkv")
        repeat = len(q) // len(k)
        q, k = turned(q, at + "self_attn.q_norm"), turned(k, at + "self_attn.k_norm")
        kinds = s.layer_types or [None] * (s.max_window_layers or 0) + ["sliding_attention"] * s.num_hidden_layers
        window = s.sliding_window if kinds[number] == "sliding_attention" else None
        y = _attended(q, k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0), window)
        x = x + product(y, at + "self_attn.o_proj")
        y = norm(x, at + "post_attention_layernorm")
        inner = ACTIVATIONS[s.hidden_act](product(y, at + "mlp.gate_proj")) * product(y, at + "mlp.up_proj")
        x = x + product(inner, at + "mlp.down_proj")
    head = p.get("lm_head.weight", p["embed_tokens.weight"])
    return norm(x, "norm") @ head.T


ACTIVATIONS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_pytorch_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def rotations(s, width):
    """By how much each pair of columns turns from one position to the next, and what is turned is multiplied by: pair
    by pair, as those say who found the scalings."""
    plain = [s.rope_theta ** (-2 * pair / width) for pair in range(width // 2)]
    scaling = dict(s.rope_scaling or {})
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    scaling.setdefault("original_max_position_embeddings", s.max_position_embeddings)
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return [f / scaling["factor"] for f in plain], 1.0
    if kind == "llama3":
        return [_llama3(f, scaling) for f in plain], 1.0
    assert kind == "yarn"
    return _yarn(plain, scaling, s.rope_theta, width)


def _llama3(frequency, scaling):
    """Llama 3.1: short waves stay, long ones are stretched, and those between are in between."""
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    length, wave = scaling["original_max_position_embeddings"], 2 * math.pi / frequency
    if wave < length / high:
        return frequency
    if wave > length / low:
        return frequency / factor
    smooth = (length / wave - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency


def _yarn(plain, scaling, theta, width):
    """YaRN: columns below those of `beta_fast` turns stay, above those of `beta_slow` they are stretched."""
    factor, length = scaling["factor"], scaling["original_max_position_embeddings"]
    column = lambda turns: width * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))
    low, high = column(scaling.get("beta_fast", 32)), column(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    made = []
    for pair, f in enumerate(plain):
        ramp = min(max((pair - low) / (high - low), 0), 1)
        made.append(f / factor * ramp + f * (1 - ramp))
    m = lambda scale: 0.1 * scale * math.log(factor) + 1
    told = m(scaling["mscale"]) / m(scaling["mscale_all_dim"]) if "mscale" in scaling else m(1)
    return made, scaling.get("attention_factor", told)
