"""Complex tensors: parts and views, gradients in PyTorch's convention, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.base.errors import Unsupported
from weft.core.op import Op, list_ops
from weft.core.symbol import Variable
from weft.eager.autograd.backward import grad
from weft.eager.autograd.function import Function
from weft.eager.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from weft.eager.dispatch import apply, kernel_of
from weft.eager.tensor.tensor import wrap
from weft.ops._families import holomorphic
from weft.passes.gradient import gradients

pytestmark = pytest.mark.filterwarnings("error::numpy.exceptions.ComplexWarning")

SEEDS = range(3)


def numbers(seed, *shape, dtype="complex128"):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def leaf(seed, *shape, dtype="complex128"):
    return wrap(numbers(seed, *shape, dtype=dtype)).requires_grad_()


def reals(seed, *shape):
    return wrap(np.random.default_rng(seed + 100).standard_normal(shape)).requires_grad_()


def close(tensor, expected):
    np.testing.assert_allclose(tensor.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


# The convention: of a real L, dL/d Re z + i dL/d Im z.


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_a_square_of_magnitude_is_twice_the_number(seed):
    z = leaf(seed, 4)
    (z * z.conj()).real.sum().backward()
    close(z.grad, 2 * z.detach().numpy())


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_the_real_part_of_a_holomorphic_function_is_the_conjugate_of_its_slope(seed):
    z = leaf(seed, 5)
    z.exp().real.sum().backward()
    close(z.grad, np.conj(np.exp(z.detach().numpy())))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_abs_of_a_product(seed):
    z = leaf(seed, 3)
    (z * z).abs().sum().backward()
    close(z.grad, 2 * z.detach().numpy())  # |z^2| = |z|^2


@pytest.mark.parametrize("seed", SEEDS)
def test_gradient_of_a_real_factor_is_real(seed):
    x, z = reals(seed, 4), leaf(seed, 4)
    (x * z).imag.sum().backward()
    assert x.grad.dtype == weft.float64
    close(x.grad, z.detach().numpy().imag)
    close(z.grad, 1j * x.detach().numpy())


def test_gradients_of_casts_between_real_and_complex():
    x = reals(0, 3)
    (x.to(weft.complex128) * (2 + 3j)).real.sum().backward()
    close(x.grad, np.full(3, 2.0))
    z = leaf(0, 3)
    z.to(weft.float64).sum().backward()
    close(z.grad, np.ones(3, complex))


def test_cast_to_real_takes_the_real_part():
    assert wrap(np.array([3 + 4j, -1j])).to(weft.float32).tolist() == [3.0, 0.0]
    assert wrap(np.array([0j, -1j])).to(weft.bool).tolist() == [False, True]


def test_complex_numbers_have_no_gradient_by_themselves():
    with pytest.raises(RuntimeError, match="real"):
        leaf(0).backward()
    z = leaf(0)
    z.backward(wrap(np.array(1 + 2j)))
    close(z.grad, 1 + 2j)


# Parts and views.


def test_parts_are_views_that_can_be_written():
    z = wrap(numbers(1, 2, 3))
    z.real = weft.full((2, 3), 7.0, dtype=weft.float64)
    z.imag.fill_(-1.0)
    assert (z.detach().numpy() == 7 - 1j).all()
    assert z._version == 2


def test_pairs_share_memory_both_ways():
    z = wrap(numbers(2, 3, 4)).mT
    pairs = weft.view_as_real(z)
    assert pairs.shape == (4, 3, 2)
    pairs[1, 2, 1] = 9.0
    assert z[1, 2].item().imag == 9.0
    back = weft.view_as_complex(pairs)
    back[0, 0] = 1 - 1j
    assert z[0, 0].item() == 1 - 1j


@pytest.mark.parametrize("shape", [(), (0,), (2, 0)])
def test_views_of_little(shape):
    pairs = weft.view_as_real(wrap(np.zeros(shape, "complex64")))
    assert pairs.shape == (*shape, 2)
    assert weft.view_as_complex(pairs).shape == shape


@pytest.mark.parametrize("part", ["real", "imag"])
def test_writing_a_part_moves_the_gradient(part):
    torch = oracle("torch")

    def changed(z, scale):
        made = z * 1
        getattr(made, part).mul_(scale)
        return made

    z, scale = leaf(3, 4), reals(3, 4)
    out = changed(z, scale)
    out.backward(wrap(numbers(4, 4)))
    theirs = [torch.tensor(t.detach().numpy(), requires_grad=True) for t in (z, scale)]
    changed(*theirs).backward(torch.tensor(numbers(4, 4)))
    close(z.grad, theirs[0].grad.numpy())
    close(scale.grad, theirs[1].grad.numpy())


def test_writing_pairs_moves_the_gradient():
    z, values = leaf(5, 3), reals(5, 3)
    made = z * 2
    weft.view_as_real(made)[:, 0] = values
    made.backward(wrap(np.array([1 + 2j, 3 + 4j, 5 + 6j])))
    close(values.grad, [1, 3, 5])
    close(z.grad, [4j, 8j, 12j])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_complex_and_polar(dtype):
    x, y = (reals(n, 2, 3).to(weft.float32 if dtype == "float32" else weft.float64) for n in (0, 1))
    made = weft.complex(x, y)
    assert made.dtype == (weft.complex64 if dtype == "float32" else weft.complex128)
    np.testing.assert_array_equal(made.real.detach().numpy(), x.detach().numpy())
    turned = weft.polar(x, y).detach().numpy()
    expected = x.detach().numpy() * np.exp(1j * y.detach().numpy())
    np.testing.assert_allclose(turned, expected, rtol=1e-5 if dtype == "float32" else 1e-13)


def test_complex_of_other_dtypes_is_refused():
    x = weft.tensor([1, 2])
    with pytest.raises(RuntimeError, match="Long"):
        weft.complex(x, x)
    with pytest.raises(RuntimeError, match="Double"):
        weft.complex(weft.tensor([1.0]), weft.tensor([1.0], dtype=weft.float64))
    with pytest.raises(RuntimeError, match="size 2"):
        weft.view_as_complex(weft.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match="stride 1"):
        weft.view_as_complex(weft.zeros(2, 3).mT)
    with pytest.raises(RuntimeError, match="complex"):
        weft.view_as_real(weft.tensor([1.0]))
    with pytest.raises(RuntimeError, match="non-complex"):
        weft.imag(weft.tensor([1.0]))


def test_adjoints_conjugate():
    z = numbers(6, 2, 3)
    for made in (wrap(z).H, wrap(z).mH, weft.adjoint(wrap(z))):
        np.testing.assert_array_equal(made.numpy(), z.conj().T)
    assert wrap(z).isreal().any().item() is False
    assert weft.tensor([1 + 0j, 1j]).isreal().tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_printing(dtype):
    torch = oracle("torch")
    for values in ([1 + 2j, -3.25 - 0.5j], [[1e-5j, 2], [3, 4 + 1e6j]], 1j, []):
        array = np.array(values, dtype)
        assert repr(wrap(array)) == repr(torch.tensor(array)).replace("torch.", "weft.")


# Gradients by differences.


def unary(name):
    return lambda z: getattr(weft, name)(z)


HOLOMORPHIC = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin "
    "acos atan asinh acosh atanh sigmoid square neg"
).split()
OF_PARTS = "abs angle sgn real imag conj".split()


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *OF_PARTS])
def test_functions_of_one_number(name):
    assert gradcheck(unary(name), leaf(7, 12))
    assert gradgradcheck(unary(name), leaf(8, 3))


PAIRS = {
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "sub": lambda a, b: a - b,
    "matmul": lambda a, b: a @ b,
    "real by complex": lambda a, b: a.real * b + b.imag,
    "dot": lambda a, b: weft.vdot(a[0], b[0]),
    "where": lambda a, b: weft.where(weft.tensor([True, False, True]), a, b),
    "cat": lambda a, b: weft.cat([a, b])[1:5:2],
    "complex": lambda a, b: weft.complex(a.real, b.imag),
    "polar": lambda a, b: weft.polar(a.abs(), b.real),
}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two(name):
    values = leaf(9, 3, 3), leaf(10, 3, 3)
    assert gradcheck(PAIRS[name], values)
    assert gradgradcheck(PAIRS[name], values)


REDUCED = {
    "sum": lambda z: z.sum(0),
    "mean": lambda z: z.mean(),
    "prod": lambda z: z.prod(),
    "prod along": lambda z: z.prod(1),
    "cumprod": lambda z: z.cumprod(0),
    "norm": lambda z: z.norm(),
    "norm 1": lambda z: z.norm(1),
    "var": lambda z: z.var(0),
    "logsumexp": lambda z: z.logsumexp(1),
    "view_as_real": weft.view_as_real,
    "index": lambda z: z[[0, 2, 0]],
    "batched": lambda z: weft.stack([z, z * 2]) @ z,
}


@pytest.mark.parametrize("name", REDUCED)
def test_functions_of_several(name):
    assert gradcheck(REDUCED[name], leaf(11, 3, 3))
    assert gradgradcheck(REDUCED[name], leaf(11, 3, 3))


def _without_angles(u, s, vh):
    return u @ vh, u.abs(), s


LINALG = {
    "inv": lambda a: weft.linalg.inv(a),
    "solve": lambda a: weft.linalg.solve(a, a * a),
    "det": lambda a: weft.linalg.det(a),
    "slogdet": lambda a: weft.linalg.slogdet(a),
    "pinv": lambda a: weft.linalg.pinv(a[:, :2]),
    "qr": lambda a: weft.linalg.qr(a),
    "cholesky": lambda a: weft.linalg.cholesky(a @ a.mH + 3 * weft.eye(3)),
    "upper": lambda a: weft.linalg.cholesky(a @ a.mH + 3 * weft.eye(3), upper=True),
    "eigvalsh": lambda a: weft.linalg.eigvalsh(a + a.mH),
    "eigh": lambda a: [e.abs() for e in weft.linalg.eigh(a + a.mH, "U")],
    "svdvals": lambda a: weft.linalg.svdvals(a),
    "svd": lambda a: _without_angles(*weft.linalg.svd(a)),
}


@pytest.mark.parametrize("name", LINALG)
def test_functions_of_matrices(name):
    assert gradcheck(LINALG[name], leaf(12, 3, 3))
    assert gradgradcheck(LINALG[name], leaf(12, 3, 3), atol=1e-4)


class Unconjugated(Function):
    """z * z with a gradient that forgets to conjugate."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z * z

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g * 2 * z


