"""The text form of graphs: what is printed is read back, and nothing else is."""

from pathlib import Path

import numpy as np
import pytest
from bounds import calls_of, ends
from core.core_ops import add, assign, parts, relu, scale, total
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.base.errors import Error, FormatError, InvalidType, InvalidValue
from weft.base.layout import Layout
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.ir import Fact, Node, NodeEntry
from weft.core.parse import parse_graph
from weft.core.symbol import Group, Symbol, Variable
from weft.core.text import quoted, word

for make in (add, assign, parts, relu, scale, total):  # texts name them
    make()


def same(graph):
    """Asserts that a graph survives being printed; gives what came back."""
    text = graph.ir(full=True)
    back = parse_graph(text)
    assert back.ir(full=True) == text
    assert back.json() == graph.json()
    numbered = zip(graph.indexed.nodes, back.indexed.nodes, strict=True)
    assert all(graph.node_facts(a) == back.node_facts(b) for a, b in numbered)
    assert back.attrs == graph.attrs
    return back


def test_the_full_form_of_a_graph():
    x, w = Variable("x"), Variable("layer.0/w", init_scale=3)
    update = assign()(w, relu()(w, name="r"), name="it's")
    y = parts()(add()(x, w, name="sum"), parts=2, name="p")
    y[0].outputs[0].node.control_deps.append(update.outputs[0].node)
    graph = infer(Graph(y.outputs), {"x": (2, "n")}, {"x": np.dtype("float32")})
    graph._set_json_attr("note", "a\nb")
    assert graph.ir(full=True).splitlines() == [
        "Graph(%x, %layer.0/w) {",
        "  %x, shape=(2,n), dtype=float32",
        "  %layer.0/w = null(init_scale='3'), shape=(2,n), dtype=float32",
        "  %2 = t_add(%x, %layer.0/w:1), name='sum', shape=(2,n), dtype=float32",
        "  %3 = t_relu(%layer.0/w), name='r', shape=(2,n), dtype=float32",
        "  %4 = t_assign(%layer.0/w:1, %3), name='it\\'s', shape=(2,n), dtype=float32",
        "  %5 = t_parts(%2, parts='2'), name='p', control_deps=[%4], shape=[(2,n), (2,n)], dtype=[float32, float32]",
        "  ret %5.0, %5.1",
        "}",
        'attr note: str = "a\\nb"',
    ]
    back = same(graph)
    assert back.indexed.nodes[1].params.version == 1


def test_facts_that_json_cannot_say():
    x = Variable("x")
    y = relu()(x)
    shapes = {x.outputs[0].node: (), y.outputs[0].node: (0, None, "odd name", "n")}
    facts = {node: (Fact(shape, None, Layout("NCHW16c")),) for node, shape in shapes.items()}
    back = same(Graph(y.outputs, facts=facts))
    assert back.fact(back.outputs[0]) == Fact((0, None, "odd name", "n"), None, Layout("NCHW16c"))


def test_variables_of_one_name_and_names_that_look_like_syntax():
    names = ["x", "x", "", "1", "%x", "a b", "ret", "Graph", "x'", "ü", "\u2028", "a:1", "²", "-a"]
    graph = Graph(total()(*[Variable(name) for name in names], name="}").outputs)
    assert graph.ir(full=True).startswith("Graph(%0='x',\n      %1='x',\n      %'',\n      %'1',\n")
    assert same(graph).symbol.list_input_names() == names


def test_subgraphs():
    inner = relu()(Variable("u"), name="inner")
    middle = Node(total(), "middle", subgraphs=[inner, Symbol([])])
    outer = Node(total(), "outer", {"k": "v"}, subgraphs=[Symbol([NodeEntry(middle)])])
    text = Graph([NodeEntry(outer)]).ir(full=True)
    assert text.splitlines()[:4] == [
        "Graph() {",
        "  %0 = t_total(k='v'), name='outer', subgraphs=[",
        "    Graph() {",
        "      %0 = t_total(), name='middle', subgraphs=[",
    ]
    back = same(Graph([NodeEntry(outer)]))
    (read,) = back.outputs[0].node.subgraphs[0].outputs
    assert read.node.subgraphs[0].list_output_names() == ["inner_output"]
    deep = Symbol([])
    for _ in range(40):
        deep = Symbol([NodeEntry(Node(total(), "n", subgraphs=[deep]))])
    with pytest.raises(Error, match="nested deeper than 32"):
        Graph(deep.outputs).ir(full=True)
    with pytest.raises(FormatError, match="nested deeper than 32"):
        parse_graph("Graph() { %0 = t_total(), subgraphs=[" * 5000)


