"""The tables of the importer: operators that are alike, converters for the rest, and steps on the host for what no
kernel can say the shape of.

ALIKE["Relu"] = Alike("relu")                      # the same, attributes renamed at most

@converter("Reshape", since=5, decides=(1,))       # from opset 5 on; it asks for the value of input 1
def reshape(call): ...

@host_step("NonZero")                              # on numpy arrays, between compiled parts
def nonzero(call, x): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ..building import Alike, alike_rows
from ..emitter import Value
from .alike import SAME
from .call import OnnxCall

Converter = Callable[[OnnxCall], Value | Sequence[Value | None]]
HostStep = Callable[..., Any]  # f(HostCall, *values) -> the outputs
AnyConverter = TypeVar("AnyConverter", bound=Converter)
AnyStep = TypeVar("AnyStep", bound=HostStep)

ALIKE: dict[str, Alike] = {
    **SAME,
    **alike_rows("""
        BitwiseAnd bitwise_and
        BitwiseNot bitwise_not
        BitwiseOr bitwise_or
        BitwiseXor bitwise_xor
        Ceil ceil
        Floor floor
        Gelu gelu approximate
        MaxRoiPool roi_pool pooled_shape=pooled_size spatial_scale
        Mish mish
        Round round
    """),
}
# What ONNX Runtime writes into ONNX's own domain, in opsets that have no schema of it.
GUESTS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})


class Rule(NamedTuple):
    """How an operator is read from an opset on: by a converter, or by a step on the host.

    `decides` are inputs whose values a converter asks for; with `by_shape` it asks for shapes of inputs only.
    `beside` is the step for text and sequences of an operator whose numbers are converted.
    """

    since: int
    convert: Converter | Alike | None
    host: HostStep | None = None
    decides: tuple[int, ...] = ()
    by_shape: bool = False
    beside: HostStep | None = None


_rules: dict[tuple[str, str], list[Rule]] = {}
_beside: dict[tuple[str, str], HostStep] = {}


def converter(
    *op_types: str, since: int = 1, domain: str = "", decides: tuple[int, ...] = (), by_shape: bool = False
) -> Callable[[AnyConverter], AnyConverter]:
    """Registers a function that turns an OnnxCall into a value, a list of values, or None for absent
    ones; it holds from opset `since` until another one does."""

    def register(function: AnyConverter) -> AnyConverter:
        _add(op_types, domain, Rule(since, function, None, decides, by_shape))
        return function

    return register


def host_step(*op_types: str, since: int = 1, domain: str = "", numbers: bool = True) -> Callable[[AnyStep], AnyStep]:
    """Registers a function of a HostCall and the values of the inputs: arrays, of objects where they hold text; lists
    for sequences; None for what is left out. It gives a list of outputs, of any shapes. Without `numbers` it is for
    text and sequences only, beside a converter."""

    def register(function: AnyStep) -> AnyStep:
        if numbers:
            _add(op_types, domain, Rule(since, None, function))
        else:
            _beside.update({(domain, op_type): function for op_type in op_types})
        return function

    return register


def _add(op_types: Iterable[str], domain: str, rule: Rule) -> None:
    for op_type in op_types:
        rules = _rules.setdefault((domain, op_type), [])
        rules.append(rule)
        rules.sort(key=lambda row: row.since)


def find(domain: str, op_type: str, opset: int) -> Rule | None:
    """What reads an operator of an opset."""
    rules = [rule for rule in _rules.get((domain, op_type), ()) if rule.since <= opset]
    if not rules and not domain and op_type in ALIKE:
        rules = [Rule(1, ALIKE[op_type])]
    beside = _beside.get((domain, op_type))
    return rules[-1]._replace(beside=beside) if rules else None


def operators() -> list[tuple[str, str]]:
    """The domain and the name of every operator that is read."""
    return sorted({*_rules, *(("", name) for name in ALIKE)})


def supported() -> Iterable[str]:
    """Names of the operators of ONNX's own domain that are read."""
    return [name for domain, name in operators() if not domain]
