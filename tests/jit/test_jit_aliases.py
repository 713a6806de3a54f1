"""Who shares memory in a graph, and who writes to it."""

import pytest

import weft
from weft._C import Graph, parse_ir
from weft.jit.passes.aliases import Aliases

TEXT = """graph(%x : Tensor, %y : Tensor, %l : Tensor[], %n : int, %c : bool, %o : own.Thing):
  %zero : int = prim::Constant[value=0]()
  %true : bool = prim::Constant[value=1]()
  %key : str = prim::Constant[value="k"]()
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%x)
  %t : Tensor = aten::t(%a)
  %m : Tensor[] = prim::ListConstruct(%a, %b)
  %aa : Tensor = aten::relu(%x)
  %bb : Tensor = aten::tanh(%x)
  %mm : Tensor[] = prim::ListConstruct(%aa, %bb)
  %i : Tensor = aten::__getitem__(%mm, %zero)
  %p : (Tensor, int) = prim::TupleConstruct(%b, %n)
  %q : Tensor, %r : int = prim::TupleUnpack(%p)
  %d : Dict(str, Tensor) = prim::DictConstruct(%key, %t)
  %e : Tensor = aten::__getitem__(%d, %key)
  %f : Tensor = prim::If(%c)
    block0():
      -> (%a)
    block1():
      %g : Tensor = aten::neg(%x)
      -> (%g)
  %h : Tensor = prim::Loop(%n, %true, %y)
    block0(%j : int, %u : Tensor):
      %v : Tensor = aten::neg(%u)
      -> (%true, %v)
  %k : Tensor[] = aten::chunk(%b, %n, %zero)
  %w : Tensor = aten::__getitem__(%k, %zero)
  %z : Tensor = prim::GetAttr[name="weight"](%o)
  %s : Tensor = aten::exp(%x)
  return (%f)
"""


@pytest.fixture
def values():
    graph = parse_ir(TEXT)
    found = {value.debugName(): value for value in graph.inputs()}
    for node in graph.nodes():
        found |= {value.debugName(): value for value in node.outputs()}
        for block in node.blocks():
            found |= {value.debugName(): value for value in block.inputs()}
            found |= {value.debugName(): value for inner in block.nodes() for value in inner.outputs()}
    return Aliases(graph), found


SHARED = "x y|x z|y z|a t|a f|g f|t e|b q|i aa|i bb|y h|h u|v h|w b|t f".split("|")
APART = "a x|a b|a aa|i x|i b|t b|f x|f b|s x|s a|q a|l x|e b|n x".split("|")


@pytest.mark.parametrize("pair", SHARED)
def test_values_that_may_share_memory(pair, values):
    aliases, named = values
    one, two = (named[name] for name in pair.split())
    assert aliases.may_alias(one, two)
    assert aliases.may_alias(two, one)


@pytest.mark.parametrize("pair", APART)
def test_values_that_do_not(pair, values):
    aliases, named = values
    one, two = (named[name] for name in pair.split())
    assert not aliases.may_alias(one, two)


@pytest.mark.parametrize(
    ("holder", "part", "holds"), [("m", "a", 1), ("d", "t", 1), ("p", "b", 1), ("l", "x", 1), ("m", "x", 0)]
)
def test_containers_hold_what_was_put_in(holder, part, holds, values):
    aliases, named = values
    assert aliases.may_contain_alias(named[holder], named[part]) == bool(holds)


def written(body, name):
    """Whether somebody writes to a value."""
    text = "graph(%x : Tensor, %l : Tensor[], %n : int):\n  %one : int = prim::Constant[value=1]()\n"
    lines = "".join([f"  {line}\n" for line in body.split("; ")])
    graph = parse_ir(f"{text}{lines}  return (%x)\n".replace("\\\n", "\n"))
    values = {value.debugName(): value for node in (graph.param_node(), *graph.nodes()) for value in node.outputs()}
    return Aliases(graph).is_written(values[name])


@pytest.mark.parametrize(
    ("body", "name", "is_written"),
    [
        ("%a : Tensor = aten::relu(%x); %b : Tensor = aten::relu_(%a)", "a", True),
        ("%a : Tensor = aten::relu(%x); %b : Tensor = aten::relu_(%a)", "x", False),
        ("%a : Tensor = aten::t(%x); %b : Tensor = aten::relu_(%a)", "x", True),
        ("%b : Tensor = aten::relu_(%x)", "l", True),
        ("%a : Tensor = aten::relu(%x); %m : Tensor[] = aten::append(%l, %a); %b : Tensor = own::any(%l)", "a", True),
        ("%a : Tensor = aten::relu(%x); %m : Tensor[] = aten::append(%l, %a)", "a", False),
        ("%a : Tensor = aten::relu(%x); %b : Tensor = own::any(%n)", "a", False),
        ("%a : Tensor = aten::relu(%x); %b : Tensor = own::any(%n)", "x", True),
        ("%a : Tensor = aten::relu(%x); aten::_foreach_neg_(%l)", "x", True),
    ],
)
def test_writes(body, name, is_written):
    assert written(body, name) is is_written


def test_constants_that_are_one_tensor_share_it():
    graph, tensor = Graph(), weft.ones(2)
    one, two, other = (graph.insertConstant(each) for each in (tensor, tensor, weft.ones(2)))
    aliases = Aliases(graph)
    assert aliases.may_alias(one, two)
    assert not aliases.may_alias(one, other)