def test_gradcheck_finds_a_missing_conjugate():
    with pytest.raises(GradcheckError, match="mismatch"):
        gradcheck(Unconjugated.apply, leaf(13, 2))
    assert not gradcheck(Unconjugated.apply, leaf(13, 2), raise_exception=False)


# Which operators take complex numbers.


def test_real_programs_have_no_conjugates():
    x = reals(14, 3)
    for op in (Op.get("exp"), Op.get("broadcast_mul")):
        y = apply(op, None, [x] if op.name == "exp" else [x, x])[0]
        assert all(step.op.name != "conj" for step in y.grad_fn.wanted.plan.steps)


def test_what_only_has_a_shape_is_neither_conjugated_nor_saved():
    made = leaf(15, 3, 2).sum(0)
    assert not made.grad_fn.wanted.values
    assert [step.op.name for step in made.grad_fn.wanted.plan.steps] == ["expand_like"]


@pytest.mark.parametrize("name", ["relu", "floor", "max", "softmax", "erf", "clip", "conv2d"])
def test_operators_without_complex_numbers_say_so(name):
    with pytest.raises(Unsupported, match=rf"{name} is not defined for complex numbers"):
        kernel_of(Op.get(name)).run(None, [numbers(0, 2, 2)])


def test_holomorphic_operators_commute_with_conjugation():
    """As their rule supposes; off the branch cuts, where random numbers are."""
    tried = 0
    for op in list_ops():
        if op.complex_gradient is not holomorphic or op.parser is not None or op.num_inputs != 1:
            continue
        z = numbers(16, 3, 3)
        once = apply(op, None, [wrap(z)])[0].numpy()
        np.testing.assert_allclose(apply(op, None, [wrap(z.conj())])[0].numpy(), once.conj(), err_msg=op.name)
        tried += 1
    assert tried > 25


