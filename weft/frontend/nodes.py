"""Nodes of model files, whatever their format: a node comes in with the values of its inputs, and operators go out at
once; or it waits, written down as text, and is taken up again once shapes and values are known."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from ..base.dtype import INT64
from ..base.errors import OpenShapes, Unsupported
from ..core.interpret import Array
from ..core.ir import UNKNOWN
from .building import Building
from .converters import ConverterTable, Rule
from .custom import SymbolConverter, converted_by
from .deferred import DEFERRED, HOST_STEP, IMPORTERS
from .emitter import TENSOR, TEXT, Emitter, Value
from .reading import reading


@dataclass(eq=False)
class ImportedNode(ABC):
    """A node as a format's reader gives it. A format is a class of nodes: it names itself, its table of converters and
    its calls, and says how a node is written down."""

    importer: ClassVar[str]
    table: ClassVar[ConverterTable[Any]]
    call: ClassVar[type[Building]] = Building  # the node as its converter sees it

    op_type: str
    name: str  # what operators are named after
    num_outputs: int
    wanted: Collection[int]  # the outputs that the graph uses
    version: int = 1
    domain: str = ""
    _rule: Rule | None = field(default=None, init=False)

    def __init_subclass__(cls) -> None:
        IMPORTERS[cls.importer] = cls

    # What is particular to a format.

    @property
    @abstractmethod
    def attributes(self) -> Mapping[str, Any]:
        """As the file gives them."""

    @abstractmethod
    def written(self) -> dict[str, Any]:
        """The node as JSON has it."""

    @classmethod
    @abstractmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """The node that was written so."""

    def brought(self, converters: Mapping[str, SymbolConverter]) -> SymbolConverter | None:
        """The converter that the caller brings for the node."""
        return converters.get(self.op_type)

    @property
    def label(self) -> str:
        """How errors call the node."""
        return f"node {self.name!r} ({self.op_type})"

    def kinds(self, inputs: Sequence[Value | None]) -> list[str]:
        """What each output is."""
        return [TENSOR] * self.num_outputs

    def may_wait(self, inputs: Sequence[Value | None]) -> bool:
        """Whether the node can be converted later."""
        return True

    def is_told(self, value: Value) -> bool:
        """Whether enough is known of an input to try."""
        return value.fact != UNKNOWN

    # What is the same for all.

    @property
    def rule(self) -> Rule:
        """How the operator is read."""
        if self._rule is None:
            self._rule = self.table.find(self.op_type, self.version, self.domain)
            if self._rule is None:
                raise Unsupported(f"operator {self.op_type} is not supported")
        return self._rule

    def results(
        self, emitter: Emitter, inputs: Sequence[Value | None], converters: Mapping[str, SymbolConverter]
    ) -> Sequence[Value | None]:
        """The values of the outputs: by what the caller brings, by the format's converter, or later."""
        function = self.brought(converters)
        if function is not None:
            return converted_by(function, emitter, [v for v in inputs if v is not None], self.attributes)
        may_wait = self.may_wait(inputs)
        if not (may_wait and self._waits(inputs)):
            try:
                return self.converted(emitter, inputs)
            except OpenShapes:
                if not may_wait:
                    raise
        return self._deferred(emitter, inputs)

    def _waits(self, inputs: Sequence[Value | None]) -> bool:
        told = all(value is None or (value.kind == TENSOR and self.is_told(value)) for value in inputs)
        if self.rule.host is not None or not told:
            return True
        return self.rule.beside is not None and any(kind != TENSOR for kind in self.kinds(inputs))

    def converted(self, emitter: Emitter, inputs: Sequence[Value | None]) -> list[Value | None]:
        """The values of the outputs by the converter."""
        call = self.call(emitter, self, inputs)
        made = self.rule.values(call)
        call.check_all_read()
        call.name_first(made)
        for index in sorted(self.wanted):
            if index >= len(made) or made[index] is None:
                raise Unsupported(f"output {index} has no counterpart")
        return made

    # Waiting.

    def _deferred(self, emitter: Emitter, inputs: Sequence[Value | None]) -> list[Value]:
        """Values that the node gives once it is converted, or has run."""
        constants = {i: v.constant for i, v in enumerate(inputs) if v is not None and v.kind == TEXT}
        texts = {i: [text.shape, [*map(str, text.flat)]] for i, text in constants.items() if text is not None}
        present = {i: v for i, v in enumerate(inputs) if v is not None and i not in texts}
        places = [texts.get(i, i in present) for i in range(len(inputs))]
        node = json.dumps({**self.written(), "inputs": places})
        attrs: dict[str, Any] = {"importer": self.importer, "node": node, "num_outputs": self.num_outputs}
        kinds = self.kinds(inputs)
        tensors = all(kind == TENSOR for kind in (*kinds, *(value.kind for value in inputs if value is not None)))
        on_host = self.rule.host is not None or not tensors
        if on_host:
            attrs["tensors"] = tensors
        else:
            attrs["decides"] = tuple(place for place, i in enumerate(present) if i in self.rule.decides)
            attrs["by_shape"] = self.rule.by_shape
        name = emitter.fresh_name(self.name)
        return emitter.deferred(HOST_STEP if on_host else DEFERRED, name, list(present.values()), attrs, kinds)

    @classmethod
    def convert(cls, text: str, emitter: Emitter, values: Sequence[Value]) -> list[Value | None]:
        """The values that a node becomes, now that what it waited for is known."""
        node, inputs = _taken_up(cls, text, values)
        with reading(node.label, node.op_type):
            return node.converted(emitter, inputs)

    @classmethod
    def run(cls, text: str, values: Sequence[Any]) -> list[Any]:
        """The outputs of a node that is a step on the host, for values that are there."""
        node, inputs = _taken_up(cls, text, values)
        with reading(node.label, node.op_type):
            step = node.rule.host or node.rule.beside
            return _moved_text(node, inputs) if step is None else list(step(node, *inputs))


