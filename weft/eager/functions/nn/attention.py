"""Rows of nn.functional: attention, of one head and of many."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import BOOL, is_float
from ....base.errors import RunError
from ....core.op import Op
from ....ops.nn.attention import AttentionAttrs
from ...autograd.modes import modes
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..linalg.matmul import matmul
from ..math.arithmetic import add, mul
from ..math.compare import choose
from ..math.special import softmax
from ..reduce.reduce import mean
from ..shape.join import cat, repeat_interleave
from ..shape.parts import chunk
from ..shape.shape import expand, reshape, squeeze, transpose, unsqueeze
from ..table import NN, row
from .dropout import dropout
from .linear_maps import linear
from .padding import constant_pad_nd

_ATTENTION = Op.get("scaled_dot_product_attention")


@row(space=NN, method=False)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale query key' + mask) value

    >>> import weft
    >>> query, key, value = weft.zeros(1, 2, 4), weft.zeros(1, 2, 4), weft.tensor([[[1.0], [3.0]]])
    >>> weft.nn.functional.scaled_dot_product_attention(query, key, value)
    tensor([[[2.],
             [2.]]])
    >>> weft.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    tensor([[[1.],
             [2.]]])
    """
    _check(query, key, value, attn_mask, is_causal)
    if enable_gqa:
        heads = query._shape[-3]
        key, value = (repeat_interleave(x, heads // x._shape[-3], -3) for x in (key, value))
    recorded = modes.trace is not None and modes.grad and any(x.requires_grad for x in (query, key, value))
    if dropout_p > 0 or (recorded and attn_mask is None):  # programs compute the gradients of products faster
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if not query._shape[:-2] == key._shape[:-2] == value._shape[:-2]:
        lead = np.broadcast_shapes(*(x._shape[:-2] for x in (query, key, value)))
        query, key, value = (expand(x, (*lead, *x._shape[-2:])) for x in (query, key, value))
    mask = "none" if attn_mask is None else "boolean"
    if attn_mask is not None and attn_mask._dtype != BOOL:
        mask = "additive"
    factor = 1 / math.sqrt(max(query._shape[-1], 1)) if scale is None else float(scale)
    params = AttentionAttrs(scale=factor, is_causal=is_causal, mask=mask)
    inputs = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    return apply(_ATTENTION, params, inputs)[0]


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    if min(x.ndim for x in (query, key, value)) < 2:
        raise RunError(
            "scaled_dot_product_attention: Expected query, key, and value to all be  at least 2 "
            f"dimensional, but got Query dim: {query.ndim}, Key dim: {key.ndim}, Value dim: "
            f"{value.ndim} instead."
        )
    if len({x._dtype for x in (query, key, value)}) > 1:
        raise RunError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if attn_mask is not None and is_causal:
        raise RunError("scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    kinds = (BOOL, query._dtype)
    if attn_mask is not None and attn_mask._dtype not in kinds:
        raise RunError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {attn_mask.dtype} and  query.dtype: {query.dtype} instead."
        )


def _with_dropout(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, p: float, causal: bool, scale: float | None
) -> Tensor:
    factor = 1 / math.sqrt(query._shape[-1]) if scale is None else scale
    scores = mul(matmul(query, transpose(key, -2, -1)), factor)
    if causal:
        mask = wrap(np.tri(*scores._shape[-2:], dtype=bool))
    if mask is not None and mask._dtype == BOOL:
        scores = choose(mask, scores, -math.inf)
    elif mask is not None:
        scores = add(scores, mask)
    return matmul(dropout(softmax(scores, -1), p), value)


# Attention of many heads.


class Unfit(RunError, AssertionError):
    """Arguments of attention that do not fit each other."""


class _Sizes(NamedTuple):
    targets: int
    items: int
    sources: int
    heads: int
    width: int  # of a head


@row(space=NN, method=False)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Projections of query, key and value, attention in each of several parts of them, and a
    projection of the results; with the weights of attention if they are asked for"""
    batched = _is_batched(query, key, value, key_padding_mask, attn_mask)
    if not batched:
        query, key, value = (unsqueeze(x, 1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else unsqueeze(key_padding_mask, 0)
    sizes = _sizes_of(query, key, num_heads, embed_dim_to_check)
    if is_causal and attn_mask is None:
        raise RunError(
            "Need attn_mask if specifying the is_causal hint.", hint="is_causal only says that attn_mask is a triangle"
        )
    padding = _additive(key_padding_mask, query, "key_padding_mask")
    is_causal = is_causal and padding is None
    by_hint = is_causal and not need_weights
    mask = None if by_hint else _additive(attn_mask, query, "attn_mask")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else _packed(in_proj_weight, key, value)
    q, k, v = _projected((query, key, value), weights, in_proj_bias)
    mask = _of_heads(mask, sizes)
    added = 0
    if bias_k is not None or bias_v is not None:
        k, v = _with_biases(k, v, bias_k, bias_v, static_k, static_v, sizes)
        added += 1
    q = _heads_of(q, sizes)
    k = _heads_of(k, sizes) if static_k is None else _static(static_k, "static_k", sizes)
    v = _heads_of(v, sizes) if static_v is None else _static(static_v, "static_v", sizes)
    if add_zero_attn:
        nothing = wrap(np.zeros((k._shape[0], 1, sizes.width), k._dtype))
        k, v = cat([k, nothing], 1), cat([v, nothing], 1)
        added += 1
    mask = _merged(_widened(mask, added), _widened(padding, added), sizes, k._shape[1])
    p = dropout_p if training else 0.0
    if need_weights:
        result, shares = _weighed(q, k, v, mask, p)
    else:
        result, shares = _unweighed(q, k, v, mask, p, by_hint, sizes), None
    result = reshape(transpose(result, 0, 1), (sizes.targets, sizes.items, -1))
    result = linear(result, out_proj_weight, out_proj_bias)
    if shares is not None:
        shares = reshape(shares, (sizes.items, sizes.heads, sizes.targets, -1))
        shares = mean(shares, 1) if average_attn_weights else shares
    if not batched:
        result, shares = squeeze(result, 1), None if shares is None else squeeze(shares, 0)
    return result, shares


def _is_batched(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None) -> bool:
    rank = query.ndim
    if rank not in (2, 3):
        raise Unfit(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    if key.ndim != rank or value.ndim != rank:
        raise Unfit(
            f"For a {rank}-D `query`, expected `key` and `value` to be {rank}-D but found "
            f"{key.ndim}-D and {value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != rank - 1:
        raise Unfit(
            f"For a {rank}-D `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but "
            f"found {padding.ndim}-D tensor instead"
        )
    if mask is not None and mask.ndim not in (2, 3):
        raise Unfit(f"expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor")
    return rank == 3


def _sizes_of(query: Tensor, key: Tensor, heads: int, wanted: int) -> _Sizes:
    targets, items, width = query._shape
    if width != wanted:
        raise Unfit(f"was expecting embedding dimension of {wanted}, but got {width}")
    if heads < 1 or width % heads:
        raise Unfit(f"embed_dim {width} not divisible by num_heads {heads}")
    return _Sizes(targets, items, key._shape[0], heads, width // heads)


def _additive(mask: Tensor | None, query: Tensor, name: str) -> Tensor | None:
    """A mask that is added to scores: true becomes minus infinity."""
    if mask is None or is_float(mask._dtype):
        return mask
    if mask._dtype != BOOL:
        raise Unfit(f"only bool and floating types of {name} are supported")
    kind = query._dtype.type
    return wrap(np.where(array_of(mask), kind(-math.inf), kind(0)))


def _packed(weight: Tensor | None, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    if weight is None:
        raise Unfit("use_separate_proj_weight is False but in_proj_weight is None")
    if key._shape != value._shape:
        raise Unfit(f"key shape {key.shape} does not match value shape {value.shape}")
    return chunk(weight, 3)


def _projected(inputs: Any, weights: Any, bias: Tensor | None) -> list[Tensor]:
    if any(weight is None for weight in weights):
        raise Unfit("use_separate_proj_weight is True but one of the projections is None")
    key, value = inputs[1:]
    if key._shape[:2] != value._shape[:2]:
        raise Unfit(f"key's sequence and batch dims {list(key.shape[:2])} do not match value's {list(value.shape[:2])}")
    biases = (None,) * 3 if bias is None else chunk(bias, 3)
    return [linear(x, weight, b) for x, weight, b in zip(inputs, weights, biases)]


def _of_heads(mask: Tensor | None, sizes: _Sizes) -> Tensor | None:
    """A mask with an axis for items and heads."""
    if mask is None:
        return None
    wanted = (sizes.items * sizes.heads, sizes.targets, sizes.sources)[3 - mask.ndim :]
    if mask._shape != wanted:
        raise RunError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}.")
    return unsqueeze(mask, 0) if mask.ndim == 2 else mask


def _with_biases(
    k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, static_k: Any, static_v: Any, sizes: _Sizes
) -> list[Tensor]:
    """Keys and values with one more, the same for every item."""
    if bias_k is None or bias_v is None:
        raise Unfit("bias_k and bias_v must be set both, or neither")
    if static_k is not None or static_v is not None:
        raise Unfit("bias cannot be added to static key or value.")
    pairs = ((k, bias_k), (v, bias_v))
    return [cat([x, expand(b, (1, sizes.items, b._shape[-1]))]) for x, b in pairs]


def _heads_of(x: Tensor, sizes: _Sizes) -> Tensor:
    """(length, items, features) as (items times heads, length, features of a head)."""
    return transpose(reshape(x, (x._shape[0], sizes.items * sizes.heads, sizes.width)), 0, 1)


def _static(tensor: Tensor, name: str, sizes: _Sizes) -> Tensor:
    first, _, last = tensor._shape
    if (first, last) != (sizes.items * sizes.heads, sizes.width):
        raise Unfit(
            f"expecting {name} of size ({sizes.items * sizes.heads}, *, {sizes.width}), but got {list(tensor.shape)}"
        )
    return tensor


def _widened(mask: Tensor | None, added: int) -> Tensor | None:
    return mask if mask is None or not added else constant_pad_nd(mask, (0, added))


def _merged(mask: Tensor | None, padding: Tensor | None, sizes: _Sizes, sources: int) -> Tensor | None:
    """One mask of both."""
    if padding is None:
        return mask
    if padding._shape != (sizes.items, sources):
        raise Unfit(f"expecting key_padding_mask shape of {(sizes.items, sources)}, but got {padding.shape}")
    per_head = expand(reshape(padding, (sizes.items, 1, 1, sources)), (sizes.items, sizes.heads, 1, sources))
    of_padding = reshape(per_head, (sizes.items * sizes.heads, 1, sources))
    return of_padding if mask is None else add(mask, of_padding)


def _weighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> tuple[Tensor, Tensor]:
    scores = matmul(mul(q, 1 / math.sqrt(q._shape[-1])), transpose(k, -2, -1))
    shares = softmax(scores if mask is None else add(scores, mask), -1)
    shares = dropout(shares, p) if p > 0 else shares
    return matmul(shares, v), shares


def _unweighed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, sizes: _Sizes) -> Tensor:
    q, k, v = (reshape(x, (sizes.items, sizes.heads, x._shape[1], sizes.width)) for x in (q, k, v))
    if mask is not None:
        lead = (sizes.items, sizes.heads) if mask._shape[0] > 1 else (1, 1)
        mask = reshape(mask, (*lead, *mask._shape[1:]))
        mask = expand(mask, (sizes.items, sizes.heads, sizes.targets, k._shape[2]))
    result = scaled_dot_product_attention(q, k, v, mask, p, causal)
    return reshape(result, (sizes.items * sizes.heads, sizes.targets, sizes.width))
