"""`weft.onnx.export`: what ONNX Runtime computes from the file of a module is what the module computes, and what
PyTorch does with the same weights, at the sizes of the example and at others."""

import numpy as np
import onnx
import pytest
from oracles import oracle

import weft
from weft.base.errors import Unsupported

torch = oracle("torch")


@pytest.fixture
def rng():
    return np.random.default_rng(23)


def mlp(nn, lib):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3), nn.Softmax(-1))


def convolutions(nn, lib):
    body = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(8 * 16, 5))


def residual(nn, lib):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
            self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(8)])

        def forward(self, x):
            inner = self.norms[0](self.first(x)).relu()
            return (self.norms[1](self.second(inner)) + x).relu()

    stem = [nn.Conv2d(3, 8, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def separable(nn, lib):
    body = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, 1, 1, groups=8)]
    return nn.Sequential(*body, nn.Hardswish(), nn.Conv2d(8, 16, 1), nn.SiLU(), nn.AdaptiveAvgPool2d(1))


def scaled_up(nn, lib):
    down = [nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.LeakyReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*down, nn.ConvTranspose2d(8, 3, 2, 2), nn.Upsample(scale_factor=2), nn.Tanh())


def sequence_of_lines(nn, lib):
    body = [nn.Conv1d(3, 8, 3), nn.ELU(), nn.MaxPool1d(2), nn.LayerNorm(7)]
    return nn.Sequential(*body, nn.GELU(), nn.PReLU(), nn.Softplus())


def encoder(nn, lib):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def encoder_norm_first(nn, lib):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu", norm_first=True)


def attention(nn, lib):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            return self.layer(x, x, x)

    return Attention()


def lstm(nn, lib):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.LSTM(5, 6, batch_first=True, bidirectional=True), nn.Linear(12, 3)

        def forward(self, x):
            out, (state, cells) = self.layers(x)
            return self.head(out[:, -1]), state, cells

    return Last()


def gru_of_words(nn, lib):
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.layer = nn.Embedding(20, 5), nn.GRU(5, 6)

        def forward(self, words):
            return self.layer(self.words(words))[0]

    return Words()


def bag_of_words(nn, lib):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, words):
            return self.head(self.words(words).mean(1))

    return Bag()


def causal(nn, lib):
    class Causal(nn.Module):
        """With tied weights, positions, and a mask that is made at each size."""

        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 8), nn.Embedding(12, 8)
            self.layer, self.head = encoder(nn, lib), nn.Linear(8, 20, bias=False)
            self.head.weight = self.words.weight

        def forward(self, words):
            length = words.shape[1]
            mask = lib.triu(lib.full((length, length), float("-inf")), 1)
            x = self.words(words) + self.places(lib.arange(length))
            return self.head(self.layer(x, src_mask=mask))

    return Causal()


