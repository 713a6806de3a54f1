"""Activations: functions of a tensor whose settings are attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ...base.errors import InvalidValue
from ...eager.functions.create.create import full
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import functional as F
from .. import init as fills
from .attention import MultiheadAttention as MultiheadAttention  # PyTorch has it here
from .module import Module

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Activation(Module):
    """`_function` of the input, with the attributes that `_settings` names as its arguments."""

    _function: ClassVar[Callable[..., Any]]
    _settings: ClassVar[tuple[str, ...]] = ()

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = type(self)._function(input, **{name: getattr(self, name) for name in self._settings})
        return result

    def extra_repr(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self._settings if name not in ("inplace", "training")]
        return ", ".join([*shown, "inplace=True"] if getattr(self, "inplace", False) else shown)


class _Switched(_Activation):
    """An activation whose only setting is whether it writes to its input."""

    _settings = ("inplace",)

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_Switched):
    """max(x, 0)

    >>> import weft
    >>> weft.nn.ReLU()(weft.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> weft.nn.ReLU(inplace=True)
    ReLU(inplace=True)
    """

    _function = F.relu


class SELU(_Switched):
    """Scaled ELU, of scales that keep mean 0 and variance 1"""

    _function = F.selu


class SiLU(_Switched):
    """x sigmoid(x)"""

    _function = F.silu


class Mish(_Switched):
    """x tanh(softplus(x))"""

    _function = F.mish


class Hardsigmoid(_Switched):
    """x / 6 + 1 / 2, limited to [0, 1]"""

    _function = F.hardsigmoid

    def extra_repr(self) -> str:
        return ""


class Hardswish(_Switched):
    """x hardsigmoid(x)"""

    _function = F.hardswish

    def extra_repr(self) -> str:
        return ""


class Sigmoid(_Activation):
    """1 / (1 + exp(-x))"""

    _function = F.sigmoid


class Tanh(_Activation):
    """tanh(x)"""

    _function = F.tanh


class LogSigmoid(_Activation):
    """log(sigmoid(x))"""

    _function = F.logsigmoid


class Softsign(_Activation):
    """x / (1 + |x|)"""

    _function = F.softsign


class Tanhshrink(_Activation):
    """x - tanh(x)"""

    _function = F.tanhshrink


class Threshold(_Activation):
    """x where it is above the threshold, else a value"""

    _function = F.threshold
    _settings = ("threshold", "value", "inplace")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace


class RReLU(_Activation):
    """x where x > 0, else x times a number drawn between two bounds; their mean when it does not train"""

    _function = F.rrelu
    _settings = ("lower", "upper", "training", "inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace


class Hardtanh(_Activation):
    """x limited to [min_val, max_val]"""

    _function = F.hardtanh
    _settings = ("min_val", "max_val", "inplace")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, value in (("min_value", min_value), ("max_value", max_value)):
            if value is not None:
                message = f"keyword argument `{old}` is deprecated and renamed to `{old[:-2]}`"
                warnings.warn(message, FutureWarning, stacklevel=2)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise InvalidValue(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")


class ReLU6(Hardtanh):
    """x limited to [0, 6]"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class _Curved(_Activation):
    _settings = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace


class ELU(_Curved):
    """x where x > 0, else alpha (exp(x) - 1)"""

    _function = F.elu


class CELU(_Curved):
    """x where x > 0, else alpha (exp(x / alpha) - 1)"""

    _function = F.celu


class LeakyReLU(_Activation):
    """x where x > 0, else negative_slope x

    >>> import weft
    >>> weft.nn.LeakyReLU(0.5)(weft.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    _function = F.leaky_relu
    _settings = ("negative_slope", "inplace")

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace


class PReLU(_Activation):
    """x where x > 0, else weight x, with one weight for all or one for each channel"""

    _function = F.prelu
    _settings = ("weight",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), init, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        fills.constant_(self.weight, self.init)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GELU(_Activation):
    """x times the normal distribution of x, or its approximation by a tanh

    >>> import weft
    >>> weft.nn.GELU(approximate="tanh")
    GELU(approximate='tanh')
    """

    _function = F.gelu
    _settings = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate


class Softplus(_Activation):
    """log(1 + exp(beta x)) / beta; x where beta x is above the threshold"""

    _function = F.softplus
    _settings = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold


class _Shrinking(_Activation):
    _settings = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrinking):
    """x where |x| > lambd, else 0"""

    _function = F.hardshrink


class Softshrink(_Shrinking):
    """x moved towards 0 by lambd, not beyond it"""

    _function = F.softshrink


class _AlongAxis(_Activation):
    _settings = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class GLU(_AlongAxis):
    """The first half along an axis times the sigmoid of the second"""

    _function = F.glu

    def __init__(self, dim: int = -1) -> None:
        super().__init__(dim)


class Softmax(_AlongAxis):
    """exp(x) divided by its sum along an axis

    >>> import weft
    >>> weft.nn.Softmax(dim=0)(weft.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    _function = F.softmax


class LogSoftmax(_AlongAxis):
    """log(softmax(x)) along an axis"""

    _function = F.log_softmax


class Softmin(_AlongAxis):
    """softmax(-x) along an axis"""

    _function = F.softmin


class Softmax2d(_Activation):
    """softmax over the channels of an image, or of a batch of them"""

    _function = F.softmax
    _settings = ("dim",)
    dim = -3

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise InvalidValue(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return super().forward(input)

    def extra_repr(self) -> str:
        return ""
