"""weft.linalg against numpy, scipy and what factors must be, with errors and edges; PyTorch's own
samples are in test_op_database.py."""

import numpy as np
import pytest
import scipy.linalg
from oracles import oracle

import weft

SHAPES = [(4, 4), (2, 3, 3), (5, 3), (3, 5), (2, 1, 6, 2), (0, 3, 3), (3, 0), (0, 0), (40, 40)]
SQUARE = [shape for shape in SHAPES if shape[-1] == shape[-2]]
KINDS = ["float32", "float64", "complex64", "complex128"]


def drawn(shape, kind="float64", seed=0):
    rng = np.random.default_rng([seed, *shape])
    made = rng.standard_normal(shape)
    if kind.startswith("complex"):
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(kind)


def near(got, expected, kind="float64"):
    room = 1e-11 if kind in ("float64", "complex128") else 2e-4
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=room, atol=room)


def adjoint(x):
    return np.conj(np.swapaxes(x, -1, -2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape, kind):
    a = drawn(shape, kind)
    p, low, up = (part.numpy() for part in weft.linalg.lu(weft.from_numpy(a)))
    near(p @ low @ up, a, kind)
    assert (np.sort(np.abs(p), -1)[..., :-1] == 0).all()
    assert (p.sum(-1) == 1).all()
    assert np.array_equal(low, np.tril(low))
    assert np.array_equal(up, np.triu(up))
    assert (np.abs(low) <= 1.5).all()


def test_lu_of_a_singular_matrix():
    a = np.float64([[1, 2, 3], [2, 4, 6], [1, 0, 1]])
    p, low, up = (part.numpy() for part in weft.linalg.lu(weft.from_numpy(a)))
    near(p @ low @ up, a)
    _, _, info = weft.linalg.lu_factor_ex(weft.from_numpy(a))
    assert info.item() == 3
    with pytest.raises(weft.linalg.LinAlgError, match=r"U\[3,3\] is zero"):
        weft.linalg.lu_factor(weft.from_numpy(a))


def test_lu_without_pivots():
    a = drawn((2, 4, 4)) + 9 * np.eye(4)
    packed, pivots = weft.linalg.lu_factor(weft.from_numpy(a), pivot=False)
    low = np.tril(packed.numpy(), -1) + np.eye(4)
    near(low @ np.triu(packed.numpy()), a)
    assert np.array_equal(pivots.numpy(), [[1, 2, 3, 4]] * 2)


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SQUARE)
def test_ldl(shape, kind, hermitian):
    a, b = drawn(shape, kind), drawn((*shape[:-1], 2), kind, 1)
    a = a + (adjoint(a) if hermitian else np.swapaxes(a, -1, -2))
    upper_is_not_read = a + np.triu(np.ones(shape[-2:], kind), 1)
    packed, pivots = weft.linalg.ldl_factor(weft.from_numpy(upper_is_not_read), hermitian=hermitian)
    x = weft.linalg.ldl_solve(packed, pivots, weft.from_numpy(b), hermitian=hermitian).numpy()
    room = 1e-8 if kind in ("float64", "complex128") else 2e-2
    np.testing.assert_allclose(a @ x, b, rtol=room, atol=room)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_reflections(shape, kind):
    a = drawn(shape, kind)
    m, n = shape[-2:]
    factors, tau = weft.geqrf(weft.from_numpy(a))
    whole = weft.from_numpy(np.broadcast_to(np.eye(m, dtype=kind), (*shape[:-2], m, m)).copy())
    q = weft.ormqr(factors, tau, whole)
    near(q.numpy() @ np.triu(factors.numpy()), a, kind)
    near(adjoint(q.numpy()) @ q.numpy(), whole.numpy(), kind)
    near(weft.ormqr(factors, tau, whole, transpose=True).numpy(), adjoint(q.numpy()), kind)
    near(weft.ormqr(factors, tau, whole, left=False).numpy(), q.numpy(), kind)
    if m >= n:
        near(weft.linalg.householder_product(factors, tau).numpy(), q.numpy()[..., :n], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SQUARE)
def test_eig(shape, kind):
    a = drawn(shape, kind)
    values, vectors = (part.numpy() for part in weft.linalg.eig(weft.from_numpy(a)))
    assert values.dtype == vectors.dtype == np.result_type(a, np.complex64)
    near(a @ vectors, vectors * values[..., None, :], kind)
    alone = weft.linalg.eigvals(weft.from_numpy(a)).numpy()
    near(np.sort_complex(alone), np.sort_complex(values), kind)


