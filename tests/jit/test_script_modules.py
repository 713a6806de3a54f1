"""Modules that weft and PyTorch compile: those of `nn`, and modules of the user's own."""

import linecache
import random
import typing
import warnings

import numpy as np
import pytest
from jit.script_cases import assert_same, plain
from oracles import oracle

import weft

# A module, how it is made, and the shapes of its inputs; `int` is a vector of classes.
MODULES = [
    ("Linear", (4, 3), [(2, 4)]),
    ("Conv1d", (2, 3, 3), [(1, 2, 8)]),
    ("Conv2d", (2, 3, 3, 1, 1), [(1, 2, 8, 8)]),
    ("Conv2d", (2, 4, 3, 2, 1, 1, 2, False, "reflect"), [(1, 2, 8, 8)]),
    ("ConvTranspose2d", (2, 3, 3), [(1, 2, 5, 5)]),
    ("BatchNorm1d", (4,), [(5, 4)]),
    ("BatchNorm2d", (2,), [(3, 2, 4, 4)]),
    ("BatchNorm2d", (2, 1e-5, None), [(3, 2, 4, 4)]),
    ("BatchNorm1d", (4, 1e-5, 0.1, False, False), [(5, 4)]),
    ("LayerNorm", (4,), [(2, 4)]),
    ("GroupNorm", (2, 4), [(2, 4, 3)]),
    ("Embedding", (5, 3), [int]),
    ("ReLU", (), [(2, 3)]),
    ("GELU", (), [(2, 3)]),
    ("ELU", (1.5,), [(2, 3)]),
    ("LeakyReLU", (0.2,), [(2, 3)]),
    ("Hardtanh", (-0.5, 0.5), [(2, 3)]),
    ("PReLU", (), [(2, 3)]),
    ("Softmax", (1,), [(2, 3)]),
    ("Sigmoid", (), [(2, 3)]),
    ("Flatten", (), [(2, 3, 2)]),
    ("MaxPool2d", (2,), [(1, 2, 8, 8)]),
    ("MaxPool2d", (3, 2, 1), [(1, 2, 8, 8)]),
    ("AvgPool2d", (2,), [(1, 2, 8, 8)]),
    ("AdaptiveAvgPool2d", (2,), [(1, 2, 8, 8)]),
    ("ZeroPad2d", (1,), [(1, 2, 3, 3)]),
    ("PixelShuffle", (2,), [(1, 4, 3, 3)]),
    ("Upsample", (None, 2.0), [(1, 2, 3, 3)]),
    ("Bilinear", (3, 4, 2), [(2, 3), (2, 4)]),
    ("MSELoss", (), [(3,), (3,)]),
    ("L1Loss", (None, None, "sum"), [(3,), (3,)]),
    ("CrossEntropyLoss", (), [(4, 3), int]),
    ("LSTM", (3, 4), [(5, 2, 3)]),
    ("GRU", (3, 4, 2), [(5, 2, 3)]),
    ("RNN", (3, 4), [(5, 3)]),
    ("GRUCell", (3, 4), [(2, 3)]),
]

NETS = {
    "attributes": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.scale = 2.5
        self.names = ["a", "b"]
        self.table = {"a": 3, "b": 4}
        self.weight = nn.Parameter(torch.zeros(4) + 0.5)
        self.register_buffer("shift", torch.zeros(4) + 1.0)

    def forward(self, x):
        total = 0
        for name in self.names:
            total += self.table[name]
        return self.first(x) * self.scale + self.shift * self.weight + total
""",
    "helpers": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def once(self, x, times: int = 1):
        for i in range(times):
            x = torch.tanh(self.linear(x))
        return x

    def twice(self, x) -> Tensor:
        return self.once(self.once(x), times=2)

    def forward(self, x):
        return self.twice(x) + self.once(x)
""",
    "module_list": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) + i
        return self.layers[0](x) * len(self.layers), self.layers[-1](x)
""",
    "module_dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 2)})

    def forward(self, x):
        out: Dict[str, Tensor] = {}
        for name, part in self.parts.items():
            out[name] = part(x)
        return out
""",
    "sequential": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, x):
        return self.body(x).softmax(-1)
""",
    "nested": """
