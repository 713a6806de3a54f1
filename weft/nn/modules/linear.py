"""Products with a matrix of weights."""

from __future__ import annotations

import math
from typing import Any

from ...base.errors import InvalidValue
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import init
from ..parameter import UninitializedParameter
from ._making import F, parameter
from .lazy import LazyModuleMixin
from .module import Module

__all__ = ["Bilinear", "Identity", "LazyLinear", "Linear"]


class Identity(Module):
    """Gives its input back, and takes any arguments.

    >>> import weft
    >>> weft.nn.Identity(54, unused=0.1)(weft.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """y = x W' + b, over the last dimension.

    W (out_features, in_features) and b begin uniform in +-1/sqrt(in_features).

    >>> import weft
    >>> layer = weft.nn.Linear(3, 2)
    >>> layer(weft.ones(5, 3)).shape
    weft.Size([5, 2])
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    in_features: int
    out_features: int
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._make_parameters(bias, device, dtype)
        self.reset_parameters()

    def _make_parameters(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = parameter((self.out_features, self.in_features), device, dtype)
        self.register_parameter("bias", parameter((self.out_features,), device, dtype) if bias else None)

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A `Linear` under the name that the text of an attention layer has for its last product."""


class Bilinear(Module):
    """y_o = x1 A_o x2' + b_o, over the last dimensions of two inputs.

    A (out_features, in1_features, in2_features) and b begin uniform in +-1/sqrt(in1_features).

    >>> import weft
    >>> weft.nn.Bilinear(3, 4, 2)(weft.ones(5, 3), weft.ones(5, 4)).shape
    weft.Size([5, 2])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise InvalidValue(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = parameter((out_features, in1_features, in2_features), device, dtype)
        self.register_parameter("bias", parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        bound = 1 / math.sqrt(self.in1_features)
        for drawn in (self.weight, self.bias):
            if drawn is not None:
                init.uniform_(drawn, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{sizes}, out_features={self.out_features}, bias={self.bias is not None}"


class LazyLinear(LazyModuleMixin, Linear):
    """A `Linear` that takes in_features from the last dimension of its first input, and is one from then on.

    >>> import weft
    >>> layer = weft.nn.LazyLinear(2)
    >>> layer(weft.ones(5, 3)).shape, layer
    (weft.Size([5, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, out_features, bias, device, dtype)

    def _make_parameters(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.register_parameter("bias", UninitializedParameter(device=device, dtype=dtype) if bias else None)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Makes and draws the parameters for inputs like this one, if no state has brought them."""
        if not self.has_uninitialized_params():
            self.in_features = self.weight.shape[1]
            return
        self.in_features = input.shape[-1]
        self.weight.materialize((self.out_features, self.in_features))
        if self.bias is not None:
            self.bias.materialize((self.out_features,))
        self.reset_parameters()
