"""Rows of nn.functional: activations, which bend elements one by one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.draws import uniform64
from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ....ops.math.elemwise import ClipAttrs
from ....ops.nn.activation import EluAttrs, GeluAttrs, HardSigmoidAttrs, LeakyReluAttrs
from ...autograd.node_names import title_of
from ...dispatch import apply
from ...random.generator import given
from ...tensor.memory import Array
from ...tensor.tensor import Tensor, axis_of
from ..fusion import Fused, fused
from ..hosted import hosted
from ..math.arithmetic import add, div, mul, sub
from ..math.compare import choose, gt, le, lt
from ..math.unary import abs as magnitude
from ..math.unary import neg, sigmoid, tanh
from ..operands import floating, must_be_real
from ..shape.parts import narrow
from ..shape.shape import reshape
from ..table import NN, Function, in_place, named, row

_ELU, _SELU, _GELU, _SILU, _MISH, _RELU, _LEAKY, _SOFTPLUS, _SOFTSIGN = (
    Op.get(name) for name in "elu selu gelu silu mish relu leaky_relu softplus softsign".split()
)
_HARD_SIGMOID, _HARD_SWISH, _HARD_TANH = (Op.get(name) for name in "hard_sigmoid hard_swish _hard_tanh".split())


def _activation(writing: bool = False, core: bool = False, elementwise: bool = True) -> Callable[[Function], Function]:
    """Makes rows of a function of a tensor. nn.functional has it with `inplace`, and if it is `writing` under `name_`
    as well; `core`: so has weft, without `inplace`. `elementwise`: it composes element-wise operators only."""

    def add_rows(function: Function) -> Function:
        name, signature = function.__name__, inspect.signature(function)
        fused_form, title, count = Fused(function) if elementwise else None, title_of(name), len(signature.parameters)

        @functools.wraps(function)
        def call(*args: Any, inplace: Any = None, **kwargs: Any) -> Tensor:
            if inplace is None and len(args) > count:
                args, inplace = args[:-1], args[-1]
            return written(*args, **kwargs) if inplace else function(*args, **kwargs)

        @functools.wraps(function)
        def written(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return in_place(function, fused_form, title, input, args, kwargs)

        switch = inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False, annotation="bool")
        with_switch = signature.replace(parameters=[*signature.parameters.values(), switch])
        row(named(call, name, function.__doc__, with_switch), space=NN, method=False)
        named(written, f"{name}_", f"In-place `{name}`")
        if writing or core:
            row(written, space=NN, method=False)
        if core:
            row(function, method=False)
            row(written, method=False)
        return function

    return add_rows


@_activation(writing=True)
def relu(input: Tensor) -> Tensor:
    """max(x, 0)

    >>> import weft
    >>> weft.nn.functional.relu(weft.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return apply(_RELU, None, [input])[0]


@_activation(writing=True)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]"""
    if min_val > max_val:
        raise InvalidValue("min_val cannot be greater than max_val")
    return apply(_HARD_TANH, ClipAttrs(a_min=float(min_val), a_max=float(max_val)), [input])[0]


@_activation()
def relu6(input: Tensor) -> Tensor:
    """x limited to [0, 6]"""
    return hardtanh(input, 0.0, 6.0)


@_activation(writing=True)
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope x

    >>> import weft
    >>> weft.nn.functional.leaky_relu(weft.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    if negative_slope >= 0:
        return apply(_LEAKY, LeakyReluAttrs(alpha=float(negative_slope)), [input])[0]
    return _bent(input, negative_slope)


@fused
def _bent(input: Tensor, slope: Any) -> Tensor:
    """x where x > 0, else slope x"""
    return choose(gt(input, 0), input, mul(input, slope))


@row
@row(space=NN, method=False)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight x, with one weight for all or one for each channel"""
    count, rank = weight.numel(), input.ndim
    if weight._dtype != input._dtype:
        raise RunError(f"prelu: Type promoting not supported. Got {input.dtype.title} and {weight.dtype.title}")
    if weight.ndim > 1:
        raise RunError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if count != 1:
        channels = 1 if rank == 0 else input._shape[1] if rank > 1 else 1
        if not rank:
            raise RunError("Not allow zero-dim input tensor.")
        if channels != count:
            raise RunError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
    shape = [count if axis == 1 else 1 for axis in range(rank)] if rank > 1 else (1,) * rank
    return _bent(input, reshape(weight, shape))


