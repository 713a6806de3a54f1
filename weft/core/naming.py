"""Names and attributes that nodes get from surrounding `with` blocks: NameManager, AttrScope."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any, ClassVar

from ..base.errors import InvalidValue


class _Current:
    """`NameManager.current`, `AttrScope.current`: the innermost one of this context."""

    def __get__(self, instance: object, owner: Any) -> Any:
        return owner._stack.get() or owner._outermost


class _Scope:
    """A context manager that puts itself on a per-context stack."""

    _stack: ClassVar[ContextVar[Any]]
    _outermost: ClassVar[Any]
    current = _Current()

    def __init__(self) -> None:
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> Any:
        self._tokens.append(self._stack.set(self))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.reset(self._tokens.pop())


class NameManager(_Scope):
    """Gives names to nodes that the user does not name: relu0, relu1, ...

    >>> with NameManager() as names:
    ...     names.get(None, "relu"), names.get(None, "relu"), names.get("mine", "relu")
    ('relu0', 'relu1', 'mine')
    """

    _stack = ContextVar("weft_name_manager", default=None)

    def __init__(self) -> None:
        super().__init__()
        self._counters: dict[str, itertools.count[int]] = {}

    def get(self, name: str | None, hint: str) -> str:
        """The user's name if there is one, else the hint with a number."""
        if name:
            return name
        return f"{hint}{next(self._counters.setdefault(hint, itertools.count()))}"


NameManager._outermost = NameManager()


class Prefix(NameManager):
    """A NameManager that puts a prefix before every name of an operator.

    >>> with Prefix("stage1_") as names:
    ...     names.get("conv", "conv2d")
    'stage1_conv'
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


class AttrScope(_Scope):
    """Attributes for every symbol that is made inside; inner scopes and explicit ones win.

    >>> with AttrScope(__group__="a"), AttrScope(__mirror__="1") as scope:
    ...     scope.get({"__group__": "b"})
    {'__group__': 'b', '__mirror__': '1'}
    """

    _stack = ContextVar("weft_attr_scope", default=None)

    def __init__(self, **attrs: str) -> None:
        super().__init__()
        for key, value in attrs.items():
            if not isinstance(value, str):
                raise InvalidValue(f"attribute {key} of an AttrScope is {value!r}", why="attributes need to be strings")
        self._own = attrs
        self._attrs = attrs

    def __enter__(self) -> Any:
        self._attrs = {**AttrScope.current._attrs, **self._own}
        return super().__enter__()

    def get(self, attrs: Mapping[str, str] | None) -> dict[str, str]:
        """The scope's attributes overlaid with the given ones."""
        return {**self._attrs, **(attrs or {})}


AttrScope._outermost = AttrScope()
