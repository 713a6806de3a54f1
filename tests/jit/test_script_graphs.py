"""Programs as graphs of the core: branches and loops that values decide are operators with subgraphs, which run as
native code and as ONNX files, and give what PyTorch's programs give, whichever way they go."""

import io

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import nn
from weft.core.ir import topo_order

# name: (source of f, arguments that go each way, operators of ONNX that the file has)
PROGRAMS = {
    "if": (
        """
def f(x: Tensor):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y
""",
        [([1, 2],), ([-1, -2],)],
        {"If"},
    ),
    "nested ifs and numbers": (
        """
def f(x: Tensor):
    k = 1
    scale = 0.5
    if x.sum() > 0:
        if bool(x.max() > 3) and not bool(x.min() > 2):
            k = 7
            x = x / 2
        else:
            scale = float(x.max())
    elif x.sum() < -5:
        k = int(x.sum())
    return x * k + scale, torch.tensor(k)
""",
        [([1, 2],), ([1, 5],), ([3, 5],), ([-1, -2],), ([-4, -2],)],
        {"If"},
    ),
    "while": (
        """
def f(x: Tensor):
    while x.sum() < 10:
        x = x * 2 + 1
    return x
""",
        [([1, 2],), ([20, 2],), ([-1, 0.5],)],
        {"Loop"},
    ),
    "early exit of a range": (
        """
def f(x: Tensor, y: Tensor):
    total = x
    for i in range(6):
        total = total + y * i
        if total.max() > 4:
            break
    return total
""",
        [([1, 2], [1, 1]), ([9, 2], [1, 1]), ([0, 0], [-1, 0])],
        {"Loop"},
    ),
    "early return": (
        """
def f(x: Tensor):
    for i in range(5):
        if x.sum() > 9:
            return x - i
        x = x + 1
    return x * 3
""",
        [([5, 5],), ([0, 6],), ([-50, 0],)],
        {"If", "Loop"},
    ),
    "counters": (
        """
def f(x: Tensor):
    count = 0
    weight = 1.0
    while bool(x.abs().sum() > 1) and count < 8:
        x = x / 2
        count += 1
        weight = weight * 0.75 - 0.01
    return x * weight, torch.tensor(count), x + count // 2, count % 3 == 1
""",
        [([5, 5],), ([0, 0.5],), ([1e6, 0],), ([3, 1],)],
        {"Loop"},
    ),
    "a range by a value": (
        """
def f(x: Tensor):
    total = torch.zeros(2)
    for i in range(int(x.max())):
        if i % 2 == 0:
            total += x * i
        else:
            total -= 1
    return total
""",
        [([1, 2],), ([5, 3],), ([-1, 0],)],
        {"If", "Loop"},
    ),
    "rows until one is negative": (
        """
def f(x: Tensor):
    best = x[0]
    for i in range(x.size(0)):
        if bool(x[i].sum() < 0):
            break
        best = torch.maximum(best, x[i]) * 0.5 + best
    return best
""",
        [
            ([[1, 2], [3, 1], [-4, 1], [9, 9]],),
            ([[-1, -2], [3, 1], [4, 1], [9, 9]],),
            ([[1, 2], [3, 1], [4, 1], [9, 9]],),
        ],
        {"If", "Loop"},
    ),
    "loops in loops and calls": (
        """
def grown(x: Tensor, limit: float):
    while x.sum() < limit:
        x = x * 1.5
    return x

def f(x: Tensor, y: Tensor):
    n = 0
    while bool(n < 4) and bool(y.sum() < 30):
        y = grown(y, float(x.max()) + n)
        x = x + 1
        n += 1
    return x, y
""",
        [([1, 2], [1, 1]), ([30, 2], [1, 1]), ([1, 1], [40, 40])],
        {"Loop"},
    ),
    "writes in a branch": (
        """
def f(x: Tensor):
    y = x * 2
    row = y[0]
    if x.sum() > 0:
        y += 1
        row.mul_(3)
    else:
        y[1] = 7
    return y, row
""",
        [([1, 2],), ([-1, -2],)],
        {"If"},
    ),
    "constants with two names": (
        """
def f(x: Tensor):
    total = torch.zeros(2)
    same = total
    if x.sum() > 0:
        total += x
    count = torch.ones(2)
    while count.sum() < x.max():
        count += x.abs() + 1
    return total, same, count
""",
        [([1, 9],), ([-1, -2],), ([-10, 7],)],
        {"If", "Loop"},
    ),
    "lists, tuples and what Python decides": (
        """
def f(x: Tensor):
    parts = [x, x + 1]
    for i in range(3):
        parts.append(x * i)
    pair = (parts[0], 1)
    if x.sum() > 0:
        pair = (parts[3], 2)
        parts = [parts[1], parts[0]]
    else:
        parts = [parts[2], parts[4]]
    if len(parts) == 2:
        return torch.stack(parts), pair[0] * pair[1]
    return x, x
""",
        [([1, 2],), ([-1, -2],)],
        {"If"},
    ),
    "other dtypes": (
        """
def f(x: Tensor):
    k = x.to(torch.int64)
    n = int(k.sum())
    if n > 2:
        k = k + n
    while bool(k.min() < 0):
        k = k + 3
    return k, k * 0.5, x * n
""",
        [([1, 2],), ([-1, -2],), ([7, -2],)],
        {"If", "Loop"},
    ),
    "no branch": ("def f(x: Tensor):\n    return torch.relu(x) + x.size(0)\n", [([1, -2],)], set()),
}


