"""Eager calls by compiled code: the same results as the references, chosen by sizes alone."""

import numpy as np
import pytest

import weft
from weft.core.op import Op
from weft.eager import native
from weft.eager.dispatch import kernel_of

from ..oracles import oracle


def floats(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def test_convolution_with_gradients_agrees_with_pytorch():
    torch = oracle("torch")
    arrays = [floats(0, 2, 6, 15, 13), floats(1, 8, 3, 3, 3), floats(2, 8)]
    results = []
    for library in (weft, torch):
        x, w, b = (library.from_numpy(a.copy()).requires_grad_() for a in arrays)
        functional = library.nn.functional
        y = functional.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), groups=2)
        (y * y).sum().backward()
        results.append([t.detach().numpy() for t in (y, x.grad, w.grad, b.grad)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=5e-5 * np.abs(theirs).max())


def test_results_repeat_bit_for_bit():
    x, w = weft.from_numpy(floats(3, 1, 16, 20, 20)), weft.from_numpy(floats(4, 16, 16, 3, 3))
    first = weft.nn.functional.conv2d(x, w, padding=1)
    for _ in range(3):
        again = weft.nn.functional.conv2d(x, w, padding=1)
        assert weft.equal(first, again)


@pytest.mark.parametrize("name", sorted(native.NATIVE_FROM))
def test_choice_depends_on_sizes_and_dtypes(name):
    op = Op.get(name)
    small, least = np.zeros(1, "float32"), native.NATIVE_FROM[name]
    large = np.zeros(least, "float32")
    assert kernel_of(op).native
    assert native.wants_native(op, None, [large])
    assert not native.wants_native(op, None, [small])
    assert not native.wants_native(op, None, [large.astype("float64")])


def test_running_statistics_are_updated_where_they_are():
    torch = oracle("torch")
    arrays = [floats(5, 8, 4, 40, 40), np.ones(4, "float32"), floats(6, 4)]
    means = []
    for library in (weft, torch):
        x, weight, bias = (library.from_numpy(a.copy()) for a in arrays)
        mean, var = library.zeros(4), library.ones(4)
        library.nn.functional.batch_norm(x, mean, var, weight, bias, training=True)
        means.append([mean.numpy(), var.numpy()])
    np.testing.assert_allclose(means[0], means[1], rtol=1e-5, atol=1e-6)


def test_waits_are_told_under_debug(capfd, monkeypatch):
    monkeypatch.setenv("WEFT_DEBUG", "dispatch")
    x, w = weft.from_numpy(floats(7, 1, 8, 11, 17)), weft.from_numpy(floats(8, 5, 8, 3, 3))
    weft.nn.functional.conv2d(x, w)
    assert "compiled conv2d for an eager call" in capfd.readouterr().err
    weft.nn.functional.conv2d(x, w)
    assert capfd.readouterr().err == ""
