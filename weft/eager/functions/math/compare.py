"""Rows: comparisons, logic, bits, and the choice between two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL, DType, is_complex, is_float, is_integer
from ....base.errors import InvalidType, RunError, Unsupported
from ....core.op import Op
from ...autograd.node_names import entitle, title_of
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, bind
from ..around import LAYERS, layered
from ..fusion import fused
from ..misuse import raise_explained
from ..operands import in_dtype, must_be_tensors, must_fit, promoted
from ..table import FUNCTIONS, named, row, with_example
from .arithmetic import add, bind_operators, mul, sub
from .unary import abs as magnitude
from .unary import neg

_AND, _OR, _XOR, _NOT = (Op.get(f"bitwise_{name}") for name in ("and", "or", "xor", "not"))
_LEFT, _RIGHT = Op.get("broadcast_left_shift"), Op.get("broadcast_right_shift")
_WHERE, _GCD = Op.get("broadcast_where"), Op.get("gcd")


# Comparisons.


def _comparison(
    name: str, word: str, sign: str, result: str, aliases: Sequence[str] = ()
) -> Callable[[Tensor, Any], Tensor]:
    """A comparison of numbers, and what it gives for 1, 2, 3 and 2."""
    op = Op.get(f"broadcast_{word}")
    ordered = word not in ("equal", "not_equal")

    @fused
    def function(input: Tensor, other: Any) -> Tensor:
        if type(input) is not Tensor:
            must_be_tensors(name, input=input)
        values = promoted(input, other)
        if ordered and is_complex(values[0]._dtype):
            raise Unsupported(f'"{name}" not implemented for {values[0].dtype.title!r}')
        return apply(op, None, values)[0]._cast(BOOL)

    doc = with_example(
        f"where input {sign} other", f">>> weft.{name}(weft.tensor([1, 2, 3]), 2)", f"tensor([{result}])"
    )
    return row(named(function, name, doc), inplace=True, out=True, elementwise=True, aliases=aliases)


eq = _comparison("eq", "equal", "equals", "False,  True, False")
ne = _comparison("ne", "not_equal", "differs from", " True, False,  True", ["not_equal"])
lt = _comparison("lt", "less", "<", " True, False, False", ["less"])
le = _comparison("le", "less_equal", "<=", " True,  True, False", ["less_equal"])
gt = _comparison("gt", "greater", ">", "False, False,  True", ["greater"])
ge = _comparison("ge", "greater_equal", ">=", "False,  True,  True", ["greater_equal"])


def truth(value: Any) -> Tensor:
    """Whether each element is not zero."""
    if not isinstance(value, Tensor):
        return in_dtype(bool(value), BOOL)
    return value if value._dtype == BOOL else value._cast(BOOL)


# Logic.


def _logic(name: str, op: Op, doc: str, result: str) -> None:
    """A function of the truth of two tensors, and what it gives for 0, 0, 2 and 0, 2, 2."""

    def function(input: Tensor, other: Tensor) -> Tensor:
        must_be_tensors(name, input=input, other=other)
        return apply(op, None, [truth(input), truth(other)])[0]

    given = f">>> weft.{name}(weft.tensor([0, 0, 2]), weft.tensor([0, 2, 2]))"
    shown = with_example(doc, given, f"tensor([{result}])")
    row(named(function, name, shown), inplace=True, out=True, elementwise=True)


_logic("logical_and", _AND, "where both are not zero", "False, False,  True")
_logic("logical_or", _OR, "where one or both are not zero", "False,  True,  True")
_logic("logical_xor", _XOR, "where exactly one is not zero", "False,  True, False")


@row(inplace=True, out=True, elementwise=True)
def logical_not(input: Tensor) -> Tensor:
    """where input is zero

    >>> import weft
    >>> weft.logical_not(weft.tensor([0, 1, 2]))
    tensor([ True, False, False])
    """
    return apply(_NOT, None, [truth(input)])[0]


# Bits.


def _with_bits(name: str, *values: Any) -> list[Tensor]:
    if not any(isinstance(value, Tensor) for value in values):
        must_be_tensors(name, input=values[0])
    made = promoted(*values)
    if not (is_integer(made[0]._dtype) or made[0]._dtype == BOOL):
        raise Unsupported(f'"{name}" not implemented for {made[0].dtype.title!r}')
    return made


def _bits(name: str, op: Op, doc: str, bools: bool = True) -> Callable[[Tensor, Any], Tensor]:
    def function(input: Tensor, other: Any) -> Tensor:
        values = _with_bits(name, input, other)
        if not bools and values[0]._dtype == BOOL:
            raise Unsupported(f"\"{name}\" not implemented for 'Bool'")
        return apply(op, None, values)[0]

    return row(named(function, name, doc), inplace=True, out=True, elementwise=True)


bitwise_and = _bits("bitwise_and", _AND, "the bits that both have")
bitwise_or = _bits("bitwise_or", _OR, "the bits that one of both has")
bitwise_xor = _bits("bitwise_xor", _XOR, "the bits that only one has")
bitwise_left_shift = _bits("bitwise_left_shift", _LEFT, "input shifted left by other bits", bools=False)
bitwise_right_shift = _bits("bitwise_right_shift", _RIGHT, "input shifted right by other bits", bools=False)


@row(inplace=True, out=True, elementwise=True)
def bitwise_not(input: Tensor) -> Tensor:
    """the bits turned; of bools, the opposite"""
    return apply(_NOT, None, _with_bits("bitwise_not", input))[0]


@row(inplace=True, out=True, elementwise=True)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """the greatest common divisor"""
    must_be_tensors("gcd", input=input, other=other)
    return apply(_GCD, None, _with_bits("gcd", input, other))[0]


@row(inplace=True, out=True, elementwise=True)
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """the least common multiple"""
    must_be_tensors("lcm", input=input, other=other)
    left, right = _with_bits("lcm", input, other)
    common = apply(_GCD, None, [left, right])[0]
    share = left // choose(eq(common, 0), 1, common)
    return magnitude(mul(share, right))


# One of two.


def choose(condition: Tensor, input: Any, other: Any) -> Tensor:
    """input where a condition holds, else other; numbers and tensors."""
    return apply(_WHERE, None, [condition, *promoted(input, other)])[0]


@row(method=False, out=True, elementwise=True)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """input where the condition holds, else other; alone, the places where it holds

    >>> import weft
    >>> x = weft.tensor([-1, 2, -3])
    >>> weft.where(x > 0, x, 0)
    tensor([0, 2, 0])
    >>> weft.where(x < 0)
    (tensor([0, 2]),)
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    must_be_tensors("where", condition=condition)
    kind = condition._dtype
    if kind != BOOL and kind != np.uint8:
        raise RunError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}"
        )
    chosen = choose(condition, input, other)
    must_fit(chosen._dtype, input, other)
    return chosen