@pytest.fixture
def torch():
    found = oracle("torch")
    found.manual_seed(3)
    return found


def program(source):
    return weft.jit.CompilationUnit(source, {"torch": weft}).f


def arrays(given):
    return [np.asarray(value, np.float32) for value in given]


def results(value):
    """What a program gives, as arrays in order."""
    values = value if isinstance(value, tuple) else (value,)
    return [np.asarray(each.detach().numpy() if hasattr(each, "detach") else each) for each in values]


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert np.shape(one) == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def compiled(program, given, names):
    model = program.model([weft.tensor(each) for each in given], names)
    return weft.compile(model, shape={name: each.shape for name, each in zip(names, given)})


def operators(graph, found=None):
    """The operators of a file, with those in its subgraphs."""
    found = set() if found is None else found
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                operators(attribute.g, found)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_graphs_and_files(torch, name):
    source, cases, wanted_operators = PROGRAMS[name]
    ours, theirs = program(source), torch.jit.CompilationUnit(source).f
    first = arrays(cases[-1])
    names = [f"x{number}" for number in range(len(first))]
    model = compiled(ours, first, names)
    file = weft.onnx.export(ours, tuple(weft.tensor(each) for each in first), input_names=names)
    assert wanted_operators <= operators(file.graph)
    session = oracle("onnxruntime").InferenceSession(file.SerializeToString())
    for case in cases:
        given = arrays(case)
        wanted = results(theirs(*[torch.tensor(each) for each in given]))
        feeds = dict(zip(names, given))
        same(model.run(feeds), wanted)
        same(session.run(None, feeds), wanted)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        for _ in range(3):
            if x.sum() > 0:
                x = self.two(self.one(x).relu())
            else:
                x = x.abs() + self.two.bias
        return x


def test_modules_have_their_parameters_by_name():
    scripted = weft.jit.script(Gated())
    symbol, params = scripted.model(weft.ones(2, 3), ["x"])
    assert {"one.weight", "one.bias", "two.weight", "two.bias"} <= params.keys()
    assert sum(node.op is not None and node.op.name == "cond" for node in topo_order(symbol.outputs)) == 3
    model = weft.compile((symbol, params), shape={"x": (2, 3)})
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(-1, 1, (2, 3)).astype("float32")
        same(model.run({"x": x}), results(Gated.forward(scripted, weft.tensor(x))))


