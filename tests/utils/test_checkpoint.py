"""Checkpoints compute the gradients that a network has without them, and keep nothing in between."""

import gc
import weakref

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.nn import functional as F
from weft.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential, set_checkpoint_early_stop

rng = np.random.default_rng(0)


@pytest.fixture
def torch():
    return oracle("torch")


def leaf(*shape):
    return weft.tensor(rng.standard_normal(shape).astype("float32"), requires_grad=True)


def block(x, w, scale=1.0):
    return F.relu(x @ w).exp().tanh() * scale


def inplace(x, w):
    y = F.relu(x @ w, inplace=True)
    return y.exp_().mul_(0.5).add_(x).sigmoid_()


def dropped(x, w):
    return F.dropout(x @ w, 0.5).sin()


def nested(x, w):
    inner = checkpoint(block, x * 2, w, use_reentrant=False)
    return checkpoint(lambda y: block(y, w).cos(), inner.tanh(), use_reentrant=False) + x


def two(x, w):
    y = x @ w
    return y.sin(), None, y.exp().sum()


def total(result):
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return sum((part * part).sum() for part in parts if part is not None)


def gradients(function, x, w, **options):
    x.grad = w.grad = None
    weft.manual_seed(3)
    loss = total(checkpoint(function, x, w, **options) if options else function(x, w))
    draws = weft.rand(1).item()
    loss.backward()
    return loss.item(), x.grad.tolist(), w.grad.tolist(), draws


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("function", [block, inplace, dropped, nested, two])
def test_gradients_are_those_without(function, reentrant, early_stop):
    x, w = leaf(4, 3), leaf(3, 3)
    expected = gradients(function, x, w)
    assert gradients(function, x, w, use_reentrant=reentrant, early_stop=early_stop) == expected


def test_gradients_are_pytorchs(torch):
    x, w = leaf(4, 3), leaf(3, 3)
    xt, wt = (torch.tensor(t.detach().numpy(), requires_grad=True) for t in (x, w))
    for module, a, b in ((weft, x, w), (torch, xt, wt)):
        run = module.utils.checkpoint.checkpoint
        run(lambda a, b: (a @ b).sin().exp(), a, b=b, use_reentrant=False).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), xt.grad.numpy(), rtol=1e-5)
    np.testing.assert_allclose(w.grad.numpy(), wt.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_lies_between_is_not_kept(reentrant):
    seen = []

    def watched(x):
        y = x.exp()
        seen.append(weakref.ref(y))
        return y.sin()

    out = checkpoint(watched, leaf(3), use_reentrant=reentrant)
    gc.collect()
    assert [ref() for ref in seen] == [None]
    out.sum().backward()
    assert len(seen) == 2


def test_tensors_go_as_soon_as_they_were_used():
    """While the backward pass is in one checkpoint, what another one computed again is gone."""
    alive = []

    def watched(x):
        y = x.exp()
        alive.append(weakref.ref(y))
        return y.sin()

    counts = []
    x = leaf(3)
    y = x
    for _ in range(4):
        y = checkpoint(watched, y, use_reentrant=False)
        y.register_hook(lambda grad: counts.append(sum(ref() is not None for ref in alive)))
    y.sum().backward()
    assert len(alive) == 8
    assert counts == [0, 0, 0, 0]


def test_inner_checkpoints_leave_their_inputs_to_the_outer_one():
    inputs = []

    def outer(x):
        y = x.exp()
        inputs.append(weakref.ref(y))
        return checkpoint(lambda y: y.sin().exp(), y, use_reentrant=False).cos()

    x = leaf(3)
    out = checkpoint(outer, x, use_reentrant=False)
    gc.collect()
    assert inputs[0]() is None
    out.sum().backward()
    expected = -x.exp().sin().exp().sin() * x.exp().sin().exp() * x.exp().cos() * x.exp()
    np.testing.assert_allclose(x.grad.numpy(), expected.detach().numpy(), rtol=1e-5)


def test_the_graph_may_be_used_twice():
    x = leaf(3)
    out = checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False).sum()
    out.backward(retain_graph=True)
    once = x.grad.clone()
    out.backward()
    assert (x.grad == 2 * once).all()


def test_second_gradients():
    x = leaf(3)
    results = []
    for run in (lambda f, x: checkpoint(f, x, use_reentrant=False), lambda f, x: f(x)):
        (first,) = weft.autograd.grad(run(lambda x: x.exp().sin(), x).sum(), x, create_graph=True)
        results.append(weft.autograd.grad(first.sum(), x)[0].tolist())
    assert results[0] == results[1]


def test_the_second_computation_ends_early():
    calls = []

    def watched(x):
        y = x.exp()
        calls.append("exp")
        y = y + 1  # saves nothing
        calls.append("add")
        return y

    x = leaf(3)
    checkpoint(watched, x, use_reentrant=False).sum().backward()
    assert calls == ["exp", "add"]
    with set_checkpoint_early_stop(False):
        checkpoint(watched, x, use_reentrant=False).sum().backward()
    assert calls == ["exp", "add"] * 3


