"""A vision transformer: patches of an image as the words of an encoder. Dosovitskiy et al., 2020."""

from __future__ import annotations

from typing import Any

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .bert import self_attention
from .init import Xavier
from .workload import create_workload


def _norm(data: Symbol, name: str) -> Symbol:
    return sym.layer_norm(data, axis=-1, epsilon=1e-6, name=name)


def encoder_layer(data: Symbol, hidden: int, heads: int, intermediate: int, name: str) -> Symbol:
    """Attention and two dense layers, each of a normalised input and added to what came in."""
    attention = self_attention(_norm(data, f"{name}_norm1"), hidden, heads, f"{name}_attention")
    net = sym.elemwise_add(data, attention)
    inner = sym.gelu(sym.dense(_norm(net, f"{name}_norm2"), units=intermediate, name=f"{name}_intermediate"))
    return sym.elemwise_add(net, sym.dense(inner, units=hidden, name=f"{name}_output"))


def embeddings(data: Symbol, patch: int, patches: int, hidden: int) -> Symbol:
    """A learned vector, then one for each patch, each with that of its place: the number of images may be open."""
    net = sym.conv2d(data, channels=hidden, kernel_size=(patch, patch), strides=(patch, patch), name="patches")
    net = sym.transpose(sym.reshape(net, shape=(0, hidden, patches)), axes=(0, 2, 1))
    first = sym.Variable("first_weight", shape=(1, 1, hidden))
    places = sym.Variable("position_embeddings_weight", shape=(1, patches + 1, hidden))
    places = sym.elemwise_add(places, sym.pad(first, pad_width=((0, 0), (0, patches), (0, 0))))
    return sym.broadcast_add(sym.pad(net, pad_width=((0, 0), (1, 0), (0, 0))), places)


def get_symbol(
    num_classes: int = 1000,
    num_layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    intermediate: int = 3072,
    patch: int = 16,
    image_shape: tuple[int, int, int] = (3, 224, 224),
) -> Symbol:
    """From images to scores of classes; ViT-B/16 by default."""
    patches = (image_shape[1] // patch) * (image_shape[2] // patch)
    net = embeddings(sym.Variable("data"), patch, patches, hidden)
    for number in range(num_layers):
        net = encoder_layer(net, hidden, heads, intermediate, f"layer{number}")
    first = sym.split(_norm(net, "norm"), indices_or_sections=(1,), axis=1)[0]
    return sym.dense(sym.flatten(first), units=num_classes, name="head")


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, int, int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, image_shape=image_shape, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, Xavier("gaussian", "in", 1), seed)
