"""Rows of nn.functional: linear and bilinear maps."""

from __future__ import annotations

from functools import lru_cache

from ....base.errors import RunError
from ....core.op import Op
from ....ops.nn.dense_softmax import DenseAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor
from ..linalg.einsum import einsum
from ..linalg.matmul import matmul
from ..math.arithmetic import add
from ..shape.shape import t
from ..table import NN, row

_DENSE = Op.get("dense")


@row(space=NN, method=False)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b

    >>> import weft
    >>> x, weight = weft.tensor([[1.0, 2.0]]), weft.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> weft.nn.functional.linear(x, weight, bias=weft.tensor([0.5, 0.0]))
    tensor([[11.5000, 17.0000]])
    """
    x, w = input._shape, weight._shape
    fits = len(x) > 1 and len(w) == 2 and x[-1] == w[1] and input._dtype == weight._dtype
    if not fits or not w[0] or (bias is not None and bias.ndim != 1):
        result = matmul(input, t(weight))
        return result if bias is None else add(result, bias)
    if bias is None:
        return apply(_DENSE, _dense(w[0], False), [input, weight])[0]
    if bias._shape != w[:1]:
        return add(matmul(input, t(weight)), bias)
    return apply(_DENSE, _dense(w[0], True), [input, weight, bias])[0]


@lru_cache(1024)
def _dense(units: int, use_bias: bool) -> DenseAttrs:
    return DenseAttrs(units=units, use_bias=use_bias)


@row(method=False)
@row(space=NN, method=False)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 W x2 + b for each output"""
    a, b, w = input1._shape, input2._shape, weight._shape
    if len(a) != len(b) or a[:-1] != b[:-1]:
        raise RunError(f"bilinear(): input batch dimensions do not match: got {list(a)} and {list(b)}")
    if w[1:] != (a[-1], b[-1]):
        raise RunError(f"bilinear(): input sizes do not match the weight: got {a[-1]}, {b[-1]} and {list(w)}")
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else add(result, bias)
