"""The ordered form of programs: edited, printed and read as PyTorch's is, and consistent whatever is done to it."""

import itertools
import random
import re

import numpy as np
import pytest
from oracles import oracle

import weft
from weft._C import Graph, parse_ir

TEXTS = [
    """graph(%a : Tensor, %b.1 : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu), %n : int):
  %c : int = prim::Constant[value=1]()
  %d : Tensor = aten::add(%a, %b.1, %c)
  %e : Tensor[] = prim::ListConstruct(%d, %d)
  %f : float = prim::Constant[value=2.]()
  %s : str = prim::Constant[value="a\\nb \\"q\\""]()
  %t : (int, Tensor?) = foo::bar[x=[1, 2], y="s", z=[1.5, -2.], w=-3, v=0.5, u=int, k=[int, Tensor[]]](%c)
  %q, %r = foo::two(%a)
  %z : bool = prim::Constant[value=1]()
  %w : Tensor = prim::If(%z)
    block0():
      %5 : Tensor = aten::mul(%a, %d)
      %6 : Tensor = prim::Loop(%n, %z, %5) # some.py:3:4
        block0(%i : int, %k : Tensor):
          %k : Tensor = aten::mul(%k, %a)
          -> (%z, %k)
      -> (%6)
    block1():
      -> (%a)
  return (%w, %q)
""",
    "\n\n  graph():\n    return ()\n",
    "graph(%x.5, %x.7 : Dict(str, Tensor), %y : (int), %z : Future(int), %q : t, %d : Device?, %g : Generator, "
    "%n : None, %s : Scalar, %u : Union(int, Tensor)):\n  return (%x.5)",
    "graph(%3, %0):\n  # a comment\n  %7 = a::b(%3)\n  %7 = a::b(%7)\n  return (%7)",
]


def renumbered(text):
    names = {}
    return re.sub(r"%[\w.]+", lambda found: names.setdefault(found.group(), f"%{len(names)}"), text)


@pytest.mark.parametrize("text", TEXTS)
def test_text_becomes_the_graph_that_it_is_for_pytorch(text):
    ours, theirs = parse_ir(text), oracle("torch")._C.parse_ir(text)
    assert renumbered(str(ours)) == renumbered(str(theirs))
    assert str(parse_ir(str(ours))) == str(ours)
    assert str(ours.copy()) == str(ours)
    ours.lint()


SCRIPTED = """
def looped(x, n: int):
    y = x
    for i in range(n):
        if bool(y.sum() > 3):
            y = y * 2
        else:
            y = y + x.relu()
        while n < 3:
            n += 1
    return y, [y, x]

def refined(x, y: Optional[Tensor], names: Dict[str, int], flag: bool = False):
    if y is None:
        return x
    z = torch.cat([x, y], dim=names["dim"])
    assert flag, "flag is not set"
    print(z, "done", 1.5)
    return z.reshape([2, -1])[0:1]
"""


@pytest.mark.parametrize("name", ["looped", "refined"])
def test_graphs_that_pytorch_scripted_are_read(name, tmp_path, monkeypatch):
    torch = oracle("torch")
    path = tmp_path / "scripted_functions.py"
    path.write_text(f"import torch\nfrom torch import Tensor\nfrom typing import Dict, Optional\n{SCRIPTED}")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(DeprecationWarning, match="deprecated"):
        text = str(torch.jit.script(getattr(__import__("scripted_functions"), name)).graph)
    graph = parse_ir(text)
    graph.lint()
    assert renumbered(str(graph)) == renumbered(re.sub(r" # .*", "", text))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("graph(%a : Floaty):\n  return (%a)", "unknown type specifier"),
        ("graph(%a):\n  %b = add(%a)\n  return (%b)", r"expected : but found '\(' here"),
        ("graph(%a):\n  %b = aten::foo(%y)\n  return (%b)", "Cannot find a variable with name 'y'"),
        ("graph(%a:\n  return (%a)", "expected"),
        ("graph(%a):\n  return (%b)", "Cannot find a variable with name 'b'"),
        ("graph(%a):\n  %b = aten::relu(%a", "expected"),
        ("", "expected ident but found 'eof' here"),
        ("graph(%a):\n  %b = a::b[x=](%a)\n  return (%b)", "Could not parse literal"),
        ('graph(%a):\n  %b = a::b[x=[1, "q"]](%a)\n  return (%b)', "of one kind"),
        ("graph(%a):\n  %x : Tensor = prim::Constant[value=<Tensor>]()\n  return (%x)", "parse_tensor_constants"),
        ("graph(%a) {\n return (%a) }", "expected : but found '{' here"),
        ("graph(%a):\n    %b = a::b(%a)\n  return (%b)", "invalid indent|expected"),
        ("graph(%a):\n  %b = a::b(%a) ?\n  return (%b)", "expected newline"),
        ("graph(%a):\n  %b = a::b(%a) \x00\n  return (%b)", "unexpected character"),
        ("graph(%a):\n  %b : int = prim::If(%a)\n    block0():\n      %c = a::b(%a)\n  return (%b)", "expected"),
        ("graph(%1.5):\n  return (%1.5)", "a name is a word"),
    ],
)
def test_text_that_is_no_graph(text, what):
    with pytest.raises(RuntimeError, match=what):
        parse_ir(text)


