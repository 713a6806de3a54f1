"""Rows: convolutions of one to three dimensions, all by the one of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import is_complex
from ....base.errors import RunError
from ....core.op import Op
from ....ops.nn.conv import Conv2DAttrs, Conv2DTransposeAttrs
from ....ops.shape.pad import PadAttrs
from ...dispatch import apply
from ...tensor.memory import memory_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.viewing import part_of
from ..math.arithmetic import add, sub
from ..math.complex import complex as of_parts
from ..math.complex import imag, real
from ..shape.join import stack
from ..shape.parts import narrow, unbind
from ..shape.shape import permute, reshape, squeeze, transpose, unsqueeze
from ..table import NN, row
from .by_rank import by_rank, several

_CONV, _TRANSPOSED, _PAD = (Op.get(name) for name in ("conv2d", "conv2d_transpose", "pad"))


def _prepared(
    rank: int, name: str, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, dilation: Any
) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """The data as a batch, and the steps and gaps of windows."""
    if input.ndim not in (rank + 1, rank + 2):
        raise RunError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got "
            f"input of size: {list(input.shape)}"
        )
    if weight.ndim != rank + 2:
        raise RunError(f"weight should have {rank + 2} dimensions, got {weight.ndim}")
    for tensor in (weight, bias):
        if tensor is not None and tensor._dtype != input._dtype:
            raise RunError(f"Input type ({input.dtype.name}) and bias type ({tensor.dtype.name}) should be the same")
    steps, gaps = several(stride, rank, "stride"), several(dilation, rank, "dilation")
    for what, numbers in (("stride", steps), ("dilation", gaps)):
        if min(numbers) <= 0:
            raise RunError(f"non-positive {what} is not supported")
    return input if input.ndim == rank + 2 else unsqueeze(input, 0), steps, gaps


def _check_channels(channels: int, weight: Tensor, bias: Tensor | None, groups: int, transposed: bool) -> int:
    """The number of output channels."""
    shape = weight._shape
    if groups <= 0:
        raise RunError("non-positive groups is not supported")
    if any(n == 0 for n in shape[2:]):
        raise RunError("weight should have at least one element along every axis")
    wanted = shape[0] if transposed else shape[1] * groups
    if channels != wanted:
        raise RunError(
            f"Given groups={groups}, weight of size {list(shape)}, expected input to have {wanted} "
            f"channels, but got {channels} channels instead"
        )
    if shape[0] < groups or (transposed and not shape[1]):
        raise RunError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, "
            f"but got weight of size {list(shape)} instead"
        )
    if shape[0] % groups:
        raise RunError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {list(shape)} instead"
        )
    out: int = shape[1] * groups if transposed else shape[0]
    if bias is not None and bias._shape != (out,):
        raise RunError(
            f"Given weight of size {list(shape)}, expected bias to be 1-dimensional with {out} "
            f"elements, but got bias of size {list(bias.shape)} instead"
        )
    return out


def _padding(
    padding: Any, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int], rank: int
) -> list[tuple[int, int]]:
    """What goes before and after, along each dimension."""
    if not isinstance(padding, str):
        pads = several(padding, rank, "padding")
        if any(pad < 0 for pad in pads):
            raise RunError("negative padding is not supported")
        return [(pad, pad) for pad in pads]
    if padding == "valid":
        return [(0, 0)] * rank
    if padding != "same":
        raise RunError(f"Invalid padding string: {padding!r}")
    if any(step != 1 for step in stride):
        raise RunError("padding='same' is not supported for strided convolutions")
    whole = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return [(total // 2, total - total // 2) for total in whole]


def _fits(sizes: Sequence[int], pads: Any, kernel: Sequence[int], dilation: Sequence[int]) -> None:
    have = [n + before + after for n, (before, after) in zip(sizes, pads)]
    need = [d * (k - 1) + 1 for k, d in zip(kernel, dilation)]
    if any(n < k for n, k in zip(have, need)):
        raise RunError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, have))}). Kernel "
            f"size: ({' x '.join(map(str, need))}). Kernel size can't be greater than actual input "
            "size"
        )


def _by_parts(run: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution of complex numbers as four of their parts."""
    (a, b), (c, d) = ((real(x), imag(x)) for x in (input, weight))
    biases = (None, None) if bias is None else (real(bias), imag(bias))
    return of_parts(sub(run(a, c, biases[0]), run(b, d, None)), add(run(a, d, biases[1]), run(b, c, None)))


