"""GPT-2: the network as modules, with the names of its published files, and a step of it as a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import nn
from ..base.errors import InvalidValue
from ..core.symbol import Symbol
from ..eager.torch_core.public_names import NAMES
from ..nn import functional as F
from .cache import Kept
from .setting_values import check_fields
from .steps import Arrays, StepGraph

arange = NAMES["arange"]


@dataclass(frozen=True)
class GPT2Settings:
    """The sizes of a network; names are those of its files' config.json."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    layer_norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        check_fields(self)
        if self.n_embd % self.n_head:
            raise InvalidValue(f"{self.n_embd} columns for {self.n_head} heads", why="heads have as many columns each")

    @property
    def hidden(self) -> int:
        """Columns inside of a block's two products."""
        return 4 * self.n_embd if self.n_inner is None else self.n_inner


class _Product(nn.Module):
    """x weight + bias; its weight is (inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(NAMES["empty"](inputs, outputs), std=0.02))
        self.bias = nn.Parameter(NAMES["zeros"](outputs))

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class _Attention(nn.Module):
    def __init__(self, settings: GPT2Settings) -> None:
        super().__init__()
        self.heads = settings.n_head
        self.c_attn = _Product(settings.n_embd, 3 * settings.n_embd)
        self.c_proj = _Product(settings.n_embd, settings.n_embd)

    def forward(self, x: Any) -> Any:
        *batch, length, width = x.shape
        parts = self.c_attn(x).split(width, -1)
        q, k, v = (part.reshape(*batch, length, self.heads, -1).transpose(-3, -2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(-3, -2).reshape(*batch, length, width))


class _Hidden(nn.Module):
    def __init__(self, settings: GPT2Settings) -> None:
        super().__init__()
        self.c_fc = _Product(settings.n_embd, settings.hidden)
        self.c_proj = _Product(settings.hidden, settings.n_embd)

    def forward(self, x: Any) -> Any:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class _Block(nn.Module):
    def __init__(self, settings: GPT2Settings) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(settings.n_embd, settings.layer_norm_epsilon)
        self.attn = _Attention(settings)
        self.ln_2 = nn.LayerNorm(settings.n_embd, settings.layer_norm_epsilon)
        self.mlp = _Hidden(settings)

    def forward(self, x: Any) -> Any:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Scores of the next token after each of some tokens (..., length). The scores' matrix is that of the tokens.

    >>> import weft
    >>> model = GPT2(GPT2Settings(vocab_size=11, n_positions=8, n_embd=12, n_layer=2, n_head=3))
    >>> model(weft.tensor([[3, 1, 4]])).shape
    weft.Size([1, 3, 11])
    """

    PREFIX = "transformer."  # of names in files that have the scores' matrix as well
    TABLE = "wte.weight"  # of tokens

    def __init__(self, settings: GPT2Settings | None = None) -> None:
        super().__init__()
        self.settings = settings = settings or GPT2Settings()
        self.wte = nn.Embedding(settings.vocab_size, settings.n_embd)
        self.wpe = nn.Embedding(settings.n_positions, settings.n_embd)
        self.h = nn.ModuleList([_Block(settings) for _ in range(settings.n_layer)])
        self.ln_f = nn.LayerNorm(settings.n_embd, settings.layer_norm_epsilon)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(arange(ids.shape[-1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.transpose(0, 1)

    def step_graph(self, params: Arrays, context: int, dtype: str = "float32") -> tuple[Symbol, dict[str, np.ndarray]]:
        """One step as a graph, over a cache of some dtype, and the parameters that it reads."""
        settings = self.settings
        g = StepGraph(params, self.kept(context), dtype)
        x = g.op("broadcast_add", g.rows("wte.weight", g.ids), g.rows("wpe.weight", g.positions))
        for number in range(settings.n_layer):
            at = f"h.{number}."
            norm = self._norm(g, x, at + "ln_1")
            q, k, v = g.op("split", self._product(g, norm, at + "attn.c_attn"), indices_or_sections=3, axis=1)
            x = g.op("broadcast_add", x, self._product(g, g.attended(q, k, v), at + "attn.c_proj"))
            inner = self._product(g, self._norm(g, x, at + "ln_2"), at + "mlp.c_fc")
            inner = g.op("gelu", inner, approximate="tanh")
            x = g.op("broadcast_add", x, self._product(g, inner, at + "mlp.c_proj"))
        scores = g.product(self._norm(g, g.last(x), "ln_f"), "wte.weight", turned=True)
        return g.finished(scores)

    def _norm(self, g: StepGraph, x: Symbol, name: str) -> Symbol:
        epsilon = self.settings.layer_norm_epsilon
        return g.op("layer_norm", x, g.param(name + ".weight"), g.param(name + ".bias"), epsilon=epsilon)

    def _product(self, g: StepGraph, x: Symbol, name: str) -> Symbol:
        return g.op("broadcast_add", g.product(x, name + ".weight"), g.param(name + ".bias"))

    def kept(self, context: int) -> list[Kept]:
        """What layers keep of that many tokens."""
        settings = self.settings
        return [Kept(settings.n_layer, settings.n_head, settings.n_embd // settings.n_head, context)]

    window = None  # a token sees all before it

    @property
    def limits(self) -> dict[str, int]:
        """Settings that say how many tokens it can see."""
        return {"n_positions": self.settings.n_positions}

    @staticmethod
    def shapes(settings: GPT2Settings) -> dict[str, tuple[int, int]]:
        """Shapes of a few parameters, which tell all sizes."""
        size = settings.n_embd
        return {
            "wte.weight": (settings.vocab_size, size),
            "wpe.weight": (settings.n_positions, size),
            f"h.{settings.n_layer - 1}.mlp.c_fc.weight": (size, settings.hidden),
        }
