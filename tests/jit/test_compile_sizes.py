"""`weft.compile` at many sizes: from the second on a function has one program for all of them, which gives what the
function and PyTorch give, and nothing is compiled again."""

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.compiler.kernels import kernel_cache

SIZES = (7, 9, 4, 12, 2, 33)


def _values(rng, *shape):
    return rng.uniform(0.3, 1.7, shape).astype("float32")


def _kernels():
    """How many kernels were asked for, be they compiled or found."""
    return kernel_cache.hits + kernel_cache.misses


# Functions of a module T (weft or PyTorch), and matrices x of (n, 6) and y of (n, 6).

FUNCTIONS = {
    "element_wise": lambda T, x, y: (x * 2 - y).relu() / (1 + x),
    "views": lambda T, x, y: x[1:].reshape(-1)[3:].sum() + y.t().reshape(3, 2, -1).permute(2, 0, 1) * 2,
    "parts": lambda T, x, y: T.cat([x[:, ::2], y[:, 3:]], 1)[: x.shape[0] // 2 + 1],
    "reductions": lambda T, x, y: x.mean(0) + y.var(0, unbiased=False) + (x * y).sum(),
    "matmul": lambda T, x, y: x @ y.t() @ x,
    "softmax": lambda T, x, y: T.softmax(x, 0) * T.log_softmax(y, 1),
    "sizes_as_numbers": lambda T, x, y: x * x.shape[0] + y / x.numel(),
    "constants": lambda T, x, y: x * T.arange(x.shape[0])[:, None] + T.ones(x.shape[0], 6),
    "writes": lambda T, x, y: _written(x * 1, y),
    "attention": lambda T, x, y: T.nn.functional.scaled_dot_product_attention(x[None], y[None], (x * y)[None]),
    "indices": lambda T, x, y: T.gather(x, 1, y.argmax(1)[:, None]) + x[[0, -1]].sum(),
    "losses": lambda T, x, y: T.nn.functional.cross_entropy(x, T.arange(x.shape[0]) % 6) + T.dist(x, y),
}


def _written(x, y):
    x[0] = y[-1]
    x[:, 1:3].mul_(2)
    return x


def _results(T, function, *arrays):
    """What a function gives, and the gradients of its sum."""
    tensors = [T.tensor(array).requires_grad_() for array in arrays]
    made = function(*tensors)
    made.sum().backward()
    grads = [tensor.grad for tensor in tensors if tensor.grad is not None]
    return [tensor.detach().numpy() for tensor in (made, *grads)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_from_the_second_size_on(name, rng):
    torch = oracle("torch")
    function = FUNCTIONS[name]
    compiled = weft.compile(lambda x, y: function(weft, x, y))
    for number, size in enumerate((*SIZES, 1)):
        before = _kernels(), compiled.explain().programs
        arrays = [_values(rng, size, 6) for _ in range(2)]
        found = _results(weft, compiled, *arrays)
        if number > 1 and size > 1:  # of one row, code may do other operators
            assert (_kernels(), compiled.explain().programs) == before
        wanted = _results(torch, lambda x, y: function(torch, x, y), *arrays)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
    assert any("open in n0" in line for line in compiled.explain().sizes)


def _mlp(T):
    nn = T.nn
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)), (6,)


def _cnn(T):
    nn = T.nn
    layers = [
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3)), (3, 8, 8)


def _lstm(T):
    nn = T.nn

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.cells(x)[0][:, -1])

    return Last(), (4, 5)


@pytest.mark.parametrize("build", [_mlp, *(pytest.param(build, marks=pytest.mark.slow) for build in (_cnn, _lstm))])
def test_a_training_step_is_compiled_for_two_batches(build, rng):
    torch = oracle("torch")
    (own, shape), (theirs, _) = build(weft), build(torch)
    own.load_state_dict({key: weft.tensor(value.numpy()) for key, value in theirs.state_dict().items()})

    def step_of(T, model):
        optimizer = T.optim.Adam(model.parameters(), lr=0.01)

        def step(x, labels):
            optimizer.zero_grad()
            loss = T.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return loss

        return step

    compiled, plain = weft.compile(step_of(weft, own)), step_of(torch, theirs)
    weights = [parameter._array for parameter in own.parameters()]
    for number, size in enumerate((7, 9, 4, 12, 2)):
        x, labels = _values(rng, size, *shape), rng.integers(0, 3, size)
        before = _kernels()
        loss = compiled(weft.tensor(x), weft.tensor(labels))
        if number > 1:
            assert _kernels() == before
        np.testing.assert_allclose(loss.item(), plain(torch.tensor(x), torch.tensor(labels)).item(), rtol=1e-4)
    for one, other in zip(own.state_dict().values(), theirs.state_dict().values()):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)
    assert compiled.explain().programs == 2
    assert all(parameter._array is array for parameter, array in zip(own.parameters(), weights))


def test_graph_breaks_are_open_too(rng):
    @weft.compile
    def function(x):
        y = x * 2
        return y.sum(0) if y.max() > 100 else (y - 1).mean(1)

    for size in SIZES:
        x = _values(rng, size, 5)
        np.testing.assert_allclose(function(weft.tensor(x)).numpy(), (x * 2 - 1).mean(1), rtol=1e-5)
    assert function.explain().programs == 4
    assert len(function.explain().breaks) == 1


