"""`weft.compile` of functions that use `weft.func`, which become one graph, and `weft.func` of compiled functions:
values are those of PyTorch's functions of the same names."""

import functools

import numpy as np
import pytest
from oracles import oracle

import weft

torch = oracle("torch")
WEIGHT = np.random.default_rng(5).standard_normal((3, 3)).astype("float32")


def weight(lib):
    return lib.tensor(WEIGHT)


def product(lib, x):
    return (x @ weight(lib)).tanh()


@functools.cache
def model(lib):
    layers = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.Tanh(), lib.nn.Linear(4, 2))
    shapes = {name: tuple(p.shape) for name, p in layers.named_parameters()}
    values = np.random.default_rng(6)
    return layers, {name: lib.tensor(values.uniform(-1, 1, s).astype("float32")) for name, s in shapes.items()}


def gradients_of_samples(lib, x):
    layers, params = model(lib)
    loss = lambda p, a: (lib.func.functional_call(layers, p, (a,)) ** 2).sum()
    return lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0))(params, x)


def written_inside(lib, x):
    def one(a):
        made = a.clone()
        made[0] = 7.0
        made.mul_(2).add_(a)
        return made

    return lib.func.vmap(one)(x)


def with_a_sum_of_its_own(lib, x):
    def one(a):
        total = lib.zeros(3)
        total += weight(lib)[0]
        return a + total

    return lib.func.vmap(one)(x)


FUNCTIONS = {
    "vmap": lambda lib, x: lib.func.vmap(lambda a: (a @ weight(lib)).relu() * 2)(x),
    "vmap of dot": lambda lib, x: lib.func.vmap(lib.dot)(x, x * 2),
    "axes": lambda lib, x: lib.func.vmap(lambda a: a * 2 + a.sum(), in_dims=1, out_dims=1)(x),
    "vmap of vmap": lambda lib, x: lib.func.vmap(lambda a: lib.func.vmap(lambda b: (a * b).sum())(x))(x),
    "parts": lambda lib, x: lib.func.vmap(lambda a: a[1:] + a[:-1])(x),
    "where": lambda lib, x: lib.func.vmap(lambda a: lib.where(a > 0, a, -a).cumsum(0))(x),
    "softmax": lambda lib, x: lib.func.vmap(lambda a: a.softmax(-1))(x),
    "layer norm": lambda lib, x: lib.func.vmap(lambda a: lib.nn.functional.layer_norm(a, (3,)))(x),
    "written inside": written_inside,
    "a sum of its own": with_a_sum_of_its_own,
    "grad": lambda lib, x: lib.func.grad(lambda a: (a**3).sum())(x),
    "grad and value": lambda lib, x: lib.func.grad_and_value(lambda a: (a.exp() * a).sum())(x),
    "grad of grad": lambda lib, x: lib.func.grad(lambda a: lib.func.grad(lambda b: (b**3).sum())(a).sum())(x),
    "vjp": lambda lib, x: lib.func.vjp(lambda a: product(lib, a), x)[1](x)[0],
    "jvp": lambda lib, x: lib.func.jvp(lambda a: product(lib, a) * a, (x,), (x + 1,)),
    "jacrev": lambda lib, x: lib.func.jacrev(lambda a: product(lib, a))(x),
    "jacfwd": lambda lib, x: lib.func.jacfwd(lambda a: product(lib, a))(x),
    "hessian": lambda lib, x: lib.func.hessian(lambda a: (product(lib, a) ** 2).sum())(x[0]),
    "vmap of grad": lambda lib, x: lib.func.vmap(lib.func.grad(lambda a: product(lib, a).sum()))(x),
    "grad of vmap": lambda lib, x: lib.func.grad(lambda a: lib.func.vmap(lambda r: product(lib, r).sum())(a).sum())(x),
    "gradients of samples": gradients_of_samples,
}


def flat(value):
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [tensor for item in value for tensor in flat(item)] if isinstance(value, (list, tuple)) else [value]