def test_text_that_is_deep():
    lines = ["graph(%a : Tensor, %c : bool):"]
    for level in range(150):
        lines += ["  " * (2 * level + 1) + f"%v{level} = prim::If(%c)", "  " * (2 * level + 2) + "block0():"]
    with pytest.raises(RuntimeError, match="levels of nesting"):
        parse_ir("\n".join([*lines, "  " * 301 + "-> ()"]))
    graph = inner = Graph()
    for _ in range(3000):  # what is built may be deeper
        node = graph.create("prim::If", (), 0)
        inner.appendNode(node) if inner is graph else node.insertBefore(inner.returnNode())
        inner = node.addBlock()
    graph.lint()
    assert str(graph.copy()) == str(graph)
    assert len(graph.findAllNodes("prim::If")) == 3000


def test_tensors_in_text():
    text = "graph():\n  %x : Float(2, 3) = prim::Constant[value=<Tensor>]()\n  return (%x)"
    (node,) = parse_ir(text, parse_tensor_constants=True).nodes()
    assert node.t("value").shape == (2, 3)
    graph = Graph()
    graph.registerOutput(graph.insertConstant(weft.tensor(2.5)))
    (node,) = parse_ir(str(graph)).nodes()
    assert node.output().toIValue().item() == 2.5


# Edits


def edited(core, seed):
    """The text of a graph after edits that a seed decides; an edit that is refused changes nothing."""
    draw = random.Random(seed)
    graph = core.Graph()
    values = [graph.addInput(name) for name in "xyz"]
    nodes, refused, blocks = [], [], []
    for number in range(60):
        what = draw.choice("create create create move use output uses destroy erase block inner input".split())
        spot = draw.randrange(1 << 30)
        node = nodes[spot % len(nodes)] if nodes else None
        try:
            if what == "create":
                inputs = [values[draw.randrange(1 << 30) % len(values)] for _ in range(draw.randint(0, 3))]
                made = graph.create(f"ns::op{number}", inputs, draw.randint(0, 2))
                made.i_("number", number)
                (graph.prependNode if draw.random() < 0.2 else graph.appendNode)(made)
                nodes.append(made)
                values += made.outputs()
            elif what == "move" and node is not None:
                other = nodes[draw.randrange(1 << 30) % len(nodes)]
                if other is not node and node.owningBlock() is not None and not list(node.blocks()):
                    (node.moveBefore if draw.random() < 0.5 else node.moveAfter)(other)
            elif what == "use" and node is not None:
                node.addInput(values[spot % len(values)])
            elif what == "output":
                graph.registerOutput(values[spot % len(values)])
            elif what == "uses":
                one, two = spot % len(values), draw.randrange(1 << 30) % len(values)
                if one != two:  # theirs never ends
                    values[one].replaceAllUsesWith(values[two])
            elif what == "destroy" and node is not None and not list(node.blocks()) and not node.hasUses():
                nodes.remove(node)
                values = [value for value in values if value not in list(node.outputs())]
                node.destroy()
            elif what == "erase" and node is not None and node.inputsSize():
                node.removeInput(spot % node.inputsSize())
            elif what == "block" and node is not None:
                block = node.addBlock()
                block.addInputToBlock()
                blocks.append(block)
            elif what == "inner" and blocks:
                block = blocks[spot % len(blocks)]
                block.addNode(f"ns::inner{number}", list(block.inputs()))
                block.registerOutput(values[spot % len(values)])
            elif what == "input":
                values.append(graph.addInput())
        except RuntimeError as error:
            refused.append((number, what, str(error)[:20]))
    uses = [[(use.user.kind(), use.offset) for use in value.uses()] for value in graph.inputs()]
    order = [one.isBefore(two) for one in nodes for two in nodes if one is not two]
    return renumbered(str(graph)), [sorted(each) for each in uses], order, len(refused)


@pytest.mark.parametrize("seed", range(25))
def test_edits_give_the_graph_that_they_give_pytorch(seed):
    assert edited(weft._C, seed) == edited(oracle("torch")._C, seed)


