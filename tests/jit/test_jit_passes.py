"""Passes over graphs, compared with PyTorch's on the same text."""

import random
import re

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import _C
from weft._C import FileCheck, parse_ir
from weft.base.errors import RunError
from weft.jit.run.code import Code
from weft.jit.run.interpreter import run
from weft.jit.types import ClassType, FunctionType


def renumbered(text):
    names, text = {}, re.sub(r" # .*", "", text)
    return re.sub(r"%[\w.]+", lambda found: names.setdefault(found.group(), f"%{len(names)}"), text)


def ran(core, name, text, *args):
    graph = core.parse_ir(text)
    given = getattr(core, f"_jit_pass_{name}")(graph, *args)
    graph = given if isinstance(given, core.Graph) else graph
    graph.lint()
    return given if isinstance(given, bool) else None, renumbered(str(graph))


HEAD = """graph(%x : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu), %y : Tensor, %l : int[], %c : bool,
      %o : Tensor?, %i : int, %f : float, %z : Double(*, *), %u : Tensor[]):
  %one : int = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
"""


def program(body, results):
    lines = [line for line in body.strip("\n").split("\n") if line.strip()]
    return HEAD + "\n".join([f"  {line}" for line in lines]) + f"\n  return ({results})\n"


# (pass, body, results): cases in which PyTorch's pass and weft's give the same text.
ALIKE = [
    ("dce", "%a = aten::relu(%y)\n%b = aten::t(%y)", "%b"),
    ("dce", "%a = aten::relu(%y)\n%b = aten::relu_(%a)\n%d = aten::add_(%y, %x, %one)", "%x"),
    ("dce", "prim::Print(%y)\n%a = aten::relu(%y)", "%x"),
    (
        "dce",
        """
%p, %q : Tensor, %r : int = prim::If(%c)
  block0():
    %a = aten::relu_(%y)
    %n : int = aten::add(%i, %one)
    -> (%a, %x, %n)
  block1():
    -> (%x, %x, %one)
""",
        "%p",
    ),
    ("dce_graph", "%a = aten::relu(%y)\n%b = aten::relu_(%a)\n%d = aten::relu(%y)\n%e = aten::relu_(%y)", "%d"),
    ("dce_graph", "%a = aten::relu(%y)\n%b = aten::t(%a)\n%d = aten::relu_(%b)", "%a"),
    ("dce_graph", "%m : int[] = prim::ListConstruct(%i)\n%b : int[] = aten::append(%m, %i)", "%i"),
    ("dce_graph", "%m : int[] = prim::ListConstruct(%i)\n%b : int[] = aten::append(%m, %i)", "%m"),
    ("dce_allow_deleting_nodes_with_side_effects", "prim::Print(%y)\n%a = aten::relu_(%y)", "%y"),
    ("cse", "%a = aten::relu(%y)\n%b = aten::relu(%y)", "%a, %b"),
    ("cse", "%a = aten::relu(%y)\n%b = aten::relu(%y)\n%d = aten::add(%a, %b, %one)", "%d"),
    ("cse", "%a = aten::relu(%y)\n%w = aten::relu_(%y)\n%b = aten::relu(%y)\n%d = aten::add(%a, %b, %one)", "%d"),
    ("cse", "%a : int = aten::add(%i, %one)\n%b : int = aten::add(%i, %one)", "%a, %b"),
    ("cse", "%a : float = prim::Constant[value=1.]()\n%b : float = prim::Constant[value=1.]()", "%a, %b"),
    ("cse", "%a = aten::t(%y)\n%b = aten::t(%y)", "%a, %b"),
    (
        "cse",
        """
%a = aten::relu(%y)
%p = prim::If(%c)
  block0():
    %b = aten::relu(%y)
    %d = aten::tanh(%b)
    -> (%d)
  block1():
    %e = aten::tanh(%y)
    -> (%e)
%g = aten::tanh(%y)
%h = aten::add(%p, %g, %one)
%k = aten::add(%h, %a, %one)
""",
        "%k",
    ),
    ("cse", "%a = aten::dropout(%y, %f, %c)\n%b = aten::dropout(%y, %f, %c)\n%d = aten::mul(%a, %b)", "%d"),
    (
        "constant_pooling",
        """
%a : int = prim::Constant[value=3]()
%p : int = prim::If(%c)
  block0():
    %b : int = prim::Constant[value=3]()
    %d : int = prim::Constant[value=7]()
    %e : float = prim::Constant[value=3]()
    %g : int = aten::add(%b, %d)
    -> (%g)
  block1():
    %k : int = prim::Constant[value=7]()
    -> (%k)
%s : str = prim::Constant[value="3"]()
%t : str = prim::Constant[value="3"]()
""",
        "%p, %a, %s, %t",
    ),
    (
        "constant_propagation",
        """
%two : int = aten::add(%one, %one)
%m : int[] = prim::ListConstruct(%one, %two)
%t : (int, int) = prim::TupleConstruct(%one, %two)
%b : bool = aten::eq(%one, %two)
%p = prim::If(%b)
  block0():
    %d = aten::add(%y, %y, %one)
    -> (%d)
  block1():
    %e = aten::sub(%y, %y, %two)
    -> (%e)
%q = prim::Loop(%zero, %true, %p)
  block0(%k : int, %v):
    %g = aten::add(%v, %v, %one)
    -> (%true, %g)
""",
        "%q, %m, %t",
    ),
    (
        "constant_propagation",
        """
%m : int[] = prim::ListConstruct(%one, %zero)
%t : (int, int) = prim::TupleConstruct(%one, %zero)
%a : int, %b : int = prim::TupleUnpack(%t)
%g : int = aten::__getitem__(%m, %one)
%n : int = aten::len(%m)
%k : int, %h : int = prim::If(%c)
  block0():
    -> (%one, %zero)
  block1():
    -> (%one, %one)
%d : float = aten::div(%one, %n)
%s : str = prim::Constant[value="a"]()
%r : str = aten::add(%s, %s)
""",
        "%g, %n, %a, %b, %k, %h, %d, %r",
    ),
    ("constant_propagation", "%a : int = aten::floordiv(%one, %zero)", "%a"),
    ("constant_propagation", "%m : int[] = prim::ListConstruct(%one)\n%n : int[] = aten::append(%m, %i)", "%m"),
    (
        "constant_propagation",
        """
%k : int, %w : int = prim::Loop(%i, %c, %one, %zero)
  block0(%j : int, %v : int, %r : int):
    %a : int = aten::add(%v, %j)
    -> (%c, %a, %r)
""",
        "%k, %w",
    ),
    ("peephole", "%a = aten::t(%y)\n%b = aten::t(%a)", "%b"),
    ("peephole", "%a = aten::mul(%y, %one)\n%b = aten::relu(%a)", "%b"),
    ("peephole", "%a = aten::mul(%y, %one)", "%a"),
    (
        "peephole",
        "%a : int = aten::mul(%i, %one)\n%b : int = aten::add(%a, %zero)\n%d : int = aten::sub(%b, %zero)",
        "%d",
    ),
    (
        "peephole",
        """
%a : int[] = aten::size(%x)
%b : int = aten::dim(%x)
%d : int = prim::dtype(%x)
%e : bool = prim::is_cuda(%x)
%g : int = aten::size(%x, %one)
%h : bool = aten::is_floating_point(%x)
%k : bool = aten::is_complex(%x)
%m : int = aten::dim(%z)
%n : int = prim::dtype(%z)
%p : int[] = aten::size(%z)
%q : Device = prim::device(%x)
""",
        "%a, %b, %d, %e, %g, %h, %k, %m, %n, %p, %q",
    ),
    (
        "peephole",
        """
%a : Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu) = aten::relu(%x)
%b = aten::type_as(%a, %x)
%d = aten::type_as(%y, %x)
%e = aten::expand(%x, %l, %c)
%m : int[] = prim::Constant[value=[2, 3]]()
%g = aten::expand(%x, %m, %c)
""",
        "%b, %d, %e, %g",
    ),
    (
        "peephole",
        """
%m : int[] = prim::ListConstruct(%one, %zero)
%a : int = aten::len(%m)
%b : int = aten::__getitem__(%m, %zero)
%d : int = aten::__getitem__(%m, %i)
%e : int, %g : int = prim::ListUnpack(%m)
""",
        "%a, %b, %d, %e, %g",
    ),
    (
        "peephole",
        """
%a : Tensor = aten::_unwrap_optional(%y)
%b : Tensor = prim::unchecked_unwrap_optional(%y)
%d : Tensor = prim::unchecked_unwrap_optional(%o)
%e : bool = aten::__is__(%y, %none)
%g : bool = aten::__isnot__(%y, %none)
%h : bool = aten::__is__(%o, %none)
%k : Tensor = prim::unchecked_cast(%y)
%m : Tensor = prim::unchecked_cast(%o)
%n : int = aten::Int(%i)
""",
        "%a, %b, %d, %e, %g, %h, %k, %m, %n",
    ),
    ("peephole", "%a : Tensor = prim::NumToTensor(%i)\n%b : int = aten::Int(%a)", "%b"),
    (
        "lower_all_tuples",
        "%t : (Tensor, int) = prim::TupleConstruct(%y, %i)\n%q : int, %r : int = prim::If(%c)\n"
        "  block0():\n    -> (%i, %one)\n  block1():\n    -> (%one, %i)",
        "%t, %q",
    ),
    ("remove_inplace_ops", "%a = aten::relu(%y)\n%b = aten::add_(%a, %x, %one)\n%d = aten::mul(%a, %x)", "%d"),
    ("remove_inplace_ops", "%a = aten::relu_(%y)\n%b = aten::tanh_(%a)\n%d = aten::mul(%y, %x)", "%d, %a, %b"),
    (
        "remove_mutation",
        """
%a = aten::relu(%y)
%b = aten::add_(%a, %x, %one)
%d = aten::mul(%a, %x)
%e = aten::add_(%y, %x, %one)
%m : Tensor[] = prim::ListConstruct(%a)
%n : Tensor[] = aten::append(%m, %d)
%k = aten::relu_(%d)
""",
        "%k, %m, %a",
    ),
    ("remove_mutation", "%a = aten::relu(%y)\n%b = aten::t(%a)\n%d = aten::relu_(%a)", "%b"),
    (
        "erase_shape_information",
        "%a : Float(2, 3) = aten::relu(%x)\n%m : Float(2)[] = prim::ListConstruct(%a)",
        "%a, %m",
    ),
    (
        "erase_number_types",
        "%a : Float(2, 3) = aten::add(%x, %i, %one)\n%m : int[] = prim::ListConstruct(%zero)\n"
        "%b : bool = aten::__not__(%true)",
        "%a, %m, %b",
    ),
    (
        "remove_expands",
        "%a = aten::expand(%x, %l, %c)\n%b = aten::expand(%x, %l, %true)\n%d = aten::relu(%b)",
        "%a, %d",
    ),
    (
        "loop_unrolling",
        "%p = prim::Loop(%i, %true, %y)\n  block0(%k : int, %v):\n    %a = aten::add(%v, %v, %k)\n    -> (%true, %a)",
        "%p",
    ),
    (
        "loop_unrolling",
        "%p = prim::Loop(%i, %c, %y)\n  block0(%k : int, %v):\n    %a = aten::add(%v, %v, %k)\n    -> (%true, %a)",
        "%p",
    ),
    (
        "constant_loop_unrolling",
        "%n : int = prim::Constant[value=3]()\n"
        "%p = prim::Loop(%n, %true, %y)\n  block0(%k : int, %v):\n    %a = aten::add(%v, %v, %k)\n    -> (%true, %a)",
        "%p",
    ),
    (
        "canonicalize_graph_fuser_ops",
        "%n : int = prim::Constant[value=2]()\n%m : Tensor[] = aten::chunk(%y, %n, %one)\n"
        "%a : Tensor, %b : Tensor = prim::ListUnpack(%m)\n%d = aten::add(%a, %b, %one)",
        "%d",
    ),
    ("decompose_ops", "%a = aten::addmm(%y, %y, %y, %one, %one)\n%b = aten::addmm(%y, %y, %y, %zero, %one)", "%a, %b"),
    ("canonicalize", "%named.3 = aten::relu(%y)\n%b = aten::tanh(%named.3)", "%b"),
]