def _conv2(
    data: Tensor, weight: Tensor, bias: Tensor | None, steps: Any, pads: Any, gaps: Any, groups: int, out: int
) -> Tensor:
    (top, bottom), (left, right) = pads
    params = Conv2DAttrs(
        channels=out,
        kernel_size=weight._shape[2:],
        strides=tuple(steps),
        padding=(top, left, bottom, right),
        dilation=tuple(gaps),
        groups=groups,
        use_bias=bias is not None,
    )
    inputs = [data, weight] if bias is None else [data, weight, bias]
    return apply(_CONV, params, inputs)[0]


def _conv1(
    data: Tensor, weight: Tensor, bias: Tensor | None, steps: Any, pads: Any, gaps: Any, groups: int, out: int
) -> Tensor:
    wide, kernel = unsqueeze(data, 2), unsqueeze(weight, 2)
    result = _conv2(wide, kernel, bias, (1, *steps), [(0, 0), *pads], (1, *gaps), groups, out)
    return squeeze(result, 2)


def _conv3(
    data: Tensor, weight: Tensor, bias: Tensor | None, steps: Any, pads: Any, gaps: Any, groups: int, out: int
) -> Tensor:
    """The sum over the taps along the first dimension, slices of which are items of a batch."""
    if any(pads[0]):
        widths = ((0, 0), (0, 0), pads[0], (0, 0), (0, 0))
        data = apply(_PAD, PadAttrs(pad_width=widths), [data])[0]
    items, channels, depth, *rest = data._shape
    count = (depth - gaps[0] * (weight._shape[2] - 1) - 1) // steps[0] + 1
    result = None
    for tap in range(weight._shape[2]):
        part = _every(data, 2, tap * gaps[0], count, steps[0])
        flat = reshape(transpose(part, 1, 2), (items * count, channels, *rest))
        kernel = squeeze(_every(weight, 2, tap, 1, 1), 2)
        tap_bias = bias if tap == 0 else None
        step = _conv2(flat, kernel, tap_bias, steps[1:], pads[1:], gaps[1:], groups, out)
        result = step if result is None else add(result, step)
    assert result is not None
    return transpose(reshape(result, (items, count, *result._shape[1:])), 1, 2)


def _every(data: Tensor, axis: int, start: int, count: int, step: int) -> Tensor:
    slices = [(0, n, 1) for n in data._shape]
    slices[axis] = (start, count, step)
    index = tuple(slice(a, a + (n - 1) * s + 1 if n else a, s) for a, n, s in slices)
    return part_of(data, slices, memory_of(data)[index])


def _convolution(rank: int) -> Callable[..., Tensor]:
    run = (_conv1, _conv2, _conv3)[rank - 1]

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        data, steps, gaps = _prepared(rank, f"conv{rank}d", input, weight, bias, stride, dilation)
        if is_complex(input._dtype):
            run_parts = lambda x, w, b: conv(x, w, b, stride, padding, dilation, groups)
            return _by_parts(run_parts, input, weight, bias)
        out = _check_channels(data._shape[1], weight, bias, groups, False)
        kernel = weight._shape[2:]
        pads = _padding(padding, kernel, gaps, steps, rank)
        _fits(data._shape[2:], pads, kernel, gaps)
        result = run(data, weight, bias, steps, pads, gaps, groups, out)
        return result if data is input else squeeze(result, 0)

    return conv


