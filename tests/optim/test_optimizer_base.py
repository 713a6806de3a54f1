"""What all optimisers share: groups, states, hooks, files, copies. PyTorch says what is right."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from optim_twins import SHAPES, assert_close, assert_same_state, parameters, train, values
from oracles import oracle

import weft
from weft.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)

KINDS = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"]
OPTIONS = {"SGD": {"lr": 0.1, "momentum": 0.9}, "RMSprop": {"momentum": 0.5, "centered": True}}


def leaf(*shape):
    return weft.zeros(*shape, requires_grad=True)


def made(library, kind, shapes=SHAPES, dtype="float32"):
    params = parameters(library, values(shapes, dtype))
    return getattr(library.optim, kind)(params, **OPTIONS.get(kind, {})), params


MISUSES = {
    "a tensor": lambda lib, p: lib.optim.SGD(p),
    "nothing": lambda lib, p: lib.optim.SGD([]),
    "no tensors": lambda lib, p: lib.optim.SGD([1]),
    "two groups": lambda lib, p: lib.optim.SGD([{"params": [p]}, {"params": [p]}]),
    "no leaf": lambda lib, p: lib.optim.SGD([p * 2]),
    "a set": lambda lib, p: lib.optim.SGD([{"params": {p}}]),
    "no params": lambda lib, p: lib.optim.SGD([{"lr": 1}]),
    "a name missing": lambda lib, p: lib.optim.SGD([("a", p), p]),
    "a group without names": lambda lib, p: lib.optim.SGD([("a", p)]).add_param_group({"params": [p]}),
    "a group with names": lambda lib, p: lib.optim.SGD([p]).add_param_group({"params": [("a", p)]}),
    "no dict": lambda lib, p: lib.optim.SGD([p]).add_param_group([p]),
    "no step": lambda lib, p: lib.optim.Optimizer([p], {}).step(),
    "other groups": lambda lib, p: lib.optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []}),
    "other sizes": lambda lib, p: lib.optim.SGD([p]).load_state_dict(
        {"state": {}, "param_groups": [{"params": [0, 1]}]}
    ),
    "lr": lambda lib, p: lib.optim.SGD([p], lr=-1),
    "lr of many": lambda lib, p: lib.optim.SGD([p], lr=lib.tensor([0.1, 0.2])),
    "momentum": lambda lib, p: lib.optim.SGD([p], momentum=-1),
    "nesterov": lambda lib, p: lib.optim.SGD([p], nesterov=True),
    "weight_decay": lambda lib, p: lib.optim.SGD([p], weight_decay=-1),
    "fused and foreach": lambda lib, p: lib.optim.SGD([p], fused=True, foreach=True),
    "fused and differentiable": lambda lib, p: lib.optim.Adam([p], fused=True, differentiable=True),
    "eps": lambda lib, p: lib.optim.Adam([p], eps=-1),
    "beta1": lambda lib, p: lib.optim.Adam([p], betas=(1.0, 0.9)),
    "beta2": lambda lib, p: lib.optim.Adamax([p], betas=(0.9, -1.0)),
    "beta and tensor": lambda lib, p: lib.optim.Adam([p], betas=(0.9, lib.tensor(0.9))),
    "lists and tensors": lambda lib, p: lib.optim.Adam([p], lr=lib.tensor(0.1), foreach=True),
    "momentum_decay": lambda lib, p: lib.optim.NAdam([p], momentum_decay=-1),
    "radam eps": lambda lib, p: lib.optim.RAdam([p], eps=-1),
    "lr_decay": lambda lib, p: lib.optim.Adagrad([p], lr_decay=-1),
    "initial": lambda lib, p: lib.optim.Adagrad([p], initial_accumulator_value=-1),
    "rho": lambda lib, p: lib.optim.Adadelta([p], rho=2),
    "alpha": lambda lib, p: lib.optim.RMSprop([p], alpha=-1),
    "etas": lambda lib, p: lib.optim.Rprop([p], etas=(1.2, 0.5)),
    "asgd decay": lambda lib, p: lib.optim.ASGD([p], weight_decay=-1),
    "factor eps": lambda lib, p: lib.optim.Adafactor([p], eps=(None, -1)),
    "factor lr": lambda lib, p: lib.optim.Adafactor([p], lr=-1),
    "factor d": lambda lib, p: lib.optim.Adafactor([p], d=0.5),
    "factor decay": lambda lib, p: lib.optim.Adafactor([p], beta2_decay=1),
    "muon of vectors": lambda lib, p: lib.optim.Muon([p]),
    "muon adjust": lambda lib, p: lib.optim.Muon([p[None].detach()], adjust_lr_fn="x"),
    "lbfgs groups": lambda lib, p: lib.optim.LBFGS([{"params": [p]}, {"params": [lib.zeros(2)]}]),
    "capturable": lambda lib, p: _stepped(lib, lib.optim.Adam([p], capturable=True), p),
    "capturable lists": lambda lib, p: _stepped(lib, lib.optim.RMSprop([p], capturable=True), p),
    "a leaf by the graph": lambda lib, p: _stepped(lib, lib.optim.SGD([p], differentiable=True), p),
    "a hook": lambda lib, p: _hooked(lib, p),
}


def _stepped(library, optimizer, p):
    p.grad = library.ones(2)
    optimizer.step()


def _hooked(library, p):
    optimizer = library.optim.SGD([p])
    optimizer.register_step_pre_hook(lambda *args: 3)
    optimizer.step()


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_raises_what_pytorch_raises(name):
    torch = oracle("torch")
    with pytest.raises(Exception) as theirs:
        MISUSES[name](torch, torch.zeros(2, requires_grad=True))
    with pytest.raises(Exception) as ours:
        MISUSES[name](weft, weft.zeros(2, requires_grad=True))
    assert isinstance(ours.value, theirs.type)
    assert isinstance(ours.value, (weft.Error, KeyError))


def test_options_that_are_required():
    class Own(Optimizer):
        def __init__(self, params):
            super().__init__(params, {"rate": required, "other": 2})

        def step(self):
            return 5

    with pytest.raises(ValueError, match="required optimization parameter rate"):
        Own([leaf(2)])
    own = Own([{"params": leaf(2), "rate": 1}])
    assert (own.step(), own.param_groups[0]["other"], repr(required)) == (5, 2, "<required parameter>")


def test_duplicates_are_told_and_stepped_twice():
    p = leaf(2)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = weft.optim.SGD([p, p], lr=1.0)
    p.grad = weft.ones(2)
    optimizer.step()
    assert p.tolist() == [-2.0, -2.0]


def test_names_of_parameters():
    torch = oracle("torch")
    made_of = []
    for library in (weft, torch):
        a, b = (library.zeros(2, requires_grad=True) for _ in range(2))
        named = library.optim.SGD([("a", a), ("b", b)], lr=0.1)
        plain = library.optim.SGD([a, b], lr=0.2)
        texts = [repr(named)]
        states = [named.state_dict(), plain.state_dict()]
        named.load_state_dict(states[1])
        plain.load_state_dict(states[0])
        made_of.append((texts, states, named.state_dict(), plain.state_dict()))
    assert made_of[0] == made_of[1]
    model = weft.nn.Linear(2, 2)
    assert weft.optim.Adam(model.named_parameters()).param_groups[0]["param_names"] == ["weight", "bias"]


@pytest.mark.parametrize("kind", KINDS)
def test_options_by_group(kind):
    results = []
    for library in (weft, oracle("torch")):
        params = parameters(library, values(SHAPES, "float64"))
        groups = [{"params": params[:2]}, {"params": params[2:4], "lr": 0.3}, {"params": params[4:]}]
        optimizer = getattr(library.optim, kind)(groups[:2], **OPTIONS.get(kind, {}))
        optimizer.add_param_group({**groups[2], "lr": 0.05})
        train(library, optimizer, params, "float64", 5)
        results.append((optimizer, params))
    assert_same_state(results[0][0], results[1][0], 1e-10)
    for p, q in zip(results[0][1], results[1][1]):
        assert_close(p.detach().numpy(), q.detach().numpy(), 1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_going_on_from_the_state_of_pytorchs(kind, dtype):
    torch = oracle("torch")
    theirs, their_params = made(torch, kind, dtype=dtype)
    train(torch, theirs, their_params, dtype, 5)
    params = parameters(weft, [p.detach().numpy().copy() for p in their_params])
    ours = getattr(weft.optim, kind)(params, lr=17.0)
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(weft.load(file))
    theirs.load_state_dict(theirs.state_dict())  # which gives states the dtype of their parameters
    train(torch, theirs, their_params, dtype, 5, seed=2)
    train(weft, ours, params, dtype, 5, seed=2)
    tolerance = 1e-5 if dtype == "float32" else 1e-10
    tolerance = max(tolerance, 1e-7) if kind == "ASGD" else tolerance  # PyTorch rounds its rates to float32
    assert_same_state(ours, theirs, tolerance)
    for p, q in zip(params, their_params):
        assert_close(p.detach().numpy(), q.detach().numpy(), tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_goes_on_from_our_files(kind):
    torch = oracle("torch")
    ours, params = made(weft, kind)
    train(weft, ours, params, "float32", 5)
    file = io.BytesIO()
    weft.save(ours.state_dict(), file)
    file.seek(0)
    their_params = parameters(torch, [p.detach().numpy().copy() for p in params])
    theirs = getattr(torch.optim, kind)(their_params, lr=17.0)
    theirs.load_state_dict(torch.load(file, weights_only=True))
    assert_same_state(ours, theirs, 0.0)
    train(weft, ours, params, "float32", 5, seed=2)
    train(torch, theirs, their_params, "float32", 5, seed=2)
    assert_same_state(ours, theirs, 1e-5)


def test_what_is_loaded_is_a_copy_in_the_dtype_of_the_parameter():
    first, params = made(weft, "Adam")
    train(weft, first, params, "float32", 2)
    state = first.state_dict()
    second = weft.optim.Adam([p.detach().double().requires_grad_() for p in params])
    second.load_state_dict(state)
    loaded = second.state[second.param_groups[0]["params"][0]]
    assert (loaded["exp_avg"].dtype, loaded["step"].dtype) == (weft.float64, weft.float32)
    third = weft.optim.Adam(parameters(weft, values(SHAPES, "float32")))
    third.load_state_dict(state)
    before = state["state"][0]["exp_avg"].clone()
    train(weft, third, third.param_groups[0]["params"], "float32", 1, seed=5)
    assert (state["state"][0]["exp_avg"] == before).all()
    assert state["state"][0]["step"].item() == 2


def test_counts_of_steps_that_are_plain_numbers():
    """As files of long ago have them."""
    optimizer, params = made(weft, "Adam")
    train(weft, optimizer, params, "float32", 3)
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["step"] = 3
    optimizer.load_state_dict(state)
    train(weft, optimizer, params, "float32", 1)
    assert optimizer.state[params[0]]["step"].item() == 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))], ids=["copy", "pickle"])
def test_copies_are_optimisers_of_their_own(kind, way):
    optimizer, params = made(weft, kind)
    train(weft, optimizer, params, "float32", 2)
    optimizer.register_step_post_hook(lambda *args: None)
    other = way(optimizer)
    copies = other.param_groups[0]["params"]
    assert repr(other) == repr(optimizer)
    assert all(p is not q for p, q in zip(params, copies))
    train(weft, optimizer, params, "float32", 2, seed=3)
    train(weft, other, copies, "float32", 2, seed=3)
    for p, q in zip(params, copies):
        assert (p == q).all()
        for name, value in optimizer.state[p].items():
            assert (other.state[q][name] == value).all()


def test_zero_grad():
    optimizer, params = made(weft, "SGD")
    for p in params[:2]:
        p.grad = weft.ones_like(p)
    kept = params[0].grad
    optimizer.zero_grad(set_to_none=False)
    assert params[0].grad is kept
    assert not kept.any()
    optimizer.zero_grad()
    assert [p.grad for p in params] == [None] * len(params)
    w = leaf(2)
    (w * w).sum().backward(create_graph=True)
    weft.optim.SGD([w]).zero_grad(set_to_none=False)
    assert not w.grad.requires_grad


@pytest.mark.parametrize("kind", [*KINDS, "Adafactor"])
def test_closures(kind):
    optimizer, params = made(weft, kind, [(3, 4)])

    def closure():
        assert weft.is_grad_enabled()
        optimizer.zero_grad()
        loss = (params[0] ** 2).sum()
        loss.backward()
        return loss

    before = params[0].detach().clone()
    with weft.no_grad():
        loss = optimizer.step(closure)
        assert not weft.is_grad_enabled()
    assert loss.item() == pytest.approx((before**2).sum().item())
    assert not (params[0] == before).all()


def test_hooks_around_steps():
    calls = []
    optimizer, _ = made(weft, "SGD")

    class Own(weft.optim.SGD):
        def step(self, closure=None):
            calls.append("own")
            return super().step(closure)

    def told(name, result=None):
        def hook(optimizer, args, kwargs):
            calls.append((name, args, kwargs))
            return result

        return hook

    handles = [
        register_optimizer_step_pre_hook(told("before all")),
        register_optimizer_step_post_hook(told("after all")),
        optimizer.register_step_pre_hook(told("before", ((), {"closure": lambda: 7}))),
        optimizer.register_step_post_hook(told("after")),
    ]
    assert optimizer.step() == 7
    assert [call[0] for call in calls] == ["before all", "before", "after", "after all"]
    assert list(calls[2][2]) == ["closure"]
    for handle in handles[2:]:
        handle.remove()
    calls.clear()
    Own([leaf(2)]).step()
    assert [call if call == "own" else call[0] for call in calls] == ["before all", "own", "after all"]
    for handle in handles[:2]:
        handle.remove()
    calls.clear()
    optimizer.step()
    assert calls == []


def test_hooks_around_state_dicts():
    optimizer, _ = made(weft, "SGD")
    calls = []
    optimizer.register_state_dict_pre_hook(lambda o: calls.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    with optimizer.register_state_dict_post_hook(lambda o, state: calls.append("more" in state), prepend=True):
        state = optimizer.state_dict()
    assert (state["more"], calls) == (1, ["pre", False])
    optimizer.state_dict()
    assert calls == ["pre", False, "pre"]

    def changed(o, state):
        state["param_groups"] = [{**state["param_groups"][0], "lr": 9.0}]
        return state

    optimizer.register_load_state_dict_pre_hook(changed)
    optimizer.register_load_state_dict_post_hook(lambda o: calls.append(o.param_groups[0]["lr"]))
    optimizer.load_state_dict(state)
    assert calls[-1] == 9.0
    assert state["param_groups"][0]["lr"] == 0.1


def test_options_as_tensors():
    torch = oracle("torch")
    for kind in KINDS:
        results = []
        for library in (weft, torch):
            params = parameters(library, values(SHAPES, "float64"))
            optimizer = getattr(library.optim, kind)(params, lr=library.tensor(0.125))
            train(library, optimizer, params, "float64", 4)
            optimizer.param_groups[0]["lr"].fill_(0.25)
            train(library, optimizer, params, "float64", 4, seed=4)
            results.append([p.detach().numpy() for p in params])
        for ours, theirs in zip(*results):
            assert_close(ours, theirs, 1e-6)  # PyTorch computes with rates in float32
    betas = [weft.tensor(0.8), weft.tensor(0.9)]
    p, q = leaf(2), leaf(2)
    p.grad = q.grad = weft.tensor([1.0, 2.0])
    first, second = weft.optim.Adam([p], betas=tuple(betas)), weft.optim.Adam([q], betas=(0.8, 0.9))
    for _ in range(3):
        first.step()
        second.step()
    assert_close(p.detach().numpy(), q.detach().numpy(), 1e-6)


def loss_after_two_steps(kind, start, rate, data, **options):
    """What is left after two steps from a start; both may be parts of a graph."""
    p = start.clone()
    p.retain_grad()
    optimizer = getattr(weft.optim, kind)([p], **{**OPTIONS.get(kind, {}), "lr": rate, **options})
    for scale in (1.0, 2.0):
        (p.grad,) = weft.autograd.grad((data * p * p * scale).sum(), p, create_graph=True)
        optimizer.step()
    return (p * p).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_differentiated(kind):
    """Gradients with respect to where steps began and to the rate, beside differences of steps that are not
    differentiated."""
    start, data = (weft.tensor(np.random.default_rng(n).random(4) + 0.1, requires_grad=n == 1) for n in (1, 2))
    follows_rate = kind not in ("Rprop", "ASGD")  # which keep it in states that are numbers
    rate = weft.tensor(0.05, dtype=weft.float64, requires_grad=follows_rate)
    options = {} if kind == "Rprop" else {"weight_decay": 0.1}
    loss_after_two_steps(kind, start, rate, data, differentiable=True, **options).backward()

    def loss(x, lr):
        with_grad = weft.tensor(x, requires_grad=True)
        return loss_of_plain_steps(kind, with_grad, lr, data, options)

    x, step = start.detach().numpy(), 1e-6
    for n in range(4):
        up, down = x.copy(), x.copy()
        up[n] += step
        down[n] -= step
        assert start.grad[n].item() == pytest.approx((loss(up, 0.05) - loss(down, 0.05)) / (2 * step), rel=1e-5)
    if follows_rate:
        slope = (loss(x, 0.05 + step) - loss(x, 0.05 - step)) / (2 * step)
        assert rate.grad.item() == pytest.approx(slope, rel=1e-5)


def loss_of_plain_steps(kind, p, rate, data, options):
    optimizer = getattr(weft.optim, kind)([p], **{**OPTIONS.get(kind, {}), "lr": rate, **options})
    for scale in (1.0, 2.0):
        optimizer.zero_grad()
        (data * p * p * scale).sum().backward()
        optimizer.step()
    return (p.detach() ** 2).sum().item()


@pytest.mark.parametrize("kind", KINDS)
def test_short_floats(kind):
    torch = oracle("torch")
    results = []
    for library in (weft, torch):
        params = [p.detach().bfloat16().requires_grad_() for p in parameters(library, values(SHAPES[:3], "float32"))]
        optimizer = getattr(library.optim, kind)(params, **OPTIONS.get(kind, {}))
        rng = np.random.default_rng(3)
        for _ in range(5):
            for p in params:
                p.grad = library.tensor(np.asarray(rng.standard_normal(tuple(p.shape)), "float32")).bfloat16()
            optimizer.step()
        assert all(p.dtype == library.bfloat16 for p in params)
        results.append([p.detach().float().numpy() for p in params])
    for ours, theirs in zip(*results):
        assert_close(ours, theirs, 0.04)


def test_the_default_dtype_decides_that_of_counts():
    before = weft.get_default_dtype()
    weft.set_default_dtype(weft.float64)
    try:
        p = leaf(2)
        p.grad = weft.ones(2)
        optimizer = weft.optim.Adam([p])
        optimizer.step()
        assert optimizer.state[p]["step"].dtype == weft.float64
    finally:
        weft.set_default_dtype(before)


def test_no_warnings_and_no_graph():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            optimizer, params = made(weft, kind)
            train(weft, optimizer, params, "float32", 2)
            assert all(p.is_leaf and p.requires_grad for p in params)
            assert not any(value.requires_grad for state in optimizer.state.values() for value in state.values())
