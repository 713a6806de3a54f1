"""Operators as Python functions: fills a module with one function for every registered name.

The functions have the operator's name, a docstring made from the registry, and a signature;
an operator registered later appears at once.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable, MutableMapping
from typing import Any

from ..base.errors import InvalidType
from .op import Op, subscribe
from .schema import REQUIRED, fields_of
from .symbol import Symbol, apply_op

OpFunction = Callable[..., Any]
OWN = ("name", "attr", "kwargs")  # parameters of every function


def fill_namespace(
    symbol_class: type[Symbol],
    public: MutableMapping[str, Any],
    internal: MutableMapping[str, Any] | None = None,
    contrib: MutableMapping[str, Any] | None = None,
) -> None:
    """Puts every operator, now and later, into namespaces as a function on `symbol_class`.

    All names go to `public`; those with a leading underscore also to `internal`; `_contrib_x` also
    to `contrib` as x.
    """
    if not isinstance(symbol_class, type) or not issubclass(symbol_class, Symbol):
        raise InvalidType(f"operators become functions on a class of symbols, not {symbol_class!r}")
    for space in (public, internal or {}, contrib or {}):
        if not isinstance(space, MutableMapping):
            raise InvalidType(f"a namespace is a dict such as vars(module), not a {type(space).__name__}")

    def add(op: Op, name: str) -> None:
        existing = public.get(name)
        if existing is not None and getattr(existing, "__weft_op_name__", None) != name:
            return  # a class or function of the module itself
        function = existing or make_function(symbol_class, op, name)
        describe_function(function, op)
        public[name] = function
        if name.startswith("_") and internal is not None:
            internal[name] = function
        if name.startswith("_contrib_") and contrib is not None:
            contrib[name.removeprefix("_contrib_")] = function

    subscribe(add)


def make_function(symbol_class: type[Symbol], op: Op, name: str) -> OpFunction:
    """The operator as a function on symbols."""

    def function(*args: Any, **kwargs: Any) -> Symbol:
        return apply_op(symbol_class, op, name, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "weft.symbol"
    function.__weft_op_name__ = name  # type: ignore[attr-defined]
    return function


def describe_function(function: OpFunction, op: Op) -> None:
    """Gives a function the operator's present docstring and signature."""
    function.__doc__ = docstring(op)
    function.__signature__ = signature(op)  # type: ignore[attr-defined]


def signature(op: Op) -> inspect.Signature:
    """Inputs first, then attributes by keyword, then the node's own name and attr.

    Names that Python does not allow as parameters, or that come twice, are left out.
    """
    kinds = inspect.Parameter
    params: dict[str, inspect.Parameter] = {}

    def add(name: str, kind: Any, default: Any) -> None:
        if name.isidentifier() and not keyword.iskeyword(name) and name not in (*params, *OWN):
            params[name] = kinds(name, kind, default=default)

    for name in _input_names(op):
        add(name, kinds.POSITIONAL_OR_KEYWORD, None)
    if not params and op.num_inputs != 0:
        add("data", kinds.VAR_POSITIONAL, kinds.empty)
    for field in fields_of(op.parser) if isinstance(op.parser, type) else ():
        default = kinds.empty if field.default is REQUIRED else field.default
        add(field.name, kinds.KEYWORD_ONLY, default)
    own = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in ("name", "attr")]
    rest = [kinds("kwargs", kinds.VAR_KEYWORD)] if op.parser is None else []
    return inspect.Signature([*params.values(), *own, *rest])


def _input_names(op: Op) -> list[str]:
    """All inputs the operator can have; those that depend on attributes count as optional ones."""
    names = op.input_names
    if callable(names):
        return [argument.name for argument in op.arguments if "Tensor" in argument.type]
    if names is not None:
        return list(names)
    return ["data"] if op.num_inputs == 1 else []


def docstring(op: Op) -> str:
    """Description, inputs and attributes, and the result, as numpy's docstrings have them."""
    lines = [op.description.strip() or f"The operator {op.name}.", "", "Parameters", "----------"]
    seen = set()
    for argument in op.arguments:
        if argument.name not in seen:
            seen.add(argument.name)
            lines += [f"{argument.name} : {argument.type}", f"    {argument.doc}"]
    lines += ["", "Returns", "-------", "result : Tensor", "    The result."]
    return "\n".join(lines)
