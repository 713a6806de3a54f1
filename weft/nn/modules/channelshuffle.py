"""Channels of groups, taken in turn."""

from __future__ import annotations

from ...eager.tensor.tensor import Tensor
from ._making import Described, F

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Described):
    """The first channel of each group, then the second of each: out[j groups + g] = in[g C / groups + j].

    >>> import weft
    >>> weft.nn.ChannelShuffle(2)(weft.arange(6).reshape(1, 6, 1)).reshape(-1)
    tensor([0, 3, 1, 4, 2, 5])
    """

    _told = ("groups",)

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)
