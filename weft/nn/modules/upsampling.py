"""Another number of elements along the dimensions of images."""

from __future__ import annotations

from ...eager.tensor.tensor import Tensor
from ._making import F, Numbers
from .module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Sequences, images or volumes of a size, or of scale_factor times their size.

    Element i is read at (i + 1/2) L / size - 1/2 of the input, at i (L - 1) / (size - 1) with align_corners, and at
    floor(i L / size) in mode 'nearest'; the modes 'linear', 'bilinear', 'bicubic' and 'trilinear' interpolate.

    >>> import weft
    >>> weft.nn.Upsample(scale_factor=2)(weft.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 1., 2., 2.]]])
    >>> weft.nn.Upsample(size=3, mode="linear", align_corners=True)(weft.tensor([[[1.0, 2.0]]]))
    tensor([[[1.0000, 1.5000, 2.0000]]])
    """

    def __init__(
        self,
        size: Numbers | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor: float | tuple[float, ...] | None = None
        if isinstance(scale_factor, (tuple, list)):
            self.scale_factor = tuple(map(float, scale_factor))
        elif scale_factor is not None:
            self.scale_factor = float(scale_factor)
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        size = f"size={self.size!r}" if self.scale_factor is None else f"scale_factor={self.scale_factor!r}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images of another size by the nearest element: `Upsample` in mode 'nearest'.

    >>> import weft
    >>> weft.nn.UpsamplingNearest2d(scale_factor=2)(weft.tensor([[[[1.0, 2.0]]]]))
    tensor([[[[1., 1., 2., 2.],
              [1., 1., 2., 2.]]]])
    """

    def __init__(self, size: Numbers | None = None, scale_factor: float | tuple[float, float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Images of another size between their elements, corners on corners: `Upsample` in mode 'bilinear'.

    >>> import weft
    >>> weft.nn.UpsamplingBilinear2d((1, 3))(weft.tensor([[[[1.0, 2.0]]]]))
    tensor([[[[1.0000, 1.5000, 2.0000]]]])
    """

    def __init__(self, size: Numbers | None = None, scale_factor: float | tuple[float, float] | None = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
