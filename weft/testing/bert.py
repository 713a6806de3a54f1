"""An encoder of the BERT type: embeddings and layers of self-attention. Devlin et al., 2018."""

from __future__ import annotations

import math
from typing import Any

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .init import Xavier
from .workload import create_workload


def _norm(data: Symbol, name: str) -> Symbol:
    return sym.layer_norm(data, axis=-1, epsilon=1e-12, name=name)


def _heads(data: Symbol, heads: int, size: int) -> Symbol:
    """(batch, length, heads x size) as (batch, heads, length, size): both may be open."""
    split = sym.reshape(data, shape=(0, 0, heads, size))
    return sym.transpose(split, axes=(0, 2, 1, 3))


def self_attention(data: Symbol, hidden: int, heads: int, name: str) -> Symbol:
    """softmax(Q K^T / sqrt(size)) V for each head, and a mix of the heads."""
    size = hidden // heads
    query, key, value = (
        _heads(sym.dense(data, units=hidden, name=f"{name}_{part}"), heads, size) for part in ("query", "key", "value")
    )
    scores = sym.batch_matmul(query, sym.transpose(key, axes=(0, 1, 3, 2)))
    weights = sym.softmax(scores * (1 / math.sqrt(size)), axis=-1)
    mixed = sym.transpose(sym.batch_matmul(weights, value), axes=(0, 2, 1, 3))
    mixed = sym.reshape(mixed, shape=(0, 0, hidden))
    return sym.dense(mixed, units=hidden, name=f"{name}_output")


def encoder_layer(data: Symbol, hidden: int, heads: int, intermediate: int, name: str) -> Symbol:
    """Attention and two dense layers, each added to its input and normalised."""
    attention = self_attention(data, hidden, heads, f"{name}_attention")
    net = _norm(sym.elemwise_add(data, attention), f"{name}_norm1")
    inner = sym.gelu(sym.dense(net, units=intermediate, name=f"{name}_intermediate"))
    outer = sym.dense(inner, units=hidden, name=f"{name}_output")
    return _norm(sym.elemwise_add(net, outer), f"{name}_norm2")


def get_symbol(
    num_layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    intermediate: int = 3072,
    vocabulary: int = 30522,
    seq_len: int = 128,
) -> Symbol:
    """From token ids of (batch, length) to vectors of (batch, length, hidden), for lengths up to seq_len."""
    words = sym.Variable("word_embeddings_weight", shape=(vocabulary, hidden))
    places = sym.Variable("position_embeddings_weight", shape=(seq_len, hidden))
    data = sym.Variable("data")
    there = sym.slice_like(places, sym.transpose(data, axes=(1, 0)), axis=(0,))
    net = sym.broadcast_add(sym.take(words, data, axis=0), there)
    net = _norm(net, "embeddings_norm")
    for number in range(num_layers):
        net = encoder_layer(net, hidden, heads, intermediate, f"layer{number}")
    return net


def get_workload(
    batch_size: int = 1, seq_len: int = 128, dtype: str = "float32", seed: int = 0, **kwargs: Any
) -> tuple[Symbol, dict[str, NDArray]]:
    """The encoder with random parameters; its data are int64 ids below `vocabulary`."""
    net = get_symbol(seq_len=seq_len, **kwargs)
    weights = Xavier("gaussian", "in", 1)
    return create_workload(net, batch_size, (seq_len,), dtype, weights, seed, data_dtype="int64")
