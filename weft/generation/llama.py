"""Llama and what is shaped like it (Mistral, Qwen, Phi): the network as modules, with the names of its published files,
and a step of it as a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import nn
from ..base.errors import InvalidValue
from ..core.symbol import Symbol
from ..eager.torch_core.public_names import NAMES
from ..nn import functional as F
from .cache import Kept
from .rotation import Plain, Rotation, rotation_of
from .setting_values import check_fields, one_of
from .steps import Arrays, StepGraph

arange, cat, tensor = NAMES["arange"], NAMES["cat"], NAMES["tensor"]


# What is inside a block's products: a function of tensors and an operator of the same name, and attributes of both.
ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {
    **dict.fromkeys(("silu", "swish"), ("silu", {})),
    "gelu": ("gelu", {}),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), ("gelu", {"approximate": "tanh"})),
    "relu": ("relu", {}),
}

MOST_COLUMNS = 2**16  # of a head
SLIDING = "sliding_attention"
LAYER_TYPES = ("full_attention", SLIDING)


@dataclass(frozen=True)
class LlamaSettings:
    """The sizes of a network and what it computes; names are those of its files' config.json, but for the last two,
    which follow from what the network is."""

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
    rope_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None  # tokens that a token sees, with itself
    max_window_layers: int | None = None  # how many layers, the first ones, have no window
    layer_types: tuple[str, ...] | None = None  # which layers have one, where that is said of each
    output_bias: bool | None = None  # of attention's last product; None: as the others
    head_norms: bool = False  # of queries and keys, before they are turned

    def __post_init__(self) -> None:
        check_fields(self)
        one_of("hidden_act", self.hidden_act, ACTIVATIONS)
        if self.num_attention_heads % self.shared:
            raise InvalidValue(f"{self.num_attention_heads} heads for {self.shared} keys", why="they share them evenly")
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            columns = f"{self.hidden_size} columns for {self.num_attention_heads} heads"
            raise InvalidValue(columns, why="heads have as many columns each", hint="head_dim")
        if self.width % 2:
            raise InvalidValue(f"heads of {self.width} columns", why="positions turn pairs of columns")
        if self.width > MOST_COLUMNS:
            raise InvalidValue(f"heads of {self.width} columns", why=f"they have {MOST_COLUMNS} at most")
        _ = self.rotation  # its own settings are looked at
        for kind in self.layer_types or ():
            one_of("a type of layer_types", kind, LAYER_TYPES)
        if self.layer_types is not None and len(self.layer_types) != self.num_hidden_layers:
            raise InvalidValue(f"layer_types has {len(self.layer_types)} for {self.num_hidden_layers} layers")

    def window(self, layer: int) -> int | None:
        """Tokens that a token sees in a layer, if not all."""
        if self.layer_types is not None:
            return self.sliding_window if self.layer_types[layer] == SLIDING else None
        return self.sliding_window if layer >= (self.max_window_layers or 0) else None

    @property
    def shared(self) -> int:
        """Heads that have keys and values."""
        return self.num_attention_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def width(self) -> int:
        """Columns of a head."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    @property
    def rows(self) -> dict[str, int]:
        """Rows of a block's first products."""
        keys, inner = self.shared * self.width, self.intermediate_size
        heads = {"q_proj": self.num_attention_heads * self.width, "k_proj": keys, "v_proj": keys}
        hidden = {"mlp.gate_proj": inner, "mlp.up_proj": inner}
        return {**{f"self_attn.{part}": count for part, count in heads.items()}, **hidden}

    @property
    def rotation(self) -> Rotation:
        """How columns of queries and keys are turned by positions."""
        return rotation_of(Plain(self.rope_theta, self.width, self.max_position_embeddings), self.rope_scaling)

    @property
    def activation(self) -> tuple[str, dict[str, str]]:
        return ACTIVATIONS[self.hidden_act]


