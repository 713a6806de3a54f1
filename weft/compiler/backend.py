"""Backend: all that is particular to a kind of target, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ..base.target import Target
from ..codegen.generator import Codegen
from ..core.graph import Graph
from ..core.ir import Fact
from ..core.symbol import Symbol
from ..lower.lowering import Lowering
from ..runtime.registry import Runtime

T = TypeVar("T", bound=Target)
LayoutRule = Callable[[Any, Symbol, Sequence[Fact], T], Symbol | None]


class Precision(NamedTuple):
    """What a model is computed in: the passes that see to it, options of the target, and further passes for targets of
    which a condition holds."""

    passes: tuple[str, ...] = ()
    options: Mapping[str, Any] = {}
    further: Mapping[str, Callable[[Any], bool]] = {}


@dataclass(frozen=True)
class Backend(Generic[T]):
    """How programs for one kind of target are made and run. A kind that is registered is one that `weft.compile` takes.

    `layout_rules`, by operator: the operator as the target likes it, or None (see AlterOpLayout). `lowering`: fused
    groups become kernels in loop IR. `codegen`: kernels become code. `runtime`: programs are loaded, memory is
    allocated and copied. `precisions`, by name: what models may be computed in. `pays_apart(graph, count,
    target)`: whether so many images are faster one by one, by the graph of one.
    """

    runtime: Runtime
    lowering: Lowering[T]
    codegen: Codegen[T]
    layout_rules: Mapping[str, LayoutRule[T]]
    precisions: Mapping[str, Precision] = field(default_factory=lambda: {"fp32": Precision()})
    pays_apart: Callable[[Graph, int, T], bool] | None = None

    def layout_rules_for(self, target: T) -> dict[str, Callable[..., Symbol | None]]:
        """The rules as AlterOpLayout asks them: f(params, inputs, facts)."""
        return {name: partial(_asked, rule, target) for name, rule in self.layout_rules.items()}


def _asked(rule: LayoutRule[T], target: T, params: Any, inputs: Symbol, facts: Sequence[Fact]) -> Symbol | None:
    return rule(params, inputs, facts, target)
