"""A layer and the normalisation after it as one layer, for use after training.

A normalisation of channels y = (x - mean) / sqrt(var + eps) w + b is a scale and a shift, which the weights before it
can do.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from ...base.errors import InvalidValue
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from ..modules.module import Module

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a convolution that does what one and a normalisation after it do. `transpose`: the
    convolution is transposed, and its second axis is that of outputs."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, axis=1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear layer that does what one and a normalisation after it do."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, axis=0)


def _fused(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    axis: int,
) -> tuple[Parameter, Parameter]:
    factor = (variance + eps).rsqrt()
    factor = factor if scale is None else factor * scale
    offset = mean.neg() if bias is None else bias - mean
    offset = offset * factor if shift is None else offset * factor + shift
    by_output = [-1 if at == axis else 1 for at in range(weight.ndim)]
    trained = weight.requires_grad, bias is not None and bias.requires_grad
    kinds = weight.dtype, weight.dtype if bias is None else bias.dtype
    values = weight * factor.reshape(by_output), offset
    fused = [Parameter(value.detach().to(kind), each) for value, kind, each in zip(values, kinds, trained)]
    return fused[0], fused[1]


def _fused_copy(layer: M, bn: Module, axis: int) -> M:
    if layer.training or bn.training:
        raise InvalidValue("Fusion only for eval!", hint="call eval() of both modules first")
    if bn.running_mean is None or bn.running_var is None:
        raise InvalidValue("bn.running_mean and bn.running_var must not be None")
    made = copy.deepcopy(layer)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    made.weight, made.bias = _fused(made.weight, made.bias, *statistics, axis=axis)
    return made


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of a convolution that does what it and the BatchNorm after it do.

    >>> import weft
    >>> conv, bn = weft.nn.Conv2d(2, 3, 3).eval(), weft.nn.BatchNorm2d(3).eval()
    >>> x = weft.randn(1, 2, 5, 5)
    >>> weft.allclose(fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    return _fused_copy(conv, bn, axis=1 if transpose else 0)


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a linear layer that does what it and the BatchNorm1d after it do."""
    if bn.num_features not in (linear.out_features, 1):
        raise InvalidValue(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1",
            why=f"there are {linear.out_features} and {bn.num_features}",
        )
    return _fused_copy(linear, bn, axis=0)