def test_names():
    graph = Graph()
    first, plain = graph.addInput("q"), graph.addInput()
    second = graph.addInput("q")
    assert (first.debugName(), plain.debugName(), second.debugName()) == ("q.1", "1", "q")
    third = graph.addInput("q.1")
    assert len({value.debugName() for value in (first, second, third)}) == 3
    assert third.debugName() == "q.1"
    with pytest.raises(RuntimeError, match="Invalid name: '1'"):
        first.setDebugName("1")


def a_node():
    graph = Graph()
    x = graph.addInput("x")
    node = graph.appendNode(graph.create("ns::two", [x, x], 2))
    graph.registerOutput(node.outputsAt(0))
    return graph, x, node


REFUSED = {
    "a kind without a namespace": (lambda g, x, n: g.create("foo"), "all symbols must have a namespace"),
    "one output of two": (lambda g, x, n: n.output(), "Tried to access a single output on node 'ns::two' which has 2"),
    "one input of two": (lambda g, x, n: n.input(), "Tried to access a single input"),
    "an output that is not there": (lambda g, x, n: n.outputsAt(5), "outputs of ns::two go from 0 to 1"),
    "an input that is not there": (lambda g, x, n: n.removeInput(2), "inputs of ns::two go from 0 to 1"),
    "a node twice": (lambda g, x, n: g.appendNode(n), "in a block already"),
    "to destroy what is used": (lambda g, x, n: n.destroy(), "is used by prim::Return"),
    "to erase what is used": (lambda g, x, n: g.eraseInput(0), "is used by ns::two, ns::two"),
    "values of another graph": (lambda g, x, n: n.addInput(Graph().addInput("y")), "are of two graphs"),
    "to return values of another graph": (lambda g, x, n: g.registerOutput(Graph().addInput()), "are of two graphs"),
    "uses in another graph": (lambda g, x, n: x.replaceAllUsesWith(Graph().addInput()), "are of two graphs"),
    "to end a block twice": (lambda g, x, n: g.create("a::b").insertAfter(g.return_node()), "nothing comes after"),
    "to move a return": (lambda g, x, n: g.return_node().moveBefore(n), "belongs to its block"),
    "an attribute that is not there": (lambda g, x, n: n.i("x"), "required keyword attribute 'x' is undefined"),
    "an attribute of another kind": (lambda g, x, n: n.i_("x", 1).f("x"), "'x' has the wrong type"),
    "a float as an int": (lambda g, x, n: n.i_("x", 1.5), "is an int, not 1.5"),
    "a node into itself": (lambda g, x, n: n.moveBefore(n.addBlock().returnNode()), "a block of its own"),
    "a type that is none": (lambda g, x, n: x.setType(int), "the type of a value is a type"),
    "a loose place": (lambda g, x, n: g.create("a::b").moveBefore(n), "is in no block"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_edits_that_are_refused_change_nothing(name):
    graph, x, node = a_node()
    call, what = REFUSED[name]
    before = [line for line in str(graph).split("\n") if "block" not in line]
    with pytest.raises((RuntimeError, TypeError), match=what):
        call(graph, x, node)
    if name not in ("an attribute of another kind", "a node into itself"):
        assert str(graph).split("\n") == before


@pytest.mark.parametrize("name", ["Node", "Value", "Block"])
def test_what_only_graphs_make(name):
    with pytest.raises(TypeError, match="No constructor defined!"):
        getattr(weft._C, name)()


def test_what_lint_finds():
    graph, x, node = a_node()
    graph.lint()
    loose = graph.create("ns::loose", [x])
    with pytest.raises(RuntimeError, match="is in no block"):
        graph.lint()
    loose.destroy()
    late = graph.appendNode(graph.create("ns::late", [x]))
    node.addInput(late.output())
    with pytest.raises(RuntimeError, match="not in scope"):
        graph.lint()
    node.moveAfter(late)
    graph.lint()
    block = node.addBlock()
    inner = block.addNode("ns::inner", [x])
    graph.registerOutput(inner.output())  # which nobody outside of the block sees
    with pytest.raises(RuntimeError, match="not in scope"):
        graph.lint()


def test_a_destroyed_node_stays_destroyed():
    graph, _, node = a_node()
    graph.eraseOutput(0)
    inner = node.addBlock().addNode("ns::inner", [])
    node.destroy()
    assert list(graph.nodes()) == []
    for dead in (node, inner):
        with pytest.raises(RuntimeError, match=r"has been destroyed|in a block already"):
            graph.appendNode(dead)
    graph.lint()


ATTRIBUTES = {
    "i": 3,
    "is": [1, -2],
    "f": 2.5,
    "fs": [1.0, 0.1],
    "s": 'a "b"\n',
    "ss": ["x", "y"],
    "c": 1 + 2j,
    "ty": weft._C.ListType.ofInts(),
    "tys": [weft._C.IntType.get()],
}


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attributes(kind):
    graph, _, node = a_node()
    value = ATTRIBUTES[kind]
    assert getattr(node, f"{kind}_")("name", value) is node
    assert getattr(node, kind)("name") == value
    assert node.kindOf("name") == kind
    assert node.attributeNames() == ["name"]
    (again,) = parse_ir(str(graph)).nodes()
    assert getattr(again, kind)("name") == value
    assert str(again.removeAttribute("name")) == str(a_node()[2])
    assert not again.hasAttributes()


def test_tensors_and_graphs_as_attributes():
    graph, _, node = a_node()
    inner = Graph()
    inner.registerOutput(inner.addInput("v"))
    x = weft.tensor(np.arange(6.0).reshape(2, 3))
    node.t_("x", x).ts_("xs", [x, x]).g_("body", inner).gs_("more", [inner, inner])
    assert node.t("x") is x
    assert node.g("body") is inner
    text = str(graph)
    assert "x=<Tensor>, xs=[<Tensor>, <Tensor>], body=ns::two_0, more=[ns::two_1, ns::two_2]" in text
    assert text.count("with ns::two_") == 3
    other = graph.appendNode(graph.create("ns::other")).copyAttributes(node)
    assert other.attributeNames() == node.attributeNames()


@pytest.mark.parametrize("value", [3, True, 2.5, "text", None, 1j, [1, 2], [True, False], [0.5], ["a"]])
def test_constants_are_those_of_pytorch(value):
    torch = oracle("torch")
    graphs = Graph(), torch._C.Graph()  # which values do not keep
    ours, theirs = (graph.insertConstant(value) for graph in graphs)
    assert ours.type().str() == theirs.type().str()
    assert ours.toIValue() == theirs.toIValue() == value
    assert type(ours.toIValue()) is type(value)
    if not isinstance(value, list):  # which they keep in another way
        assert str(ours.node()) == str(theirs.node())


def test_values_know_their_types():
    graph, x, _ = a_node()
    x.inferTypeFrom(weft.ones(2, 3))
    assert x.isCompleteTensor()
    assert x.type().str() == "Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)"
    assert not x.requires_grad()
    y = graph.addInput("y").setTypeAs(x)
    assert y.type() == x.type()
    assert not y.setType(weft._C.TensorType.get()).isCompleteTensor()
    assert y.requires_grad()  # as far as is known
    assert not y.requiresGrad()


def test_places_where_nodes_are_inserted():
    graph, x, node = a_node()
    with graph.insert_point_guard(node):
        assert graph.insert("aten::add", [x, 1]).node().isBefore(node)
    assert graph.insertPoint() is graph.return_node()
    block = node.addBlock()
    graph.setInsertPoint(block)
    made = graph.insertNode(graph.create("ns::made", [x]))
    assert made.owningBlock() is block
    assert node.isBefore(made)
    assert made.isAfter(node)
    kinds = ["prim::Constant", "aten::add", "ns::two"]
    assert [each.kind() for each in graph.nodes()] == kinds
    assert graph.findNode("ns::made") is made
    assert graph.findNode("ns::made", recurse=False) is None


def test_graphs_in_graphs():
    other = parse_ir("graph(%a, %b):\n  %c = ns::c(%a, %b)\n  %d = ns::d(%c)\n  return (%d, %a)")
    graph, x, node = a_node()
    made = graph.insertGraph(other, [x, node.outputsAt(1)])
    assert [value.node().kind() for value in made] == ["ns::d", "prim::Param"]
    for value in made:
        graph.registerOutput(value)
    graph.makeMultiOutputIntoTuple()
    assert [value.type().str() for value in graph.outputs()] == ["(Tensor, Tensor, Tensor)"]
    graph.lint()
    graph.permuteInputs([0])
    with pytest.raises(IndexError):
        graph.permuteInputs([1])


def test_many_insertions_at_one_place():
    """Each finds room, and the order is known at once."""
    graph, x, node = a_node()
    made = [graph.create("ns::n", [x]).insertBefore(node) for _ in range(2000)]
    late = [graph.create("ns::n", [x]).insertAfter(made[0]) for _ in range(2000)]
    assert all(one.isBefore(two) for one, two in itertools.pairwise(made))
    assert all(two.isBefore(one) for one, two in itertools.pairwise(late))
    assert all(made[0].isBefore(each) and each.isBefore(made[1]) for each in late)
