"""MobileNet v2: inverted residuals with linear bottlenecks. Sandler et al., 2018."""

from __future__ import annotations

from collections.abc import Sequence

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import classify, conv_bn_relu, scaled
from .workload import create_workload

# Expansion, channels, how many, stride of the first.
_STAGES = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def inverted_residual(data: Symbol, inputs: int, channels: int, stride: int, expansion: int, name: str) -> Symbol:
    """Widen, filter each channel, narrow without activation; add the input where it fits."""
    net, inner = data, inputs * expansion
    if expansion != 1:
        net = conv_bn_relu(net, inner, f"{name}_expand", activation="relu6")
    net = conv_bn_relu(
        net, inner, f"{name}_depthwise", (3, 3), (stride, stride), (1, 1), groups=inner, activation="relu6"
    )
    net = conv_bn_relu(net, channels, f"{name}_project", activation=None)
    if stride == 1 and inputs == channels:
        net = sym.elemwise_add(data, net, name=f"{name}_add")
    return net


def get_symbol(num_classes: int = 1000, multiplier: float = 1.0) -> Symbol:
    """The network; `multiplier` is the width."""
    divisor = 8 if multiplier >= 0.5 else 4
    channels = scaled(32, multiplier, divisor)
    net = conv_bn_relu(sym.Variable("data"), channels, "first", (3, 3), (2, 2), (1, 1), activation="relu6")
    for stage, (expansion, count, repeats, stride) in enumerate(_STAGES, start=1):
        wider = scaled(count, multiplier, divisor)
        for unit in range(repeats):
            name, step = f"stage{stage}_unit{unit + 1}", stride if unit == 0 else 1
            net = inverted_residual(net, channels, wider, step, expansion, name)
            channels = wider
    last = scaled(1280, max(multiplier, 1.0) if multiplier >= 0.5 else multiplier)
    return classify(conv_bn_relu(net, last, "last", activation="relu6"), num_classes, "fc")


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    multiplier: float = 1.0,
    dtype: str = "float32",
    image_shape: Sequence[int] = (3, 224, 224),
    seed: int = 0,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, multiplier)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
