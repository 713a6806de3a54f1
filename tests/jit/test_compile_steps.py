"""Optimisers inside of compiled functions: parameters, gradients and states after compiled steps are those after eager
steps, and PyTorch's; and the update is a part of the program, unless something speaks against it."""

import copy

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import nn

OPTIMISERS = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"lr": 0.1, "maximize": True},
    ],
    "Adam": [{"lr": 0.01}, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}, {"lr": 0.01, "foreach": True}],
    "AdamW": [{"lr": 0.01, "weight_decay": 0.1}],
    "NAdam": [{"lr": 0.01}],
    "RAdam": [{"lr": 0.01}],
    "Adamax": [{"lr": 0.01}],
    "Adagrad": [{"lr": 0.05, "lr_decay": 0.1}],
    "Adadelta": [{"lr": 0.5}],
    "ASGD": [{"lr": 0.05}],
    "RMSprop": [{"lr": 0.01, "momentum": 0.9, "centered": True}],
    "Rprop": [{"lr": 0.01}],
}
CASES = [(name, options) for name, rows in OPTIMISERS.items() for options in rows]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def network(lib):
    return lib.nn.Sequential(lib.nn.Linear(5, 4), lib.nn.Tanh(), lib.nn.Linear(4, 3))


def training_step(model, optimizer, lib=weft):
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def followers(compiled):
    """What runs at the ends of the programs of a function."""
    plans = [plan for kind in compiled.plans.values() for plan in kind]
    return [step.follower for plan in plans for step in plan.path.steps if getattr(step, "follower", None) is not None]


def arrays(state):
    return {key: {name: value.tolist() for name, value in row.items()} for key, row in state["state"].items()}


def close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key].keys() == row.keys()
        for name, value in row.items():
            np.testing.assert_allclose(found[key][name], value, rtol=tolerance, atol=tolerance, err_msg=f"{key} {name}")


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_twenty_steps(name, options, rng):
    torch = oracle("torch")
    model, twin = network(weft), network(torch)
    start = {key: rng.standard_normal(value.shape).astype("float32") for key, value in model.state_dict().items()}
    model.load_state_dict({key: weft.tensor(value) for key, value in start.items()})
    twin.load_state_dict({key: torch.tensor(value) for key, value in start.items()})
    same = copy.deepcopy(model)
    ours, eager = (getattr(weft.optim, name)(m.parameters(), **options) for m in (model, same))
    theirs = getattr(torch.optim, name)(twin.parameters(), **options)
    step, plain, other = (
        weft.compile(training_step(model, ours)),
        training_step(same, eager),
        training_step(twin, theirs, torch),
    )
    places = [p.data_ptr() for p in model.parameters()]
    for number in range(20):
        x = rng.standard_normal((6, 5)).astype("float32")
        if number in (5, 12):
            for optimizer in (ours, eager, theirs):
                optimizer.param_groups[0]["lr"] *= 0.5
        loss, expected = step(weft.tensor(x)), plain(weft.tensor(x))
        other(torch.tensor(x))
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-4)
    assert [p.data_ptr() for p in model.parameters()] == places
    for p, q, r in zip(model.parameters(), same.parameters(), twin.parameters()):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(p.detach().numpy(), r.detach().numpy(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(p.grad.numpy(), r.grad.numpy(), rtol=1e-3, atol=1e-4)
    close(arrays(ours.state_dict()), arrays(eager.state_dict()), 1e-4)
    close(arrays(ours.state_dict()), arrays(theirs.state_dict()), 1e-3)
    assert ours.state_dict()["param_groups"] == eager.state_dict()["param_groups"]
    assert len(followers(step)) == 1
    assert step.explain().plans == 1


@pytest.mark.parametrize("name", ["Muon", "Adafactor"])
def test_optimisers_without_a_rule_step_after_the_program(name, rng):
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False))
    twin = copy.deepcopy(model)
    step = weft.compile(training_step(model, getattr(weft.optim, name)(model.parameters(), lr=0.01)))
    plain = training_step(twin, getattr(weft.optim, name)(twin.parameters(), lr=0.01))
    for _ in range(4):
        x = weft.tensor(rng.standard_normal((6, 5)).astype("float32"))
        np.testing.assert_allclose(step(x).item(), plain(x).item(), rtol=1e-4)
    assert followers(step) == []


def pair(make=weft.optim.Adam, **options):
    """Two equal models, each with a step of its own, the first compiled."""
    weft.manual_seed(0)
    model = network(weft)
    twin = copy.deepcopy(model)
    made = [(m, make(m.parameters(), **({"lr": 0.05} | options))) for m in (model, twin)]
    return made, weft.compile(training_step(*made[0])), training_step(*made[1])


def run(step, plain, rng, count):
    for _ in range(count):
        x = weft.tensor(rng.standard_normal((6, 5)).astype("float32"))
        np.testing.assert_allclose(step(x).item(), plain(x).item(), rtol=1e-4)


def test_a_state_that_is_loaded_between_calls(rng):
    made, step, plain = pair()
    run(step, plain, rng, 4)
    first = followers(step)
    saved = [copy.deepcopy(optimizer.state_dict()) for _, optimizer in made]
    run(step, plain, rng, 2)
    for (_, optimizer), state in zip(made, saved):
        optimizer.load_state_dict(state)
    run(step, plain, rng, 4)
    assert followers(step) != first
    close(arrays(made[0][1].state_dict()), arrays(made[1][1].state_dict()), 1e-4)


