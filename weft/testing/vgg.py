"""VGG: stacks of 3 x 3 convolutions. Simonyan and Zisserman, 2014."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import scaled
from .workload import create_workload

_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_FILTERS = (64, 128, 256, 512, 512)


def get_feature(
    internal_layer: Symbol, layers: Sequence[int], filters: Sequence[int], batch_norm: bool = False
) -> Symbol:
    """The convolutions; each stage ends with a pool."""
    net = internal_layer
    for stage, count in enumerate(layers, start=1):
        for number in range(1, count + 1):
            name = f"{stage}_{number}"
            net = sym.conv2d(net, channels=filters[stage - 1], kernel_size=(3, 3), padding=(1, 1), name=f"conv{name}")
            net = sym.batch_norm(net, name=f"bn{name}") if batch_norm else net
            net = sym.relu(net, name=f"relu{name}")
        net = sym.max_pool2d(net, pool_size=(2, 2), strides=(2, 2), name=f"pool{stage}")
    return net


def get_classifier(input_data: Symbol, num_classes: int, hidden: int = 4096) -> Symbol:
    """Three dense layers, with dropout between them."""
    net = sym.flatten(input_data)
    for number in (6, 7):
        net = sym.relu(sym.dense(net, units=hidden, name=f"fc{number}"), name=f"relu{number}")
        net = sym.dropout(net, rate=0.5, name=f"drop{number}")
    return sym.dense(net, units=num_classes, name="fc8")


def get_symbol(num_classes: int, num_layers: int = 11, batch_norm: bool = False, width: float = 1.0) -> Symbol:
    """VGG of 11, 13, 16 or 19 layers."""
    if num_layers not in _LAYERS:
        raise InvalidValue(f"there is no VGG of {num_layers} layers", hint="11, 13, 16 or 19")
    filters = [scaled(count, width) for count in _FILTERS]
    net = get_feature(sym.Variable("data"), _LAYERS[num_layers], filters, batch_norm)
    return sym.softmax(get_classifier(net, num_classes, scaled(4096, width)), name="softmax")


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters; num_layers, batch_norm and width go to get_symbol."""
    net = get_symbol(num_classes, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
