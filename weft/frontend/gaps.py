"""What a model asks for that weft does not have: gathered while it is converted, told at once.

Behind a node that cannot be converted stand values whose types the file may tell, as exporters
write them; where it does, the nodes that read them are looked at, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from ..base.errors import Error, ModelGaps, OpenShapes, Unsupported
from ..core.ir import Fact
from ..core.symbol import Variable
from .emitter import Value
from .reading import in_nodes


class Gaps:
    """Operators without a converter, each with the nodes that ask for it, and what else was found unsupported. `types`
    tells those that the file declares."""

    def __init__(
        self,
        operators: Mapping[str, Sequence[str]],
        types: Callable[[], Mapping[str, Fact]] = dict,
        hint: str | None = None,
    ) -> None:
        self.operators = operators
        self._types = cache(types)
        self._hint = hint
        self._errors: list[Unsupported] = []
        self._behind: set[str] = set()  # names of values that a gap makes, or that follow from one

    def __bool__(self) -> bool:
        return bool(self.operators or self._errors)

    def add(self, error: Error, inputs: Iterable[str] = ()) -> None:
        """Keeps an error that is a gap; raises one that is not, unless a gap may be its cause."""
        if isinstance(error, Unsupported) and not isinstance(error, OpenShapes):
            self._errors.append(error)
        elif not self and not self._behind.intersection(inputs):
            raise error

    def follow(self, outputs: Iterable[str], inputs: Iterable[str]) -> None:
        """Notes that what a node makes follows from a gap, if an input does."""
        if self._behind.intersection(inputs):
            self._behind.update(outputs)

    def stand_ins(self, names: Sequence[str]) -> dict[str, Value]:
        """Values in place of those that a gap makes, as far as their types are known."""
        self._behind.update(names)
        types = self._types()
        known = {name: types[name] for name in names if name in types}
        return {name: Value(name, fact, Variable(name)) for name, fact in known.items()}

    def check(self) -> None:
        """Raises one error for all there are."""
        if len(self._errors) == 1 and not self.operators:
            raise self._errors[0]
        if not self:
            return
        told = []
        if self.operators:
            nodes = sum(map(len, self.operators.values()))
            count = len(self.operators)
            told.append(f"{count} operators of the model are not supported, in {nodes} nodes")
        if self._errors:
            told.append(f"{len(self._errors)} uses of operators or types are not supported")
        rows = [f"{operator} {in_nodes(names)}" for operator, names in sorted(self.operators.items())]
        rows += [f"{error.where}: {error.what}" for error in self._errors]
        uses = [(error.where or "", error.what) for error in self._errors]
        raise ModelGaps("; ".join(told), self.operators, uses, why="; ".join(rows), hint=self._hint)