@_activation(writing=True)
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1)

    >>> import weft
    >>> weft.nn.functional.elu(weft.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return apply(_ELU, EluAttrs(alpha=float(alpha)), [input])[0]


@_activation(core=True)
def selu(input: Tensor) -> Tensor:
    """Scaled elu that keeps mean 0 and variance 1"""
    return apply(_SELU, None, [input])[0]


@_activation(core=True)
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x / alpha) - 1)"""
    if alpha == 0:
        raise RunError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return elu(input, 1.0) if alpha == 1 else _curved(input, alpha)


@fused
def _curved(input: Tensor, alpha: float) -> Tensor:
    curve = mul(apply(_ELU, EluAttrs(alpha=1.0), [div(input, alpha)])[0], alpha)
    return choose(gt(input, 0), input, curve)


@_activation(core=True, elementwise=False)
def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """x where x > 0, else x times a random number between two bounds, or their mean"""
    must_be_real("rrelu", input)
    if lower > upper:
        raise RunError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2)
    if not is_float(input._dtype):
        raise Unsupported(f"rrelu is not implemented for {input._dtype.name}")
    generator = given(None)
    least, most = (float(input._dtype.type(bound)) for bound in (lower, upper))

    def slopes(array: Array) -> Array:
        found, below = np.ones_like(array), array <= 0
        with generator._lock:
            drawn = uniform64(generator._bits, int(below.sum()))
        found[below] = drawn * (most - least) + least
        return found

    return mul(input, hosted(slopes, input))


@row(space=NN, method=False)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution of x

    >>> import weft
    >>> weft.nn.functional.gelu(weft.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """
    if approximate not in ("none", "tanh"):
        raise RunError("approximate argument must be either none or tanh.")
    return apply(_GELU, GeluAttrs(approximate=approximate), [input])[0]


@_activation()
def silu(input: Tensor) -> Tensor:
    """x sigmoid(x)

    >>> import weft
    >>> weft.nn.functional.silu(weft.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    return apply(_SILU, None, [input])[0]


@_activation()
def mish(input: Tensor) -> Tensor:
    """x tanh(softplus(x))"""
    return apply(_MISH, None, [input])[0]


@row(space=NN, method=False)
@fused
def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta; x where beta x is above the threshold

    >>> import weft
    >>> weft.nn.functional.softplus(weft.tensor([0.0, 1.0]))
    tensor([0.6931, 1.3133])
    """
    scaled = input if beta == 1 else mul(input, beta)
    curved = apply(_SOFTPLUS, None, [scaled])[0]
    curved = curved if beta == 1 else div(curved, beta)
    return choose(gt(scaled, threshold), input, curved)


@row(space=NN, method=False)
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    if is_complex(input._dtype):
        return div(input, add(magnitude(input), 1))
    return apply(_SOFTSIGN, None, [floating(input)])[0]


@_activation()
def hardswish(input: Tensor) -> Tensor:
    """x limited(x / 6 + 1 / 2)"""
    return apply(_HARD_SWISH, None, [input])[0]


@_activation()
def hardsigmoid(input: Tensor) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1]"""
    return apply(_HARD_SIGMOID, HardSigmoidAttrs(alpha=1 / 6, beta=0.5), [input])[0]


@row
@row(space=NN, method=False)
@fused
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0"""
    must_be_real("hardshrink", input)
    return choose(le(magnitude(input), lambd), 0.0, input)


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


@_activation(core=True)
@fused
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """x where it is above the threshold, else a value"""
    return choose(le(input, threshold), value, input)._cast(input._dtype)


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
    if not input.ndim:
        raise RunError("glu does not support 0-dimensional tensors")
    axis = axis_of(dim, input.ndim)
    size = input._shape[axis]
    if size % 2:
        raise RunError(f"Halving dimension must be even, but dimension {axis} is size {size}")
    half = size // 2
    return _gated(narrow(input, axis, 0, half), narrow(input, axis, half, half))


@fused
def _gated(input: Tensor, gate: Tensor) -> Tensor:
    return mul(input, sigmoid(gate))
