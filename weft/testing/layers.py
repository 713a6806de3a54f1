"""Layers that several networks share: a symbol comes in, a symbol goes out."""

from __future__ import annotations

from .. import symbol as sym
from ..core.symbol import Symbol

Pair = tuple[int, int]


def scaled(filters: int, width: float, divisor: int = 1) -> int:
    """A number of filters times a width, rounded to a multiple and at least one."""
    return max(divisor, int(filters * width + divisor / 2) // divisor * divisor)


def conv_bn_relu(
    data: Symbol,
    channels: int,
    name: str,
    kernel: Pair = (1, 1),
    stride: Pair = (1, 1),
    pad: Pair = (0, 0),
    groups: int = 1,
    activation: str | None = "relu",
    epsilon: float = 1e-5,
) -> Symbol:
    """Convolution without bias, batch norm, and an activation: relu, relu6 or none."""
    net = sym.conv2d(
        data,
        channels=channels,
        kernel_size=kernel,
        strides=stride,
        padding=pad,
        groups=groups,
        use_bias=False,
        name=f"{name}_conv",
    )
    net = sym.batch_norm(net, epsilon=epsilon, name=f"{name}_bn")
    if activation == "relu6":
        return sym.clip(net, a_min=0.0, a_max=6.0, name=f"{name}_relu6")
    return sym.relu(net, name=f"{name}_relu") if activation else net


def classify(data: Symbol, num_classes: int, name: str = "fc1") -> Symbol:
    """Global average, dense, softmax."""
    net = sym.flatten(sym.global_avg_pool2d(data, name="pool1"))
    return sym.softmax(sym.dense(net, units=num_classes, name=name), name="softmax")