def test_archives_of_pytorch_are_graphs(torch, tmp_path):
    class Settled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.register_buffer("limit", torch.tensor(0.05))

        def forward(self, x):
            turns = 0
            while bool(x.abs().max() > self.limit) and turns < 6:
                x = torch.tanh(self.linear(x)) * 0.5
                turns += 1
            if turns > 3:
                return x - 1
            return x

    module, file = torch.jit.script(Settled().eval()), io.BytesIO()
    torch.jit.save(module, file)
    loaded = weft.jit.load(io.BytesIO(file.getvalue()))
    rows = np.random.default_rng(1).normal(size=(4, 2, 3)).astype("float32") * np.float32(
        [[[3]], [[1e-3]], [[0]], [[1]]]
    )
    model = compiled(loaded, rows[:1], ["x"])
    path = tmp_path / "settled.onnx"
    weft.onnx.export(loaded, weft.tensor(rows[0]), path, input_names=["x"])
    session = oracle("onnxruntime").InferenceSession(str(path))
    for x in rows:
        wanted = results(module(torch.tensor(x)))
        same(model.run({"x": x}), wanted)
        same(session.run(None, {"x": x}), wanted)


def test_traces_are_graphs_the_same_way():
    layer = nn.Linear(3, 2)
    traced = weft.jit.trace(layer, weft.ones(1, 3))
    x = weft.randn(5, 3)
    model = weft.compile(traced.model(x, ["x"]), shape={"x": (5, 3)})
    same(model.run({"x": x.numpy()}), results(layer(x)))


def test_functions_of_python_may_call_programs():
    f = program(PROGRAMS["while"][0])
    file = weft.onnx.export(lambda x: f(x + 1).relu(), weft.ones(2))
    session = oracle("onnxruntime").InferenceSession(file.SerializeToString())
    x = np.float32([1, -0.5])
    same(session.run(None, {session.get_inputs()[0].name: x}), results(f(weft.tensor(x) + 1).relu()))


@pytest.mark.parametrize("name", ["if", "while", "early return", "a range by a value"])
def test_weft_compile_takes_programs(torch, name):
    source, cases, _ = PROGRAMS[name]
    made, theirs = weft.compile(program(source)), torch.jit.CompilationUnit(source).f
    for case in [*cases, *cases]:
        given = arrays(case)
        same(results(made(*map(weft.tensor, given))), results(theirs(*[torch.tensor(each) for each in given])))


def test_ways_of_other_lengths_are_ways_of_one_plan(torch):
    """What values decide may take a longer way first."""

    def doubled(x):
        while x.sum() < 10:
            x = x * 2 + 1
        return x

    made = weft.compile(doubled)
    for case in [[1, 2], [20, 2], [-1, 0.5], [1, 2], [30, 2], [-1, 0.5]]:
        same(results(made(weft.tensor(case).float())), results(doubled(torch.tensor(case).float())))


def test_compiled_functions_are_exported():
    layer = nn.Linear(3, 2)
    for made in (weft.compile(lambda x: layer(x)), weft.compile(layer)):
        file = weft.onnx.export(made, weft.ones(2, 3))
        session = oracle("onnxruntime").InferenceSession(file.SerializeToString())
        x = weft.randn(2, 3)
        same(session.run(None, {session.get_inputs()[0].name: x.numpy()}), results(layer(x)))


def test_files_name_inputs_as_programs_do():
    f = program("def f(left: Tensor, right: Tensor, factor: float = 2.0):\n    return left * factor + right\n")
    file = weft.onnx.export(f, (weft.ones(2), weft.ones(2)))
    assert [each.name for each in file.graph.input] == ["left", "right"]


