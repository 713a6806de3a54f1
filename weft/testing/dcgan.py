"""The generator of DCGAN: transposed convolutions from a code to an image. Radford et al., 2015."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import symbol as sym
from ..base.errors import InvalidValue
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .workload import create_workload


def deconv2d(
    data: Symbol,
    ishape: Sequence[int],
    oshape: Sequence[int],
    kshape: tuple[int, int],
    name: str,
    stride: tuple[int, int] = (2, 2),
) -> Symbol:
    """A transposed convolution from images of (channels, height, width) to others."""
    pads = []
    extra = []
    for axis in (0, 1):
        cut = (ishape[axis + 1] - 1) * stride[axis] + kshape[axis] - oshape[axis + 1]
        pads.append((cut + 1) // 2)
        extra.append(2 * pads[-1] - cut)
    return sym.conv2d_transpose(
        data,
        channels=oshape[0],
        kernel_size=kshape,
        strides=stride,
        padding=tuple(pads),
        output_padding=tuple(extra),
        use_bias=False,
        name=name,
    )


def deconv2d_bn_relu(data: Symbol, prefix: str, **kwargs: Any) -> Symbol:
    """The same with batch norm and relu behind it."""
    net = deconv2d(data, name=f"{prefix}_deconv", **kwargs)
    return sym.relu(sym.batch_norm(net, epsilon=1e-5 + 1e-12, name=f"{prefix}_batch_norm"))


def get_symbol(oshape: Sequence[int] = (3, 64, 64), ngf: int = 128, code: Symbol | None = None) -> Symbol:
    """From a code of any length to images of `oshape`: 64 x 64 with `ngf` channels at the end."""
    if tuple(oshape[1:]) != (64, 64):
        raise InvalidValue(f"DCGAN makes images of 64 x 64, not {tuple(oshape[1:])}")
    code = sym.Variable("data") if code is None else code
    net = sym.dense(code, units=4 * 4 * ngf * 8, use_bias=False, name="g1")
    net = sym.reshape(sym.relu(net), shape=(-1, ngf * 8, 4, 4))
    shape = (ngf * 8, 4, 4)
    for number, factor in enumerate((4, 2, 1), start=2):
        made = (ngf * factor, shape[1] * 2, shape[2] * 2)
        net = deconv2d_bn_relu(net, f"g{number}", ishape=shape, oshape=made, kshape=(4, 4))
        shape = made
    net = deconv2d(net, shape, oshape, (4, 4), "g5_deconv")
    return sym.tanh(net, name="output")


def get_workload(
    batch_size: int,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    dtype: str = "float32",
    seed: int = 0,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The generator with random parameters, for codes of (batch_size, random_len)."""
    return create_workload(get_symbol(oshape, ngf), batch_size, (random_len,), dtype, seed=seed)