@pytest.mark.parametrize("number", range(len(ALIKE)))
def test_a_pass_does_what_that_of_pytorch_does(number):
    name, body, results = ALIKE[number]
    text = program(body, results)
    ours, theirs = ran(_C, name, text), ran(oracle("torch")._C, name, text)
    assert ours[1] == theirs[1]
    assert ours[0] == theirs[0]


def check(name, body, results, *args):
    """A graph after a pass."""
    graph = parse_ir(program(body, results))
    getattr(_C, f"_jit_pass_{name}")(graph, *args)
    graph.lint()
    return graph


def test_loops_carry_nothing_that_only_they_read():
    body = """
%p, %q : Tensor, %r : int = prim::Loop(%i, %true, %y, %y, %one)
  block0(%k : int, %a, %b, %n : int):
    %d = aten::relu(%a)
    %e = aten::tanh(%b)
    %m : int = aten::add(%n, %one)
    -> (%true, %d, %e, %m)
"""
    loop = check("dce", body, "%p").findNode("prim::Loop")
    assert (loop.inputsSize(), loop.outputsSize(), len(list(next(loop.blocks()).inputs()))) == (3, 1, 2)
    loop = check("dce", body.replace("relu(%a)", "mul(%a, %b)"), "%p").findNode("prim::Loop")
    assert loop.outputsSize() == 2


