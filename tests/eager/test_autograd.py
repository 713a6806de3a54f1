"""Autograd against PyTorch: each scenario is written once and run with both libraries, which must
give the same values, the same kinds of errors and the same order of events."""

import gc
import threading
import weakref

import pytest
from oracles import oracle
from twins import builtin_of

import weft

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def error_of(call):
    """The kind of error a call gives, as the builtin that both libraries' errors are."""
    try:
        call()
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        return builtin_of(error).__name__
    return "no error"


def leaf(lib, *values):
    return lib.tensor(list(values), requires_grad=True)


@scenario
def gradients_of_any_order(lib):
    x = lib.tensor(3.0, requires_grad=True)
    made = []
    y = x * x * x
    for _ in range(3):
        (y,) = lib.autograd.grad(y, x, create_graph=True)
        made.append(y.item())
    return made  # 27, 18, 6


@scenario
def accumulates_in_place(lib):
    x = leaf(lib, 1.0, 2.0)
    (x * x).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    return [x.grad is first, x.grad.tolist(), x.grad.requires_grad]


@scenario
def create_graph_replaces_grad(lib):
    x = leaf(lib, 1.0, 2.0)
    (x * x).sum().backward(create_graph=True)
    first = x.grad
    (x * x).sum().backward(create_graph=True)
    return [x.grad is first, x.grad.tolist(), x.grad.requires_grad]


@scenario
def branches_run_youngest_first(lib):
    x = leaf(lib, 1.0, 2.0)
    order = []
    branches = [x * k for k in (2.0, 3.0, 4.0)]
    for name, branch in zip("abc", branches):
        branch.register_hook(lambda g, name=name: order.append(name))
    (branches[0] + branches[1] + branches[2]).sum().backward()
    return order