# Sizes that mean something else.


def test_an_empty_call_has_a_program_of_its_own(rng):
    function = weft.compile(lambda x: (x * 2).sum(0) + 1)
    for size in (7, 0, 9, 0, 5):
        x = _values(rng, size, 3)
        np.testing.assert_allclose(function(weft.tensor(x)).numpy(), (x * 2).sum(0) + 1, rtol=1e-5)
    assert function.explain().programs == 3


def test_a_size_decides_in_python(rng):
    function = weft.compile(lambda x: x * 2 if x.shape[0] > 5 else x.sum(0) - x)
    for size in (7, 9, 4, 3, 8, 2):
        x = _values(rng, size, 3)
        np.testing.assert_allclose(
            function(weft.tensor(x)).numpy(), x * 2 if size > 5 else x.sum(0) - x, rtol=1e-5, atol=1e-6
        )
    assert function.explain().programs == 4


def test_names_may_be_equal_or_become_two(rng):
    function = weft.compile(lambda x, y: x.sum(1)[:, None] * y.sum(0) + 1)
    pairs = [(7, 5), (9, 6), (8, 8), (4, 11)]  # two names that are equal once
    together = [(3, 3), (5, 5), (6, 4), (2, 9)]  # one name that becomes two
    for rows, columns in pairs:
        x, y = _values(rng, rows, 4), _values(rng, 4, columns)
        np.testing.assert_allclose(
            function(weft.tensor(x), weft.tensor(y)).numpy(), x.sum(1)[:, None] * y.sum(0) + 1, rtol=1e-5
        )
    assert function.explain().programs == 2
    other = weft.compile(lambda x, y: x.sum(1)[:, None] * y.sum(0) + 1)
    for rows, columns in together:
        x, y = _values(rng, rows, 4), _values(rng, 4, columns)
        np.testing.assert_allclose(
            other(weft.tensor(x), weft.tensor(y)).numpy(), x.sum(1)[:, None] * y.sum(0) + 1, rtol=1e-5
        )
    assert other.explain().programs == 3


def test_a_size_may_be_that_of_a_weight(rng):
    layer = weft.nn.Linear(4, 8)
    function = weft.compile(lambda x: layer(x).t())
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    for size in (4, 8, 5, 3):
        x = _values(rng, size, 4)
        np.testing.assert_allclose(function(weft.tensor(x)).detach().numpy(), (x @ weight.T + bias).T, rtol=1e-5)
    assert function.explain().programs == 4  # of them two gradients, which nobody asked for


@pytest.mark.parametrize("order", [[(7, 7), (9, 9), (5, 1), (1, 5), (1, 1)], [(1, 9), (9, 9), (1, 9), (3, 3), (4, 1)]])
def test_what_broadcasts_is_not_taken_for_what_is_open(order, rng):
    function = weft.compile(lambda x, y: (x + y) * y - x)
    for rows, others in [*order, *order]:
        x, y = _values(rng, rows, 4), _values(rng, others, 4)
        np.testing.assert_allclose(function(weft.tensor(x), weft.tensor(y)).numpy(), (x + y) * y - x, rtol=1e-5)


def test_a_size_gives_the_same_bits_each_time(rng):
    function = weft.compile(lambda x: weft.softmax(x, 1) @ weft.ones(x.shape[1], 3) / x.std(0)[:3])
    given = {size: weft.tensor(_values(rng, size, 33)) for size in (7, 9, 5)}
    first = {size: function(x).numpy().tobytes() for size, x in given.items()}
    function.plans.clear()  # as if many other calls had come between
    assert {size: function(x).numpy().tobytes() for size, x in reversed(given.items())} == first
    assert function.explain().programs == 2


# What is asked for, and told.


def test_dynamic_says_when_sizes_get_names(rng):
    each, many = (weft.compile(lambda x: (x * 2).sum(1), dynamic=dynamic) for dynamic in (False, True))
    for size in (7, 9, 5):
        x = _values(rng, size, 3)
        for function in (each, many):
            np.testing.assert_allclose(function(weft.tensor(x)).numpy(), (x * 2).sum(1), rtol=1e-5)
    assert (each.explain().programs, many.explain().programs) == (3, 1)
    assert list(each.explain().sizes) == []
    assert "open in n0, n1" in many.explain().sizes[0]


def test_dynamic_leaves_sizes_of_weights_alone(rng):
    layer = weft.nn.Linear(4, 8)
    function = weft.compile(layer, dynamic=True)
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    with weft.no_grad():
        for size in (7, 4, 5):
            x = _values(rng, size, 4)
            np.testing.assert_allclose(function(weft.tensor(x)).numpy(), x @ weight.T + bias, rtol=1e-5)
    assert function.explain().programs == 1


def test_it_is_told_why_a_size_has_its_own_program(rng):
    function = weft.compile(lambda x: weft.nn.functional.linear(x, x))
    for size in (3, 5, 4):
        x = _values(rng, size, size)
        np.testing.assert_allclose(function(weft.tensor(x)).numpy(), x @ x.T, rtol=1e-5)
    assert "operator dense has units 3 and 5" in str(function.explain())


@pytest.fixture
def rng():
    return np.random.default_rng(11)
