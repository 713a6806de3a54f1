"""Every optimiser beside PyTorch's, from the same values, with its options."""

import numpy as np
import pytest
from optim_twins import SHAPES, assert_close, assert_same_state, parameters, train, values
from oracles import oracle

import weft

STEPS = 50
TOLERANCE = {"float32": 1e-5, "float64": 1e-10, "complex64": 1e-5, "complex128": 1e-10}
CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    ("Adam", {"lr": 0.01, "decoupled_weight_decay": True, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"lr": 0.01, "amsgrad": True, "eps": 1e-3}),
    ("Adamax", {"lr": 0.01, "weight_decay": 0.1}),
    ("Adamax", {"maximize": True, "betas": (0.8, 0.9)}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "betas": (0.8, 0.9), "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.1}),
    ("Adagrad", {"maximize": True}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "maximize": True}),
    ("RMSprop", {"weight_decay": 0.1, "alpha": 0.9}),
    ("RMSprop", {"momentum": 0.9, "lr": 1e-3}),
    ("RMSprop", {"centered": True, "maximize": True}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "lr": 1e-3}),
    ("Rprop", {}),
    ("Rprop", {"maximize": True, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.1)}),
    ("ASGD", {"t0": 10, "lambd": 0.1, "weight_decay": 0.1}),
    ("ASGD", {"maximize": True, "lr": 0.1}),
]
IDS = [f"{name}-{'-'.join(options) or 'plain'}" for name, options in CASES]


def both(name, options, dtype, shapes=SHAPES):
    """The optimiser of weft and PyTorch's, each with its parameters."""
    pairs = []
    for library in (weft, oracle("torch")):
        params = parameters(library, values(shapes, dtype))
        pairs.append((library, getattr(library.optim, name)(params, **options), params))
    return pairs


def compare(name, options, dtype, steps=STEPS, tolerance=None, **how):
    (ours, mine, a), (theirs, other, b) = both(name, options, dtype)
    train(ours, mine, a, dtype, steps, **how)
    train(theirs, other, b, dtype, steps, **how)
    tolerance = TOLERANCE[dtype] if tolerance is None else tolerance
    for p, q in zip(a, b):
        assert_close(p.detach().numpy(), q.detach().numpy(), tolerance)
    assert_same_state(mine, other, tolerance)
    assert repr(mine) == repr(other)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_fifty_steps(name, options, dtype):
    compare(name, options, dtype)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_by_operators_on_tensors(name, options):
    compare(name, {**options, "foreach": False}, "float64", steps=10)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_complex_parameters(name, options):
    compare(name, options, "complex64", steps=10)
    compare(name, {**options, "foreach": False}, "complex128", steps=10)


@pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)
def test_parameters_whose_gradients_come_now_and_then(name, options):
    compare(name, options, "float64", steps=12, skip=lambda step, number: (step * 7 + number * 3) % 4 == 0)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_ways_that_are_asked_for(name, way):
    compare(name, {"lr": 0.1, way: True}, "float64", steps=3)


def test_training_a_network():
    """Model, loss, optimiser and schedule together: the same losses as PyTorch's, from the same seed."""
    x, y = values([(32, 6), (32, 3)], "float32", 9)
    losses = []
    for library in (weft, oracle("torch")):
        library.manual_seed(0)
        nn = library.nn
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        decayed = [p for name, p in model.named_parameters() if name.endswith("weight")]
        plain = [p for name, p in model.named_parameters() if name.endswith("bias")]
        optimizer = library.optim.AdamW(
            [{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=0.05, weight_decay=0.1
        )
        schedule = library.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=40)
        seen = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = ((model(library.tensor(x)) - library.tensor(y)) ** 2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            seen.append(loss.item())
        losses.append(seen)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < 0.5 * losses[0][0]


def test_adagrad_begins_before_the_first_step():
    p = weft.ones(2, requires_grad=True)
    optimizer = weft.optim.Adagrad([p], initial_accumulator_value=0.5)
    optimizer.share_memory()
    assert optimizer.state[p]["sum"].is_shared()
    assert optimizer.state[p]["sum"].tolist() == [0.5, 0.5]
