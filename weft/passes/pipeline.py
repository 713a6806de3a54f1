"""The pipeline: which passes a build runs, in which order, from which level on, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from ..base.errors import LayoutError
from ..core.bulk import collector_paused
from ..core.graph import Graph
from ..core.op import Op
from ..core.passes import apply_passes
from .alter_op_layout import LAYOUT_RULES
from .correct_layout import with_output_layouts
from .precision.narrow_products import CONSTANT_NAMES

Rules = Mapping[str, Callable[..., Any]]  # operator -> f(params, inputs, facts) -> Symbol or None

BY_NAME = 4  # above all levels

# From which opt_level on a step runs. A build runs three of them itself: FuseQuantised before constants are folded,
# PrecomputePrune, which needs the parameters' values, and OpFusion, which makes kernels and no graph.
OPT_PASS_LEVEL = {
    "SimplifyInference": 0,
    "SettleInitialisers": 0,
    "DropEmpty": 0,
    "OpFusion": 1,
    "SimplifyAlgebra": 1,
    "CommonSubexpr": 1,
    "PrecomputePrune": 2,
    "FuseQuantised": 3,
    "FoldScaleAxis": 3,
    "FuseChains": 3,
    "TransposedAsProducts": 3,
    "SkipIdleTaps": 3,
    "AlterOpLayout": 3,
    "ScaleFilters": 3,
    "NestConcatenates": 1,
    "SplitWide": 0,
    "PackProjections": BY_NAME,
    "UseBfloat16": BY_NAME,
    "UseFloat16": BY_NAME,
    "RoundImages": BY_NAME,
    "ComputeInFloat16": BY_NAME,
    "ComputeInBfloat16": BY_NAME,
}


class Step(NamedTuple):
    """Passes that run together when `name` is enabled."""

    name: str
    passes: tuple[str, ...]
    reason: str


PIPELINE = (
    Step("SettleInitialisers", ("SettleInitialisers",), "from here on a node alone says what it computes"),
    Step("DropEmpty", ("DropEmpty",), "nothing later has to think of values without elements, but where they are read"),
    Step(
        "SimplifyInference",
        ("SimplifyInference",),
        "batch_norm has no kernel of its own; as a scale it can fold, and as a shift fuse",
    ),
    Step(
        "SimplifyAlgebra",
        ("SimplifyAlgebra",),
        "what importers and gradients leave behind would hide the patterns that follow",
    ),
    Step(
        "FoldScaleAxis",
        ("FoldScaleAxis",),
        "the scales are there now, and weights are still in the layout their rules know",
    ),
    Step("CommonSubexpr", ("CommonSubexpr",), "folding repeats the scale's own computation; equal nodes become one"),
    Step(
        "FuseChains",
        ("FuseLayerNorm", "FuseAttention", "SimplifyAlgebra"),
        "equal nodes are one now; transposes after it cancel out before layouts are chosen",
    ),
    Step("PackProjections", ("PackProjections",), "attention is found; one product fills a GPU better than three"),
    Step("TransposedAsProducts", ("TransposedAsProducts",), "the convolutions it makes get layouts as any others"),
    Step("SkipIdleTaps", ("SkipIdleTaps",), "layouts and forms are chosen for the filters that are left"),
    Step("UseBfloat16", ("UseBfloat16",), "chains are found, and layouts pack what weights become"),
    Step("UseFloat16", ("UseFloat16",), "the same"),
    Step("RoundImages", ("RoundImages", "CommonSubexpr"), "filters have their scales; layouts follow from it"),
    Step("ComputeInFloat16", ("ComputeInFloat16",), "the same; scales are folded into weights in float32"),
    Step("ComputeInBfloat16", ("ComputeInBfloat16",), "the same"),
    Step(
        "AlterOpLayout",
        ("NameAxes", "AlterOpLayout", "CorrectLayout", "SimplifyAlgebra", "CommonSubexpr"),
        "after all that read plain layouts; transforms that meet cancel out",
    ),
    Step(
        "ScaleFilters",
        ("ScaleFilters",),
        "layouts are settled, so that factors and packed filters have the same blocks",
    ),
    Step(
        "NestConcatenates",
        ("NestConcatenates",),
        "late, since transforms between the parts would hide them; lists that grow share memory",
    ),
    Step(
        "SplitWide",
        ("SplitWide",),
        "last, since lists of parts are found whole; the code of a kernel stays within bounds",
    ),
)


def pass_enabled(name: str, opt_level: int, add_pass: Collection[str] = ()) -> bool:
    """Whether a step runs at a level, or because it is asked for by name."""
    return name in add_pass or opt_level >= OPT_PASS_LEVEL[name]


def in_preferred_layouts(graph: Graph, passes: Sequence[str], rules: Rules) -> Graph:
    """Names axes, alters operators, and gives the outputs back as they were written."""
    named = apply_passes(graph, passes[:1])
    altered: Graph = apply_passes(named.replace(attrs={**named.attrs, LAYOUT_RULES: rules}), passes[1:3])
    written = [named.fact(entry).layout for entry in named.outputs]
    simplified: Graph = apply_passes(with_output_layouts(altered, written), passes[3:])
    return simplified


@collector_paused
def optimize(
    graph: Graph,
    opt_level: int = 2,
    add_pass: Collection[str] = (),
    layout_rules: Rules = MappingProxyType({}),
    constants: Collection[str] = (),
) -> Graph:
    """The graph after every enabled step. Its inputs' shapes and dtypes must be inferred. Rules by operator's name say
    which layouts the target likes; where those cannot be reconciled, layouts stay as they are. `constants` are the
    variables whose values are known.

    >>> from weft.core.symbol import Variable
    >>> optimize(Graph(((Variable("x") + 0) * 2).outputs)).symbol.list_attr()
    {'scalar': '2'}
    """
    for step in PIPELINE:
        if pass_enabled(step.name, opt_level, add_pass):
            if OPT_PASS_LEVEL[step.name] == BY_NAME:
                graph = apply_passes(graph.replace(attrs={**graph.attrs, CONSTANT_NAMES: constants}), step.passes)
            elif step.name != "AlterOpLayout":
                graph = apply_passes(graph, step.passes)
            elif any(n.op in Op.alter_layout or n.op_name in layout_rules for n in graph.indexed.nodes):
                with suppress(LayoutError):
                    graph = in_preferred_layouts(graph, step.passes, layout_rules)
    return graph
