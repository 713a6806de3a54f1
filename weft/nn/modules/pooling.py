"""One value for each window: pools, pools to a size, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...base.errors import InvalidValue
from ...eager.tensor.tensor import Tensor
from ._making import Described, F, Numbers, for_each

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]

OutputSize = int | None | tuple[int | None, ...]


class _Pool(Described):
    """A layer that calls one function with its attributes, in the order its class names them."""

    _function: ClassVar[Callable[..., Any]]
    _arguments: ClassVar[tuple[str, ...]]

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, *[getattr(self, name) for name in self._arguments])


class _MaxPoolNd(_Pool):
    _told = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    _arguments = (*_told, "return_indices")

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        dilation: Numbers = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode


class MaxPool1d(_MaxPoolNd):
    """The greatest of each window along one dimension.

    out[i] = max over j < kernel_size of x[stride i + dilation j - padding]; the stride is the kernel's size if not
    told. ceil_mode lets a last window stick out; return_indices gives the places, too, for `MaxUnpool1d`.

    >>> import weft
    >>> weft.nn.MaxPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[3., 4.]])
    """

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPoolNd):
    """The greatest of each window of images, (N, C, H, W) or (C, H, W): `MaxPool1d` in two dimensions.

    >>> import weft
    >>> values, places = weft.nn.MaxPool2d(2, return_indices=True)(weft.arange(16.0).reshape(1, 4, 4))
    >>> values, places
    (tensor([[[ 5.,  7.],
             [13., 15.]]]), tensor([[[ 5,  7],
             [13, 15]]]))
    """

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPoolNd):
    """The greatest of each window of volumes, (N, C, D, H, W) or (C, D, H, W): `MaxPool1d` in three dimensions.

    >>> import weft
    >>> weft.nn.MaxPool3d((1, 2, 2))(weft.ones(1, 4, 3, 4, 6)).shape
    weft.Size([1, 4, 3, 2, 3])
    """

    _function = staticmethod(F.max_pool3d)


class _MaxUnpoolNd(Described):
    _rank: ClassVar[int]
    _function: ClassVar[Callable[..., Tensor]]
    _told = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Numbers, stride: Numbers | None = None, padding: Numbers = 0) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, self._rank)
        self.stride = for_each(kernel_size if stride is None else stride, self._rank)
        self.padding = for_each(padding, self._rank)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        return type(self)._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """Zeros, with what `MaxPool1d` chose back at its places.

    Of L windows come (L - 1) stride - 2 padding + kernel_size elements, or as many as output_size says.

    >>> import weft
    >>> chosen, places = weft.nn.MaxPool1d(2, return_indices=True)(weft.tensor([[1.0, 3.0, 4.0, 2.0]]))
    >>> weft.nn.MaxUnpool1d(2)(chosen, places)
    tensor([[0., 3., 4., 0.]])
    """

    _rank = 1
    _function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpoolNd):
    """Zeros, with what `MaxPool2d` chose back at its places: `MaxUnpool1d` in two dimensions.

    >>> import weft
    >>> chosen, places = weft.nn.MaxPool2d(2, return_indices=True)(weft.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    >>> weft.nn.MaxUnpool2d(2)(chosen, places)
    tensor([[[0., 0.],
             [4., 0.]]])
    """

    _rank = 2
    _function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpoolNd):
    """Zeros, with what `MaxPool3d` chose back at its places: `MaxUnpool1d` in three dimensions.

    >>> import weft
    >>> chosen, places = weft.nn.MaxPool3d(2, return_indices=True)(weft.ones(1, 1, 4, 4, 4))
    >>> weft.nn.MaxUnpool3d(2)(chosen, places).sum()
    tensor(8.)
    """

    _rank = 3
    _function = staticmethod(F.max_unpool3d)


class _AvgPoolNd(_Pool):
    _told = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd):
    """The mean of each window along one dimension.

    out[i] = sum over j < kernel_size of x[stride i + j - padding] / kernel_size. Without count_include_pad, only the
    elements that are there are counted.

    >>> import weft
    >>> weft.nn.AvgPool1d(2, stride=1)(weft.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[2.0000, 2.5000, 3.0000]])
    """

    _function = staticmethod(F.avg_pool1d)
    _arguments = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = for_each(kernel_size, 1)
        self.stride = for_each(kernel_size if stride is None else stride, 1)
        self.padding = for_each(padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad


class _AvgPoolNdByDivisor(_AvgPoolNd):
    _arguments = (*AvgPool1d._arguments, "divisor_override")

    def __init__(
        self,
        kernel_size: Numbers,
        stride: Numbers | None = None,
        padding: Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override


class AvgPool2d(_AvgPoolNdByDivisor):
    """The mean of each window of images, (N, C, H, W) or (C, H, W): `AvgPool1d` in two dimensions.

    divisor_override is what sums are divided by instead of the number of elements.

    >>> import weft
    >>> weft.nn.AvgPool2d(2)(weft.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    tensor([[[2.5000]]])
    """

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolNdByDivisor):
    """The mean of each window of volumes, (N, C, D, H, W) or (C, D, H, W): `AvgPool2d` in three dimensions.

    >>> import weft
    >>> weft.nn.AvgPool3d(2, stride=1)(weft.ones(1, 2, 3, 4, 5)).shape
    weft.Size([1, 2, 2, 3, 4])
    """

    _function = staticmethod(F.avg_pool3d)


class _FractionalMaxPoolNd(_Pool):
    """Windows at random places; as torch.nn's, their text tells nothing."""

    _rank: ClassVar[int]
    _arguments = ("kernel_size", "output_size", "output_ratio", "return_indices", "_random_samples")
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Numbers,
        output_size: Numbers | None = None,
        output_ratio: float | tuple[float, ...] | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise InvalidValue(
                f"{name} needs one of output_size and output_ratio",
                why="both were given" if output_size is not None else "neither was given",
            )
        self.kernel_size = for_each(kernel_size, self._rank)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else for_each(output_size, self._rank)
        self.output_ratio = None if output_ratio is None else for_each(output_ratio, self._rank)
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise InvalidValue(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The greatest of windows of images at random places, so many that the result has a size.

    Windows begin at floor((i + u) a) - floor(u a) with a = (L - kernel_size) / (output_size - 1) and u drawn for each
    image and channel; output_ratio tells the size as a part of the input's.

    >>> import weft
    >>> weft.nn.FractionalMaxPool2d(3, output_ratio=0.5)(weft.ones(1, 2, 8, 12)).shape
    weft.Size([1, 2, 4, 6])
    """

    _rank = 2
    _function = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """The greatest of windows of volumes at random places: `FractionalMaxPool2d` in three dimensions.

    >>> import weft
    >>> weft.nn.FractionalMaxPool3d(2, output_size=(2, 3, 4))(weft.ones(1, 2, 6, 6, 8)).shape
    weft.Size([1, 2, 2, 3, 4])
    """

    _rank = 3
    _function = staticmethod(F.fractional_max_pool3d)


class _LPPoolNd(_Pool):
    _told = _arguments = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def __init__(
        self, norm_type: float, kernel_size: Numbers, stride: Numbers | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode


class LPPool1d(_LPPoolNd):
    """The p-norm of each window along one dimension, p being norm_type.

    out[i] = (sum over j < kernel_size of x[stride i + j]^p)^(1/p)

    >>> import weft
    >>> weft.nn.LPPool1d(2, 2)(weft.tensor([[3.0, 4.0, 5.0, 12.0]]))
    tensor([[ 5., 13.]])
    """

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of images, (N, C, H, W) or (C, H, W): `LPPool1d` in two dimensions.

    >>> import weft
    >>> weft.nn.LPPool2d(1, 2)(weft.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    tensor([[[10.]]])
    """

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of volumes, (N, C, D, H, W) or (C, D, H, W): `LPPool1d` in three dimensions.

    >>> import weft
    >>> weft.nn.LPPool3d(2, 2)(weft.ones(1, 2, 4, 4, 4)).shape
    weft.Size([1, 2, 2, 2, 2])
    """

    _function = staticmethod(F.lp_pool3d)


class _AdaptiveMaxPoolNd(_Pool):
    _told = ("output_size",)
    _arguments = ("output_size", "return_indices")

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The greatest of each of output_size windows along one dimension.

    Window i of n is from floor(i L / n) to ceil((i + 1) L / n); return_indices gives the places, too.

    >>> import weft
    >>> weft.nn.AdaptiveMaxPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 0.0, -1.0]]))
    tensor([[3., 2.]])
    """

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The greatest of each of so many windows of images; None leaves a dimension: `AdaptiveMaxPool1d` in two.

    >>> import weft
    >>> weft.nn.AdaptiveMaxPool2d((3, None))(weft.ones(1, 2, 7, 5)).shape
    weft.Size([1, 2, 3, 5])
    """

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The greatest of each of so many windows of volumes: `AdaptiveMaxPool1d` in three dimensions.

    >>> import weft
    >>> weft.nn.AdaptiveMaxPool3d(2)(weft.ones(1, 2, 3, 4, 5)).shape
    weft.Size([1, 2, 2, 2, 2])
    """

    _function = staticmethod(F.adaptive_max_pool3d)


class _AdaptiveAvgPoolNd(_Pool):
    _told = _arguments = ("output_size",)

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean of each of output_size windows along one dimension.

    Window i of n is from floor(i L / n) to ceil((i + 1) L / n).

    >>> import weft
    >>> weft.nn.AdaptiveAvgPool1d(2)(weft.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([[2., 3.]])
    """

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean of each of so many windows of images; None leaves a dimension: `AdaptiveAvgPool1d` in two.

    >>> import weft
    >>> weft.nn.AdaptiveAvgPool2d(1)(weft.tensor([[[1.0, 3.0], [4.0, 2.0]]]))
    tensor([[[2.5000]]])
    """

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean of each of so many windows of volumes: `AdaptiveAvgPool1d` in three dimensions.

    >>> import weft
    >>> weft.nn.AdaptiveAvgPool3d((1, 2, None))(weft.ones(1, 2, 3, 4, 5)).shape
    weft.Size([1, 2, 1, 2, 5])
    """

    _function = staticmethod(F.adaptive_avg_pool3d)
