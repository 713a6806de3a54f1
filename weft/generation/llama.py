"""Llama: the network as modules, with the names of its published files, and a step of it as a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import nn
from ..base.errors import InvalidValue
from ..core.symbol import Symbol
from ..eager.torch_core.public_names import NAMES
from ..nn import functional as F
from .steps import Arrays, StepGraph

arange, cat, tensor = NAMES["arange"], NAMES["cat"], NAMES["tensor"]


@dataclass(frozen=True)
class LlamaSettings:
    """The sizes of a network; names are those of its files' config.json."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.shared:
            raise InvalidValue(f"{self.num_attention_heads} heads for {self.shared} keys", why="they share them evenly")
        if self.width % 2:
            raise InvalidValue(f"heads of {self.width} columns", why="positions turn pairs of columns")

    @property
    def shared(self) -> int:
        """Heads that have keys and values."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def width(self) -> int:
        """Columns of a head."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def turns(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines by which columns are turned: (positions, width), the first half of the sines negative.

        angle of column e and of e + width / 2 at position p: p / theta ** (2 e / width)
        """
        frequencies = self.rope_theta ** (-np.arange(0, self.width, 2) / self.width)
        angles = np.arange(positions)[:, None] * frequencies
        sines = np.sin(angles)
        both = np.concatenate([np.cos(angles)] * 2, 1), np.concatenate([-sines, sines], 1)
        return both[0].astype(np.float32), both[1].astype(np.float32)


class _Attention(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.settings = settings
        size, heads, shared = settings.hidden_size, settings.num_attention_heads, settings.shared
        self.q_proj = nn.Linear(size, heads * settings.width, bias=False)
        self.k_proj = nn.Linear(size, shared * settings.width, bias=False)
        self.v_proj = nn.Linear(size, shared * settings.width, bias=False)
        self.o_proj = nn.Linear(heads * settings.width, size, bias=False)

    def forward(self, x: Any, turns: tuple[Any, Any]) -> Any:
        *batch, length, _ = x.shape
        width = self.settings.width
        made = (part(x).reshape(*batch, length, -1, width) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (part.transpose(-3, -2) for part in made)
        repeat = self.settings.num_attention_heads // self.settings.shared
        k, v = _turned(k, *turns).repeat_interleave(repeat, -3), v.repeat_interleave(repeat, -3)
        y = F.scaled_dot_product_attention(_turned(q, *turns), k, v, is_causal=True)
        return self.o_proj(y.transpose(-3, -2).reshape(*batch, length, -1))


def _turned(x: Any, cosines: Any, sines: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cosines + cat([x[..., half:], x[..., :half]], -1) * sines


class _Hidden(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(settings.hidden_size, settings.intermediate_size, bias=False)
        self.up_proj = nn.Linear(settings.hidden_size, settings.intermediate_size, bias=False)
        self.down_proj = nn.Linear(settings.intermediate_size, settings.hidden_size, bias=False)

    def forward(self, x: Any) -> Any:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(settings), _Hidden(settings)
        self.input_layernorm = nn.RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(self, x: Any, turns: tuple[Any, Any]) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), turns)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Scores of the next token after each of some tokens (..., length).

    >>> import weft
    >>> sizes = dict(vocab_size=11, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3)
    >>> Llama(LlamaSettings(**sizes))(weft.tensor([[3, 1, 4]])).shape
    weft.Size([1, 3, 11])
    """

    PREFIX = "model."  # of names in files, but that of the scores' matrix

    def __init__(self, settings: LlamaSettings | None = None) -> None:
        super().__init__()
        self.settings = settings = settings or LlamaSettings()
        self.embed_tokens = nn.Embedding(settings.vocab_size, settings.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList([_Layer(settings) for _ in range(settings.num_hidden_layers)])
        self.norm = nn.RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        if not settings.tie_word_embeddings:
            self.lm_head = nn.Linear(settings.hidden_size, settings.vocab_size, bias=False)

    @property
    def _scores(self) -> str:
        return "embed_tokens.weight" if self.settings.tie_word_embeddings else "lm_head.weight"

    def forward(self, ids: Any) -> Any:
        x = self.embed_tokens(ids)
        cosines, sines = (tensor(part) for part in self.settings.turns(ids.shape[-1]))
        for layer in self.layers:
            x = layer(x, (cosines, sines))
        weight = self.embed_tokens.weight if self.settings.tie_word_embeddings else self.lm_head.weight
        return self.norm(x) @ weight.transpose(0, 1)

    def step_graph(self, params: Arrays, context: int, dtype: str = "float32") -> tuple[Symbol, dict[str, np.ndarray]]:
        """One step as a graph, over a cache of some dtype, and the parameters that it reads."""
        settings = self.settings
        tables = dict(zip(("turns.cosines", "turns.sines"), settings.turns(context)))
        g = StepGraph({**params, **tables}, settings.num_hidden_layers, settings.shared, settings.width, context, dtype)
        turns = [g.op("expand_dims", g.rows(name, g.positions), axis=1) for name in tables]
        x = g.rows("embed_tokens.weight", g.ids)
        for number in range(settings.num_hidden_layers):
            at = f"layers.{number}."
            norm = self._norm(g, x, at + "input_layernorm")
            q, k, v = (g.product(norm, f"{at}self_attn.{part}_proj.weight", turned=True) for part in "qkv")
            y = g.attended(number, self._turned(g, q, turns), self._turned(g, k, turns), v)
            x = g.op("broadcast_add", x, g.product(y, at + "self_attn.o_proj.weight", turned=True))
            norm = self._norm(g, x, at + "post_attention_layernorm")
            gate, up = (g.product(norm, f"{at}mlp.{part}_proj.weight", turned=True) for part in ("gate", "up"))
            inner = g.op("broadcast_mul", g.op("silu", gate), up)
            x = g.op("broadcast_add", x, g.product(inner, at + "mlp.down_proj.weight", turned=True))
        return g.finished(g.product(self._norm(g, g.last(x), "norm"), self._scores, turned=True))

    def _norm(self, g: StepGraph, x: Symbol, name: str) -> Symbol:
        return g.op("rms_norm", x, g.param(name + ".weight"), epsilon=self.settings.rms_norm_eps)

    def _turned(self, g: StepGraph, x: Symbol, turns: list[Symbol]) -> Symbol:
        """Each head's columns, turned by its position."""
        width = self.settings.width
        heads = g.op("reshape", x, shape=(0, -1, width))
        first, second = g.op("split", heads, indices_or_sections=2, axis=2)
        swapped = g.op("concatenate", second, first, axis=2)
        cosines, sines = turns
        made = g.op("broadcast_add", g.op("broadcast_mul", heads, cosines), g.op("broadcast_mul", swapped, sines))
        return g.op("reshape", made, shape=(0, -1))

    @property
    def cache_sizes(self) -> tuple[int, int, int]:
        """Layers, heads that have keys, and columns of each."""
        return self.settings.num_hidden_layers, self.settings.shared, self.settings.width

    @property
    def positions(self) -> int:
        """The most tokens that it was made to see."""
        return self.settings.max_position_embeddings
