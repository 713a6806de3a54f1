"""Functions of `nn.functional` whose arguments are not those of one operator, as programs; and names of operators that
are not the names of functions."""

from __future__ import annotations

RENAMED = {  # functions by their names, as the operators that take the same arguments
    "interpolate": "aten::__interpolate",
    "upsample": "aten::__upsample",
    "upsample_nearest": "aten::__upsample_nearest",
    "upsample_bilinear": "aten::__upsample_bilinear",
    "logsigmoid": "aten::log_sigmoid",
}

_INPLACE = """
def {0}(input: Tensor, inplace: bool = False) -> Tensor:
    return torch.{0}_(input) if inplace else torch.{0}(input)
"""
_ACTIVATIONS = "relu relu6 selu silu mish hardswish hardsigmoid"

_REDUCED = """
def {0}(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
        reduction: str = "mean") -> Tensor:
    return torch.{0}(input, target, reduction_of(reduction, size_average, reduce))
"""

_MAX_POOL = """
def max_pool{0}d(input: Tensor, kernel_size: BroadcastingList{0}[int],
                 stride: Optional[BroadcastingList{0}[int]] = None, padding: BroadcastingList{0}[int] = 0,
                 dilation: BroadcastingList{0}[int] = 1, ceil_mode: bool = False,
                 return_indices: bool = False) -> Tensor:
    if return_indices:
        raise RuntimeError("max_pool{0}d with return_indices: call max_pool{0}d_with_indices")
    if stride is None:
        stride = kernel_size
    return torch.max_pool{0}d(input, kernel_size, stride, padding, dilation, ceil_mode)
"""

_FEATURE_DROPOUT = """
def dropout{0}d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.feature_dropout_(input, p, training) if inplace else torch.feature_dropout(input, p, training)
"""