def test_functions_may_handle_exceptions():
    def careful(x):
        try:
            y = x.exp()
        except Exception:
            y = x
        return y * 2

    x = leaf(3)
    checkpoint(careful, x, use_reentrant=False).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(x.detach().numpy()), rtol=1e-6)


def test_autocast_holds_the_second_time():
    x, w = leaf(4, 3), leaf(3, 3)
    seen = []

    def product(x, w):
        y = x @ w
        seen.append(y.dtype)
        return y.exp()

    for reentrant in (True, False):
        with weft.amp.autocast("cpu"):
            out = checkpoint(product, x, w, use_reentrant=reentrant, early_stop=False)
        out.float().sum().backward()
    assert seen == [weft.bfloat16] * 4


def test_contexts():
    entered = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exc):
            pass

    made = lambda: (Context("first"), Context("second"))
    checkpoint(lambda x: x.exp(), leaf(2), use_reentrant=False, context_fn=made).sum().backward()
    assert entered == ["first", "second"]


@pytest.mark.parametrize(("check", "raises"), [("default", True), ("none", False)])
def test_another_shape_is_noticed(check, raises):
    shapes = iter([(1, 3), (3,)])
    x = leaf(3)
    out = checkpoint(lambda x: x.reshape(next(shapes)).exp().sum(), x, use_reentrant=False, determinism_check=check)
    if raises:
        with pytest.raises(CheckpointError, match="saved tensor 0"):
            out.backward()
    else:
        out.backward()
        np.testing.assert_allclose(x.grad.numpy(), x.detach().exp().numpy(), rtol=1e-6)


def test_another_number_of_tensors_is_noticed():
    calls = iter([1, 2])
    out = checkpoint(lambda x: x.exp().sin() if next(calls) == 1 else x + 1, leaf(3), use_reentrant=False)
    with pytest.raises(RuntimeError, match="the first saved 2 tensors, the second 0"):
        out.sum().backward()


def test_errors_are_pytorchs(torch):
    def cases(module):
        checkpoint = module.utils.checkpoint.checkpoint
        x = module.ones(2, requires_grad=True)
        y = lambda **options: checkpoint(lambda x: x.exp(), x, **options)
        return [
            lambda: module.autograd.grad(y(use_reentrant=True).sum(), x),
            lambda: checkpoint(lambda x, b: x, x, b=1, use_reentrant=True),
            lambda: y(use_reentrant=True, context_fn=lambda: None),
            lambda: y(use_reentrant=True, debug=True),
            lambda: checkpoint(lambda x: x.detach(), x, use_reentrant=True).sum().backward(),
            lambda: module.utils.checkpoint.checkpoint_sequential([], 1, x, use_reentrant=False, other=1),
            lambda: y(use_reentrant=False, determinism_check="some").sum().backward(),
        ]

    for ours, theirs in zip(cases(weft), cases(torch)):
        with pytest.raises(Exception) as expected:
            theirs()
        with pytest.raises(type(expected.value)):
            ours()


def test_warnings():
    with pytest.warns(UserWarning, match="use_reentrant"):
        checkpoint(lambda x: x, leaf(2))
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda x: x.exp(), weft.ones(2), use_reentrant=True).requires_grad
    with weft.no_grad():
        assert checkpoint(lambda x: x + 1, weft.ones(1), use_reentrant=False).item() == 2


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("segments", [1, 2, 3])
def test_sequences(segments, reentrant):
    x, w = leaf(4, 3), leaf(3, 3)
    calls = []

    def step(number):
        def run(x):
            calls.append(number)
            return (x @ w * number).tanh()

        return run

    steps = [step(number) for number in (1, 2, 3, 4, 5)]
    out = checkpoint_sequential(steps, segments, x, use_reentrant=reentrant)
    expected = x
    for run in steps:
        expected = run(expected)
    assert (out == expected).all()
    calls.clear()
    out.sum().backward()
    again = (segments - 1) * (5 // segments)
    assert sorted(calls) == list(range(1, again + 1))
    got = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    expected.sum().backward()
    for ours, theirs in zip(got, (x.grad, w.grad)):  # which add up in another order
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)


def test_capsules(torch):
    from weft.utils import dlpack

    x = weft.arange(4)
    y = torch.utils.dlpack.from_dlpack(dlpack.to_dlpack(x))
    y[1] = 9
    assert x.tolist() == [0, 9, 2, 3]
    assert dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(y)).tolist() == [0, 9, 2, 3]


@pytest.mark.parametrize("reentrant", [True, False])
def test_modules(torch, reentrant):
    """A network in segments has the gradients that PyTorch's has; its random numbers are the same twice."""
    x = rng.standard_normal((8, 4)).astype("float32")
    found = []
    for module in (weft, torch):
        module.manual_seed(0)
        nn = module.nn
        net = nn.Sequential(
            nn.Linear(4, 16), nn.ReLU(inplace=True), nn.Dropout(0.4), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
        )
        given = module.tensor(x, requires_grad=True)
        run = module.utils.checkpoint.checkpoint_sequential
        out = run(net, 3, given, use_reentrant=reentrant)
        (out * out).sum().backward()
        found.append([given.grad.numpy(), *(parameter.grad.numpy() for parameter in net.parameters())])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
