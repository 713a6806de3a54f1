"""A training step of ResNet-18, built symbolically and compiled whole, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.errors import GraphError
from weft.core.interpret import evaluate
from weft.runtime.report import report_of
from weft.testing import resnet
from weft.testing.training import in_training, training_step

CLASSES = 10


def torch_loss(torch, p, size):
    """The network of weft.testing.resnet for 18 layers, in training, and its mean loss."""
    F = torch.nn.functional

    def norm(x, name, scale=True):
        gamma = p[f"{name}_gamma"] if scale else None
        return F.batch_norm(x, None, None, gamma, p[f"{name}_beta"], training=True, eps=2e-5)

    def conv(x, name, stride=1):
        weight = p[f"{name}_weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)

    net = norm(p["data"], "bn_data", scale=False)
    if size <= 32:
        net = conv(net, "conv0")
    else:
        net = F.max_pool2d(F.relu(norm(conv(net, "conv0", 2), "bn0")), 3, 2, 1)
    for stage in range(1, 5):
        for unit in (1, 2):
            name = f"stage{stage}_unit{unit}"
            stride = 2 if stage > 1 and unit == 1 else 1
            act = F.relu(norm(net, f"{name}_bn1"))
            made = conv(act, f"{name}_conv1", stride)
            made = conv(F.relu(norm(made, f"{name}_bn2")), f"{name}_conv2")
            net = made + (conv(act, f"{name}_sc", stride) if unit == 1 else net)
    net = F.relu(norm(net, "bn1")).mean((2, 3))
    scores = F.log_softmax(F.linear(net, p["fc1_weight"], p["fc1_bias"]), 1)
    return -(scores * p["label"]).sum() / len(scores)


def random_values(module, names, batch, rng, dtype="float32"):
    values = {}
    for name in names:
        shape = module.get_input(name).shape
        if name == "label":
            made = np.eye(CLASSES)[rng.integers(0, CLASSES, batch)]
        elif name.endswith("_gamma"):
            made = rng.uniform(0.5, 1.5, shape)
        elif name.endswith("_var"):
            made = rng.uniform(0.5, 2, shape)
        elif name.endswith("_weight"):
            made = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            made = rng.standard_normal(shape) * (1 if name == "data" else 0.1)
        values[name] = made.astype(dtype)
    return values


def by_torch(torch, values, size, dtype="float64"):
    leaves = {n: torch.tensor(v, dtype=getattr(torch, dtype), requires_grad=True) for n, v in values.items()}
    loss = torch_loss(torch, leaves, size)
    loss.backward()
    return loss.item(), {n: v.grad.numpy() for n, v in leaves.items() if v.grad is not None}


def run_step(batch, size, width, seed, dtype="float32"):
    step = training_step(resnet.get_symbol(CLASSES, 18, (3, size, size), width=width), batch=batch)
    shapes = {"data": (batch, 3, size, size), "label": (batch, CLASSES)}
    graph, library, _ = weft.compiler.build(step.symbol, "llvm", shape=shapes, dtype=dtype)
    assert report_of([library.program]).host_steps == ()
    module = weft.runtime.create(graph, library)
    names = step.symbol.list_input_names()
    values = random_values(module, names, batch, np.random.default_rng(seed), dtype)
    module.run(**values)
    outputs = [module.get_output(i).asnumpy() for i in range(module.get_num_outputs())]
    return step, values, dict(zip(["loss", *step.names], outputs, strict=True)), module


def error_of(made, wanted):
    """The largest difference, relative to the tensor's scale."""
    return np.abs(made - wanted).max() / max(np.abs(wanted).max(), 1e-3)


def check_against_torch(made, values, size):
    """Against a float64 run. What the batch norms after it make a sum that nearly cancels, such as
    the gradient of the first gamma, may be as far off as PyTorch's own float32 run is."""
    torch = oracle("torch")
    loss, wanted = by_torch(torch, values, size)
    _, rounded = by_torch(torch, values, size, "float32")
    assert float(made["loss"].item()) == pytest.approx(loss, rel=1e-5)
    for name in made.keys() - {"loss"}:
        # A batch norm without scale ignores its gamma.
        grad = wanted.get(name, np.zeros_like(values[name]))
        theirs = error_of(rounded[name], grad) if name in rounded else 0
        error = error_of(made[name], grad)
        assert error < max(1e-4, 4 * theirs), f"{name}: {error}, PyTorch's: {theirs}"


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "size", "width", "seed"), [(8, 64, 1.0, 0), (3, 32, 0.125, 1)])
def test_step_of_resnet18_is_that_of_pytorch(batch, size, width, seed):
    _, values, made, _ = run_step(batch, size, width, seed)
    check_against_torch(made, values, size)


@pytest.mark.slow
def test_step_in_float64_is_that_of_pytorch():
    _, values, made, _ = run_step(2, 32, 0.125, 3, "float64")
    loss, wanted = by_torch(oracle("torch"), values, 32)
    assert float(made["loss"].item()) == pytest.approx(loss, rel=1e-12)
    for name, grad in wanted.items():
        if name in made:
            assert error_of(made[name], grad) < 1e-10, name


@pytest.mark.slow
def test_step_is_that_of_the_interpreter_and_keeps_statistics():
    step, values, made, module = run_step(4, 32, 0.125, 2)
    for name, value in zip(made, evaluate(step.symbol, values), strict=True):
        scale = max(np.abs(value).max(), 1e-3)
        np.testing.assert_allclose(made[name] / scale, value / scale, atol=1e-4, err_msg=name)
    x = values["data"]
    moved = 0.9 * values["bn_data_moving_mean"] + 0.1 * x.mean((0, 2, 3))
    kept = module.get_input("bn_data_moving_mean").asnumpy()
    np.testing.assert_allclose(kept, moved, rtol=1e-4, atol=1e-6)


def test_in_training_changes_only_what_can_be():
    net = resnet.get_symbol(CLASSES, 18, (3, 32, 32), width=0.125)
    made = in_training(net)
    assert made.list_input_names() == net.list_input_names()
    before, after = net.list_attr(recursive=True), made.list_attr(recursive=True)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed
    assert all(key.endswith("$training") and "bn" in key for key in changed)


def test_in_training_keeps_what_variables_say():
    x = weft.symbol.Variable("x", shape=(2, 3), dtype=0)
    made = in_training(weft.symbol.batch_norm(x, name="bn"))
    assert made.list_input_variables()[0].list_attr() == x.list_attr()


def test_a_network_without_softmax_is_an_error():
    with pytest.raises(GraphError, match="softmax"):
        training_step(weft.symbol.relu(weft.symbol.Variable("data")), batch=1)
