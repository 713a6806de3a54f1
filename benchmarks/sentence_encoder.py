"""A sentence encoder of the BERT type from its published files: words to the numbers of a vocabulary, and the network
as a symbol with its weights."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from side_by_side import Array

from weft.core.symbol import Symbol
from weft.testing import bert

WHOLE = {"attention_query": "attention.self.query", "attention_key": "attention.self.key"}
WHOLE |= {"attention_value": "attention.self.value", "attention_output": "attention.output.dense"}
WHOLE |= {"intermediate": "intermediate.dense", "output": "output.dense"}
NORMS = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
LONGEST_WORD = 100


def encoder(vocabulary: Sequence[str]) -> Callable[[str], list[int]]:
    """Text to the numbers of its word pieces, between [CLS] and [SEP]: the longest piece that is known, and so on."""
    numbers = {piece: number for number, piece in enumerate(vocabulary)}

    def pieces(word: str) -> list[int]:
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in numbers), None)
            if end is None or len(word) > LONGEST_WORD:
                return [numbers["[UNK]"]]
            found.append(numbers[prefix + word[start:end]])
            start = end
        return found

    def encoded(text: str) -> list[int]:
        parts = unicodedata.normalize("NFD", text.lower())
        plain = "".join(sign for sign in parts if unicodedata.category(sign) != "Mn")
        words = re.findall(r"\w+|[^\w\s]", plain)
        return [numbers["[CLS]"], *(number for word in words for number in pieces(word)), numbers["[SEP]"]]

    return encoded


def network(weights: Mapping[str, Array]) -> tuple[Symbol, dict[str, Any]]:
    """The encoder of files that name their weights as transformers does. All words are of the first sentence, so its
    vector is added to those of places."""
    words, places = (weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position"))
    layers = sum(name.endswith("intermediate.dense.bias") for name in weights)
    inner, hidden = weights["encoder.layer.0.intermediate.dense.weight"].shape
    made = bert.get_symbol(layers, hidden, hidden // 32, inner, len(words), len(places))
    params: dict[str, Any] = {
        "word_embeddings_weight": words,
        "position_embeddings_weight": places + weights["embeddings.token_type_embeddings.weight"][0],
    }
    params |= _norm("embeddings_norm", "embeddings.LayerNorm", weights)
    for layer in range(layers):
        for ours, theirs in WHOLE.items():
            for part in ("weight", "bias"):
                params[f"layer{layer}_{ours}_{part}"] = weights[f"encoder.layer.{layer}.{theirs}.{part}"]
        for ours, theirs in NORMS.items():
            params |= _norm(f"layer{layer}_{ours}", f"encoder.layer.{layer}.{theirs}", weights)
    return made, {name: np.asarray(value, np.float32) for name, value in params.items()}


def _norm(ours: str, theirs: str, weights: Mapping[str, Array]) -> dict[str, Array]:
    return {f"{ours}_gamma": weights[f"{theirs}.weight"], f"{ours}_beta": weights[f"{theirs}.bias"]}
