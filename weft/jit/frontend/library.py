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

SOURCE = (
    "".join([_MAX_POOL.format(rank) for rank in (1, 2, 3)])
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

def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.feature_dropout_(input, p, training) if inplace else torch.feature_dropout(input, p, training)

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

def kl_div(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:
    if reduction == "batchmean":
        return torch.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    how = reduction_of(reduction, size_average, reduce)
    return torch.kl_div(input, target, how, log_target=log_target)
"""
)
