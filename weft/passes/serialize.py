"""SaveJSON, LoadJSON and PrintGraphIR: graphs to text and back, as graph attributes."""

from __future__ import annotations

from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.json_load import graph_from_json
from ..core.passes import register_pass


@register_pass("SaveJSON", provides=("json",))
def save_json(graph: Graph) -> Graph:
    """An empty graph whose attribute `json` is the graph as text."""
    return Graph([], {"json": JsonAttr("str", graph.json())})


@register_pass("LoadJSON", requires=("json",))
def load_json(graph: Graph) -> Graph:
    """The graph that attribute `json` holds; `load_json_no_parse` keeps node attributes as text."""
    return graph_from_json(graph.attr("json"), parse_attrs=not graph.attr("load_json_no_parse"))


@register_pass("PrintGraphIR", provides=("graphir",), changes_graph=False)
def print_graph_ir(graph: Graph) -> Graph:
    """An empty graph whose attribute `graphir` is readable text.

    `join_entry_attrs` and `join_node_attrs` name the attributes to show on each line.
    """
    joins = {key: graph.attr(key) for key in ("join_entry_attrs", "join_node_attrs")}
    shown = graph.replace(attrs={k: v for k, v in graph.attrs.items() if k not in joins})
    return Graph([], {"graphir": JsonAttr("str", shown.ir(**joins))})
