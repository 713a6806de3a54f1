"""Rows: arithmetic of two operands, and the operators of Python."""

from __future__ import annotations

from typing import Any

from ....base.dtype import BOOL, DTYPES, is_complex, is_float, is_integer
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ....ops._families import ScalarAttrs
from ....ops.math.elemwise import PRODUCTS
from ...autograd.node_names import entitle, title_of
from ...dispatch import apply, apply_pair
from ...tensor.memory import checked_elements
from ...tensor.tensor import Tensor, bind
from ..around import LAYERS, layered
from ..fusion import fused
from ..misuse import raise_explained
from ..operands import in_dtype, must_be_tensors, must_fit, promoted, promoted_floats
from ..table import row

_ADD, _SUB, _MUL, _DIV, _MOD, _POW, _MAX, _MIN = (
    Op.get(f"broadcast_{name}") for name in "add sub mul div mod pow max min".split()
)
_FLOOR_DIV, _FMOD, _TRUNC = (Op.get(name) for name in ("floor_divide", "fmod", "trunc"))
_SQRT, _COPY, _POW_SCALAR = (Op.get(name) for name in ("sqrt", "copy", "__pow_scalar__"))


def _of_two(op: Op, a: Any, b: Any) -> Tensor:
    """An operator on tensors and numbers, in the dtype they meet in."""
    left, right = promoted(a, b)
    try:
        result = apply_pair(op, left, right)
    except ValueError:  # shapes that do not broadcast, which the other way tells
        result = None
    return apply(op, None, [left, right])[0] if result is None else result


