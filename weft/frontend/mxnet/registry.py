"""The two tables of the importer: operators that are alike, and converters for the rest.

ALIKE["relu"] = Alike("relu")                      # the same, attributes renamed at most

@converter("Reshape")
def reshape(call): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from ...base.errors import RegistryError
from ..building import Alike, alike_rows
from ..emitter import Value
from .attributes import real_name
from .call import Call

Converter = Callable[[Call], Value | list[Value]]
AnyConverter = TypeVar("AnyConverter", bound=Converter)

ALIKE: dict[str, Alike] = {
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
        _contrib_PSROIPooling psroi_pool output_dim pooled_size group_size spatial_scale
    """),
}
CONVERTERS: dict[str, Converter] = {}


def converter(*op_names: str) -> Callable[[AnyConverter], AnyConverter]:
    """Registers a function that turns a Call into a value, or a list of values."""

    def register(function: AnyConverter) -> AnyConverter:
        for name in op_names:
            if name in CONVERTERS or name in ALIKE:
                raise RegistryError(f"{name} has a converter already")
            CONVERTERS[name] = function
        return function

    return register


def find(op_name: str) -> Converter | Alike | None:
    """What converts an operator."""
    name = real_name(op_name)
    return CONVERTERS.get(name) or ALIKE.get(name)


def supported() -> Iterable[str]:
    """Names, without aliases, of the operators that are converted."""
    return sorted({*CONVERTERS, *ALIKE})
