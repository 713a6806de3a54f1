"""`weft.compile` of modules and of training steps: parameters, buffers and gradients after compiled steps are those
after steps as they are; and what happens where values decide, or objects change."""

import copy
import warnings

import numpy as np
import pytest
from oracles import oracle

import weft
from weft import nn
from weft.nn import functional as F


@pytest.fixture
def rng():
    return np.random.default_rng(11)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(5, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 7)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)))
        x = F.relu(x + self.norms[1](self.second(x)))
        return self.head(x.mean((2, 3)))


NETWORKS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)), (6,)),
    "norms": (lambda: nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 3)), (6,)),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 3)), (6,)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)),
        (3, 6, 6),
    ),
    "residual": (Residual, (3, 5, 5)),
    "recurrent": (Recurrent, (4, 5)),
    "attention": (Attention, (6, 8)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.Linear(9, 3)), (6,)),
}
# Numbers that are added to denominators are large: gradients that are zero but for rounding must not become steps.
OPTIMISERS = {
    "sgd": lambda p: weft.optim.SGD(p, 0.05),
    "momentum": lambda p: weft.optim.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: weft.optim.Adam(p, 0.01, eps=0.01),
    "adamw": lambda p: weft.optim.AdamW(p, 0.01, eps=0.01, amsgrad=True),
    "rmsprop": lambda p: weft.optim.RMSprop(p, 0.01, eps=0.01),
}


def batches(rng, shape, count, size=4):
    for _ in range(count):
        yield weft.tensor(rng.standard_normal((size, *shape)).astype("float32")), weft.tensor(rng.integers(0, 3, size))


def training_step(model, optimizer):
    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def same_states(one, other, tolerance=2e-5):
    for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


STEPS = [(network, optimiser) for network in NETWORKS for optimiser in ("adam", "momentum")]
STEPS += [(network, optimiser) for network in ("mlp", "batch_norm") for optimiser in ("sgd", "adamw", "rmsprop")]


@pytest.mark.parametrize(("network", "optimiser"), STEPS)
def test_training_steps(network, optimiser, rng):
    make, shape = NETWORKS[network]
    weft.manual_seed(3)
    model = make()
    twin = copy.deepcopy(model)
    makes = OPTIMISERS[optimiser]
    ours, theirs = makes(model.parameters()), makes(twin.parameters())
    compiled, plain = weft.compile(training_step(model, ours)), training_step(twin, theirs)
    for number, (x, labels) in enumerate(batches(rng, shape, 4)):
        weft.manual_seed(number)
        loss = compiled(x, labels)
        weft.manual_seed(number)
        expected = plain(x, labels)
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-4)
        for p, q in zip(model.parameters(), twin.parameters()):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-4)
    same_states(model, twin, 1e-4)
    told = compiled.explain()
    assert (told.eager, told.plans) == (None, 1), told


def test_training_steps_are_those_of_pytorch(rng):
    torch = oracle("torch")
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))
    theirs = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    theirs.load_state_dict({name: torch.tensor(value.numpy()) for name, value in model.state_dict().items()})
    step = weft.compile(training_step(model, weft.optim.Adam(model.parameters(), 0.01)))
    optimizer = torch.optim.Adam(theirs.parameters(), 0.01)
    for x, labels in batches(rng, (6,), 5):
        loss = step(x, labels)
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x.numpy())), torch.tensor(labels.numpy()))
        expected.backward()
        optimizer.step()
        np.testing.assert_allclose(loss.item(), expected.item(), rtol=1e-5)
    for p, q in zip(model.parameters(), theirs.parameters()):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "dropout"])
def test_modules_whose_gradients_are_asked_for_outside(network, rng):
    make, shape = NETWORKS[network]
    model = make()
    twin = copy.deepcopy(model)
    compiled = weft.compile(model)
    for x, labels in batches(rng, shape, 3):
        one, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        F.cross_entropy(compiled(one), labels).backward()
        F.cross_entropy(twin(other), labels).backward()
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-3, atol=1e-5)
    for p, q in zip(model.parameters(), twin.parameters()):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-4)
    same_states(model, twin)
    assert compiled.explain().eager is None


