"""Archives of programs: those that PyTorch saved run in weft, and those that weft saved run in PyTorch, with the same
results and the same text."""

import copy
import enum
import io
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from oracles import oracle

import weft

RNG = np.random.default_rng(7)


@pytest.fixture
def torch():
    found = oracle("torch")
    found.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found


def archived(torch, module, **extra):
    """The archive that PyTorch writes of a module."""
    file = io.BytesIO()
    torch.jit.save(module, file, **extra)
    return file.getvalue()


def loaded(content, **named):
    return weft.jit.load(io.BytesIO(content), **named)


def plain(value):
    """A value as numpy and Python have it."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, enum.Enum):
        return value.name
    return value.detach().numpy() if hasattr(value, "detach") else value


def assert_same(ours, theirs):
    if isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            assert_same(one, other)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        assert_same(list(ours.values()), list(theirs.values()))
    else:
        assert ours == theirs
        assert type(ours) is type(theirs)


def given(torch, value, to):
    """An argument for one of the two: arrays become tensors."""
    if isinstance(value, np.ndarray):
        return to.from_numpy(value.copy())
    if isinstance(value, (list, tuple)):
        return type(value)(given(torch, item, to) for item in value)
    if isinstance(value, dict):
        return {key: given(torch, item, to) for key, item in value.items()}
    return value


def check_both_ways(torch, module, *calls):
    """A module of PyTorch's does the same in weft, and in PyTorch again after weft has saved it."""
    content = archived(torch, module)
    ours = loaded(content)
    there = torch.jit.load(io.BytesIO(content))
    back = torch.jit.load(io.BytesIO(ours.save_to_buffer()))
    for call in calls:
        expected = plain(there(*given(torch, call, torch)))
        assert_same(plain(ours(*given(torch, call, weft))), expected)
        assert_same(plain(back(*given(torch, call, torch))), expected)
    again = loaded(ours.save_to_buffer())
    assert again.code == ours.code
    return ours, there


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


class Point(NamedTuple):
    at: "torch.Tensor"
    weight: float


class Shade(enum.Enum):
    DARK = 1
    LIGHT = 2


def test_a_scripted_mlp(torch):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.LayerNorm(7), nn.Linear(7, 3, bias=False), nn.Softmax(dim=-1))
    ours, there = check_both_ways(torch, torch.jit.script(net), [random(4, 5)], [random(1, 5)])
    assert ours.code == there.code
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in there.named_parameters()]
    assert list(ours.state_dict()) == list(there.state_dict())
    assert str(ours.forward.schema) == str(there.forward.schema)


def test_a_traced_cnn_with_batch_norm(torch):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.head = nn.Linear(4 * 4 * 4, 5)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
            return self.head(torch.flatten(x, 1))

    net = Net()
    net(torch.randn(6, 3, 8, 8))  # statistics of its own
    traced = torch.jit.trace(net.eval(), torch.randn(2, 3, 8, 8))
    ours, there = check_both_ways(torch, traced, [random(2, 3, 8, 8)], [random(3, 3, 8, 8)])
    assert ours.code == there.code
    assert str(ours.norm.num_batches_tracked) == str(there.norm.num_batches_tracked)


def test_a_scripted_batch_norm_counts_what_it_sees(torch):
    nn = torch.nn
    scripted = torch.jit.script(nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Tanh()))
    content = archived(torch, scripted)
    ours, there = loaded(content), torch.jit.load(io.BytesIO(content))
    assert ours.training
    for _ in range(3):
        x = random(4, 2, 6)
        assert_same(plain(ours(weft.from_numpy(x))), plain(there(torch.from_numpy(x))))
    theirs = there.state_dict()
    for name, value in ours.state_dict().items():
        assert_same(plain(value), plain(theirs[name]))
    ours.eval()
    there.eval()
    assert not ours.training
    assert not getattr(ours, "1").training
    assert_same(plain(ours(weft.from_numpy(x))), plain(there(torch.from_numpy(x))))


