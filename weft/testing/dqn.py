"""The deep Q network that learned Atari games. Mnih et al., 2015."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import scaled
from .workload import create_workload


def get_symbol(num_actions: int = 18, width: float = 1.0) -> Symbol:
    """Three convolutions and two dense layers: a value for each action."""
    net = sym.Variable("data")
    for number, (channels, size, stride) in enumerate([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 1):
        net = sym.conv2d(
            net,
            channels=scaled(channels, width),
            kernel_size=(size, size),
            strides=(stride, stride),
            name=f"conv{number}",
        )
        net = sym.relu(net, name=f"relu{number}")
    net = sym.dense(sym.flatten(net), units=scaled(512, width), name="fc1")
    return sym.dense(sym.relu(net, name="relu4"), units=num_actions, name="fc2")


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: Sequence[int] = (4, 84, 84),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_actions, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