@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_gradient_of_eig(kind):
    """Of what does not depend on the angle of the vectors, against PyTorch."""
    torch = oracle("torch")
    a = drawn((2, 4, 4), kind)

    def loss(values, vectors, weights):
        return (values * weights[0]).abs().sum() + (vectors.abs() ** 2 * weights[1]).sum()

    weights = [drawn((2, 4), seed=2), drawn((2, 4, 4), seed=3)]
    x = weft.from_numpy(a).requires_grad_()
    loss(*weft.linalg.eig(x), [weft.from_numpy(w) for w in weights]).backward()
    y = torch.from_numpy(a).requires_grad_()
    loss(*torch.linalg.eig(y), [torch.from_numpy(w) for w in weights]).backward()
    near(x.grad.numpy(), y.grad.numpy(), "float64")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [*SHAPES, (4, 6), (6, 4)])
def test_full_svd(shape, kind):
    a = drawn(shape, kind)
    a[..., 1:2] = a[..., :1] * 2  # not of full rank
    u, s, vh = (part.numpy() for part in weft.linalg.svd(weft.from_numpy(a)))
    m, n, k = *shape[-2:], min(shape[-2:])
    assert u.shape[-2:] == (m, m)
    assert vh.shape[-2:] == (n, n)
    near((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, kind)
    near(adjoint(u) @ u, np.broadcast_to(np.eye(m), u.shape), kind)
    near(vh @ adjoint(vh), np.broadcast_to(np.eye(n), vh.shape), kind)
    old = [part.numpy() for part in weft.svd(weft.from_numpy(a), some=False)]
    near(adjoint(old[2]), vh, kind)


def test_gradient_of_full_svd():
    torch = oracle("torch")
    a = drawn((5, 3))
    x, y = weft.from_numpy(a).requires_grad_(), torch.from_numpy(a).requires_grad_()
    for module, tensor in ((weft, x), (torch, y)):
        u, s, _ = module.linalg.svd(tensor)
        ((s**3).sum() + (u[:, :2] ** 4).sum()).backward()
    near(x.grad.numpy(), y.grad.numpy())


@pytest.mark.parametrize("shape", [(4, 4), (3, 2, 2), (0, 0), (0, 2, 2), (12, 12)])
@pytest.mark.parametrize("scale", [1e-9, 0.3, 5.0])
def test_matrix_exp(shape, scale):
    a = drawn(shape) * scale
    expected = np.stack([scipy.linalg.expm(m) for m in a.reshape(-1, *shape[-2:])]) if a.size else a
    size = np.abs(expected).max(initial=1)
    got = weft.matrix_exp(weft.from_numpy(a)).numpy()
    np.testing.assert_allclose(got / size, expected.reshape(shape) / size, rtol=1e-9, atol=1e-13)


def test_matrix_exp_of_a_mixed_batch():
    a = np.stack([np.zeros((3, 3)), drawn((3, 3)) * 40, np.full((3, 3), np.nan), drawn((3, 3))])
    got = weft.linalg.matrix_exp(weft.from_numpy(a)).numpy()
    assert np.array_equal(got[0], np.eye(3))
    assert np.isnan(got[2]).all()
    near(got[3], scipy.linalg.expm(a[3]))
    large = scipy.linalg.expm(a[1])
    np.testing.assert_allclose(got[1] / np.abs(large).max(), large / np.abs(large).max(), atol=1e-9)


@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_lstsq(shape, driver):
    a, b = drawn(shape), drawn((shape[0], 2), seed=1)
    made = weft.linalg.lstsq(weft.from_numpy(a), weft.from_numpy(b), driver=driver)
    x, rest, rank, sizes = np.linalg.lstsq(a, b)
    near(made.solution.numpy(), x)
    if driver != "gels":
        assert made.rank.item() == rank
    if driver in ("gelsd", "gelss"):
        near(made.singular_values.numpy(), sizes)
    if driver not in (None, "gelsy"):
        near(made.residuals.numpy(), rest)


def test_lstsq_of_low_rank():
    a = np.outer(np.arange(1.0, 6), [1, 2, 3])
    b = drawn((5,))
    made = weft.linalg.lstsq(weft.from_numpy(a), weft.from_numpy(b), driver="gelsd")
    near(made.solution.numpy(), np.linalg.lstsq(a, b)[0])
    assert made.rank.item() == 1
    assert made.residuals.numel() == 0


@pytest.mark.parametrize("p", [None, 2, -2, "fro", "nuc", 1, -1, np.inf, -np.inf])
def test_cond(p):
    a = drawn((3, 4, 4))
    near(weft.linalg.cond(weft.from_numpy(a), p).numpy(), np.linalg.cond(a, p))
    a[1] = 0
    a[2, 0] = a[2, 1]
    if p not in (2, -2, None):
        got = weft.linalg.cond(weft.from_numpy(a), p).numpy()
        near(got[0], np.linalg.cond(a[0], p))
        assert np.isinf(got[1:]).all()


def test_equations_of_tensors():
    a, b = drawn((2, 3, 6)), drawn((2, 3), seed=1)
    x = weft.linalg.tensorsolve(weft.from_numpy(a), weft.from_numpy(b))
    near(x.numpy(), np.linalg.tensorsolve(a, b))
    turned = np.moveaxis(a, 2, 0).copy()
    x = weft.linalg.tensorsolve(weft.from_numpy(turned), weft.from_numpy(b), dims=(0,))
    near(x.numpy(), np.linalg.tensorsolve(turned, b, axes=(0,)))
    inverse = weft.linalg.tensorinv(weft.from_numpy(a), ind=2)
    near(inverse.numpy(), np.linalg.tensorinv(a, ind=2))


@pytest.mark.parametrize("n", [None, 0, 1, 2, 5])
@pytest.mark.parametrize("increasing", [False, True])
def test_vander(n, increasing):
    for x in (drawn((4,)), np.arange(4), np.arange(3) + 1j):
        got = weft.vander(weft.from_numpy(x), n, increasing).numpy()
        expected = np.vander(x, n, increasing)
        assert got.dtype == expected.dtype
        near(got, expected)
    if n is None or n > 1:
        x = drawn((2, 3))
        got = weft.linalg.vander(weft.from_numpy(x), N=n).numpy()
        near(got, np.stack([np.vander(row, n, True) for row in x]))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_by_the_factor_of_cholesky(kind, upper):
    x, b = drawn((2, 4, 4), kind), drawn((2, 4, 3), kind, 1)
    a = x @ adjoint(x) + 2 * np.eye(4, dtype=kind)
    factor = weft.linalg.cholesky(weft.from_numpy(a), upper=upper)
    near(a @ weft.cholesky_solve(weft.from_numpy(b), factor, upper).numpy(), b, kind)
    near(a @ weft.cholesky_inverse(factor, upper).numpy(), np.eye(4)[None].repeat(2, 0), kind)


def test_which_matrices_have_no_result():
    good = np.float64([[4, 1], [1, 3]])
    a = np.stack([good, [[1, 2], [2, 1]], [[0, 0], [0, 0]]])
    made = weft.linalg.cholesky_ex(weft.from_numpy(a))
    assert made.info.tolist() == [0, 2, 1]
    near(made.L[0].numpy(), np.linalg.cholesky(good))
    inverse, info = weft.linalg.inv_ex(weft.from_numpy(a))
    assert info.tolist() == [0, 0, 1]
    near(inverse[:2].numpy(), np.linalg.inv(a[:2]))
    b = drawn((3, 2, 2))
    result, info = weft.linalg.solve_ex(weft.from_numpy(a), weft.from_numpy(b))
    assert info.tolist() == [0, 0, 1]
    near(result[:2].numpy(), np.linalg.solve(a[:2], b[:2]))
    with pytest.raises(weft.linalg.LinAlgError, match=r"Batch element 1.*order 2"):
        weft.linalg.cholesky_ex(weft.from_numpy(a), check_errors=True)
    with pytest.raises(RuntimeError, match=r"Batch element 2.*diagonal element 1"):
        weft.linalg.inv_ex(weft.from_numpy(a), check_errors=True)


ONES = lambda *shape: weft.ones(*shape)
ERRORS = {
    "lu of a vector": (lambda: weft.linalg.lu(ONES(3)), RuntimeError),
    "lu of integers": (lambda: weft.linalg.lu(ONES(3, 3).long()), NotImplementedError),
    "a pivot that is no row": (lambda: weft.lu_unpack(ONES(2, 2), weft.tensor([1, 7], dtype=weft.int32)), RuntimeError),
    "pivots of int64": (lambda: weft.lu_unpack(ONES(2, 2), weft.tensor([1, 2])), RuntimeError),
    "factors of another size": (
        lambda: weft.lu_solve(ONES(3, 1), ONES(2, 2), weft.tensor([1, 2], dtype=weft.int32)),
        RuntimeError,
    ),
    "half a block": (
        lambda: weft.linalg.ldl_solve(ONES(2, 2), weft.tensor([1, -2], dtype=weft.int32), ONES(2, 1)),
        RuntimeError,
    ),
    "eig of an oblong": (lambda: weft.linalg.eig(ONES(2, 3)), RuntimeError),
    "eig of NaN": (lambda: weft.linalg.eig(ONES(2, 2) * float("nan")), RuntimeError),
    "svd of NaN": (lambda: weft.linalg.svdvals(ONES(2, 2) * float("nan")), RuntimeError),
    "too many reflections": (lambda: weft.orgqr(ONES(4, 2), ONES(3)), RuntimeError),
    "a wide matrix of reflections": (lambda: weft.orgqr(ONES(2, 3), ONES(2)), RuntimeError),
    "lstsq of other rows": (lambda: weft.linalg.lstsq(ONES(4, 3), ONES(5, 2)), RuntimeError),
    "no such driver": (lambda: weft.linalg.lstsq(ONES(4, 3), ONES(4, 2), driver="x"), RuntimeError),
    "exp of an oblong": (lambda: weft.matrix_exp(ONES(2, 3)), RuntimeError),
    "one power": (lambda: weft.linalg.vander(ONES(3), N=1), RuntimeError),
    "powers of a matrix": (lambda: weft.vander(ONES(2, 2)), RuntimeError),
    "tensorinv that is not square": (lambda: weft.linalg.tensorinv(ONES(2, 3, 5)), RuntimeError),
    "no such norm": (lambda: weft.linalg.cond(ONES(2, 2), 3), RuntimeError),
    "inverse of nothing": (lambda: weft.cholesky_inverse(weft.zeros(2, 2)), RuntimeError),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error(case):
    call, kind = ERRORS[case]
    with pytest.raises(kind):
        call()


def test_error_of_linear_algebra_is_a_runtime_error():
    with pytest.raises(weft.linalg.LinAlgError):
        weft.linalg.inv(weft.zeros(2, 2))
    assert issubclass(weft.linalg.LinAlgError, RuntimeError)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("eig", "eig"), ("solve", "solve"), ("symeig", "eigh"), ("lstsq", "lstsq"), ("matrix_rank", "matrix_rank")],
)
def test_removed_function_names_another(name, instead):
    torch = oracle("torch")
    with pytest.raises(RuntimeError, match=f"now removed.*torch.linalg.{instead}"):
        getattr(weft, name)(ONES(2, 2), ONES(2, 2))
    with pytest.raises(RuntimeError, match="now removed"):
        getattr(torch, name)(torch.ones(2, 2), torch.ones(2, 2))


