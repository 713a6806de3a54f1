"""Derivatives of functions, edges and hooks of the graph, and what is saved in it, with PyTorch as
the witness."""

import itertools
import weakref

import numpy as np
import pytest
from twins import agree, agree_or_refuse, outcome, plain, refuse

import weft

rng = np.random.default_rng(0)
A, B = rng.standard_normal(3), rng.standard_normal((2, 3))

FUNCTIONS = {
    "one": (lambda m: lambda x: x.exp() * x, (A,)),
    "several": (lambda m: lambda x, y: ((x * y).sin(), (x * x).sum()), (A, B)),
    "a number": (lambda m: lambda x, y: (x**3 * y.sum(0)).sum(), (A, B)),
    "a number of one": (lambda m: lambda x: (x**3).sum(), (A,)),
    "unused": (lambda m: lambda x, y: (x**3).sum(), (A, B)),
    "linear": (lambda m: lambda x: (x * 2).sum(), (A,)),
    "constant": (lambda m: lambda x: m.ones(1, dtype=m.float64).sum(), (A,)),
    "number to number": (lambda m: lambda x: x.exp(), (np.float64(3),)),
    "no tensor": (lambda m: lambda x: 3, (A,)),
    "complex": (lambda m: lambda x: (x * x.conj()).real.sum(), (A + 1j * B[0],)),
}
MODES = list(itertools.product((False, True), repeat=2))
PRODUCTS = ("vjp", "jvp", "hvp", "vhp")


def flat(value):
    return [x for item in value for x in flat(item)] if isinstance(value, tuple) else [value]


def derived(m, api, name, create_graph, strict, given):
    function, arrays = FUNCTIONS[name]
    inputs = tuple(m.tensor(x, requires_grad=create_graph) for x in arrays)
    point = inputs if len(inputs) > 1 else inputs[0]
    options = {"create_graph": create_graph, "strict": strict}
    call = getattr(m.autograd.functional, api)
    if given:
        like = function(m)(*inputs) if api == "vjp" else point
        parts = tuple(m.ones_like(x).detach() * 1.5 for x in flat(like))
        options["v"] = parts if isinstance(like, tuple) else parts[0]
    made = call(function(m), point, **options)
    results = flat(made)
    shown = [made, [x.requires_grad for x in results]]
    wanted = [(x.abs() ** 2).sum() for x in results if x.requires_grad]
    if wanted:
        grads = m.autograd.grad(wanted, inputs, allow_unused=True)
        shown += [m.zeros_like(x) if g is None else g for g, x in zip(grads, inputs)]
    return shown


def is_refused(api, name, create_graph, strict, given):
    """Whether a derivative is none: of a function that must give one number, in a direction that is
    missing, or, strictly, by what a result or its gradient does not depend on."""
    if name == "number to number":
        return False
    if name == "no tensor" or (api in ("jvp", "hvp", "vhp") and not given):
        return True
    of_one_number = api in ("hessian", "hvp", "vhp") or (api == "vjp" and not given)
    if of_one_number and name in ("one", "several"):
        return True
    if api == "hessian" and (name == "complex" or (strict and name == "a number")):
        return True
    independent = {"unused", "constant"}
    if api == "jacobian":
        independent.add("several")
    if create_graph or api in ("hessian", "hvp", "vhp"):
        independent.add("linear")
    if create_graph and api in ("hvp", "vhp"):
        independent.add("complex")
    return strict and name in independent


