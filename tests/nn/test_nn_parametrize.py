"""Tensors of modules that are computed from others, as PyTorch's parametrisations are."""

import copy
import pickle

import numpy as np
import pytest
from oracles import oracle
from scenarios import Scenarios, affine, same_outcome

import weft
from weft import nn
from weft.nn.utils import parametrizations, parametrize

scenario = Scenarios()


def parts(lib):
    """Parametrisations of several kinds."""

    class Symmetric(lib.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    class Double(lib.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, y):
            return y / 2

    class Sum(lib.nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, y):
            return y * 0.25, y * 0.75

    class Shift(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.by = lib.nn.Parameter(lib.ones(()))

        def forward(self, x):
            return x + self.by

        def right_inverse(self, y):
            raise NotImplementedError

    return {kind.__name__: kind for kind in (Symmetric, Double, Sum, Shift)}


def one_of(lib, forward=None, right_inverse=None):
    """A parametrisation of two functions."""

    class Own(lib.nn.Module):
        pass

    if forward is not None:
        Own.forward = lambda self, *x: forward(*x)
    if right_inverse is not None:
        Own.right_inverse = lambda self, y: right_inverse(y)
    return Own()


def parametrized(lib, *kinds, name="weight", **options):
    module = affine(lib)
    for kind in kinds:
        made = parts(lib)[kind]()
        assert lib.nn.utils.parametrize.register_parametrization(module, name, made, **options) is module
    return module


def told(lib, module):
    """What can be seen of a module, and gradients through it."""
    p = lib.nn.utils.parametrize
    y = module(lib.tensor([[1.0, -2.0]]))
    (y * lib.tensor([[1.0, 3.0]])).sum().backward()
    return (
        repr(module), type(module).__name__, module.state_dict(), y, module.weight,
        {name: parameter.grad for name, parameter in module.named_parameters()},
        [p.is_parametrized(module, name) for name in (None, "weight", "bias", "nothing")],
        p.type_before_parametrizations(module).__name__,
    )  # fmt: skip


KINDS = [
    ("Symmetric",),
    ("Double",),
    ("Sum",),
    ("Shift",),
    ("Double", "Double"),
    ("Symmetric", "Double"),
    ("Sum", "Double"),
]
KINDS += [("Double", "Symmetric", "Shift")]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_tensors_are_computed(kinds):
    same_outcome(lambda lib: told(lib, parametrized(lib, *kinds)))


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("leave", [True, False])
def test_tensors_are_the_modules_own_again(kinds, leave):
    def program(lib):
        m = parametrized(lib, *kinds)
        kept = getattr(m.parametrizations.weight, "original", None)
        lib.nn.utils.parametrize.remove_parametrizations(m, "weight", leave_parametrized=leave)
        return told(lib, m), m.weight is kept, type(m.weight).__name__

    same_outcome(program)


VALUES = {
    "another": lambda lib: lib.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "of another size": lambda lib: lib.ones(2, 3),
    "of another dtype": lambda lib: lib.ones(2, 2, dtype=lib.float64),
    "a number": lambda lib: 3,
    "a parameter": lambda lib: lib.nn.Parameter(lib.ones(2, 2)),
}


@pytest.mark.parametrize("kinds", KINDS[:5], ids="-".join)
@pytest.mark.parametrize("value", VALUES)
def test_tensors_are_assigned(kinds, value):
    def program(lib):
        m = parametrized(lib, *kinds)
        if kinds == ("Sum",) and value in ("a number", "of another dtype"):
            return None  # told otherwise; see below
        m.weight = VALUES[value](lib)
        return m.weight, m.state_dict()

    same_outcome(program)


@pytest.mark.parametrize("value", [3, weft.ones(2, 2, dtype=weft.float64)])
def test_values_that_several_tensors_cannot_be(value):
    with pytest.raises(ValueError, match="right_inverse"):
        parametrized(weft, "Sum").weight = value


def test_several_parts_need_as_many_values():
    gives = [weft.ones(2, 2), weft.ones(2, 2)]
    module = parametrize.register_parametrization(
        affine(weft), "weight", one_of(weft, lambda *x: x[0], lambda y: gives[: len(gives)]), unsafe=True
    )
    gives.pop()
    with pytest.raises(ValueError, match="of length 2"):
        module.weight = weft.ones(2, 2)


REFUSED = {
    "shape": lambda lib: one_of(lib, lambda x: lib.cat([x, x])),
    "dtype": lambda lib: one_of(lib, lambda x: x.double()),
    "no tensor": lambda lib: one_of(lib, lambda x: 3),
    "inverse of no tensor": lambda lib: one_of(lib, lambda x: x, lambda y: 3),
    "inverse of another dtype": lambda lib: one_of(lib, lambda x: x, lambda y: y.double()),
    "inverse with a number": lambda lib: one_of(lib, lambda a, b: a, lambda y: (y, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_changes_the_kind_of_a_tensor_is_refused(name):
    def program(lib):
        lib.nn.utils.parametrize.register_parametrization(affine(lib), "weight", REFUSED[name](lib))

    same_outcome(program)


@pytest.mark.parametrize("name", ["shape", "dtype"])
def test_what_is_unsafe_may_change_it(name):
    def program(lib):
        m = lib.nn.utils.parametrize.register_parametrization(affine(lib), "weight", REFUSED[name](lib), unsafe=True)
        return m.weight, m.parametrizations.weight.unsafe

    same_outcome(program)


AGAIN = {
    "shape": (lambda x: weft.cat([x, x]), None, "shape"),
    "no tensor": (lambda x: 3, None, "must return a tensor"),
    "inverse": (lambda x: x, lambda y: 3, "must return a tensor"),
    "inverse's shape": (lambda x: x, lambda y: weft.cat([y, y]), "right_inverse"),
}


@pytest.mark.parametrize("name", AGAIN)
def test_one_more_parametrisation_is_checked_too(name):
    forward, inverse, message = AGAIN[name]
    with pytest.raises(ValueError, match=message):
        parametrize.register_parametrization(parametrized(weft, "Double"), "weight", one_of(weft, forward, inverse))


@scenario
def names_that_are_not_there(lib):
    p = lib.nn.utils.parametrize
    return p.register_parametrization(parametrized(lib, "Double"), "nothing", parts(lib)["Double"]())


@scenario
def removed_names_that_are_not_there(lib):
    return lib.nn.utils.parametrize.remove_parametrizations(affine(lib), "weight")


@scenario
def lists_of_nothing(lib):
    return lib.nn.utils.parametrize.ParametrizationList([], lib.ones(1))


@scenario
def buffers(lib):
    m = affine(lib)
    p = lib.nn.utils.parametrize
    p.register_parametrization(m, "scratch", parts(lib)["Double"]())
    shown = repr(m), m.scratch, m.state_dict(), [n for n, _ in m.named_buffers()], [n for n, _ in m.named_parameters()]
    p.remove_parametrizations(m, "scratch")
    return shown, m.scratch, list(m.state_dict())


@scenario
def two_tensors_of_a_module(lib):
    m = parametrized(lib, "Double")
    p = lib.nn.utils.parametrize
    p.register_parametrization(m, "bias", parts(lib)["Sum"]())
    first = told(lib, m)
    p.remove_parametrizations(m, "weight")
    second = repr(m), list(m.state_dict()), p.is_parametrized(m)
    p.remove_parametrizations(m, "bias")
    return first, second, repr(m), list(m.state_dict()), p.is_parametrized(m), hasattr(m, "parametrizations")


@scenario
def modes_of_parametrisations(lib):
    m = affine(lib).eval()
    lib.nn.utils.parametrize.register_parametrization(m, "weight", parts(lib)["Double"]())
    return m.parametrizations.weight[0].training, m.train().parametrizations.weight[0].training


@scenario
def states_are_loaded(lib):
    m, other = parametrized(lib, "Sum"), parametrized(lib, "Sum")
    keys = m.load_state_dict(other.state_dict())
    return keys, m.weight, m.double().weight


@scenario
def values_are_kept_for_a_while(lib):
    p, m = lib.nn.utils.parametrize, parametrized(lib, "Double")
    with p.cached():
        w = m.weight
        with p.cached():
            inner = m.weight is w
        same = m.weight is w, inner
    return same, m.weight is w


@scenario
def transfers(lib):
    p = lib.nn.utils.parametrize
    m, other = parametrized(lib, "Sum", "Double"), affine(lib)
    bias = other.bias
    made = p.transfer_parametrizations_and_params(m, other)
    same = [a is b for (_, a), (_, b) in zip(m.named_parameters(), other.named_parameters())]
    new = p.transfer_parametrizations_and_params(m, lib.nn.Module(), "weight")
    untouched = p.transfer_parametrizations_and_params(affine(lib), affine(lib))
    return made is other, told(lib, other), same, other.bias is bias, list(new.state_dict()), repr(untouched)


@scenario
def copies_are_apart(lib):
    m = parametrized(lib, "Double")
    twin = copy.deepcopy(m)
    twin.weight = lib.zeros(2, 2)
    return m.weight, twin.weight, type(twin) is type(m), repr(twin), lib.nn.utils.parametrize.is_parametrized(twin)


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


def test_what_is_assigned_is_not_hidden_by_what_was_kept():
    """In PyTorch the value from before stays until the block ends."""
    module = parametrized(weft, "Double")
    with parametrize.cached():
        before = module.weight
        module.weight = weft.ones(2, 2)
        assert module.weight is not before
        assert module.weight.tolist() == [[1, 1], [1, 1]]


class Halved(nn.Module):
    def forward(self, x):
        return x / 2

    def right_inverse(self, y):
        return y * 2


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(weft.tensor([1.0, 2.0]))

    def forward(self, x):
        return x * self.weight


@pytest.mark.parametrize("copied", [copy.copy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_modules_with_computed_tensors_are_pickled(copied):
    """PyTorch asks for their state alone."""
    module = parametrize.register_parametrization(Plain(), "weight", Halved())
    twin = copied(module)
    assert repr(twin) == repr(module)
    assert twin(weft.ones(2)).tolist() == [1.0, 2.0]
    parametrize.remove_parametrizations(twin, "weight")
    assert type(twin) is Plain
    assert parametrize.is_parametrized(module) or copied is copy.copy


# Orthogonal matrices, norms.


def matrix(lib, shape, seed=0, kind="float32"):
    numbers = np.random.default_rng(seed).normal(size=shape).astype(kind)
    m = lib.nn.Module()
    m.weight = lib.nn.Parameter(lib.from_numpy(numbers))
    m.register_buffer("other", lib.ones(1))
    return m


def trained(lib, m, steps=2):
    """The weight and its state after steps against random gradients."""
    for step in range(steps):
        w = m.weight
        towards = lib.from_numpy(np.random.default_rng(step).normal(size=tuple(w.shape)).astype("float32"))
        m.zero_grad()
        (w * towards).sum().backward()
        with lib.no_grad():
            for parameter in m.parameters():
                parameter -= 0.05 * parameter.grad
    return [np.round(t.detach().double().numpy(), 4).tolist() for t in (m.weight, *m.state_dict().values())]


SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 3), (2, 4, 3)]
MAPS = ["matrix_exp", "cayley", "householder", None]


@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orthogonal_weights(shape, orthogonal_map, trivial):
    def program(lib):
        made = lib.nn.utils.parametrizations.orthogonal(
            matrix(lib, shape), orthogonal_map=orthogonal_map, use_trivialization=trivial
        )
        q = made.weight.detach()
        q = q if shape[-2] >= shape[-1] else q.mT
        assert lib.allclose(q.mT @ q, lib.eye(q.shape[-1]).expand(*shape[:-2], -1, -1), atol=1e-5)
        return repr(made), list(made.state_dict()), trained(lib, made)

    mine, others = program(weft_seeded()), program(torch_seeded())
    assert mine[:2] == others[:2]
    for a, b in zip(mine[2], others[2], strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def weft_seeded():
    weft.manual_seed(0)
    return weft


def torch_seeded():
    torch = oracle("torch")
    torch.manual_seed(0)
    return torch


@pytest.mark.parametrize("orthogonal_map", ["cayley", "householder"])
def test_orthogonal_weights_are_assigned(orthogonal_map):
    def program(lib):
        lib.manual_seed(0)
        m = lib.nn.utils.parametrizations.orthogonal(matrix(lib, (3, 3)), orthogonal_map=orthogonal_map)
        target = lib.linalg.qr(matrix(lib, (3, 3), seed=5).weight.detach())[0]
        m.weight = target
        assert lib.allclose(m.weight, target, atol=1e-5)
        return repr(m)

    same_outcome(program)


WRONG = {
    "orthogonal": [("weight", "none", (2, 2)), ("nothing", None, (2, 2)), ("weight", None, (3,))],
    "spectral_norm": [("nothing", 1, (2, 2)), ("weight", 0, (2, 2)), ("weight", -1, (2, 2))],
}


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, cases in WRONG.items() for case in cases])
def test_wrong_arguments(kind, case):
    name, argument, shape = case
    same_outcome(lambda lib: getattr(lib.nn.utils.parametrizations, kind)(matrix(lib, shape), name, argument))


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match="does not support complex"):
        parametrizations.orthogonal(matrix(weft, (2, 2), kind="complex64"), orthogonal_map="householder")
    with pytest.raises(IndexError, match=r"range of \[-2, 1\] but got 2"):
        parametrizations.spectral_norm(matrix(weft, (2, 2)), dim=2)
    module = parametrizations.orthogonal(matrix(weft, (2, 2)))
    with pytest.raises(ValueError, match="Expected a matrix"):
        module.weight = weft.ones(3, 3)
    module = parametrizations.orthogonal(matrix(weft, (2, 2)), use_trivialization=False)
    with pytest.raises(NotImplementedError, match="not possible to assign"):
        module.weight = weft.eye(2)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2)], ids=str)
