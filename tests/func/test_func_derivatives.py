"""Derivatives of functions against torch.func: gradients, products, matrices, and how they nest with each other and
with vmap."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap

# name: (function of the system and tensors, their shapes); all are smooth where they are tried
FUNCTIONS = {
    "square": (lambda m, x: x * x, [(3,)]),
    "cube of a number": (lambda m, x: x**3, [()]),
    "sin": (lambda m, x: m.sin(x), [(2, 2)]),
    "tanh of a sum": (lambda m, x: m.tanh(x).sum(0), [(3, 2)]),
    "exp of products": (lambda m, x, y: m.exp(x * y * 0.3), [(3,), (3,)]),
    "division": (lambda m, x, y: x / (y * y + 1), [(3,), ()]),
    "power": (lambda m, x, y: (x * x + 1) ** y, [(3,), (3,)]),
    "logsumexp": (lambda m, x: x.logsumexp(1), [(2, 3)]),
    "softmax": (lambda m, x: m.softmax(x, -1), [(2, 3)]),
    "log_softmax": (lambda m, x: m.log_softmax(x, 0), [(3,)]),
    "mean": (lambda m, x: x.sin().mean(1), [(2, 3)]),
    "variance": (lambda m, x: x.var(), [(5,)]),
    "norm": (lambda m, x: x.norm(), [(4,)]),
    "prod": (lambda m, x: x.prod(), [(4,)]),
    "cumsum": (lambda m, x: x.cumsum(0) ** 2, [(4,)]),
    "max": (lambda m, x: x.max(1)[0] ** 2, [(2, 4)]),
    "sort": (lambda m, x: x.sort()[0] ** 2, [(4,)]),
    "matmul": (lambda m, x, y: x @ y, [(2, 3), (3, 2)]),
    "matrix and vector": (lambda m, x, y: (x @ y).sin(), [(2, 3), (3,)]),
    "quadratic form": (lambda m, x, y: x @ y @ x, [(3,), (3, 3)]),
    "einsum": (lambda m, x, y: m.einsum("ij,kj->ki", x, y), [(2, 3), (2, 3)]),
    "linear": (lambda m, x, w, b: m.nn.functional.linear(x, w, b).tanh(), [(2, 3), (2, 3), (2,)]),
    "det": (lambda m, x: m.linalg.det(x + 2 * m.eye(3)), [(3, 3)]),
    "inverse": (lambda m, x: m.linalg.inv(x + 3 * m.eye(2)), [(2, 2)]),
    "solve": (lambda m, x, y: m.linalg.solve(x + 3 * m.eye(2), y), [(2, 2), (2,)]),
    "reshape": (lambda m, x: x.reshape(3, 2).t() ** 2, [(2, 3)]),
    "slices": (lambda m, x: x[1:] * x[:-1], [(4,)]),
    "cat": (lambda m, x, y: m.cat([x, y * x]) ** 2, [(3,), (3,)]),
    "stack": (lambda m, x: m.stack([x, x.sin()], 1), [(3,)]),
    "gather": (lambda m, x: x[m.tensor([0, 0, 2])] ** 2, [(3,)]),
    "where": (lambda m, x: m.where(x > 0, x * x, -x), [(4,)]),
    "gelu": (lambda m, x: m.nn.functional.gelu(x), [(4,)]),
    "silu": (lambda m, x: m.nn.functional.silu(x), [(4,)]),
    "softplus": (lambda m, x: m.nn.functional.softplus(x), [(4,)]),
    "layer_norm": (lambda m, x, w: m.nn.functional.layer_norm(x, (3,), w), [(2, 3), (3,)]),
    "conv1d": (lambda m, x, w: m.nn.functional.conv1d(x, w), [(1, 2, 5), (2, 2, 3)]),
    "conv2d": (lambda m, x, w: m.nn.functional.conv2d(x, w, padding=1).sum((2, 3)), [(1, 2, 3, 3), (2, 2, 3, 3)]),
    "avg_pool2d": (lambda m, x: m.nn.functional.avg_pool2d(x, 2) ** 2, [(1, 1, 4, 4)]),
    "mse_loss": (lambda m, x, y: m.nn.functional.mse_loss(x, y), [(3,), (3,)]),
    "cross_entropy": (lambda m, x: m.nn.functional.cross_entropy(x, m.tensor([0, 2])), [(2, 3)]),
    "attention": (lambda m, *x: m.nn.functional.scaled_dot_product_attention(*x), [(2, 3)] * 3),
    "several results": (lambda m, x, y: (x * y, {"sum": (x + y).sin()}), [(3,), (3,)]),
    "does not depend on one": (lambda m, x, y: x.sin(), [(3,), (3,)]),
    "is constant": (lambda m, x: m.ones(2), [(3,)]),
}


def test_the_table_is_large():
    assert len(FUNCTIONS) >= 40


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


def _arguments(torch, name, count=1):
    random = np.random.default_rng(len(name) + 1)
    _, shapes = FUNCTIONS[name]
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes * count]
    return [weft.tensor(array) for array in arrays], [torch.tensor(array) for array in arrays]


def _same(ours, theirs, tolerance=2e-4):
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = tuple(ours.values()), tuple(theirs.values())
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            _same(one, other, tolerance)
        return
    want = theirs.detach().numpy()
    assert ours.shape == want.shape
    np.testing.assert_allclose(ours.detach().numpy(), want, rtol=tolerance, atol=tolerance)


def _number(function):
    """A number made of all that a function gives."""

    def total(m, *x):
        made = function(m, *x)
        parts = [made[0], made[1]["sum"]] if isinstance(made, tuple) else [made]
        return sum((part.sin() * (1 + at)).sum() for at, part in enumerate(parts))

    return total


@pytest.mark.parametrize("name", FUNCTIONS)
def test_grad(torch, name):
    ours, theirs = _arguments(torch, name)
    function, every = _number(FUNCTIONS[name][0]), tuple(range(len(ours)))
    _same(
        grad_and_value(lambda *x: function(weft, *x), every)(*ours),
        torch.func.grad_and_value(lambda *x: function(torch, *x), every)(*theirs),
    )
    _same(
        value_and_grad(lambda *x: function(weft, *x), every)(*ours),
        torch.func.grad_and_value(lambda *x: function(torch, *x), every)(*theirs)[::-1],
    )
    _same(grad(lambda *x: function(weft, *x))(*ours), torch.func.grad(lambda *x: function(torch, *x))(*theirs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vjp_and_jvp(torch, name):
    ours, theirs = _arguments(torch, name)
    function = FUNCTIONS[name][0]
    output, pull = vjp(lambda *x: function(weft, *x), *ours)
    want, their_pull = torch.func.vjp(lambda *x: function(torch, *x), *theirs)
    _same(output, want)
    _same(pull(output), their_pull(want))
    tangents, their_tangents = (tuple(both[len(ours) :]) for both in _arguments(torch, name, 2))
    pushed = torch.func.jvp(lambda *x: function(torch, *x), tuple(theirs), their_tangents)
    _same(jvp(lambda *x: function(weft, *x), tuple(ours), tangents), pushed)
    output, push = linearize(lambda *x: function(weft, *x), *ours)
    _same((output, push(*tangents)), pushed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_jacobians(torch, name):
    ours, theirs = _arguments(torch, name)
    function, every = FUNCTIONS[name][0], tuple(range(len(ours)))
    want = torch.func.jacrev(lambda *x: function(torch, *x), every)(*theirs)
    _same(jacrev(lambda *x: function(weft, *x), every)(*ours), want)
    _same(jacrev(lambda *x: function(weft, *x), every, chunk_size=2)(*ours), want)
    _same(jacfwd(lambda *x: function(weft, *x), every)(*ours), want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessian(torch, name):
    ours, theirs = _arguments(torch, name)
    function, every = _number(FUNCTIONS[name][0]), tuple(range(len(ours)))
    want = torch.autograd.functional.hessian(lambda *x: function(torch, *x) + 0 * x[0].sum(), tuple(theirs))
    _same(hessian(lambda *x: function(weft, *x), every)(*ours), want, 2e-3)
    _same(jacrev(jacrev(lambda *x: function(weft, *x), every), every)(*ours), want, 2e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_each_element_of_a_batch(torch, name):
    ours, theirs = _arguments(torch, name, 2)
    count = len(ours) // 2
    ours = [weft.stack(pair) for pair in zip(ours[:count], ours[count:])]
    theirs = [torch.stack(pair) for pair in zip(theirs[:count], theirs[count:])]
    function, every = _number(FUNCTIONS[name][0]), tuple(range(count))
    inside = [
        system.vmap(func.grad(lambda *x: function(system, *x), every))(*x)  # noqa: B023  called at once
        for system, func, x in ((weft, weft.func, ours), (torch, torch.func, theirs))
    ]
    _same(*inside)
    outside = [
        func.grad(lambda *x: system.vmap(lambda *y: function(system, *y))(*x).sum(), every)(*x)  # noqa: B023
        for system, func, x in ((weft, weft.func, ours), (torch, torch.func, theirs))
    ]
    _same(*outside)


# How levels nest.


def test_levels_do_not_see_each_other():
    """What an inner level differentiates by is no variable of an outer one, and the other way round."""
    x = weft.tensor(3.0)
    one = weft.tensor(1.0)
    assert grad(lambda x: x * grad(lambda y: x + y)(one))(x) == 1
    assert grad(lambda x: x * grad(lambda y: x * y)(x))(x) == 6
    assert grad(lambda x: x * grad(lambda y: x * y * y)(x))(x) == 3 * 2 * 9
    push = lambda f, x: jvp(f, (x,), (one,))[1]
    assert push(lambda x: x * push(lambda y: x + y, one), x) == 1
    assert push(lambda x: x * push(lambda y: x * y, one), x) == 6
    assert grad(lambda x: x * push(lambda y: x * y, one))(x) == 6
    assert push(lambda x: x * grad(lambda y: x * y)(one), x) == 6


@pytest.mark.parametrize("depth", [2, 3, 4, 5])
def test_gradients_of_gradients(torch, depth):
    def nested(m, level):
        function = lambda x: m.sin(x) * m.exp(x)
        for _ in range(depth):
            function = level(function)
        return function

    want = nested(torch, torch.func.grad)(torch.tensor(0.7))
    _same(nested(weft, grad)(weft.tensor(0.7)), want)
    _same(vmap(nested(weft, grad))(weft.full((3,), 0.7)), want.expand(3))
    _same(nested(weft, lambda f: lambda x: jvp(f, (x,), (weft.tensor(1.0),))[1])(weft.tensor(0.7)), want)


def test_batches_between_levels(torch):
    def nested(m, func, x):
        inner = func.grad(lambda y: (y**4).sum())
        return func.grad(lambda x: m.vmap(lambda row: m.vmap(inner)(row[:, None]).sum() * row.sum())(x).sum())(x)

    array = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    _same(nested(weft, weft.func, weft.tensor(array)), nested(torch, torch.func, torch.tensor(array)))


def test_a_gradient_by_what_is_not_batched_inside_a_batch(torch):
    random = np.random.default_rng(1)
    w, x = (random.standard_normal(shape).astype(np.float32) for shape in ((3,), (4, 3)))

    def nested(m, func, w, x):
        return m.vmap(lambda row: func.grad(lambda w: (w * row).sum() ** 2)(w))(x)

    ours = nested(weft, weft.func, weft.tensor(w), weft.tensor(x))
    _same(ours, nested(torch, torch.func, torch.tensor(w), torch.tensor(x)))


def test_modes_of_recording(torch):
    def stopped(m, x):
        with m.no_grad():
            shift = x**3
        return x**3 - shift

    for m, func in ((weft, weft.func), (torch, torch.func)):
        x = m.tensor(2.0)
        assert func.grad(lambda x: stopped(m, x))(x) == 12  # noqa: B023  called at once
        assert func.grad(lambda x: x * x.detach())(x) == 2
        with m.no_grad():
            assert func.grad(lambda x: x * x)(x) == 4
            assert not func.grad(lambda x: x * x)(x).requires_grad


def test_gradients_know_the_graph_around_them(torch):
    """They are recorded if they depend on something that is, and only then."""
    for m, func in ((weft, weft.func), (torch, torch.func)):
        w = m.tensor([1.0, 2.0], requires_grad=True)
        x = m.tensor([3.0, 4.0])
        assert not func.grad(lambda x: (x * x).sum())(x).requires_grad
        assert not func.grad(lambda x: (x * x + w).sum())(x).requires_grad  # noqa: B023
        made = func.grad(lambda x: (x * x * w).sum())(x)  # noqa: B023
        assert made.requires_grad
        made.sum().backward()
        assert w.grad.tolist() == [6, 8]
        made = func.vmap(func.grad(lambda x, w: x * x * w), in_dims=(0, 0))(x, w)
        (slope,) = m.autograd.grad(made.sum(), w)
        assert slope.tolist() == [6, 8]
        output, pull = func.vjp(lambda w: w * w, w)
        assert output.requires_grad
        (slope,) = m.autograd.grad(pull(x)[0].sum(), w)
        assert slope.tolist() == [6, 8]


def test_inputs_are_not_written_to():
    x = weft.ones(3)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        grad(lambda x: x.mul_(2).sum())(x)
    assert x.tolist() == [1, 1, 1]


def test_writes_inside_are_followed(torch):
    array = np.random.default_rng(2).standard_normal((2, 4)).astype(np.float32)

    def written(m, x):
        y = m.zeros_like(x)
        y[0] = x[1] * x[2]
        y[1:3] = x[:2] ** 2
        y += x
        return (y * y.exp()).sum()

    def slopes(m):
        x, one = m.tensor(array), lambda x: written(m, x)
        inside = m.vmap(m.func.grad(one))(x)
        outside = m.func.grad(lambda x: m.vmap(one)(x).sum())(x)
        return m.func.grad(one)(x[0]), inside, outside

    _same(slopes(weft), slopes(torch))


class Tripled(weft.autograd.Function):
    """sin, with three times its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x.cos()


