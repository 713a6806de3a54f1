"""What `weft.jit.trace` takes down: the same graphs as PyTorch's, programs that run, and files that PyTorch opens."""

import difflib
import io
import re
import warnings

import numpy as np
import pytest
from traced_functions import CASES

import weft

RNG = np.random.default_rng()


def bound(function, library, count):
    """A function of one library, with the names of its parameters."""
    names = ", ".join("xyz"[:count])
    return eval(
        f"lambda {names}: function(library, {names})", {"function": function, "library": library, "__name__": "t"}
    )


def text(graph, library):
    """A graph as text: values are numbered in order, and strides of axes of one element are anybody's."""
    names = {}
    found = re.sub(r"%[\w.]+", lambda found: names.setdefault(found[0], f"%{len(names)}"), graph.str(False))
    found = re.sub(r"___torch_mangle_\d+\.", "", re.sub(r", strides=\[[^\]]*\]", "", found))
    return found.replace(f"__torch__.{library.__name__}.", "__torch__.")


def flat(value):
    if isinstance(value, (tuple, list)):
        return [item for each in value for item in flat(each)]
    return [value.detach().numpy()]


def check_equal(found, wanted):
    for one, other in zip(flat(found), flat(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_traces_are_those_of_pytorch(torch, name):
    function, shapes = CASES[name]
    arrays = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    there = torch.jit.trace(
        bound(function, torch, len(arrays)), [torch.from_numpy(each.copy()) for each in arrays], check_trace=False
    )
    ours = weft.jit.trace(bound(function, weft, len(arrays)), [weft.from_numpy(each.copy()) for each in arrays])
    wanted, found = text(there.graph, torch).splitlines(), text(ours.graph, weft).splitlines()
    assert found == wanted, "\n".join(difflib.unified_diff(wanted, found, lineterm="", n=1))
    others = [RNG.standard_normal(shape).astype("float32") for shape in shapes]
    if name == "parts":
        others = arrays
    check_equal(
        ours(*[weft.from_numpy(each.copy()) for each in others]),
        there(*[torch.from_numpy(each.copy()) for each in others]),
    )


NETWORKS = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)
    def forward(self, x):
        return self.act(self.norm(self.conv(x))) + x

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, 5)
    def forward(self, x):
        x = self.pool(self.blocks(self.stem(x)))
        return self.head(x.view(x.size(0), -1))

class Inverted(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.BatchNorm2d(6), nn.Hardswish())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 6, 1), nn.Hardsigmoid())
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(6, 5)
    def forward(self, x):
        x = self.depth(self.expand(x))
        x = x * self.gate(x)
        return self.head(self.drop(x.mean([2, 3])))

class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3 + 2 * i, 2, 3, padding=1) for i in range(3)])
        self.act = nn.ReLU()
        self.head = nn.Linear(9, 5)
    def forward(self, x):
        found = [x]
        for layer in self.layers:
            found.append(self.act(layer(T.cat(found, 1))))
        x = nn.functional.adaptive_avg_pool2d(T.cat(found, 1), (1, 1))
        return self.head(T.flatten(x, 1))
