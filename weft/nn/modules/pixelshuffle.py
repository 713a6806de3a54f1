"""Elements of images moved from channels to places, and back."""

from __future__ import annotations

from ...eager.tensor.tensor import Tensor
from ._making import Described, F

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Described):
    """Images (*, C r r, H, W) as (*, C, H r, W r), r being upscale_factor: channels become places.

    out[c, y, x] = in[c r r + (y % r) r + x % r, y // r, x // r]

    >>> import weft
    >>> weft.nn.PixelShuffle(2)(weft.arange(4).reshape(4, 1, 1))
    tensor([[[0, 1],
             [2, 3]]])
    """

    _told = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)


class PixelUnshuffle(Described):
    """Images (*, C, H r, W r) as (*, C r r, H, W), r being downscale_factor: `PixelShuffle` undone.

    >>> import weft
    >>> weft.nn.PixelUnshuffle(2)(weft.tensor([[[0, 1], [2, 3]]])).reshape(-1)
    tensor([0, 1, 2, 3])
    """

    _told = ("downscale_factor",)

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)
