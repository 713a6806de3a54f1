"""Variables of a program while it is compiled: what each name stands for, and the type that it was given at each level
of the source. A level is that of the statements of a function, of a branch, of the body of a loop."""

from __future__ import annotations

from typing import NamedTuple

from ..types import Type
from .sugar import Sugar


class Variable(NamedTuple):
    """What a name stands for. `origin` is what was assigned to it: a variable whose type was only refined has another
    value and the same origin. `types` are the types that it was given, with the levels where."""

    sugar: Sugar
    origin: Sugar
    types: tuple[tuple[int, Type], ...] = ()

    @property
    def type(self) -> Type:
        return self.types[-1][1]

    def outer_type(self, level: int) -> Type | None:
        """The type that it has outside of a level; None if it is not known there."""
        return next((kind for each, kind in reversed(self.types) if each < level), None)

    def outside(self, level: int) -> bool:
        """Whether it is known outside of a level."""
        return any(each < level for each, _ in self.types)


class Environment:
    """The variables that are known at one point of a program. `errors` tells of those that are not known on all ways
    to it."""

    def __init__(self, variables: dict[str, Variable] | None = None, errors: dict[str, str] | None = None) -> None:
        self.variables, self.errors = variables or {}, errors or {}

    def copy(self) -> Environment:
        return Environment(dict(self.variables), dict(self.errors))

    def get(self, name: str) -> Variable | None:
        return self.variables.get(name)

    def set(self, name: str, sugar: Sugar, level: int, kind: Type | None) -> None:
        """Gives a name a value; `kind` is None for what is no value of the program."""
        known = self.variables.get(name)
        outer = tuple([each for each in known.types if each[0] < level]) if known is not None else ()
        self.variables[name] = Variable(sugar, sugar, (*outer, (level, kind)) if kind is not None else outer)
        self.errors.pop(name, None)

    def refine(self, name: str, sugar: Sugar, level: int, kind: Type) -> None:
        """Knows more of a variable than its type said."""
        known = self.variables[name]
        outer = tuple([each for each in known.types if each[0] < level])
        self.variables[name] = Variable(sugar, known.origin, (*outer, (level, kind)))