class _Attention(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.settings = settings
        size, heads, shared = settings.hidden_size, settings.num_attention_heads, settings.shared
        bias, last = settings.attention_bias, settings.output_bias
        self.q_proj = nn.Linear(size, heads * settings.width, bias=bias)
        self.k_proj = nn.Linear(size, shared * settings.width, bias=bias)
        self.v_proj = nn.Linear(size, shared * settings.width, bias=bias)
        self.o_proj = nn.Linear(heads * settings.width, size, bias=bias if last is None else last)
        if settings.head_norms:
            self.q_norm = nn.RMSNorm(settings.width, settings.rms_norm_eps)
            self.k_norm = nn.RMSNorm(settings.width, settings.rms_norm_eps)

    def forward(self, x: Any, turns: tuple[Any, Any], seen: Any) -> Any:
        *batch, length, _ = x.shape
        width = self.settings.width
        q, k, v = (part(x).reshape(*batch, length, -1, width) for part in (self.q_proj, self.k_proj, self.v_proj))
        if self.settings.head_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(-3, -2) for part in (q, k, v))
        repeat = self.settings.num_attention_heads // self.settings.shared
        k, v = _turned(k, *turns).repeat_interleave(repeat, -3), v.repeat_interleave(repeat, -3)
        y = F.scaled_dot_product_attention(_turned(q, *turns), k, v, seen, is_causal=seen is None)
        return self.o_proj(y.transpose(-3, -2).reshape(*batch, length, -1))


def _band(tokens: int, window: int) -> np.ndarray:
    """Which tokens each sees: itself and those before it, `window` in all."""
    behind = np.arange(tokens)[:, None] - np.arange(tokens)
    made: np.ndarray = (behind >= 0) & (behind < window)
    return made


def _turned(x: Any, cosines: Any, sines: Any) -> Any:
    half = x.shape[-1] // 2
    return x * cosines + cat([x[..., half:], x[..., :half]], -1) * sines


class _Hidden(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        size, inner, bias = settings.hidden_size, settings.intermediate_size, settings.mlp_bias
        self.gate_proj, self.up_proj = nn.Linear(size, inner, bias=bias), nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)
        self.activation, self.attributes = settings.activation

    def forward(self, x: Any) -> Any:
        gate = getattr(F, self.activation)(self.gate_proj(x), **self.attributes)
        return self.down_proj(gate * self.up_proj(x))


