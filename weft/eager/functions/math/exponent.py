"""Rows: the parts of floating numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....base.dtype import is_float
from ....base.errors import RunError
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..table import row
from .arithmetic import mul


class Frexp(NamedTuple):
    """A number is mantissa * 2**exponent."""

    mantissa: Tensor
    exponent: Tensor


@row(out=True)
def frexp(input: Tensor) -> Frexp:
    """the mantissa, between a half and one, and the exponent"""
    if not is_float(input._dtype):
        raise RunError("frexp() only supports floating-point dtypes")
    exponent = np.frexp(array_of(input))[1].astype(np.int32)
    half = exponent // 2
    scales = [np.exp2(-part).astype(input._dtype) for part in (half, exponent - half)]
    mantissa = mul(mul(input, wrap(scales[0])), wrap(scales[1]))
    return Frexp(mantissa, wrap(exponent))
