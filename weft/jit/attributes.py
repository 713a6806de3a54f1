"""Attributes of a node: values by name, each of a kind. A kind has a getter of its name and a setter with a line under
it: `node.i_("axis", 1).i("axis")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..base.errors import RunError
from ..eager.tensor.tensor import Tensor
from .source import quoted, shown
from .types import Type

SHOWN_ELEMENTS = 1  # of a tensor that the text of a graph shows


class Kind(NamedTuple):
    """A kind of attributes: what its values are, and how the text of a graph shows one."""

    convert: Callable[[Any], Any]
    show: Callable[[Any], str]


def _exactly(kind: type, name: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool) and kind is not int):
            raise RunError(f"an attribute of this kind is {name}, not {value!r:.60}")
        return value

    return convert


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)):
        raise RunError(f"an attribute of this kind is a float, not {value!r:.60}")
    return float(value)


def _complex(value: Any) -> complex:
    if not isinstance(value, (int, float, complex)):
        raise RunError(f"an attribute of this kind is a complex number, not {value!r:.60}")
    return complex(value)


def _shown_tensor(value: Tensor) -> str:
    if value.numel() != SHOWN_ELEMENTS:
        return "<Tensor>"
    item = value.item()
    return f"{{{f'{item:.6g}' if isinstance(item, float) else int(item) if isinstance(item, bool) else item}}}"


def _shown_complex(value: complex) -> str:
    return f"{shown(value.real)}+{shown(value.imag)}j"


def _is_graph(value: Any) -> Any:
    if not hasattr(value, "param_node"):
        raise RunError(f"an attribute of this kind is a graph, not {value!r:.60}")
    return value


SINGLE = {
    "i": Kind(lambda value: int(_exactly(int, "an int")(value)), str),
    "f": Kind(_number, shown),
    "c": Kind(_complex, _shown_complex),
    "s": Kind(_exactly(str, "a str"), quoted),
    "t": Kind(_exactly(Tensor, "a tensor"), _shown_tensor),
    "g": Kind(_is_graph, lambda value: "<Graph>"),
    "ty": Kind(_exactly(Type, "a type"), lambda value: value.str()),
    "ival": Kind(lambda value: value, repr),
}
SINGLE["z"] = SINGLE["t"]
LISTS = {"is": "i", "fs": "f", "ss": "s", "ts": "t", "gs": "g", "tys": "ty", "zs": "z", "cs": "c"}
KINDS = [*SINGLE, *LISTS]


def converted(kind: str, value: Any) -> Any:
    """A value as an attribute of a kind has it."""
    if kind in SINGLE:
        return SINGLE[kind].convert(value)
    if not isinstance(value, (list, tuple)):
        raise RunError(f"an attribute of the kind {kind} is a list, not {value!r:.60}")
    return [SINGLE[LISTS[kind]].convert(item) for item in value]


def text_of(kind: str, value: Any) -> str:
    """An attribute as the text of a graph has it."""
    if kind in SINGLE:
        return SINGLE[kind].show(value)
    return f"[{', '.join([SINGLE[LISTS[kind]].show(item) for item in value])}]"


class Attributes:
    """What a node inherits: its attributes, their getters and setters."""

    _attributes: dict[str, tuple[str, Any]]

    def hasAttributes(self) -> bool:
        return bool(self._attributes)

    def hasAttribute(self, name: str) -> bool:
        return name in self._attributes

    def attributeNames(self) -> list[str]:
        return list(self._attributes)

    def kindOf(self, name: str) -> str:
        return self._attribute(name)[0]

    def removeAttribute(self, name: str) -> Any:
        self._attribute(name)
        del self._attributes[name]
        return self

    def copyAttributes(self, other: Attributes) -> Any:
        """Has the attributes of another node, and no others."""
        self._attributes = dict(other._attributes)
        return self

    def _attribute(self, name: str) -> tuple[str, Any]:
        if name not in self._attributes:
            raise RunError(
                f"required keyword attribute '{name}' is undefined",
                why=f"the node has {', '.join(self._attributes) or 'none'}",
            )
        return self._attributes[name]

    def _get(self, kind: str, name: str) -> Any:
        found, value = self._attribute(name)
        if found != kind:
            raise RunError(
                f"required keyword attribute '{name}' has the wrong type", why=f"it is of the kind {found}, not {kind}"
            )
        return list(value) if isinstance(value, list) else value

    def _set(self, kind: str, name: str, value: Any) -> Any:
        if not name.isidentifier():
            raise RunError(f"{name!r} is no name of an attribute", hint="letters, digits and lines under them")
        self._attributes[name] = (kind, converted(kind, value))
        return self


def _getter(kind: str) -> Callable[[Attributes, str], Any]:
    def get(self: Attributes, name: str) -> Any:
        return self._get(kind, name)

    get.__name__, get.__doc__ = kind, f"The attribute of that name, which is of the kind `{kind}`."
    return get


def _setter(kind: str) -> Callable[[Attributes, str, Any], Any]:
    def put(self: Attributes, name: str, value: Any) -> Any:
        return self._set(kind, name, value)

    put.__name__, put.__doc__ = f"{kind}_", f"Sets an attribute of the kind `{kind}`; gives the node."
    return put


for _kind in KINDS:
    setattr(Attributes, _kind, _getter(_kind))
    setattr(Attributes, f"{_kind}_", _setter(_kind))
