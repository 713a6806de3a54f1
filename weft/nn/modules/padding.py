"""Elements around sequences, images and volumes: constants, mirror images, edges, or the other end."""

from __future__ import annotations

from typing import ClassVar

from ...base.errors import InvalidValue
from ...eager.tensor.tensor import Tensor
from ._making import F, Numbers, for_each
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Widths before and after each dimension, the last dimension first; one stands for all."""

    _rank: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: Numbers) -> None:
        super().__init__()
        self.padding = for_each(padding, 2 * self._rank)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    _mode = "constant"

    def __init__(self, padding: Numbers, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """A value before and after the last dimension; negative widths cut.

    >>> import weft
    >>> weft.nn.ConstantPad1d((2, 1), 0.5)(weft.tensor([[1.0, 2.0]]))
    tensor([[0.5000, 0.5000, 1.0000, 2.0000, 0.5000]])
    """

    _rank = 1


class ConstantPad2d(_ConstantPadNd):
    """A value around images: (left, right, top, bottom), or one width.

    >>> import weft
    >>> weft.nn.ConstantPad2d((0, 1, 1, 0), 9.0)(weft.tensor([[[1.0, 2.0]]]))
    tensor([[[9., 9., 9.],
             [1., 2., 9.]]])
    """

    _rank = 2


class ConstantPad3d(_ConstantPadNd):
    """A value around volumes: (left, right, top, bottom, front, back), or one width.

    >>> import weft
    >>> weft.nn.ConstantPad3d(1, 0.5)(weft.ones(1, 2, 3, 4)).shape
    weft.Size([1, 4, 5, 6])
    """

    _rank = 3


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Numbers) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPadNd, ConstantPad1d):
    """Zeros before and after the last dimension.

    >>> import weft
    >>> weft.nn.ZeroPad1d(1)(weft.tensor([[1.0, 2.0]]))
    tensor([[0., 1., 2., 0.]])
    """


class ZeroPad2d(_ZeroPadNd, ConstantPad2d):
    """Zeros around images: (left, right, top, bottom), or one width.

    >>> import weft
    >>> weft.nn.ZeroPad2d((0, 1, 1, 0))(weft.tensor([[[1.0, 2.0]]]))
    tensor([[[0., 0., 0.],
             [1., 2., 0.]]])
    """


class ZeroPad3d(_ZeroPadNd, ConstantPad3d):
    """Zeros around volumes: (left, right, top, bottom, front, back), or one width.

    >>> import weft
    >>> weft.nn.ZeroPad3d(1)(weft.ones(1, 2, 3, 4)).sum()
    tensor(24.)
    """


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """The mirror image of the last dimension around its first and last elements: x[-i] = x[i].

    >>> import weft
    >>> weft.nn.ReflectionPad1d(2)(weft.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    _rank = 1


class ReflectionPad2d(_ReflectionPadNd):
    """The mirror images around images: `ReflectionPad1d` in two dimensions.

    >>> import weft
    >>> weft.nn.ReflectionPad2d((1, 0, 0, 1))(weft.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[2., 1., 2.],
             [4., 3., 4.],
             [2., 1., 2.]]])
    """

    _rank = 2


class ReflectionPad3d(_ReflectionPadNd):
    """The mirror images around volumes: `ReflectionPad1d` in three dimensions.

    >>> import weft
    >>> weft.nn.ReflectionPad3d(1)(weft.ones(1, 2, 3, 4)).shape
    weft.Size([1, 4, 5, 6])
    """

    _rank = 3


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """The first and the last element again: x[-i] = x[0].

    >>> import weft
    >>> weft.nn.ReplicationPad1d(2)(weft.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 1., 1., 2., 3., 3., 3.]])
    """

    _rank = 1


class ReplicationPad2d(_ReplicationPadNd):
    """The edges again around images: `ReplicationPad1d` in two dimensions.

    >>> import weft
    >>> weft.nn.ReplicationPad2d((1, 0, 0, 1))(weft.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[1., 1., 2.],
             [3., 3., 4.],
             [3., 3., 4.]]])
    """

    _rank = 2


class ReplicationPad3d(_ReplicationPadNd):
    """The sides again around volumes: `ReplicationPad1d` in three dimensions.

    >>> import weft
    >>> weft.nn.ReplicationPad3d(1)(weft.ones(1, 2, 3, 4)).shape
    weft.Size([1, 4, 5, 6])
    """

    _rank = 3


class _CircularPadNd(_Pad):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (self._rank + 1, self._rank + 2):
            raise InvalidValue(f"expected {self._rank + 1}D or {self._rank + 2}D input (got {input.ndim}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """The elements of the other end: x[-i] = x[L - i].

    >>> import weft
    >>> weft.nn.CircularPad1d(2)(weft.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 3., 1., 2., 3., 1., 2.]])
    """

    _rank = 1


class CircularPad2d(_CircularPadNd):
    """The elements of the other side around images: `CircularPad1d` in two dimensions.

    >>> import weft
    >>> weft.nn.CircularPad2d((1, 0, 0, 1))(weft.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[2., 1., 2.],
             [4., 3., 4.],
             [2., 1., 2.]]])
    """

    _rank = 2


class CircularPad3d(_CircularPadNd):
    """The elements of the other side around volumes: `CircularPad1d` in three dimensions.

    >>> import weft
    >>> weft.nn.CircularPad3d(1)(weft.ones(1, 2, 3, 4)).shape
    weft.Size([1, 4, 5, 6])
    """

    _rank = 3