def test_the_short_form_is_read_where_it_says_enough():
    x = Variable("x")
    y = parts()(relu()(x), parts=2)
    graph = infer(Graph(y.outputs), {"x": (2, None)}, {"x": np.dtype("int8")})
    text = graph.ir(join_entry_attrs=["shape", "dtype"])
    assert "shape=[[2,0], [2,0]], dtype=[5, 5]" in text
    back = parse_graph(text)
    assert back.json_attr("shape") == graph.json_attr("shape")
    assert back.json_attr("dtype") == [5, 5, 5, 5]
    assert [node.name for node in back.indexed.nodes] == ["x", "t_relu1", "t_parts2"]
    graph._set_json_attr("device", [0, 0, 0], "list_int")
    with pytest.raises(FormatError, match="a node has no 'device'"):
        parse_graph(graph.ir(join_node_attrs=["device"]))


def test_the_example_of_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "text-ir.md").read_text()
    block = page[page.index("    Graph(") : page.index("## Grammar")]
    example = "".join(line[4:] + "\n" for line in block.rstrip().splitlines())
    graph = weft.graph.parse(example)
    assert graph.ir(full=True) == example
    assert graph.symbol.list_output_names() == ["softmax0_output"]
    inferred = infer(weft.graph.create(graph.symbol), {"x": (1, 64)})
    assert inferred.fact(graph.outputs[0]).shape == graph.fact(graph.outputs[0]).shape


def test_written_by_hand():
    graph = parse_graph("""
        # what is before and after does not matter
        Graph(%x, %'w') {
          %7 = t_add(%x, %w)   # named after its operator
          ret %7, %x }
    """)
    assert graph.symbol.list_output_names() == ["t_add7_output", "x"]


