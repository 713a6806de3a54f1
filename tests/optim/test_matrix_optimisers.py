"""Optimisers that look at whole tensors, or at all of them: L-BFGS, Adafactor, Muon; beside PyTorch's."""

import io

import numpy as np
import pytest
from optim_twins import assert_close, assert_same_state, parameters, train, values
from oracles import oracle

import weft

SHAPES = [(3, 5), (7,), (), (2, 4, 3)]
FACTORED = [{}, {"weight_decay": 0.1, "maximize": True, "d": 2.0}, {"eps": (1e-2, 1e-1), "lr": 0.5}, {"foreach": False}]
MUON = [{}, {"nesterov": False, "weight_decay": 0.0}, {"adjust_lr_fn": "match_rms_adamw"}, {"ns_steps": 3, "eps": 0.1}]


def compare(name, options, dtype, shapes, tolerance, steps=50):
    results = []
    for library in (weft, oracle("torch")):
        params = parameters(library, values(shapes, dtype))
        optimizer = getattr(library.optim, name)(params, **options)
        train(library, optimizer, params, dtype, steps, skip=lambda step, number: step == 3 and number == 1)
        results.append((optimizer, params))
    (ours, a), (theirs, b) = results
    for p, q in zip(a, b):
        assert_close(p.detach().numpy(), q.detach().numpy(), tolerance)
    assert_same_state(ours, theirs, tolerance)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", FACTORED, ids=str)
def test_adafactor(options, dtype):
    compare("Adafactor", options, dtype, SHAPES, 1e-5 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon(options, dtype):
    compare("Muon", {"lr": 0.01, **options}, dtype, [(3, 5), (7, 2), (4, 4), (1, 6)], 1e-3, steps=20)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_complex_parameters_are_refused(name):
    p = weft.zeros(2, 2, dtype=weft.complex64, requires_grad=True)
    p.grad = weft.ones_like(p).detach()
    with pytest.raises(RuntimeError, match="complex"):
        getattr(weft.optim, name)([p]).step()


@pytest.mark.parametrize("options", [{"ns_steps": 100}, {"ns_coefficients": (1.0, 2.0)}], ids=str)
def test_muon_refuses_what_does_not_end(options):
    p = weft.zeros(2, 2, requires_grad=True)
    p.grad = weft.ones(2, 2)
    with pytest.raises(ValueError, match=r"less than 100|exactly 3"):
        weft.optim.Muon([p], **options).step()


LBFGS = [
    {"max_iter": 6},
    {"lr": 0.3, "max_iter": 5, "history_size": 2},
    {"max_iter": 20, "max_eval": 4},
    {"line_search_fn": "strong_wolfe", "max_iter": 8},
    {"line_search_fn": "strong_wolfe", "history_size": 3, "lr": 0.1, "max_iter": 6},
    {"line_search_fn": "strong_wolfe", "lr": 100.0, "max_iter": 4},
    {"tolerance_grad": 1.0},
    {"tolerance_change": 0.1},
]


def regression(library, options, dtype="float64"):
    """A small network that L-BFGS fits, with a parameter that has no gradient."""
    rng = np.random.default_rng(0)
    x, y, *start = (
        rng.standard_normal(shape).astype(dtype) for shape in ((20, 4), (20, 3), (4, 5), (5,), (5, 3), (2,))
    )
    x, y = library.tensor(x), library.tensor(y)
    w, b, v, _ = params = parameters(library, start)
    optimizer = library.optim.LBFGS(params, **options)

    def closure():
        optimizer.zero_grad()
        loss = ((library.tanh(x @ w + b) @ v - y) ** 2).mean()
        loss.backward()
        return loss

    return optimizer, params, closure


@pytest.mark.parametrize("options", LBFGS, ids=str)
def test_lbfgs(options):
    results = []
    for library in (weft, oracle("torch")):
        optimizer, params, closure = regression(library, options)
        losses = [optimizer.step(closure).item() for _ in range(3)]
        state = optimizer.state_dict()["state"][0]
        results.append((losses, params, state, repr(optimizer)))
    (losses, a, state, text), (its, b, its_state, its_text) = results
    assert losses == pytest.approx(its, rel=1e-8)
    for p, q in zip(a, b):
        assert_close(p.detach().numpy(), q.detach().numpy(), 1e-6)
    assert [state[key] for key in ("func_evals", "n_iter")] == [its_state[key] for key in ("func_evals", "n_iter")]
    assert state.keys() == its_state.keys() - {"al"}  # PyTorch's scratch
    assert len(state.get("old_dirs", ())) == len(its_state.get("old_dirs", ()))
    assert text == its_text


def test_lbfgs_goes_on_from_pytorchs_file():
    torch = oracle("torch")
    options = {"max_iter": 4, "line_search_fn": "strong_wolfe"}
    theirs, their_params, their_closure = regression(torch, options)
    theirs.step(their_closure)
    ours, params, closure = regression(weft, options)
    with weft.no_grad():
        for p, q in zip(params, their_params):
            p.copy_(weft.tensor(q.detach().numpy().copy()))
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(weft.load(file))
    for _ in range(2):
        assert ours.step(closure).item() == pytest.approx(theirs.step(their_closure).item(), rel=1e-8)


def test_lbfgs_of_complex_parameters():
    results = []
    for library in (weft, oracle("torch")):
        (z,) = parameters(library, values([(3,)], "complex128"))
        optimizer = library.optim.LBFGS([z], max_iter=5, line_search_fn="strong_wolfe")

        def closure(z=z, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((z - (1 + 2j)).abs() ** 4).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        results.append(z.detach().numpy())
    assert_close(results[0], results[1], 1e-8)


def test_lbfgs_wants_a_closure_and_a_search_that_there_is():
    p = weft.ones(2, requires_grad=True)
    with pytest.raises(TypeError, match="closure"):
        weft.optim.LBFGS([p]).step()
    optimizer = weft.optim.LBFGS([p], line_search_fn="golden")

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="strong_wolfe"):
        optimizer.step(closure)