class _Layer(nn.Module):
    def __init__(self, settings: LlamaSettings) -> None:
        super().__init__()
        self.self_attn, self.mlp = _Attention(settings), _Hidden(settings)
        self.input_layernorm = nn.RMSNorm(settings.hidden_size, settings.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(settings.hidden_size, settings.rms_norm_eps)

    def forward(self, x: Any, turns: tuple[Any, Any], seen: Any) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), turns, seen)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Scores of the next token after each of some tokens (..., length).

    >>> import weft
    >>> sizes = dict(vocab_size=11, hidden_size=12, intermediate_size=20, num_hidden_layers=1, num_attention_heads=3)
    >>> Llama(LlamaSettings(**sizes))(weft.tensor([[3, 1, 4]])).shape
    weft.Size([1, 3, 11])
    """

    PREFIX = "model."  # of names in files, but that of the scores' matrix
    TABLE = "embed_tokens.weight"  # of tokens

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
        return self.TABLE if self.settings.tie_word_embeddings else "lm_head.weight"

    def forward(self, ids: Any) -> Any:
        x, length = self.embed_tokens(ids), ids.shape[-1]
        cosines, sines = (tensor(part) for part in self.settings.rotation.tables(length))
        windows = [self._window(number, length) for number in range(self.settings.num_hidden_layers)]
        seen = {window: None if window is None else tensor(_band(length, window)) for window in windows}
        for window, layer in zip(windows, self.layers):
            x = layer(x, (cosines, sines), seen[window])
        weight = self.embed_tokens.weight if self.settings.tie_word_embeddings else self.lm_head.weight
        return self.norm(x) @ weight.transpose(0, 1)

    def step_graph(self, params: Arrays, context: int, dtype: str = "float32") -> tuple[Symbol, dict[str, np.ndarray]]:
        """One step as a graph, over a cache of some dtype, and the parameters that it reads."""
        settings = self.settings
        tables = dict(zip(("turns.cosines", "turns.sines"), settings.rotation.tables(context)))
        g = StepGraph({**params, **tables}, self.kept(context), dtype)
        turns = [g.op("expand_dims", g.rows(name, g.positions), axis=1) for name in tables]
        x = g.rows(self.TABLE, g.ids)
        for number in range(settings.num_hidden_layers):
            at = f"layers.{number}."
            norm = self._norm(g, x, at + "input_layernorm")
            attended = self._attention(g, norm, turns, number, self._window(number, context))
            x = g.op("broadcast_add", x, attended)
            norm = self._norm(g, x, at + "post_attention_layernorm")
            x = g.op("broadcast_add", x, self._hidden(g, norm, at + "mlp."))
        return g.finished(g.product(self._norm(g, g.last(x), "norm"), self._scores, turned=True))

    def _attention(self, g: StepGraph, x: Symbol, turns: list[Symbol], number: int, window: int | None) -> Symbol:
        at = f"layers.{number}.self_attn."
        q, k, v = (self._product(g, x, f"{at}{part}_proj") for part in "qkv")
        q, k = (self._turned(g, part, turns, f"{at}{name}_norm") for name, part in (("q", q), ("k", k)))
        return self._product(g, g.attended(q, k, v, window), at + "o_proj")

    def _hidden(self, g: StepGraph, x: Symbol, at: str) -> Symbol:
        activation, attributes = self.settings.activation
        gate, up = (self._product(g, x, f"{at}{part}_proj") for part in ("gate", "up"))
        inner = g.op("broadcast_mul", g.op(activation, gate, **attributes), up)
        return self._product(g, inner, at + "down_proj")

    def _product(self, g: StepGraph, x: Symbol, name: str) -> Symbol:
        """Rows times a parameter, with its bias if it has one."""
        made = g.product(x, name + ".weight", turned=True)
        return g.op("broadcast_add", made, g.param(name + ".bias")) if g.has(name + ".bias") else made

    def _norm(self, g: StepGraph, x: Symbol, name: str) -> Symbol:
        return g.op("rms_norm", x, g.param(name + ".weight"), epsilon=self.settings.rms_norm_eps)

    def _turned(self, g: StepGraph, x: Symbol, turns: list[Symbol], norm: str) -> Symbol:
        """Each head's columns, normalised if there are such norms, turned by its position."""
        heads = g.op("reshape", x, shape=(0, -1, self.settings.width))
        if self.settings.head_norms:
            heads = self._norm(g, heads, norm)
        first, second = g.op("split", heads, indices_or_sections=2, axis=2)
        swapped = g.op("concatenate", second, first, axis=2)
        cosines, sines = turns
        made = g.op("broadcast_add", g.op("broadcast_mul", heads, cosines), g.op("broadcast_mul", swapped, sines))
        return g.op("reshape", made, shape=(0, -1))

    def _window(self, layer: int, tokens: int) -> int | None:
        """How many of so many tokens a token sees in a layer, if not all."""
        window = self.settings.window(layer)
        return window if window is not None and window < tokens else None

    def kept(self, context: int) -> list[Kept]:
        """What layers keep of that many tokens."""
        settings = self.settings
        windows = Counter(self._window(number, context) for number in range(settings.num_hidden_layers))
        return [Kept(count, settings.shared, settings.width, context, window) for window, count in windows.items()]

    @property
    def window(self) -> int | None:
        """Tokens that a token sees in some layer, if not all."""
        return self.settings.sliding_window

    @property
    def limits(self) -> dict[str, int]:
        """Settings that say how many tokens it can see."""
        return {"max_position_embeddings": self.settings.max_position_embeddings}

    @staticmethod
    def shapes(settings: LlamaSettings) -> dict[str, tuple[int, int]]:
        """Shapes of a few parameters, which tell all sizes."""
        size, at = settings.hidden_size, f"layers.{settings.num_hidden_layers - 1}."
        rows = {f"{at}{part}.weight": (count, size) for part, count in settings.rows.items()}
        return {Llama.TABLE: (settings.vocab_size, size), **rows}
