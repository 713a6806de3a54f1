"""What functions of nn.functional do beside their result: running moments, writing in place,
indices, random masks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.eager.functions.all import FUNCTIONS
from weft.eager.tensor.tensor import wrap

torch = oracle("torch")
N = FUNCTIONS["weft.nn.functional"]


def _pair(rng, *shape):
    array = rng.standard_normal(shape).astype("float32")
    return wrap(array.copy()), torch.from_numpy(array.copy())


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_moments(rng, name):
    x, y = _pair(rng, 4, 3, 5)
    mean, var = wrap(np.zeros(3, np.float32)), wrap(np.ones(3, np.float32))
    other = torch.zeros(3), torch.ones(3)
    flag = {"training": True} if name == "batch_norm" else {}
    for _ in range(3):
        got = N[name](x, mean, var, momentum=0.3, **flag)
        want = getattr(torch.nn.functional, name)(y, *other, momentum=0.3, **flag)
        np.testing.assert_allclose(got._array, want.numpy(), 1e-4, 1e-5)
    np.testing.assert_allclose(mean._array, other[0].numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(var._array, other[1].numpy(), 1e-5, 1e-6)
    assert mean._version == 3


def test_a_batch_of_one_has_no_spread():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        N["batch_norm"](wrap(np.ones((1, 3), np.float32)), None, None, training=True)


@pytest.mark.parametrize("name", ["relu", "elu", "hardtanh", "leaky_relu", "silu", "relu6"])
def test_in_place(rng, name):
    x, y = _pair(rng, 6)
    made = N[name](x, inplace=True)
    assert made is x
    assert x._version == 1
    np.testing.assert_allclose(x._array, getattr(torch.nn.functional, name)(y).numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("padding", [0, 1])
def test_greatest_and_where(rng, padding):
    x, y = _pair(rng, 2, 3, 7, 6)
    got = N["max_pool2d"](x, 3, 2, padding, return_indices=True)
    want = torch.nn.functional.max_pool2d(y, 3, 2, padding, return_indices=True)
    np.testing.assert_array_equal(got[0]._array, want[0].numpy())
    np.testing.assert_array_equal(got[1]._array, want[1].numpy())


def test_fold_is_the_transpose_of_unfold(rng):
    options = {"kernel_size": (2, 3), "dilation": 2, "padding": 1, "stride": (2, 1)}
    columns = torch.nn.functional.unfold(torch.zeros(2, 3, 8, 7), **options).shape
    x, y = _pair(rng, *columns)
    got = N["fold"](x, (8, 7), **options)
    want = torch.nn.functional.fold(y, (8, 7), **options)
    np.testing.assert_allclose(got._array, want.numpy(), 1e-5, 1e-5)


def test_dropout_keeps_the_mean():
    x = wrap(np.ones(20000, np.float32))
    made = N["dropout"](x, 0.25)._array
    values = np.unique(made)
    np.testing.assert_allclose(values, [0, 4 / 3], 1e-6)
    assert abs(made.mean() - 1) < 0.02
    assert N["dropout"](x, 0.25, training=False) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        N["dropout"](x, 1.5)


def test_whole_channels_are_dropped():
    made = N["dropout2d"](wrap(np.ones((8, 16, 3, 3), np.float32)), 0.5)._array
    assert (made == made[:, :, :1, :1]).all()
    assert 0 < (made[:, :, 0, 0] == 0).mean() < 1


def test_embedding_limits_rows_and_spares_the_padding(rng):
    x, y = _pair(rng, 5, 4)
    places = np.int64([0, 2, 2, 4])
    N["embedding"](wrap(places), x, max_norm=0.5)
    torch.nn.functional.embedding(torch.from_numpy(places), y, max_norm=0.5)
    np.testing.assert_allclose(x._array, y.numpy(), 1e-5, 1e-6)
    with pytest.raises(IndexError):
        N["embedding"](wrap(np.int64([5])), x)


def test_classes_outside_are_refused():
    scores = wrap(np.zeros((2, 3), np.float32))
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        N["cross_entropy"](scores, wrap(np.int64([0, 3])))
    ignored = N["cross_entropy"](scores, wrap(np.int64([0, -100])))
    np.testing.assert_allclose(ignored.item(), np.log(3), 1e-6)


@pytest.mark.parametrize("corners", [False, True])
def test_images_at_the_points_of_a_grid(rng, corners):
    x, y = _pair(rng, 2, 3, 5, 6)
    theta, other = _pair(rng, 2, 2, 3)
    grid = N["affine_grid"](theta, (2, 3, 4, 7), corners)
    points = torch.nn.functional.affine_grid(other, (2, 3, 4, 7), corners)
    np.testing.assert_allclose(grid._array, points.numpy(), 1e-5, 1e-6)
    for mode, padding in product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")):
        got = N["grid_sample"](x, wrap(points.numpy()), mode, padding, corners)
        want = torch.nn.functional.grid_sample(y, points, mode, padding, corners)
        np.testing.assert_allclose(got._array, want.numpy(), 1e-4, 1e-5)
    with pytest.raises(ValueError, match="mode"):
        N["grid_sample"](x, grid, "cubic")


def test_volumes_are_not_read_by_curves(rng):
    with pytest.raises(RuntimeError, match="bicubic"):
        N["grid_sample"](wrap(np.ones((1, 1, 2, 2, 2))), wrap(np.zeros((1, 1, 1, 1, 3))), "bicubic")


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "sizes"), [*product(["bilinear", "nearest"], [(23, 29), (5, 11, 13)]), ("bicubic", (23, 29))]
)
def test_many_points_of_a_grid_by_native_code(rng, mode, sizes, padding):
    """Channels and places that fill no vector, far outside the images, too."""
    data = rng.standard_normal((2, 11, *(7, 17, 19)[-len(sizes) :]))
    points = rng.uniform(-3, 3, (2, *sizes, len(sizes)))
    heads = rng.standard_normal((2, 11, *sizes))
    made = []
    for m in (weft, torch):
        x, grid = (m.from_numpy(a.copy()).requires_grad_() for a in (data, points))
        y = m.nn.functional.grid_sample(x, grid, mode, padding, padding == "border")
        y.backward(m.from_numpy(heads))
        made.append([y.detach().numpy(), x.grad.numpy(), grid.grad.numpy()])
    for got, want in zip(*made):
        np.testing.assert_allclose(got, want, 1e-9, 1e-9)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_images_of_another_size_without_aliases(rng, mode, kind):
    data = rng.standard_normal((2, 3, 11, 9)).astype(kind)
    for corners, target in product(
        (False, True), ({"size": (4, 20)}, {"size": (11, 3)}, {"scale_factor": (0.45, 0.6)}, {"scale_factor": 1.7})
    ):
        if corners and mode == "lanczos":
            continue
        made = []
        for m in (weft, torch):
            x = m.from_numpy(data.copy()).requires_grad_()
            y = m.nn.functional.interpolate(x, **target, mode=mode, align_corners=corners, antialias=True)
            (y * y).sum().backward()
            made.append([y.detach().numpy(), x.grad.numpy()])
        for got, want in zip(*made):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((1, 1, 4), {"mode": "linear", "antialias": True}),
        ((1, 1, 4, 4), {"mode": "nearest", "antialias": True}),
        ((1, 1, 4, 4), {"mode": "lanczos"}),
        ((1, 1, 4, 4), {"mode": "lanczos", "antialias": True, "align_corners": True}),
    ],
)
def test_filters_have_modes_of_their_own(shape, options):
    for m in (weft, torch):
        with pytest.raises(ValueError, match=r"(?i)anti-?alias|lanczos"):
            m.nn.functional.interpolate(m.ones(*shape), size=2, **options)
