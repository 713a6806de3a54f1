"""Names in programs that were saved as text: operators by their names, types and functions by their full names, tensors
that lie beside the text."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from .builder import Builder
from .python_values import Constant, plain_sugar
from .sugar import Form, Operators, Sugar

Find = Callable[[str], Any]  # a type or a function by its full name; None if there is none
_OWN: dict[str, Any] = {
    "torch": Operators("aten"),
    "ops": Operators(),
    "inf": math.inf,
    "nan": math.nan,
    "infj": complex(0, math.inf),
    "nanj": complex(0, math.nan),
    **{name: Form(name) for name in ("annotate", "unchecked_cast", "uninitialized")},
}


class _Path(Sugar):
    """The beginning of a full name."""

    kind = "name"

    def __init__(self, path: str, find: Find) -> None:
        self._path, self._find = path, find

    def attribute(self, builder: Builder, name: str) -> Sugar:
        path = f"{self._path}.{name}"
        value = self._find(path)
        if value is None:
            return _Path(path, self._find)
        found = plain_sugar(value)
        if found is None:
            raise builder.error(f"{path} is neither a type nor a function")
        return found

    def call(self, builder: Builder, args: Any, kwargs: Any) -> Sugar:
        raise builder.error(f"undefined value {self._path}")


class _Constants(Sugar):
    """`CONSTANTS.c0`: tensors by their numbers."""

    kind = "constants"

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def attribute(self, builder: Builder, name: str) -> Sugar:
        number = name.removeprefix("c")
        if not number.isdecimal() or int(number) >= len(self._values):
            raise builder.error(f"there is no constant {name}: there are {len(self._values)}")
        return Constant(self._values[int(number)])


def saved_names(find: Find, constants: Sequence[Any]) -> Callable[[str], Any]:
    """What names stand for in a program that was saved. `find` gives types and functions by their full names."""
    own = _OWN | {"CONSTANTS": _Constants(constants)}

    def resolve(name: str) -> Any:
        if name in own:
            return own[name]
        value = find(name)
        if value is not None:
            return value
        if name.startswith("__torch__") and "." not in name:
            return _Path(name, find)
        return vars(builtins)[name]

    return resolve