@pytest.mark.parametrize("name", ["dropout", "feature_dropout", "alpha_dropout"])
def test_random_numbers_are_drawn_as_often_as_they_were(name):
    body = f"%a = aten::{name}(%y, %f, %c)\n%b = aten::{name}(%y, %f, %c)\n%d = aten::mul(%a, %b)"
    assert len(check("cse", body, "%d").findAllNodes(f"aten::{name}")) == 2


def test_a_write_to_what_a_list_holds_is_seen():
    body = "%a = aten::relu(%y)\n%m : Tensor[] = prim::ListConstruct(%a)\n%b = aten::relu_(%a)"
    assert check("dce_graph", body, "%m").findNode("aten::relu_") is not None


def test_what_is_not_known_has_effects():
    body = "%a = own::thing(%y)\n%b = own::thing(%y)\n%d = aten::relu(%y)\n%e = aten::relu(%y)\n%g = aten::mul(%d, %e)"
    for name in ("dce", "dce_graph", "cse", "constant_propagation", "peephole", "remove_mutation", "fuse"):
        kinds = [node.kind() for node in check(name, body, "%g").nodes()]
        assert kinds.count("own::thing") == 2, name
    # It may have written to %y, so that the two differ.
    between = "%d = aten::relu(%y)\n%a = own::thing(%y)\n%e = aten::relu(%y)\n%g = aten::mul(%d, %e)"
    assert len(check("cse", between, "%g").findAllNodes("aten::relu")) == 2


