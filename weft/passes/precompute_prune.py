"""PrecomputePrune: what depends only on parameters is cut off into a graph that runs once."""

from __future__ import annotations

from ..core.graph import Graph
from ..core.passes import register_pass
from .fold_constants import constant_part


@register_pass("PrecomputePrune")
def precompute_prune(graph: Graph) -> Graph:
    """The graph whose computed parameters are variables, named after the nodes they replace.

    `param_name_list` names the parameters. Attribute `precompute_graph` computes the new ones, in
    the order of its own attribute `output_names`; it is absent where there is nothing to compute.
    """
    main, precompute = constant_part(graph, graph.attr("param_name_list") or ())
    if precompute is None:
        return graph
    return main.replace(attrs={"precompute_graph": precompute})
