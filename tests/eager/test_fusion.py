"""Functions that compose element-wise operators as one pass, and results written where they belong,
against PyTorch."""

import numpy as np
import pytest
from oracles import oracle

import weft
import weft.nn.functional
from weft.base import config, counters
from weft.base.cpu_facts import ThreadFacts
from weft.core.naming import AttrScope, NameManager
from weft.core.op import Op
from weft.eager.functions import fusion
from weft.eager.functions.fusion import Fused, fused
from weft.eager.functions.math.arithmetic import add, mul
from weft.eager.native import pointwise as native_pointwise
from weft.runtime.cpu import open_program

SHAPE = (130, 257)
ACTIVATIONS = """relu hardtanh relu6 leaky_relu elu selu celu silu mish hardswish
hardsigmoid""".split()
COMPOSED = {
    "lerp": lambda lib, x, y: lib.lerp(x, y, 0.3),
    "lerp by a tensor": lambda lib, x, y: lib.lerp(x, y, y * y),
    "add": lambda lib, x, y: lib.add(x, y, alpha=0.5),
    "sub": lambda lib, x, y: lib.sub(x, y, alpha=-2),
    "addcmul": lambda lib, x, y: lib.addcmul(x, y, x, value=0.5),
    "addcdiv": lambda lib, x, y: lib.addcdiv(x, y, x * x + 1, value=0.5),
    "row": lambda lib, x, y: lib.addcmul(x, y[0], y[:, :1], value=0.5),
    "cube": lambda lib, x, y: x**3,
    "inverse square": lambda lib, x, y: (y * y + 1) ** -2 * x,
    "softplus": lambda lib, x, y: lib.nn.functional.softplus(x * 20, beta=0.7, threshold=9) * y,
    "logsigmoid": lambda lib, x, y: lib.nn.functional.logsigmoid(x),
    "softshrink": lambda lib, x, y: lib.nn.functional.softshrink(x, 0.3),
    "threshold": lambda lib, x, y: lib.nn.functional.threshold(x, 0.1, 7.0),
    "prelu": lambda lib, x, y: lib.nn.functional.prelu(x, y[0]),
    "negative slope": lambda lib, x, y: lib.nn.functional.leaky_relu(x, -0.5),
    "glu": lambda lib, x, y: lib.nn.functional.glu(x[:, 1:]),
    "smooth l1": lambda lib, x, y: lib.nn.functional.smooth_l1_loss(x, y, beta=0.4),
    "huber": lambda lib, x, y: lib.nn.functional.huber_loss(x, y, delta=0.7),
    "gaussian": lambda lib, x, y: lib.nn.functional.gaussian_nll_loss(x, y, (x * x).detach(), full=True),
    "clamp by tensors": lambda lib, x, y: x.clamp(-y.abs(), y.abs()),
    "nan_to_num": lambda lib, x, y: lib.nan_to_num(x / lib.where(y > 0, y, y * 0), posinf=3.0),
}
IN_PLACE = {
    "neg_": lambda lib, x, y: x.neg_(),
    "relu_": lambda lib, x, y: x.relu_(),
    "clamp_": lambda lib, x, y: x.clamp_(-0.5, 0.5),
    "pow_": lambda lib, x, y: x.pow_(3),
    "mul_": lambda lib, x, y: x.mul_(y[0]),
    "square by itself": lambda lib, x, y: x.mul_(x),
    "momentum": lambda lib, x, y: x.mul_(0.9).add_(y, alpha=-0.1),
    "adam": lambda lib, x, y: x.addcdiv_(y, y.square().sqrt_().add_(1e-8), value=-0.01),
    "lerp_": lambda lib, x, y: x.lerp_(y, 0.1),
    "frac_": lambda lib, x, y: x.frac_(),
    "columns": lambda lib, x, y: x[:, 3:200].add_(y[:, 3:200], alpha=2),
    "every other row": lambda lib, x, y: x[::2].mul_(y[::2]),
    "transposed": lambda lib, x, y: x.t().sub_(y.t(), alpha=2),
    "out": lambda lib, x, y: lib.exp(y, out=x),
    "out over an operand": lambda lib, x, y: lib.atan2(y, x, out=x),
    "out of another shape": lambda lib, x, y: lib.add(y[:70], 1, out=lib.empty(0)),
    "out of another dtype": lambda lib, x, y: lib.add(y, 1, out=x.double()),
}


def array(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def both(call):
    return [call(library) for library in (weft, oracle("torch"))]


def agree(found, rtol=2e-4):
    for ours, theirs in zip(*found, strict=True):
        scale = np.abs(np.where(np.isfinite(theirs), theirs, 0)).max()
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=2e-5 * scale)


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_functions(name):
    def call(lib):
        x, y = (lib.from_numpy(array(seed, *SHAPE)).requires_grad_() for seed in (1, 2))
        made = COMPOSED[name](lib, x, y)
        (made * lib.from_numpy(array(3, *made.shape))).sum().backward()
        grads = [t.grad.numpy() for t in (x, y) if t.grad is not None]
        return made.detach().numpy(), *grads

    agree(both(call))


