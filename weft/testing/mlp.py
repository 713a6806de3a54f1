"""A multi-layer perceptron: three dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .workload import create_workload


def get_symbol(num_classes: int = 1000, hidden: Sequence[int] = (128, 64)) -> Symbol:
    """Dense layers with relu between them, and softmax."""
    net = sym.flatten(sym.Variable("data"))
    for number, units in enumerate(hidden, start=1):
        net = sym.relu(sym.dense(net, units=units, name=f"fc{number}"), name=f"relu{number}")
    net = sym.dense(net, units=num_classes, name=f"fc{len(hidden) + 1}")
    return sym.softmax(net, name="softmax")


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
