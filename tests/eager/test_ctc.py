"""ctc_loss against PyTorch: forms of targets and lengths, reductions, gradients, errors."""

import numpy as np
import pytest
from oracles import oracle

import weft


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


def given(seed=0, steps=12, batch=3, classes=6, most=4):
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((steps, batch, classes))
    labels = rng.integers(1, classes, (batch, most))
    labels[:, 1] = labels[:, 0]
    return raw, labels, np.array([steps, steps - 1, 7]), np.array([most, 2, 3])


def both(torch, raw, *arrays, **options):
    """Losses and gradients of weft and of PyTorch."""
    made = []
    for library in (weft, torch):
        x = library.from_numpy(raw.copy()).requires_grad_()
        rest = [library.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arrays]
        loss = library.nn.functional.ctc_loss(x.log_softmax(-1), *rest, **options)
        loss.sum().backward()
        made.append((loss.detach().numpy(), x.grad.numpy()))
    return made


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("form", ["padded", "joined", "tuples", "one"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forms(torch, reduction, form, dtype):
    raw, labels, steps, counts = given()
    raw = raw.astype(dtype)
    if form == "joined":
        labels = labels[np.arange(4) < counts[:, None]]
    if form == "tuples":
        steps, counts = tuple(steps.tolist()), tuple(counts.tolist())
    if form == "one":
        raw, labels, steps, counts = raw[:, 0], labels[0], steps[:1], counts[:1]
    ours, theirs = both(torch, raw, labels, steps, counts, reduction=reduction)
    tolerance = 1e-5 if dtype == "float32" else 1e-11
    for a, b in zip(ours, theirs):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_that_cannot_be_reached(torch, zero_infinity):
    raw, labels, steps, counts = given()
    steps[1], steps[2] = 2, 0
    counts[1] = 3
    for length in (0, 2):
        counts[2] = length
        options = {"reduction": "none", "zero_infinity": zero_infinity}
        for a, b in zip(*both(torch, raw, labels, steps, counts, **options)):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_gradient_of_log_probabilities_themselves(torch):
    """PyTorch counts on probabilities that add up to 1: the sum over classes is 0."""
    raw, labels, steps, counts = given()
    grads = []
    for library in (weft, torch):
        x = library.from_numpy(raw).log_softmax(2).detach().requires_grad_()
        rest = [library.from_numpy(array) for array in (labels, steps, counts)]
        library.nn.functional.ctc_loss(x, *rest, blank=2, reduction="sum").backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(grads[0].sum(2), 0, atol=1e-10)


def test_many_labels_on_several_threads(torch):
    raw, _, _, _ = given(1, steps=150, batch=5, classes=30)
    rng = np.random.default_rng(0)
    labels, counts = rng.integers(1, 30, (5, 60)), np.array([60, 33, 1, 0, 16])
    before, found = weft.get_num_threads(), []
    for threads in (1, 2):
        weft.set_num_threads(threads)
        ours, theirs = both(torch, raw.astype("float32"), labels, np.full(5, 150), counts)
        found.append(ours)
        for a, b in zip(ours, theirs):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    weft.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*found))


def test_reduction_by_number(torch):
    raw, labels, steps, counts = given()
    for reduction in (0, 1, 2):
        a, b = (
            library.ctc_loss(
                library.from_numpy(raw).log_softmax(2),
                *(library.from_numpy(array) for array in (labels, steps, counts)),
                reduction=reduction,
            ).numpy()
            for library in (weft, torch)
        )
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"steps": np.array([13, 1, 1])}, RuntimeError),
        ({"steps": np.array([-1, 1, 1])}, RuntimeError),
        ({"steps": np.array([5, 5])}, RuntimeError),
        ({"steps": np.array([5.0, 5.0, 5.0])}, RuntimeError),
        ({"counts": np.array([5, 1, 1])}, RuntimeError),
        ({"counts": np.array([-1, 1, 1])}, RuntimeError),
        ({"labels": np.ones(4, np.int64)}, RuntimeError),
        ({"labels": np.ones((2, 4), np.int64)}, RuntimeError),
        ({"raw": np.zeros((12, 3, 6), np.int64)}, NotImplementedError),
        ({"raw": np.zeros((12, 0, 6))}, RuntimeError),
        ({"blank": 6}, RuntimeError),
        ({"blank": -1}, RuntimeError),
        ({"reduction": "all"}, ValueError),
    ],
    ids=str,
)
def test_errors(torch, change, kind):
    raw, labels, steps, counts = given()
    for library in (torch, weft):
        args = {"raw": raw, "labels": labels, "steps": steps, "counts": counts, **change}
        arrays = [library.from_numpy(args.pop(k)) for k in ("raw", "labels", "steps", "counts")]
        with pytest.raises(kind):
            library.nn.functional.ctc_loss(*arrays, **args)


def test_labels_must_be_classes():
    raw, labels, steps, counts = given()
    for label in (-1, 6):
        labels[0, 0] = label
        arrays = [weft.from_numpy(array) for array in (raw, labels, steps, counts)]
        with pytest.raises(weft.Error, match="targets must be classes"):
            weft.nn.functional.ctc_loss(*arrays)
    labels[0, 0], labels[1, 3] = 1, -100  # behind the end of the second
    arrays = [weft.from_numpy(array) for array in (raw, labels, steps, counts)]
    assert np.isfinite(weft.nn.functional.ctc_loss(*arrays).item())


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_second_derivatives(reduction):
    raw, labels, steps, counts = given(steps=6, most=2, classes=4)
    steps, counts = np.array([6, 5, 3]), np.array([2, 1, 0])
    x = weft.from_numpy(raw).requires_grad_()
    arrays = [weft.from_numpy(array) for array in (labels, steps, counts)]
    loss = lambda x: weft.nn.functional.ctc_loss(x.log_softmax(-1), *arrays, reduction=reduction)
    assert weft.autograd.gradgradcheck(loss, (x,))