@pytest.mark.parametrize("name", ["softplus", "smooth l1", "prelu", "addcmul", "inverse square"])
def test_gradients_of_gradients(name):
    def call(lib):
        x, y = (lib.from_numpy(array(seed, *SHAPE)).requires_grad_() for seed in (1, 2))
        made = COMPOSED[name](lib, x, y)
        weights = lib.from_numpy(array(3, *made.shape))
        grads = lib.autograd.grad((made * weights).sum(), (x, y), create_graph=True)
        sum(g.square().sum() for g in grads).backward()
        return x.grad.numpy(), y.grad.numpy()

    agree(both(call))


@pytest.mark.parametrize("name", IN_PLACE)
def test_results_are_written_where_they_belong(name):
    def call(lib):
        x, y = (lib.from_numpy(array(seed, *SHAPE)) for seed in (1, 2))
        made = IN_PLACE[name](lib, x, y)
        return x.numpy(), made.numpy(), np.float64(x._version)

    agree(both(call), 1e-5)


def test_operands_that_overlap_are_read_before_they_are_written():
    a = array(1, *SHAPE)
    for write, expected in (
        (lambda x: x[1:].add_(x[:-1]), a[1:] + a[:-1]),
        (lambda x: x[:, 1:].mul_(x[:, :-1]), a[:, 1:] * a[:, :-1]),
        (lambda x: x.add_(x[0]), a + a[0]),
        (lambda x: weft.add(x[:-1], 1, out=x[1:]), a[:-1] + 1),
    ):
        np.testing.assert_array_equal(write(weft.from_numpy(a.copy())).numpy(), expected)


def test_nothing_is_allocated_for_what_is_written_in_place(monkeypatch):
    x, y, o = (weft.from_numpy(array(seed, *SHAPE)) for seed in (1, 2, 3))
    steps = [
        lambda: x.neg_(),
        lambda: x.add_(y, alpha=0.5),
        lambda: weft.sigmoid(x, out=o),
        lambda: x[:, 5:].mul_(y[:, 5:]),
        lambda: x.t().addcmul_(y.t(), o.t(), value=0.1),
    ]
    for step in steps:
        step()
    refuse = lambda *args: pytest.fail("memory was taken")
    monkeypatch.setattr(native_pointwise.np, "empty", refuse)
    monkeypatch.setattr(native_pointwise.np, "copyto", refuse)
    for step in steps:
        step()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(7, 9), SHAPE])
def test_activations_in_place_have_gradients(name, shape):
    def call(lib):
        x = lib.from_numpy(array(1, *shape)).requires_grad_()
        y = x * 1.5
        made = getattr(lib.nn.functional, name)(y, inplace=True)
        assert made is y
        (made * lib.from_numpy(array(2, *shape))).sum().backward()
        return made.detach().numpy(), x.grad.numpy()

    agree(both(call))


def test_what_is_saved_after_writing_in_place_is_watched():
    x = weft.from_numpy(array(1, *SHAPE)).requires_grad_()
    y = (x * 2).sigmoid_()
    assert y._version == 1
    y.mul_(2)  # sigmoid's gradient needs its result
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_in_place_on_a_view_is_seen_by_the_base():
    def call(lib):
        x = lib.from_numpy(array(1, *SHAPE)).requires_grad_()
        y = x * 1
        y[:, 20:].tanh_()
        (y * lib.from_numpy(array(2, *SHAPE))).sum().backward()
        return y.detach().numpy(), x.grad.numpy()

    agree(both(call))


def test_a_leaf_is_not_written_to():
    x = weft.from_numpy(array(1, *SHAPE)).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        x.relu_()
    with pytest.raises(RuntimeError, match="leaf"):
        weft.from_numpy(array(1, *SHAPE))[:].add_(1), x[:, 1:].add_(1)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        weft.exp(x, out=weft.empty(SHAPE))
    assert x._version == 0


def test_numbers_are_arguments_of_a_kernel():
    x, y = weft.from_numpy(array(1, *SHAPE)), weft.from_numpy(array(2, *SHAPE))
    x.add_(y, alpha=0.25)
    known = len(fusion._composites)
    for number in (0.5, -3.0, 1e-3):
        expected = x.numpy() + np.float32(number) * y.numpy()
        np.testing.assert_allclose(x.add_(y, alpha=number).numpy(), expected, rtol=1e-5, atol=1e-6)
    assert len(fusion._composites) == known


def test_zeros_of_both_signs_are_told_apart():
    x = weft.full(SHAPE, -1.0)
    for zero in (0.0, -0.0):
        made = weft.nn.functional.threshold(x, 0.5, zero)
        assert np.signbit(made.numpy()).all() == np.signbit(zero)


