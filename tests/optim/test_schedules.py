"""Every schedule of learning rates beside PyTorch's."""

import copy
import math
import pickle
import warnings

import pytest
from oracles import oracle

import weft

STEPS = 60


class Decay:
    """A function that has something to save."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, epoch):
        return self.rate**epoch


SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (1 + e)]),
    "lambda object": lambda s, o: s.LambdaLR(o, Decay(0.9)),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9 + 0.05 * math.sin(e)),
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 11, 11, 30], 0.7),
    "constant": lambda s, o: s.ConstantLR(o, 0.3, 9),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 13),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "polynomial": lambda s, o: s.PolynomialLR(o, 40, 1.7),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 13, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 1, 0.01),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.1, [1.0, 2.0], 5, 8),
    "cyclic 2": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, mode="triangular2"),
    "cyclic exp": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, mode="exp_range", gamma=0.97, cycle_momentum=False),
    "cyclic own": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, scale_fn=lambda x: 1 / x, scale_mode="cycle"),
    "one cycle": lambda s, o: s.OneCycleLR(o, [1.0, 3.0], STEPS + 1),
    "one cycle line": lambda s, o: s.OneCycleLR(o, 1.0, STEPS + 1, anneal_strategy="linear", pct_start=0.6),
    "one cycle 3": lambda s, o: s.OneCycleLR(o, 1.0, epochs=7, steps_per_epoch=9, three_phase=True, div_factor=3.0),
    "chained": lambda s, o: s.ChainedScheduler([s.StepLR(o, 7, 0.5), s.ExponentialLR(o, 0.98)]),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 6), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 9)], [6, 20]
    ),
    "swa": lambda s, o: _swa(s).SWALR(o, 0.05, 8),
    "swa line": lambda s, o: _swa(s).SWALR(o, [0.05, 0.9], 5, "linear"),
}


def _swa(schedules):
    library = weft if schedules.__name__.startswith("weft") else oracle("torch")
    return library.optim.swa_utils


def optimizer_of(library, kind="SGD", lr=None):
    options = {"lr": 0.5 if lr is None else lr}
    params = [library.nn.Parameter(library.zeros(2)) for _ in range(2)]
    return getattr(library.optim, kind)([{"params": [params[0]]}, {"params": [params[1]], "lr": 0.2}], **options)


def both(name, kind="SGD"):
    made = []
    for library in (weft, oracle("torch")):
        optimizer = optimizer_of(library, kind)
        made.append((optimizer, SCHEDULES[name](library.optim.lr_scheduler, optimizer)))
    return made


def options_of(optimizer):
    keys = ("lr", "momentum", "betas", "initial_lr")
    flat = []
    for group in optimizer.param_groups:
        for key in keys:
            value = group.get(key, 0.0)
            flat += value if isinstance(value, tuple) else [value]
    return [float(value) for value in flat]


def numbers(state):
    """What a state dict has, in one order, with its numbers as floats."""
    if isinstance(state, dict):
        return {key: numbers(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [numbers(value) for value in state]
    return pytest.approx(float(state), rel=1e-12, abs=1e-15) if isinstance(state, (int, float)) else state


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_sixty_steps(name, kind):
    (optimizer, schedule), (theirs, other) = both(name, kind)
    assert options_of(optimizer) == pytest.approx(options_of(theirs), rel=1e-12)
    for _ in range(STEPS):
        for library, stepped in ((optimizer, schedule), (theirs, other)):
            library.step()
            stepped.step()
        assert options_of(optimizer) == pytest.approx(options_of(theirs), rel=1e-10, abs=1e-15)
        assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-10, abs=1e-15)
    assert sorted(schedule.state_dict()) == sorted(other.state_dict())
    assert schedule.state_dict() == numbers(other.state_dict())


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_from_the_state_of_pytorchs(name):
    (optimizer, schedule), (theirs, other) = both(name)
    for _ in range(9):
        theirs.step()
        other.step()
    state = copy.deepcopy(other.state_dict())
    optimizer.load_state_dict(theirs.state_dict())
    schedule.load_state_dict(state)
    assert schedule.get_last_lr() == other.get_last_lr()
    for _ in range(20):
        for library, stepped in ((optimizer, schedule), (theirs, other)):
            library.step()
            stepped.step()
        assert options_of(optimizer) == pytest.approx(options_of(theirs), rel=1e-10, abs=1e-15)


def test_pytorch_goes_on_from_our_states():
    for name in ("step", "multistep", "one cycle", "sequential", "lambda object"):
        (optimizer, schedule), (theirs, other) = both(name)
        for _ in range(9):
            optimizer.step()
            schedule.step()
        theirs.load_state_dict(optimizer.state_dict())
        other.load_state_dict(pickle.loads(pickle.dumps(schedule.state_dict())))
        for _ in range(5):
            for library, stepped in ((optimizer, schedule), (theirs, other)):
                library.step()
                stepped.step()
        assert options_of(theirs) == pytest.approx(options_of(optimizer), rel=1e-10, abs=1e-15)


CLOSED = ["lambda", "step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "restarts"]


@pytest.mark.parametrize("name", [*CLOSED, "longer restarts", "cyclic"])
def test_an_epoch_that_is_given(name):
    (_, schedule), (_, other) = both(name)
    for epoch in (5, 1, 17, 0, 40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule.step(epoch)
            other.step(epoch)
        assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12, abs=1e-15)
        assert schedule.last_epoch == other.last_epoch


@pytest.mark.parametrize("name", CLOSED)
def test_the_chain_agrees_with_the_closed_form(name):
    optimizer = optimizer_of(weft)
    schedule = SCHEDULES[name](weft.optim.lr_scheduler, optimizer)
    fresh = optimizer_of(weft)
    closed = SCHEDULES[name](weft.optim.lr_scheduler, fresh)
    for epoch in range(1, 35):
        optimizer.step()
        schedule.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            closed.step(epoch)
        assert schedule.get_last_lr() == pytest.approx(closed.get_last_lr(), rel=1e-9, abs=1e-12)


def test_parts_of_epochs():
    (_, schedule), (_, other) = both("longer restarts")
    for epoch in (0.25, 2.5, 3.75, 20.125, 8):
        schedule.step(epoch)
        other.step(epoch)
        assert schedule.get_last_lr() == pytest.approx(other.get_last_lr(), rel=1e-12)
        assert schedule.state_dict() == numbers(other.state_dict())


@pytest.mark.parametrize("name", ["step", "exponential", "cosine", "linear", "polynomial", "multistep", "cyclic"])
def test_resuming_by_the_last_epoch(name):
    made = []
    for library in (weft, oracle("torch")):
        optimizer = optimizer_of(library)
        SCHEDULES[name](library.optim.lr_scheduler, optimizer)
        kinds = library.optim.lr_scheduler
        resumed = {
            "step": lambda s, o: s.StepLR(o, 7, 0.5, 6),
            "exponential": lambda s, o: s.ExponentialLR(o, 0.93, 6),
            "cosine": lambda s, o: s.CosineAnnealingLR(o, 13, 0.01, 6),
            "linear": lambda s, o: s.LinearLR(o, 0.2, 0.9, 13, 6),
            "polynomial": lambda s, o: s.PolynomialLR(o, 40, 1.7, 6),
            "multistep": lambda s, o: s.MultiStepLR(o, [3, 7], 0.7, 6),
            "cyclic": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 4, last_epoch=6),
        }[name](kinds, optimizer)
        for _ in range(4):
            optimizer.step()
            resumed.step()
        made.append((options_of(optimizer), resumed.last_epoch))
    assert made[0][0] == pytest.approx(made[1][0], rel=1e-12)
    assert made[0][1] == made[1][1]


PLATEAUS = [
    {"factor": 0.5, "patience": 2},
    {"mode": "max", "factor": 0.5, "patience": 1, "threshold": 0.1, "threshold_mode": "abs"},
    {"factor": 0.3, "patience": 0, "cooldown": 3, "min_lr": [0.1, 0.01], "threshold": 0.05},
    {"mode": "max", "factor": 0.1, "patience": 3, "eps": 0.01},
    {"factor": 0.5, "patience": 1, "threshold": 0.2, "threshold_mode": "abs"},
]


@pytest.mark.parametrize("options", PLATEAUS, ids=str)
def test_plateaus(options):
    figures = [2 + math.sin(n * 1.7) + 5 / (1 + n) for n in range(STEPS)]
    made = []
    for library in (weft, oracle("torch")):
        optimizer = optimizer_of(library)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        rates = []
        for figure in figures:
            schedule.step(library.tensor(figure))
            rates += schedule.get_last_lr()
        made.append((rates, schedule.state_dict(), schedule.in_cooldown))
    assert made[0][0] == pytest.approx(made[1][0], rel=1e-12)
    assert made[0][1] == numbers(made[1][1])
    assert made[0][2] == made[1][2]


def test_groups_that_join_later():
    optimizer = optimizer_of(weft)
    schedule = weft.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.3)
    optimizer.add_param_group({"params": [weft.zeros(2, requires_grad=True)], "lr": 4.0})
    schedule.step(1.0)
    schedule.step(1.0)
    assert schedule.get_last_lr() == pytest.approx([0.3, 0.2, 0.4])


@pytest.mark.parametrize("name", ["step", "cosine", "one cycle", "sequential", "swa"])
def test_rates_that_are_tensors(name):
    made = []
    for library in (weft, oracle("torch")):
        rate = library.tensor(0.5)
        params = [library.nn.Parameter(library.zeros(2)) for _ in range(2)]
        optimizer = library.optim.SGD([{"params": [p]} for p in params], lr=rate, momentum=0.9)
        schedule = SCHEDULES[name](library.optim.lr_scheduler, optimizer)
        seen = []
        for _ in range(25):
            optimizer.step()
            schedule.step()
            seen += [float(lr) for lr in schedule.get_last_lr()]
        assert optimizer.param_groups[0]["lr"] is rate
        made.append(seen)
    assert made[0] == pytest.approx(made[1], rel=1e-5, abs=1e-7)


def test_nested_sequences():
    """A sequence inside another one begins with its own first schedule."""
    kinds = weft.optim.lr_scheduler
    optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=1.0)
    inner = kinds.SequentialLR(
        optimizer, [kinds.ConstantLR(optimizer, 0.5, 9), kinds.ExponentialLR(optimizer, 0.5)], [2]
    )
    chained = kinds.ChainedScheduler([kinds.ExponentialLR(optimizer, 0.5), kinds.ConstantLR(optimizer, 0.1, 2)])
    outer = kinds.SequentialLR(optimizer, [inner, chained], [4])
    rates = [outer.get_last_lr()[0]]
    for _ in range(7):
        optimizer.step()
        outer.step()
        rates += outer.get_last_lr()
    assert rates == pytest.approx([0.5, 0.5, 1.0, 0.5, 0.1, 0.05, 0.25, 0.125])


ERRORS = {
    "no optimizer": lambda s, o: s.StepLR(1, 2),
    "no initial rates": lambda s, o: s.StepLR(o, 2, last_epoch=3),
    "too many functions": lambda s, o: s.LambdaLR(o, [lambda e: 1] * 3),
    "constant factor": lambda s, o: s.ConstantLR(o, 2),
    "start factor": lambda s, o: s.LinearLR(o, 0),
    "end factor": lambda s, o: s.LinearLR(o, end_factor=2),
    "T_0": lambda s, o: s.CosineAnnealingWarmRestarts(o, 1.5),
    "T_mult": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, 0),
    "eta_min": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2, eta_min="a"),
    "epoch": lambda s, o: s.CosineAnnealingWarmRestarts(o, 2).step(-1),
    "base_lr": lambda s, o: s.CyclicLR(o, [0.1], 1),
    "mode": lambda s, o: s.CyclicLR(o, 0.1, 1, mode="x"),
    "steps": lambda s, o: s.OneCycleLR(o, 1),
    "total_steps": lambda s, o: s.OneCycleLR(o, 1, total_steps=-1),
    "epochs": lambda s, o: s.OneCycleLR(o, 1, epochs=-2, steps_per_epoch=3),
    "steps_per_epoch": lambda s, o: s.OneCycleLR(o, 1, epochs=2, steps_per_epoch=-3),
    "pct_start": lambda s, o: s.OneCycleLR(o, 1, 10, pct_start=2),
    "strategy": lambda s, o: s.OneCycleLR(o, 1, 10, anneal_strategy="x"),
    "max_lr": lambda s, o: s.OneCycleLR(o, [1, 2, 3], 10),
    "plateau factor": lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    "plateau mode": lambda s, o: s.ReduceLROnPlateau(o, mode="x"),
    "plateau threshold": lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="x"),
    "plateau min_lr": lambda s, o: s.ReduceLROnPlateau(o, min_lr=[1, 2, 3]),
    "plateau of nothing": lambda s, o: s.ReduceLROnPlateau(1),
    "empty chain": lambda s, o: s.ChainedScheduler([]),
    "plateau in a chain": lambda s, o: s.ChainedScheduler([s.ReduceLROnPlateau(o)]),
    "empty sequence": lambda s, o: s.SequentialLR(o, [], []),
    "milestones": lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [1]),
    "plateau in a sequence": lambda s, o: s.SequentialLR(o, [s.ReduceLROnPlateau(o)], []),
    "swa strategy": lambda s, o: _swa(s).SWALR(o, 0.1, anneal_strategy="x"),
    "swa epochs": lambda s, o: _swa(s).SWALR(o, 0.1, anneal_epochs=-1),
    "swa rates": lambda s, o: _swa(s).SWALR(o, [0.1, 0.2, 0.3]),
    "no get_lr": lambda s, o: s.LRScheduler(o),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_pytorchs_types(name):
    torch = oracle("torch")
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch.optim.lr_scheduler, optimizer_of(torch))
    with pytest.raises(weft.Error) as ours:
        ERRORS[name](weft.optim.lr_scheduler, optimizer_of(weft))
    assert isinstance(ours.value, theirs.type)


def test_momenta_need_an_optimizer_that_has_them():
    optimizer = weft.optim.Rprop([weft.zeros(1, requires_grad=True)])
    kinds = weft.optim.lr_scheduler
    for make in (lambda: kinds.CyclicLR(optimizer, 0.1, 1), lambda: kinds.OneCycleLR(optimizer, 1, 9)):
        with pytest.raises(ValueError, match="must support momentum"):
            make()


def test_one_cycle_ends():
    optimizer = optimizer_of(weft)
    schedule = weft.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 3)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    with pytest.raises(ValueError, match="Tried to step 4 times"):
        schedule.step()


def test_the_order_of_steps_is_told():
    kinds = weft.optim.lr_scheduler
    with pytest.warns(UserWarning, match="Detected call of `lr_scheduler.step\\(\\)` before"):
        kinds.StepLR(optimizer_of(weft), 1).step()
    optimizer = optimizer_of(weft)
    schedule = kinds.StepLR(optimizer, 1)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="overridden after"):
        schedule.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer = optimizer_of(weft)
        schedule = kinds.StepLR(optimizer, 1)
        optimizer.step()
        schedule.step()
        schedule.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        schedule.step(3)
