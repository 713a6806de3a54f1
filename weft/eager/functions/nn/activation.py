"""Rows of nn.functional: activations, and what turns scores into probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.math.elemwise import ClipAttrs
from ....ops.nn.activation import EluAttrs, GeluAttrs, HardSigmoidAttrs, LeakyReluAttrs
from ...autograd.node import keep_old_values
from ...autograd.node_names import title_of
from ...dispatch import apply
from ...tensor.inplace import check_writable, write
from ...tensor.tensor import Tensor, axis_of
from ...tensor.types import as_dtype
from ..fusion import Fused, fused
from ..math.arithmetic import add, div, mul, sub
from ..math.compare import choose, gt, le, lt
from ..math.special import log_softmax, softmax
from ..math.unary import abs as magnitude
from ..math.unary import neg, sigmoid, tanh
from ..operands import floating, must_be_real
from ..shape.parts import narrow
from ..shape.shape import reshape
from ..table import in_place, row

NN = "weft.nn.functional"
_ELU, _SELU, _GELU, _SILU, _MISH, _RELU, _LEAKY, _SOFTPLUS, _SOFTSIGN = (
    Op.get(name) for name in "elu selu gelu silu mish relu leaky_relu softplus softsign".split()
)
_HARD_SIGMOID, _HARD_SWISH, _HARD_TANH = (Op.get(name) for name in "hard_sigmoid hard_swish _hard_tanh".split())


def given_back(input: Tensor, made: Tensor, inplace: bool) -> Tensor:
    """A result, written into its argument if that is asked for."""
    if not inplace:
        return made
    check_writable(input)
    if made._grad_fn is not None:
        source = input.grad_fn
        keep_old_values(made._grad_fn, source.sequence_nr + 1 if source else 0, input._array)
    return write(input, made)


class _Activation:
    """A function that writes into its argument if that is asked for."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.own = function, Fused(function)
        self.title = title_of(function.__name__)

    def __call__(self, inplace: bool, input: Tensor, *args: Any) -> Tensor:
        if inplace:
            return in_place(self.function, self.own, self.title, input, args, {})
        made: Tensor = self.function(input, *args)
        return made


@_Activation
def _relu(input: Tensor) -> Tensor:
    return apply(_RELU, None, [input])[0]


@row(space=NN, method=False)
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0)"""
    return _relu(inplace, input)


@_Activation
def _hardtanh(input: Tensor, low: float, high: float) -> Tensor:
    return apply(_HARD_TANH, ClipAttrs(a_min=float(low), a_max=float(high)), [input])[0]


@row(space=NN, method=False)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x limited to [min_val, max_val]"""
    if min_val > max_val:
        raise InvalidValue("min_val cannot be greater than max_val")
    return _hardtanh(inplace, input, min_val, max_val)


@row(space=NN, method=False)
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited to [0, 6]"""
    return hardtanh(input, 0.0, 6.0, inplace)


@_Activation
def _leaky_relu(input: Tensor, slope: float) -> Tensor:
    if slope >= 0:
        return apply(_LEAKY, LeakyReluAttrs(alpha=float(slope)), [input])[0]
    return _bent(input, slope)


@row(space=NN, method=False)
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope x"""
    return _leaky_relu(inplace, input, negative_slope)


@fused
def _bent(input: Tensor, slope: Any) -> Tensor:
    """x where x > 0, else slope x"""
    return choose(gt(input, 0), input, mul(input, slope))


@row(space=NN, method=False)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight x, with one weight for all or one for each channel"""
    count, rank = weight._array.size, input._array.ndim
    if weight._array.dtype != input._array.dtype:
        raise RunError(f"prelu: Type promoting not supported. Got {input.dtype.title} and {weight.dtype.title}")
    if weight._array.ndim > 1:
        raise RunError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if count != 1:
        channels = 1 if rank == 0 else input._array.shape[1] if rank > 1 else 1
        if not rank:
            raise RunError("Not allow zero-dim input tensor.")
        if channels != count:
            raise RunError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
    shape = [count if axis == 1 else 1 for axis in range(rank)] if rank > 1 else (1,) * rank
    return _bent(input, reshape(weight, shape))


row(prelu)


@_Activation
def _elu(input: Tensor, alpha: float) -> Tensor:
    return apply(_ELU, EluAttrs(alpha=float(alpha)), [input])[0]


@row(space=NN, method=False)
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)"""
    return _elu(inplace, input, alpha)


@_Activation
def _selu(input: Tensor) -> Tensor:
    return apply(_SELU, None, [input])[0]


@row(space=NN, method=False)
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Scaled elu that keeps mean 0 and variance 1"""
    return _selu(inplace, input)


@row(space=NN, method=False)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha (exp(x / alpha) - 1)"""
    if alpha == 0:
        raise RunError("ZeroDivisionError: alpha cannot be 0 for CELU")
    if alpha == 1:
        return elu(input, 1.0, inplace)
    return _celu(inplace, input, alpha)