def test_weights_with_norms_of_their_own(shape, dim):
    def program(lib):
        m = lib.nn.utils.parametrizations.weight_norm(matrix(lib, shape), dim=dim)
        return repr(m), list(m.state_dict()), trained(lib, m)

    same_outcome(program)


def test_older_states_with_norms_are_read():
    def program(lib):
        m = lib.nn.utils.parametrizations.weight_norm(matrix(lib, (2, 3)))
        state = {"weight_g": lib.full((2, 1), 2.0), "weight_v": lib.ones(2, 3), "other": lib.ones(1)}
        nested = lib.nn.Sequential(m)
        return m.load_state_dict(state), m.weight, nested.load_state_dict({f"0.{k}": v * 2 for k, v in state.items()})

    same_outcome(program)


@pytest.mark.parametrize("dim", [None, 1])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 2), (5,)], ids=str)
def test_weights_divided_by_their_largest_singular_value(shape, dim):
    def program(lib):
        lib.manual_seed(0)
        m = lib.nn.utils.parametrizations.spectral_norm(
            matrix(lib, shape), n_power_iterations=2, dim=dim if len(shape) > 1 else None
        )
        in_training = trained(lib, m)
        in_use = m.eval().weight, m.weight
        m.weight = m.weight.detach() * 2
        return repr(m), list(m.state_dict()), in_training, in_use, m.weight

    same_outcome(program)


def test_transposed_convolutions_have_outputs_second():
    for transposed, size in ((False, 2), (True, 3)):
        module = matrix(weft, (2, 3))
        module.transposed = transposed
        parametrizations.spectral_norm(module)
        assert module.parametrizations.weight[0]._u.shape == (size,)
