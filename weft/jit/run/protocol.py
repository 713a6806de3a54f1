"""What programs know of functions and objects that others define."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from .code import Code


@runtime_checkable
class Runnable(Protocol):
    """A function that is a program: what `prim::CallFunction` and `prim::CallMethod` call. Other callables of Python
    are called as they are."""

    def executable(self) -> Code:
        """Its instructions, made once."""


@runtime_checkable
class ProgramObject(Protocol):
    """A value with attributes and methods: a module, or an instance of a class of programs."""

    def get_attribute(self, name: str) -> Any: ...

    def set_attribute(self, name: str, value: Any) -> None: ...

    def find_method(self, name: str) -> Any:
        """A `Runnable`, or a callable of Python, which takes the object first."""


@runtime_checkable
class ObjectType(Protocol):
    """A class of such values: what the output of `prim::CreateObject` has as its type."""

    def create_object(self) -> Any:
        """A value with no attributes yet."""