@pytest.mark.parametrize("name", ["lt", "le", "gt", "ge", "maximum", "minimum", "clamp"])
def test_complex_numbers_have_no_order(name):
    z = wrap(numbers(17, 3))
    with pytest.raises(RuntimeError, match="omplex"):
        getattr(weft, name)(z, z)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "sort", "median", "relu", "floor", "sign"])
def test_functions_of_order_are_refused(name):
    z = wrap(numbers(18, 3))
    function = getattr(z, name, None) or getattr(weft, name)
    with pytest.raises(RuntimeError, match="omplex"):
        function()


def test_equality_is_of_both_parts():
    a, b = weft.tensor([1 + 1j, 1 + 2j]), weft.tensor([1 + 1j, 1 + 1j])
    assert (a == b).tolist() == [True, False]
    assert (a != 1).tolist() == [True, True]


def test_large_tensors_take_the_same_way():
    rng = np.random.default_rng(19)
    z = wrap((rng.standard_normal(200_000) + 1j).astype("complex64")).requires_grad_()
    x = wrap(rng.standard_normal(200_000).astype("float32")).requires_grad_()
    (z * x).abs().sum().backward()
    value, factor = z.detach().numpy(), x.detach().numpy()
    np.testing.assert_allclose(z.grad.numpy(), np.abs(factor) * value / np.abs(value), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), np.sign(factor) * np.abs(value), rtol=1e-4)