SOURCE = (
    "".join([_FEATURE_DROPOUT.format(rank) for rank in (1, 2, 3)])
    + "".join([_MAX_POOL.format(rank) for rank in (1, 2, 3)])
    + "".join([_INPLACE.format(name) for name in _ACTIVATIONS.split()])
    + "".join([_REDUCED.format(name) for name in ("mse_loss", "l1_loss", "soft_margin_loss")])
    + """
def reduction_of(reduction: str, size_average: Optional[bool], reduce: Optional[bool]) -> int:
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            return 0
        if size_average is not None and not size_average:
            return 2
        return 1
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise ValueError(f"{reduction} is not a valid value for reduction")

def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return torch.dropout_(input, p, training) if inplace else torch.dropout(input, p, training)

def unfold(input: Tensor, kernel_size: BroadcastingList2[int], dilation: BroadcastingList2[int] = 1,
           padding: BroadcastingList2[int] = 0, stride: BroadcastingList2[int] = 1) -> Tensor:
    return torch.im2col(input, kernel_size, dilation, padding, stride)

def fold(input: Tensor, output_size: BroadcastingList2[int], kernel_size: BroadcastingList2[int],
         dilation: BroadcastingList2[int] = 1, padding: BroadcastingList2[int] = 0,
         stride: BroadcastingList2[int] = 1) -> Tensor:
    return torch.col2im(input, output_size, kernel_size, dilation, padding, stride)

def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None) -> Tensor:
    if mode == "bilinear":
        how = 0
    elif mode == "nearest":
        how = 1
    else:
        how = 2
    if padding_mode == "zeros":
        outside = 0
    elif padding_mode == "border":
        outside = 1
    else:
        outside = 2
    corners = False
    if align_corners is not None:
        corners = align_corners
    return torch.grid_sampler(input, grid, how, outside, corners)

def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    return torch.threshold_(input, threshold, value) if inplace else torch.threshold(input, threshold, value)

def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return torch.alpha_dropout_(input, p, training) if inplace else torch.alpha_dropout(input, p, training)

def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.elu_(input, alpha) if inplace else torch.elu(input, alpha)

def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.celu_(input, alpha) if inplace else torch.celu(input, alpha)

def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    return torch.leaky_relu_(input, negative_slope) if inplace else torch.leaky_relu(input, negative_slope)

def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    return torch.hardtanh_(input, min_val, max_val) if inplace else torch.hardtanh(input, min_val, max_val)

def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)

def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()

def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    return torch.softmax(input, dim, dtype)

def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    return softmax(-input, dim, _stacklevel, dtype)

def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    return torch.log_softmax(input, dim, dtype)

def batch_norm(input: Tensor, running_mean: Optional[Tensor], running_var: Optional[Tensor],
               weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-05) -> Tensor:
    return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, False)

def instance_norm(input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None,
                  weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-05) -> Tensor:
    return torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)

def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)

def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx = weight.size(0) + padding_idx
    if max_norm is not None:
        torch.embedding_renorm_(weight, input, max_norm, norm_type)
    return torch.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)

def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:
    how = reduction_of(reduction, size_average, reduce)
    return torch.l1_loss(input, target, how) if beta == 0.0 else torch.smooth_l1_loss(input, target, how, beta)

def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    return torch.huber_loss(input, target, reduction_of(reduction, None, None), delta)

def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
             ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:
    return torch.nll_loss_nd(input, target, weight, reduction_of(reduction, size_average, reduce), ignore_index)

def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
                  ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:
    how = reduction_of(reduction, size_average, reduce)
    return torch.cross_entropy_loss(input, target, weight, how, ignore_index, label_smoothing)

def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                         size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                         reduction: str = "mean") -> Tensor:
    return torch.binary_cross_entropy(input, target, weight, reduction_of(reduction, size_average, reduce))

def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                     size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                     reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:
    how = reduction_of(reduction, size_average, reduce)
    return torch.binary_cross_entropy_with_logits(input, target, weight, pos_weight, how)

def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Optional[Tensor], in_proj_bias: Optional[Tensor], bias_k: Optional[Tensor],
        bias_v: Optional[Tensor], add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
        out_proj_bias: Optional[Tensor], training: bool = True, key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True, attn_mask: Optional[Tensor] = None, use_separate_proj_weight: bool = False,
        q_proj_weight: Optional[Tensor] = None, k_proj_weight: Optional[Tensor] = None,
        v_proj_weight: Optional[Tensor] = None, static_k: Optional[Tensor] = None, static_v: Optional[Tensor] = None,
        average_attn_weights: bool = True, is_causal: bool = False) -> Tuple[Tensor, Optional[Tensor]]:
    if bias_k is not None or bias_v is not None or add_zero_attn or static_k is not None or static_v is not None:
        raise RuntimeError("attention with more keys than are given is no program")
    single = query.dim() == 2
    if single:
        query = query.unsqueeze(1)
        key = key.unsqueeze(1)
        value = value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    targets, items, width = query.size(0), query.size(1), query.size(2)
    sources = key.size(0)
    if use_separate_proj_weight:
        if q_proj_weight is None or k_proj_weight is None or v_proj_weight is None:
            raise RuntimeError("separate projections have three weights")
        wq, wk, wv = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        if in_proj_weight is None:
            raise RuntimeError("a projection has a weight")
        wq, wk, wv = in_proj_weight.chunk(3)
    if in_proj_bias is None:
        q, k, v = torch.linear(query, wq), torch.linear(key, wk), torch.linear(value, wv)
    else:
        bq, bk, bv = in_proj_bias.chunk(3)
        q, k, v = torch.linear(query, wq, bq), torch.linear(key, wk, bk), torch.linear(value, wv, bv)
    q = q.view(targets, items * num_heads, -1).transpose(0, 1)
    k = k.view(sources, items * num_heads, -1).transpose(0, 1)
    v = v.view(sources, items * num_heads, -1).transpose(0, 1)
    mask: Optional[Tensor] = None
    if attn_mask is not None:
        mask = attn_mask
        if attn_mask.dtype == 11:
            mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(attn_mask, float("-inf"))
    if key_padding_mask is not None:
        padding = key_padding_mask
        if key_padding_mask.dtype == 11:
            padding = torch.zeros_like(key_padding_mask, dtype=q.dtype).masked_fill(key_padding_mask, float("-inf"))
        padding = padding.view(items, 1, 1, sources).expand(-1, num_heads, -1, -1).reshape(-1, 1, sources)
        mask = padding if mask is None else mask + padding
    scores = torch.bmm(q * (1.0 / float(q.size(2))) ** 0.5, k.transpose(1, 2))
    if mask is not None:
        scores = scores + mask
    shares = torch.softmax(scores, -1)
    if dropout_p > 0.0:
        shares = torch.dropout(shares, dropout_p, training)
    result = torch.bmm(shares, v).transpose(0, 1).reshape(targets, items, width)
    result = torch.linear(result, out_proj_weight, out_proj_bias)
    weights: Optional[Tensor] = None
    if need_weights:
        found = shares.view(items, num_heads, targets, sources)
        if average_attn_weights:
            found = found.mean(1)
        weights = found.squeeze(0) if single else found
    return result.squeeze(1) if single else result, weights

def kl_div(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    if reduction == "batchmean":
        return torch.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    how = reduction_of(reduction, size_average, reduce)
    return torch.kl_div(input, target, how, log_target=log_target)
"""
)
