"""Registers computes, schedules, patterns and layout changes of operators by name, as NNVM did.

A rule registered here gets `attrs` as an AttrDict; a plain `op.compute = ...` gets typed params.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..base.errors import InvalidValue
from ..core.op import Op
from ..core.pattern import OpPattern
from ..core.schema import FLOATS, INTS, PAIRS

__all__ = [
    "AttrDict",
    "OpPattern",
    "register_alter_op_layout",
    "register_compute",
    "register_pattern",
    "register_schedule",
]


def __dir__() -> list[str]:
    return list(__all__)


Rule = Callable[..., Any]
Parsed = TypeVar("Parsed")


class AttrDict:
    """The attributes of a node as text, with typed getters.

    >>> AttrDict({"axis": "(0, 1)"}).get_int_tuple("axis")
    (0, 1)
    """

    def __init__(self, attrs: Mapping[str, str]) -> None:
        self._attrs = dict(attrs)

    def __getitem__(self, key: str) -> str | None:
        return self._attrs.get(key)

    def keys(self) -> list[str]:
        return list(self._attrs)

    def get_str(self, key: str) -> str:
        return self._typed(key, str)

    def get_int(self, key: str) -> int:
        return self._typed(key, int)

    def get_float(self, key: str) -> float:
        return self._typed(key, float)

    def get_bool(self, key: str) -> bool:
        words = {"true": True, "1": True, "false": False, "0": False}
        return self._typed(key, lambda text: words[text.lower()])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        return self._typed(key, INTS.parse)

    def get_float_tuple(self, key: str) -> tuple[float, ...]:
        return self._typed(key, FLOATS.parse)

    def get_int_pair_tuple(self, key: str) -> tuple[tuple[int, ...], ...]:
        return self._typed(key, PAIRS.parse)

    def _typed(self, key: str, parse: Callable[[str], Parsed]) -> Parsed:
        text = self._attrs.get(key)
        try:
            if text is None:
                raise ValueError("it is not there")
            return parse(text)
        except (ValueError, KeyError) as error:
            raise InvalidValue(f"attribute {key!r} cannot be read", why=f"{text!r}: {error}") from None


def register_compute(op_name: str, f: Rule | None = None, level: int = 10) -> Rule:
    """Registers `f(attrs, inputs, out_info) -> te tensor(s)`; also a decorator."""

    def register(rule: Rule) -> Rule:
        op = Op.register(op_name)

        def compute(params: Any, *tensors: Any) -> Any:
            return rule(AttrDict(op.attributes(params)), list(tensors), None)

        compute.takes_params = True  # type: ignore[attr-defined]
        op.set_attr("FTVMCompute", compute, level)
        return rule

    return register(f) if f else register


def register_schedule(op_name: str, f: Rule | None = None, level: int = 10) -> Rule:
    """Registers `f(attrs, kernel, target) -> kernel`; also a decorator. It gets the plain loops of each kernel of a
    group whose master is the operator, and gives them as `weft.te.transform` changed them."""
    return _register(op_name, "FTVMSchedule", f, level)


def register_alter_op_layout(op_name: str, f: Rule | None = None, level: int = 10) -> Rule:
    """Registers `f(attrs, inputs, tinfos) -> Symbol or None`; also a decorator."""
    return _register(op_name, "FTVMAlterOpLayout", f, level)


def register_pattern(op_name: str, pattern: int, level: int = 10) -> None:
    """Registers how an operator may fuse: one of OpPattern."""
    Op.register(op_name).set_attr("TOpPattern", pattern, level)


def _register(op_name: str, key: str, f: Rule | None, level: int) -> Rule:
    def register(rule: Rule) -> Rule:
        op = Op.register(op_name)

        def with_attr_dict(params: Any, *args: Any) -> Any:
            return rule(AttrDict(op.attributes(params)), *args)

        op.set_attr(key, with_attr_dict, level)
        return rule

    return register(f) if f else register