def test_no_gradient_where_there_is_none():
    a = weft.from_numpy(drawn((3, 3))).requires_grad_()
    packed, _ = weft.linalg.ldl_factor(a)
    with pytest.raises(RuntimeError):
        packed.sum().backward()


@pytest.mark.parametrize("largest", [None, True, False])
def test_eigenvalues_at_an_end(largest):
    a, b = drawn((2, 9, 9)), drawn((2, 9, 9), seed=1)
    a, b = a + adjoint(a), b @ adjoint(b) + np.eye(9)
    values, vectors = weft.lobpcg(weft.from_numpy(a), 3, weft.from_numpy(b), largest=largest)
    left = a @ vectors.numpy()
    near(left, b @ vectors.numpy() * values.numpy()[:, None])
    for matrix, other, got in zip(a, b, values.numpy()):
        exact = scipy.linalg.eigh(matrix, other, eigvals_only=True)
        near(got, exact[:3] if largest is False else exact[::-1][:3])
    alone, _ = weft.lobpcg(weft.from_numpy(a[0]), 2)
    near(alone.numpy(), np.linalg.eigvalsh(a[0])[::-1][:2])
    with pytest.raises(ValueError, match="not applicable"):
        weft.lobpcg(weft.from_numpy(a), 4)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(150, 150), (2, 3, 70, 70), (90, 200), (200, 90)])
