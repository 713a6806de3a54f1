"""The table of MXNet's operators, and what its converters register with."""

from __future__ import annotations

from ..building import Alike, alike_rows
from ..converters import ConverterTable
from .attributes import NAME_OF_ALIAS
from .call import MxnetCall

_ALIKE = {
    **{
        name: Alike(name)
        for name in (
            "abs ceil cos cosh erf erfinv exp expm1 floor log log1p negative reciprocal relu rsqrt sigmoid sign sin "
            "sinh softsign sqrt tan tanh trunc elemwise_add elemwise_sub elemwise_mul broadcast_add broadcast_sub "
            "broadcast_mul ones_like zeros_like"
        ).split()
    },
    **alike_rows("""
        arccos acos
        arccosh acosh
        arcsin asin
        arcsinh asinh
        arctan atan
        arctanh atanh
        fix trunc
        gammaln lgamma
        _contrib_sign_ste sign
        _npx_relu relu
        _npx_sigmoid sigmoid
        _grad_add elemwise_add
        _power elemwise_pow
        _maximum broadcast_max
        _minimum broadcast_min
        broadcast_maximum broadcast_max
        broadcast_minimum broadcast_min
        broadcast_power broadcast_pow
        clip clip a_min a_max
        hard_sigmoid hard_sigmoid alpha beta
        batch_dot batch_matmul transpose_a transpose_b
        Flatten flatten
        expand_dims expand_dims axis
        tile tile reps
        InstanceNorm instance_norm eps=epsilon
        Correlation correlation kernel_size max_displacement stride1 stride2 pad_size is_multiply
        _contrib_PSROIPooling psroi_pool output_dim pooled_size group_size spatial_scale
    """),
}
TABLE: ConverterTable[MxnetCall] = ConverterTable(_ALIKE, NAME_OF_ALIAS)
converter = TABLE.converter
