"""Rows: normalisations, in nn.functional and as the core has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....base.dtype import DTYPES, is_complex, is_integer
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.math.magnitude import WindowSumAttrs
from ....ops.nn.norm import BatchNormAttrs, GroupNormAttrs, InstanceNormAttrs, LayerNormAttrs, unbiasing
from ...autograd.modes import modes, no_grad
from ...dispatch import apply, kernel_of, record
from ...tensor.inplace import write
from ...tensor.memory import Array, array_of, is_foreign
from ...tensor.tensor import Tensor, wrap
from ..create.memory import contiguous
from ..math.arithmetic import add, div, mul, pow, sub
from ..math.pairs import clamp
from ..math.unary import rsqrt
from ..operands import must_be_real
from ..reduce.reduce import mean, var, vector_norm
from ..shape.shape import expand_as, reshape
from ..table import NN, row

_BATCH, _LAYER, _RMS, _GROUP, _INSTANCE = (
    Op.get(f"{name}_norm") for name in ("batch", "layer", "rms", "group", "instance")
)
_MOMENTS = Op.get("_batch_norm_moments")
_WINDOW, _COPY = Op.get("_window_sum"), Op.get("copy")
_HALVES = (DTYPES["float16"], DTYPES["bfloat16"])
Normed = tuple[Tensor, Tensor, Tensor]


# Params are made once: whoever looks a call up compares them.
_LayerParams, _GroupParams = lru_cache(256)(LayerNormAttrs), lru_cache(256)(GroupNormAttrs)
_BatchParams, _InstanceParams = lru_cache(256)(BatchNormAttrs), lru_cache(256)(InstanceNormAttrs)


def _or_all(tensor: Tensor | None, make: Callable[..., Array], shape: Any, input: Tensor) -> Tensor:
    """A tensor that may be missing, or ones or zeros."""
    return wrap(make(shape, input._dtype)) if tensor is None else tensor


def _own_shape(input: Tensor, normalized_shape: Any, *tensors: Tensor | None) -> tuple[int, ...]:
    shape = tuple(normalized_shape)
    if not shape:
        raise RunError(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
            "element, but got normalized_shape = []"
        )
    for tensor, name in zip(tensors, ("weight", "bias")):
        if tensor is not None and tensor._shape != shape:
            raise RunError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(tensor.shape)} and normalized_shape = {list(shape)}"
            )
    if input._shape[input.ndim - len(shape) :] != shape or input.ndim < len(shape):
        raise RunError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    return shape


@row(method=False)
@row(space=NN, method=False)
def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias, over the last axes

    >>> import weft
    >>> weft.nn.functional.layer_norm(weft.tensor([[1.0, 3.0], [9.0, 5.0]]), (2,))
    tensor([[-1.0000,  1.0000],
            [ 1.0000, -1.0000]])
    """
    shape = _own_shape(input, normalized_shape, weight, bias)
    params = _LayerParams(axis=-len(shape), epsilon=float(eps))
    inputs = [input, _or_all(weight, np.ones, shape, input), _or_all(bias, np.zeros, shape, input)]
    return apply(_LAYER, params, inputs)[0]


@row(method=False)
@row(space=NN, method=False)
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """weight x / sqrt(mean of x squared + eps), over the last axes"""
    shape = _own_shape(input, normalized_shape, weight)
    wide = np.float32 if input._dtype in _HALVES else input._dtype  # in which it is computed
    small = float(np.finfo(wide).eps) if eps is None else float(eps)
    if is_complex(input._dtype):
        axes = tuple(range(-len(shape), 0))
        result = mul(input, rsqrt(add(mean(mul(input, input), axes, True), small)))
        return result if weight is None else mul(result, weight)
    params = _LayerParams(axis=-len(shape), epsilon=small)
    return apply(_RMS, params, [input, _or_all(weight, np.ones, shape, input)])[0]