def test_factors_of_several_panels_and_their_solutions(shape, kind):
    rng = np.random.default_rng(0)
    a = (rng.uniform(-0.5, 0.5, shape) + 12 * np.eye(*shape[-2:])).astype(kind)
    p, low, up = (part.numpy() for part in weft.linalg.lu(weft.from_numpy(a)))
    near(p @ low @ up, a, kind)
    if shape[-1] != shape[-2]:
        return
    b = rng.standard_normal((*shape[:-1], 5)).astype(kind)
    near(weft.linalg.solve(weft.from_numpy(a), weft.from_numpy(b)), np.linalg.solve(a, b), kind)
    near(weft.linalg.inv(weft.from_numpy(a)), np.linalg.inv(a), kind)
    for upper, part in ((True, np.triu), (False, np.tril)):
        made = weft.linalg.solve_triangular(weft.from_numpy(a), weft.from_numpy(b), upper=upper)
        near(made, np.linalg.solve(part(a), b), kind)


def test_elimination_has_the_same_bits_for_all_numbers_of_threads():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3, 130, 130)), rng.standard_normal((3, 130, 140))
    before, made = weft.get_num_threads(), []
    try:
        for threads in (1, 2):
            weft.set_num_threads(threads)
            made.append(weft.linalg.solve(weft.from_numpy(a), weft.from_numpy(b)).numpy())
    finally:
        weft.set_num_threads(before)
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_distances_of_rows_and_their_gradients(mode):
    torch = oracle("torch")
    rng = np.random.default_rng(0)
    data = rng.standard_normal((3, 1, 40, 7)), rng.standard_normal((2, 30, 7))
    made = []
    for m in (weft, torch):
        rows = [m.from_numpy(x.copy()).requires_grad_() for x in data]
        y = m.cdist(*rows, compute_mode=mode)
        (y**3).sum().backward()
        made.append([y.detach().numpy(), *(x.grad.numpy() for x in rows)])
    for got, want in zip(*made):
        np.testing.assert_allclose(got, want, 1e-10, 1e-10)
    with pytest.raises(ValueError, match="compute_mode"):
        weft.cdist(weft.ones(2, 2), weft.ones(2, 2), compute_mode="exact")