WRONG = {
    "": (1, 1, "expected Graph"),
    "Graph(%x) {\n  ret %y\n}": (2, 7, "%y is not defined"),
    "Graph(%x) {\n  %1 = nothing(%x)\n  ret %1\n}": (2, 8, "nothing is not registered"),
    "Graph(%x) {\n  %1 = t_add(%x)\n  ret %1\n}": (2, 3, "takes 2 inputs"),
    "Graph(%x) {\n  %1 = t_relu(%x, %1)\n  ret %1\n}": (2, 19, "%1 is not defined"),
    "Graph(%x) {\n  %1 = t_relu(%x)\n  ret %1.1\n}": (3, 7, "output 1:0 of %1"),
    "Graph(%x, %x) { ret %x }": (1, 11, "%x is defined twice"),
    "Graph(%x) { %1 = t_relu(%x) %1 = t_relu(%x) ret %1 }": (1, 29, "%1 is defined twice"),
    "Graph(%x) { %y = t_relu(%x) ret %y }": (1, 13, "results of operators are numbered"),
    "Graph(%x) { %x = null(), name='q' ret %x }": (1, 18, "attributes and facts only"),
    "Graph(%x) { %x %x ret %x }": (1, 16, "has a line already"),
    "Graph(%x) { %1 = t_scale(%x, factor='a') ret %1 }": (1, 18, "factor"),
    "Graph(%x) { %1 = t_scale(%x, factor='1', factor='2') ret %1 }": (1, 42, "given twice"),
    "Graph(%x) { %1 = t_scale(%x, factor=1) ret %1 }": (1, 37, "text between quotes"),
    "Graph(%x) { %1 = t_relu(%x), name='a', name='b' ret %1 }": (1, 40, "given twice"),
    "Graph(%x) { %1 = t_assign(%1, %x) ret %1 }": (1, 27, "%1 is not defined"),
    "Graph(%x) { %1 = t_relu(%x) %2 = t_assign(%1, %x) ret %2 }": (1, 29, "no variable"),
    "Graph(%x) { %1 = t_parts(%x, parts='2'), shape=(1) ret %1.0 }": (1, 42, "list of 2"),
    "Graph(%x) { %x, shape=(-1) ret %x }": (1, 17, "negative"),
    "Graph(%x) { %x, dtype=float31 ret %x }": (1, 17, "unknown dtype"),
    "Graph(%x) { %x, layout=hello ret %x }": (1, 17, "layout"),
    "Graph(%x) { %x, shape=[[[1]]] ret %x }": (1, 25, "expected a name"),
    "Graph(%x) { ret %x:99999999999 }": (1, 17, "no"),
    "Graph(%x) { ret %x:" + "9" * 5000 + " }": (1, 17, "too many digits"),
    "Graph(%x) { ret %x": (1, 19, "found the end of the text"),
    "Graph(%x) { ret %x } more": (1, 22, "the end of the text"),
    "Graph(%'x\\q') { ret }": (1, 7, "unknown escape"),
    "Graph(%'x) { ret }": (1, 7, "found"),
    "Graph(%1) { ret %1 }": (1, 9, "'='"),
    "Graph() { ret } attr a: int = [": (1, 31, "not JSON"),
    "Graph() { ret } attr a: int = 1.5": (1, 22, "is not a int"),
    "Graph() { ret } attr a: int = 1 attr a: int = 1": (1, 38, "given twice"),
    "Graph() { ret } attr a: list_int = " + "[" * 99999: (1, 36, "not JSON"),
    "Graph() { ret } attr shape: list_shape = []": (1, 22, "fact of nodes"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: repr(text[:60]))
def test_what_is_wrong_is_found_where_it_is(text):
    line, column, message = WRONG[text]
    with pytest.raises(FormatError) as caught:
        parse_graph(text)
    assert message in str(caught.value)
    assert str(caught.value.where).startswith(f"line {line}, column {column}")


def test_wrong_arguments():
    with pytest.raises(InvalidType, match="not from bytes"):
        parse_graph(b"Graph() { ret }")
    with pytest.raises(InvalidValue, match="joins none"):
        Graph([]).ir(join_entry_attrs=["shape"], full=True)


@given(st.text())
def test_any_text_survives_quotes(text):
    made = scale()(Variable(text), name=text[::-1], attr={f"__k__{text}__": text})
    same(Graph(made.outputs))
    assert parse_graph(f"Graph(%{word(text)}) {{ ret }}").outputs == []
    assert "\n" not in quoted(text)


NAMES = st.sampled_from(["a", "b", "a.b", "x y", "'", "n0"])


@st.composite
def random_graphs(draw):
    """Graphs with several outputs, writes, control dependencies, subgraphs, facts, attributes."""
    variables = [Variable(draw(NAMES)) for _ in range(draw(st.integers(1, 3)))]
    pool = list(variables)
    for _ in range(draw(st.integers(0, 10))):
        a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        name = draw(NAMES)
        kind = draw(st.integers(0, 5))
        if kind == 0:
            pool += list(parts()(a, parts=draw(st.integers(1, 3)), name=name))
        elif kind == 1:
            pool.append(assign()(draw(st.sampled_from(variables)), a, name=name))
        elif kind == 2:
            inner = relu()(Variable(name), name=draw(NAMES))
            made = Node(total(), name, {"k": draw(NAMES)}, a.outputs, subgraphs=[inner])
            pool.append(Symbol([NodeEntry(made)]))
        elif kind == 3:
            made = scale()(a, factor=draw(st.floats(-9, 9)), name=name)
            made._add_control_deps([b])
            pool.append(made)
        else:
            pool.append(add()(a, b, name=name))
    count = draw(st.integers(1, len(pool)))
    graph = Graph(Group(pool[-count:]).outputs)
    dims = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["n", "a b"]))
    shapes = st.one_of(st.none(), st.lists(dims, max_size=3).map(tuple))
    dtypes = st.sampled_from([None, np.dtype("float32"), np.dtype("bool")])
    layouts = st.sampled_from([Layout(), Layout("NCHW")])
    for node in graph.indexed.nodes:
        if draw(st.booleans()):
            graph.facts[node] = tuple(Fact(draw(shapes), draw(dtypes), draw(layouts)) for _ in range(node.num_outputs))
    if draw(st.booleans()):
        graph._set_json_attr(draw(NAMES), draw(st.lists(st.integers(-3, 3))), "list_int")
        graph._set_json_attr("text of", draw(st.text(max_size=5)))
    return graph


@settings(max_examples=200)
@given(random_graphs())
def test_random_graphs_survive(graph):
    same(graph)


PIECES = ["", "%", "'", "(", "]", "0", ", ", "=", "ret", "\n", "\\"]


@settings(max_examples=150)
@given(random_graphs(), st.data())
def test_damaged_text_is_an_error_or_another_graph(graph, data):
    text = graph.ir(full=True)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(start + 5, len(text))))
        piece = data.draw(st.sampled_from(PIECES))
        text = text[:start] + piece + text[end:]
    try:
        found = parse_graph(text)
    except FormatError:
        return
    same(found)


@given(st.text(alphabet="%x1.:='\\(){}[],?#-ret Graph\n"))
def test_garbage_is_refused(text):
    with pytest.raises(FormatError):
        parse_graph("Graph" + text + "{")


def test_cost_is_linear_in_the_text():
    """Also where the text is hostile: what has been read is not read again."""
    calls = []
    for count in (2_000, 8_000):
        y = Variable("x")
        for _ in range(count):
            y = relu()(y)
        text = Graph(y.outputs).ir(full=True)
        assert parse_graph(text).indexed.num_nodes == count + 1
        calls.append(calls_of(lambda text=text: parse_graph(text)))
    assert calls[1] < 4.1 * calls[0]
    for hostile in ("'", "%", "#", "Graph(%'" + "\\", "("):
        with ends(), pytest.raises(FormatError):
            parse_graph(hostile * 200_000)
