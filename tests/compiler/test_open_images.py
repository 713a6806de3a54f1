"""Networks whose number of images, height and width are open: one program serves all. PyTorch has the answers."""

from __future__ import annotations

import numpy as np
import pytest
from compiler.torch_networks import disturbed

import weft
from weft.lower.cpu.tile import tiles_of
from weft.symbol import Variable
from weft.te.extents import Trace

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
nn, F = torch.nn, torch.nn.functional

SIZES = [(2, 26, 29), (1, 31, 40), (3, 29, 26), (1, 64, 33), (2, 17, 17), (1, 40, 96), (5, 18, 21), (1, 19, 50)]


class Residual(nn.Module):
    def __init__(self, channels, groups=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, groups=groups),
            nn.BatchNorm2d(channels),
            nn.Hardswish(),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class Branches(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, 32, 1), nn.Conv2d(channels, 32, 5, padding=2)

    def forward(self, x):
        return torch.cat([self.a(x), torch.relu(self.b(x)), F.max_pool2d(x, 3, 1, 1)], 1)


class Around(nn.Module):
    """Down and up again, beside what was there before, as networks have it that give an image."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 32, 3, 2, 1), nn.Conv2d(32, 16, 3, padding=1)

    def forward(self, x):
        y = F.interpolate(torch.relu(self.a(x)), size=x.shape[2:], mode="nearest")
        return torch.cat([x, self.b(y)], 1)


def stem(channels=16):
    return nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU())


NETWORKS = {
    "classifier": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Residual(32),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.AvgPool2d(2, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
        nn.Softmax(1),
    ),
    "depthwise": lambda: nn.Sequential(stem(), Residual(16, groups=16), Residual(16, groups=16)),
    "groups": lambda: nn.Sequential(stem(32), nn.Conv2d(32, 64, 3, groups=4), nn.LeakyReLU(0.1)),
    "branches": lambda: nn.Sequential(stem(), Branches(16), nn.Conv2d(80, 17, 1)),
    "few channels": lambda: nn.Sequential(
        nn.Conv2d(3, 10, 3), nn.ReLU(), nn.Conv2d(10, 7, 3, 2, 1), nn.Conv2d(7, 21, 1)
    ),
    "one filter a channel": lambda: nn.Conv2d(3, 3, 3, padding=1, groups=3),
    "dilated": lambda: nn.Sequential(stem(), nn.Conv2d(16, 32, 3, padding=2, dilation=2), nn.Conv2d(32, 32, (1, 5))),
    "pools": lambda: nn.Sequential(
        stem(12), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(2, 1), nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    ),
    "norms": lambda: nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.InstanceNorm2d(16, affine=True), nn.Softmax(2)
    ),
    "around": lambda: nn.Sequential(stem(), Around()),
    "transposed": lambda: nn.Sequential(
        stem(), nn.ConvTranspose2d(16, 40, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(40, 1, 3, 2, 1, output_padding=1)
    ),
    "transposed in groups": lambda: nn.Sequential(
        nn.ConvTranspose2d(3, 12, 3, 3, 1, dilation=2, groups=3), nn.ConvTranspose2d(12, 12, 2, 2, groups=12)
    ),
}


def exported(network, tmp_path, extents=(26, 29)):
    path, names = tmp_path / "model.onnx", ("depth", "height", "width")
    axes = {"x": {0: "batch", **{2 + axis: name for axis, name in enumerate(names[-len(extents) :])}}}
    x = torch.randn(2, 3, *extents)
    torch.onnx.export(network, (x,), str(path), input_names=["x"], dynamic_axes=axes, dynamo=False)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETWORKS)
def test_one_program_serves_every_image(name, tmp_path):
    torch.manual_seed(1)
    network = disturbed(NETWORKS[name]())
    model = weft.compile(exported(network, tmp_path))
    for sizes in SIZES:
        x = torch.randn(sizes[0], 3, *sizes[1:])
        (got,) = model.run({"x": x.numpy()})
        want = network(x).detach().numpy()
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 2e-5 * max(np.abs(want).max(), 1)
    assert model.compilations == 1


LINES = [(9,), (1,), (40,), (17,)]
VOLUMES = [(4, 7, 9), (1, 2, 5), (7, 1, 20), (3, 16, 2)]
OTHER_RANKS = {
    "lines, transposed": (LINES, lambda: nn.Sequential(nn.ConvTranspose1d(3, 20, 8, 4, 2), nn.Conv1d(20, 5, 3, 1, 1))),
    "volumes, transposed": (
        VOLUMES,
        lambda: nn.Sequential(
            nn.ConvTranspose3d(3, 8, (3, 4, 2), (2, 2, 1), 1, output_padding=(1, 1, 0)), nn.ConvTranspose3d(8, 2, 1, 3)
        ),
    ),
    "volumes": (
        VOLUMES,
        lambda: nn.Sequential(nn.Conv3d(3, 8, 3, (2, 1, 1), (1, 1, 2)), nn.MaxPool3d(3, 1, 1), nn.AvgPool3d(1, 2)),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHER_RANKS)
def test_one_program_serves_lines_and_volumes(name, tmp_path):
    torch.manual_seed(3)
    sizes, make = OTHER_RANKS[name]
    network = disturbed(make())
    model = weft.compile(exported(network, tmp_path, sizes[0]))
    for batch, extents in enumerate(sizes, 1):
        x = torch.randn(batch, 3, *extents)
        (got,) = model.run({"x": x.numpy()})
        np.testing.assert_allclose(got, network(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert model.compilations == 1


@pytest.mark.filterwarnings("ignore")
def test_bits_of_a_size_do_not_depend_on_what_ran_before(tmp_path):
    torch.manual_seed(2)
    path = exported(disturbed(NETWORKS["classifier"]()), tmp_path)
    x, answers = np.random.default_rng(0).standard_normal((2, 3, 40, 41)).astype("float32"), []
    for first in ((1, 20, 20), (2, 40, 41), (3, 96, 65)):
        model = weft.compile(path)
        model.run({"x": np.ones((first[0], 3, *first[1:]), "float32")})
        answers.append(model.run({"x": x})[0])
    assert all(np.array_equal(answers[0], other) for other in answers[1:])


def test_scales_of_batch_norms_go_into_filters():
    rng = np.random.default_rng(4)
    shapes = {"c_weight": (16, 3, 3, 3), "c_bias": (16,), "n_gamma": (16,), "n_beta": (16,)}
    shapes |= {"n_moving_mean": (16,), "n_moving_var": (16,)}
    params = {name: rng.random(shape).astype("float32") + 0.5 for name, shape in shapes.items()}
    made = weft.symbol.conv2d(Variable("x"), name="c", channels=16, kernel_size=(3, 3))
    model = weft.compile((weft.symbol.batch_norm(made, name="n")[0], params), shape={"x": ("n", 3, "h", "w")})
    x = rng.standard_normal((2, 3, 9, 11)).astype("float32")
    filters, bias, *statistics = (torch.tensor(params[name]) for name in shapes)
    gamma, beta, mean, var = statistics
    want = F.batch_norm(F.conv2d(torch.tensor(x), filters, bias), mean, var, gamma, beta, eps=1e-5)
    np.testing.assert_allclose(model.run({"x": x})[0], want.numpy(), rtol=1e-4, atol=1e-4)
    kernels = model.report().kernels
    assert any("conv2d" in kernel.operators for kernel in kernels)
    assert not any("broadcast_mul" in kernel.operators for kernel in kernels)


@pytest.mark.parametrize("width", range(1, 20))
def test_columns_in_tiles_and_a_rest(width):
    """Every number of columns, and an image that is narrower than a filter but for its padding."""
    rng = np.random.default_rng(width)
    weight = rng.standard_normal((32, 16, 3, 3)).astype("float32")
    symbol = weft.symbol.conv2d(
        Variable("x"), name="c", channels=32, kernel_size=(3, 3), padding=(1, 1), use_bias=False
    )
    model = weft.compile((symbol, {"c_weight": weight}), shape={"x": (1, 16, "h", "w")})
    x = rng.standard_normal((1, 16, 5, width)).astype("float32")
    want = F.conv2d(torch.tensor(x).double(), torch.tensor(weight).double(), padding=1).numpy()
    np.testing.assert_allclose(model.run({"x": x})[0], want, rtol=1e-4, atol=1e-4)


GRADIENTS = {  # channels read and made, kernel, stride, padding, dilation, groups
    "dense": (24, 20, 3, 1, 1, 1, 1),
    "strided": (8, 20, 4, 2, 1, 1, 1),
    "apart": (6, 9, 3, 2, 2, 2, 3),
    "planes": (12, 12, 3, 2, 1, 1, 12),
}


@pytest.mark.parametrize("case", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_of_images_of_any_size(case):
    inputs, outputs, kernel, stride, pad, dilation, groups = case
    rng = np.random.default_rng(5)
    attrs = {"channels": outputs, "kernel_size": (kernel, kernel), "strides": (stride, stride), "groups": groups}
    attrs |= {"padding": (pad, pad), "dilation": (dilation, dilation), "use_bias": False}
    symbol = weft.symbol._conv2d_grad_data(Variable("g"), Variable("x"), Variable("w"), **attrs)
    shape = {"g": ("n", outputs, "p", "q"), "x": ("n", inputs, "h", "w")}
    weight = rng.standard_normal((outputs, inputs // groups, kernel, kernel)).astype("float32")
    model = weft.compile((symbol, {"w": weight}), shape=shape)
    for size in ((2, 26, 29), (1, 31, 40), (3, 9, 17)):
        x = rng.standard_normal((size[0], inputs, *size[1:])).astype("float32")
        read = torch.tensor(x).double().requires_grad_()
        made = F.conv2d(read, torch.tensor(weight).double(), None, stride, pad, dilation, groups)
        g = rng.standard_normal(made.shape).astype("float32")
        (want,) = torch.autograd.grad(made, read, torch.tensor(g).double())
        found = model.run({"g": g, "x": x})[0]
        assert np.abs(found - want.numpy()).max() <= 5e-5 * np.abs(want.numpy()).max()
    assert model.compilations == 1


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_along_open_axes(name, axis):
    model = weft.compile(getattr(weft.symbol, name)(Variable("x"), axis=axis), shape={"x": ("a", "b", "c")})
    rng = np.random.default_rng(3)
    for shape in ((2, 3, 4), (5, 1, 40), (1, 70, 1), (33, 2, 9)):
        x = rng.standard_normal(shape).astype("float32")
        want = getattr(torch, name)(torch.tensor(x).double(), axis).numpy()
        np.testing.assert_allclose(model.run({"x": x})[0], want, rtol=1e-4, atol=1e-5)
    assert model.compilations == 1


@pytest.mark.parametrize("extent", [1, 7, 8, 15, 16, 1000])
def test_tiles_cover_an_axis(extent):
    tiles = tiles_of(Trace().extent("n", extent), 8)
    counts = [(turns, int(count.value)) for turns, count in tiles]
    assert sum(turns * count for turns, count in counts) == extent
    assert [turns for turns, _ in counts] == [8, 4, 2, 1]
    assert all(count <= 1 for _, count in counts[1:])