def test_gradients_that_are_zero_are_not_computed():
    body = """
%n = prim::AutogradZero()
%a = prim::AutogradAdd(%x, %n)
%b = prim::GradOf[name="f"](%a)
  block0():
    %d = aten::relu(%a)
    -> (%d)
%e = prim::GradOf[name="f"](%n)
  block0():
    %g = aten::tanh(%n)
    -> (%g)
%h = prim::AutogradAdd(%b, %e)
%k = prim::AutogradAdd(%x, %b)
%m = prim::AutogradAdd(%y, %x)
%q : bool = prim::AutogradAnyNonZero(%n, %e)
"""
    graph = check("specialize_autogradzero", body, "%h, %k, %m, %q")
    FileCheck().check("aten::relu(%x)").check("aten::add").check("prim::AutogradAdd(%y, %x)").check_not(
        "tanh"
    ).check_not("GradOf").run(str(graph))
    first, *_, last = graph.outputs()
    assert first.node().kind() == "aten::relu"
    assert last.toIValue() is False


def test_small_groups_stay_as_they_are():
    body = "%a = aten::relu(%y)\n%b = aten::tanh(%a)\n%d = aten::nonzero(%b)\n%e = aten::mul(%a, %b)"
    assert check("create_autodiff_subgraphs", body, "%d, %e", 4).findNode("prim::DifferentiableGraph") is None
    graph = check("create_autodiff_subgraphs", body, "%d, %e", 3)
    (node,) = graph.findAllNodes("prim::DifferentiableGraph")
    assert [inner.kind() for inner in node.g("Subgraph").nodes()] == ["aten::relu", "aten::tanh", "aten::mul"]
    assert (node.inputsSize(), node.outputsSize()) == (1, 2)
    FileCheck().check("prim::DifferentiableGraph_0(%y)").check_next("aten::nonzero").check("with").run(str(graph))


