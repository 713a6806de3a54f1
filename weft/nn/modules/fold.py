"""Sliding blocks of images as columns, and images from their sums."""

from __future__ import annotations

from ...eager.tensor.tensor import Tensor
from ._making import Described, F, Numbers

__all__ = ["Fold", "Unfold"]


class Fold(Described):
    """Images of output_size that are the sums of blocks, given as columns (N, C k k, blocks) or (C k k, blocks).

    Blocks lie as the windows of a convolution do, (L + 2 padding - dilation (k - 1) - 1) // stride + 1 along each
    dimension; elements that several blocks cover are added.

    >>> import weft
    >>> weft.nn.Fold((1, 3), (1, 2))(weft.ones(2, 2))
    tensor([[[1., 2., 1.]]])
    """

    _told = ("output_size", "kernel_size", "dilation", "padding", "stride")

    def __init__(
        self,
        output_size: Numbers,
        kernel_size: Numbers,
        dilation: Numbers = 1,
        padding: Numbers = 0,
        stride: Numbers = 1,
    ) -> None:
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class Unfold(Described):
    """The sliding blocks of images (N, C, H, W) or (C, H, W) as columns: (N, C k k, blocks).

    >>> import weft
    >>> weft.nn.Unfold((1, 2))(weft.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[1., 2.],
            [2., 3.]])
    """

    _told = ("kernel_size", "dilation", "padding", "stride")

    def __init__(self, kernel_size: Numbers, dilation: Numbers = 1, padding: Numbers = 0, stride: Numbers = 1) -> None:
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)