@scenario
def order_of_hooks(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    order = []
    y.register_hook(lambda g: order.append("first"))
    y.register_hook(lambda g: order.append("second"))
    y.grad_fn.register_prehook(lambda g: order.append("before"))
    y.grad_fn.register_hook(lambda a, b: order.append("after"))
    x.register_hook(lambda g: order.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: order.append("accumulated"))
    y.sum().backward()
    return order


@scenario
def hooks_replace_and_are_removed(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    handle = y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    seen = [x.grad.tolist()]
    handle.remove()
    x.grad = None
    y.sum().backward()
    return [*seen, x.grad.tolist()]


@scenario
def hooks_that_misbehave(lib):
    def with_hook(hook):
        x = leaf(lib, 1.0, 2.0)
        y = x * 2
        y.register_hook(hook)
        return error_of(lambda: y.sum().backward())

    return [
        with_hook(lambda g: "text"),
        with_hook(lambda g: g[:1]),
        error_of(lambda: lib.tensor([1.0]).register_hook(print)),
    ]


@scenario
def hooks_change_what_grad_gives(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: g + 1)
    return lib.autograd.grad((y * y).sum(), y)[0].tolist()


@scenario
def retained_gradients(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 3)
    (y * y).sum().backward()
    return [y.grad.tolist(), y.retains_grad, x.retains_grad, x.grad.tolist()]


@scenario
def freed_graphs(lib):
    x = leaf(lib, 1.0, 2.0)
    y = (x * x).sum()
    y.backward()
    z = (x + x).sum()
    z.backward()
    return [error_of(y.backward), error_of(z.backward)]


@scenario
def versions(lib):
    x = leaf(lib, 1.0, 2.0)
    a = x * 2
    b = a.exp()
    before = [a._version, b._version, b.detach()._version]
    b.add_(1)
    bad = error_of(lambda: b.sum().backward())
    c = x * 2
    d = c * c
    c.add_(1)
    view = c[:1]
    view.mul_(2)
    return [*before, b._version, bad, error_of(d.sum().backward), c._version, c.data._version]


@scenario
def changes_that_do_not_matter(lib):
    x = leaf(lib, 1.0, 2.0)
    a = x * 2
    b = a + 1
    a.add_(5)
    b.sum().backward()
    return x.grad.tolist()


@scenario
def leaves_are_not_overwritten(lib):
    x = leaf(lib, 1.0, 2.0)
    errors = [error_of(lambda: x.add_(1)), error_of(lambda: x[:1].add_(1))]
    with lib.no_grad():
        x.add_(1)
        x[:1].mul_(2)
    return [*errors, x.tolist(), x._version, x.is_leaf, x.requires_grad]


@scenario
def in_place_on_what_was_computed(lib):
    x = leaf(lib, 1.0, 2.0, 3.0)
    y = x * 2
    y.mul_(3)
    y.add_(x)
    y.exp_()
    y.sum().backward()
    return [x.grad.tolist(), y.is_leaf]


@scenario
def in_place_on_a_view_changes_its_base(lib):
    x = leaf(lib, 1.0, 2.0, 3.0, 4.0)
    y = x * 1
    view = y[1:3]
    view.mul_(10)
    names = [type(y.grad_fn).__name__, view.grad_fn is None]
    (y * y).sum().backward()
    return [x.grad.tolist(), y.tolist(), view.tolist(), *names]


@scenario
def views_follow_their_base(lib):
    x = leaf(lib, 1.0, 2.0, 3.0, 4.0)
    y = x * 1
    head, tail = y[:2], y[2:]
    y.mul_(3)
    head.add_(x[2:])
    (head.sum() * 2 + tail.sum()).backward()
    return [x.grad.tolist(), head.tolist(), tail.tolist()]


@scenario
def parts_of_constants_become_differentiable(lib):
    w = leaf(lib, 5.0)
    x = lib.zeros(2, 3)
    x[0, 1:2] = w
    x.t()[2] += w * w
    x.sum().backward()
    return [x.requires_grad, x.tolist(), w.grad.tolist()]


@scenario
def overwritten_values_get_no_gradient(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 3
    y.zero_()
    z = x * 4
    z[0] = 7.0
    (y + z).sum().backward()
    return [y.requires_grad, x.grad.tolist()]


@scenario
def views_that_may_not_be_written(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 1
    with lib.no_grad():
        quiet = y[:1]
    return [
        error_of(lambda: y.unbind()[0].add_(1)),
        error_of(lambda: y.split(1)[0].add_(1)),
        error_of(lambda: y.chunk(2)[1].add_(1)),
        error_of(lambda: quiet.add_(1)),
    ]


@scenario
def flags_of_leaves(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    return [
        error_of(lambda: y.requires_grad_(False)),
        error_of(lambda: lib.tensor([1, 2]).requires_grad_()),
        error_of(lambda: lib.tensor([1, 2], requires_grad=True)),
        y.detach().requires_grad,
        y.detach_().is_leaf,
        x.requires_grad_(False).requires_grad,
    ]


@scenario
def errors_of_backward(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * 2
    one = lib.tensor([1.0])
    return [
        error_of(y.backward),
        error_of(lambda: one.backward()),
        error_of(lambda: lib.autograd.backward([y, y], [one])),
        error_of(lambda: y.backward(one)),
        error_of(lambda: y.backward(1.0)),
        error_of(lambda: lib.autograd.grad(y.sum(), one)),
        error_of(lambda: lib.autograd.grad(y.sum(), leaf(lib, 1.0))),
        error_of(lambda: lib.autograd.grad(y.sum(), ())),
        lib.autograd.grad(y.sum(), leaf(lib, 1.0), allow_unused=True)[0],
        error_of(lambda: setattr(x, "grad", 1)),
        error_of(lambda: setattr(x, "grad", lib.tensor([1.0]))),
        error_of(lambda: setattr(x, "grad", lib.tensor([1, 2]))),
    ]


@scenario
def only_chosen_inputs(lib):
    a, b = leaf(lib, 1.0, 2.0), leaf(lib, 3.0, 4.0)
    c = a * b
    d = (c * a).sum()
    d.backward(inputs=[a], retain_graph=True)
    (dc,) = lib.autograd.grad(d, c, retain_graph=True)
    zero = lib.autograd.grad(d, [a, leaf(lib, 1.0)], materialize_grads=True)
    return [a.grad.tolist(), b.grad, dc.tolist(), [g.tolist() for g in zero]]


@scenario
def several_roots(lib):
    x = leaf(lib, 1.0, 2.0)
    y, z = x * x, x * 3
    lib.autograd.backward([y, z.sum()], [lib.tensor([1.0, 10.0]), None])
    return x.grad.tolist()


@scenario
def broadcast_gradients_are_summed(lib):
    x = lib.tensor([[1.0], [2.0]], requires_grad=True)
    y = leaf(lib, 1.0, 2.0, 3.0)
    (x * y + y).sum().backward()
    return [x.grad.tolist(), y.grad.tolist()]


@scenario
def modes_nest(lib):
    seen = []
    with lib.no_grad():
        seen.append(lib.is_grad_enabled())
        with lib.enable_grad():
            seen.append(lib.is_grad_enabled())
        seen.append(lib.is_grad_enabled())
    try:
        with lib.no_grad():
            raise KeyError
    except KeyError:
        seen.append(lib.is_grad_enabled())
    lib.set_grad_enabled(False)
    seen.append(lib.is_grad_enabled())
    lib.set_grad_enabled(True)
    with lib.set_grad_enabled(False):
        seen.append(lib.is_grad_enabled())

    @lib.no_grad()
    def quiet():
        return lib.is_grad_enabled()

    @lib.no_grad()
    def numbers():
        yield lib.is_grad_enabled()
        yield lib.is_grad_enabled()

    seen += [quiet(), lib.is_grad_enabled()]
    for inside in numbers():
        seen += [inside, lib.is_grad_enabled()]
    return seen


@scenario
def modes_belong_to_threads(lib):
    seen = []
    with lib.no_grad():
        thread = threading.Thread(target=lambda: seen.append(lib.is_grad_enabled()))
        thread.start()
        thread.join()
    return seen


@scenario
def inference_tensors(lib):
    x = leaf(lib, 1.0, 2.0)
    with lib.inference_mode():
        y = x * 2
        inside = lib.is_inference_mode_enabled()
    return [
        y.requires_grad,
        inside,
        lib.is_inference_mode_enabled(),
        error_of(lambda: x * y),
        error_of(lambda: y.add_(1)),
        (x.detach() + y).requires_grad,
    ]


@scenario
def functions_of_ones_own(lib):
    class Scale(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, other):
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * factor, x.detach() + 1

        @staticmethod
        def backward(ctx, g, unused):
            (x,) = ctx.saved_tensors
            assert x.shape == g.shape
            return g * ctx.factor + unused, None, None

    x = leaf(lib, 1.0, 2.0)
    y, z = Scale.apply(x, 3.0, None)
    y.sum().backward(retain_graph=True)
    kept = y.grad_fn.saved_tensors[0].tolist()
    return [x.grad.tolist(), type(y.grad_fn).__name__, z.requires_grad, kept]


@scenario
def functions_that_misbehave(lib):
    def with_backward(made):
        class Bad(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return made(g)

        return error_of(lambda: Bad.apply(leaf(lib, 1.0, 2.0)).sum().backward())

    def divide(g):
        raise ZeroDivisionError

    class Missing(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    try:
        with_backward(divide)
        kept = False
    except ZeroDivisionError:
        kept = True
    return [
        kept,
        with_backward(lambda g: (g, g)),
        with_backward(lambda g: (g, None)),
        with_backward(lambda g: 1),
        with_backward(lambda g: g[:1].expand(5)),
        error_of(lambda: Missing.apply(leaf(lib, 1.0)).backward()),
    ]


@scenario
def backward_inside_backward(lib):
    class Inner(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with lib.enable_grad():
                own = x.detach().requires_grad_()
                (own * own).sum().backward()
            return own.grad * g

    x = leaf(lib, 1.0, 2.0)
    Inner.apply(x).sum().backward()
    return x.grad.tolist()


@scenario
def in_place_functions(lib):
    class AddOne(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(lib, 1.0, 2.0)
    y = x * 1
    z = AddOne.apply(y)
    z.sum().backward()
    return [z is y, x.grad.tolist(), error_of(lambda: AddOne.apply(leaf(lib, 1.0)))]


@scenario
def double_backward_of_functions(lib):
    once = lib.autograd.function.once_differentiable if lib.__name__ == "torch" else None
    once = once or lib.autograd.once_differentiable

    class Square(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    class Once(Square):
        @staticmethod
        @once
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    def second(function):
        x = lib.tensor(3.0, requires_grad=True)
        (first,) = lib.autograd.grad(function.apply(x), x, create_graph=True)
        return lib.autograd.grad(first, x)[0].item()

    return [second(Square), error_of(lambda: second(Once))]


@scenario
def anomalies(lib):
    x = lib.tensor([-1.0], requires_grad=True)
    quiet = error_of(lambda: x.sqrt().sum().backward())
    with lib.autograd.detect_anomaly():
        inside = lib.is_anomaly_enabled()
        loud = error_of(lambda: (x.sqrt() * 0).sum().backward())
    return [quiet, inside, loud, lib.is_anomaly_enabled()]


@scenario
def engine_calls(lib):
    engine = lib.autograd.Variable._execution_engine
    x = leaf(lib, 1.0, 2.0)
    order = []
    y = x * 2
    y.register_hook(lambda g: engine.queue_callback(lambda: order.append("callback")))
    x.register_hook(lambda g: order.append("leaf"))
    y.sum().backward()
    return [
        order,
        type(engine).__name__,
        engine.is_checkpoint_valid(),
        error_of(lambda: engine.queue_callback(print)),
        error_of(lambda: engine.run_backward([y], (), False, False)),
    ]


@scenario
def eight_threads_over_one_graph(lib):
    x = leaf(lib, 1.0)
    y = (x * x).sum()
    threads = [threading.Thread(target=lambda: y.backward(retain_graph=True)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return x.grad.tolist()


@scenario
def graph_as_users_walk_it(lib):
    x = leaf(lib, 1.0, 2.0)
    y = (x * 2).exp()
    ((inner, number),) = y.grad_fn.next_functions
    (accumulate, _), other = inner.next_functions
    return [
        type(y.grad_fn).__name__,
        type(inner).__name__,
        number,
        other[0],
        type(accumulate).__name__,
        accumulate.variable is x,
        y.grad_fn.name(),
    ]


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_same_as_pytorch(function):
    assert function(weft) == function(oracle("torch"))


# What PyTorch's own behaviour does not decide.


def test_long_chains_run_and_are_freed_without_the_collector():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    gc.disable()
    try:
        y = x
        for _ in range(60_000):
            y = y + 1
        last = weakref.ref(y.grad_fn)
        y.sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]
        del y
        assert last() is None
    finally:
        gc.enable()


def test_graphs_with_saved_tensors_are_freed_without_the_collector():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    gc.disable()
    try:
        y = (x * x).exp()
        y.mul_(y)
        seen = [weakref.ref(y.grad_fn), weakref.ref(y)]
        del y
        assert [reference() for reference in seen] == [None, None]
    finally:
        gc.enable()


def test_backward_passes_nest_deeper_than_pythons_stack():
    depth = []

    class Again(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            depth.append(1)
            if len(depth) < 300:
                with weft.enable_grad():
                    Again.apply(weft.tensor([1.0], requires_grad=True)).sum().backward()
            return g

    Again.apply(weft.tensor([1.0], requires_grad=True)).sum().backward()
    assert len(depth) == 300


def test_another_engine_can_be_set():
    class Counting(type(weft.autograd.Variable._execution_engine)):
        calls = 0

        def run_backward(self, *args, **kwargs):
            Counting.calls += 1
            return super().run_backward(*args, **kwargs)

    before = weft.autograd.Variable._execution_engine
    weft.autograd.Variable._execution_engine = Counting()
    try:
        x = weft.tensor([1.0], requires_grad=True)
        (x * 2).sum().backward()
        assert (Counting.calls, x.grad.tolist()) == (1, [2.0])
    finally:
        weft.autograd.Variable._execution_engine = before
    with pytest.raises(TypeError, match="no engine"):
        weft.autograd.Variable._execution_engine = 3


def test_anomaly_tells_the_forward_call():
    x = weft.tensor([-1.0], requires_grad=True)
    with weft.autograd.detect_anomaly():
        y = x.sqrt()
        with pytest.warns(UserWarning, match="test_autograd"), pytest.raises(RuntimeError):
            (y * 0).sum().backward()


def test_gradcheck_finds_wrong_gradients():
    class Wrong(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2.1

    x = weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)
    assert weft.autograd.gradcheck(lambda v: v * v * v, x)
    assert weft.autograd.gradgradcheck(lambda v: v * v * v, x)
    assert not weft.autograd.gradcheck(Wrong.apply, x, raise_exception=False)
    with pytest.raises(weft.autograd.GradcheckError, match="Jacobian mismatch"):
        weft.autograd.gradcheck(Wrong.apply, x)
    with pytest.raises(ValueError, match="at least one input"):
        weft.autograd.gradcheck(lambda v: v, x.detach())


def test_an_operator_without_a_gradient_ends_the_graph():
    """PyTorch refuses the second derivative of grid_sample in the same words."""
    x, places = weft.randn(1, 1, 4, 4, requires_grad=True), weft.rand(1, 3, 3, 2)
    sampled = weft.nn.functional.grid_sample(x, places)
    (grad,) = weft.autograd.grad(sampled.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        grad.sum().backward()
