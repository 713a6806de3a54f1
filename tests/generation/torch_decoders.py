"""The GPT-2 and Llama networks in PyTorch, of parameters by the names of their files: what generated scores are held
against."""

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


def _attended(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
    return (weights @ v).transpose(0, 1).flatten(1)


def llama_scores(p, s, ids):
    """Scores after each token."""
    x = p["embed_tokens.weight"][ids]
    width = s.hidden_size // s.num_attention_heads
    norm = lambda x, name: p[name + ".weight"] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + s.rms_norm_eps)
    angles = torch.arange(len(ids))[:, None] / s.rope_theta ** (torch.arange(0, width, 2).double() / width)
    cos, sin = (torch.cat([y, y], -1).to(x.dtype) for y in (angles.cos(), angles.sin()))

    def turned(x):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    for number in range(s.num_hidden_layers):
        at = f"layers.{number}."
        y = norm(x, at + "input_layernorm")
        q, k, v = (
            (y @ p[f"{at}self_attn.{part}_proj.weight"].T).view(len(ids), -1, width).transpose(0, 1) for part in "qkv"
        )
        repeat = len(q) // len(k)
        k, v = turned(k).repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)
        x = x + _attended(turned(q), k, v) @ p[at + "self_attn.o_proj.weight"].T
        y = norm(x, at + "post_attention_layernorm")
        inner = F.silu(y @ p[at + "mlp.gate_proj.weight"].T) * (y @ p[at + "mlp.up_proj.weight"].T)
        x = x + inner @ p[at + "mlp.down_proj.weight"].T
    head = p.get("lm_head.weight", p["embed_tokens.weight"])
    return norm(x, "norm") @ head.T