@pytest.mark.parametrize(("create_graph", "strict"), MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("api", ["jacobian", "hessian", *PRODUCTS])
def test_derivative(api, name, create_graph, strict):
    for given in (False, True) if api in PRODUCTS else (False,):
        agree_or_refuse(
            is_refused(api, name, create_graph, strict, given),
            lambda m, g=given: derived(m, api, name, create_graph, strict, g),
            1e-9,
            1e-9,
        )


OPTIONS = {
    "vectorize": lambda m, f, x: m.autograd.functional.jacobian(f, x, vectorize=True),
    "forward": lambda m, f, x: m.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode"),
    "forward, one by one": lambda m, f, x: m.autograd.functional.jacobian(f, x, strategy="forward-mode"),
    "strict, vectorize": lambda m, f, x: m.autograd.functional.jacobian(f, x, strict=True, vectorize=True),
    "hessian": lambda m, f, x: m.autograd.functional.hessian(
        lambda x: f(x).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "wrong length": lambda m, f, x: m.autograd.functional.vjp(f, x, (x, x)),
    "wrong size": lambda m, f, x: m.autograd.functional.vjp(f, x, m.ones(7)),
    "wrong type": lambda m, f, x: m.autograd.functional.vjp(f, x, 3),
    "input of a wrong type": lambda m, f, x: m.autograd.functional.jacobian(f, [1, 2]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option(name):
    is_wrong = name not in ("vectorize", "forward", "hessian")
    call = lambda m: OPTIONS[name](m, lambda x: x * x, m.tensor(A))
    agree_or_refuse(is_wrong, call, 1e-9, 1e-9)


def test_modules():
    assert weft.autograd.function.Function is weft.autograd.Function
    assert weft.autograd.grad_mode.no_grad is weft.no_grad
    assert weft.autograd.anomaly_mode.detect_anomaly is weft.autograd.detect_anomaly
    assert weft.autograd.variable.Variable is weft.autograd.Variable


# Edges.


def test_edges_stand_for_tensors():
    def program(m):
        x = m.tensor(A, requires_grad=True)
        y = x.exp()
        z = (y * y).sum()
        edges = [m.autograd.graph.get_gradient_edge(t) for t in (x, y, z)]
        made = m.autograd.grad(edges[2], edges[:2], retain_graph=True)
        made += m.autograd.grad(edges[1], x, m.tensor(A), retain_graph=True)
        m.autograd.backward([edges[2]], inputs=[edges[0]])
        shown = [isinstance(e.node, m.autograd.graph.Node) for e in edges]
        return [*made, x.grad, [e.output_nr for e in edges], shown, edges[1].node is y.grad_fn]

    agree(program)


def test_edges_of_what_is_no_part_of_a_graph():
    refuse(lambda m: m.autograd.graph.get_gradient_edge(m.ones(2)))
    refuse(lambda m: m.autograd.grad(m.autograd.graph.get_gradient_edge(_leaf(m)), _leaf(m)))


def _leaf(m):
    return m.ones(2, requires_grad=True)


def test_increment_version():
    def program(m):
        x = m.ones(2, requires_grad=True)
        y = x.exp()
        m.autograd.graph.increment_version(y)
        m.autograd.graph.increment_version([y, y])
        seen = y._version
        try:
            y.sum().backward()
        except RuntimeError:
            return seen
        return None

    agree(program)


# Hooks of several tensors.


@pytest.mark.parametrize("mode", ["all", "any", "most"])
def test_multi_grad_hook(mode):
    def program(m):
        a, b = (m.tensor(x, requires_grad=True) for x in (A, B[0]))
        c, d = a * b, a.exp()
        seen = []
        handle = m.autograd.graph.register_multi_grad_hook((a, b, c, d), lambda grads: seen.append(grads), mode=mode)
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        m.autograd.grad(c.sum() + d.sum(), c, retain_graph=True)
        (c.sum() + d.sum()).backward(retain_graph=True)
        count = len(seen)
        handle.remove()
        c.sum().backward()
        return [count, len(seen), *seen]

    agree_or_refuse(mode == "most", program)


# What is saved.


def test_saved_tensors_are_packed():
    def program(m):
        shown = []

        def pack(x):
            shown.append(["pack", x.is_leaf, x.requires_grad, m.is_grad_enabled(), x.detach()])
            return x.detach() * 2

        def unpack(x):
            shown.append(["unpack", m.is_grad_enabled()])
            return x / 2

        a = m.tensor(A, requires_grad=True)
        b = m.tensor(B[0], requires_grad=True) * 1
        with m.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = a * b
        z = y * y
        (first,) = m.autograd.grad(z.sum(), a, create_graph=True)
        (second,) = m.autograd.grad(first.sum(), a)
        return [first, second, sorted(s[0] for s in shown)]

    agree(program)


def test_results_that_are_saved_are_packed():
    def program(m):
        x = m.tensor(A, requires_grad=True)
        hooks = m.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True) * 3, _unpacked(m))
        with hooks:
            y = x.exp().sigmoid()
        (dx,) = m.autograd.grad(y.sum(), x, create_graph=True)
        return [dx, *m.autograd.grad((dx * dx).sum(), x)]

    agree(program)


def _unpacked(m):
    return lambda array: m.tensor(array / 3)


def test_what_functions_save_is_packed():
    def program(m):
        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return 2 * x * grad

        x = m.tensor(A, requires_grad=True)
        with m.autograd.graph.saved_tensors_hooks(lambda t: t.detach() + 1, lambda t: t):
            y = Square.apply(x)
        return m.autograd.grad(y.sum(), x)

    agree(program)


def test_the_inner_hooks_count():
    def program(m):
        x = m.tensor(A, requires_grad=True)
        hooks = m.autograd.graph.saved_tensors_hooks
        with hooks(lambda t: t * 2, lambda t: t):
            with hooks(lambda t: t * 3, lambda t: t):
                y = x * x
            z = x * x
        return [m.autograd.grad(v.sum(), x)[0] for v in (y, z, x * x)]

    agree(program)


SAVING_ERRORS = {
    "unpacked to a number": lambda m: _saved(m, lambda t: 3, lambda v: v),
    "packing writes": lambda m: _saved(m, lambda t: t.mul_(2), lambda t: t),
    "disabled": lambda m: _disabled(m),
}


def _saved(m, pack, unpack):
    x = m.tensor(A, requires_grad=True) * 1
    with m.autograd.graph.saved_tensors_hooks(pack, unpack):
        (x * x).sum().backward()


def _disabled(m):
    with m.autograd.graph.disable_saved_tensors_hooks("not here"), m.autograd.graph.save_on_cpu():
        pass


@pytest.mark.parametrize("name", SAVING_ERRORS)
def test_saving_refused(name):
    refuse(SAVING_ERRORS[name])


@pytest.mark.parametrize("pin", [False, True])
def test_save_on_cpu(pin):
    def program(m):
        x = m.tensor(A, requires_grad=True)
        with m.autograd.graph.save_on_cpu(pin_memory=pin):
            y = (x.exp() * x).sum()
        return m.autograd.grad(y, x)

    agree(program)


def test_mutation_of_what_is_saved():
    def program(m):
        with m.autograd.graph.allow_mutation_on_saved_tensors():
            x = m.tensor(A, requires_grad=True)
            y = x * 1
            z = y.sin()
            y.mul_(7)
            return m.autograd.grad(z.sum(), x)

    agree(program)


def test_packed_tensors_are_freed():
    x = weft.ones(1000, requires_grad=True)
    y = x * 2
    seen = weakref.ref(y)
    with weft.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), weft.tensor):
        z = y.exp()
    del y
    assert seen() is None
    np.testing.assert_allclose(weft.autograd.grad(z.sum(), x)[0], 2 * np.exp(2.0), rtol=1e-5)


def test_multithreading_switch():
    def program(m):
        ask, switch = m.autograd.is_multithreading_enabled, m.autograd.set_multithreading_enabled
        seen = [ask() if hasattr(m.autograd, "is_multithreading_enabled") else True]
        with switch(False):
            seen.append(ask())
        seen.append(ask())
        return seen

    assert outcome(weft, program) == plain([True, False, True])
    agree(program)