def test_groups_do_not_reach_over_what_depends_on_them():
    body = (
        "%a = aten::relu(%y)\n%b = aten::tanh(%a)\n%d = aten::bmm(%b, %y)\n%e = aten::relu(%d)\n%g = aten::mul(%a, %e)"
    )
    graph = check("fuse", body, "%g")
    first, last = graph.findAllNodes("prim::FusionGroup")
    assert first.isBefore(graph.findNode("aten::bmm"))
    assert graph.findNode("aten::bmm").isBefore(last)
    assert (first.outputsSize(), last.inputsSize()) == (2, 2)


@pytest.mark.parametrize("name", ["fuse", "create_autodiff_subgraphs"])
def test_effects_keep_their_order_around_groups(name, capsys):
    body = "%a = aten::relu(%y)\nprim::Print(%a)\nprim::Print(%i)\n%b = aten::tanh(%a)\n%d = aten::mul(%a, %b)"
    graph = check(name, body, "%d")
    values = [weft.ones(2, 3), weft.ones(2, 2), [1], True, None, 7, 0.5, weft.ones(2, 2), []]
    run(Code(parse_ir(program(body, "%d"))), values)
    wanted = capsys.readouterr().out
    run(Code(graph), values)
    assert capsys.readouterr().out == wanted
    assert wanted.rstrip().endswith("7")


def test_shapes_are_those_that_pytorch_tells():
    text = """graph(%x : Tensor, %y : Tensor, %c : bool):
  %one : int = prim::Constant[value=1]()
  %a = aten::mul(%x, %y)
  %b = aten::t(%a)
  %d = aten::mm(%b, %a)
  %e = prim::If(%c)
    block0():
      %g = aten::relu(%a)
      -> (%g)
    block1():
      %h = aten::tanh(%x)
      -> (%h)
  %n : int = aten::size(%e, %one)
  return (%d, %e, %n)"""
    rows, columns = random.sample(range(2, 9), 2)
    found = []
    for library in (weft, oracle("torch")):
        graph = library._C.parse_ir(text)
        tensors = tuple(library.ones(rows, columns) for _ in range(2))
        library._C._jit_pass_complete_shape_analysis(graph, (*tensors, True), False)
        found.append([node.output().type().str() for node in graph.nodes() if node.kind() != "prim::If"])
        found.append([node.output().type().sizes() for node in graph.findAllNodes("prim::If")])
    assert found[0] == found[2]
    assert found[1] == [[rows, columns]]


def test_shapes_of_what_loops_change_are_not_known():
    text = """graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %p, %q : Tensor = prim::Loop(%n, %true, %x, %x)
    block0(%i : int, %a, %b):
      %l : Tensor[] = prim::ListConstruct(%a, %a)
      %d = aten::cat(%l, %zero)
      %e = aten::relu(%b)
      -> (%true, %d, %e)
  return (%p, %q)"""
    graph, width = parse_ir(text), random.randrange(2, 9)
    _C._jit_pass_complete_shape_analysis(graph, (weft.ones(4, width), 2), False)
    one, two = [value.type() for value in graph.outputs()]
    assert one.sizes() is None
    assert two.sizes() == [4, width]
    _C._jit_pass_erase_shape_information(graph)
    assert {value.type().str() for value in graph.outputs()} == {"Tensor"}