@row(method=False)
@row(space=NN, method=False)
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias, over groups of channels

    >>> import weft
    >>> weft.nn.functional.group_norm(weft.tensor([[1.0, 3.0, 9.0, 5.0]]), 2)
    tensor([[-1.0000,  1.0000,  1.0000, -1.0000]])
    """
    shape = input._shape
    if len(shape) < 2:
        raise RunError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    channels = shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise RunError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    for tensor, name in ((weight, "weight"), (bias, "bias")):
        if tensor is not None and tensor._shape != (channels,):
            raise RunError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(tensor.shape)} and input of shape {list(shape)}"
            )
    params = _GroupParams(num_groups=num_groups, epsilon=float(eps))
    data = contiguous(input)
    inputs = [data, _or_all(weight, np.ones, channels, input), _or_all(bias, np.zeros, channels, input)]
    return apply(_GROUP, params, inputs)[0]


def _must_have_spread(shape: Sequence[int]) -> None:
    """Moments of a single value say nothing."""
    if shape[0] * math.prod(shape[2:]) == 1:
        raise InvalidValue(f"Expected more than 1 value per channel when training, got input size {list(shape)}")


def _check_channels(count: int, **vectors: Tensor | None) -> None:
    for name, vector in vectors.items():
        if vector is not None and vector.numel() != count:
            raise RunError(f"{name} should contain {count} elements not {vector.numel()}")


@row(method=False)
@row(space=NN, method=False)
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias for each channel; when training with moments
    of the batch, by which the running ones move

    >>> import weft
    >>> x, mean, variance = weft.tensor([[1.0, 6.0], [3.0, 2.0]]), weft.zeros(2), weft.ones(2)
    >>> weft.nn.functional.batch_norm(x, mean, variance, training=True)
    tensor([[-1.0000,  1.0000],
            [ 1.0000, -1.0000]])
    >>> mean
    tensor([0.2000, 0.4000])
    """
    must_be_real("batch_norm", input)
    shape = input._shape
    if shape == (0,):
        return apply(_COPY, None, [input])[0]
    if len(shape) < 2:
        raise RunError(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if training:
        _must_have_spread(shape)
    elif running_mean is None or running_var is None:
        raise RunError("Expected running_mean and running_var to be defined when training=False")
    count = shape[1]
    _check_channels(count, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    params = _BatchParams(
        epsilon=float(eps),
        scale=weight is not None,
        center=bias is not None,
        momentum=1 - momentum,
        training=bool(training) and input.numel() > 0,  # nothing has no moments
        unbiased=True,
    )
    inputs = [
        input,
        _or_all(weight, np.ones, count, input),
        _or_all(bias, np.zeros, count, input),
        _or_all(running_mean, np.zeros, count, input),
        _or_all(running_var, np.ones, count, input),
    ]
    return _batch_normed(params, inputs, [running_mean, running_var])


def _batch_normed(params: BatchNormAttrs, inputs: list[Tensor], running: list[Tensor | None]) -> Tensor:
    """Runs the operator, which gives what moves after its outputs."""
    if params.training and any([moving is not None and not is_foreign(moving) for moving in running]):
        _must_move_alone(inputs[0])
    kernel = kernel_of(_BATCH)
    if modes.trace is not None:
        return _batch_recorded(params, inputs, running)
    results = kernel.run(params, [array_of(tensor) for tensor in inputs])
    outputs = [wrap(result) for result in results[:3]]
    for tensor, moved in zip(running, results[3:]):
        if tensor is not None:
            np.copyto(array_of(tensor), moved)
            tensor._counter[0] += 1
    if modes.grad and any(tensor._requires_grad for tensor in inputs):
        moments = [wrap(array_of(output)) for output in outputs[1:3]]
        record(kernel, params, inputs, [outputs[0], *moments])
    return outputs[0]


def _must_move_alone(input: Tensor) -> None:
    if is_foreign(input):
        raise RunError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in "
            "place, were not batched.",
            hint="make the module with track_running_stats=False, or call it in eval mode",
        )


def _batch_recorded(params: BatchNormAttrs, inputs: list[Tensor], running: list[Tensor | None]) -> Tensor:
    """The same by operators that write nothing; running moments are written after them."""
    if not params.training:
        x, weight, bias, average, variance = inputs
        wide = (1, -1, *[1] * (x.ndim - 2))
        scale = mul(weight, rsqrt(add(variance, params.epsilon)))
        shift = sub(bias, mul(average, scale))
        return add(mul(x, reshape(scale, wide)), reshape(shift, wide))
    output, mean, var = apply(_MOMENTS, params, inputs[:3])
    growth = (1.0, unbiasing(params, inputs[0].numel() // max(inputs[0]._shape[1], 1)))
    with no_grad():
        for tensor, now, factor in zip(running, (mean, var), growth):
            if tensor is not None:
                kept = params.momentum
                write(tensor, add(mul(tensor, kept), mul(now.detach(), (1 - kept) * factor)))
    return output


@row(space=NN, method=False)
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias for each channel of each item"""
    shape = input._shape
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if int(np.prod(shape[2:])) == 1:
        raise InvalidValue(f"Expected more than 1 spatial element when training, got input size {list(shape)}")
    count = shape[1]
    inputs = [input, _or_all(weight, np.ones, count, input), _or_all(bias, np.zeros, count, input)]
    if running_mean is not None and running_var is not None:
        if modes.trace is not None:
            modes.trace.decline("running moments of instances move")
        _move(array_of(input), running_mean, running_var, momentum)
    return apply(_INSTANCE, _InstanceParams(epsilon=float(eps)), inputs)[0]


def _move(x: Array, mean: Tensor, var: Tensor, momentum: float) -> None:
    """Running moments take a part of the mean of the items' own."""
    axes = tuple(range(2, x.ndim))
    count = int(np.prod(x.shape[2:]))
    means = x.mean(axes).mean(0)
    spreads = x.var(axes).mean(0) * (count / max(count - 1, 1))
    for tensor, now in ((mean, means), (var, spreads)):
        with no_grad():
            write(tensor, add(mul(tensor, 1 - momentum), wrap((now * momentum).astype(tensor._dtype))))


@row(space=NN, method=False)
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha times the mean of the squares of near channels) to the power beta"""
    shape = input._shape
    if len(shape) < 3:
        raise InvalidValue(f"Expected 3D or higher dimensionality input (got {len(shape)} dimensions)")
    if not input.numel():
        return input
    params = WindowSumAttrs(size=size, before=size // 2, axis=1)
    near = apply(_WINDOW, params, [mul(input, input)])[0]
    near = div(near, size, rounding_mode="floor" if is_integer(near._dtype) else None)
    return div(input, pow(add(mul(near, alpha), k), beta))


@row(space=NN, method=False)
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """x divided by its norm along an axis, which counts as eps at least

    >>> import weft
    >>> weft.nn.functional.normalize(weft.tensor([[3.0, 4.0], [0.0, 2.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    length = clamp(vector_norm(input, p, dim, True), min=eps)
    return div(input, expand_as(length, input))


# As the core has them, most with what their kernels keep.


@row(name="instance_norm", method=False)
def _instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias for each channel of each item"""
    moving = (running_mean, running_var)
    return instance_norm(input, *moving, weight, bias, use_input_stats, momentum, eps)


def _moments(rows: Array, eps: float, shape: Any) -> tuple[Tensor, Tensor]:
    """The mean of each row, and 1 / sqrt(variance + eps); apart from the graph."""
    kind = rows.dtype
    wide = rows.astype(np.float32) if kind in _HALVES else rows
    with np.errstate(all="ignore"):
        middle, spread = wide.mean(-1), 1 / np.sqrt(wide.var(-1) + eps)
    return wrap(middle.astype(kind).reshape(shape)), wrap(spread.astype(kind).reshape(shape))


@row(method=False)
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normed:
    """`layer_norm`, the means and 1 / the deviations"""
    result = layer_norm(input, normalized_shape, weight, bias, eps)
    rank = len(normalized_shape)
    lead = input._shape[: input.ndim - rank]
    rows = array_of(input).reshape((*lead, int(np.prod(normalized_shape))))
    return result, *_moments(rows, eps, (*lead, *[1] * rank))


@row(method=False)
def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Normed:
    """`group_norm`, the means and 1 / the deviations of all groups"""
    if input.numel() != N * C * HxW:
        raise RunError(f"Expected X.numel() == N * C * HxW to be true, but got {input.shape}")
    result = group_norm(input, group, weight, bias, eps)
    rows = reshape(input, (N, group, C * HxW // group))
    return result, mean(rows, -1), rsqrt(add(var(rows, -1, correction=0), eps))


@row(method=False)
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Normed:
    """`batch_norm`, and when training the means and 1 / the deviations of the batch"""
    result = batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        nothing = np.empty(0, input._dtype)
        return result, wrap(nothing), wrap(nothing.copy())
    channels = input._shape[1]
    rows = np.moveaxis(array_of(input), 1, 0).reshape(channels, -1)
    return result, *_moments(rows, eps, (channels,))
