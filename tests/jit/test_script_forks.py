"""Forks, interfaces and overloads, and programs as they are deployed: of source, in archives of both libraries."""

import importlib.util
import io
import sys
import warnings

import numpy as np
import pytest
from oracles import oracle

import weft

RNG = np.random.default_rng()
SOURCE = """
from typing import Dict, List, Optional, Tuple
import torch
from torch import Tensor, nn


def scaled(x: Tensor, n: int) -> Tensor:
    return x * n


class Forking(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor, n: int):
        first = torch.jit.fork(self.linear, x)
        futures: List[torch.jit.Future[Tensor]] = []
        for i in range(n):
            futures.append(torch.jit.fork(scaled, x, i))
        total = torch.jit.wait(first)
        for each in futures:
            total = total + torch.jit.wait(each)
        return total


@torch.jit.interface
class Shape:
    def area(self, scale: float) -> float:
        pass


@torch.jit.script
class Square:
    def __init__(self, side: float):
        self.side = side

    def area(self, scale: float) -> float:
        return self.side * self.side * scale


@torch.jit.script
class Circle:
    def __init__(self, radius: float):
        self.radius = radius

    def area(self, scale: float) -> float:
        return 3.0 * self.radius * self.radius * scale


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Plus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Times(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Chosen(nn.Module):
    layer: Layer

    def __init__(self):
        super().__init__()
        self.layer = Plus()
        self.items = nn.ModuleList([Plus(), Times()])

    def forward(self, x: Tensor, n: int):
        for each in self.items:
            x = each(x)
        last: Layer = self.items[1]
        shapes: List[Shape] = [Square(2.0), Circle(float(n))]
        total = 0.0
        for shape in shapes:
            total += shape.area(2.0)
        return last.forward(self.layer.forward(x)) + total


class Whole(nn.Module):
    def forward(self, x: int) -> int:
        return x


class Misfit(nn.Module):
    layer: Layer

    def __init__(self):
        super().__init__()
        self.layer = Whole()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer.forward(x)


@torch.jit._overload
def doubled(x: int) -> int: ...
@torch.jit._overload
def doubled(x: str) -> str: ...
def doubled(x):
    return x + x


class Raised(nn.Module):
    @torch.jit._overload_method
    def forward(self, x: int) -> int: ...
    @torch.jit._overload_method
    def forward(self, x: Tensor) -> Tensor: ...
    def forward(self, x):
        return x + 1


class Overloading(nn.Module):
    def __init__(self):
        super().__init__()
        self.raised = Raised()

    def forward(self, x: Tensor, n: int):
        return self.raised(x), self.raised(n), doubled(n), len(doubled("ab"))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self.layers = nn.LSTM(4, 3, num_layers=2, bidirectional=True)

    def forward(self, x: Tensor, n: int):
        h = torch.zeros(x.size(0), 4)
        c = torch.zeros(x.size(0), 4)
        found: List[Tensor] = []
        step = 0
        while step < n and bool(h.sum() < 100):
            h, c = self.cell(x + step, (h, c))
            found.append(h)
            step += 1
        out, state = self.layers(torch.stack(found))
        return out, state[0], state[1]


def overlap(one: Tensor, others: Tensor) -> Tensor:
    left = torch.max(one[:2], others[:, :2])
    right = torch.min(one[2:], others[:, 2:])
    size = (right - left).clamp(min=0)
    common = size[:, 0] * size[:, 1]
    area = (one[2] - one[0]) * (one[3] - one[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    return common / (area + areas - common)


class Detections(nn.Module):
    def forward(self, x: Tensor, n: int):
        corner = x[:, :2].abs()
        boxes = torch.cat([corner, corner + x[:, 1:].abs() + 0.1], 1)
        scores = x.sum(1).sigmoid()
        kept: List[int] = []
        order = scores.argsort(descending=True)
        while order.numel() > 0 and len(kept) < n:
            best = int(order[0])
            kept.append(best)
            if order.numel() == 1:
                break
            rest = order[1:]
            order = rest[overlap(boxes[best], boxes[rest]) <= 0.3]
        keep = torch.tensor(kept, dtype=torch.int64)
        result: Dict[str, Tensor] = {"boxes": boxes[keep], "scores": scores[keep]}
        return result["boxes"], result["scores"], keep
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The same source as a module of each library."""
    folder = tmp_path_factory.mktemp("forks")

    def read(library):
        name = f"forks_of_{library}"
        file = folder / f"{name}.py"
        file.write_text(SOURCE.replace("torch", library))
        spec = importlib.util.spec_from_file_location(name, file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where classes look for their source
        spec.loader.exec_module(module)
        return module

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle("torch")
        return read("torch"), read("weft")


def flat(value):
    if isinstance(value, tuple):
        return [item for each in value for item in flat(each)]
    return [value.detach().numpy() if hasattr(value, "detach") else np.array(value)]


def check(found, wanted):
    for one, other in zip(flat(found), flat(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Forking", "Chosen", "Overloading", "Recurrent", "Detections"])
def test_programs_go_both_ways(torch, sources, name, tmp_path):
    theirs, ours = (getattr(source, name)().eval() for source in sources)
    state = {key: weft.from_numpy(np.array(value)) for key, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    x = RNG.standard_normal((5, 3)).astype("float32")
    there, here = torch.jit.script(theirs), weft.jit.script(ours)
    wanted = there(torch.from_numpy(x), 3)
    check(here(weft.from_numpy(x), 3), wanted)
    check(torch.jit.load(io.BytesIO(here.save_to_buffer()))(torch.from_numpy(x), 3), wanted)
    file = tmp_path / "program.pt"
    torch.jit.save(there, str(file))
    loaded = weft.jit.load(str(file))
    check(loaded(weft.from_numpy(x), 3), wanted)
    if name != "Chosen":  # which has modules by number there
        assert loaded.code == there.code
    check(torch.jit.load(io.BytesIO(loaded.save_to_buffer()))(torch.from_numpy(x), 3), wanted)


def test_what_is_no_layer_is_refused(torch, sources):
    for library, source in zip((torch, weft), sources):
        with pytest.raises(RuntimeError, match="is not compatible with interface"):
            library.jit.script(source.Misfit())


def test_forks_of_traces(torch, sources):
    x = RNG.standard_normal((2, 3)).astype("float32")
    texts = []
    for library, source in zip((torch, weft), sources):
        scaled = source.scaled
        traced = library.jit.trace(
            lambda x, jit=library.jit, scaled=scaled: jit.wait(jit.fork(scaled, x, 3)) + 1, library.ones(2, 3)
        )
        np.testing.assert_allclose(traced(library.from_numpy(x)).numpy(), x * 3 + 1, rtol=1e-5)
        kinds = [node.kind() for node in traced.graph.nodes()]
        inner = [node.kind() for node in traced.graph.findNode("prim::fork").g("Subgraph").nodes()]
        texts.append((kinds, inner))
    assert texts[0] == texts[1]
    there = torch.jit.load(io.BytesIO(traced.save_to_buffer()))
    np.testing.assert_allclose(there(torch.from_numpy(x)).numpy(), x * 3 + 1, rtol=1e-5)
    graph = traced.graph.copy()
    weft._C._jit_pass_inline_fork_wait(graph)
    assert graph.findNode("prim::fork") is None
    assert traced.graph.findNode("prim::fork") is not None


def test_errors_of_forks_come_when_they_are_waited_for():
    unit = weft.jit.CompilationUnit(
        """
def failing(x: int) -> int:
    if x > 2:
        raise ValueError("too large")
    return x

def forked(x: int) -> int:
    future = fork(failing, x)
    return wait(future)
""",
        {"fork": weft.jit.fork, "wait": weft.jit.wait},
    )
    assert unit.forked(2) == 2
    with pytest.raises(RuntimeError, match="too large"):
        unit.forked(3)
