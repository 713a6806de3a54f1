"""Rows of weft.special: Bessel and Airy functions, zeta, incomplete gamma functions, orthogonal
polynomials, and functions of other modules that have a name there."""

from __future__ import annotations

from typing import Any

from ....base.dtype import is_complex, is_float
from ....base.errors import InvalidType, Unsupported
from ....core.op import Op
from ....ops.math.special_pairs import FAMILIES, PolynomialAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor
from ..operands import floating, must_be_real, must_be_tensors, promoted, promoted_floats
from ..reduce.reduce import logsumexp
from ..table import named, row
from .arithmetic import add, mul
from .pairs import sinc
from .unary import digamma, round

SPECIAL = "weft.special"


def _of_one(name: str, operator: str, doc: str) -> None:
    op = Op.get(operator)

    def function(input: Tensor) -> Tensor:
        must_be_real(name, input)
        return apply(op, None, [floating(input)])[0]

    row(named(function, name, doc), space=SPECIAL, method=False, out=True)


for _order in (0, 1):
    _of_one(f"bessel_j{_order}", f"bessel_j{_order}", f"the Bessel function J{_order}")
    _of_one(f"bessel_y{_order}", f"bessel_y{_order}", f"the Bessel function Y{_order}, NaN below 0")
    _of_one(f"modified_bessel_i{_order}", f"i{_order}", f"the modified Bessel function I{_order}")
    _of_one(f"modified_bessel_k{_order}", f"bessel_k{_order}", f"the modified Bessel function K{_order}")
    _of_one(f"scaled_modified_bessel_k{_order}", f"scaled_bessel_k{_order}", f"exp(x) K{_order}(x)")
_of_one("spherical_bessel_j0", "spherical_bessel_j0", "sin(x) / x, 1 at 0")
_of_one("airy_ai", "airy_ai", "the Airy function Ai")


# Functions of two tensors.


def _pair(name: str, first: Any, second: Any) -> list[Tensor]:
    """Two tensors, or one and a number, as tensors of one floating dtype."""
    if not (isinstance(first, Tensor) or isinstance(second, Tensor)):
        raise InvalidType(f"{name}(): one of the arguments must be a Tensor")
    must_be_real(name, first, second)
    return promoted_floats(first, second)


@row(space=SPECIAL, method=False, out=True)
def zeta(input: Any, other: Any) -> Tensor:
    """the sum of (q + k)^-x for k = 0, 1, ...; x comes first"""
    return apply(Op.get("zeta"), None, _pair("zeta", input, other))[0]


def _incomplete(name: str, special: str, doc: str) -> None:
    op = Op.get(name)

    def function(input: Tensor, other: Tensor) -> Tensor:
        must_be_tensors(name, input=input, other=other)
        pair = promoted(input, other)
        kind = pair[0]._dtype
        if is_complex(kind) or not is_float(kind):
            raise Unsupported(f'"{name}_cpu" not implemented for {pair[0].dtype.title!r}')
        return apply(op, None, pair)[0]

    row(named(function, name, doc), inplace=True, out=True)
    row(function, name=special, space=SPECIAL, method=False, out=True)


_incomplete("igamma", "gammainc", "the integral of t^(a-1) exp(-t) up to x, over gamma(a)")
_incomplete("igammac", "gammaincc", "the integral of t^(a-1) exp(-t) from x on, over gamma(a)")


def _polynomials(family: str) -> None:
    """The function of a family; Chebyshev's have a second one, from 0 to 1."""
    kind, _, letter = family.partition("_")
    name, op = f"{kind}_polynomial_{letter}", Op.get("orthogonal_polynomial")
    params = PolynomialAttrs(family=family)

    def function(input: Any, n: Any) -> Tensor:
        return apply(op, params, _pair(name, input, n))[0]

    def shifted(input: Any, n: Any) -> Tensor:
        x, degree = _pair(f"shifted_{name}", input, n)
        return apply(op, params, [add(mul(x, 2), -1), degree])[0]

    made = {name: (function, "x")}
    if kind == "chebyshev":
        made[f"shifted_{name}"] = (shifted, "2 x - 1")
    for label, (call, at) in made.items():
        doc = f"{kind.capitalize()}'s polynomial {letter.upper()} of degree n at {at}"
        row(named(call, label, doc), space=SPECIAL, method=False, out=True)


for _family in FAMILIES:
    _polynomials(_family)


# Functions that have another name or module, too.


row(logsumexp, space=SPECIAL, method=False, out=True)
row(sinc, space=SPECIAL, method=False, out=True)
row(round, space=SPECIAL, method=False, out=True)
row(digamma, name="psi", space=SPECIAL, method=False, out=True)