def test_equal_rows_have_no_distance_and_no_gradient():
    x = weft.from_numpy(np.random.default_rng(0).integers(-3, 4, (30, 5)) * 1.0).requires_grad_()
    y = weft.cdist(x, x.detach())
    np.testing.assert_array_equal(np.diagonal(y.detach().numpy()), 0)
    y.diagonal().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 0)


def test_pinverse_leaves_out_singular_values_below_its_share():
    a = np.random.default_rng(0).normal(size=(4, 3)) @ np.diag([4.0, 1.0, 0.1])
    made = weft.pinverse(weft.from_numpy(a), 0.1).numpy()
    assert np.linalg.matrix_rank(made) == np.linalg.matrix_rank(a, 0.1 * np.linalg.norm(a, 2)) < 3
    np.testing.assert_allclose(made, np.linalg.pinv(a, 0.1), atol=1e-12)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 1.7), (0, 2)])
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("addmm", [(7, 9), (7, 33), (33, 9)]),
        ("addmv", [(7,), (7, 33), (33,)]),
        ("baddbmm", [(2, 7, 9), (2, 7, 33), (2, 33, 9)]),
        ("addbmm", [(7, 9), (2, 7, 33), (2, 33, 9)]),
    ],
)
def test_sums_with_products_are_rounded_once(name, shapes, beta, alpha, kind):
    generator = np.random.default_rng(3)
    given = [weft.tensor(generator.standard_normal(shape)).to(getattr(weft, kind)) for shape in shapes]
    start, left, right = (one.double().numpy() for one in given)
    product = (left @ right).sum(0) if name == "addbmm" else left @ right
    exact = weft.tensor(beta * start + alpha * product).float().to(getattr(weft, kind))
    got = getattr(weft, name)(*given, beta=beta, alpha=alpha)
    assert got.dtype == exact.dtype
    wrong = got.double().numpy() != exact.double().numpy()
    assert wrong.mean() < 0.02  # sums in float32 that lie halfway between two
    for one in given:
        one.requires_grad_()
    getattr(weft, name)(*given, beta=beta, alpha=alpha).sum().backward()
    assert [one.grad.dtype for one in given[1:]] == [exact.dtype] * 2
