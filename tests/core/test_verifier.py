"""Each rule of the graph IR, broken once; and the pass runner, which checks them after a pass."""

import numpy as np
import pytest
from core.core_ops import add, assign, fresh_name, parts, relu, total

import weft
from weft.base import config
from weft.base.errors import GraphError, NotFound, RegistryError
from weft.core.graph import Graph
from weft.core.graph_attrs import JsonAttr
from weft.core.ir import Fact, Node, NodeEntry
from weft.core.passes import get_pass, list_passes, register_pass
from weft.core.symbol import Symbol, Variable
from weft.core.verify import verify


def x_entry():
    return Variable("x").outputs[0]


def cycle():
    node = Node(relu(), "loop")
    node.inputs = [NodeEntry(node)]
    return Graph([NodeEntry(node)])


def shared_with_subgraph():
    inner = relu()(Variable("x"))
    outer = Node(total(), "outer", inputs=inner.outputs, subgraphs=[inner])
    return Graph([NodeEntry(outer)])


def broken_subgraph():
    inner = Symbol([NodeEntry(Node(add(), "inner", inputs=[x_entry()]))])
    return Graph([NodeEntry(Node(total(), "outer", subgraphs=[inner]))])


def variable_with_inputs():
    return Graph([NodeEntry(Node(None, "v", inputs=[x_entry()]))])


def wrong_facts():
    node = Node(parts(), "p", {"parts": "2"}, [x_entry()])
    return Graph([NodeEntry(node)], facts={node: (Fact(),)})


BROKEN = {
    "cycle": (cycle, "cycle"),
    "arity": (lambda: Graph([NodeEntry(Node(add(), "n", inputs=[x_entry()]))]), "has 1 inputs"),
    "input index": (
        lambda: Graph([NodeEntry(Node(relu(), "n", inputs=[x_entry()._replace(index=1)]))]),
        "output 1 of node 'x' is used",
    ),
    "output index": (lambda: Graph([NodeEntry(Node(relu(), "n", inputs=[x_entry()]), 2)]), "output 0 of the graph"),
    "variable with inputs": (variable_with_inputs, "a variable has inputs"),
    "mutation": (
        lambda: Graph([NodeEntry(Node(assign(), "n", inputs=[*relu()(Variable("x")).outputs, x_entry()]))]),
        "only a variable can be mutated",
    ),
    "facts": (wrong_facts, "1 facts for 2 outputs"),
    "closed subgraphs": (shared_with_subgraph, "must be an input"),
    "inside subgraphs": (broken_subgraph, "'inner'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_rule(name):
    make, match = BROKEN[name]
    with pytest.raises(GraphError, match=match):
        verify(make())


def test_a_good_graph():
    verify(Graph(add()(relu()(Variable("x")), Variable("y")).outputs))
    inner = relu()(Variable("x"))
    node = Node(total(), "outer", subgraphs=[inner, inner])
    verify(Graph([NodeEntry(node)]))


def test_subgraphs_shared_at_every_level_cost_no_more_than_their_number():
    symbol = Variable("x")
    for _ in range(60):
        symbol = Symbol([NodeEntry(Node(total(), "n", subgraphs=[symbol, symbol]))])
    verify(Graph(symbol.outputs))


# The pass runner


def passing(function=lambda graph: graph, **promises):
    name = fresh_name("Pass")
    register_pass(name, **promises)(function)
    return name


def graph():
    return Graph(relu()(Variable("x")).outputs)


def test_passes_run_in_order():
    def mark(text):
        return lambda g: g.replace(attrs={"seen": JsonAttr("str", (g.attr("seen") or "") + text)})

    names = [passing(mark("a")), passing(mark("b"))]
    assert graph().apply(names).attr("seen") == "ab"
    assert graph().apply(names[1]).attr("seen") == "b"


def test_needs_name_the_giver():
    key = fresh_name("key")
    giver = passing(lambda g: g.replace(attrs={**g.attrs, key: JsonAttr("int", 1)}), provides=(key,))
    taker = passing(requires=(key,))
    with pytest.raises(GraphError, match=f"pass {taker} needs graph attribute '{key}'") as caught:
        graph().apply(taker)
    assert f"apply {giver} first" in str(caught.value)
    assert graph().apply([giver, taker]).attr(key) == 1
    with pytest.raises(GraphError, match="set it before"):
        graph().apply(passing(requires=(fresh_name("key"),)))


def test_a_gift_that_is_not_given():
    name = passing(provides=("never",))
    with pytest.raises(GraphError, match=f"pass {name} promised graph attribute 'never'"):
        graph().apply(name)


def test_unknown_pass_stops_before_any_runs():
    ran = []
    name = passing(lambda g: ran.append(1) or g)
    with pytest.raises(NotFound, match="cannot find pass Nope"):
        graph().apply([name, "Nope"])
    assert ran == []


def test_a_pass_that_gives_no_graph():
    name = passing(lambda g: None)
    with pytest.raises(GraphError, match=f"pass {name} gave NoneType"):
        graph().apply(name)


def test_errors_name_the_pass():
    def fail(g):
        raise GraphError("no", where="node 'a'")

    name = passing(fail)
    with pytest.raises(GraphError, match=f"pass {name}, node 'a'"):
        graph().apply(name)


def test_what_a_pass_makes_is_verified_unless_switched_off():
    name = passing(lambda g: cycle())
    with pytest.raises(GraphError, match=f"graph made by pass {name}, node 'loop'"):
        graph().apply(name)
    with config.override(verify=False):
        assert graph().apply(name).outputs[0].node.name == "loop"


def test_debug_prints_the_graph(capsys):
    name = passing()
    with config.override(debug=frozenset({"passes"})):
        graph().apply(name)
    assert f"# after pass {name}\nGraph(%x) {{" in capsys.readouterr().err


def test_registry():
    name = passing(lambda g: g, requires=("a",), provides=("b",), changes_graph=False)
    found = get_pass(name)
    assert (found.requires, found.provides, found.changes_graph) == (("a",), ("b",), False)
    assert found in list_passes()
    with pytest.raises(RegistryError, match="already registered"):
        register_pass(name)(lambda g: g)


def test_facts_stay_where_a_pass_changes_nothing():
    source = Graph(graph().outputs)
    node = source.outputs[0].node
    source.facts[node] = (Fact((2,), np.dtype("int8")),)
    assert source.apply(passing()).facts == source.facts


def test_passes_say_which_operator_attributes_they_read():
    key, name = fresh_name(), fresh_name()
    weft.graph.register_pass(name, op_attrs=[key])(lambda graph: graph)
    graph = weft.graph.create(weft.symbol.relu(weft.symbol.Variable("x")))
    with pytest.raises(GraphError, match=f"needs operator attribute '{key}'"):
        graph.apply(name)
    weft.top.Op.register(fresh_name()).set_attr(key, 1)
    assert graph.apply(name) is graph
    assert weft.graph.get_pass("Gradient").op_attrs == ("FGradient",)
    assert isinstance(graph.indexed, weft.graph.IndexedGraph)
    assert isinstance(graph.outputs[0], weft.graph.NodeEntry)
    assert isinstance(graph.outputs[0].node, weft.graph.Node)
    assert isinstance(weft.top.Op.shape, weft.top.OpMap)
