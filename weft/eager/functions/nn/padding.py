"""Rows: elements around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.dtype import is_complex
from ....base.errors import InvalidType, InvalidValue, RunError
from ....core.op import Op
from ....ops.shape.pad import PadAttrs
from ...dispatch import apply
from ...tensor.memory import Array
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import add, mul
from ..shape.join import taken
from ..shape.parts import narrow
from ..table import NN, row

_PAD, _COPY = Op.get("pad"), Op.get("copy")


@row(space=NN, method=False)
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements around a tensor: pairs for the last axis, the one before it, ...

    >>> import weft
    >>> weft.nn.functional.pad(weft.tensor([[1, 2]]), (1, 0, 0, 1))
    tensor([[0, 1, 2],
            [0, 0, 0]])
    >>> weft.nn.functional.pad(weft.tensor([[1.0, 2.0, 3.0]]), (2, 0), mode="reflect")
    tensor([[3., 2., 1., 2., 3.]])
    """
    pairs = _pairs(pad, input.ndim)
    if mode == "constant":
        return constant_pad(input, pairs, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise RunError(f"Unrecognised padding mode {mode}")
    if value not in (None, 0):
        raise InvalidValue(f'Padding mode "{mode}" doesn\'t take in value argument')
    _check_pads(input, pairs, len(pad) // 2, mode)
    if mode == "circular":
        return _by_places(input, pairs, _wrapped)
    if any(min(pair) < 0 for pair in pairs):
        inward = _reflected if mode == "reflect" else _clamped
        return _by_places(input, pairs, inward)
    name = "edge" if mode == "replicate" else mode
    return apply(_PAD, PadAttrs(pad_width=tuple(pairs), mode=name), [input])[0]


def _pairs(pad: Any, rank: int) -> list[tuple[int, int]]:
    """What goes before and after, along every axis."""
    widths = [int(n) for n in pad]
    if len(widths) % 2:
        raise RunError("Padding length must be divisible by 2")
    if len(widths) > 2 * rank:
        raise RunError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(widths)} and input of dimension {rank}"
        )
    return [(0, 0)] * (rank - len(widths) // 2) + list(zip(widths[::2], widths[1::2]))[::-1]


def _reflected(size: int, before: int, after: int) -> Array:
    places: Array = size - 1 - np.abs(size - 1 - np.abs(np.arange(-before, size + after)))
    return places


def _clamped(size: int, before: int, after: int) -> Array:
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def _wrapped(size: int, before: int, after: int) -> Array:
    """Negative widths cut first."""
    first = max(-before, 0)
    kept = size - first - max(-after, 0)
    return first + np.arange(-max(before, 0), kept + max(after, 0)) % kept


def _by_places(input: Tensor, pairs: Sequence[tuple[int, int]], places: Any) -> Tensor:
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            input = taken(input, axis, places(input._shape[axis], before, after))
    return input


def _check_pads(input: Tensor, pairs: Sequence[tuple[int, int]], count: int, mode: str) -> None:
    rank = input.ndim
    if count not in (1, 2, 3) or rank not in (count + 1, count + 2):
        raise NotImplementedRun(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported, got "
            f"{rank} dimensions and padding of {2 * count} numbers"
        )
    for size, pair in zip(input._shape[-count:], pairs[-count:]):
        if not size and any(pair):
            raise RunError(f"an empty dimension cannot be padded in mode {mode}")
        if mode == "reflect" and max(pair) >= size:
            raise RunError(
                "Argument #4: Padding size should be less than the corresponding input dimension, "
                f"but got: padding {pair} at dimension of input {list(input.shape)}"
            )
        if mode == "circular" and max(pair) > size:
            raise RunError("Padding value causes wrapping around more than once.")
        if size + sum(pair) < 0 or (mode == "circular" and size + min(pair) < 0):
            raise RunError("Negative padding value is resulting in an empty dimension.")


def _zeros_like(input: Tensor) -> Tensor:
    return wrap(np.zeros(input._shape, input._dtype))


class NotImplementedRun(RunError, NotImplementedError):
    """Something that PyTorch does not implement, either."""


def constant_pad(input: Tensor, pairs: Sequence[tuple[int, int]], value: float) -> Tensor:
    shape = input._shape
    for axis, (before, after) in enumerate(pairs):
        if shape[axis] + before + after < 0:
            raise RunError(
                f"The input size {shape[axis]}, plus negative padding {before} and {after} "
                f"resulted in a negative output size, which is invalid. Check dimension {axis} of "
                "your input."
            )
    result = input
    for axis, (before, after) in enumerate(pairs):
        cut, size = max(-before, 0), result._shape[axis]
        if before < 0 or after < 0:
            result = narrow(result, axis, min(cut, size), max(size - cut - max(-after, 0), 0))
    widths = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    if not any(map(any, widths)):
        return apply(_COPY, None, [result])[0]
    if isinstance(value, complex) and not is_complex(input._dtype):
        raise InvalidType("pad(): argument 'value' (position 4) must be float, not complex")
    if isinstance(value, complex) and value.imag:
        outside = apply(_PAD, PadAttrs(pad_width=widths, pad_value=1.0), [_zeros_like(result)])[0]
        inside = apply(_PAD, PadAttrs(pad_width=widths), [result])[0]
        return add(inside, mul(outside, value))
    number = float(value.real if isinstance(value, complex) else value)
    return apply(_PAD, PadAttrs(pad_width=widths, pad_value=number), [result])[0]


@row(method=False)
def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """`nn.functional.pad` with a value"""
    return constant_pad(input, _pairs(pad, input.ndim), value)