def residual_block(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            out += self.down(x)
            return self.relu(out)

    return nn.Sequential(
        Block(3, 4, 1), Block(4, 6, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Dropout(), nn.Linear(6, 10)
    )


def mobile_block(torch):
    nn = torch.nn

    class Inverted(nn.Module):
        def __init__(self, size):
            super().__init__()
            wide = size * 2
            self.conv = nn.Sequential(
                nn.Conv2d(size, wide, 1, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(inplace=True),
                nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.Hardswish(),
                nn.Conv2d(wide, size, 1, bias=False),
            )

        def forward(self, x):
            return x + self.conv(x)

    return nn.Sequential(Inverted(4), nn.AvgPool2d(2), Inverted(4))


@pytest.mark.parametrize("make", [residual_block, mobile_block])
@pytest.mark.parametrize("how", ["script", "trace"])
def test_blocks_of_classifiers(torch, make, how):
    net = make(torch).eval()
    channels = 3 if make is residual_block else 4
    example = torch.randn(2, channels, 8, 8)
    module = torch.jit.trace(net, example) if how == "trace" else torch.jit.script(net)
    ours, there = check_both_ways(torch, module, [random(2, channels, 8, 8)])
    assert ours.code == there.code
    for one, other in zip(ours.modules(), there.modules()):
        if hasattr(other, "forward"):
            assert one.code == other.code


def test_a_scripted_lstm_with_loops(torch):
    nn = torch.nn

    class Cell(nn.Module):
        def __init__(self, size, hidden):
            super().__init__()
            self.inner = nn.Linear(size + hidden, 4 * hidden)

        def forward(self, x, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
            h, c = state
            i, f, g, o = self.inner(torch.cat([x, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([Cell(3, 5), Cell(5, 5)])

        def forward(self, xs, reverse: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
            last: list[torch.Tensor] = []
            for cell in self.cells:
                h = torch.zeros(xs.size(1), 5)
                c = torch.zeros(xs.size(1), 5)
                outputs: list[torch.Tensor] = []
                for t in range(xs.size(0)):
                    at = xs.size(0) - 1 - t if reverse else t
                    h, c = cell(xs[at], (h, c))
                    outputs.append(h)
                xs = torch.stack(outputs)
                last.append(c)
            return xs, last

    ours, there = check_both_ways(
        torch, torch.jit.script(Network()), [random(4, 2, 3)], [random(1, 3, 3), True], [random(7, 1, 3)]
    )
    assert ours.code == there.code


def test_scripted_choosing_of_boxes(torch):
    class Choose(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.threshold = 0.3
            self.most = 6

        def overlap(self, a, b) -> float:
            low = torch.max(a[:2], b[:2])
            high = torch.min(a[2:], b[2:])
            sides = (high - low).clamp(min=0)
            both = float(sides[0] * sides[1])
            area = float((a[2] - a[0]) * (a[3] - a[1])) + float((b[2] - b[0]) * (b[3] - b[1]))
            return both / (area - both + 1e-6)

        def forward(self, boxes, scores) -> tuple[torch.Tensor, list[int]]:
            order = torch.argsort(scores, descending=True)
            kept: list[int] = []
            for place in range(order.size(0)):
                candidate = int(order[place])
                keep = True
                for other in kept:
                    if self.overlap(boxes[candidate], boxes[other]) > self.threshold:
                        keep = False
                        break
                if not keep:
                    continue
                kept.append(candidate)
                if len(kept) >= self.most:
                    break
            if len(kept) == 0:
                return torch.zeros([0, 4]), kept
            return torch.stack([boxes[k] for k in kept]), kept

    def boxes(count):
        low = RNG.random((count, 2)).astype(np.float32)
        return np.concatenate([low, low + RNG.random((count, 2)).astype(np.float32)], 1)

    calls = [[boxes(count), RNG.random(count).astype(np.float32)] for count in (0, 1, 12, 25)]
    ours, there = check_both_ways(torch, torch.jit.script(Choose()), *calls)
    assert ours.threshold == 0.3
    assert ours.code == there.code


def everything(torch):
    """A module with attributes of every kind."""
    globals()["torch"] = torch  # where annotations of this file are looked up
    Point.__annotations__["at"] = torch.Tensor

    @torch.jit.script
    class Counter:
        def __init__(self, start: int):
            self.count = start
            self.seen: list[float] = [1.5]

        def bump(self, by: int = 1) -> int:
            self.count += by
            self.seen.append(float(self.count))
            return self.count

    class Everything(torch.nn.Module):
        words: dict[str, list[int]]
        maybe: int | None
        nothing: torch.Tensor | None
        either: int | str

        def __init__(self):
            super().__init__()
            self.words = {"a": [1, 2], "b": []}
            self.maybe = None
            self.nothing = None
            self.either = "text"
            self.pair = (1, 2.5, "x", (True, 3))
            self.numbers = [1, 2, 3]
            self.flags = [True, False]
            self.floats = [0.5, float("inf")]
            self.texts = ["a", 'quote " and \n line']
            self.tensors = [torch.ones(2), torch.zeros(1)]
            self.complex = 1 + 2j
            self.where = torch.device("cpu")
            self.shade = Shade.LIGHT
            self.point = Point(torch.tensor([1.0, 2.0]), 0.25)
            self.counter = Counter(3)
            self.weight = torch.nn.Parameter(torch.randn(3), requires_grad=False)
            self.shared = self.weight
            self.register_buffer("scale", torch.tensor(2.0))
            self.register_buffer("late", None)
            self.empty = torch.nn.Parameter(torch.empty(0, 3))

        def forward(self, x, key: str = "a", extra: dict[str, torch.Tensor] | None = None):
            total = x * self.scale + self.weight.sum()
            if extra is not None and key in extra:
                total = total + extra[key]
            for number in self.words[key]:
                total = total + number
            if self.shade == Shade.LIGHT:
                total = total + 1
            count = self.counter.bump()
            self.numbers.append(count)
            at, weight = self.point
            maybe = self.maybe
            first = maybe if maybe is not None else -1
            return {"total": total}, Point(at + total.sum(), weight), (self.pair, self.numbers, first, self.texts[1])

        @torch.jit.export
        def choose(self, value: int | str | None) -> str:
            if isinstance(value, int):
                return "int" + str(value)
            if value is None:
                return "none"
            return f"{value}-{self.complex}"

    return Everything()


def test_attributes_of_every_kind(torch):
    module = torch.jit.script(everything(torch))
    content = archived(torch, module)
    ours, there = loaded(content), torch.jit.load(io.BytesIO(content))
    assert ours.words == {"a": [1, 2], "b": []}
    assert ours.maybe is None
    assert ours.either == "text"
    assert ours.pair == (1, 2.5, "x", (True, 3))
    assert ours.texts == ["a", 'quote " and \n line']
    assert ours.complex == 1 + 2j
    assert str(ours.where) == "cpu"
    assert ours.shade.name == "LIGHT"
    assert ours.floats == [0.5, float("inf")]
    assert ours.flags == [True, False]
    assert ours.counter.count == 3
    assert ours.counter.bump(4) == 7
    assert ours.counter.count == 7
    ours.counter.count = 3
    ours.counter.seen = [1.5]
    assert ours.shared is ours.weight
    assert not ours.weight.requires_grad
    x = random(3)
    back = torch.jit.load(io.BytesIO(ours.save_to_buffer()))
    for keys in ([], ["b"]):
        expected = plain(there(torch.from_numpy(x), *keys))
        assert_same(plain(ours(weft.from_numpy(x), *keys)), expected)
        assert_same(plain(back(torch.from_numpy(x), *keys)), expected)
    for value in (3, "y", None):
        assert ours.choose(value) == there.choose(value) == back.choose(value)
    assert ours.code == there.code
    assert ours.choose.code == there.choose.code
    with pytest.raises(weft.Error, match="numbers"):
        ours.numbers = "no list"


def test_extra_files_travel(torch, tmp_path):
    module = torch.jit.script(torch.nn.Linear(2, 2))
    path = str(tmp_path / "theirs.pt")
    torch.jit.save(module, path, _extra_files={"notes.txt": "hello", "more/data.json": "{}"})
    files = {"notes.txt": "", "more/data.json": "", "missing": "x"}
    ours = weft.jit.load(path, _extra_files=files)
    assert files == {"notes.txt": "hello", "more/data.json": "{}", "missing": ""}
    mine = str(tmp_path / "ours.pt")
    weft.jit.save(ours, mine, _extra_files={"notes.txt": "good bye"})
    theirs = {"notes.txt": ""}
    torch.jit.load(mine, _extra_files=theirs)
    assert theirs["notes.txt"] in ("good bye", b"good bye")
    found = weft.ExtraFilesMap({"notes.txt": ""})
    weft._C.import_ir_module(weft._C.CompilationUnit(), mine, None, found)
    assert found["notes.txt"] == "good bye"
    buffer = ours.save_to_buffer(_extra_files={"notes.txt": "again"})
    weft._C.import_ir_module_from_buffer(weft._C.CompilationUnit(), buffer, "cpu", found)
    assert found["notes.txt"] == "again"


def test_tensors_that_a_program_holds(torch):
    class Holds(torch.nn.Module):
        def forward(self, x):
            return x + torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * torch.arange(2.0)

    held = torch.tensor([[5.0, 6.0]])

    class Traced(torch.nn.Module):
        def forward(self, x):
            return x * held

    check_both_ways(torch, torch.jit.script(Holds()), [random(2, 2)])
    ours, there = check_both_ways(torch, torch.jit.trace(Traced(), torch.ones(3, 2)), [random(3, 2)])
    assert "CONSTANTS.c0" in ours.code
    assert ours.code == there.code


def test_the_face_of_a_module(torch):
    nn = torch.nn
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    ours = loaded(archived(torch, scripted))
    assert isinstance(ours, weft.nn.Module)
    assert isinstance(ours, weft.jit.ScriptModule)
    assert repr(ours).replace("ScriptModule", "RecursiveScriptModule") == repr(scripted)
    assert "forward" in dir(ours)
    assert "0" not in dir(ours)
    assert ours._get_method("forward").name == "forward"
    with pytest.raises(AttributeError, match="nowhere"):
        ours._get_method("nowhere")
    assert [name for name, _ in ours.named_buffers()] == [name for name, _ in scripted.named_buffers()]
    seen = []
    ours.apply(lambda module: seen.append(module.original_name))
    assert seen == ["Linear", "BatchNorm1d", "Sequential"]
    other, deep = copy.copy(ours), copy.deepcopy(ours)
    ours.eval()
    assert other.training
    assert deep.training
    first = getattr(ours, "0").weight
    assert getattr(other, "0").weight is first
    assert getattr(deep, "0").weight is not first
    assert_same(plain(getattr(deep, "0").weight), plain(first))
    with weft.no_grad():
        first.zero_()
    assert not getattr(other, "0").weight.any()
    assert getattr(deep, "0").weight.any()
    deep.double()
    assert deep.eval()(weft.ones(2, 3, dtype=weft.float64)).dtype is weft.float64
    ours.load_state_dict({name: value * 0 + 1 for name, value in ours.state_dict().items()})
    loss = ours(weft.ones(2, 3)).sum()
    loss.backward()
    assert first.grad is not None


def test_gradients_flow_through_programs(torch):
    content = archived(torch, torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())))
    ours, there = loaded(content), torch.jit.load(io.BytesIO(content))
    x = random(5, 3)
    ours(weft.from_numpy(x)).pow(2).sum().backward()
    there(torch.from_numpy(x)).pow(2).sum().backward()
    grads = dict(there.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_same(plain(parameter.grad), plain(grads[name].grad))


def collatz(start: int, most: int = 100) -> tuple[int, list[int]]:
    steps = 0
    seen: list[int] = []
    for step in range(most):
        if start == 1:
            break
        seen.append(start)
        if start % 2 == 0:
            start = start // 2
            continue
        start = 3 * start + 1
        steps = step
    return steps, seen


def scaled(x, factor: float = 2.5, words: dict[str, float] | None = None):
    if words is not None:
        for key in words:
            x = x * words[key]
    while bool(x.sum() > 10.0):
        x = x / 2
    return x * factor, [factor, 1e16, -0.0]


@pytest.mark.parametrize("function", [collatz, scaled])
def test_functions_of_weft_run_in_pytorch(torch, function):
    ours = weft.jit.script(function)
    back = torch.jit.load(io.BytesIO(ours.save_to_buffer()))
    calls = [[27], [7, 3], [1]]
    if function is scaled:
        calls = [[random(3)], [random(2) + 40, 0.5], [random(1), 1.0, {"a": 2.0}]]
    for call in calls:
        expected = plain(ours(*given(torch, call, weft)))
        assert_same(plain(back(*given(torch, call, torch))), expected)
        assert_same(plain(function(*given(torch, call, torch))), expected)
    again = loaded(ours.save_to_buffer())
    assert again.code == loaded(again.save_to_buffer()).code


def test_what_cannot_be_saved_says_why(tmp_path):
    with pytest.raises(weft.Error, match=r"weft\.jit\.script"):
        weft.jit.save(weft.nn.Linear(2, 2), tmp_path / "m.pt")
    with pytest.raises(weft.Error, match="write"):
        weft.jit.save(weft.jit.script(collatz), 3)


def test_graphs_with_what_is_called_in_its_place(torch):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    ours = loaded(archived(torch, torch.jit.script(net)))
    kinds = [node.kind() for node in ours.inlined_graph.nodes()]
    assert "aten::linear" in kinds
    assert "prim::CallMethod" not in kinds
    assert "prim::CallMethod" in [node.kind() for node in ours.graph.nodes()]


def named_alike():
    def twice(x):
        return x * 2

    return twice


def test_functions_that_are_called_alike_are_told_apart(torch):
    def twice(x):
        return x + x + 1

    first, second = weft.jit.script(named_alike()), weft.jit.script(twice)
    second.qualified_name = first.qualified_name

    def both(x):
        return first(x) - second(x)

    back = torch.jit.load(io.BytesIO(weft.jit.script(both).save_to_buffer()))
    assert_same(plain(back(torch.ones(2))), np.full(2, -1, np.float32))


def test_networks_of_weft_run_in_pytorch(torch):
    nn = weft.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            self.head = nn.Linear(36, 5)
            self.turns = 3

        def forward(self, x, flag: bool = True):
            y = self.head(self.body(x))
            for turn in range(self.turns):
                if flag:
                    y = y + turn
            return y, y.sum()

    ours = weft.jit.script(Net())
    for training in (True, False):
        ours.train(training)
        back = torch.jit.load(io.BytesIO(ours.save_to_buffer()))
        again = loaded(ours.save_to_buffer())
        for call in ([random(2, 3, 8, 8)], [random(3, 3, 8, 8), False]):
            expected = plain(ours(*given(torch, call, weft)))
            assert_same(plain(back(*given(torch, call, torch))), expected)
            assert_same(plain(again(*given(torch, call, weft))), expected)
        assert [name for name, _ in back.named_parameters()] == [name for name, _ in ours.named_parameters()]
        assert list(back.state_dict()) == list(ours.state_dict())


def test_plans_that_were_made_for_calls(torch):
    ours = loaded(archived(torch, torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))))
    for shape in ((2, 3), (4, 3), (3,)):
        ours(weft.ones(*shape))
    assert len(ours.get_debug_state().execution_plans) == 2
    kinds = [node.kind() for node in ours.graph_for(weft.ones(3)).nodes()]
    assert "prim::CallMethod" not in kinds
