"""Passes cost time in proportion to the graph, and bear blocks in blocks: calls of functions are counted, not time."""

import sys

import pytest

from weft import _C
from weft._C import Graph, parse_ir
from weft.jit.types import BoolType, IntType

SMALL = 300
PASSES = (
    "dce dce_graph cse constant_pooling constant_propagation peephole lower_simple_tuples lower_all_tuples "
    "remove_mutation remove_inplace_ops erase_shape_information erase_number_types canonicalize fuse "
    "create_autodiff_subgraphs "
    "batch_mm loop_unrolling decompose_ops fuse_addmm fuse_linear lint canonicalize_ops specialize_autogradzero inline"
).split()


def chain(count):
    """Nodes that read each other, constants between them, half of it dead or done twice."""
    lines, last = [], "%x"
    for number in range(count // 5):
        lines += [
            f"%c{number} : int = prim::Constant[value={number % 7}]()",
            f"%a{number} : Tensor = aten::add({last}, %x, %c{number})",
            f"%b{number} : Tensor = aten::add({last}, %x, %c{number})",
            f"%t{number} : Tensor = aten::t(%a{number})",
            f"%d{number} : Tensor = aten::mul(%t{number}, %b{number})",
        ]
        last = f"%d{number}"
    return lines, last


def written(count):
    """Writes to one tensor, and to others; lists that grow."""
    lines = [
        "%o : int = prim::Constant[value=1]()",
        "%l : Tensor[] = prim::ListConstruct()",
        "%z : Tensor = aten::relu(%x)",
    ]
    for number in range(count // 4):
        lines += [
            f"%a{number} : Tensor = aten::relu(%x)",
            f"%b{number} : Tensor = aten::add_(%a{number}, %x, %o)",
            f"%d{number} : Tensor = aten::mul_(%z, %a{number})",
            f"%e{number} : Tensor[] = aten::append(%l, %b{number})",
        ]
    return lines, "%z"


def branches(count):
    """Branches one after the other, each of what came before."""
    lines, last = [], "%x"
    for number in range(count // 5):
        lines += [
            f"%p{number} : Tensor = prim::If(%c)",
            "  block0():",
            f"    %a{number} : Tensor = aten::relu({last})",
            f"    %b{number} : Tensor = aten::relu({last})",
            f"    %d{number} : Tensor = aten::mul(%a{number}, %b{number})",
            f"    -> (%d{number})",
            "  block1():",
            f"    -> ({last})",
        ]
        last = f"%p{number}"
    return lines, last


def tuples(count):
    lines, last = [], "%x"
    for number in range(count // 4):
        lines += [
            f"%t{number} : (Tensor, Tensor) = prim::TupleConstruct({last}, %x)",
            f"%a{number} : Tensor, %b{number} : Tensor = prim::TupleUnpack(%t{number})",
            f"%l{number} : Tensor[] = prim::ListConstruct(%a{number}, %b{number})",
            f"%d{number} : Tensor, %e{number} : Tensor = prim::ListUnpack(%l{number})",
        ]
        last = f"%e{number}"
    return lines, last


def graph_of(family, count):
    lines, last = family(count)
    return parse_ir(
        "graph(%x : Tensor, %c : bool):\n" + "".join([f"  {line}\n" for line in lines]) + f"  return ({last})\n"
    )


def calls(function, *args):
    """How many functions are called, of Python or not."""
    count = 0

    def tell(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(tell)
    try:
        function(*args)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("family", [chain, written, branches, tuples])
@pytest.mark.parametrize("name", PASSES)
def test_twice_the_nodes_are_twice_the_work(name, family):
    run = getattr(_C, f"_jit_pass_{name}")
    run(graph_of(family, SMALL))  # what is read once is read
    small, large = (calls(run, graph_of(family, SMALL * times)) for times in (1, 4))
    assert large < 4.6 * small + 2000


def nested(depth):
    """Branches and loops in each other."""
    graph = Graph()
    tensor, condition, turns = graph.addInput("x"), graph.addInput("c"), graph.addInput("n")
    condition.setType(BoolType.get())
    turns.setType(IntType.get())
    block = graph.block()
    results = []
    for level in range(depth):
        kind, inputs = ("prim::Loop", [turns, condition, tensor]) if level % 2 else ("prim::If", [condition])
        node = graph.create(kind, inputs).insertBefore(block.returnNode())
        blocks = [node.addBlock() for _ in range(1 if level % 2 else 2)]
        if level % 2:
            blocks[0].addInputToBlock().setType(IntType.get())
            blocks[0].addInputToBlock()
            blocks[0].registerOutput(condition)
        else:
            blocks[1].registerOutput(tensor)
        results.append((block, node.output()))
        block = blocks[0]
    for inner, value in reversed(results):
        inner.registerOutput(value)
    block.registerOutput(block.addNode("aten::relu", [tensor]).output())
    return graph


@pytest.mark.parametrize("name", PASSES)
def test_deep_graphs_are_no_deep_calls(name):
    graph = nested(3000)
    getattr(_C, f"_jit_pass_{name}")(graph)
    graph.lint()
    assert graph.findNode("aten::relu") is not None


def test_many_nodes_may_be_put_first():
    graph = Graph()
    graph.registerOutput(graph.addInput("x"))
    for _ in range(3000):
        graph.prependNode(graph.create("prim::Constant"))
    order = [node._position for node in graph.nodes()]
    assert order == sorted(set(order))
    middle = list(graph.nodes())[1500]
    for _ in range(200):
        graph.create("prim::Constant").insertBefore(middle)
        graph.create("prim::Constant").insertAfter(middle)
    order = [node._position for node in graph.nodes()]
    assert order == sorted(set(order))
