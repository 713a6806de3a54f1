"""The operators that nodes of a program name: what each takes and gives, as a schema that PyTorch has too, and the
function that does it. The schemas are the lines of `schemas/*.txt`; one is read when somebody asks for it.

>>> [operator.schema.overload_name for operator in operators_of("aten::mm")]
['', 'out']
>>> find("aten::add.int").call(2, 3)
5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import NotFound
from .calls.functions import function_of, has_tensors
from .calls.special import SPECIAL
from .calls.values import CALLS
from .schema import FunctionSchema, parse_schema

_FILES = sorted(Path(__file__).with_name("schemas").glob("*.txt"))


class Operator(NamedTuple):
    """What a node of a kind may be: `call` takes a value for each argument of the schema, and gives its result (a
    tuple if there are several, None if there are none)."""

    schema: FunctionSchema
    call: Callable[..., Any]

    def __repr__(self) -> str:
        return f"Operator({self.schema})"


@cache
def _lines() -> dict[str, list[str]]:
    """The schemas as text, by the name of the operator, in the order of PyTorch's own list."""
    found: dict[str, list[str]] = {}
    for file in _FILES:
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                found.setdefault(line.partition("(")[0].partition(".")[0], []).append(line)
    return found


def names() -> list[str]:
    """The names of all operators."""
    return list(_lines())


@cache
def operators_of(name: str) -> Sequence[Operator]:
    """The overloads of an operator, in the order in which they are tried; none if it is not known."""
    return tuple([operator_of_text(line) for line in _lines().get(name, ())])


def operator_of_text(line: str) -> Operator:
    """The operator of a schema, which need not be in the list; NotFound if nothing here does it."""
    schema = parse_schema(line)
    name, tensors = full_name(schema), has_tensors(schema)
    call = SPECIAL.get(name) or (CALLS.get(name) if schema.overload_name or not tensors else None)
    call = call or (function_of(schema) if tensors else None) or CALLS.get(schema.name)
    if call is None:
        raise NotFound(f"nothing here does {name}")
    return Operator(schema, call)


def schemas_of(name: str) -> list[FunctionSchema]:
    """The schemas of an operator, in the order in which they are tried."""
    return [operator.schema for operator in operators_of(name)]


def all_schemas() -> list[FunctionSchema]:
    """The schemas of all operators."""
    return [schema for name in names() for schema in schemas_of(name)]


def full_name(schema: FunctionSchema) -> str:
    """`aten::add.Tensor`: the name with that of the overload."""
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def find(text: str) -> Operator:
    """The operator of a schema, or of a name with the overload's: `aten::add.Tensor`."""
    name, parenthesis, _ = text.partition("(")
    schema = parse_schema(text) if parenthesis else None
    known = operators_of(name.partition(".")[0])
    for operator in known:
        if full_name(operator.schema) == name and schema in (None, operator.schema):
            return operator
    raise NotFound(
        f"no operator is {text!r}",
        why="overloads of that name are: " + "; ".join([str(operator.schema) for operator in known])
        if known
        else "no operator has that name",
        hint="weft.jit.operators.names() has all of them",
    )
