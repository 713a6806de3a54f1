"""Normalisation of each item: over its last dimensions, over groups of channels, over near channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...base.errors import InvalidValue
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import init
from ._making import F, for_each, parameter
from .module import Module

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _Scaled(Module):
    """A weight that begins as ones and a bias that begins as zeros, each if wanted."""

    weight: Parameter | None
    bias: Parameter | None

    def _make_parameters(self, shape: Iterable[int], weight: bool, bias: bool | None, device: Any, dtype: Any) -> None:
        """`bias` None: there is no such name."""
        shape = tuple(shape)
        self.register_parameter("weight", parameter(shape, device, dtype) if weight else None)
        if bias is not None:
            self.register_parameter("bias", parameter(shape, device, dtype) if weight and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        for name, fill in (("weight", init.ones_), ("bias", init.zeros_)):
            kept = self._parameters.get(name)
            if kept is not None:
                fill(kept)


class LayerNorm(_Scaled):
    """The last dimensions, of normalized_shape, less their mean and divided by their deviation.

    y = (x - mean) / sqrt(var + eps) * weight + bias, weight and bias of normalized_shape.

    >>> import weft
    >>> weft.nn.LayerNorm(2)(weft.tensor([[1.0, 3.0], [10.0, 50.0]]))
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]], grad_fn=<NativeLayerNormBackward0>)
    """

    def __init__(
        self,
        normalized_shape: int | Iterable[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = for_each(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._make_parameters(self.normalized_shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(_Scaled):
    """The last dimensions, of normalized_shape, divided by the root of the mean of their squares.

    y = x / sqrt(mean(x^2) + eps) * weight; eps, if not told, is the step behind 1 of the dtype it is computed in.

    >>> import weft
    >>> weft.nn.RMSNorm(2, elementwise_affine=False)(weft.tensor([3.0, 4.0]))
    tensor([0.8485, 1.1314])
    """

    def __init__(
        self,
        normalized_shape: int | Iterable[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = for_each(normalized_shape, 1)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._make_parameters(self.normalized_shape, elementwise_affine, None, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Scaled):
    """Channels of each item in num_groups groups, each less its mean and divided by its deviation.

    y = (x - mean) / sqrt(var + eps) * weight + bias, weight and bias of num_channels.

    >>> import weft
    >>> weft.nn.GroupNorm(2, 4)(weft.rand(3, 4, 5)).shape
    weft.Size([3, 4, 5])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise InvalidValue(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._make_parameters((num_channels,), affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class LocalResponseNorm(Module):
    """Each element divided by a power of the squares at its place in `size` near channels.

    y = x / (k + alpha / size * sum of squares)^beta, the channels from c - size // 2 on.

    >>> import weft
    >>> weft.nn.LocalResponseNorm(3, alpha=3.0, beta=1.0)(weft.ones(1, 3, 1)).reshape(-1)
    tensor([0.3333, 0.2500, 0.3333])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` of images with windows that lie evenly around a channel: one of even size has one less.

    >>> import weft
    >>> weft.nn.CrossMapLRN2d(4, alpha=4.0, beta=1.0)(weft.ones(1, 3, 1, 1)).reshape(-1)
    tensor([0.3333, 0.2500, 0.3333])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise InvalidValue(f"CrossMapLRN2d: expected input to be 4D, got {input.ndim}D instead")
        width = 2 * ((self.size + 1) // 2) - 1
        return F.local_response_norm(input, width, self.alpha * width / self.size, self.beta, self.k)