def by_hand(nn, lib):
    class Heads(nn.Module):
        """Attention by views, with a mask that is a part of a buffer."""

        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 8)
            self.register_buffer("mask", lib.tril(lib.ones(16, 16)).view(1, 1, 16, 16))

        def forward(self, x):
            many, length, width = x.size()
            parts = self.inner(x).split(8, 2)
            q, k, v = (part.view(many, length, 2, 4).transpose(1, 2) for part in parts)
            scores = (q @ k.transpose(-2, -1)) * 0.5
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            return self.outer((scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(many, length, width))

    return Heads()


IMAGE, WORDS = (2, 3, 16, 16), "words"
MODELS = {
    mlp: ((2, 4), {0: "n"}),
    convolutions: (IMAGE, {0: "n"}),
    residual: (IMAGE, {0: "n", 2: "h", 3: "w"}),
    separable: (IMAGE, {0: "n", 2: "h", 3: "w"}),
    scaled_up: ((2, 3, 8, 8), {0: "n"}),
    sequence_of_lines: ((2, 3, 16), {0: "n"}),
    encoder: ((2, 5, 8), {0: "n", 1: "s"}),
    encoder_norm_first: ((1, 5, 8), {0: "n", 1: "s"}),
    attention: ((2, 5, 8), {0: "n", 1: "s"}),
    lstm: ((2, 5, 5), {0: "n", 1: "s"}),
    gru_of_words: ((7, 2, WORDS), {0: "s", 1: "n"}),
    bag_of_words: ((2, 7, WORDS), {0: "n", 1: "s"}),
    causal: ((2, 7, WORDS), {0: "n", 1: "s"}),
    by_hand: ((2, 6, 8), {0: "n", 1: "s"}),
}


def data(rng, shape):
    if shape[-1] == WORDS:
        return rng.integers(0, 20, shape[:-1])
    return rng.standard_normal(shape).astype("float32")


def session(path):
    return oracle("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])


def as_list(outputs):
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_files_compute_what_modules_do(make, rng, tmp_path):
    shape, named = MODELS[make]
    theirs = make(torch.nn, torch)
    for tensor in theirs.state_dict().values():
        if tensor.is_floating_point() and tuple(tensor.shape[:2]) != (1, 1):  # not the mask
            tensor.copy_(torch.from_numpy(rng.uniform(0.1, 0.6, tuple(tensor.shape))))
    ours = make(weft.nn, weft)
    ours.load_state_dict({name: weft.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    path = tmp_path / "model.onnx"
    example = weft.tensor(data(rng, shape))
    model = weft.onnx.export(ours, example, path, input_names=["x"], output_names=["y"], dynamic_axes={"x": named})
    assert ours.training, "a module that is exported stays in training"
    onnx.checker.check_model(str(path), full_check=True)
    assert model.graph.output[0].name == "y"
    parameters = {tensor.name for tensor in model.graph.initializer}
    assert parameters >= {name for name, _ in ours.named_parameters()}
    assert make is not by_hand or "mask" in parameters
    run = session(path)
    theirs.eval()
    ours.eval()
    for change in (0, 1, 3):
        sizes = tuple(size + change if axis in named else size for axis, size in enumerate(shape))
        x = data(rng, sizes)
        with torch.no_grad():
            wanted = as_list(theirs(torch.from_numpy(x)))
        eager, found = as_list(ours(weft.tensor(x))), run.run(None, {"x": x})
        assert len(found) == len(wanted)
        for one, two, three in zip(found, eager, wanted):
            np.testing.assert_allclose(one, three.numpy(), rtol=2e-4, atol=2e-5)
            np.testing.assert_allclose(two.detach().numpy(), three.numpy(), rtol=2e-4, atol=2e-5)


def test_containers_and_names(rng, tmp_path):
    def function(first, pair, *, scale):
        return {"sum": first + pair[0] * scale, "rest": (pair[1], first)}

    arrays = [rng.standard_normal((2, 3)).astype("float32") for _ in range(3)]
    one, two, three = map(weft.tensor, arrays)
    model = weft.onnx.export(
        function,
        (one, [two, three]),
        tmp_path / "f.onnx",
        kwargs={"scale": 2.0},
        output_names=["sum"],
        dynamic_shapes=({0: "n"}, ("n", None), None),
        opset_version=21,
    )
    # What is only handed on is in the file, too.
    assert sorted(item.name for item in model.graph.input) == ["first", "pair_0", "pair_1"]
    assert model.opset_import[0].version == 21
    found = session(tmp_path / "f.onnx").run(["sum"], dict(zip(["first", "pair_0", "pair_1"], arrays)))
    np.testing.assert_allclose(found[0], arrays[0] + arrays[1] * 2, rtol=1e-6)


def test_writes_inside_a_function(rng, tmp_path):
    weight = weft.tensor(rng.standard_normal(3).astype("float32"))

    def function(x):
        y = x.clone()
        y[0] = weight
        y[:, 1] += 1
        return y

    x = rng.standard_normal((2, 3)).astype("float32")
    weft.onnx.export(function, weft.tensor(x), tmp_path / "f.onnx")
    wanted = x.copy()
    wanted[0] = weight.numpy()
    wanted[:, 1] += 1
    np.testing.assert_allclose(session(tmp_path / "f.onnx").run(None, {"x": x})[0], wanted, rtol=1e-6)


def branches(x):
    if x.sum() > 0:
        return x
    return -x


def asks_numpy(x):
    return x * float(np.mean(x.numpy()))


def draws(x):
    return x + weft.rand(3)


def chooses(x):
    return x[x > 0]


def unwritten(x):
    return weft.digamma(x)


@pytest.mark.parametrize(
    ("function", "line", "message"),
    [
        (branches, 1, "the value of a tensor is asked for"),
        (asks_numpy, 1, "is asked for"),
        (draws, 1, "random numbers are drawn"),
        (chooses, 1, "is asked for"),
        (unwritten, 1, "digamma"),
    ],
)
def test_what_cannot_be_exported_is_named(function, line, message):
    with pytest.raises(Unsupported, match=message) as caught:
        weft.onnx.export(function, weft.ones(3))
    assert f"{__file__}:{function.__code__.co_firstlineno + line}" in str(caught.value)


def test_a_size_that_decides_is_named():
    def function(x):
        if x.shape[0] > 4:
            return x * 2
        return x + 1

    with pytest.raises(Unsupported, match="other things at other sizes of n") as caught:
        weft.onnx.export(function, weft.ones(2, 3), dynamic_axes={"x": {0: "n"}})
    assert f"{__file__}:{function.__code__.co_firstlineno + 3}" in str(caught.value)


def test_sizes_that_follow_in_no_simple_way_are_refused():
    table = weft.arange(100.0)

    def function(x):
        return x[: x.shape[0] // 2] + table[: x.shape[0] // 2]

    with pytest.raises(Unsupported, match="cannot be said at all sizes"):
        weft.onnx.export(function, weft.ones(6), dynamic_axes={"x": {0: "n"}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic_axes": {"z": {0: "n"}}}, "which is no input"),
        ({"dynamic_axes": {"input": {2: "n"}}}, "axis 2"),
        ({"dynamic_axes": {"input": {0: "n + 1"}}}, "cannot be the name of a dimension"),
        ({"input_names": ["weight"]}, "a parameter of the module is"),
        ({"input_names": ["a", "b"]}, "2 names for 1 inputs"),
        ({"output_names": ["weight"]}, "cannot be called 'weight'"),
        ({"output_names": ["a", "b"]}, "2 names for 1 outputs"),
        ({"opset_version": 5}, "opset 5 is not written"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(weft.Error, match=message):
        weft.onnx.export(weft.nn.Linear(3, 2), weft.ones(2, 3), **options)