def _scaled(input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, where alpha must be of a kind that the operands have."""
    if type(alpha) is int and alpha == 1:
        return other
    if type(alpha) is float and _is_float(input) and _is_float(other):
        return _of_two(_MUL, other, alpha)
    kinds = [x._dtype for x in (input, other) if isinstance(x, Tensor)]
    if isinstance(alpha, bool) and any(kind != BOOL for kind in kinds):
        raise RunError("Boolean alpha only supported for Boolean results.")
    whole = all(is_integer(kind) or kind == BOOL for kind in kinds)
    if whole and isinstance(alpha, (float, complex)) and not isinstance(other, float):
        raise RunError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and not any(is_complex(kind) for kind in kinds):
        raise RunError("For non-complex input tensors, argument alpha must not be a complex number.")
    if all(kind == BOOL for kind in kinds) and isinstance(other, (Tensor, bool)):
        alpha = bool(alpha)
    elif kinds and all(is_integer(kind) for kind in kinds):
        must_fit(max(kinds, key=lambda kind: kind.itemsize), alpha)
    if isinstance(other, bool) and isinstance(alpha, bool):
        return other and alpha
    return mul(other, alpha) if isinstance(other, Tensor) else other * alpha


@row(inplace=True, out=True, elementwise=True)
def add(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha * other

    >>> import weft
    >>> weft.add(weft.tensor([1, 2, 3]), 10)
    tensor([11, 12, 13])
    >>> weft.add(weft.tensor([1.0, 2.0]), weft.tensor([[1.0], [2.0]]), alpha=2)
    tensor([[3., 4.],
            [5., 6.]])
    """
    if type(alpha) is int and alpha == 1:
        return _of_two(_ADD, input, other)
    return _with_scaled(input, other, alpha)


@fused
def _with_scaled(input: Any, other: Any, alpha: Any) -> Tensor:
    return _of_two(_ADD, input, _scaled(input, other, alpha))


@row(inplace=True, out=True, elementwise=True, aliases=["subtract"])
def sub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha * other

    >>> import weft
    >>> weft.sub(weft.tensor([5, 7]), weft.tensor([1, 2]))
    tensor([4, 5])
    >>> weft.sub(weft.tensor([5, 7]), weft.tensor([1, 2]), alpha=3)
    tensor([2, 1])
    """
    return _without(input, other, alpha) if alpha == 1 else _without_scaled(input, other, alpha)


def _without(input: Any, other: Any, alpha: Any) -> Tensor:
    left, right = promoted(input, _scaled(input, other, alpha))
    if left._dtype == BOOL or _is_bool(input) or _is_bool(other):
        raise RunError(
            "Subtraction, the `-` operator, with a bool tensor is not supported.",
            hint="use the `^` or `logical_xor()` operator, or `~` and `logical_not()`, instead",
        )
    return apply(_SUB, None, [left, right])[0]


_without_scaled = fused(_without)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value._dtype.kind == "f"


def _is_bool(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value._dtype == BOOL
    return isinstance(value, bool)


@row
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input"""
    must_be_tensors("rsub", input=input)
    return sub(other, input, alpha=alpha)


@row(inplace=True, out=True, elementwise=True, aliases=["multiply"])
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other

    >>> import weft
    >>> weft.mul(weft.tensor([1, 2, 3]), 0.5)
    tensor([0.5000, 1.0000, 1.5000])
    >>> weft.mul(weft.tensor([[1], [2]]), weft.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    return _of_two(_MUL, input, other)


@row(inplace=True, out=True, elementwise=True, aliases=["divide"])
def div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other; integers are divided as floats unless it is rounded, by "trunc" or "floor\"

    >>> import weft
    >>> x = weft.tensor([7, -7])
    >>> weft.div(x, 2)
    tensor([ 3.5000, -3.5000])
    >>> weft.div(x, 2, rounding_mode="trunc"), weft.div(x, 2, rounding_mode="floor")
    (tensor([ 3, -3]), tensor([ 3, -4]))
    """
    if rounding_mode is None:
        return apply(_DIV, None, promoted_floats(input, other))[0]
    left, right = promoted(input, other)
    if rounding_mode == "floor":
        return _divided_down(left, right)
    if rounding_mode == "trunc":
        return _divided_to_zero(left, right)
    raise RunError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")


def _must_have_tensor(name: str, input: Any, other: Any) -> None:
    if not isinstance(other, Tensor):
        must_be_tensors(name, input=input)


def _must_be_numbers(name: str, value: Tensor) -> None:
    if value._dtype == BOOL:
        raise Unsupported(f"\"{name}\" not implemented for 'Bool'")


def _must_not_be_zero(divisor: Tensor) -> None:
    if not is_integer(divisor._dtype):
        return
    if not checked_elements(divisor).all():
        raise RunError("ZeroDivisionError")


def _divided_down(left: Tensor, right: Tensor) -> Tensor:
    _must_be_numbers("floor_divide", left)
    _must_not_be_zero(right)
    return apply(_FLOOR_DIV, None, [left, right])[0]


def _divided_to_zero(left: Tensor, right: Tensor) -> Tensor:
    _must_be_numbers("div", left)
    if is_float(left._dtype):
        return apply(_TRUNC, None, apply(_DIV, None, [left, right]))[0]
    _must_not_be_zero(right)
    rest = apply(_FMOD, None, [left, right])[0]
    return apply(_FLOOR_DIV, None, [left - rest, right])[0]


@row(inplace=True, out=True, elementwise=True)
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other; integers are divided as floats"""
    return div(input, other)


@row(inplace=True, out=True, elementwise=True)
def floor_divide(input: Tensor, other: Any) -> Tensor:
    """input / other rounded down

    >>> import weft
    >>> weft.floor_divide(weft.tensor([7, -7]), 2)
    tensor([ 3, -4])
    """
    return _divided_down(*promoted(input, other))


@row(inplace=True, out=True, elementwise=True)
def remainder(input: Any, other: Any) -> Tensor:
    """the remainder of input / other, with the sign of other

    >>> import weft
    >>> weft.remainder(weft.tensor([7, -7]), 3)
    tensor([1, 2])
    """
    _must_have_tensor("remainder", input, other)
    left, right = promoted(input, other)
    _must_be_numbers("remainder", left)
    _must_not_be_zero(right)
    return apply(_MOD, None, [left, right])[0]


@row(inplace=True, out=True, elementwise=True)
def fmod(input: Tensor, other: Any) -> Tensor:
    """the remainder of input / other, with the sign of input"""
    must_be_tensors("fmod", input=input)
    left, right = promoted(input, other)
    _must_be_numbers("fmod", left)
    _must_not_be_zero(right)
    return apply(_FMOD, None, [left, right])[0]


@row(inplace=True, out=True, elementwise=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """input to the power of exponent

    >>> import weft
    >>> weft.pow(weft.tensor([1, 2, 3]), 2)
    tensor([1, 4, 9])
    >>> weft.pow(2, weft.tensor([0.0, 1.0, 3.0]))
    tensor([1., 2., 8.])
    """
    _must_have_tensor("pow", input, exponent)
    base, power = promoted(input, exponent)
    must_fit(base._dtype, input, exponent)
    if not isinstance(exponent, Tensor):
        known = _known_power(base, exponent)
        if known is not None:
            return known
    _must_be_numbers("pow", base)
    return apply(_POW, None, [base, power])[0]


def _known_power(base: Tensor, exponent: Any) -> Tensor | None:
    """Powers that are cheaper as something else."""
    if is_integer(base._dtype) and exponent < 0:
        raise RunError("Integers to negative integer powers are not allowed.")
    if exponent in PRODUCTS and is_float(base._dtype):
        return few_products(base, exponent)
    if exponent == 2:
        return apply(_MUL, None, [base, base])[0]
    if exponent == 0.5:
        return apply(_SQRT, None, [base])[0]
    if exponent == 1:
        return apply(_COPY, None, [base])[0]
    return None


def few_products(base: Tensor, exponent: int) -> Tensor:
    """A power of floats, for an exponent in PRODUCTS."""
    return apply(_POW_SCALAR, _EXPONENTS[exponent], [base])[0]


_EXPONENTS = {exponent: ScalarAttrs(scalar=float(exponent)) for exponent in PRODUCTS}


@row(out=True, elementwise=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """input to the power of exponent, in double precision"""
    _must_have_tensor("float_power", input, exponent)
    values = promoted(input, exponent)
    wide = DTYPES["complex128" if is_complex(values[0]._dtype) else "float64"]
    base, power = (in_dtype(value, wide) for value in (input, exponent))
    return apply(_POW, None, [base, power])[0]


@row(space=None)
def float_power_(input: Tensor, exponent: Any) -> Tensor:
    """in-place `float_power`, of tensors in double precision"""
    kind = input._dtype
    if kind not in (DTYPES["float64"], DTYPES["complex128"]):
        raise RunError(
            f"the base given to float_power_ has dtype {input.dtype.title} but the operation's "
            "result requires dtype Double"
        )
    written: Tensor = input.pow_(exponent)
    return written


@row(inplace=True, out=True, elementwise=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other"""
    must_be_tensors("ldexp", input=input, other=other)
    return mul(input, pow(2.0, other))


@row(out=True, elementwise=True)
def maximum(input: Tensor, other: Tensor) -> Tensor:
    """the larger of both

    >>> import weft
    >>> weft.maximum(weft.tensor([1, 5]), weft.tensor([3, 2]))
    tensor([3, 5])
    """
    return apply(_MAX, None, _ordered("maximum", input, other))[0]


@row(out=True, elementwise=True)
def minimum(input: Tensor, other: Tensor) -> Tensor:
    """the smaller of both

    >>> import weft
    >>> weft.minimum(weft.tensor([1, 5]), weft.tensor([3, 2]))
    tensor([1, 2])
    """
    return apply(_MIN, None, _ordered("minimum", input, other))[0]


def _ordered(name: str, input: Tensor, other: Tensor) -> list[Tensor]:
    must_be_tensors(name, input=input, other=other)
    values = promoted(input, other)
    if is_complex(values[0]._dtype):
        raise Unsupported("complex numbers have no order")
    return values


def _same_dtype(name: str, **tensors: Any) -> None:
    """Refuses tensors of different dtypes."""
    kinds = {key: t.dtype for key, t in tensors.items() if isinstance(t, Tensor)}
    first = next(iter(kinds.values()))
    for key, kind in kinds.items():
        if kind is not first:
            raise RunError(f"{name}: expected dtype {first} for `{key}` but got dtype {kind}")


@row(inplace=True, out=True, elementwise=True)
@fused
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input)

    >>> import weft
    >>> weft.lerp(weft.tensor([0.0, 10.0]), weft.tensor([4.0, 20.0]), 0.25)
    tensor([ 1.0000, 12.5000])
    """
    _same_dtype("lerp", input=input, end=end, weight=weight)
    return add(input, mul(weight, sub(end, input)))


@row(inplace=True, out=True, elementwise=True)
@fused
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 * tensor2"""
    product = mul(tensor1, tensor2)
    return add(input, product if value == 1 else mul(product, value))


@row(inplace=True, out=True, elementwise=True)
@fused
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value * tensor1 / tensor2"""
    if not any(is_float(t._dtype) or is_complex(t._dtype) for t in (tensor1, tensor2)):
        raise RunError(
            "Integer division with addcdiv is no longer supported",
            hint="use (input + value * trunc(tensor1 / tensor2)).to(input.dtype)",
        )
    ratio = div(tensor1, tensor2)
    return add(input, ratio if value == 1 else mul(ratio, value))


# The operators of Python.


SWAPPED = {"sub": "rsub", "div": "mul"}  # 1 - x is one step, 1 / x a product with 1 at the end


def _operator(function: Any, swapped: bool = False) -> Any:
    name = function.__name__
    title = title_of(SWAPPED.get(name, name) if swapped else name)
    seen = layered(f"weft.{name}", function)

    def method(self: Tensor, other: Any) -> Any:
        try:
            called = seen if LAYERS else function
            result = called(other, self) if swapped else called(self, other)
        except TypeError:
            if isinstance(other, (Tensor, int, float, complex)):
                raise
            return NotImplemented
        except (MemoryError, ValueError) as error:
            raise_explained(name, function, error, (self, other), {})
        entitle(result, title, self)
        return result

    return method


def _short(function: Any, op: Op) -> Any:
    """The operator of Python for two tensors of one floating dtype, which is most of them."""
    general = _operator(function)

    def method(self: Tensor, other: Any) -> Any:
        if isinstance(other, Tensor) and not LAYERS:
            try:
                result = apply_pair(op, self, other)
                if result is not None:
                    return result
            except (ValueError, MemoryError):  # what is wrong, the other way tells
                pass
        return general(self, other)

    return method


def bind_operators(symbols: dict[str, Any]) -> None:
    """Gives Tensor `__name__`, `__rname__` and `__iname__`."""
    for symbol, function in symbols.items():
        bind(**{f"__{symbol}__": _operator(function), f"__r{symbol}__": _operator(function, swapped=True)})
        bind(**{f"__i{symbol}__": getattr(Tensor, f"{function.__name__}_")})


bind_operators(
    {"add": add, "sub": sub, "mul": mul, "truediv": div, "floordiv": floor_divide, "mod": remainder, "pow": pow}
)
bind(
    __add__=_short(add, _ADD),
    __sub__=_short(sub, _SUB),
    __mul__=_short(mul, _MUL),
    __rdiv__=_operator(div, swapped=True),
)
