"""Inception v3: parallel towers of small convolutions, joined. Szegedy et al., 2015."""

from __future__ import annotations

from collections.abc import Sequence

from .. import symbol as sym
from ..base.ndarray import NDArray
from ..core.symbol import Symbol
from .layers import Pair, conv_bn_relu, scaled
from .workload import create_workload

# A layer of a tower: channels, kernel, stride, pad.
Layer = tuple[int, Pair, Pair, Pair]


def Conv(
    data: Symbol,
    num_filter: int,
    kernel: Pair = (1, 1),
    stride: Pair = (1, 1),
    pad: Pair = (0, 0),
    name: str = "",
    suffix: str = "",
) -> Symbol:
    """Convolution, batch norm, relu."""
    return conv_bn_relu(data, num_filter, f"{name}{suffix}", kernel, stride, pad, epsilon=2e-5)


def Pooling(data: Symbol, kernel: Pair, stride: Pair, pad: Pair, pool_type: str, name: str) -> Symbol:
    """A max or avg pool; padding counts as zeros in the average."""
    attrs = {"pool_size": kernel, "strides": stride, "padding": pad, "name": name}
    if pool_type == "max":
        return sym.max_pool2d(data, **attrs)
    return sym.avg_pool2d(data, count_include_pad=True, **attrs)


def _square(channels: int, size: int, stride: int = 1, pad: int = 0) -> Layer:
    return channels, (size, size), (stride, stride), (pad, pad)


def _tower(data: Symbol, name: str, *layers: Layer) -> Symbol:
    for number, (channels, kernel, stride, pad) in enumerate(layers):
        data = Conv(data, channels, kernel, stride, pad, name, f"_conv_{number}" if number else "")
    return data


def _joined(name: str, *towers: Symbol) -> Symbol:
    return sym.concatenate(*towers, axis=1, name=f"ch_concat_{name}_chconcat")


def _pooled(data: Symbol, kind: str, name: str) -> Symbol:
    return Pooling(data, (3, 3), (1, 1), (1, 1), kind, f"{name}_pool")


def Inception7A(
    data: Symbol,
    num_1x1: int,
    num_3x3_red: int,
    num_3x3_1: int,
    num_3x3_2: int,
    num_5x5_red: int,
    num_5x5: int,
    pool: str,
    proj: int,
    name: str,
) -> Symbol:
    """1 x 1, 5 x 5, twice 3 x 3, and a pool."""
    fives = _tower(data, f"{name}_tower", _square(num_5x5_red, 1), _square(num_5x5, 5, pad=2))
    threes = _tower(
        data, f"{name}_tower_1", _square(num_3x3_red, 1), _square(num_3x3_1, 3, pad=1), _square(num_3x3_2, 3, pad=1)
    )
    ones = Conv(data, num_1x1, name=f"{name}_conv")
    pooled = Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv")
    return _joined(name, ones, fives, threes, pooled)


def Inception7B(
    data: Symbol, num_3x3: int, num_d3x3_red: int, num_d3x3_1: int, num_d3x3_2: int, pool: str, name: str
) -> Symbol:
    """Halves the image: 3 x 3, twice 3 x 3, and a pool."""
    threes = Conv(data, num_3x3, (3, 3), (2, 2), name=f"{name}_conv")
    deep = _tower(
        data, f"{name}_tower", _square(num_d3x3_red, 1), _square(num_d3x3_1, 3, pad=1), _square(num_d3x3_2, 3, 2)
    )
    return _joined(name, threes, deep, Pooling(data, (3, 3), (2, 2), (0, 0), pool, f"{name}_pool"))


_ROW: tuple[Pair, Pair, Pair] = ((1, 7), (1, 1), (0, 3))
_COLUMN: tuple[Pair, Pair, Pair] = ((7, 1), (1, 1), (3, 0))


def Inception7C(
    data: Symbol,
    num_1x1: int,
    num_d7_red: int,
    num_d7_1: int,
    num_d7_2: int,
    num_q7_red: int,
    num_q7_1: int,
    num_q7_2: int,
    num_q7_3: int,
    num_q7_4: int,
    pool: str,
    proj: int,
    name: str,
) -> Symbol:
    """1 x 1, a 7 x 7 in two lines, two of them in four, and a pool."""
    once = _tower(data, f"{name}_tower", _square(num_d7_red, 1), (num_d7_1, *_ROW), (num_d7_2, *_COLUMN))
    twice = _tower(
        data,
        f"{name}_tower_1",
        _square(num_q7_red, 1),
        (num_q7_1, *_COLUMN),
        (num_q7_2, *_ROW),
        (num_q7_3, *_COLUMN),
        (num_q7_4, *_ROW),
    )
    ones = Conv(data, num_1x1, name=f"{name}_conv")
    pooled = Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv")
    return _joined(name, ones, once, twice, pooled)


