"""Averages of models beside PyTorch's."""

import copy

import numpy as np
import pytest
from oracles import oracle

import weft


def model_of(library):
    nn = library.nn
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def disturb(library, model, rng):
    with library.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(library.tensor(np.asarray(rng.random(tuple(tensor.shape)), "float32")))


AVERAGES = {
    "mean": lambda s: {},
    "mean of lists": lambda s: {"multi_avg_fn": s.get_swa_multi_avg_fn()},
    "mean by a function": lambda s: {"avg_fn": s.get_swa_avg_fn(), "use_buffers": True},
    "moving": lambda s: {"avg_fn": s.get_ema_avg_fn(0.7)},
    "moving lists": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.7)},
    "own": lambda s: {"avg_fn": lambda mean, now, n: 0.25 * mean + now * 0.75},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name):
    states = []
    for library in (weft, oracle("torch")):
        swa = library.optim.swa_utils
        model = model_of(library)
        averaged = swa.AveragedModel(model, **AVERAGES[name](swa))
        rng = np.random.default_rng(3)
        for _ in range(4):
            disturb(library, model, rng)
            averaged.update_parameters(model)
        x = library.tensor(np.random.default_rng(4).random((5, 3)).astype("float32"))
        states.append((averaged.state_dict(), averaged.eval()(x).detach().numpy(), repr(averaged)))
    (mine, y, text), (its, z, its_text) = states
    assert list(mine) == list(its)
    for key, value in its.items():
        np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)
    np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-5)
    assert text == its_text


def test_the_model_that_is_averaged_stays_as_it_is():
    model = model_of(weft)
    before = copy.deepcopy(model.state_dict())
    averaged = weft.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    averaged.update_parameters(model)
    assert int(averaged.n_averaged) == 2
    for key, value in model.state_dict().items():
        assert (value == before[key]).all()


@pytest.mark.parametrize("pairs", [False, True])
def test_statistics_are_computed_anew(pairs):
    batches = [np.random.default_rng(n).random((6, 3)).astype("float32") * (n + 1) for n in range(3)]
    states = []
    for library in (weft, oracle("torch")):
        model = model_of(library)
        disturb(library, model, np.random.default_rng(3))
        model[1].momentum = 0.3
        model.eval()
        loader = [library.tensor(batch) for batch in batches]
        library.optim.swa_utils.update_bn([(x, 1) for x in loader] if pairs else loader, model)
        assert (model[1].momentum, model.training) == (0.3, False)
        states.append(model.state_dict())
    for key, value in states[1].items():
        np.testing.assert_allclose(states[0][key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


def test_models_without_statistics_are_left_alone():
    called = []

    def batches():
        called.append(1)
        yield weft.zeros(1, 3)

    weft.optim.swa_utils.update_bn(batches(), weft.nn.Linear(3, 2))
    assert called == []


def test_errors():
    swa = weft.optim.swa_utils
    with pytest.raises(AssertionError, match="Only one of"):
        swa.AveragedModel(weft.nn.Linear(1, 1), avg_fn=swa.get_swa_avg_fn(), multi_avg_fn=swa.get_swa_multi_avg_fn())
    for make in (swa.get_ema_avg_fn, swa.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value 2"):
            make(2)
