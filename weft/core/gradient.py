"""What a gradient rule sees of what it differentiates: a node of a graph, or a call on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .op import Rule
from .schema import Params
from .symbol import Symbol


class GradientContext(NamedTuple):
    """The call that a rule differentiates. Rules compose symbols; who runs them reads the graph."""

    inputs: list[Symbol]
    outputs: list[Symbol]
    params: Params
    rule: Rule  # FGradient's, which a rule of complex numbers may stand on
    subgraphs: tuple[Symbol, ...] = ()
    gradients: Callable[..., list[Any]] | None = None  # those of a subgraph
