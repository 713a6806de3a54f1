"""ResNet with pre-activation: batch norm and relu stand before each convolution.

He et al., Identity Mappings in Deep Residual Networks, 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import classify, scaled
from .workload import create_workload

_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}


def residual_unit(
    data: Symbol, num_filter: int, stride: tuple[int, int], dim_match: bool, name: str, bottle_neck: bool = True
) -> Symbol:
    """The input plus what convolutions make of it; a 1 x 1 convolution fits it where it differs."""
    act = _norm_relu(data, f"{name}_bn1")
    if bottle_neck:
        inner = num_filter // 4
        net = _conv(act, inner, 1, (1, 1), f"{name}_conv1")
        net = _conv(_norm_relu(net, f"{name}_bn2"), inner, 3, stride, f"{name}_conv2")
        net = _conv(_norm_relu(net, f"{name}_bn3"), num_filter, 1, (1, 1), f"{name}_conv3")
    else:
        net = _conv(act, num_filter, 3, stride, f"{name}_conv1")
        net = _conv(_norm_relu(net, f"{name}_bn2"), num_filter, 3, (1, 1), f"{name}_conv2")
    shortcut = data if dim_match else _conv(act, num_filter, 1, stride, f"{name}_sc")
    return sym.elemwise_add(net, shortcut, name=f"{name}_add")


def _norm_relu(data: Symbol, name: str) -> Symbol:
    return sym.relu(sym.batch_norm(data, epsilon=2e-5, name=name), name=f"{name}_relu")


def _conv(data: Symbol, channels: int, size: int, stride: tuple[int, int], name: str) -> Symbol:
    return sym.conv2d(
        data,
        channels=channels,
        kernel_size=(size, size),
        strides=stride,
        padding=(size // 2, size // 2),
        use_bias=False,
        name=name,
    )


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    image_shape: Sequence[int],
    bottle_neck: bool = True,
) -> Symbol:
    """The network: a stem, stages of residual units, and a classifier."""
    net = sym.batch_norm(sym.Variable("data"), epsilon=2e-5, scale=False, name="bn_data")
    if image_shape[1] <= 32:
        net = _conv(net, filter_list[0], 3, (1, 1), "conv0")
    else:
        net = _norm_relu(_conv(net, filter_list[0], 7, (2, 2), "conv0"), "bn0")
        net = sym.max_pool2d(net, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), name="pool0")
    for stage in range(num_stages):
        stride = (1, 1) if stage == 0 else (2, 2)
        for unit in range(units[stage]):
            name = f"stage{stage + 1}_unit{unit + 1}"
            steps = stride if unit == 0 else (1, 1)
            net = residual_unit(net, filter_list[stage + 1], steps, unit > 0, name, bottle_neck=bottle_neck)
    return classify(_norm_relu(net, "bn1"), num_classes)


def get_symbol(
    num_classes: int,
    num_layers: int = 50,
    image_shape: Sequence[int] = (3, 224, 224),
    width: float = 1.0,
    **kwargs: Any,
) -> Symbol:
    """ResNet of a given depth; images up to 28 high take the rules for small images."""
    if image_shape[1] <= 28:
        units, filters, bottle_neck = _small(num_layers)
    else:
        units, filters, bottle_neck = _large(num_layers)
    return resnet(
        units, len(units), [scaled(count, width, 4) for count in filters], num_classes, image_shape, bottle_neck
    )


def _small(num_layers: int) -> tuple[Sequence[int], list[int], bool]:
    """6n + 2 layers, or 9n + 2 with bottlenecks from 164 on."""
    if (num_layers - 2) % 9 == 0 and num_layers >= 164:
        return [(num_layers - 2) // 9] * 3, [16, 64, 128, 256], True
    if (num_layers - 2) % 6 == 0 and num_layers < 164:
        return [(num_layers - 2) // 6] * 3, [16, 16, 32, 64], False
    raise InvalidValue(
        f"there is no ResNet of {num_layers} layers for small images", hint="6n + 2 below 164, or 9n + 2 from 164 on"
    )


def _large(num_layers: int) -> tuple[Sequence[int], list[int], bool]:
    if num_layers not in _UNITS:
        raise InvalidValue(f"there is no ResNet of {num_layers} layers", hint=f"one of {sorted(_UNITS)}")
    bottle_neck = num_layers >= 50
    filters = [64, 256, 512, 1024, 2048] if bottle_neck else [64, 64, 128, 256, 512]
    return _UNITS[num_layers], filters, bottle_neck


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, num_layers, image_shape, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