def test_compiled_modules_are_parts_of_others():
    """With their parameters, modes, hooks and states, whose keys are PyTorch's."""
    torch = oracle("torch")
    inner = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))
    outer = nn.Sequential(weft.compile(inner), nn.Linear(3, 2))
    theirs = torch.nn.Sequential(torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 3))), torch.nn.Linear(3, 2))
    assert list(outer.state_dict()) == list(theirs.state_dict())
    assert [p is q for p, q in zip(outer.parameters(), inner.parameters())] == [True, True]
    outer.eval()
    assert not inner[1].training
    seen = []
    outer[0].register_forward_hook(lambda module, args, result: seen.append(result.shape))
    x = weft.randn(5, 4)
    before = outer(x)
    assert seen == [(5, 3)]
    optimizer = weft.optim.SGD(outer.parameters(), lr=0.5)
    before.sum().backward()
    optimizer.step()
    weight = inner[0].weight.detach().numpy()
    hidden = x.numpy() @ weight.T + inner[0].bias.detach().numpy()
    wanted = hidden @ outer[1].weight.detach().numpy().T + outer[1].bias.detach().numpy()
    np.testing.assert_allclose(outer(x).detach().numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert not np.allclose(before.detach().numpy(), wanted)


def test_inference_and_training_are_other_plans(rng):
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    compiled = weft.compile(model)
    x = weft.randn(6, 4)
    compiled(x)
    model.eval()
    np.testing.assert_allclose(compiled(x).detach().numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    with weft.no_grad():
        assert not compiled(x).requires_grad
    assert compiled.explain().plans == 3


def test_attributes_closures_and_globals_are_looked_at_again():
    class Scaled(nn.Module):
        factor = 2.0

        def __init__(self):
            super().__init__()
            self.offset = 1.0

        def forward(self, x):
            return x * self.offset

    model = Scaled()
    compiled = weft.compile(model)
    x = weft.tensor([1.0, 2.0])
    assert compiled(x).tolist() == [1, 2]
    model.offset = 3.0
    assert compiled(x).tolist() == [3, 6]
    power = 2
    raised = weft.compile(lambda x: x**power)
    assert raised(x).tolist() == [1, 4]
    power = 3
    assert raised(x).tolist() == [1, 8]


def test_parameters_are_read_as_they_are():
    layer = nn.Linear(2, 1, bias=False)
    compiled = weft.compile(layer)
    x = weft.ones(1, 2)
    compiled(x)
    with weft.no_grad():
        layer.weight.fill_(5.0)
    assert compiled(x).tolist() == [[10]]
    layer.weight = nn.Parameter(weft.ones(1, 2))
    assert compiled(x).tolist() == [[2]]
    layer.weight.data = weft.full((1, 2), 4.0)
    assert compiled(x).tolist() == [[8]]


def test_what_is_written_to_arguments_and_buffers():
    count = weft.zeros(2)

    @weft.compile
    def accumulate(x, total):
        total.add_(x)
        count.add_(1)
        return total * 2

    total = weft.zeros(2)
    for number in range(1, 4):
        version = total._version
        assert accumulate(weft.ones(2), total).tolist() == [2 * number] * 2
        assert total.tolist() == [number] * 2 == count.tolist()
        assert total._version > version


def test_gradients_are_added_to_those_that_are_there():
    w = weft.ones(3, requires_grad=True)

    @weft.compile
    def backward(x):
        (w * x).sum().backward()

    for number in range(1, 5):
        backward(weft.ones(3))
        assert w.grad.tolist() == [number] * 3
    w.grad = None
    backward(weft.ones(3))
    assert w.grad.tolist() == [1] * 3


def test_gradients_of_gradients_inside():
    @weft.compile
    def second(x):
        (first,) = weft.autograd.grad((x**3).sum(), x, create_graph=True)
        (again,) = weft.autograd.grad(first.sum(), x)
        return first.detach(), again

    for values in ([1.0, 2.0], [3.0, 4.0]):
        first, again = second(weft.tensor(values, requires_grad=True))
        np.testing.assert_allclose(first.numpy(), 3 * np.square(values))
        np.testing.assert_allclose(again.numpy(), 6 * np.array(values))


def test_a_function_that_fails_leaves_tensors_as_they_were():
    w = weft.ones(2, requires_grad=True)

    @weft.compile
    def fails(x):
        (w * x).sum().backward()
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        fails(weft.ones(2))
    assert (w.tolist(), w.grad) == ([1, 1], None)


def test_tensors_that_were_computed_before():
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    before = w * 3
    product = weft.compile(lambda x: before * x * w)
    for factor in (1.0, 2.0):
        w.grad = None
        product(weft.full((2,), factor)).sum().backward(retain_graph=True)
        assert w.grad.tolist() == [6 * factor, 12 * factor]


def test_what_is_not_recorded_runs_as_it_is():
    w = weft.ones(2, requires_grad=True)

    def assigns(x):
        w.data = w.data + x
        return w * 2

    made = weft.compile(assigns)
    with pytest.warns(UserWarning, match="as it is"):
        assert made(weft.ones(2)).tolist() == [4, 4]
    assert made(weft.ones(2)).tolist() == [6, 6]


def test_numbers_that_change_in_every_call_end_compilation():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = weft.compile(Counts())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [model(weft.ones(1)).item() for _ in range(12)] == list(range(1, 13))
    assert "what it reads changed" in model.explain().eager


def test_tensors_that_share_memory():
    @weft.compile
    def added(x, y):
        x.add_(y)
        return x * 1

    x = weft.ones(2)
    assert added(x, weft.ones(2)).tolist() == [2, 2]
    assert added(x, x).tolist() == [4, 4]
    whole = weft.arange(3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert added(whole[:2], whole[1:]).tolist() == [1, 3]
    assert whole.tolist() == [1, 3, 2]


def test_indices_that_are_parts_of_an_argument():
    table = nn.Embedding(10, 4)

    @weft.compile(fullgraph=True)
    def loss(tokens):
        return F.cross_entropy(table(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten() % 4 * 1)

    @weft.compile(fullgraph=True)
    def rows(tokens):
        return table(tokens[:, :-1]).sum(1)

    for _ in range(3):
        tokens = weft.randint(10, (3, 5))
        np.testing.assert_allclose(
            rows(tokens).detach().numpy(), table(tokens[:, :-1]).sum(1).detach().numpy(), rtol=1e-5
        )
    with pytest.raises(IndexError, match="out of range"):
        rows(weft.full((3, 5), 10))
    with pytest.raises(weft.Error, match="numpy computes on values"):  # classes that are computed are checked
        loss(tokens)


def test_default_dtypes_are_looked_at():
    made = weft.compile(lambda: weft.ones(2) * 2)
    assert made().dtype == weft.float32
    weft.set_default_dtype(weft.float64)
    try:
        assert made().dtype == weft.float64
    finally:
        weft.set_default_dtype(weft.float32)


# Where values decide.


def test_values_decide_and_their_ways_are_kept():
    @weft.compile
    def halved_or_doubled(x):
        y = x + 1
        if y.sum() > 0:
            return y * 2
        return y / 2

    for values in ([1.0, 2.0], [-5.0, 1.0], [3.0, 4.0], [-6.0, 1.0]):
        x = weft.tensor(values)
        wanted = (x + 1) * 2 if (x + 1).sum() > 0 else (x + 1) / 2
        assert halved_or_doubled(x).tolist() == wanted.tolist()
    told = halved_or_doubled.explain()
    assert (told.plans, told.eager, len(told.breaks)) == (1, None, 1)
    assert "test_compile_modules.py" in told.breaks[0].where
    assert "broken at" in str(told)


def test_values_that_are_always_new_end_compilation():
    function = weft.compile(lambda x: x * x.sum().item())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(1, 15):
            assert function(weft.full((2,), float(number))).tolist() == [2 * number**2] * 2
    assert any("as it is" in str(one.message) for one in told)
    assert "values decided" in function.explain().eager


def test_a_whole_graph_says_where_it_is_broken():
    @weft.compile(fullgraph=True)
    def decides(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(weft.Error, match=r"(?s)test_compile_modules.py:\d+.*if x\.sum\(\) > 0.*\^.*weft\.where"):
        decides(weft.ones(2))


def test_a_decision_between_steps_of_training(rng):
    weft.manual_seed(1)
    model = nn.Linear(4, 3)
    twin = copy.deepcopy(model)

    def clipped(model, optimizer):
        def step(x, labels):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            if model.weight.grad.abs().max() > 0.2:
                model.weight.grad.mul_(0.5)
            optimizer.step()
            return loss

        return step

    compiled = weft.compile(clipped(model, weft.optim.SGD(model.parameters(), 0.5)))
    plain = clipped(twin, weft.optim.SGD(twin.parameters(), 0.5))
    for x, labels in batches(rng, (4,), 8):
        np.testing.assert_allclose(compiled(x, labels).item(), plain(x, labels).item(), rtol=1e-5)
    same_states(model, twin)
    assert compiled.explain().eager is None


def test_a_tensor_that_was_kept_outside_says_so():
    kept = []

    @weft.compile
    def leaks(x):
        y = x * 2
        kept.append(y)
        return y + 1

    leaks(weft.ones(2))
    with pytest.raises(weft.Error, match=r"(?s)traced by weft\.compile.*return it"):
        kept[0].tolist()


def test_random_numbers_go_on_from_call_to_call():
    noisy = weft.compile(lambda x: F.dropout(x, 0.5))
    x = weft.ones(64)
    weft.manual_seed(5)
    found = [noisy(x).tolist() for _ in range(3)]
    weft.manual_seed(5)
    assert found == [F.dropout(x, 0.5).tolist() for _ in range(3)]


def test_rates_of_schedules_are_read_in_every_call(rng):
    model = nn.Linear(3, 3)
    twin = copy.deepcopy(model)

    def with_schedule(model):
        optimizer = weft.optim.SGD(model.parameters(), 0.5)
        schedule = weft.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
        step = training_step(model, optimizer)

        def both(x, labels):
            loss = step(x, labels)
            schedule.step()
            return loss

        return both

    compiled, plain = weft.compile(with_schedule(model)), with_schedule(twin)
    for x, labels in batches(rng, (3,), 4):
        compiled(x, labels)
        plain(x, labels)
    same_states(model, twin)


def test_errors_are_those_of_the_function():
    product = weft.compile(lambda x, y: x @ y)
    with pytest.raises(weft.Error):
        product(weft.ones(2, 3), weft.ones(2, 3))
    entropy = weft.compile(F.cross_entropy)
    entropy(weft.zeros(2, 3), weft.tensor([0, 1]))
    with pytest.raises(IndexError, match="out of bounds"):
        entropy(weft.zeros(2, 3), weft.tensor([0, 7]))


def test_backward_twice_and_changed_inputs_are_refused():
    w = weft.ones(2, requires_grad=True)
    square = weft.compile(lambda: (w * w).sum())
    result = square()
    result.backward()
    with pytest.raises(weft.Error, match="second time"):
        result.backward()
    result = square()
    with weft.no_grad():
        w.add_(1)
    with pytest.raises(weft.Error, match="modified by an inplace"):
        result.backward()


def test_decorated_methods_and_options():
    class Doubling:
        @weft.compile
        def double(self, x):
            return x * 2

    assert Doubling().double(weft.ones(2)).tolist() == [2, 2]
    assert weft.compile(lambda x: x, disable=True)(3) == 3
    assert weft.compile(mode="max-autotune", dynamic=True)(lambda x: x + 1)(weft.ones(1)).tolist() == [2]
    with pytest.raises(weft.Error, match="for models"):
        weft.compile(lambda x: x, opt_level=2)
    layer = weft.compile(nn.Linear(2, 3))
    assert (layer.in_features, len(list(layer.parameters()))) == (2, 2)


# Tracing.


def test_traced_functions_are_graphs():
    examples = (weft.randn(2, 3), weft.randn(3, 4))
    traced = weft.jit.trace(lambda x, y: (x @ y).relu() + 1, examples)
    x, y = weft.randn(5, 3), weft.randn(3, 2)
    assert np.allclose(traced(x, y).numpy(), np.maximum(x.numpy() @ y.numpy(), 0) + 1, atol=1e-5)
    assert "relu" in [node.op_name for node in weft.graph.create(traced.model(examples)[0]).indexed.nodes]


@pytest.mark.parametrize("network", ["mlp", "batch_norm", "convolutions", "residual", "attention"])
def test_traced_modules_are_symbols_and_files(network, rng, tmp_path):
    make, shape = NETWORKS[network]
    model = make().eval()
    ((x, _),) = batches(rng, shape, 1)
    traced = weft.jit.trace(model, x)
    symbol, params = traced.model(x, ["x"])
    assert {name for name, _ in model.named_parameters()} <= params.keys()
    wanted = model(x).detach().numpy()
    compiled = weft.compile((symbol, params), shape={"x": x.shape})
    np.testing.assert_allclose(compiled(x.numpy())[0], wanted, atol=1e-5)
    compiled.save(tmp_path / "model.weft")
    np.testing.assert_allclose(weft.runtime.load(tmp_path / "model.weft")(x.numpy())[0], wanted, atol=1e-5)


def test_traced_embeddings(rng):
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2)).eval()
    x = weft.tensor(rng.integers(0, 10, (2, 3)))
    symbol, params = weft.jit.trace(model, x).model(x, ["x"])
    made = weft.compile((symbol, params), shape={"x": (2, 3)}, dtype={"x": "int64"})
    np.testing.assert_allclose(made(x.numpy())[0], model(x).detach().numpy(), rtol=1e-5)


def test_a_trace_that_is_not_one_graph_is_told():
    with pytest.raises(weft.Error, match="not one graph"):
        weft.jit.trace(lambda x: F.dropout(x, 0.5), weft.ones(4), check_trace=False).model(weft.ones(4))
