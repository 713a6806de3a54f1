"""The errors of weft. Every one says what happened, where, why, and what to try.

Each child also inherits the builtin that a Python user would catch, so `except ValueError` works as
well as `except weft.Error`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Error(Exception):
    """Base of every error that weft raises.

    >>> print(Error("cannot add", where="node 'a'", why="shapes differ", hint="reshape one"))
    cannot add
      where: node 'a'
      why:   shapes differ
      try:   reshape one
    """

    def __init__(self, what: str, *, where: str | None = None, why: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.what]
        parts += [f"  where: {self.where}"] if self.where else []
        parts += [f"  why:   {self.why}"] if self.why else []
        parts += [f"  try:   {self.hint}"] if self.hint else []
        return "\n".join(parts)

    def at(self, where: str) -> Error:
        """The same error with an outer place put before the one it has, unless that one begins with it."""
        if not (self.where or "").startswith(where):
            self.where = f"{where}, {self.where}" if self.where else where
        return self


class InvalidValue(Error, ValueError):
    """An argument of the right type has a value that makes no sense."""


class InvalidType(Error, TypeError):
    """An argument has the wrong type."""


class NotFound(Error, KeyError):
    """A name that is looked up does not exist."""


class NameTaken(Error, KeyError):
    """A name is given to something that has another use already, or cannot be one."""


class NoAttribute(Error, AttributeError):
    """An object has no attribute of a name, or not yet."""


class OutOfRange(Error, IndexError):
    """An index or axis is outside what it indexes."""


class ShapeError(InvalidValue):
    """Shapes do not fit together."""


class DTypeError(InvalidType):
    """Element types do not fit together."""


class LayoutError(InvalidValue):
    """A layout string is malformed, or layouts do not convert into each other."""


class RegistryError(Error, ValueError):
    """An operator, pass or function is registered in a way that contradicts another."""


class GraphError(Error, ValueError):
    """A graph breaks one of the rules of the IR."""


class FormatError(Error, ValueError):
    """A file or text is not in the format it claims to be."""


class Unsupported(Error, NotImplementedError):
    """A model asks for something weft does not have."""


class ModelGaps(Unsupported):
    """All that a model asks for and weft does not have: `operators` with the nodes that ask for them, and `uses` of
    operators or types, each as (where, what)."""

    def __init__(
        self,
        what: str,
        operators: Mapping[str, Sequence[str]],
        uses: Sequence[tuple[str, str]] = (),
        *,
        why: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, why=why, hint=hint)
        self.operators = {name: list(nodes) for name, nodes in operators.items()}
        self.uses = list(uses)


class OpenShapes(Unsupported, InvalidValue):
    """Something depends on dimensions that inputs leave open: a value that the caller may give.
    `inputs` are those inputs and what is known of their shapes."""

    def __init__(
        self,
        what: str,
        inputs: Mapping[str, tuple[int | str | None, ...] | None] | None = None,
        *,
        where: str | None = None,
        why: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.inputs = dict(inputs or {})


class RunError(Error, RuntimeError):
    """Something went wrong while running."""


class NoDevice(RunError, AssertionError):
    """A device is asked for that this machine, or weft, does not have."""


class NoDriver(NoDevice, Unsupported):
    """A kind of device is asked for whose driver is not on this machine, or finds no device."""


class OutOfMemory(RunError, MemoryError):
    """There is not as much memory as a result needs."""


class BarrierError(RunError):
    """Some threads of a block wait at a barrier that the others do not reach."""


class RaceError(RunError):
    """What threads do to one element of memory depends on which of them comes first."""


class UninitialisedError(RunError):
    """Memory is read that nothing was written to."""


class LinAlgError(RunError):
    """Matrices have no inverse, factors or solution of the kind asked for."""