@pytest.mark.parametrize("way", ["alone", "inside", "outside", "twice"])
def test_functions_with_gradients_of_their_own(way):
    x = weft.randn(3, 2)
    total = lambda x: Tripled.apply(x).sum()
    want = 3 * x.cos()
    if way == "alone":
        made = grad(total)(x)
    elif way == "inside":
        made = vmap(grad(total))(x)
    elif way == "outside":
        made = grad(lambda x: vmap(Tripled.apply)(x).sum())(x)
    else:
        made, want = vmap(grad(lambda x: grad(total)(x).sum()))(x), -3 * x.sin()
    np.testing.assert_allclose(made.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_detached_in_a_batch_has_no_gradient_outside(torch):
    for m in (weft, torch):
        x = m.tensor([1.0, 2.0, 3.0])
        assert m.func.grad(lambda x: m.vmap(lambda y: y * y.detach())(x).sum())(x).tolist() == [1, 2, 3]  # noqa: B023

        def stopped(y):
            with m.no_grad():  # noqa: B023
                z = y * 1
            return y * z

        assert m.func.grad(lambda x: m.vmap(stopped)(x).sum())(x).tolist() == [1, 2, 3]  # noqa: B023


def test_other_ways_to_gradients_inside_a_batch():
    x = weft.randn(3, 2)

    def by_autograd(x):
        y = x.detach().requires_grad_()
        return weft.autograd.grad((y**3).sum(), y)[0]

    np.testing.assert_allclose(vmap(by_autograd)(x).numpy(), (3 * x**2).numpy(), rtol=1e-5)
    matrices = vmap(lambda x: weft.autograd.functional.jacobian(lambda y: y**3, x))(x)
    np.testing.assert_allclose(matrices.numpy(), weft.diag_embed(3 * x**2).numpy(), rtol=1e-5)
    with pytest.raises(RuntimeError, match="backward\\(\\) called inside"):
        vmap(lambda x: x.clone().requires_grad_().sum().backward())(x)


def test_products_with_the_hessian(torch):
    random = np.random.default_rng(3)
    x, v = (random.standard_normal(5).astype(np.float32) for _ in range(2))

    def product(m, func, x, v):
        f = lambda x: (x.sin() * x.flip(0).exp()).sum()
        return func.jvp(func.grad(f), (x,), (v,))[1], func.vjp(func.grad(f), x)[1](v)[0]

    ours = product(weft, weft.func, weft.tensor(x), weft.tensor(v))
    _same(ours, product(torch, torch.func, torch.tensor(x), torch.tensor(v)))
    f = lambda x: (x.sin() * x.flip(0).exp()).sum()
    _same(ours[0] @ weft.eye(5), torch.func.hessian(f)(torch.tensor(x)) @ torch.tensor(v))
    _same(weft.autograd.functional.hvp(f, weft.tensor(x), weft.tensor(v))[1], torch.tensor(ours[0].numpy()))


def test_what_else_a_function_gives():
    x = weft.tensor([1.0, 2.0])
    slope, aux = grad(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(x)
    assert slope.tolist() == [2, 4]
    assert aux["twice"].tolist() == [2, 4]
    assert not aux["twice"].requires_grad
    _, (value, aux) = grad_and_value(lambda x: ((x * x).sum(), 5), has_aux=True)(x)
    assert value == 5 == aux
    (value, aux), slope = value_and_grad(lambda x: ((x * x).sum(), {"twice": x * 2}), has_aux=True)(x)
    assert (value.item(), aux["twice"].tolist(), slope.tolist()) == (5, [2, 4], [2, 4])
    assert vjp(lambda x: (x, "text"), x, has_aux=True)[2] == "text"
    assert jvp(lambda x: (x, "text"), (x,), (x,), has_aux=True)[2] == "text"
    matrix, aux = jacrev(lambda x: (x * 2, 7), has_aux=True)(x)
    assert matrix.tolist() == [[2, 0], [0, 2]]
    assert aux == 7
    matrix, aux = jacfwd(lambda x: (x * 2, 7), has_aux=True)(x)
    assert matrix.tolist() == [[2, 0], [0, 2]]
    assert aux == 7


def test_trees_of_arguments(torch):
    array = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)

    def function(params, x, scale):
        return ((params["w"] * x + params["b"][0]) ** 2).sum() * scale

    def slopes(m, func):
        params = {"w": m.tensor(array[0]), "b": [m.tensor(array[1])]}
        return func.grad(function, argnums=(0, 1))(params, m.tensor(array[1]), scale=2.0)

    _same(slopes(weft, weft.func), slopes(torch, torch.func))


def test_complex_numbers(torch):
    random = np.random.default_rng(5)
    z = (random.standard_normal(3) + 1j * random.standard_normal(3)).astype(np.complex64)
    v = (random.standard_normal(3) + 1j * random.standard_normal(3)).astype(np.complex64)
    number = lambda z: (z * z * z.conj()).abs().sum()
    _same(grad(number)(weft.tensor(z)), torch.func.grad(number)(torch.tensor(z)))
    square = lambda z: z * z + z.conj()
    ours = jvp(square, (weft.tensor(z),), (weft.tensor(v),))
    _same(ours, torch.func.jvp(square, (torch.tensor(z),), (torch.tensor(v),)))


def test_large_tensors_are_differentiated_twice():
    """Sums of as many elements as native code takes."""
    x = weft.ones(700_000)
    made = grad(lambda x: grad(lambda y: (y**3).sum())(x).sum())(x)
    assert (made == 6).all()


# Misuse: each gives an error of PyTorch's kind.

WRONG = {
    "no number": (lambda m, f: f.grad(lambda x: x)(m.ones(2)), "scalar Tensor"),
    "no tensor": (lambda m, f: f.grad(lambda x: 3)(m.ones(2)), "return a Tensor"),
    "whole numbers": (lambda m, f: f.grad(lambda x: x.sum())(m.ones(2, dtype=m.int64)), "floating point"),
    "a Python number": (lambda m, f: f.grad(lambda x: x)(3.0), "must be Tensor"),
    "argnums": (lambda m, f: f.grad(lambda x: x.sum(), argnums=2)(m.ones(2)), "argnum=2"),
    "no argnums": (lambda m, f: f.grad(lambda x: x.sum(), argnums=())(m.ones(2)), "argnum"),
    "argnums twice": (lambda m, f: f.grad(lambda x: x.sum(), argnums=(0, 0))(m.ones(2)), "unique"),
    "aux": (lambda m, f: f.grad(lambda x: x.sum(), has_aux=True)(m.ones(2)), "has_aux"),
    "vjp of no tensors": (lambda m, f: f.vjp(lambda x: 3, m.ones(2)), "tensors"),
    "jvp without a tuple": (lambda m, f: f.jvp(lambda x: x, m.ones(2), m.ones(2)), "tuple"),
    "jvp of other structure": (lambda m, f: f.jvp(lambda x: x, (m.ones(2),), (m.ones(2), m.ones(2))), "structure"),
    "jvp of another shape": (lambda m, f: f.jvp(lambda x: x, (m.ones(2),), (m.ones(3),)), "shape"),
}


@pytest.mark.parametrize("name", WRONG)
def test_misuse(torch, name):
    call, message = WRONG[name]
    with pytest.raises(Exception) as theirs:
        call(torch, torch.func)
    kind = next(kind for kind in type(theirs.value).__mro__ if kind.__module__ == "builtins")
    with pytest.raises(kind, match=message):
        call(weft, weft.func)
    assert grad(lambda x: x * x)(weft.tensor(3.0)) == 6  # no level is left behind
