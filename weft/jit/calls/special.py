"""Operators on tensors whose function in weft takes other arguments, or has no name of its own there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor
from .numbered import OF_NUMBER, REDUCTIONS

_WEFT, _NN = FUNCTIONS["weft"], FUNCTIONS["weft.nn.functional"]


def _spread(name: str) -> Callable[..., Any]:
    """A function that takes tensors one by one."""
    return lambda tensors: _WEFT[name](*tensors)


def _with_indices(name: str) -> Callable[..., Any]:
    """Pooling that gives where the maxima were, too."""

    def call(input: Any, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil: bool = False) -> Any:
        return _NN[name](input, size, stride or None, padding, dilation, ceil, return_indices=True)

    return call


def _adaptive_with_indices(name: str) -> Callable[..., Any]:
    return lambda input, size: _NN[name](input, size, return_indices=True)


def _embedding(weight: Any, indices: Any, padding: int = -1, scale: bool = False, sparse: bool = False) -> Any:
    padding_idx = None if padding == -1 else padding
    return _NN["embedding"](indices, weight, padding_idx, scale_grad_by_freq=scale, sparse=sparse)


def _in_place(name: str) -> Callable[..., Any]:
    """An activation that is written over its input."""
    return lambda input: input.copy_(_NN[name](input))


def _slice(input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    length = input.size(dim)
    first, last, _ = slice(start, end).indices(length)
    places = [slice(None)] * (dim % max(input.ndim, 1)) + [slice(first, max(first, last), step)]
    return input[tuple(places)]


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if index is None else index for index in indices])


def _index(input: Any, indices: Sequence[Any]) -> Any:
    return input[_places(indices)]


def _index_put_(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if accumulate:
        return input.index_put_(tuple(indices), values, accumulate=True)
    input[_places(indices)] = values
    return input


def _index_put(input: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    return _index_put_(input.clone(), indices, values, accumulate)


def _nll_loss(input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    return _NN["nll_loss"](input, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction])


def _cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, smoothing: float = 0.0
) -> Any:
    return _NN["cross_entropy"](
        input, target, weight, ignore_index=ignore_index, reduction=REDUCTIONS[reduction], label_smoothing=smoothing
    )


def _elu(input: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """scale * (x if x > 0 else alpha * (exp(x * input_scale) - 1))"""
    if scale == 1 and input_scale == 1:
        return _NN["elu"](input, alpha)
    return _WEFT["where"](input > 0, input, (input * input_scale).expm1() * alpha) * scale


def _elu_(input: Any, *options: Any) -> Any:
    return input.copy_(_elu(input, *options))


def _convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *_: bool,
) -> Any:
    rank = weight.ndim - 2
    if transposed:
        function = _NN[f"conv_transpose{rank}d"]
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _NN[f"conv{rank}d"](input, weight, bias, stride, padding, dilation, groups)


def _resized(mode: str) -> Callable[..., Any]:
    """A size that is given as one, with a scale of each dimension that is used instead where it is known."""

    def call(input: Any, size: Any, *options: Any) -> Any:
        aligned, scales = (None, options) if mode.startswith("nearest") else (options[0], options[1:])
        return _interpolated(input, size, None, mode, aligned, scales)

    return call


def _resized_vec(mode: str) -> Callable[..., Any]:
    """A size, or scales."""

    def call(input: Any, size: Any, *options: Any) -> Any:
        aligned, scales = (None, options[0]) if mode.startswith("nearest") else options
        return _interpolated(input, size, scales, mode, aligned, ())

    return call


def _interpolated(input: Any, size: Any, scales: Any, mode: str, aligned: Any, kept: Sequence[Any]) -> Any:
    if kept and None not in kept and [int(n * s) for n, s in zip(input.shape[2:], kept)] == list(size):
        size, scales = None, list(kept)  # the ratio of coordinates is the scale itself
    return _NN["interpolate"](input, size=size, scale_factor=scales, mode=mode, align_corners=aligned)


def _unique_consecutive(input: Any, inverse: bool = False, counts: bool = False, dim: int | None = None) -> Any:
    found = _WEFT["unique_consecutive"](input, True, True, dim)
    empty = _WEFT["empty"](0, dtype=found[1].dtype)
    return found[0], found[1] if inverse else empty, found[2] if counts else empty


def _unique(input: Any, sorted: bool = True, inverse: bool = False, counts: bool = False) -> Any:
    found = _WEFT["unique"](input, sorted, True, True)
    empty = _WEFT["empty"](0, dtype=found[1].dtype)
    return found[0], found[1] if inverse else empty, found[2] if counts else empty


def _softmax(name: str) -> Callable[..., Any]:
    return lambda input, dim, half_to_float: _WEFT[name](input, dim)


def _repeat_interleave(repeats: Any, output_size: int | None = None) -> Any:
    return _WEFT["repeat_interleave"](_WEFT["arange"](len(repeats)), repeats, output_size=output_size)


def _tensordot(one: Any, two: Any, dims: Any, others: Any) -> Any:
    return _WEFT["tensordot"](one, two, dims=(dims, others))


def _tensor(data: Any, dtype: int | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    kind = None if dtype is None else OF_NUMBER[dtype]
    return _WEFT["tensor"](_plain(data), dtype=kind, device=device, requires_grad=requires_grad)


def _plain(data: Any) -> Any:
    """A list of numbers; tensors of one element in it count as numbers."""
    if isinstance(data, list) and any(isinstance(item, Tensor) for item in data):
        return [item.item() if isinstance(item, Tensor) else item for item in data]
    return data


def _number_tensor(value: Any) -> Any:
    """A tensor of one number, of 64 bits."""
    return _WEFT["tensor"](np.asarray(value))


def _implicit(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The number of a tensor that is used as one without being asked."""

    def call(tensor: Any) -> Any:
        if tensor.requires_grad:
            raise RunError("Cannot input a tensor that requires grad as a scalar argument", hint="call .detach() first")
        if tensor.ndim:
            raise RunError(
                f"Cannot input a tensor of dimension {tensor.ndim} as a scalar argument", hint="call .item() first"
            )
        return kind(tensor.item())

    return call