def same(found, wanted, tolerance=2e-4):
    found, wanted = flat(found), flat(wanted)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert tuple(one.shape) == tuple(other.shape)
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_are_in_the_graph(name):
    function = FUNCTIONS[name]
    rng = np.random.default_rng(7)
    model(weft)  # which is made outside
    compiled = weft.compile(lambda x: function(weft, x), fullgraph=True)
    for rows in (2, 2, 4):
        x = rng.standard_normal((rows, 3)).astype("float32")
        same(compiled(weft.tensor(x)), function(torch, torch.from_numpy(x)))
    told = compiled.explain()
    assert (told.plans, told.graphs, told.breaks, told.eager) == (2, 2, [], None)


def test_gradients_from_outside():
    x = np.random.default_rng(8).standard_normal((2, 3)).astype("float32")
    ours, theirs = weft.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    compiled = weft.compile(lambda a: weft.func.vmap(lambda r: product(weft, r).sum())(a), fullgraph=True)
    compiled(ours).sum().backward()
    torch.func.vmap(lambda r: product(torch, r).sum())(theirs).sum().backward()
    same(ours.grad, theirs.grad)


def test_random_numbers_of_a_batch_are_drawn_anew():
    def function(x):
        return weft.func.vmap(lambda a: weft.nn.functional.dropout(a, 0.5), randomness="different")(x)

    x, compiled = weft.ones(4, 6), weft.compile(function)
    weft.manual_seed(3)
    found = [compiled(x), compiled(x)]
    weft.manual_seed(3)
    wanted = [function(x), function(x)]
    same(found, wanted, 1e-6)
    assert not weft.equal(found[0], found[1])


OF_COMPILED = {
    "grad": lambda lib, f, x: lib.func.grad(f)(x),
    "vmap": lambda lib, f, x: lib.func.vmap(f)(x),
    "vjp": lambda lib, f, x: lib.func.vjp(f, x)[1](lib.tensor(2.0)),
    "jvp": lambda lib, f, x: lib.func.jvp(f, (x,), (x + 1,)),
    "jacrev": lambda lib, f, x: lib.func.jacrev(lambda a: f(a) * a)(x),
    "hessian": lambda lib, f, x: lib.func.hessian(f)(x),
    "vmap of grad": lambda lib, f, x: lib.func.vmap(lib.func.grad(f))(x),
    "grad of grad": lambda lib, f, x: lib.func.grad(lambda a: (lib.func.grad(f)(a) ** 2).sum())(x),
}


@pytest.mark.parametrize("name", OF_COMPILED)
def test_transforms_of_compiled_functions(name):
    transform = OF_COMPILED[name]
    compiled = weft.compile(lambda a: (a.sin() * a).sum())
    rng = np.random.default_rng(9)
    for _ in range(2):
        x = rng.standard_normal((2, 3)).astype("float32")
        wanted = transform(torch, lambda a: (a.sin() * a).sum(), torch.from_numpy(x))
        same(transform(weft, compiled, weft.tensor(x)), wanted)


def test_gradients_of_gradients_of_a_compiled_module():
    rng = np.random.default_rng(10)
    x = rng.standard_normal((4, 3)).astype("float32")
    found = []
    for lib, wrapped in ((weft, weft.compile), (torch, lambda layers: layers)):
        layers, params = model(lib)
        layers.load_state_dict(params)
        given = lib.tensor(x, requires_grad=True)
        (slope,) = lib.autograd.grad(wrapped(layers)(given).sum(), given, create_graph=True)
        (slope**2).sum().backward()
        found.append([given.grad, *[p.grad for p in layers.parameters() if p.grad is not None]])
    same(*found)


def test_a_function_that_writes_is_not_differentiated_twice():
    total = weft.zeros(3)

    @weft.compile
    def function(x):
        total.add_(1)
        return (x * x).sum()

    x = weft.ones(3, requires_grad=True)
    (slope,) = weft.autograd.grad(function(x), x)
    assert slope.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        weft.autograd.grad(function(x), x, create_graph=True)
    assert total.tolist() == [2, 2, 2]
