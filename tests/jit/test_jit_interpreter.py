"""Graphs as instructions, and the interpreter that runs them."""

import random
import sys
import weakref

import numpy as np
import pytest

import weft
from weft.jit.graph import Graph
from weft.jit.parse import parse_ir
from weft.jit.run.code import Code
from weft.jit.run.interpreter import JITException, run
from weft.jit.types import FunctionType, IntType

LOOP = """
graph(%n : int, %x : Tensor):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %l : int[] = prim::ListConstruct()
  %s : int, %y : Tensor = prim::Loop(%n, %true, %zero, %x)
    block0(%i : int, %acc : int, %z : Tensor):
      %c : bool = aten::gt(%i, %one)
      %acc2 : int = prim::If(%c)
        block0():
          %a : int = aten::add(%acc, %i)
          -> (%a)
        block1():
          -> (%acc)
      %w : Tensor = aten::mul(%z, %z)
      %q : int[] = aten::append(%l, %i)
      -> (%true, %acc2, %w)
  return (%s, %y, %l)
"""


def test_loops_and_branches():
    turns = random.randrange(3, 7)
    array = np.random.default_rng(random.getrandbits(32)).uniform(0.5, 1, 5).astype("float32")
    total, tensor, turned = run(Code(parse_ir(LOOP)), [turns, weft.tensor(array)])
    assert total == sum(range(2, turns))
    assert turned == list(range(turns))
    np.testing.assert_allclose(tensor.numpy(), array ** (2**turns), rtol=1e-4)


