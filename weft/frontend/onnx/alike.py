"""Operators of ONNX that are weft's but for their names, read and written by one table."""

from __future__ import annotations

from ..building import Alike, alike_rows

SAME = {
    **{
        name.capitalize(): Alike(name)
        for name in (
            "abs acos acosh asin asinh atan atanh cos cosh erf exp log reciprocal relu sigmoid sign sin sinh softplus "
            "softsign sqrt tan tanh"
        ).split()
    },
    **alike_rows("""
        Concat concatenate axis
        Elu elu alpha
        HardSigmoid hard_sigmoid alpha beta
        HardSwish hard_swish
        Neg negative
    """),
}