@_Activation
@fused
def _celu(input: Tensor, alpha: float) -> Tensor:
    curved = mul(apply(_ELU, EluAttrs(alpha=1.0), [div(input, alpha)])[0], alpha)
    return choose(gt(input, 0), input, curved)


@row(space=NN, method=False)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution of x"""
    if approximate not in ("none", "tanh"):
        raise RunError("approximate argument must be either none or tanh.")
    return apply(_GELU, GeluAttrs(approximate=approximate), [input])[0]


@_Activation
def _silu(input: Tensor) -> Tensor:
    return apply(_SILU, None, [input])[0]


@row(space=NN, method=False)
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x sigmoid(x)"""
    return _silu(inplace, input)


@_Activation
def _mish(input: Tensor) -> Tensor:
    return apply(_MISH, None, [input])[0]


@row(space=NN, method=False)
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x tanh(softplus(x))"""
    return _mish(inplace, input)


@row(space=NN, method=False)
@fused
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x where beta x is above the threshold"""
    scaled = input if beta == 1 else mul(input, beta)
    curved = apply(_SOFTPLUS, None, [scaled])[0]
    curved = curved if beta == 1 else div(curved, beta)
    return choose(gt(scaled, threshold), input, curved)


@row(space=NN, method=False)
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    if is_complex(input._array.dtype):
        return div(input, magnitude(input) + 1)
    return apply(_SOFTSIGN, None, [floating(input)])[0]


@_Activation
def _hardswish(input: Tensor) -> Tensor:
    return apply(_HARD_SWISH, None, [input])[0]


@row(space=NN, method=False)
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x limited(x / 6 + 1 / 2)"""
    return _hardswish(inplace, input)


@row(space=NN, method=False)
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1]"""
    return _hardsigmoid(inplace, input)


@_Activation
def _hardsigmoid(input: Tensor) -> Tensor:
    return apply(_HARD_SIGMOID, HardSigmoidAttrs(alpha=1 / 6, beta=0.5), [input])[0]


@row(space=NN, method=False)
@fused
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0"""
    must_be_real("hardshrink", input)
    return choose(le(magnitude(input), lambd), 0.0, input)


row(hardshrink)


@row(space=NN, method=False)
@fused
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, not beyond it"""
    if lambd < 0:
        raise RunError(f"lambda must be greater or equal to 0, but found to be {lambd:g}.")
    inside = choose(lt(input, -lambd), add(input, lambd), mul(input.detach(), 0.0))
    return choose(gt(input, lambd), sub(input, lambd), inside)


@row(space=NN, method=False)
@fused
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)"""
    return sub(floating(input), tanh(input))


@row(space=NN, method=False)
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else a value"""
    return _threshold(inplace, input, threshold, value)


@_Activation
@fused
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    return choose(le(input, threshold), value, input)._cast(input._array.dtype)


row(threshold, method=False)


@row(space=NN, method=False)
@fused
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))"""
    return neg(apply(_SOFTPLUS, None, [neg(input)])[0])


row(sigmoid, space=NN, method=False)
row(tanh, space=NN, method=False)


@row(space=NN, method=False)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second"""
    must_be_real("glu", input)
    if not input._array.ndim:
        raise RunError("glu does not support 0-dimensional tensors")
    axis = axis_of(dim, input._array.ndim)
    size = input._array.shape[axis]
    if size % 2:
        raise RunError(f"Halving dimension must be even, but dimension {axis} is size {size}")
    half = size // 2
    return _gated(narrow(input, axis, 0, half), narrow(input, axis, half, half))


@fused
def _gated(input: Tensor, gate: Tensor) -> Tensor:
    return mul(input, sigmoid(gate))


def _implied_axis(name: str, dim: int | None, rank: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if rank in (0, 1, 3) else 1


def _in_kind(input: Tensor, dtype: Any, name: str) -> Tensor:
    made = input if dtype is None else input._cast(as_dtype(dtype).numpy)
    if not is_float(made._array.dtype):
        raise RunError(f'"{name}_kernel_impl" not implemented for {made.dtype.title!r}')
    return made


@row(name="softmax", space=NN, method=False)
def _nn_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) divided by its sum along an axis"""
    return softmax(input, _implied_axis("softmax", dim, input._array.ndim), dtype)


@row(name="log_softmax", space=NN, method=False)
def _nn_log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along an axis"""
    return log_softmax(input, _implied_axis("log_softmax", dim, input._array.ndim), dtype)


@row(space=NN, method=False)
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along an axis"""
    axis = _implied_axis("softmin", dim, input._array.ndim)
    return softmax(neg(_in_kind(input, dtype, "softmin")), axis)
