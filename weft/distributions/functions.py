"""The functions on tensors that distributions are made of, and how their parameters become tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

from ..base.errors import InvalidValue
from ..eager.functions.all import FUNCTIONS
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import finfo, get_default_dtype

Function = Callable[..., Tensor]
_F, _LINALG, _NN = FUNCTIONS["weft"], FUNCTIONS["weft.linalg"], FUNCTIONS["weft.nn.functional"]

arange, empty, eye, full, ones, rand, tensor, zeros = (
    _F[name] for name in "arange empty eye full ones rand tensor zeros".split()
)
cat, maximum, minimum, ones_like, stack, where, zeros_like = (
    _F[name] for name in "cat maximum minimum ones_like stack where zeros_like".split()
)
full_like: Function = _F["full_like"]
bernoulli, binomial, poisson = (_F[name] for name in ("bernoulli", "binomial", "poisson"))
draw_normal: Function = _F["normal"]
multinomial: Function = _F["multinomial"]
logaddexp: Function = _F["logaddexp"]
matmul: Function = _F["matmul"]
broadcast_tensors: Callable[..., Sequence[Tensor]] = _F["broadcast_tensors"]
cholesky: Function = _LINALG["cholesky"]
cholesky_ex: Callable[..., Any] = _LINALG["cholesky_ex"]
eigvalsh: Function = _LINALG["eigvalsh"]
solve_triangular: Function = _LINALG["solve_triangular"]
bce_with_logits: Function = _NN["binary_cross_entropy_with_logits"]
softplus: Function = _NN["softplus"]
one_hot: Function = _NN["one_hot"]
pad: Function = _NN["pad"]
softmax: Function = _NN["softmax"]
logsigmoid: Function = _NN["logsigmoid"]
i0e, i1e = FUNCTIONS["weft.special"]["i0e"], FUNCTIONS["weft.special"]["i1e"]

EULER = 0.57721566490153286060
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that tensors of several shapes make together."""
    return Size(_F["broadcast_shapes"](*shapes))


def broadcast_all(*values: Any) -> Sequence[Tensor]:
    """Tensors and numbers as tensors of one shape; numbers have the dtype of the first tensor, or the default."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not all(isinstance(value, (Tensor, Number)) for value in values):
        raise InvalidValue("parameters of a distribution are tensors or numbers", why=f"got {values!r:.100}")
    kind = tensors[0].dtype if tensors else get_default_dtype()
    return broadcast_tensors(*[v if isinstance(v, Tensor) else tensor(v, dtype=kind) for v in values])


def as_tensor_like(value: Any, other: Tensor) -> Tensor:
    """A number in the dtype of a tensor; a tensor as it is."""
    return value if isinstance(value, Tensor) else tensor(value, dtype=other.dtype)


def epsilon(of: Tensor) -> float:
    """The distance from 1 to the next number of a tensor's dtype."""
    return float(finfo(of.dtype).eps)


def smallest(of: Tensor) -> float:
    """The smallest normal number of a tensor's dtype."""
    return float(finfo(of.dtype).tiny)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1."""
    eps = epsilon(probs)
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log odds, or of unnormalised log probabilities along the last axis."""
    return logits.sigmoid() if is_binary else softmax(logits, -1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds of probabilities, or their logarithms."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


def sum_rightmost(value: Any, count: int) -> Any:
    """The sum over the last axes of a tensor."""
    if not count or not isinstance(value, Tensor):
        return value
    return value.reshape(*value.shape[: value.ndim - count], -1).sum(-1)


def standard_normal(shape: Any, like: Tensor) -> Tensor:
    """Standard normal numbers in the dtype of a tensor."""
    return empty(shape, dtype=like.dtype).normal_()


def times_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices with vectors, over batches of both."""
    return matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """log B(a, b)"""
    return a.lgamma() + b.lgamma() - (a + b).lgamma()


def xlogx(x: Tensor) -> Tensor:
    """x log x, which is 0 at 0"""
    return x.xlogy(x)