class Function:
    """A program that others call."""

    def __init__(self, text):
        self.graph = parse_ir(text)


def calling(function):
    """A graph that calls a function on its input, twice."""
    graph = _C.Graph()
    value = graph.addInput("x")
    for _ in range(2):
        callee = graph.appendNode(graph.create("prim::Constant"))
        callee.output().setType(FunctionType(function))
        value = graph.appendNode(graph.create("prim::CallFunction", [callee.output(), value])).output()
    graph.registerOutput(value)
    return graph


def test_calls_are_inlined():
    inner = Function("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)")
    outer = Function("graph(%x : Tensor):\n  %y : Tensor = aten::neg(%x)\n  return (%y)")
    outer.graph.eraseOutput(0)
    with outer.graph.insert_point_guard(outer.graph.return_node()):
        (result,) = outer.graph.insertGraph(calling(inner), [next(outer.graph.nodes()).output()])
    outer.graph.registerOutput(result)
    graph = calling(outer)
    _C._jit_pass_inline(graph)
    _C._jit_pass_dce(graph)
    graph.lint()
    assert [node.kind() for node in graph.nodes()] == ["aten::neg", "aten::relu", "aten::relu"] * 2
    array = np.random.default_rng(random.getrandbits(32)).uniform(-1, 1, 5)
    (given,) = run(Code(graph), [weft.tensor(array)])
    np.testing.assert_array_equal(given.numpy(), np.maximum(-np.maximum(-array, 0), 0))


class Counted(ClassType):
    """A class of programs with a method."""

    method = Function("graph(%self : Tensor, %x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)")

    def find_method(self, name):
        return self.method if name == "forward" else None


def test_methods_are_inlined():
    graph = _C.Graph()
    owner, value = graph.addInput("self"), graph.addInput("x")
    owner.setType(Counted("own.Counted"))
    for name in ("forward", "other"):
        node = graph.appendNode(graph.create("prim::CallMethod", [owner, value]).s_("name", name))
        graph.registerOutput(node.output())
    _C._jit_pass_inline(graph)
    graph.lint()
    assert [node.kind() for node in graph.nodes()] == ["aten::relu", "prim::CallMethod"]


def test_a_function_that_calls_itself_is_not_inlined():
    function = Function("graph(%x : Tensor):\n  return (%x)")
    function.graph = calling(function)
    with pytest.raises(RunError, match="calls itself"):
        _C._jit_pass_inline(calling(function))


def test_forks_are_run_where_they_are():
    graph = _C.Graph()
    value = graph.addInput("x")
    fork = graph.appendNode(graph.create("prim::fork", [value]))
    fork.g_("Subgraph", parse_ir("graph(%y : Tensor):\n  %z : Tensor = aten::relu(%y)\n  return (%z)"))
    wait = graph.appendNode(graph.create("aten::wait", [fork.output()]))
    graph.registerOutput(wait.output())
    kept = graph.copy()
    kept.registerOutput(kept.findNode("prim::fork").output())
    for each, kinds in ((graph, ["aten::relu"]), (kept, ["prim::fork", "aten::wait"])):
        _C._jit_pass_inline_fork_wait(each)
        each.lint()
        assert [node.kind() for node in each.nodes()] == kinds


TUPLES = """graph(%x : Tensor, %t : (Tensor, (int, Tensor)), %c : bool, %n : int):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %k : (int, (int, int)) = prim::Constant[value=(1, (2, 3))]()
  %1 : Tensor, %2 : (int, Tensor) = prim::TupleUnpack(%t)
  %3 : int, %4 : Tensor = prim::TupleUnpack(%2)
  %5 = aten::add(%1, %4, %3)
  %q : (Tensor, Tensor) = prim::TupleConstruct(%5, %x)
  %r : (Tensor, Tensor) = prim::If(%c)
    block0():
      -> (%q)
    block1():
      %s : (Tensor, Tensor) = prim::TupleConstruct(%x, %4)
      -> (%s)
  %w : (Tensor, Tensor) = prim::Loop(%n, %true, %r)
    block0(%i : int, %v : (Tensor, Tensor)):
      %a : Tensor = prim::TupleIndex(%v, %zero)
      %b = aten::relu(%a)
      %d : (Tensor, Tensor) = prim::TupleConstruct(%b, %a)
      -> (%true, %d)
  return (%w, %t)"""


