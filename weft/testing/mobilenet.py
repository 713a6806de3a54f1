"""MobileNet: depthwise and pointwise convolutions in turn. Howard et al., 2017."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import classify, conv_bn_relu, scaled
from .workload import create_workload


def conv_block(
    data: Symbol,
    name: str,
    channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
) -> Symbol:
    """Convolution, batch norm, relu."""
    return conv_bn_relu(data, channels, name, kernel_size, strides, padding, epsilon=epsilon)


def separable_conv_block(
    data: Symbol,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    downsample: bool = False,
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
) -> Symbol:
    """A filter for each channel, then a mix of the channels."""
    strides = (2, 2) if downsample else (1, 1)
    net = conv_bn_relu(
        data,
        depthwise_channels,
        f"{name}_depthwise",
        kernel_size,
        strides,
        padding,
        groups=depthwise_channels,
        epsilon=epsilon,
    )
    return conv_bn_relu(net, pointwise_channels, f"{name}_pointwise", epsilon=epsilon)


# Output channels of each block, and whether it halves the image.
_BLOCKS = [(64, False), (128, True), (128, False), (256, True), (256, False), (512, True)]
_DEEP = [(512, False)] * 5
_LAST = [(1024, True), (1024, False)]


def mobile_net(num_classes: int = 1000, alpha: float = 1.0, is_shallow: bool = False) -> Symbol:
    """The network; `alpha` is the width, `is_shallow` leaves five blocks out."""
    channels = scaled(32, alpha)
    net = conv_block(sym.Variable("data"), "conv_block_1", channels, strides=(2, 2))
    for number, (count, halve) in enumerate(_BLOCKS + ([] if is_shallow else _DEEP) + _LAST, start=1):
        name, wide = f"separable_conv_block_{number}", scaled(count, alpha)
        net = separable_conv_block(net, name, channels, wide, downsample=halve)
        channels = wide
    return classify(net, num_classes, name="fc")


get_symbol = mobile_net


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters; alpha and is_shallow go to mobile_net."""
    net = mobile_net(num_classes, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