conv1d, conv2d, conv3d = by_rank(
    _convolution,
    "conv{}d",
    "Sums of products of weights and windows {}",
    core=True,
    examples={
        1: (
            ">>> x, weight = weft.tensor([[1.0, 2.0, 4.0]]), weft.tensor([[[-1.0, 1.0]]])",
            ">>> weft.nn.functional.conv1d(x, weight)",
            "tensor([[1., 2.]])",
        ),
        2: (
            ">>> images, weight = weft.ones(1, 1, 3, 3), weft.ones(1, 1, 2, 2)",
            ">>> weft.nn.functional.conv2d(images, weight)",
            "tensor([[[[4., 4.],",
            "          [4., 4.]]]])",
            ">>> weft.nn.functional.conv2d(images, weight, stride=2, padding=1).shape",
            "weft.Size([1, 1, 2, 2])",
        ),
    },
)


def _check_output_padding(extra: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> None:
    for added, step, gap in zip(extra, steps, gaps):
        if added >= max(step, gap):
            raise RunError(
                f"output_padding {added} is too large", why="it must be smaller than the stride or the dilation"
            )


class _Spread(NamedTuple):
    """How windows lie in the output of a transposed convolution, along each dimension."""

    steps: tuple[int, ...]
    pads: tuple[int, ...]
    extra: tuple[int, ...]
    gaps: tuple[int, ...]


def _spread2(data: Tensor, weight: Tensor, bias: Tensor | None, sizes: _Spread, groups: int, out: int) -> Tensor:
    params = Conv2DTransposeAttrs(
        channels=out,
        kernel_size=weight._shape[2:],
        strides=sizes.steps,
        padding=sizes.pads,
        output_padding=sizes.extra,
        dilation=sizes.gaps,
        groups=groups,
        use_bias=bias is not None,
    )
    return apply(_TRANSPOSED, params, [data, weight] if bias is None else [data, weight, bias])[0]


def _spread1(data: Tensor, weight: Tensor, bias: Tensor | None, sizes: _Spread, groups: int, out: int) -> Tensor:
    wide = _Spread(*[(first, *numbers) for first, numbers in zip((1, 0, 0, 1), sizes)])
    return squeeze(_spread2(unsqueeze(data, 2), unsqueeze(weight, 2), bias, wide, groups, out), 2)


def _spread3(data: Tensor, weight: Tensor, bias: Tensor | None, sizes: _Spread, groups: int, out: int) -> Tensor:
    """All taps along the first dimension as channels of images, each then added where it lies."""
    (step, *_), (pad, *_), (more, *_), (gap, *_) = sizes
    items, channels, depth, *rest = data._shape
    taps, kernel = weight._shape[2], weight._shape[3:]
    length = (depth - 1) * step + gap * (taps - 1) + 1 + more
    if min(pad, more) < 0 or more >= max(step, gap) or length <= 2 * pad:
        raise RunError(
            f"padding {sizes.pads} and output padding {sizes.extra} do not fit: an output padding "
            "must be smaller than either stride or dilation, and something must be left"
        )
    flat = reshape(transpose(data, 1, 2), (items * depth, channels, *rest))
    kernels = reshape(weight, (channels, -1, *kernel))
    inner = _Spread(*[numbers[1:] for numbers in sizes])
    planes = _spread2(flat, kernels, None, inner, groups, out * taps)
    planes = reshape(planes, (items, depth, out, taps, *planes._shape[2:]))
    result = _interleaved(unbind(transpose(planes, 1, 2), 3), step, gap, length)
    result = _every(result, 2, pad, length - 2 * pad, 1)
    return result if bias is None else add(result, reshape(bias, (-1, 1, 1, 1)))


def _interleaved(taps: Sequence[Tensor], step: int, gap: int, length: int) -> Tensor:
    """Slices along axis 2, of which slice i of tap k is added at step i + gap k. Places that leave
    the same rest when they are divided by the step are summed apart."""
    items, channels, depth, *rest = taps[0]._shape
    count = -(-length // step)
    phases: list[Tensor | None] = [None] * step
    for tap, slices in enumerate(taps):
        before, phase = divmod(tap * gap, step)
        widths = ((0, 0), (0, 0), (before, count - depth - before), (0, 0), (0, 0))
        part = apply(_PAD, PadAttrs(pad_width=widths), [slices])[0] if any(widths[2]) else slices
        known = phases[phase]
        phases[phase] = part if known is None else add(known, part)
    if step == 1:
        assert phases[0] is not None
        return phases[0]
    nothing = wrap(np.zeros((items, channels, count, *rest), taps[0]._dtype))
    result = stack([nothing if phase is None else phase for phase in phases], 3)
    return reshape(result, (items, channels, count * step, *rest))


def _transposed(rank: int) -> Callable[..., Tensor]:
    run = (_spread1, _spread2, _spread3)[rank - 1]

    def spread(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        data, steps, gaps = _prepared(rank, f"conv_transpose{rank}d", input, weight, bias, stride, dilation)
        if is_complex(input._dtype):
            run_parts = lambda x, w, b: spread(x, w, b, stride, padding, output_padding, groups, dilation)
            return _by_parts(run_parts, input, weight, bias)
        pads, extra = several(padding, rank, "padding"), several(output_padding, rank, "output_padding")
        _check_output_padding(extra, steps, gaps)
        if 0 in data._shape[2:]:
            raise RunError(
                f"Only zero batch or zero channel inputs are supported, but got input shape: {list(data._shape)}"
            )
        out = _check_channels(data._shape[1], weight, bias, groups, True)
        sizes = _Spread(steps, pads, extra, gaps)
        result = _spread_or_empty(run, sizes, data, weight, bias, groups, out)
        return result if data is input else squeeze(result, 0)

    return spread


def _spread_or_empty(
    run: Callable[..., Tensor], sizes: _Spread, data: Tensor, weight: Tensor, bias: Tensor | None, groups: int, out: int
) -> Tensor:
    """A transposed convolution; where padding leaves nothing of an axis, it is none of what less padding leaves."""
    extents = [
        (size - 1) * step - 2 * pad + gap * (taps - 1) + 1 + more
        for size, taps, step, pad, more, gap in zip(data._shape[2:], weight._shape[2:], *sizes)
    ]
    if 0 not in extents or min(extents) < 0:
        return run(data, weight, bias, sizes, groups, out)
    less = tuple(pad - (extent == 0) for pad, extent in zip(sizes.pads, extents))
    result = run(data, weight, bias, sizes._replace(pads=less), groups, out)
    for axis, extent in enumerate(extents, 2):
        result = result if extent else narrow(result, axis, 0, 0)
    return result


conv_transpose1d, conv_transpose2d, conv_transpose3d = by_rank(
    _transposed, "conv_transpose{}d", "The transpose of a convolution {} in its data", core=True
)


@row(method=False)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """The convolution of as many dimensions as the weight has, or its transpose"""
    rank = weight.ndim - 2
    if not 1 <= rank <= 3:
        raise RunError(f"weight should have at least three dimensions, and at most 5, got {rank + 2}")
    if transposed:
        spread = (conv_transpose1d, conv_transpose2d, conv_transpose3d)[rank - 1]
        return spread(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return (conv1d, conv2d, conv3d)[rank - 1](input, weight, bias, stride, padding, dilation, groups)


@row(method=False)
@row(space=NN, method=False)
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """The convolution along time of (time, batch, channels) with (width, channels, outputs)"""
    for tensor, rank, what in ((input, 3, "Input"), (weight, 3, "Weight"), (bias, 1, "Bias")):
        if tensor.ndim != rank:
            raise RunError(f"{what} must have {rank} dims, but has {tensor.ndim}")
    result = conv1d(permute(input, (1, 2, 0)), permute(weight, (2, 1, 0)), bias, padding=pad)
    return permute(result, (2, 0, 1))
