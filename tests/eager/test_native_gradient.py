"""Gradients of large tensors, whose steps run as one native computation, and large in-place
arithmetic, against PyTorch."""

import numpy as np
import pytest
from oracles import oracle

import weft
import weft.nn.functional
from weft.compiler.open import programs as open_programs

SHAPE = (130, 257)
UNARY = """exp log1p sqrt rsqrt sin cos tan atan asinh tanh sigmoid relu abs neg square reciprocal
erf expm1 log2 log10 sinh cosh acosh erfinv lgamma digamma trunc sign frac""".split()
ACTIVATIONS = """gelu silu elu leaky_relu softplus hardswish mish selu hardtanh logsigmoid softsign
relu6 celu hardsigmoid tanhshrink softshrink""".split()
PAIRS = "add sub mul div maximum minimum pow atan2 hypot logaddexp fmod".split()
OTHERS = {
    "clamp": lambda lib, x: x.clamp(-0.5, 0.7),
    "cube": lambda lib, x: x**3,
    "power": lambda lib, x: (x * x + 0.1) ** 1.7,
    "where": lambda lib, x: lib.where(x > 0, x * x, -x),
    "masked_fill": lambda lib, x: x.masked_fill(x > 0, 2.0) * x,
    "mean": lambda lib, x: (x - x.mean(1, keepdim=True)).pow(2).mean(0),
    "var": lambda lib, x: x.var(1),
    "std": lambda lib, x: x.std(),
    "norm": lambda lib, x: x.norm(dim=0),
    "logsumexp": lambda lib, x: x.logsumexp(1),
    "softmax": lambda lib, x: x.softmax(0) * x,
    "log_softmax": lambda lib, x: x.log_softmax(1) * x,
    "layer_norm": lambda lib, x: lib.nn.functional.layer_norm(x, (SHAPE[1],)) * x,
    "smooth_l1": lambda lib, x: lib.nn.functional.smooth_l1_loss(x, x.detach().flip(0)),
    "mse": lambda lib, x: lib.nn.functional.mse_loss(x, x.detach() * 0.5),
    "bce": lambda lib, x: lib.nn.functional.binary_cross_entropy_with_logits(x, x.detach().flip(0).sigmoid()),
    "amax": lambda lib, x: x.amax(1),
    "prod": lambda lib, x: (x / 10 + 1).prod(0),
    "stretched": lambda lib, x: x * x[:, :1] + x[:1] / (x[0, 0] * x[0, 0] + 1),
    "permuted": lambda lib, x: x.t().sigmoid() * x.t(),
}


def array(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def positive(name):
    return name in "sqrt rsqrt log1p log2 log10 lgamma digamma pow".split()


def compare(call, *arrays, rtol=2e-4):
    """Values and gradients of a call, in both libraries."""
    made = []
    for library in (weft, oracle("torch")):
        given = [library.from_numpy(a.copy()).requires_grad_() for a in arrays]
        result = call(library, *given)
        weights = library.from_numpy(array(9, *result.shape))
        (result * weights).sum().backward()
        made.append([result.detach().numpy(), *(x.grad.numpy() for x in given)])
    for ours, theirs in zip(*made):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=2e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("name", UNARY)
def test_functions(name):
    x = array(1, *SHAPE)
    x = np.abs(x) + 0.5 if positive(name) else x * 0.3 if name == "erfinv" else x
    x = np.abs(x) + 1.1 if name == "acosh" else np.clip(x, -0.95, 0.95) if name == "erfinv" else x
    compare(lambda lib, x: getattr(lib if hasattr(lib, name) else lib.special, name)(x), x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    compare(lambda lib, x: getattr(lib.nn.functional, name)(x), array(2, *SHAPE) * 3)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("other", [SHAPE, SHAPE[1:], (SHAPE[0], 1), ()])
def test_pairs(name, other):
    a, b = array(3, *SHAPE), array(4, *other)
    a = np.abs(a) + 0.5 if positive(name) else a
    b = b + 2 * np.sign(b) if name in ("div", "fmod") else b
    compare(lambda lib, x, y: getattr(lib, name)(x, y), a, np.asarray(b, "float32"), rtol=1e-3)


@pytest.mark.parametrize("name", OTHERS)
def test_compositions(name):
    compare(OTHERS[name], array(5, *SHAPE))


@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "instance_norm"])
def test_normalisations_of_images(name):
    def call(lib, x, scale, shift):
        functional = lib.nn.functional
        if name == "group_norm":
            return functional.group_norm(x, 3, scale, shift)
        if name == "instance_norm":
            return functional.instance_norm(x, weight=scale, bias=shift)
        return functional.batch_norm(x, None, None, scale, shift, training=True)

    compare(call, array(6, 5, 6, 27, 29), array(7, 6), array(8, 6))


def test_a_graph_of_gradients_is_still_made():
    made = []
    for library in (weft, oracle("torch")):
        x = library.from_numpy(array(1, *SHAPE)).requires_grad_()
        (first,) = library.autograd.grad(x.tanh().sum(), x, create_graph=True)
        (second,) = library.autograd.grad((first * first).sum(), x)
        made.append(second.numpy())
    np.testing.assert_allclose(*made, rtol=1e-4, atol=1e-5)


def test_one_program_serves_all_sizes():
    def step(*shape):
        x = weft.randn(*shape, requires_grad=True)
        scale = weft.randn(shape[-1], requires_grad=True)
        weft.nn.functional.layer_norm(x, shape[-1:], scale).square().sum().backward()

    step(200, 300)
    before = {key: len(known) for key, known in open_programs._programs.items()}
    for shape in [(300, 200), (97, 513), (1000, 33)]:
        step(*shape)
    assert {key: len(known) for key, known in open_programs._programs.items()} == before


def test_in_place_arithmetic():
    def steps(lib):
        x, y, z = (lib.from_numpy(array(seed, *SHAPE)) for seed in (1, 2, 3))
        row = lib.from_numpy(array(4, SHAPE[1]))
        x.add_(y, alpha=0.3).sub_(z, alpha=2).mul_(0.5).mul_(row).div_(3).add_(1)
        x.addcmul_(y, z, value=-0.1).addcdiv_(y, z.abs() + 1, value=0.2).lerp_(z, 0.25)
        x.addcmul_(y, z).add_(x)
        x += y
        x *= 2
        x[:, 1:].add_(1)
        return x, x._version

    ours, theirs = steps(weft), steps(oracle("torch"))
    np.testing.assert_allclose(ours[0].numpy(), theirs[0].numpy(), rtol=1e-5, atol=1e-5)
    assert ours[1] == theirs[1]


def test_in_place_on_a_part_of_itself():
    made = []
    for lib in (weft, oracle("torch")):
        x = lib.from_numpy(array(1, 200, 200))
        x.add_(x.t().clone())
        x[1:].add_(x[:-1].clone(), alpha=0.5)
        x.mul_(x[0, 0].clone())
        made.append(x.numpy())
    np.testing.assert_allclose(*made, rtol=1e-5)


def test_in_place_with_a_graph_is_recorded():
    x = weft.randn(*SHAPE, requires_grad=True)
    y = x * 1
    y.mul_(3)
    y.sum().backward()
    assert weft.equal(x.grad, weft.full(SHAPE, 3.0))
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
