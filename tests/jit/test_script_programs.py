"""Programs that weft and PyTorch compile from the same source: what they give, and what they say is wrong."""

import random
import re
import warnings

import numpy as np
import pytest
from jit.script_cases import assert_same, drawn, function, given, plain, programs
from oracles import oracle

import weft
from weft.jit.parse import parse_ir

PROGRAMS = {program.name: program for program in programs()}
REJECTED = {program.name: program for program in programs("script_rejected.txt")}
DRAWS = 6  # random inputs of each program


@pytest.fixture
def rng():
    return np.random.default_rng(random.getrandbits(32))


def scripted(torch, source, file):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function(source, torch, file))


def outcome(torch, compiled, inputs):
    """What a program gives, or what it raises: the line that says what went wrong."""
    try:
        return plain(compiled(*[given(value, torch) for value in inputs])), None
    except Exception as error:
        lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
        return None, (lines[-1] if lines else str(error).strip())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_pytorch_gives(name, rng):
    program, torch = PROGRAMS[name], oracle("torch")
    theirs = scripted(torch, program.source, f"<{name}>")
    ours = scripted(weft, program.source, f"<{name}>")
    for _ in range(DRAWS):
        inputs = [drawn(kind, rng) for kind in program.inputs]
        expected, their_error = outcome(torch, theirs, inputs)
        found, our_error = outcome(weft, ours, inputs)
        assert our_error == their_error
        assert_same(found, expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_of_programs_are_what_their_text_says(name):
    graph = scripted(weft, PROGRAMS[name].source, f"<{name}>").graph
    graph.lint()
    text = str(graph)
    assert f"<{name}>:" in text or "aten::" not in text  # lines of the source
    bare = graph.str(print_source_ranges=False)
    assert "<" + name not in bare
    assert renumbered(str(parse_ir(text))) == renumbered(bare)


def renumbered(text):
    numbers = {}
    return re.sub(r"%(\d+)\b", lambda found: f"%{numbers.setdefault(found.group(1), len(numbers))}", text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_schemas_of_programs_are_those_of_pytorch(name):
    program, torch = PROGRAMS[name], oracle("torch")
    theirs = scripted(torch, program.source, f"<{name}>").schema
    assert str(scripted(weft, program.source, f"<{name}>").schema) == str(theirs)


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_wrong_with_a_program_is_said_as_by_pytorch(name):
    source, torch = REJECTED[name].source, oracle("torch")
    with pytest.raises(Exception) as theirs:
        scripted(torch, source, f"<{name}>")
    with pytest.raises(weft.base.errors.RunError) as ours:
        scripted(weft, source, f"<{name}>")
    expected, found = str(theirs.value).strip(), str(ours.value).strip()
    assert found.splitlines()[0].startswith(expected.splitlines()[0].rstrip(":"))
    places = [re.findall(r'File "(<\w+>)", line (\d+)', text) for text in (found, expected)]
    assert places[0] == places[1]


def test_a_place_is_marked_as_pytorch_marks_it():
    source, torch = "def f(x: int):\n    y = x\n    return (y +\n            foo(x))\n", oracle("torch")
    marked = []
    for library in (torch, weft):
        with pytest.raises(RuntimeError) as error:
            scripted(library, source, "<marked>")
        marked.append(str(error.value).strip())
    assert marked[1] == marked[0]


def test_names_that_are_meant_are_told():
    with pytest.raises(RuntimeError, match="Did you mean relu"):
        scripted(weft, "def f(x):\n    return x.relyu()\n", "<meant>")
    with pytest.raises(RuntimeError, match="Did you mean matmul"):
        scripted(weft, "def f(x):\n    return torch.matmull(x, x)\n", "<meant>")


def test_units_of_text(rng):
    source = "def g(x: int) -> int:\n    return x * 2\n\ndef f(x: int, y: int = 3) -> int:\n    return g(x) + y\n"
    torch = oracle("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.jit.CompilationUnit(source)
    ours = weft.jit.CompilationUnit(source)
    number = int(rng.integers(100))
    assert ours.f(number) == theirs.f(number)
    assert ours.f(number, y=5) == theirs.f(number, y=5)
    assert str(ours.f.schema) == str(theirs.f.schema)
    with pytest.raises(AttributeError):
        ours.h


def test_long_programs_and_deep_calls_are_no_problem(rng):
    lines = "".join([f"    if x == {number}:\n        return {number * 3}\n" for number in range(30)])
    many = scripted(weft, f"def f(x: int):\n{lines}    return -1\n", "<many>")
    number = int(rng.integers(30))
    assert (many(number), many(100)) == (number * 3, -1)
    terms = " + ".join(["x"] * 2000)
    assert scripted(weft, f"def f(x: int):\n    return {terms}\n", "<terms>")(2) == 4000
    chain = "def f0(x: int):\n    return x\n" + "".join(
        [f"def f{number}(x: int):\n    return f{number - 1}(x) + 1\n" for number in range(1, 400)]
    )
    assert scripted(weft, chain + "def f(x: int):\n    return f399(x)\n", "<chain>")(1) == 400
    lines = "".join([f"    if x == {number}:\n        return {number}\n" for number in range(900)])
    with pytest.raises(RuntimeError, match="nest"):
        scripted(weft, f"def f(x: int):\n{lines}    return -1\n", "<too many>")
    with pytest.raises(RuntimeError, match="levels of nesting"):
        scripted(weft, "def f(x: int):\n    return " + "-(" * 150 + "x" + ")" * 150 + "\n", "<nested>")


def test_functions_of_one_name_are_two(rng):
    one, two = (function(f"def f(x: int):\n    return x + {n}\n", weft, f"<one {n}>") for n in (1, 100))
    source = "def f(x: int):\n    return one(x), two(x)\n"
    caller = function(source, weft, "<caller>")
    caller.__globals__.update(one=one, two=two)
    number = int(rng.integers(1000))
    assert weft.jit.script(caller)(number) == (number + 1, number + 100)


def test_modes_are_left_however_a_block_is_left():
    source = """def f(x, n: int):
    for i in range(3):
        with torch.no_grad():
            y = x * 2
            if n == 1:
                break
            if n == 2:
                return y * 3
            if n == 3:
                raise ValueError("three")
            if n == 4:
                continue
            y = y + i
        x = x + y
    return x * 1
"""
    compiled, plain_function = scripted(weft, source, "<modes>"), function(source, weft, "<modes>")
    for number in range(5):
        x = weft.tensor([1.0, 2.0], requires_grad=True)
        if number == 3:
            with pytest.raises(weft.jit.JITException, match="three"):
                compiled(x, number)
        else:
            found, expected = compiled(x, number), plain_function(x, number)
            assert (found.tolist(), found.requires_grad) == (expected.tolist(), expected.requires_grad)
        assert weft.is_grad_enabled()


def test_graphs_for_arguments_are_improved(rng):
    source = "def g(x):\n    return x * 2\n\ndef f(x):\n    return g(x) + g(x)\n"
    compiled = scripted(weft, source, "<improved>")
    graph = compiled.graph_for(weft.tensor(rng.standard_normal(3)))
    kinds = [node.kind() for node in graph.nodes()]
    assert "prim::CallFunction" in [node.kind() for node in compiled.graph.nodes()]
    assert "prim::CallFunction" not in kinds
    assert kinds.count("aten::mul") + str(graph).count("FusionGroup") >= 1
    assert [node.kind() for node in compiled.inlined_graph.nodes()].count("aten::mul") == 2
    assert "torch.add" in compiled.code


def test_arrays_that_need_gradients_have_them(rng):
    compiled = scripted(
        weft, "def f(x):\n    y = x\n    for i in range(3):\n        y = y * x\n    return y.sum()\n", "<g>"
    )
    array = rng.standard_normal(5)
    x = weft.tensor(array, requires_grad=True)
    compiled(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), 4 * array**3, rtol=1e-6)
