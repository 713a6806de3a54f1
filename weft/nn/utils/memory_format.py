"""The weights of convolutions in another order of memory."""

from __future__ import annotations

from typing import Any, TypeVar

from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

M = TypeVar("M", bound=Module)


def _converted(module: M, memory_format: Any, kinds: tuple[type[Module], ...]) -> M:
    for inside in module.modules():
        if isinstance(inside, kinds):
            inside.weight.data = inside.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lays the weights of Conv2d and ConvTranspose2d inside a module out in an order such as `channels_last`. Gives
    the module; no result changes."""
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lays the weights of Conv3d and ConvTranspose3d inside a module out in an order such as `channels_last_3d`."""
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))