class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return x + self.norm(torch.relu(self.linear(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.last = Block(4)

    def forward(self, x):
        return self.last(self.blocks(x))
""",
    "optional_part": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)
        self.shortcut = None

    def forward(self, x):
        y = self.linear(x)
        if self.shortcut is not None:
            y = y + self.shortcut(x)
        return y
""",
    "constants": """
class Net(nn.Module):
    __constants__ = ["mode"]
    steps: Final[int]

    def __init__(self):
        super().__init__()
        self.mode = "add"
        self.steps = 3

    def forward(self, x):
        if self.mode == "add":
            for i in range(self.steps):
                x = x + 1
        return x
""",
    "training": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        if self.training:
            return self.linear(x) * 2
        return self.linear(x)
""",
}


def scripted(torch, subject):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(subject)


def net(torch, name):
    source, file = NETS[name], f"<net {name} {torch.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"__name__": f"nets_{torch.__name__}", "torch": torch, "nn": torch.nn, "Tensor": torch.Tensor}
    names |= {each: getattr(typing, each) for each in ("Dict", "List", "Optional")}
    names["Final"] = torch.jit.Final
    exec(compile(source, file, "exec"), names)
    return names["Net"]()


def pair(make):
    """A module of PyTorch's and one of weft's with the same parameters, compiled."""
    torch = oracle("torch")
    theirs, ours = make(torch), make(weft)
    state = {name: weft.tensor(value.numpy().copy()) for name, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    return theirs, scripted(weft, ours), torch


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("name", "settings", "shapes"), MODULES)
def test_modules_of_nn(name, settings, shapes, training):
    rng = np.random.default_rng(random.getrandbits(32))
    theirs, ours, torch = pair(lambda torch: getattr(torch.nn, name)(*settings))
    theirs.train(training)
    ours.train(training)
    for _ in range(2):
        inputs = [
            rng.integers(0, 3, 4) if shape is int else rng.standard_normal(shape).astype(np.float32) for shape in shapes
        ]
        expected = theirs(*[torch.from_numpy(value) for value in inputs])
        assert_same(plain(ours(*[weft.from_numpy(value) for value in inputs])), plain(expected))
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NETS)
def test_modules_of_the_users_own(name):
    theirs, ours, torch = pair(lambda torch: net(torch, name))
    theirs = scripted(torch, theirs.eval())
    ours.eval()
    array = np.random.default_rng(random.getrandbits(32)).standard_normal((3, 4)).astype(np.float32)
    assert_same(plain(ours(weft.from_numpy(array))), plain(theirs(torch.from_numpy(array))))
    assert [key for key, _ in ours.named_parameters()] == [key for key, _ in theirs.named_parameters()]
    assert str(ours.forward.schema).rpartition("->")[2] == str(theirs.forward.schema).rpartition("->")[2]


def test_attributes_change_and_exports_are_methods():
    class Counter(weft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.register_buffer("total", weft.zeros(2))

        def forward(self, x):
            self.count = self.count + 1
            self.total += x
            return self.total * self.count

        @weft.jit.export
        def reset(self, value: int) -> int:
            before = self.count
            self.count = value
            return before

        @weft.jit.unused
        def python_only(self, x):
            return {*x}

    counter = weft.jit.script(Counter())
    array = np.random.default_rng(random.getrandbits(32)).standard_normal(2)
    counter(weft.tensor(array))
    np.testing.assert_allclose(counter(weft.tensor(array)).numpy(), array * 4)
    assert (counter.reset(7), counter.count) == (2, 7)


def test_what_a_module_has_not_is_told():
    class Wrong(weft.nn.Module):
        def forward(self, x):
            return self.wieght * x

    with pytest.raises(RuntimeError, match=r"no attribute or method 'wieght'[\s\S]*return self.wieght"):
        weft.jit.script(Wrong())


def test_methods_that_are_ignored_stay_those_of_python():
    class Half(weft.nn.Module):
        @weft.jit.ignore
        def shown(self, x: weft.Tensor) -> weft.Tensor:
            return weft.tensor(eval("x.numpy()") * 3)

        def forward(self, x):
            return self.shown(x) + 1

    array = np.random.default_rng(random.getrandbits(32)).standard_normal(3)
    np.testing.assert_allclose(weft.jit.script(Half())(weft.tensor(array)).numpy(), array * 3 + 1)
