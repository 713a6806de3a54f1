"""Inception v3: parallel towers of small convolutions, joined. Szegedy et al., 2015."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def Inception7A(data: Symbol, counts: Sequence[int], pool: str, proj: int, name: str) -> Symbol:
    """1 x 1, twice 3 x 3, 5 x 5, and a pool."""
    ones, reduced, first, second, reduced_5, fives = counts
    tower = _tower(data, f"{name}_tower", _square(reduced_5, 1), _square(fives, 5, pad=2))
    layers = (_square(reduced, 1), _square(first, 3, pad=1), _square(second, 3, pad=1))
    return _joined(
        name,
        Conv(data, ones, name=f"{name}_conv"),
        tower,
        _tower(data, f"{name}_tower_1", *layers),
        Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv"),
    )


def Inception7B(data: Symbol, counts: Sequence[int], pool: str, name: str) -> Symbol:
    """Halves the image: 3 x 3, twice 3 x 3, and a pool."""
    threes, reduced, first, second = counts
    once = Conv(data, threes, (3, 3), (2, 2), name=f"{name}_conv")
    twice = _tower(data, f"{name}_tower", _square(reduced, 1), _square(first, 3, pad=1), _square(second, 3, 2))
    return _joined(name, once, twice, Pooling(data, (3, 3), (2, 2), (0, 0), pool, f"{name}_pool"))


_ROW: tuple[Pair, Pair, Pair] = ((1, 7), (1, 1), (0, 3))
_COLUMN: tuple[Pair, Pair, Pair] = ((7, 1), (1, 1), (3, 0))


def Inception7C(data: Symbol, counts: Sequence[int], pool: str, proj: int, name: str) -> Symbol:
    """1 x 1, a 7 x 7 in two lines, two of them in four, and a pool."""
    ones, reduced, row, column, reduced_4, *lines = counts
    once = _tower(data, f"{name}_tower", _square(reduced, 1), (row, *_ROW), (column, *_COLUMN))
    layers: list[Layer] = [(count, *way) for count, way in zip(lines, (_COLUMN, _ROW, _COLUMN, _ROW), strict=True)]
    return _joined(
        name,
        Conv(data, ones, name=f"{name}_conv"),
        once,
        _tower(data, f"{name}_tower_1", _square(reduced_4, 1), *layers),
        Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv"),
    )


def Inception7D(data: Symbol, counts: Sequence[int], pool: str, name: str) -> Symbol:
    """Halves the image: 3 x 3, a 7 x 7 in two lines with 3 x 3, and a pool."""
    reduced, threes, reduced_7, row, column, threes_7 = counts
    layers = (_square(reduced_7, 1), (row, *_ROW), (column, *_COLUMN), _square(threes_7, 3, 2))
    return _joined(
        name,
        _tower(data, f"{name}_tower", _square(reduced, 1), _square(threes, 3, 2)),
        _tower(data, f"{name}_tower_1", *layers),
        Pooling(data, (3, 3), (2, 2), (0, 0), pool, f"{name}_pool"),
    )


def Inception7E(data: Symbol, counts: Sequence[int], pool: str, proj: int, name: str) -> Symbol:
    """1 x 1, two towers that end in a row and a column each, and a pool."""
    ones, reduced, row, column, reduced_3, threes, row_3, column_3 = counts
    left = Conv(data, reduced, name=f"{name}_tower")
    right = _tower(data, f"{name}_tower_1", _square(reduced_3, 1), _square(threes, 3, pad=1))
    return _joined(
        name,
        Conv(data, ones, name=f"{name}_conv"),
        Conv(left, row, (1, 3), (1, 1), (0, 1), f"{name}_tower_mixed"),
        Conv(left, column, (3, 1), (1, 1), (1, 0), f"{name}_tower_mixed", "_1"),
        Conv(right, row_3, (1, 3), (1, 1), (0, 1), f"{name}_tower_1_mixed"),
        Conv(right, column_3, (3, 1), (1, 1), (1, 0), f"{name}_tower_1_mixed", "_1"),
        Conv(_pooled(data, pool, name), proj, name=f"{name}_tower_2_conv"),
    )


def get_symbol(num_classes: int = 1000, width: float = 1.0, **kwargs: Any) -> Symbol:
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
        net = Inception7A(net, w(64, 64, 96, 96, 48, 64), "avg", w(proj)[0], name)
    net = Inception7B(net, w(384, 64, 96, 96), "max", "mixed_3")
    for number, n in enumerate((128, 160, 160, 192), start=4):
        sizes = w(192, n, n, 192, n, n, n, n, 192)
        net = Inception7C(net, sizes, "avg", w(192)[0], f"mixed_{number}")
    net = Inception7D(net, w(192, 320, 192, 192, 192, 192), "max", "mixed_8")
    for number, kind in enumerate(("avg", "max"), start=9):
        sizes = w(320, 384, 384, 384, 448, 384, 384, 384)
        net = Inception7E(net, sizes, kind, w(192)[0], f"mixed_{number}")
    net = sym.flatten(sym.global_avg_pool2d(net, name="global_pool"), name="flatten")
    return sym.softmax(sym.dense(net, units=num_classes, name="fc1"), name="softmax")


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: Sequence[int] = (3, 299, 299),
    dtype: str = "float32",
    seed: int = 0,
    **kwargs: Any,
) -> tuple[Symbol, dict[str, NDArray]]:
    """The network with random parameters."""
    net = get_symbol(num_classes, **kwargs)
    return create_workload(net, batch_size, image_shape, dtype, seed=seed)