def _tensor_lists_equal(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return len(one) == len(two) and all(bool((a == b).all().item()) for a, b in zip(one, two))


def _kl_div(input: Any, target: Any, reduction: int = 1, log_target: bool = False) -> Any:
    return _NN["kl_div"](input, target, reduction=REDUCTIONS[reduction], log_target=log_target)


def _with_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    function = _NN["binary_cross_entropy_with_logits"]
    return function(input, target, weight, reduction=REDUCTIONS[reduction], pos_weight=pos_weight)


SPECIAL: dict[str, Callable[..., Any]] = {
    "aten::cartesian_prod": _spread("cartesian_prod"),
    "aten::block_diag": _spread("block_diag"),
    "aten::chain_matmul": _spread("chain_matmul"),
    "aten::adaptive_max_pool2d": _adaptive_with_indices("adaptive_max_pool2d"),
    "aten::adaptive_max_pool3d": _adaptive_with_indices("adaptive_max_pool3d"),
    "aten::max_pool2d_with_indices": _with_indices("max_pool2d"),
    "aten::max_pool3d_with_indices": _with_indices("max_pool3d"),
    "aten::slice.Tensor": _slice,
    "aten::index.Tensor": _index,
    "aten::index_put_": _index_put_,
    "aten::index_put": _index_put,
    "aten::unfold": lambda input, dim, size, step: Tensor.unfold(input, dim, size, step),  # type: ignore[attr-defined]
    "aten::numpy_T": lambda input: input.T,
    "aten::matrix_H": lambda input: input.H,
    "aten::nll_loss": _nll_loss,
    "aten::nll_loss_nd": _nll_loss,
    "aten::nll_loss2d": _nll_loss,
    "aten::cross_entropy_loss": _cross_entropy,
    "aten::kl_div": _kl_div,
    "aten::binary_cross_entropy_with_logits": _with_logits,
    "aten::log_sigmoid": lambda input: _NN["logsigmoid"](input),
    "aten::elu": _elu,
    "aten::elu_": _elu_,
    "aten::convolution": _convolution,
    "aten::_convolution": _convolution,
    "aten::unique_consecutive": _unique_consecutive,
    "aten::_unique2": _unique,
    "aten::_softmax": _softmax("softmax"),
    "aten::_log_softmax": _softmax("log_softmax"),
    "aten::tensordot": _tensordot,
    "aten::embedding": _embedding,
    "aten::im2col": lambda *values: _NN["unfold"](*values),
    "aten::col2im": lambda *values: _NN["fold"](*values),
    "aten::repeat_interleave.Tensor": _repeat_interleave,
    "aten::tensor": _tensor,
    "aten::tensor.int": _tensor,
    "aten::tensor.float": _tensor,
    "aten::tensor.bool": _tensor,
    "aten::tensor.complex": _tensor,
    "aten::IntImplicit": _implicit(int),
    "aten::FloatImplicit": _implicit(float),
    "aten::ComplexImplicit": _implicit(complex),
    "aten::ScalarImplicit": _implicit(lambda value: value),
    "prim::NumToTensor.Scalar": _number_tensor,
    "prim::NumToTensor.bool": _number_tensor,
    "aten::eq.Tensor_list": _tensor_lists_equal,
    "aten::ne.Tensor_list": lambda one, two: not _tensor_lists_equal(one, two),
}
for _name in "hardswish silu relu6 mish hardsigmoid".split():
    SPECIAL[f"aten::{_name}_"] = _in_place(_name)
for _name in "nearest1d nearest2d nearest3d linear1d bilinear2d bicubic2d trilinear3d".split():
    _mode = _name[:-2]
    SPECIAL[f"aten::upsample_{_name}"] = _resized(_mode)
    SPECIAL[f"aten::upsample_{_name}.vec"] = _resized_vec(_mode)
for _name in ("", ".scale_list", ".size_list_scale_list", ".size_list"):
    SPECIAL[f"aten::__interpolate{_name}"] = lambda *values: _NN["interpolate"](*values)