def test_open_sizes_beside_branches():
    f = program(PROGRAMS["if"][0])
    file = weft.onnx.export(f, weft.ones(3), dynamic_axes={"x": {0: "n"}})
    session = oracle("onnxruntime").InferenceSession(file.SerializeToString())
    for x in (np.float32([1, 2, 3, 4]), np.float32([-1, -2])):
        same(session.run(None, {"x": x}), results(f(weft.tensor(x))))
    sized = program(
        "def f(x: Tensor):\n    if x.sum() > 0:\n        x = (x.view(1, x.size(0)) * 2).view(-1)\n    return x\n"
    )
    with pytest.raises(weft.Error, match="other things at other sizes"):
        weft.onnx.export(sized, weft.ones(3), dynamic_axes={"x": {0: "n"}})


# What no graph is.


# The line that is told, the reason, and the body of a function of x.
REFUSED = """
## 2 | their shapes differ
    if x.sum() > 0:
        x = x[:1]
    return x

## 2 | their dtypes differ
    if x.sum() > 0:
        return x.to(torch.int64)
    return x

## 4 | how many elements
    y = [x]
    if x.sum() > 0:
        y.append(x)
    return y[-1]

## 2 | their shapes differ
    while x.sum() > 0:
        x = torch.cat([x, x])
    return x

## 4 | how many elements
    y = [[x]]
    if x.sum() > 0:
        y[0].append(x)
    return y[0][-1]

## 3 | containers keep their sizes
    y = [x]
    while x.sum() > 0:
        y = y + [x]
    return y[0]

## 3 | computes values alone
    if x.sum() > 0:
        print(1)
    return x

## 3 | computes values alone
    if x.sum() > 0:
        raise ValueError('no')
    return x

## 3 | a graph has tensors and numbers
    y = 'a'
    if x.sum() > 0:
        y = 'b'
    return x, y

## 2 | known when the graph runs
    return x.view(int(x.sum()), -1)

## 4 | assigns to
    y = torch.zeros(2)
    while x.sum() > 0:
        y.add_(1)
        x = x - 1
    return y

## 5 | follows from values
    y = x
    if x.sum() > 0:
        y = x * 2
    y += 1
    return x

## 4 | own
    y = torch.zeros(2)
    z = y
    while x.sum() > 0:
        y += x
        x = x + z - 1
    return y

## 7 | values
    y = torch.zeros(2)
    z = y
    while x.sum() > 0:
        z = z + x
        x = x - 1
    y += 1
    return z

## 6 | follows from values
    y = torch.zeros(2)
    z = y
    if x.sum() > 0:
        z = x
    y += 1
    return z

## 2 | depends on values|may depend
    return x[x > 0]
"""


@pytest.mark.parametrize("case", REFUSED.split("\n## ")[1:], ids=lambda case: case.partition("\n")[0])
def test_what_is_no_graph_is_told_with_its_line(case):
    head, _, body = case.partition("\n")
    line, why = head.split(" | ")
    f = program(f"def f(x: Tensor):\n{body.rstrip()}\n")
    with pytest.raises(weft.Error, match=why) as told:
        f.model(weft.ones(2))
    assert told.value.where.partition(", ")[0] == f"<string>:{line}"


def test_subgraphs_are_not_nested_without_end():
    lines = [f"    elif x.sum() > {number}:\n        x = x + {number}\n" for number in range(60)]
    f = program("def f(x: Tensor):\n    if x.sum() > 99:\n        x = x - 1\n" + "".join(lines) + "    return x\n")
    with pytest.raises(weft.Error, match="nested more than"):
        f.model(weft.ones(2))


def test_example_inputs_are_checked():
    f = program("def f(x: Tensor, y: Tensor):\n    return x + y\n")
    with pytest.raises(weft.Error, match="tensor or a tuple"):
        f.model("x")
    x = weft.ones(2)
    with pytest.raises(weft.Error, match="given twice"):
        f.model((x, x))
