"""Convolutions and their transposes over one, two and three dimensions.

Six classes over one base; their lazy forms take the number of input channels from the first input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...base.errors import InvalidValue, RunError
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import init
from ..parameter import UninitializedParameter
from ._making import F, Numbers, for_each, parameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions hold: numbers for each dimension, weight and bias."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, groups, stride, padding, padding_mode)
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel_size
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.transposed, self.output_padding = transposed, output_padding
        self.groups, self.padding_mode = groups, padding_mode
        self._reversed_padding_repeated_twice = _around(padding, kernel_size, dilation)
        self._make_parameters(bias, device, dtype)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

    def _make_parameters(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = parameter(self._weight_shape(), device, dtype)
        self.register_parameter("bias", parameter((self.out_channels,), device, dtype) if bias else None)

    def reset_parameters(self) -> None:
        """Draws weight and bias anew: uniform in +-1/sqrt(fan), fan being the weights of one output."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan = math.prod(self.weight.shape[1:])
        if self.bias is not None and fan:
            bound = 1 / math.sqrt(fan)
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        rank = len(self.kernel_size)
        told = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        usual = {"padding": (0,) * rank, "dilation": (1,) * rank, "output_padding": (0,) * rank, "groups": 1}
        told += [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        told += ["bias=False"] if self.bias is None else []
        told += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(told)


def _check(
    in_channels: int, out_channels: int, groups: int, stride: Sequence[int], padding: Any, padding_mode: str
) -> None:
    if groups <= 0:
        raise InvalidValue(f"groups must be a positive integer, got {groups}")
    for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
        if channels % groups:
            raise InvalidValue(f"{name} must be divisible by groups, but {channels} is not divisible by {groups}")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise InvalidValue(f"Invalid padding string {padding!r}, should be one of 'same', 'valid', or numbers")
        if padding == "same" and any(step != 1 for step in stride):
            raise InvalidValue("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise InvalidValue(f"padding_mode must be one of {_PADDING_MODES}, but got padding_mode={padding_mode!r}")


def _around(padding: str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """What goes before and after each dimension, the last dimension first, as `pad` takes it.

    >>> _around((1, 2), (3, 3), (1, 1)), _around("same", (4,), (1,))
    ([2, 2, 1, 1], [1, 2])
    """
    if padding == "same":
        whole = [gap * (size - 1) for size, gap in zip(kernel, dilation)]
        pairs = [(total // 2, total - total // 2) for total in whole]
    else:
        pairs = [(width, width) for width in ((0,) * len(kernel) if isinstance(padding, str) else padding)]
    return [width for pair in reversed(pairs) for width in pair]


class _Conv(_ConvNd):
    """Convolutions: a member says how many dimensions it has, and its function."""

    _rank: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: str | Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        rank = self._rank
        kernel, steps, gaps = (for_each(value, rank) for value in (kernel_size, stride, dilation))
        pads = padding if isinstance(padding, str) else for_each(padding, rank)
        nothing = for_each(0, rank)
        super().__init__(
            in_channels,
            out_channels,
            kernel,
            steps,
            pads,
            gaps,
            False,
            nothing,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = for_each(0, self._rank)
        return type(self)._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Sums of products of weights with windows along one dimension.

    out[n, o, i] = b[o] + sum over c, j of w[o, c, j] x[n, c, stride i + dilation j - padding], in each group.
    Inputs are (N, C, L) or (C, L); padding is numbers, 'valid' or 'same'; padding_mode says what the padding holds.

    >>> import weft
    >>> weft.nn.Conv1d(2, 4, 3, stride=2)(weft.ones(1, 2, 9)).shape
    weft.Size([1, 4, 4])
    """

    _rank, _function = 1, staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Sums of products of weights with windows of images, (N, C, H, W) or (C, H, W): `Conv1d` in two dimensions.

    Each dimension has (L + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1 windows.

    >>> import weft
    >>> weft.nn.Conv2d(3, 8, 3, padding="same")(weft.ones(1, 3, 5, 7)).shape
    weft.Size([1, 8, 5, 7])
    >>> weft.nn.Conv2d(4, 8, (3, 1), groups=2, padding_mode="reflect")
    Conv2d(4, 8, kernel_size=(3, 1), stride=(1, 1), groups=2, padding_mode=reflect)
    """

    _rank, _function = 2, staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Sums of products of weights with windows of volumes, (N, C, D, H, W) or (C, D, H, W): `Conv1d` in three.

    >>> import weft
    >>> weft.nn.Conv3d(2, 4, 3, padding=1)(weft.ones(1, 2, 4, 5, 6)).shape
    weft.Size([1, 4, 4, 5, 6])
    """

    _rank, _function = 3, staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    """Transposes of convolutions: a member says how many dimensions it has, and its function."""

    _rank: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]
    padding: tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise InvalidValue(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        numbers = (kernel_size, stride, padding, dilation, output_padding)
        kernel, steps, pads, gaps, more = (for_each(value, self._rank) for value in numbers)
        super().__init__(
            in_channels, out_channels, kernel, steps, pads, gaps, True, more, groups, bias, padding_mode, device, dtype
        )

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        more = self.output_padding if output_size is None else self._padding_for(input, output_size)
        return type(self)._function(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )

    def _padding_for(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output padding that gives a size: what is missing from (L - 1) stride - 2 padding + reach, less than a
        stride."""
        rank, sizes = self._rank, tuple(output_size)
        lead = input.ndim - rank
        if len(sizes) == input.ndim and lead in (1, 2):
            sizes = sizes[lead:]
        if len(sizes) != rank:
            raise InvalidValue(
                f"{type(self).__name__}: for {input.ndim}D input, output_size must have {rank} or {input.ndim} "
                f"elements (got {len(sizes)})"
            )
        reaches = [gap * (size - 1) + 1 for size, gap in zip(self.kernel_size, self.dilation)]
        least = [
            (n - 1) * step - 2 * pad + reach
            for n, step, pad, reach in zip(input.shape[-rank:], self.stride, self.padding, reaches)
        ]
        most = [n + step - 1 for n, step in zip(least, self.stride)]
        if any(not low <= size <= high for low, size, high in zip(least, sizes, most)):
            raise InvalidValue(
                f"requested an output size of {list(sizes)}, but valid sizes range from {least} to {most} "
                f"(for an input of {list(input.shape[-rank:])})"
            )
        return tuple(size - low for size, low in zip(sizes, least))


class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of `Conv1d` in its input, as a layer: each element adds the kernel to the output around its place.

    Of L elements come (L - 1) stride - 2 padding + dilation (kernel_size - 1) + output_padding + 1; a call may ask for
    one of the sizes that a convolution brings to L by output_size.

    >>> import weft
    >>> layer = weft.nn.ConvTranspose1d(2, 3, 3, stride=2)
    >>> layer(weft.ones(1, 2, 4)).shape, layer(weft.ones(1, 2, 4), output_size=[10]).shape
    (weft.Size([1, 3, 9]), weft.Size([1, 3, 10]))
    """

    _rank, _function = 1, staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of `Conv2d` in its input, as a layer: `ConvTranspose1d` in two dimensions.

    >>> import weft
    >>> weft.nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1)(weft.ones(1, 4, 3, 5)).shape
    weft.Size([1, 2, 6, 10])
    """

    _rank, _function = 2, staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of `Conv3d` in its input, as a layer: `ConvTranspose1d` in three dimensions.

    >>> import weft
    >>> weft.nn.ConvTranspose3d(4, 2, 2, stride=2)(weft.ones(1, 4, 1, 2, 3)).shape
    weft.Size([1, 2, 2, 4, 6])
    """

    _rank, _function = 3, staticmethod(F.conv_transpose3d)


class _LazyConvNd(LazyModuleMixin, _ConvNd):
    """Parameters that are made for the channels of the first input."""

    _rank: ClassVar[int]

    def _make_parameters(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.register_parameter("bias", UninitializedParameter(device=device, dtype=dtype) if bias else None)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Makes and draws the parameters for inputs like this one, if no state has brought them."""
        if not self.has_uninitialized_params():
            self.in_channels = self.weight.shape[0] if self.transposed else self.weight.shape[1] * self.groups
            return
        if input.ndim not in (self._rank + 1, self._rank + 2):
            raise RunError(
                f"Expected {self._rank + 1}D (unbatched) or {self._rank + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {list(input.shape)}"
            )
        self.in_channels = input.shape[-self._rank - 1]
        if self.in_channels % self.groups:
            raise InvalidValue(f"in_channels must be divisible by groups, got {self.in_channels} and {self.groups}")
        self.weight.materialize(self._weight_shape())
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class _LazyConv(_LazyConvNd, _Conv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: str | Numbers = 0,
        dilation: Numbers = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> layer = weft.nn.LazyConv1d(4, 3)
    >>> layer(weft.ones(1, 2, 9)).shape, layer
    (weft.Size([1, 4, 7]), Conv1d(2, 4, kernel_size=(3,), stride=(1,)))
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyConv2d(4, 3)(weft.ones(1, 2, 9, 5)).shape
    weft.Size([1, 4, 7, 3])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyConv3d(4, 2)(weft.ones(1, 2, 2, 3, 4)).shape
    weft.Size([1, 4, 1, 2, 3])
    """

    cls_to_become = Conv3d


class _LazyConvTranspose(_LazyConvNd, _ConvTransposeNd):
    def __init__(
        self,
        out_channels: int,
        kernel_size: Numbers,
        stride: Numbers = 1,
        padding: Numbers = 0,
        output_padding: Numbers = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Numbers = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        numbers = (out_channels, kernel_size, stride, padding, output_padding)
        super().__init__(0, *numbers, groups, bias, dilation, padding_mode, device, dtype)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyConvTranspose1d(4, 3, 2)(weft.ones(1, 2, 4)).shape
    weft.Size([1, 4, 9])
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyConvTranspose2d(4, 3)(weft.ones(1, 2, 4, 2)).shape
    weft.Size([1, 4, 6, 4])
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` that takes in_channels from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyConvTranspose3d(4, 2)(weft.ones(1, 2, 1, 2, 3)).shape
    weft.Size([1, 4, 2, 3, 4])
    """

    cls_to_become = ConvTranspose3d
