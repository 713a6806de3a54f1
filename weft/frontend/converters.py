"""ConverterTable: how the operators of a format are read. Most are alike but for names; converters do the rest, and
steps on the host what no kernel can say the shape of. A format has one table, which its converters fill:

TABLE: ConverterTable[OnnxCall] = ConverterTable(alike_rows("Relu relu"))    # the same, attributes renamed at most

@TABLE.converter("Reshape", since=5, decides=(1,))       # from version 5 on; it asks for the value of input 1
def reshape(call): ...

@TABLE.host_step("NonZero")                              # on numpy arrays, between compiled parts
def nonzero(call, x): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from ..base.errors import RegistryError
from ..base.stages import note_registration
from .building import Alike, Building
from .emitter import Value

Call = TypeVar("Call", bound=Building)
Made = TypeVar("Made", bound=Value | Sequence[Value | None])
HostStep = Callable[..., Any]  # f(call, *values) -> the outputs
AnyStep = TypeVar("AnyStep", bound=HostStep)


class Rule(NamedTuple):
    """How an operator is read from a version on: by a converter, or by a step on the host.

    `decides` are inputs whose values a converter asks for; with `by_shape` it asks for shapes of inputs only.
    `beside` is the step for text and sequences of an operator whose numbers are converted.
    """

    since: int
    convert: Callable[[Any], Value | Sequence[Value | None]] | Alike | None
    host: HostStep | None = None
    decides: tuple[int, ...] = ()
    by_shape: bool = False
    beside: HostStep | None = None

    def values(self, call: Building) -> list[Value | None]:
        """What a node becomes by the converter."""
        assert self.convert is not None  # else it is a step on the host
        made = call.alike(self.convert) if isinstance(self.convert, Alike) else self.convert(call)
        return [made] if isinstance(made, Value) else list(made)


class ConverterTable(Generic[Call]):
    """Rules by the domain and the name of operators; formats without domains and versions have one of each. `names` are
    the operators that other names stand for."""

    def __init__(self, alike: Mapping[str, Alike], names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = names
        self.rules = {("", name): [Rule(1, how)] for name, how in alike.items()}
        self._beside: dict[tuple[str, str], HostStep] = {}

    def converter(
        self, *op_types: str, since: int = 1, domain: str = "", decides: tuple[int, ...] = (), by_shape: bool = False
    ) -> Callable[[Callable[[Call], Made]], Callable[[Call], Made]]:
        """Registers a function that turns a call into a value, a list of values, or None for absent ones; it holds from
        version `since` until another one does."""

        def register(function: Callable[[Call], Made]) -> Callable[[Call], Made]:
            self._add(op_types, domain, Rule(since, function, None, decides, by_shape))
            return function

        return register

    def host_step(
        self, *op_types: str, since: int = 1, domain: str = "", numbers: bool = True
    ) -> Callable[[AnyStep], AnyStep]:
        """Registers a function of a call and the values of the inputs: arrays, of objects where they hold text; lists
        for sequences; None for what is left out. It gives a list of outputs, of any shapes. Without `numbers` it is for
        text and sequences only, beside a converter."""

        def register(function: AnyStep) -> AnyStep:
            note_registration()
            if numbers:
                self._add(op_types, domain, Rule(since, None, function))
            else:
                self._beside.update({(domain, op_type): function for op_type in op_types})
            return function

        return register

    def _add(self, op_types: Iterable[str], domain: str, rule: Rule) -> None:
        note_registration()
        for op_type in op_types:
            rules = self.rules.setdefault((domain, op_type), [])
            if any(known.since == rule.since for known in rules):
                raise RegistryError(f"{op_type} has a converter already")
            rules.append(rule)
            rules.sort(key=lambda row: row.since)

    def find(self, op_type: str, version: int = 1, domain: str = "") -> Rule | None:
        """What reads an operator of a version."""
        key = domain, self._names.get(op_type, op_type)
        rules = [rule for rule in self.rules.get(key, ()) if rule.since <= version]
        return rules[-1]._replace(beside=self._beside.get(key)) if rules else None

    def operators(self) -> list[tuple[str, str]]:
        """The domain and the name of every operator that is read."""
        return sorted(self.rules)

    def supported(self) -> list[str]:
        """Names of the operators that are read, but for those of other domains."""
        return [name for domain, name in self.operators() if not domain]