"""


def networks(torch, name, source=NETWORKS):
    """A network of both libraries with the same parameters."""
    made = {}
    for library in (torch, weft):
        names = {"T": library, "nn": library.nn, "__name__": "networks"}
        exec(source, names)
        made[library] = names[name]().eval()
    state = {key: weft.from_numpy(np.array(value)) for key, value in made[torch].state_dict().items()}
    made[weft].load_state_dict(state)
    return made[torch], made[weft]


def saved(module):
    file = io.BytesIO()
    module.save(file)
    return io.BytesIO(file.getvalue())


@pytest.mark.parametrize("name", ["Residual", "Inverted", "Dense"])
def test_traced_networks_go_both_ways(torch, name):
    theirs, ours = networks(torch, name)
    x, other = (RNG.standard_normal((n, 3, 16, 16)).astype("float32") for n in (2, 3))
    there = torch.jit.trace(theirs, torch.from_numpy(x))
    here = weft.jit.trace(ours, weft.from_numpy(x))
    wanted = theirs(torch.from_numpy(other))
    check_equal(here(weft.from_numpy(other)), wanted)
    check_equal(torch.jit.load(saved(here))(torch.from_numpy(other)), wanted)
    file = io.BytesIO()
    torch.jit.save(there, file)
    check_equal(weft.jit.load(io.BytesIO(file.getvalue()))(weft.from_numpy(other)), wanted)
    check_equal(weft.jit.load(saved(here))(weft.from_numpy(other)), wanted)
    assert [name for name, _ in here.named_parameters()] == [name for name, _ in there.named_parameters()]
    kinds = [node.kind() for node in there.inlined_graph.nodes() if node.kind().startswith("aten::")]
    renamed = ["aten::conv2d" if kind == "aten::_convolution" else kind for kind in kinds]
    assert [node.kind() for node in here.inlined_graph.nodes() if node.kind().startswith("aten::")] == renamed


SHARED = """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.act = nn.Tanh()
    def forward(self, x):
        return self.act(self.fc(x)) + x, x * 2

class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.act, self.scale = Inner(), nn.ReLU(), nn.Parameter(T.ones(3) * 1.5)
        self.register_buffer("shift", T.ones(3))
    def forward(self, x):
        y, z = self.inner(x)
        y = self.act(y) * self.scale + self.shift
        return self.act(y), z
"""


def test_graphs_of_modules_are_those_of_pytorch(torch):
    theirs, ours = networks(torch, "Shared", SHARED)
    x = RNG.standard_normal((2, 3)).astype("float32")
    there, here = torch.jit.trace(theirs, torch.from_numpy(x)), weft.jit.trace(ours, weft.from_numpy(x))
    for name in ("", "inner", "inner.fc", "act"):
        one, other = (each.get_submodule(name) for each in (here, there))
        assert text(one.graph, weft) == text(other.graph, torch), name
        assert str(one).replace("weft", "torch") == str(other)
    assert text(here.act.forward1.graph, weft) == text(there.act.forward1.graph, torch)
    assert re.findall(r"scope: \S+", here.inlined_graph.str()) == [
        f"scope: __module.{each}"
        for each in (
            "inner/__module.inner.fc",
            "inner/__module.inner.act",
            "inner",
            "inner",
            "inner",
            "inner",
            "act",
            "act",
        )
    ]
    assert "(act).forward1(" in here.code


def test_values_of_tensors_are_warned_of(torch):
    def branching(x):
        return x + 1 if x.sum() > 0 else x - 1

    def looping(x):
        return sum(row for row in x) * len(x) * int(x[0, 0]) * float(x[0, 0]) * x[0, 0].item()

    for function in (branching, looping):
        said = []
        for library in (torch, weft):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                library.jit.trace(function, library.ones(2, 3), check_trace=False)
            said.append([str(each.message) for each in found if "TracerWarning" in each.category.__name__])
            assert all(each.filename == __file__ for each in found if library is weft)
        assert said[0] == said[1]


def test_the_trace_is_checked():
    drop = weft.nn.functional.dropout
    with pytest.warns(weft.jit.TracerWarning) as found:
        weft.jit.trace(lambda x: drop(x, 0.5), weft.ones(64))
    said = [str(each.message) for each in found]
    assert any("nondeterministic nodes" in each for each in said)
    assert any("Output nr 1. of the traced function does not match" in each for each in said)
    calls = []

    def growing(x):
        calls.append(x)
        return x * len(calls)

    with pytest.raises(weft.jit.TracingCheckError, match="Graphs differed across invocations"):
        weft.jit.trace(growing, weft.ones(2))


def test_what_cannot_be_traced_is_told(torch):
    for library in (torch, weft):
        layer = library.nn.Linear(3, 3)
        for function, why in [
            (lambda x: {"a": x}, "Encountering a dict at the output"),
            (lambda x: 3, "Only tensors, lists, tuples of tensors"),
            (lambda x, layer=layer: layer(x), "requires grad as a constant"),
        ]:
            with pytest.raises(RuntimeError, match=why):
                library.jit.trace(function, library.ones(2, 3), check_trace=False)
        assert list(library.jit.trace(lambda x: {"a": x * 2}, library.ones(2), strict=False)(library.ones(2))) == ["a"]
    with pytest.raises(weft.Error, match="no operator of programs"):
        weft.jit.trace(lambda x: weft.unique(x), weft.ones(3), check_trace=False)
    with pytest.raises(weft.Error, match="no operator of programs"):
        weft.jit.trace(
            lambda x: weft.autograd.grad((x * x).sum(), x)[0] + 1, weft.ones(3, requires_grad=True), check_trace=False
        )


def test_nested_inputs_and_outputs(torch):
    def function(pair, items):
        return (pair[0] * items[0], [pair[1], items[1] - 1])

    for library in (torch, weft):
        a, b = library.ones(2), library.ones(2) * 3
        traced = library.jit.trace(function, ((a, b), [a, b]), strict=False)
        found = traced((b, a), [b, a])
        assert [each.tolist() for each in (found[0], *found[1])] == [[9.0, 9.0], [1.0, 1.0], [0.0, 0.0]]
    assert [node.kind() for node in traced.graph.nodes()][:2] == ["prim::TupleUnpack", "prim::ListUnpack"]


def test_programs_and_traces_call_each_other(torch):
    x = RNG.standard_normal((2, 3)).astype("float32")
    found = []
    for library in (torch, weft):
        unit = library.jit.CompilationUnit(
            """
