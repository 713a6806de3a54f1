"""Normalisations, softmax and losses against classes beside PyTorch: values, gradients, those
of gradients, accuracy, and strange inputs."""

import numpy as np
import pytest
from oracles import oracle

import weft
import weft.nn.functional as F

KINDS = ("layer", "rms", "group", "instance", "batch", "batch_columns")


def call(functional, kind, x, gamma, beta):
    if kind == "layer":
        return functional.layer_norm(x, gamma.shape, gamma, beta)
    if kind == "rms":
        return functional.rms_norm(x, gamma.shape, gamma, 1e-5)
    if kind == "group":
        return functional.group_norm(x, 3, gamma, beta)
    if kind == "instance":
        return functional.instance_norm(x, weight=gamma, bias=beta)
    return functional.batch_norm(x, None, None, gamma, beta, training=True)


def shapes_of(kind):
    if kind in ("layer", "rms"):
        return ((37, 53), (53,)), ((2, 5, 130), (130,)), ((4, 3, 7), (3, 7))
    if kind == "batch_columns":
        return ((65, 33), (33,)), ((40, 5), (5,))
    return ((5, 6, 9, 7), (6,)), ((4, 9, 3), (9,)), ((2, 3, 40, 31), (3,))


def tensors(lib, arrays):
    return [lib.from_numpy(array.copy()).requires_grad_() for array in arrays]