@lru_cache(maxsize=256)
def _read(importer: type[ImportedNode], text: str) -> tuple[ImportedNode, list[bool | Array]]:
    """A node that was written down; of each input, whether it is there, or the text that it is."""
    fields = json.loads(text)
    places: list[bool | tuple[Sequence[int], Sequence[str]]] = fields["inputs"]
    inputs = [item if isinstance(item, bool) else np.array(item[1], object).reshape(item[0]) for item in places]
    return importer.read(fields), inputs


def _taken_up(importer: type[ImportedNode], text: str, values: Sequence[Any]) -> tuple[ImportedNode, list[Any]]:
    """The node, and values in their places; None where an input is left out."""
    node, inputs = _read(importer, text)
    given = iter(values)
    return node, [(next(given) if item else None) if isinstance(item, bool) else item for item in inputs]


def _moved_text(node: ImportedNode, places: Sequence[Any]) -> list[Array | None]:
    """Operators that move elements, or tell whether they are equal, on text: each string is a number of a table, in
    the order of the strings."""
    is_text = [isinstance(value, np.ndarray) and value.dtype == object for value in places]
    words = sorted({str(word) for value, text in zip(places, is_text) if text for word in value.ravel()})
    number = {word: position for position, word in enumerate(words)}
    emitter = Emitter()
    inputs: list[Value | None] = []
    for value, text in zip(places, is_text):
        if value is not None:
            flat = [number[str(word)] for word in value.ravel()] if text else value
            value = emitter.constant("data", np.asarray(flat, INT64 if text else value.dtype).reshape(value.shape))
        inputs.append(value)
    results = node.converted(emitter, inputs)
    stand_ins = [
        value and Value("data", value.fact, kind=TEXT if text else TENSOR) for value, text in zip(inputs, is_text)
    ]
    arrays = [None if value is None else emitter.computed(value) for value in results]
    table = np.array(words, object)
    kinds = node.kinds(stand_ins)
    return [table[array] if kind == TEXT and array is not None else array for array, kind in zip(arrays, kinds)]