def test_no_tuple_is_left():
    text = TUPLES.replace("  %k : (int, (int, int)) = prim::Constant[value=(1, (2, 3))]()\n", "")
    ours, theirs = ran(_C, "lower_all_tuples", text), ran(oracle("torch")._C, "lower_all_tuples", text)
    assert ours == theirs
    with pytest.raises(RunError, match="does not forward tuples"):
        _C._jit_pass_lower_all_tuples(
            parse_ir("graph(%t : (int, int)):\n  %l : (int, int)[] = prim::ListConstruct(%t)\n  return (%l)")
        )


def test_simple_tuples_are_read_where_they_are_made():
    body = "%t : (Tensor, int) = prim::TupleConstruct(%y, %i)\n%a : Tensor, %b : int = prim::TupleUnpack(%t)"
    graph = check("lower_simple_tuples", body, "%a, %b")
    assert [value.debugName() for value in graph.outputs()] == ["y", "i"]


def test_patterns_are_replaced():
    body = (
        "%a = aten::mul(%y, %z)\n%b = aten::relu(%a)\n%d = aten::mul(%b, %b)\n%e = aten::relu(%d)\n%g = aten::tanh(%d)"
    )
    pattern = "graph(%p, %q):\n  %r = aten::mul(%p, %q)\n  %s = aten::relu(%r)\n  return (%s)"
    replacement = "graph(%p, %q):\n  %s = own::mul_relu(%q, %p)\n  return (%s)"
    text = program(body, "%e, %g")
    kinds = []
    for core in (_C, oracle("torch")._C):
        graph = core.parse_ir(text)
        core._jit_pass_custom_pattern_based_rewrite_graph(pattern, replacement, graph)
        graph.lint()
        kinds.append([node.kind() for node in graph.nodes() if node.kind() != "prim::Constant"])
    assert kinds[0] == kinds[1] == ["own::mul_relu", "aten::mul", "aten::relu", "aten::tanh"]
    with pytest.raises(RunError, match="gives an input"):
        _C._jit_pass_custom_pattern_based_rewrite_graph("graph(%p):\n  return (%p)", replacement, parse_ir(text))


def test_patterns_have_the_constants_that_they_name():
    pattern = "graph(%p):\n  %k : int = prim::Constant[value=1]()\n  %r = aten::softmax(%p, %k, %k)\n  return (%r)"
    replacement = "graph(%p):\n  %s = own::soft(%p)\n  return (%s)"
    graph = parse_ir(program("%a = aten::softmax(%y, %one, %one)\n%b = aten::softmax(%y, %zero, %one)", "%a, %b"))
    _C._jit_pass_custom_pattern_based_rewrite_graph(pattern, replacement, graph)
    assert sorted(node.kind() for node in graph.nodes() if node.inputsSize()) == ["aten::softmax", "own::soft"]


def test_linear_layers_are_found():
    body = """
%t = aten::t(%z)
%a = aten::matmul(%y, %t)
%b = aten::add_(%a, %x, %one)
%s = aten::t(%z)
%d = aten::addmm(%x, %b, %s, %one, %one)
%r = aten::t(%z)
%e = aten::matmul(%d, %r)
"""
    kinds = [node.kind() for node in check("fuse_linear", body, "%e").nodes() if node.kind() != "prim::Constant"]
    assert kinds == ["aten::linear"] * 3


