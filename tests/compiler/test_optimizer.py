"""Training in the graph: optimisers and schedules, against PyTorch's and numpy's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import symbol as sym
from weft.base.errors import InvalidType, InvalidValue, Unsupported
from weft.compiler.lr_scheduler import FactorScheduler, LRScheduler
from weft.compiler.optimizer import SGD, Adam, Optimizer
from weft.core.interpret import evaluate, final_values
from weft.core.symbol import variable_inits
from weft.tools.demo import DATA

BATCH, PIXELS, CLASSES = 20, 64, 10


@pytest.fixture(autouse=True)
def no_initial_values():
    variable_inits.clear()
    yield
    variable_inits.clear()


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def network(hidden=16):
    """The mean cross entropy of a perceptron, from logits and one-hot labels."""
    net = sym.Variable("x", shape=(BATCH, PIXELS))
    net = sym.relu(sym.dense(net, units=hidden, name="fc1"))
    net = sym.log_softmax(sym.dense(net, units=CLASSES, name="fc2"))
    return sym.sum(net * sym.Variable("label", shape=(BATCH, CLASSES))) * (-1 / BATCH)


def weights_of(loss):
    return [v for v in loss.list_input_variables() if v.attr("name") not in ("x", "label")]


def initial(rng, hidden=16):
    shapes = {
        "fc1_weight": (hidden, PIXELS),
        "fc1_bias": (hidden,),
        "fc2_weight": (CLASSES, hidden),
        "fc2_bias": (CLASSES,),
    }
    return {n: (rng.standard_normal(s) * 0.2).astype("float32") for n, s in shapes.items()}


def trained(loss, updates, state, batches, dtype="float32"):
    """Runs a compiled step for each batch; gives the losses and the module."""
    graph, lib, params = weft.compiler.build(sym.Group([loss, *updates]), "llvm", dtype=dtype)
    module = weft.runtime.create(graph, lib)
    module.set_input(**(params or {}))
    module.set_input(**state)
    losses = []
    for x, label in batches:
        module.run(x=x, label=label)
        losses.append(float(module.get_output(0).asnumpy().reshape(())))
    return losses, module


def random_batches(rng, count):
    hot = np.eye(CLASSES, dtype="float32")
    return [
        (rng.standard_normal((BATCH, PIXELS)).astype("float32"), hot[rng.integers(0, 10, BATCH)]) for _ in range(count)
    ]


def digits(count):
    """Batches of the shipped handwritten digits."""
    with np.load(DATA / "digits.npz") as file:
        images, labels = file["images"], file["labels"]
    x = (images.reshape(len(images), PIXELS) / 16).astype("float32")
    label = np.eye(CLASSES, dtype="float32")[labels]
    starts = [BATCH * (i % (len(x) // BATCH)) for i in range(count)]
    return [(x[s : s + BATCH], label[s : s + BATCH]) for s in starts]


def torch_steps(torch, make, state, batches):
    """The losses, and the parameters after the last step, of the same training in PyTorch."""
    values = {n: torch.tensor(v, requires_grad=True) for n, v in state.items()}
    optimizer = make(list(values.values()))
    losses = []
    for x, label in batches:
        hidden = torch.relu(torch.tensor(x) @ values["fc1_weight"].T + values["fc1_bias"])
        out = torch.log_softmax(hidden @ values["fc2_weight"].T + values["fc2_bias"], 1)
        loss = -(out * torch.tensor(label)).sum() / BATCH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.detach().numpy() for name, value in values.items()}


# PyTorch adds epsilon at another place, which is seen where a gradient is almost zero.
SETTINGS = {
    "sgd": (lambda: SGD(learning_rate=0.3), lambda t, p: t.optim.SGD(p, lr=0.3)),
    "sgd with decay": (lambda: SGD(learning_rate=0.2, wd=0.05), lambda t, p: t.optim.SGD(p, lr=0.2, weight_decay=0.05)),
    "adam": (lambda: Adam(epsilon=1e-16), lambda t, p: t.optim.Adam(p, eps=1e-16)),
    "adam with other moments": (
        lambda: Adam(learning_rate=0.02, beta1=0.8, beta2=0.95, epsilon=1e-16),
        lambda t, p: t.optim.Adam(p, 0.02, (0.8, 0.95), 1e-16),
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_steps_are_those_of_pytorch(name, rng):
    torch = oracle("torch")
    ours, theirs = SETTINGS[name]
    state = {key: value.astype("float64") for key, value in initial(rng).items()}
    batches = [(x.astype("float64"), y.astype("float64")) for x, y in random_batches(rng, 5)]
    loss = network()
    updates = ours().minimize(loss, weights_of(loss))
    losses, module = trained(loss, [updates], state, batches, "float64")
    wanted, params = torch_steps(torch, lambda p: theirs(torch, p), state, batches)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6)
    for key, value in params.items():
        np.testing.assert_allclose(module.get_input(key).asnumpy(), value, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("optimizer", "steps"), [(lambda: SGD(learning_rate=0.5), 300), (lambda: Adam(0.01), 200)])
def test_the_digits_are_learnt(optimizer, steps, rng):
    loss = network(32)
    updates = optimizer().minimize(loss, weights_of(loss))
    losses, module = trained(loss, [updates], initial(rng, 32), digits(steps))
    assert losses[0] > 2
    assert np.mean(losses[-18:]) < 0.25
    assert (module.get_input("fc1_weight").asnumpy() != initial(rng, 32)["fc1_weight"]).any()


def stepped(updates, state):
    """What the reference interpreter leaves in the variables."""
    return {**state, **final_values(updates, state)}


def test_gradients_are_scaled_then_clipped_then_decayed():
    w = sym.Variable("w")
    loss = sym.sum(w * sym.Variable("g"))
    updates = SGD(learning_rate=0.5, rescale_grad=2, clip_gradient=1, wd=0.1).minimize(loss, w)
    state = {"w": np.array([1.0, 2.0, 3.0]), "g": np.array([0.3, 4.0, -7.0])}
    wanted = state["w"] - 0.5 * (np.array([0.6, 1, -1]) + 0.1 * state["w"])
    np.testing.assert_allclose(evaluate(updates, state)[0], wanted)
    np.testing.assert_allclose(stepped(updates, state)["w"], wanted)


@pytest.mark.parametrize("wd", [0, 0.3])
def test_adam_keeps_its_moments_and_its_count(wd):
    """The variable decays beside the step, so that the moments are those of the gradient alone."""
    w = sym.Variable("w", shape=(2,))
    adam = Adam(learning_rate=0.1, beta1=0.6, beta2=0.7, epsilon=0.01, wd=wd, name="opt")
    updates = adam.minimize(sym.sum(w * w), w)
    assert sorted(updates.list_input_names("aux_state")) == ["opt_m0", "opt_t", "opt_v0", "w"]
    state = {"w": np.array([1.0, -3.0]), "opt_t": np.zeros(1, "int32")}
    state.update({"opt_m0": np.zeros(2), "opt_v0": np.zeros(2)})
    value, m, s = state["w"], 0, 0
    for count in (1, 2, 3):
        state = stepped(updates, state)
        g = 2 * value
        m, s = 0.6 * m + 0.4 * g, 0.7 * s + 0.3 * g * g
        rate = 0.1 * np.sqrt(1 - 0.7**count) / (1 - 0.6**count)
        value = value - rate * (m / (np.sqrt(s) + 0.01) + wd * value)
        np.testing.assert_allclose(state["w"], value, rtol=1e-12)
        np.testing.assert_allclose(state["opt_m0"], m, rtol=1e-12)
        assert state["opt_t"].tolist() == [count]


def test_the_rate_goes_down_by_a_factor():
    w = sym.Variable("w", shape=(1,))
    schedule = FactorScheduler(step=2, factor=0.25, stop_factor_lr=0.04, base_lr=0.64)
    updates = SGD(lr_scheduler=schedule).minimize(sym.sum(w), w)
    graph, lib, params = weft.compiler.build(updates, "llvm")
    module = weft.runtime.create(graph, lib)
    module.set_input(**params, w=np.zeros(1, "float32"))
    seen, before = [], 0.0
    for _ in range(5):
        module.run()
        after = float(module.get_input("w").asnumpy()[0])
        seen.append(before - after)
        before = after
    np.testing.assert_allclose(seen, [0.32, 0.16, 0.08, 0.04, 0.04], rtol=1e-5)
    assert module.get_input("SGD_t").asnumpy().tolist() == [5]


def test_which_rate_a_schedule_starts_from():
    assert SGD(learning_rate=0.3, lr_scheduler=FactorScheduler(5)).lr_scheduler.base_lr == 0.3
    own = FactorScheduler(5, base_lr=0.2)
    assert SGD(lr_scheduler=own).lr_scheduler.base_lr == 0.2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variables_of_rank_zero_keep_it(dtype):
    w = sym.Variable("w", dtype=dtype)
    start = {"w": np.array(2, dtype)}
    schedule = FactorScheduler(step=1, factor=0.5, base_lr=0.5)
    updates = SGD(lr_scheduler=schedule).minimize(w * w, w)
    graph, lib, params = weft.compiler.build(updates, "llvm", dtype={}, params=start)
    module = weft.runtime.create(graph, lib)
    module.set_input(**params)
    module.run()
    assert module.get_input("w").asnumpy().tolist() == 1
    updates = Adam(learning_rate=0.25).minimize(w * w, w)
    state = {**start, "Adam_t": np.zeros(1, "int32")}
    state.update({"Adam_m0": np.array(0, dtype), "Adam_v0": np.array(0, dtype)})
    moved = stepped(updates, state)["w"]
    assert (moved.shape, moved.dtype) == ((), np.dtype(dtype))
    np.testing.assert_allclose(moved, 1.75, rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_adam_builds_with_moments_that_begin_as_zeros_of_any_shape(shape):
    w = sym.Variable("w")
    updates = Adam(learning_rate=0.25).minimize(sym.sum(w * w), w)
    start = {"w": np.full(shape, 2, "float32")}
    graph, lib, params = weft.compiler.build(updates, "llvm", dtype={}, params=start)
    assert params["Adam_m0"].shape == params["Adam_v0"].shape == shape
    module = weft.runtime.create(graph, lib)
    module.set_input(**params)
    module.run()
    moved = module.get_input("w").asnumpy()
    np.testing.assert_allclose(moved, np.full(shape, 1.75, "float32"), rtol=1e-6)


def test_all_inputs_are_updated_by_default():
    a, b = sym.Variable("a"), sym.Variable("b")
    updates = SGD().minimize(sym.sum(a * b))
    assert updates.list_input_names("aux_state") == ["a", "b"]
    state = {"a": np.array([2.0]), "b": np.array([10.0])}
    assert [v.tolist() for v in evaluate(updates, state)] == [[1.9], [9.98]]


def test_one_optimiser_for_two_losses_keeps_two_sets_of_moments():
    a, b, adam = sym.Variable("a", shape=(1,)), sym.Variable("b", shape=(1,)), Adam()
    both = sym.Group([adam.minimize(sym.sum(a * a), a), adam.minimize(sym.sum(b * b), b)])
    assert {"Adam_m0", "Adam_m1"} <= set(both.list_input_names())
    assert both.list_input_names().count("Adam_t") == 1
    weft.compiler.build(both, "llvm")


def test_defaults():
    for made, rate in ((Optimizer(), 0.01), (SGD(), 0.01), (Adam(), 0.001)):
        assert (made.lr, made.rescale_grad, made.clip_gradient, made.wd) == (rate, 1, None, 0)
        assert made.t.list_input_names() == [f"{type(made).__name__}_t"]
    assert (Adam().beta1, Adam().beta2, Adam().epsilon) == (0.9, 0.999, 1e-8)
    assert (LRScheduler().base_lr, FactorScheduler(1).stop_factor_lr) == (0.01, 1e-8)


def test_what_is_refused():
    w = sym.Variable("w")
    for wrong in ({"step": 0}, {"step": 3, "factor": 1.5}, {"step": 3, "factor": 0}):
        with pytest.raises(InvalidValue):
            FactorScheduler(**wrong)
    with pytest.raises(Unsupported, match="how the rate changes"):
        SGD(lr_scheduler=LRScheduler()).minimize(sym.sum(w), w)
    with pytest.raises(Unsupported, match="how variables are updated"):
        Optimizer().minimize(sym.sum(w), w)
    with pytest.raises(InvalidType, match="no LRScheduler"):
        SGD(lr_scheduler=0.1)
    with pytest.raises(InvalidValue, match="clip_gradient"):
        SGD(clip_gradient=0)
    with pytest.raises(InvalidValue, match="is no variable"):
        SGD().minimize(sym.sum(w), [w * 2])
    with pytest.raises(InvalidType, match="takes symbols"):
        SGD().minimize(sym.sum(w), ["w"])
