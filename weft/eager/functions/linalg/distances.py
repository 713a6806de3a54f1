"""Rows: distances between the rows of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import is_float
from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.linalg.distances import DistancesAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor
from ..math.arithmetic import sub
from ..operands import must_be_real, promoted
from ..reduce.reduce import sum as total
from ..reduce.reduce import vector_norm
from ..shape.join import taken
from ..shape.shape import broadcast_shapes, expand, unsqueeze
from ..table import row

_DISTANCES = Op.get("distances")


@row(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:
    """The p-norms of the differences of all pairs of rows

    >>> import weft
    >>> weft.cdist(weft.tensor([[0.0, 0.0], [3.0, 0.0]]), weft.tensor([[0.0, 4.0]]))
    tensor([[4.],
            [5.]])
    """
    for name, x in (("X1", x1), ("X2", x2)):
        if not is_float(x._dtype):
            raise RunError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x.ndim < 2:
            raise RunError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1._shape[-1] != x2._shape[-1]:
        raise RunError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RunError("cdist only supports non-negative p values")
    if compute_mode not in _MODES:
        raise InvalidValue(f"{compute_mode} is not a valid value for compute_mode")
    if p == 2:
        return _distances(promoted(x1, x2), _MODES[compute_mode])
    gaps = sub(unsqueeze(x1, -2), unsqueeze(x2, -3))
    if not gaps._shape[-1]:
        return total(gaps, -1)
    return vector_norm(gaps, p, -1)


_MODES = {
    None: None,
    0: None,
    "use_mm_for_euclid_dist_if_necessary": None,
    1: True,
    "use_mm_for_euclid_dist": True,
    2: False,
    "donot_use_mm_for_euclid_dist": False,
}


FEW_ROWS = 25  # whose distances are those of differences unless products are asked for


def _distances(pair: list[Tensor], by_products: bool | None) -> Tensor:
    a, b = pair
    rows = a._shape[-2], b._shape[-2]
    if a.ndim > 2 or b.ndim > 2:
        batch = broadcast_shapes(a._shape[:-2], b._shape[:-2])
        a, b = (expand(x, (*batch, *x._shape[-2:])) for x in (a, b))
    chosen = max(rows) > FEW_ROWS if by_products is None else by_products
    return apply(_DISTANCES, DistancesAttrs(by_products=chosen), [a, b])[0]


@row(space="weft.nn.functional", method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of all pairs of different rows"""
    must_be_real("pdist", input)
    if input.ndim != 2:
        raise RunError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if p < 0:
        raise RunError("pdist only supports non-negative p values")
    first, second = np.triu_indices(input._shape[0], 1)
    gaps = sub(taken(input, 0, first), taken(input, 0, second))
    if not gaps.numel():
        return total(gaps, -1)
    return vector_norm(gaps, p, -1)


row(pdist, method=False)
