"""Normalisation of each channel of each item."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from ...base.errors import InvalidValue
from ...eager.tensor.tensor import Tensor
from ._making import F
from .batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    _rank: ClassVar[int]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in (self._rank + 1, self._rank + 2):
            raise InvalidValue(f"expected {self._rank + 1}D or {self._rank + 2}D input (got {input.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        channels = input.shape[-self._rank - 1]
        if channels != self.num_features:
            if self.affine:
                raise InvalidValue(f"expected input of {self.num_features} channels, but got {channels}")
            warnings.warn(
                f"input has {channels} channels and num_features is {self.num_features}, which is not used without "
                "affine; it could be left as it is, or be the number of channels",
                stacklevel=2,
            )
        if input.ndim == self._rank + 2:
            return self._apply_instance_norm(input)
        item: Tensor = self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return item

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        of_items = self.training or not self.track_running_stats
        factor = 0.0 if self.momentum is None else self.momentum
        moments = (self.running_mean, self.running_var)
        return F.instance_norm(input, *moments, self.weight, self.bias, of_items, factor, self.eps)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """State dicts without a version may hold moments that the layer does not track."""
        if local_metadata.get("version") is None and not self.track_running_stats:
            found = [name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if found:
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {' and '.join(prefix + name for name in found)} for "
                    f"{type(self).__name__} with track_running_stats=False: make the layer with "
                    "track_running_stats=True if they are used, or remove them from the state dict"
                )
                for name in found:
                    state_dict.pop(prefix + name)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each item of (N, C, L) or (C, L) less its mean, divided by its deviation.

    y = (x - mean) / sqrt(var + eps) * weight + bias; weight and bias are there if affine. Running moments, the means
    over items, are used in evaluation if they are tracked.

    >>> import weft
    >>> weft.nn.InstanceNorm1d(2)(weft.tensor([[1.0, 3.0], [10.0, 30.0]]))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    _rank = 1


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image of (N, C, H, W) or (C, H, W), normalised: `InstanceNorm1d` over two axes.

    >>> import weft
    >>> weft.nn.InstanceNorm2d(3, affine=True)(weft.rand(2, 3, 4, 4)).shape
    weft.Size([2, 3, 4, 4])
    """

    _rank = 2


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each volume of (N, C, D, H, W) or (C, D, H, W), normalised: `InstanceNorm1d` over three axes.

    >>> import weft
    >>> weft.nn.InstanceNorm3d(3)(weft.rand(2, 3, 2, 2, 2)).shape
    weft.Size([2, 3, 2, 2, 2])
    """

    _rank = 3


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """An `InstanceNorm1d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> layer = weft.nn.LazyInstanceNorm1d()
    >>> layer(weft.rand(4, 3, 5)).shape, layer.num_features
    (weft.Size([4, 3, 5]), 3)
    """

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """An `InstanceNorm2d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyInstanceNorm2d()(weft.rand(2, 3, 4, 4)).shape
    weft.Size([2, 3, 4, 4])
    """

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """An `InstanceNorm3d` that takes num_features from its first input, and is one from then on.

    >>> import weft
    >>> weft.nn.LazyInstanceNorm3d()(weft.rand(2, 3, 2, 2, 2)).shape
    weft.Size([2, 3, 2, 2, 2])
    """

    cls_to_become = InstanceNorm3d