def test_gradients_with_respect_to_gradients():
    z = leaf(20, 3)
    (first,) = grad((z**3).real.sum(), [z], create_graph=True)
    (second,) = grad(first.imag.sum(), [z])
    value = z.detach().numpy()
    close(first, np.conj(3 * value**2))
    close(second, -6j * np.conj(value))  # of Im 3 conj(z)^2 = -6 x y: -6 y - 6i x


def test_graphs_refuse_gradients_of_complex_numbers():
    z = Variable("z", dtype="complex64")
    with pytest.raises(Unsupported, match="elemwise_mul on complex numbers"):
        gradients(Op.get("elemwise_mul")(z, z), z)
    x = Variable("x")
    assert gradients(Op.get("exp")(x), x)


WRITES = {
    "item": lambda x: x.__setitem__(0, 1j),
    "fill": lambda x: x.fill_(1j),
    "scatter": lambda x: x.scatter(0, weft.tensor([0]), 1j),
    "index_fill": lambda x: x.index_fill(0, weft.tensor([0]), 1j),
    "full_like": lambda x: weft.full_like(x, 1j),
    "in place": lambda x: x.mul_(1j),
    "float": lambda x: float(x[0] * 1j),
}


@pytest.mark.parametrize("name", WRITES)
def test_an_imaginary_part_is_never_dropped_by_the_way(name):
    with pytest.raises(RuntimeError, match=r"convert|cast"):
        WRITES[name](weft.ones(2))


def test_complex_numbers_that_are_real_may_be_written():
    x = weft.zeros(2)
    x[0] = 3 + 0j
    assert x.tolist() == [3.0, 0.0]
    assert float(weft.tensor(2 + 0j)) == 2.0
    assert int(weft.tensor(2 + 0j)) == 2
    with pytest.raises(TypeError, match="real number"):
        weft.tensor([1j], dtype=weft.float32)
