"""SqueezeNet: narrow 1 x 1 layers before wide ones. Iandola et al., 2016."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import scaled
from .workload import create_workload

# Pools stand before these fire modules, counted from 1; the first pool follows the stem.
_VERSIONS = {"1.0": {"stem": (96, 7), "pools": (4, 8)}, "1.1": {"stem": (64, 3), "pools": (3, 5)}}
_FIRE = [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)]


def _conv_relu(data: Symbol, channels: int, size: int, name: str, **attrs: object) -> Symbol:
    net = sym.conv2d(data, channels=channels, kernel_size=(size, size), name=name, **attrs)
    return sym.relu(net, name=f"{name}_relu")


def _fire(data: Symbol, squeeze: int, expand: int, name: str) -> Symbol:
    net = _conv_relu(data, squeeze, 1, f"{name}_squeeze")
    left = _conv_relu(net, expand, 1, f"{name}_expand1x1")
    right = _conv_relu(net, expand, 3, f"{name}_expand3x3", padding=(1, 1))
    return sym.concatenate(left, right, axis=1, name=f"{name}_concat")


def _pool(data: Symbol) -> Symbol:
    return sym.max_pool2d(data, pool_size=(3, 3), strides=(2, 2), ceil_mode=True)


def get_symbol(num_classes: int, version: str = "1.0", width: float = 1.0) -> Symbol:
    """SqueezeNet 1.0 or 1.1."""
    if version not in _VERSIONS:
        raise InvalidValue(f"there is no SqueezeNet {version!r}", hint="'1.0' or '1.1'")
    (channels, size), pools = _VERSIONS[version]["stem"], _VERSIONS[version]["pools"]
    stem = _conv_relu(sym.Variable("data"), scaled(channels, width), size, "conv1", strides=(2, 2))
    net = _pool(stem)
    for number, (squeeze, expand) in enumerate(_FIRE, start=1):
        net = _pool(net) if number in pools else net
        net = _fire(net, scaled(squeeze, width), scaled(expand, width), f"fire{number}")
    net = sym.dropout(net, rate=0.5, name="drop9")
    net = _conv_relu(net, num_classes, 1, "conv10")
    net = sym.flatten(sym.global_avg_pool2d(net, name="pool10"), name="logits")
    return sym.softmax(net, name="softmax")


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, version, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