_chosen = FUNCTIONS["weft"]["where"]
bind(where=lambda self, condition, other: _chosen(condition, self, other))

# Nearness.


def _must_be_tolerances(rtol: float, atol: float) -> None:
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RunError(f"{name} must be greater than or equal to zero, but got {value}")


def _must_be_one_dtype(name: str, input: Tensor, other: Tensor) -> DType:
    must_be_tensors(name, input=input, other=other)
    if input._dtype != other._dtype:
        raise RunError(f"{input.dtype.title} did not match {other.dtype.title}")
    return input._dtype


@row
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """where |input - other| <= atol + rtol * |other|

    >>> import weft
    >>> weft.isclose(weft.tensor([1.0, 2.0]), weft.tensor([1.0000001, 2.1]))
    tensor([ True, False])
    """
    kind = _must_be_one_dtype("isclose", input, other)
    _must_be_tolerances(rtol, atol)
    close = eq(input, other)
    if equal_nan and is_float(kind):
        close = close | (ne(input, input) & ne(other, other))
    if kind == BOOL:
        return close
    input, other = input.detach(), other.detach()
    room = add(magnitude(mul(other, rtol)), atol)
    gap = magnitude(sub(input, other))
    return close | (le(gap, room) & _finite(gap))


def _finite(values: Tensor) -> Tensor:
    return apply(Op.get("isfinite"), None, [values])[0]


@row
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """whether isclose holds everywhere

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0])
    >>> weft.allclose(x, x + 1e-6), weft.allclose(x, x + 0.1)
    (True, False)
    """
    return bool(array_of(isclose(input, other, rtol, atol, equal_nan)).all())


@row
def equal(input: Tensor, other: Tensor) -> bool:
    """whether both have the same shape and elements

    >>> import weft
    >>> weft.equal(weft.tensor([1, 2]), weft.tensor([1, 2]))
    True
    """
    must_be_tensors("equal", input=input, other=other)
    if input._shape != other._shape:
        return False
    return bool(array_of(eq(input, other)).all())


@row(inplace=True, out=True, elementwise=True)
@fused
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where input < 0, values where it is 0, 1 where it is more"""
    must_be_tensors("heaviside", input=input, values=values)
    if input._dtype != values._dtype:
        raise RunError("heaviside is not yet implemented for tensors with different dtypes.")
    above = gt(input, 0)._cast(input._dtype)
    return choose(eq(input, 0), values, above)


# The operators of Python.

bind_operators({"and": bitwise_and, "or": bitwise_or, "xor": bitwise_xor})
bind_operators({"lshift": bitwise_left_shift, "rshift": bitwise_right_shift})


def _compared(function: Any) -> Any:
    seen = layered(f"weft.{function.__name__}", function)

    def method(self: Tensor, other: Any) -> Any:
        try:
            return (seen if LAYERS else function)(self, other)
        except InvalidType:
            return NotImplemented
        except MemoryError as error:
            raise_explained(function.__name__, function, error, (self, other), {})

    return method


bind(**{f"__{function.__name__}__": _compared(function) for function in (eq, ne, lt, le, gt, ge)})


def _inverted(input: Tensor) -> Tensor:
    if input._dtype != BOOL and not is_integer(input._dtype):
        raise InvalidType("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(input)


def _prefix(function: Any) -> Any:
    title = title_of(function.__name__)
    seen = layered(f"weft.{function.__name__.lstrip('_')}", function)

    def method(self: Tensor) -> Tensor:
        try:
            result: Tensor = (seen if LAYERS else function)(self)
        except MemoryError as error:
            raise_explained(function.__name__, function, error, (self,), {})
        entitle(result, title, self)
        return result

    return method


bind(__invert__=_prefix(_inverted), __neg__=_prefix(neg), __abs__=_prefix(magnitude))
bind(__pos__=lambda self: self.positive())