def repeated(x: Tensor, count: int) -> Tensor:
    for i in range(count):
        x = x * 2 + i
    return x
"""
        )
        traced = library.jit.trace(lambda x, unit=unit: unit.repeated(x.relu(), 3) - 1, library.ones(2, 3))
        found.append(traced(library.from_numpy(x)))
        assert [node.kind() for node in traced.graph.nodes() if "Call" in node.kind()] == ["prim::CallFunction"]
    check_equal(found[1], found[0])
    check_equal(torch.jit.load(saved(traced))(torch.from_numpy(x)), found[0])
    scripted = weft.jit.script(outer)
    check_equal(scripted(weft.from_numpy(x)), np_like(x))


HALVED = weft.jit.trace(lambda x: x / 2, weft.ones(1))


def outer(x):
    return HALVED(x) + HALVED(x)


def np_like(x):
    return weft.from_numpy(x)


def test_methods_of_modules(torch):
    class Scaled(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = weft.nn.Parameter(weft.tensor([2.0, 4.0]))

        def forward(self, x):
            return x * self.factor

        def inverse(self, x):
            return x / self.factor

    traced = weft.jit.trace_module(Scaled(), {"forward": weft.ones(2), "inverse": weft.ones(2)})
    there = torch.jit.load(saved(traced))
    assert there.inverse(torch.tensor([4.0, 4.0])).tolist() == [2.0, 1.0]
    assert traced.inverse(traced(weft.tensor([3.0, 5.0]))).tolist() == [3.0, 5.0]
    with weft.no_grad():
        traced.factor.mul_(2)
    assert traced(weft.ones(2)).tolist() == [4.0, 8.0]


def test_the_state_of_a_trace():
    assert weft._C._get_tracing_state() is None
    assert not weft.jit.is_tracing()
    seen = []

    def function(x):
        y = x * 2
        state = weft._C._get_tracing_state()
        seen.append((weft.jit.is_tracing(), str(state), state.graph().findNode("aten::mul").kind()))
        return y

    graph, result = weft._C._create_graph_by_tracing(function, (weft.ones(2),), None)
    traced, text_then, kind = seen[0]
    assert traced
    assert "aten::mul" in text_then
    assert kind == [node.kind() for node in graph.nodes()][-1] == "aten::mul"
    assert result.tolist() == [2.0, 2.0]
    executor = weft._C.GraphExecutor(function, (weft.ones(2),), lambda name: name)
    assert executor(weft.tensor([1.0, 3.0])).tolist() == [2.0, 6.0]
    assert executor.graph.findNode("aten::mul") is not None
    assert weft._C._get_tracing_state() is None
