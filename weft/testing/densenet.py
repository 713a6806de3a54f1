"""DenseNet: every layer reads what all before it in its block have made. Huang et al., 2016."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import classify, conv_bn_relu, scaled
from .workload import create_workload

# Channels of the stem, channels that a layer adds, layers of the blocks.
_SPECS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}


def _norm_relu(data: Symbol, name: str) -> Symbol:
    return sym.relu(sym.batch_norm(data, name=f"{name}_bn"), name=f"{name}_relu")


def _conv(data: Symbol, channels: int, size: int, name: str) -> Symbol:
    return sym.conv2d(
        data,
        channels=channels,
        kernel_size=(size, size),
        padding=(size // 2, size // 2),
        use_bias=False,
        name=f"{name}_conv",
    )


def dense_layer(data: Symbol, growth: int, name: str) -> Symbol:
    """Adds `growth` channels behind those that are there."""
    net = _conv(_norm_relu(data, f"{name}_1"), 4 * growth, 1, f"{name}_1")
    net = _conv(_norm_relu(net, f"{name}_2"), growth, 3, f"{name}_2")
    return sym.concatenate(data, net, axis=1, name=f"{name}_concat")


def _transition(data: Symbol, channels: int, name: str) -> Symbol:
    net = _conv(_norm_relu(data, name), channels, 1, name)
    return sym.avg_pool2d(net, pool_size=(2, 2), strides=(2, 2), name=f"{name}_pool")


def get_symbol(num_classes: int = 1000, num_layers: int = 121, width: float = 1.0) -> Symbol:
    """DenseNet of 121, 161, 169 or 201 layers."""
    if num_layers not in _SPECS:
        raise InvalidValue(f"there is no DenseNet of {num_layers} layers", hint=f"one of {sorted(_SPECS)}")
    stem, growth, blocks = _SPECS[num_layers]
    channels, growth = scaled(stem, width), scaled(growth, width)
    net = conv_bn_relu(sym.Variable("data"), channels, "stem", (7, 7), (2, 2), (3, 3))
    net = sym.max_pool2d(net, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), name="pool0")
    for stage, count in enumerate(blocks, start=1):
        for number in range(1, count + 1):
            net = dense_layer(net, growth, f"stage{stage}_layer{number}")
            channels += growth
        if stage < len(blocks):
            channels //= 2
            net = _transition(net, channels, f"transition{stage}")
    return classify(_norm_relu(net, "last"), num_classes, "fc")


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    num_layers: int = 121,
    dtype: str = "float32",
    image_shape: Sequence[int] = (3, 224, 224),
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, num_layers, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
