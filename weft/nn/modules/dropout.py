"""Elements and channels left out at random while a module trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ...base.errors import InvalidValue
from ...eager.tensor.tensor import Tensor
from .. import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    _function: ClassVar[Callable[..., Any]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = type(self)._function(input, self.p, self.training, self.inplace)
        return result

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Elements left out with probability p, the others scaled by 1 / (1 - p); nothing is when it does not train.

    >>> import weft
    >>> drop = weft.nn.Dropout(0.25)
    >>> sorted(set(drop(weft.ones(100)).tolist()))
    [0.0, 1.3333333730697632]
    >>> drop.eval()(weft.ones(2))
    tensor([1., 1.])
    """

    _function = F.dropout


class Dropout1d(_Dropout):
    """Whole channels of (N, C, L) or (C, L) left out with probability p"""

    _function = F.dropout1d


class Dropout2d(_Dropout):
    """Whole channels of (N, C, H, W) left out with probability p"""

    _function = F.dropout2d


class Dropout3d(_Dropout):
    """Whole channels of (N, C, D, H, W) left out with probability p"""

    _function = F.dropout3d


class AlphaDropout(_Dropout):
    """Elements set to the lowest value of SELU with probability p; mean and variance stay"""

    _function = F.alpha_dropout


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels"""

    _function = F.feature_alpha_dropout
