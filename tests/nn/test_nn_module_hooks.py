"""Hooks on calls and gradients of modules, of one or of all, do what PyTorch's do."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
from oracles import oracle
from scenarios import Scenarios, affine, same_outcome

import weft
from weft.nn.modules import module as everything

scenario = Scenarios()


def recorder(told, name, returns=None):
    """A hook that writes down what it is called with."""

    def hook(module, *args):
        told.append([name, type(module).__name__, *args])
        return returns(*args) if callable(returns) else returns

    return hook


def x_of(lib, requires_grad=True):
    return lib.tensor([[1.0, 2.0]], requires_grad=requires_grad)


# Calls.


@scenario
def hooks_run_in_order(lib):
    m, told = affine(lib), []
    m.register_forward_pre_hook(recorder(told, "a"))
    m.register_forward_hook(recorder(told, "b"))
    m.register_forward_pre_hook(recorder(told, "c"), prepend=True)
    m.register_forward_hook(recorder(told, "d"), prepend=True)
    return m(x_of(lib)), told


@scenario
def hooks_change_what_passes(lib):
    m = affine(lib)
    m.register_forward_pre_hook(lambda m, args: args[0] * 2)
    m.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    m.register_forward_hook(lambda m, args, out: out * 3)
    m.register_forward_hook(lambda m, args, out: {"out": out, "args": args})
    return m(x_of(lib))


class Keyword:
    """A module with an argument that has a name."""

    def __new__(cls, lib):
        class Keyworded(lib.nn.Module):
            def forward(self, x, *, scale=1.0, fail=False):
                if fail:
                    raise ValueError("failed")
                return x * scale

        return Keyworded()


@scenario
def hooks_see_keywords(lib):
    m, told = Keyword(lib), []
    m.register_forward_pre_hook(lambda m, a, k: (a, {"scale": k["scale"] + 1}), with_kwargs=True)
    m.register_forward_pre_hook(recorder(told, "plain"))
    m.register_forward_hook(recorder(told, "after"), with_kwargs=True)
    m.register_forward_hook(lambda m, a, k, out: out + k["scale"], with_kwargs=True)
    return m(x_of(lib), scale=2.0), told


@scenario
def hooks_with_keywords_give_pairs(lib):
    m = Keyword(lib)
    m.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True)
    return type(m(x_of(lib)))


@scenario
def hooks_are_called_after_errors(lib):
    m, told = Keyword(lib), []
    m.register_forward_hook(recorder(told, "always"), always_call=True)
    m.register_forward_hook(recorder(told, "always with"), always_call=True, with_kwargs=True)
    m.register_forward_hook(recorder(told, "never"))
    try:
        m(x_of(lib), fail=True)
    except ValueError as error:
        told.append(str(error))
    return told, m(x_of(lib))


@scenario
def hooks_that_ran_are_not_called_again(lib):
    m, told = Keyword(lib), []

    def failing(module, args, out):
        told.append("fails")
        raise RuntimeError("hook failed")

    m.register_forward_hook(recorder(told, "first"), always_call=True)
    m.register_forward_hook(failing, always_call=True)
    m.register_forward_hook(recorder(told, "last"), always_call=True)
    try:
        m(x_of(lib))
    except RuntimeError as error:
        told.append(str(error))
    return told


@scenario
def errors_of_hooks_after_errors_are_warnings(lib):
    m = Keyword(lib)

    def failing(*args):
        raise RuntimeError("hook failed")

    m.register_forward_hook(failing, always_call=True)
    return m(x_of(lib), fail=True)


@scenario
def hooks_are_removed(lib):
    m, told = affine(lib), []
    handles = [
        m.register_forward_pre_hook(recorder(told, "a"), with_kwargs=True),
        m.register_forward_hook(recorder(told, "b"), always_call=True, with_kwargs=True),
        m.register_full_backward_hook(recorder(told, "c")),
        m.register_full_backward_pre_hook(recorder(told, "d")),
    ]
    with m.register_forward_hook(recorder(told, "e")):
        m(x_of(lib)).sum().backward()
    count = len(told)
    for handle in handles:
        handle.remove()
        handle.remove()
    m(x_of(lib)).sum().backward()
    left = [len(value) for key, value in vars(m).items() if key.endswith(("_hooks", "kwargs", "called"))]
    return count, len(told) - count, left


# Gradients.


class Pair:
    """A module of two inputs and two outputs, with a named pair if asked."""

    def __new__(cls, lib):
        class Pairs(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = lib.nn.Parameter(lib.tensor([2.0, -3.0]))

            def forward(self, a, b=None, n=1):
                return a * self.weight * n, (a if b is None else b) * 5

        return Pairs()


@scenario
def gradients_are_shown(lib):
    m, told = affine(lib, out=3), []
    m.register_full_backward_pre_hook(recorder(told, "before"))
    m.register_full_backward_hook(recorder(told, "after"))
    x = x_of(lib)
    y = m(x)
    (y * lib.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    return told, x.grad, m.weight.grad, type(y.grad_fn).__name__


@scenario
def gradients_are_changed(lib):
    m, told = affine(lib, out=3), []
    m.register_full_backward_pre_hook(lambda m, g: (g[0] * 2,))
    m.register_full_backward_pre_hook(lambda m, g: (g[0] * 3,), prepend=True)
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,))
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] + 1,))
    m.register_full_backward_hook(recorder(told, "last"))
    x = x_of(lib)
    m(x).sum().backward()
    return x.grad, m.weight.grad, told


@scenario
def gradients_of_inputs_that_need_none(lib):
    m, told = affine(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    m(x_of(lib, False)).sum().backward()
    return told, m.weight.grad


@scenario
def gradients_of_inputs_that_need_none_are_not_changed(lib):
    m = affine(lib)
    m.register_full_backward_hook(lambda m, gi, go: (go[0],))
    m(x_of(lib, False)).sum().backward()


@scenario
def too_many_gradients_of_inputs(lib):
    m = affine(lib)
    m.register_full_backward_hook(lambda m, gi, go: (gi[0], None))
    m(x_of(lib)).sum().backward()


@scenario
def too_many_gradients_of_outputs(lib):
    m = affine(lib)
    m.register_full_backward_pre_hook(lambda m, go: (go[0], None))
    m(x_of(lib)).sum().backward()


@scenario
def one_output_of_two(lib):
    m, told = Pair(lib), []
    m.register_full_backward_pre_hook(recorder(told, "before"))
    m.register_full_backward_hook(recorder(told, "after"))
    a, b = x_of(lib), x_of(lib)
    m(a, b, 3)[0].sum().backward()
    return told, a.grad, b.grad


@scenario
def one_input_of_two(lib):
    m, told = Pair(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    a, b = x_of(lib), x_of(lib, False)
    y, z = m(a, b, 2)
    (y + z).sum().backward()
    return told, a.grad, z.requires_grad


@scenario
def inputs_of_other_kinds(lib):
    m, told = Pair(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    a = x_of(lib)
    y, _ = m(a, None, n=4)
    y.sum().backward()
    return told, a.grad


@scenario
def outputs_of_other_kinds(lib):
    m = affine(lib)
    m.register_full_backward_hook(lambda *a: None)
    m.register_forward_hook(lambda m, a, out: {"out": out})
    m(x_of(lib))["out"].sum().backward()
    return m.weight.grad


@scenario
def no_gradients_at_all(lib):
    m, told = affine(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    with lib.no_grad():
        y = m(x_of(lib))
    return y.requires_grad, y.grad_fn, told


@scenario
def the_same_module_twice(lib):
    m, told = affine(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    x = x_of(lib)
    m(m(x)).sum().backward()
    return told, x.grad


@scenario
def two_passes(lib):
    m, told = affine(lib), []
    m.register_full_backward_hook(recorder(told, "after"))
    x = x_of(lib)
    y = m(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return told, x.grad


@scenario
def second_gradients_pass_hooks(lib):
    m, told = affine(lib), []
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    x = x_of(lib)
    y = (m(x) ** 3).sum()
    (first,) = lib.autograd.grad(y, x, create_graph=True)
    first.sum().backward()
    return first, x.grad, told


@scenario
def older_hooks(lib):
    m, told = affine(lib), []
    m.register_forward_hook(lambda m, a, out: [out * 2, out])
    m.register_backward_hook(lambda m, gi, go: told.append([gi[0], go[0]]))
    x = x_of(lib)
    m(x)[0].sum().backward()
    return told, x.grad


@scenario
def older_and_newer_hooks_do_not_mix(lib):
    m = affine(lib)
    m.register_full_backward_hook(lambda *a: None)
    m.register_backward_hook(lambda *a: None)


@scenario
def newer_and_older_hooks_do_not_mix(lib):
    m = affine(lib)
    m.register_backward_hook(lambda *a: None)
    m.register_full_backward_hook(lambda *a: None)


# All modules.


@scenario
def hooks_on_all_modules(lib):
    all_modules, told = lib.nn.modules.module, []
    net = lib.nn.Sequential(affine(lib), affine(lib))
    net[1].register_forward_hook(recorder(told, "own"))
    handles = [
        all_modules.register_module_forward_pre_hook(recorder(told, "pre")),
        all_modules.register_module_forward_hook(recorder(told, "post")),
        all_modules.register_module_forward_hook(recorder(told, "post with"), with_kwargs=True, always_call=True),
        all_modules.register_module_full_backward_pre_hook(recorder(told, "back pre")),
        all_modules.register_module_full_backward_hook(recorder(told, "back")),
    ]
    try:
        net(x_of(lib)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    count = len(told)
    net(x_of(lib))
    return told, len(told) - count


@scenario
def hooks_on_registrations(lib):
    all_modules, told = lib.nn.modules.module, []
    handles = [
        all_modules.register_module_buffer_registration_hook(lambda m, n, v: told.append(["buffer", n])),
        all_modules.register_module_module_registration_hook(lambda m, n, v: told.append(["module", n])),
        all_modules.register_module_parameter_registration_hook(
            lambda m, n, v: None if v is None else lib.nn.Parameter(v.detach() * 0 + 7)
        ),
    ]
    try:
        m = affine(lib)
        m.child = affine(lib)
        m.add_module("other", None)
        m.extra = lib.nn.Buffer(lib.ones(1))
        m.seen = lib.ones(1)
    finally:
        for handle in handles:
            handle.remove()
    m.last = lib.nn.Parameter(lib.ones(1))
    return told, m.state_dict()


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


# What has no twin.


def test_hooks_of_all_modules_do_not_mix_kinds():
    handle = everything.register_module_full_backward_hook(lambda *a: None)
    try:
        with pytest.raises(RuntimeError, match="Cannot use both"):
            everything.register_module_backward_hook(lambda *a: None)
    finally:
        handle.remove()


def test_all_names_are_there():
    theirs = oracle("torch").nn.modules.module
    assert set(theirs.__all__) == set(everything.__all__)


def double_output(module, args, output):
    return output * 2


class Doubling(weft.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = weft.nn.Parameter(weft.tensor([1.5]))
        self.handle = self.register_forward_hook(double_output)

    def forward(self, x):
        return x * self.weight


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_have_hooks_and_handles_of_their_own(copied):
    module = Doubling()
    twin = copied(module)
    assert twin(weft.ones(1)).tolist() == [3.0]
    twin.handle.remove()
    assert twin(weft.ones(1)).tolist() == [1.5]
    assert module(weft.ones(1)).tolist() == [3.0]


def test_handles_do_not_keep_modules():
    module = Doubling()
    handle, alive = module.handle, weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None
    handle.remove()  # nothing is left to remove it from


def test_a_call_without_hooks_is_forward_alone(monkeypatch):
    def refused(*args):
        raise AssertionError("a module without hooks looks for some")

    monkeypatch.setattr("weft.nn.modules.module.call_with_hooks", refused)
    module = Doubling()
    module.handle.remove()
    np.testing.assert_array_equal(module(weft.ones(2)).detach().numpy(), [1.5, 1.5])