def test_a_loop_ends_by_its_condition():
    code = Code(
        parse_ir("""
graph(%limit : int):
  %most : int = prim::Constant[value=9223372036854775807]()
  %zero : int = prim::Constant[value=0]()
  %three : int = prim::Constant[value=3]()
  %first : bool = aten::lt(%zero, %limit)
  %r : int = prim::Loop(%most, %first, %zero)
    block0(%i : int, %x : int):
      %y : int = aten::add(%x, %three)
      %on : bool = aten::lt(%y, %limit)
      -> (%on, %y)
  return (%r)
""")
    )
    limit = random.randrange(1, 50)
    assert run(code, [limit]) == [(limit + 2) // 3 * 3]
    assert run(code, [0]) == [0]


def test_the_text_of_code():
    text = str(Code(parse_ir(LOOP), "f"))
    assert text.startswith("f: 18 registers\n0 OP prim::Constant() = 2\n")
    assert "TURN(6, 0, 7) -> 19 = 10" in text
    assert "OP aten::mul(*9, *9) = 14" in text
    assert text.endswith("RETURN(*16, *17, *5)")


def test_memory_is_free_after_the_last_use():
    """While a later node runs, what an earlier one gave is gone."""
    seen = []
    graph = Graph()
    x = graph.addInput("x")
    function = graph.create("prim::Constant")
    watch = []

    def probe(tensor):
        seen.append([reference() is None for reference in watch])
        made = tensor * 2
        watch.append(weakref.ref(made))
        return made

    function.output().setType(FunctionType(probe))
    graph.appendNode(function)
    value = x
    for _ in range(4):
        value = graph.appendNode(graph.create("prim::CallFunction", [function.output(), value])).output()
        value = graph.appendNode(graph.create("aten::neg", [value])).output()
    graph.registerOutput(value)
    (result,) = run(Code(graph), [weft.ones(3)])
    assert seen == [[], [True], [True, True], [True, True, True]]
    assert result.tolist() == [16.0, 16.0, 16.0]


def test_a_graph_of_100000_nodes():
    graph = Graph()
    value = graph.addInput("n").setType(IntType.get())
    one = graph.insertConstant(1)
    for _ in range(100_000):
        value = graph.appendNode(graph.create("aten::add", [value, one])).output().setType(IntType.get())
    graph.registerOutput(value)
    assert run(Code(graph), [5]) == [100_005]


def test_blocks_in_blocks_need_no_stack_of_python():
    depth = sys.getrecursionlimit() * 2
    graph = Graph()
    condition = graph.insertConstant(True)
    number = graph.insertConstant(7)
    outer = node = graph.appendNode(graph.create("prim::If", [condition]))
    node.output().setType(IntType.get())
    for _ in range(depth):
        inner = graph.create("prim::If", [condition])
        inner.output().setType(IntType.get())
        first, second = node.addBlock(), node.addBlock()
        inner.insertBefore(first.returnNode())
        first.registerOutput(inner.output())
        second.registerOutput(number)
        node = inner
    for block in (node.addBlock(), node.addBlock()):
        block.registerOutput(number)
    graph.registerOutput(outer.output())
    assert run(Code(graph), []) == [7]


class Recursive:
    """A function of programs that calls itself: n + f(n - 1)."""

    def __init__(self):
        self.graph = parse_ir("""
graph(%f : Tensor, %n : int):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %end : bool = aten::le(%n, %zero)
  %r : int = prim::If(%end)
    block0():
      -> (%zero)
    block1():
      %m : int = aten::sub(%n, %one)
      %k : int = prim::CallFunction(%f, %f, %m)
      %s : int = aten::add(%n, %k)
      -> (%s)
  return (%r)
""")
        self.code = Code(self.graph, "f")

    def executable(self):
        return self.code


def test_calls_in_calls_need_no_stack_of_python():
    depth = 20_000
    function = Recursive()
    assert run(function.executable(), [function, depth]) == [depth * (depth + 1) // 2]


def test_subgraphs_of_nodes_run():
    inner = parse_ir(
        """
graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten::mul(%x, %y)
  %w : Tensor = aten::sub(%z, %y, %one)
  return (%z)
""".replace("  %w : Tensor = aten::sub(%z, %y, %one)\n", "")
    )
    graph = Graph()
    x = graph.addInput("x")
    node = graph.appendNode(graph.create("prim::DifferentiableGraph", [x, x]).g_("Subgraph", inner))
    graph.registerOutput(node.output())
    value = random.random()
    (result,) = run(Code(graph), [weft.tensor(value)])
    assert result.item() == pytest.approx(value * value)


class Box:
    """An object of programs."""

    def __init__(self):
        self.values = {"scale": 3.0}

    def get_attribute(self, name):
        return self.values[name]

    def set_attribute(self, name, value):
        self.values[name] = value

    def find_method(self, name):
        return {"scaled": lambda self, x: x * self.values["scale"]}[name]


def test_attributes_and_methods_of_objects():
    code = Code(
        parse_ir("""
graph(%self : Tensor, %x : Tensor):
  %a : float = prim::GetAttr[name="scale"](%self)
  %b : float = aten::add(%a, %a)
   = prim::SetAttr[name="scale"](%self, %b)
  %y : Tensor = prim::CallMethod[name="scaled"](%self, %x)
  return (%y)
""")
    )
    box = Box()
    (result,) = run(code, [box, weft.tensor([1.0, 2.0])])
    assert result.tolist() == [6.0, 12.0]
    assert box.values == {"scale": 6.0}


def test_constants_are_not_changed_by_a_run():
    code = Code(
        parse_ir("""
graph(%n : int):
  %l : int[] = prim::Constant[value=[1, 2]]()
  %m : int[] = aten::append(%l, %n)
  return (%l)
""")
    )
    assert run(code, [3]) == [[1, 2, 3]]
    assert run(code, [4]) == [[1, 2, 4]]


def test_structures():
    code = Code(
        parse_ir("""
graph(%a : int, %b : str):
  %t : (int, str) = prim::TupleConstruct(%a, %b)
  %x : int, %y : str = prim::TupleUnpack(%t)
  %d : Dict(str, int) = prim::DictConstruct(%b, %a)
  %v : int = aten::__getitem__(%d, %y)
  %is : bool = prim::isinstance[types=[int]](%v)
  %no : bool = prim::isinstance[types=[float, str]](%v)
  return (%t, %d, %v, %is, %no)
""")
    )
    assert run(code, [4, "k"]) == [(4, "k"), {"k": 4}, 4, True, False]


def test_print_writes_as_programs_do(capsys):
    code = Code(
        parse_ir("""
graph(%a : float, %b : str, %c : float[]):
   = prim::Print(%a, %b, %c)
  return ()
""")
    )
    assert run(code, [2.0, "it's", [0.1, 3.0]]) == []
    assert capsys.readouterr().out == "2. it's [0.10000000000000001, 3.]\n"


def test_an_exception_of_the_program(tmp_path):
    source = tmp_path / "program.py"
    source.write_text("def f(n):\n    if n:\n        raise ValueError('no')\n    return n\n")
    graph = parse_ir("""
graph(%n : int):
  %m : str = prim::Constant[value="no"]()
  %k : str = prim::Constant[value="builtins.ValueError"]()
   = prim::RaiseException(%m, %k)
  return (%n)
""")
    graph.findNode("prim::RaiseException")._source = f"{source}:3:8"
    with pytest.raises(JITException) as caught:
        run(Code(graph, "f"), [1])
    text = str(caught.value)
    assert text.startswith("The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript")
    assert f'File "{source}", line 3, in f\n' in text
    assert "        raise ValueError('no')\n        ~~~~~ <--- HERE\n    return n\n" in text
    assert text.endswith("builtins.ValueError: no\n")
    assert (caught.value.python_class_name, caught.value.original_message) == ("builtins.ValueError", "no")


def test_an_operator_that_fails_tells_where():
    graph = parse_ir("graph(%x : Tensor):\n  %y : Tensor = aten::mm(%x, %x)\n  return (%y)\n")
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        run(Code(graph, "g"), [weft.ones(2, 3)])
    assert "in g\n    %y : Tensor = aten::mm(%x, %x)\n" in str(caught.value)


def test_wrong_numbers_of_inputs_and_unknown_operators():
    graph = parse_ir("graph(%x : Tensor, %y : Tensor):\n  %z : Tensor = aten::mul(%x, %y)\n  return (%z)\n")
    with pytest.raises(RuntimeError, match="expected 2 inputs, but got 1"):
        run(Code(graph), [weft.ones(1)])
    with pytest.raises(RuntimeError, match=r"aten::nonsense has no overload for \(Tensor\)"):
        Code(parse_ir("graph(%x : Tensor):\n  %z : Tensor = aten::nonsense(%x)\n  return (%z)\n"))
    with pytest.raises(RuntimeError, match=r"aten::mul has no overload for \(Tensor\)[\s\S]*aten::mul.Tensor"):
        Code(parse_ir("graph(%x : Tensor):\n  %z : Tensor = aten::mul(%x)\n  return (%z)\n"))