def test_sums_of_products_become_one_product():
    shapes = random.choice(range(2, 5)), random.choice(range(2, 5)), random.choice(range(2, 5))
    rows, inner, columns = shapes
    left, right, given = f"Float({rows}, {inner})", f"Float({inner}, {columns})", f"Float({rows}, {columns})"
    text = f"""graph(%a : {left}, %b : {left}, %p : {right}, %q : {right}):
  %one : int = prim::Constant[value=1]()
  %1 : {given} = aten::mm(%a, %p)
  %2 : {given} = aten::mm(%b, %q)
  %3 : {given} = aten::add(%1, %2, %one)
  %4 : {given} = aten::mm(%a, %q)
  %5 : {given} = aten::add(%4, %3, %one)
  %6 : {given} = aten::mm(%b, %p)
  %7 : {given} = aten::add(%5, %6, %one)
  return (%7)"""
    graph = parse_ir(text)
    _C._jit_pass_batch_mm(graph)
    graph.lint()
    assert len(graph.findAllNodes("aten::mm")) == 1
    chooser = np.random.default_rng(random.getrandbits(32))
    a, b = (chooser.normal(size=(rows, inner)) for _ in range(2))
    p, q = (chooser.normal(size=(inner, columns)) for _ in range(2))
    (total,) = run(Code(graph), [weft.tensor(each) for each in (a, b, p, q)])
    np.testing.assert_allclose(total.numpy(), (a + b) @ (p + q), rtol=1e-9, atol=1e-12)


def test_products_with_a_sum_become_one_operator():
    text = """graph(%x : Float(2, 3), %w : Float(3, 4), %b : Float(4), %d : Float(5, 2, 4)):
  %one : int = prim::Constant[value=1]()
  %m : Float(2, 4) = aten::mm(%x, %w)
  %a : Float(2, 4) = aten::add(%b, %m, %one)
  %n : Float(2, 4) = aten::mm(%x, %w)
  %e : Float(5, 2, 4) = aten::add(%n, %d, %one)
  return (%a, %e)"""
    graph = parse_ir(text)
    assert _C._jit_pass_fuse_addmm(graph)
    graph.lint()
    assert [node.kind() for node in graph.nodes() if node.kind() != "prim::Constant"] == [
        "aten::addmm",
        "aten::mm",
        "aten::add",
    ]
    assert not _C._jit_pass_fuse_addmm(graph)


def test_peephole_rewrites_that_pytorch_leaves_to_others():
    body = """
%a : bool = aten::__is__(%none, %none)
%b : bool = aten::__not__(%c)
%d : bool = aten::__not__(%b)
%e : int[] = aten::size(%z)
%g : int = aten::len(%e)
%m : int[] = prim::Constant[value=[4, 2, 3]]()
%h = aten::expand(%x, %l, %c)
%k = aten::expand(%h, %m, %c)
%n : bool = prim::If(%c)
  block0():
    %p : bool = prim::Constant[value=1]()
    -> (%p)
  block1():
    %q : bool = prim::Constant[value=0]()
    -> (%q)
%r = aten::add(%z, %zero, %one)
%s = aten::relu(%r)
"""
    graph = check("peephole", body, "%a, %d, %g, %k, %n, %s")
    outputs = list(graph.outputs())
    assert [outputs[0].toIValue(), outputs[2].toIValue()] == [True, 2]
    assert [outputs[place].debugName() for place in (1, 4)] == ["c", "c"]
    assert outputs[3].node().inputsAt(0).debugName() == "x"
    assert outputs[5].node().inputsAt(0).debugName() == "z"


def test_bools_times_one_are_no_bools():
    text = "graph(%x : Bool(2)):\n  %n : int = prim::Constant[value=1]()\n  %y = aten::mul(%x, %n)\n  return (%y)"
    graph = parse_ir(text)
    assert not _C._jit_pass_peephole(graph)
    assert graph.findNode("aten::mul") is not None


def test_what_stands_for_a_written_tensor_is_shared_as_that_was():
    graph = parse_ir("""graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::neg_(%a)
  %list : Tensor[] = prim::ListConstruct(%b)
  %c : Tensor = aten::neg_(%b)
  return (%list)""")
    assert _C._jit_pass_remove_mutation(graph)
    assert [node.kind() for node in graph.nodes()][-1] == "aten::neg_"
    array = np.random.default_rng(0).uniform(-1, 1, 5)
    ((made,),) = run(Code(graph), [weft.tensor(array)])
    np.testing.assert_array_equal(made.numpy(), np.maximum(array, 0))
