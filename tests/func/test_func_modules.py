"""Modules as functions of their parameters, under transforms: gradients of each sample, ensembles, matrices of
derivatives of a network; against PyTorch and against loops."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.counters import LockingLogger, set_logger
from weft.func import functional_call, grad, hessian, jacrev, stack_module_state, vmap

NETWORKS = {
    "dense": (lambda nn: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), (6,)),
    "norm": (lambda nn: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 3)), (6,)),
    "images": (
        lambda nn: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 4),
            nn.Flatten(0),
            nn.Linear(16, 3),
        ),
        (1, 2, 4, 4),
    ),
}


LAYERS = {
    "LSTM": (lambda nn: nn.LSTM(3, 4), (5, 3)),
    "GRU": (lambda nn: nn.GRU(3, 4, batch_first=True), (2, 5, 3)),
    "RNN": (lambda nn: nn.RNN(3, 2, bidirectional=True), (5, 3)),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        (1, 5, 4),
    ),
    "Embedding": (lambda nn: nn.Sequential(nn.Embedding(7, 3, padding_idx=0), nn.Linear(3, 2)), None),
    "BatchNorm1d": (
        lambda nn: nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3, track_running_stats=False)),
        (3, 2, 6),
    ),
    "ConvTranspose2d": (lambda nn: nn.Sequential(nn.ConvTranspose2d(2, 3, 3), nn.AvgPool2d(2)), (2, 3, 3)),
    "PReLU": (lambda nn: nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1), nn.PReLU(3)), (2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_inside_and_outside_of_a_map(name):
    make, shape = LAYERS[name]
    weft.manual_seed(len(name))
    layer = make(weft.nn)
    x = weft.randint(0, 7, (3, 4)) if shape is None else weft.randn(3, *shape)
    parameters = {key: value.detach() for key, value in layer.named_parameters()}

    def loss(parameters, sample):
        made = functional_call(layer, parameters, (sample,))
        return (made[0] if isinstance(made, tuple) else made).sin().sum()

    with warnings.catch_warnings(action="ignore"):
        each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
        whole = grad(lambda parameters: vmap(lambda sample: loss(parameters, sample))(x).sum())(parameters)
    want = [grad(loss)(parameters, sample) for sample in x]
    for key in parameters:
        rows = np.stack([slopes[key].numpy() for slopes in want])
        np.testing.assert_allclose(each[key].numpy(), rows, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(whole[key].numpy(), rows.sum(0), rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


def _twins(torch, name):
    """A network of each system with the same parameters, and a batch with classes."""
    make, shape = NETWORKS[name]
    ours, theirs = make(weft.nn), make(torch.nn)
    random = np.random.default_rng(len(name))
    shapes = {key: tuple(value.shape) for key, value in theirs.state_dict().items()}
    state = {key: random.standard_normal(shape).astype(np.float32) * 0.4 for key, shape in shapes.items()}
    ours.load_state_dict({key: weft.tensor(value) for key, value in state.items()})
    theirs.load_state_dict({key: torch.tensor(value) for key, value in state.items()})
    return ours, theirs, random.standard_normal((5, *shape)).astype(np.float32), random.integers(0, 3, 5)


def _per_sample(m, network, x, y):
    parameters = {key: value.detach() for key, value in network.named_parameters()}

    def loss(parameters, sample, label):
        scores = m.func.functional_call(network, parameters, (sample,))
        return m.nn.functional.cross_entropy(scores[None], label[None])

    return m.func.vmap(m.func.grad(loss), in_dims=(None, 0, 0))(parameters, m.tensor(x), m.tensor(y))


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_each_sample(torch, name):
    ours, theirs, x, y = _twins(torch, name)
    made, want = _per_sample(weft, ours, x, y), _per_sample(torch, theirs, x, y)
    assert made.keys() == want.keys()
    for key, value in want.items():
        np.testing.assert_allclose(made[key].numpy(), value.numpy(), rtol=1e-3, atol=1e-5)
    for index in range(5):  # and as a backward pass gives them, one by one
        ours.zero_grad()
        weft.nn.functional.cross_entropy(
            ours(weft.tensor(x[index]))[None], weft.tensor(y[index : index + 1])
        ).backward()
        for key, parameter in ours.named_parameters():
            np.testing.assert_allclose(made[key][index].numpy(), parameter.grad.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_each_sample_need_no_loop(torch, name):
    ours, _, x, y = _twins(torch, name)
    logger = LockingLogger()
    before = set_logger(logger)
    try:
        _per_sample(weft, ours, x, y)
        assert logger.get_counter_val("weft.vmap_loops") == 0
        with warnings.catch_warnings(action="ignore"):
            vmap(lambda x: x.mode().values)(weft.tensor(x))
            vmap(lambda x: x.histc(3))(weft.tensor(x))
        assert logger.get_counter_val("weft.vmap_loops") == 1
    finally:
        set_logger(before)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("shared", [True, False])
def test_ensembles(torch, name, shared):
    make, shape = NETWORKS[name]
    models = [make(weft.nn) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    random = np.random.default_rng(0)
    x = weft.tensor(random.standard_normal(shape if shared else (3, *shape)).astype(np.float32))

    def call(parameters, buffers, x):
        return functional_call(models[0], (parameters, buffers), (x,))

    made = vmap(call, in_dims=(0, 0, None if shared else 0))(parameters, buffers, x)
    want = weft.stack([model(x if shared else x[at]) for at, model in enumerate(models)])
    np.testing.assert_allclose(made.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    made.square().sum().backward()
    want.square().sum().backward()
    for key, parameter in parameters.items():
        slopes = np.stack([dict(model.named_parameters())[key].grad.numpy() for model in models])
        np.testing.assert_allclose(parameter.grad.numpy(), slopes, rtol=1e-3, atol=1e-4)


def test_derivatives_of_a_network(torch):
    ours, theirs, x, _ = _twins(torch, "dense")
    pairs = [
        (vmap(jacrev(ours))(weft.tensor(x)), torch.vmap(torch.func.jacrev(theirs))(torch.tensor(x))),
        (
            hessian(lambda x: ours(x).square().sum())(weft.tensor(x[0])),
            torch.func.hessian(lambda x: theirs(x).square().sum())(torch.tensor(x[0])),
        ),
    ]
    for made, want in pairs:
        np.testing.assert_allclose(made.detach().numpy(), want.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_a_step_of_training_by_functions():
    """Gradients by names of parameters make the loss smaller, and leave the module as it is."""
    weft.manual_seed(0)
    network = weft.nn.Sequential(weft.nn.Linear(4, 8), weft.nn.Tanh(), weft.nn.Linear(8, 1))
    x, y = weft.randn(16, 4), weft.randn(16, 1)
    parameters = {key: value.detach() for key, value in network.named_parameters()}
    loss = lambda p: (functional_call(network, p, (x,)) - y).square().mean()
    first = loss(parameters).item()
    for _ in range(20):
        slopes = grad(loss)(parameters)
        parameters = {key: value - 0.1 * slopes[key] for key, value in parameters.items()}
    assert loss(parameters).item() < 0.7 * first
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_dropout_in_an_ensemble(randomness):
    network = weft.nn.Sequential(weft.nn.Dropout(0.5))
    made = vmap(lambda x: functional_call(network, {}, (x,)), randomness=randomness)(weft.ones(8, 50))
    assert set(np.unique(made.numpy())) == {0.0, 2.0}
    assert bool((made == made[0]).all()) == (randomness == "same")