def test_options_that_change_the_rule(rng):
    made, step, plain = pair(weft.optim.SGD)
    run(step, plain, rng, 3)
    for change in (
        {"weight_decay": 0.5},
        {"maximize": True},
        {"weight_decay": 0, "maximize": False},
        {"foreach": False},
    ):
        for _, optimizer in made:
            optimizer.param_groups[0].update(change)
        run(step, plain, rng, 3)


def test_hooks_are_called(rng):
    made, step, plain = pair()
    run(step, plain, rng, 3)
    calls = []
    handle = made[0][1].register_step_post_hook(lambda *_: calls.append(1))
    run(step, plain, rng, 2)
    handle.remove()
    run(step, plain, rng, 3)
    assert len(calls) == 2
    assert len(followers(step)) == 1


def test_groups_and_parameters_without_gradients(rng):
    def made(model):
        first, second = model[0], model[2]
        groups = [
            {"params": [first.weight, weft.nn.Parameter(weft.ones(3))], "lr": 0.1},
            {"params": [*second.parameters()]},
        ]
        return weft.optim.Adam(groups, lr=0.01)

    weft.manual_seed(0)
    model = network(weft)
    twin = copy.deepcopy(model)
    ours, theirs = made(model), made(twin)
    idle = ours.param_groups[0]["params"][1]
    step, plain = weft.compile(training_step(model, ours)), training_step(twin, theirs)
    run(step, plain, rng, 4)
    assert len(followers(step)) == 1
    idle.grad, theirs.param_groups[0]["params"][1].grad = weft.ones(3), weft.ones(3)
    run(step, plain, rng, 4)
    np.testing.assert_allclose(idle.detach().numpy(), theirs.param_groups[0]["params"][1].detach().numpy())
    close(arrays(ours.state_dict()), arrays(theirs.state_dict()), 1e-4)


def test_counts_that_differ(rng):
    made, step, plain = pair()
    run(step, plain, rng, 3)
    for model, optimizer in made:
        optimizer.state[model[0].weight]["step"].fill_(40.0)
    run(step, plain, rng, 3)
    close(arrays(made[0][1].state_dict()), arrays(made[1][1].state_dict()), 1e-4)


def test_a_parameter_that_is_read_after_its_update(rng):
    def both(model, optimizer):
        inner = training_step(model, optimizer)

        def step(x):
            kept = model[0].weight * 2
            loss = inner(x)
            return loss, kept, model[0].weight * 2, model(x)

        return step

    made, _, _ = pair()
    step, plain = weft.compile(both(*made[0])), both(*made[1])
    for _ in range(5):
        x = weft.tensor(rng.standard_normal((6, 5)).astype("float32"))
        for found, expected in zip(step(x), plain(x)):
            np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert len(followers(step)) == 1


def test_one_parameter_under_two_names(rng):
    def made(model):
        model[2].weight = model[0].weight
        return model, weft.optim.Adam(model.parameters(), lr=0.05)

    weft.manual_seed(0)
    first = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
    second = copy.deepcopy(first)
    step, plain = weft.compile(training_step(*made(first))), training_step(*made(second))
    run(step, plain, rng, 5)
    assert first[2].weight is first[0].weight
    np.testing.assert_allclose(
        first[0].weight.detach().numpy(), second[0].weight.detach().numpy(), rtol=1e-4, atol=1e-5
    )
    assert len(followers(step)) == 1


def test_two_parameters_of_one_memory_are_stepped_one_by_one(rng):
    memory = weft.tensor(rng.standard_normal(4).astype("float32"))
    params = [nn.Parameter(memory), nn.Parameter(memory)]
    optimizer = weft.optim.SGD(params, lr=0.1)

    @weft.compile
    def step():
        optimizer.zero_grad()
        (params[0] ** 2).sum().backward()
        (params[1] * 3).sum().backward()
        optimizer.step()

    expected = memory.numpy().copy()
    for _ in range(4):
        expected = expected - 0.1 * (2 * expected) - 0.1 * 3
        step()
        np.testing.assert_allclose(memory.numpy(), expected, rtol=1e-5)
    assert followers(step) == []


def test_gradients_that_are_kept_or_taken_away_between_calls(rng):
    made, step, plain = pair(weft.optim.SGD)
    run(step, plain, rng, 3)
    x = weft.tensor(rng.standard_normal((6, 5)).astype("float32"))
    step(x)
    kept = [p.grad for p in made[0][0].parameters()]
    values = [grad.tolist() for grad in kept]
    plain(x)
    for model, _ in made:
        for p in model.parameters():
            p.grad = None
    run(step, plain, rng, 3)
    assert [grad.tolist() for grad in kept] == values
    for p, q in zip(made[0][0].parameters(), made[1][0].parameters()):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-5)


def test_versions_go_on(rng):
    made, step, plain = pair()
    (model, ours), (twin, theirs) = made
    before = [p._version for p in model.parameters()]
    run(step, plain, rng, 6)
    assert len(followers(step)) == 1
    assert [p._version for p in model.parameters()] == [version + 6 for version in before]
    for p, q in zip(model.parameters(), twin.parameters()):
        assert [t._version for t in ours.state[p].values()] == [t._version for t in theirs.state[q].values()]


def test_scaled_losses(rng):
    def scaled(model, optimizer):
        scaler = weft.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            return loss

        return step, scaler

    made, _, _ = pair()
    (step, ours), (plain, theirs) = scaled(*made[0]), scaled(*made[1])
    step = weft.compile(step)
    for _ in range(5):
        run(step, plain, rng, 1)
        ours.update()
        theirs.update()
    assert ours.get_scale() == theirs.get_scale()