def test_bits_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(open_program, "THREADS", ThreadFacts(wake=0.0))
    before, made = weft.get_num_threads(), []
    for threads in (1, 2):
        weft.set_num_threads(threads)
        x = weft.from_numpy(array(1, 300, 333)).requires_grad_()
        y = weft.nn.functional.softplus(x, beta=2.0).lerp(x, 0.3)
        y.sum().backward()
        made.append((y.detach().numpy(), x.grad.numpy()))
    weft.set_num_threads(before)
    for one, two in zip(*made):
        np.testing.assert_array_equal(one, two)


def test_what_is_not_element_wise_is_left_as_it_is():
    x = weft.from_numpy(array(1, *SHAPE))
    for function in (lambda x: add(x.t(), 1), lambda x: x.sum(), lambda x: mul(x, x)[0]):
        found, _ = Fused(function).call((x,), {})
        assert found is None
        np.testing.assert_array_equal(fused(function)(x).numpy(), function(x).numpy())


DECLINED = {  # why a function is not one pass
    "view": (lambda x: add(x.t(), 1), "by other means than operators"),
    "sum": (lambda x: x.sum(), "sum is not element-wise"),
    "itself": (lambda x: x, "not one of operators"),
    "shapes": (lambda x: add(x, x[:3]), "by other means than operators"),
    "list": (lambda x, *rest: add(x, 1), "no hash"),
}


@pytest.fixture
def counted():
    """A logger that is set meanwhile."""
    before = counters.set_logger(counters.LockingLogger())
    yield counters.get_logger()
    counters.set_logger(before)


@pytest.mark.parametrize("name", DECLINED)
def test_declines_are_counted_and_told(name, counted, capsys):
    function, why = DECLINED[name]
    args = (weft.from_numpy(array(1, *SHAPE)), *([[1]] if name == "list" else []))
    with config.override(debug=frozenset({"dispatch"})):
        assert Fused(function).call(args, {})[0] is None
    assert counted.get_counter_val("weft.fusion_declined") == 1
    assert why in capsys.readouterr().err


def test_what_fuses_is_not_counted_as_declined(counted):
    x = weft.from_numpy(array(1, *SHAPE))
    assert Fused(lambda x: mul(add(x, 1), x)).call((x,), {})[0] is not None
    assert counted.get_counter_val("weft.fusion_declined") == 0


def test_errors_of_a_wrong_call_are_those_of_the_plain_one():
    for call in (lambda x: weft.lerp(x, weft.ones(3, 2), 0.5), lambda x: weft.lerp(x, "end", 0.5)):
        texts = []
        for rows in (300, 7):
            with pytest.raises((RuntimeError, TypeError)) as raised:
                call(weft.ones(rows, 2))
            texts.append(str(raised.value).replace(str(rows), "n"))
        assert texts[0] == texts[1]


def test_errors_inside_a_function_are_not_taken_for_declines():
    def broken(x):
        raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        Fused(broken).call((weft.ones(3),), {})


def test_scopes_of_a_user_are_not_for_gradient_rules():
    x = weft.from_numpy(array(1, *SHAPE)).requires_grad_()
    with NameManager() as names, AttrScope(__group__="mine"):
        y = weft.addcmul(x, x, x, value=0.125)
        y.logaddexp(x).sum().backward()
        assert names.get(None, "broadcast_mul") == "broadcast_mul0"
    assert {step.params for step in y.grad_fn.wanted.plan.steps if step.op.parser is None} == {None}


def test_what_a_composition_does_not_read_has_no_gradient():
    x, y = (weft.from_numpy(array(seed, *SHAPE)).requires_grad_() for seed in (1, 2))
    made = fused(lambda x, y: mul(add(x, 1), x))(x, y)
    assert made.grad_fn.name() == "FusedBackward0"
    made.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy() + 1, rtol=1e-5, atol=1e-6)
    assert y.grad is None


def test_a_composition_is_one_node():
    x = weft.from_numpy(array(1, *SHAPE)).requires_grad_()
    y = weft.lerp(x, x.detach(), 0.5)
    assert y.grad_fn.name() == "LerpBackward0"
    assert [node for node, _ in y.grad_fn.next_functions if node is not None] == [x._edge()[0]]


@pytest.mark.parametrize("scale", [-2.0, -1.0, 2.0, 3.0, 4.0])
def test_small_powers_are_products(scale):
    op = Op.get("__pow_scalar__")
    params = op.parse({"scalar": str(scale)})
    body = native_pointwise.element(op, params, (np.dtype("float32"),))
    assert body.calls == (scale < 0)  # a division
    x = array(1, 1000)
    made = native_pointwise.run_pointwise(native_pointwise.op_key(op, params), body, [x])
    np.testing.assert_allclose(made, x.astype("float64") ** scale, rtol=5e-7)