def pulled(lib, functional, kind, arrays, g, again):
    """The result, its gradients, and those of a product with the first."""
    own = tensors(lib, arrays)
    out = call(functional, kind, *own)
    used = own[:2] if kind == "rms" else own
    first = lib.autograd.grad(out, used, lib.from_numpy(g), create_graph=True)
    second = lib.autograd.grad((first[0] * lib.from_numpy(again)).sum() + (first[1] ** 2).sum(), used[:2])
    return [made.detach().numpy() for made in (out, *first, *second)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_norms_and_their_gradients(kind, dtype):
    torch = oracle("torch")
    rng = np.random.default_rng(KINDS.index(kind))
    for shape, own in shapes_of(kind):
        arrays = [rng.standard_normal(s).astype(dtype) for s in (shape, own, own)]
        g, again = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        ours = pulled(weft, F, kind, arrays, g, again)
        wide = [array.astype("float64") for array in (*arrays, g, again)]
        theirs = pulled(torch, torch.nn.functional, kind, wide[:3], *wide[3:])
        for found, wanted in zip(ours, theirs, strict=True):
            scale = np.abs(wanted).max()
            limit = 3e-5 if dtype == "float32" else 1e-12
            assert np.abs(found - wanted).max() <= limit * scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_accuracy_is_pytorchs(kind, offset):
    """The error against float64 is at most what PyTorch's is, but for a little luck."""
    torch = oracle("torch")
    rng = np.random.default_rng(KINDS.index(kind))
    shape, own = ((64, 1000), (1000,)) if kind in ("layer", "rms") else ((16, 12, 20, 20), (12,))
    if kind == "batch_columns":
        shape, own = (1000, 64), (64,)
    arrays = [rng.standard_normal(s).astype("float32") for s in (shape, own, own)]
    arrays[0] += np.float32(offset)
    g = rng.standard_normal(shape).astype("float32")

    def made(lib, functional, arrays, g):
        own = tensors(lib, arrays)
        out = call(functional, kind, *own)
        out.backward(lib.from_numpy(g))
        return [out.detach().numpy(), *[t.grad.numpy() for t in own if t.grad is not None]]

    exact = made(torch, torch.nn.functional, [a.astype("float64") for a in arrays], g.astype("float64"))
    ours, theirs = made(weft, F, arrays, g), made(torch, torch.nn.functional, arrays, g)
    for found, other, wanted in zip(ours, theirs, exact, strict=True):
        error, allowed = (np.abs(x - wanted).max() for x in (found, other))
        assert error <= 1.5 * allowed + 1e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", KINDS)
def test_views_and_expanded_gradients(kind):
    torch = oracle("torch")
    rng = np.random.default_rng(7)
    shape, own = shapes_of(kind)[0]
    x = np.repeat(rng.standard_normal(shape).astype("float32"), 2, axis=-1)
    vectors = [rng.standard_normal(own).astype("float32") for _ in range(2)]

    def made(lib, functional):
        whole, *scales = tensors(lib, [x, *vectors])
        out = call(functional, kind, whole[..., ::2], *scales)
        out.sum().backward()
        return [t.numpy() for t in (out.detach(), whole.grad, scales[0].grad)]

    for found, wanted in zip(made(weft, F), made(torch, torch.nn.functional), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


def test_channels_last_in_memory_stay_there():
    torch = oracle("torch")
    rng = np.random.default_rng(8)
    x = rng.standard_normal((3, 5, 6, 24)).astype("float32")
    vectors = [rng.standard_normal(24).astype("float32") for _ in range(2)]

    def made(lib, functional):
        data, *scales = tensors(lib, [x, *vectors])
        out = functional.batch_norm(data.permute(0, 3, 1, 2), None, None, *scales, training=True)
        (out * out).sum().backward()
        return out.stride(), [t.numpy() for t in (out.detach(), data.grad, scales[0].grad)]

    (ours, values), (theirs, wanted) = made(weft, F), made(torch, torch.nn.functional)
    assert tuple(ours) == tuple(theirs)
    for found, exact in zip(values, wanted, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


def test_running_moments_move():
    torch = oracle("torch")
    rng = np.random.default_rng(9)
    x = rng.standard_normal((6, 40)).astype("float32")

    def made(lib, functional):
        mean, var = lib.zeros(40), lib.ones(40)
        functional.batch_norm(lib.from_numpy(x), mean, var, training=True, momentum=0.3)
        return mean.numpy(), var.numpy()

    for found, wanted in zip(made(weft, F), made(torch, torch.nn.functional), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_strange_rows(value):
    torch = oracle("torch")
    x = np.random.default_rng(10).standard_normal((8, 50)).astype("float32")
    x[2] = value
    x[3, 4] = value
    for kind in ("layer", "rms"):
        ones = np.ones(50, "float32")
        ours = call(F, kind, *tensors(weft, [x, ones, ones])).detach().numpy()
        theirs = call(torch.nn.functional, kind, *tensors(torch, [x, ones, ones])).detach().numpy()
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


# Softmax and losses against classes


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ignore_index": 3},
        {"ignore_index": -7},
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.2, "ignore_index": 3},
        {"weight": True},
        {"weight": True, "ignore_index": 3, "reduction": "sum"},
        {"weight": True, "label_smoothing": 0.1},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [(30, 11), (3, 11, 5), (2, 11, 8, 9), (11,)], ids=str)
def test_cross_entropy(shape, options):
    torch = oracle("torch")
    rng = np.random.default_rng(11)
    options = dict(options)
    weight = rng.random(11).astype("float32") if options.pop("weight", False) else None
    x = (rng.standard_normal(shape) * 4).astype("float32")
    classes = rng.integers(0, 11, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if options.get("ignore_index", 0) < 0:
        classes = np.where(rng.random(classes.shape) < 0.3, -7, classes)
    again = rng.standard_normal(shape).astype("float32")

    def made(lib, functional):
        (own,) = tensors(lib, [x])
        given = None if weight is None else lib.from_numpy(weight)
        loss = functional.cross_entropy(own, lib.from_numpy(np.asarray(classes)), given, **options)
        (first,) = lib.autograd.grad(loss.sum(), own, create_graph=True)
        (second,) = lib.autograd.grad((first * lib.from_numpy(again)).sum(), own)
        return [t.detach().numpy() for t in (loss, first, second)]

    for found, wanted in zip(made(weft, F), made(torch, torch.nn.functional), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_far_scores_keep_their_digits():
    """exp overflows long before these; what is left of them is exact."""
    x = weft.tensor([[1e4, 1e4 + 1, 1e4 - 2], [-1e4, 0.0, 3.0]], requires_grad=True)
    losses = F.cross_entropy(x, weft.tensor([1, 0]), reduction="none")
    losses.sum().backward()
    wide = x.detach().numpy().astype("float64")
    powers = np.exp(wide - wide.max(1, keepdims=True))
    share = powers / powers.sum(1, keepdims=True)
    right = np.array([[0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(x.grad.numpy(), share - right, rtol=1e-5, atol=1e-7)
    exact = np.log(powers.sum(1)) - (wide - wide.max(1, keepdims=True))[right == 1]
    np.testing.assert_allclose(losses.detach().numpy(), exact, rtol=1e-6)


def test_ignored_rows_have_no_gradient_whatever_is_in_them():
    x = np.random.default_rng(12).standard_normal((40, 10)).astype("float32")
    x[5] = np.nan
    (own,) = tensors(weft, [x])
    classes = np.arange(40) % 10
    classes[5] = -100
    F.cross_entropy(own, weft.from_numpy(classes)).backward()
    assert not own.grad.numpy()[5].any()
    assert np.isfinite(own.grad.numpy()).all()


def test_all_ignored_is_nan_as_a_mean():
    x, classes = weft.zeros(70, 3), weft.full((70,), -100)
    assert np.isnan(F.cross_entropy(x, classes).item())
    assert F.cross_entropy(x, classes, reduction="sum").item() == 0


def test_classes_that_change_before_the_backward_pass_are_noticed():
    (x,) = tensors(weft, [np.zeros((40, 3), "float32")])
    classes = weft.zeros(40, dtype=weft.int64)
    loss = F.cross_entropy(x, classes)
    classes[0] = 2
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        loss.backward()


def test_classes_outside_are_refused():
    for classes in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match="out of bounds"):
            F.cross_entropy(weft.zeros(2, 3), weft.tensor(classes))