def Inception7D(
    data: Symbol,
    num_3x3_red: int,
    num_3x3: int,
    num_d7_3x3_red: int,
    num_d7_1: int,
    num_d7_2: int,
    num_d7_3x3: int,
    pool: str,
    name: str,
) -> Symbol:
    """Halves the image: 3 x 3, a 7 x 7 in two lines with 3 x 3, and a pool."""
    threes = _tower(data, f"{name}_tower", _square(num_3x3_red, 1), _square(num_3x3, 3, 2))
    sevens = _tower(
        data,
        f"{name}_tower_1",
        _square(num_d7_3x3_red, 1),
        (num_d7_1, *_ROW),
        (num_d7_2, *_COLUMN),
        _square(num_d7_3x3, 3, 2),
    )
    pooled = Pooling(data, (3, 3), (2, 2), (0, 0), pool, f"{name}_pool")
    return _joined(name, threes, sevens, pooled)


def Inception7E(
    data: Symbol,
    num_1x1: int,
    num_d3_red: int,
    num_d3_1: int,
    num_d3_2: int,
    num_3x3_d3_red: int,
    num_3x3: int,
    num_3x3_d3_1: int,
    num_3x3_d3_2: int,
    pool: str,
    proj: int,
    name: str,
) -> Symbol:
    """1 x 1, two towers that end in a row and a column each, and a pool."""
    left = Conv(data, num_d3_red, name=f"{name}_tower")
    right = _tower(data, f"{name}_tower_1", _square(num_3x3_d3_red, 1), _square(num_3x3, 3, pad=1))
    return _joined(
        name,
        Conv(data, num_1x1, name=f"{name}_conv"),
        Conv(left, num_d3_1, (1, 3), (1, 1), (0, 1), f"{name}_tower_mixed"),
        Conv(left, num_d3_2, (3, 1), (1, 1), (1, 0), f"{name}_tower_mixed", "_1"),
        Conv(right, num_3x3_d3_1, (1, 3), (1, 1), (0, 1), f"{name}_tower_1_mixed"),
        Conv(right, num_3x3_d3_2, (3, 1), (1, 1), (1, 0), f"{name}_tower_1_mixed", "_1"),
        Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv"),
    )


def get_symbol(num_classes: int = 1000, width: float = 1.0, **kwargs: object) -> Symbol:
    """The network; images must be at least 75 high and wide."""

    def w(*counts: int) -> list[int]:
        return [scaled(count, width) for count in counts]

    net = Conv(sym.Variable("data"), w(32)[0], (3, 3), (2, 2), name="conv")
    net = Conv(net, w(32)[0], (3, 3), name="conv_1")
    net = Conv(net, w(64)[0], (3, 3), pad=(1, 1), name="conv_2")
    net = Pooling(net, (3, 3), (2, 2), (0, 0), "max", "pool")
    net = Conv(net, w(80)[0], name="conv_3")
    net = Conv(net, w(192)[0], (3, 3), name="conv_4")
    net = Pooling(net, (3, 3), (2, 2), (0, 0), "max", "pool1")
    for number, proj in enumerate((32, 64, 64)):
        name = f"mixed_{number}"
        net = Inception7A(net, *w(64, 64, 96, 96, 48, 64), "avg", *w(proj), name)
    net = Inception7B(net, *w(384, 64, 96, 96), "max", "mixed_3")
    for number, n in enumerate((128, 160, 160, 192), start=4):
        sizes = w(192, n, n, 192, n, n, n, n, 192)
        net = Inception7C(net, *sizes, "avg", *w(192), f"mixed_{number}")
    net = Inception7D(net, *w(192, 320, 192, 192, 192, 192), "max", "mixed_8")
    for number, kind in enumerate(("avg", "max"), start=9):
        sizes = w(320, 384, 384, 384, 448, 384, 384, 384)
        net = Inception7E(net, *sizes, kind, *w(192), f"mixed_{number}")
    net = sym.flatten(sym.global_avg_pool2d(net, name="global_pool"), name="flatten")
    return sym.softmax(sym.dense(net, units=num_classes, name="fc1"), name="softmax")


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 299, 299),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: object,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
