"""Every distribution against PyTorch's: densities, moments, draws and their gradients."""

import numpy as np
import pytest
from distribution_cases import CASES, SHAPE, assert_close, both, carried, made
from oracles import oracle

import weft

# Where PyTorch computes in float32, or by polynomials.
LOOSE = {"VonMises": 1e-6, "Multinomial": 1e-6, "Multinomial logits": 1e-6}
# PyTorch takes draws of Wishart's distribution that are fine for singular ones, and draws again; the mode of
# Kumaraswamy's distribution is NaN for it.
OTHER_DRAWS = ("Wishart", "Wishart factor", "Wishart inverse")
OTHER_MODE = "Kumaraswamy"
PROPERTIES = ("mean", "mode", "variance", "stddev")


@pytest.fixture(autouse=True)
def _wide_by_default():
    """float64: PyTorch's GeneralizedPareto compares its parameters with zeros of the default dtype."""
    _use("float64")
    yield
    _use("float32")


def _use(kind):
    for module in (oracle("torch"), weft):
        module.set_default_dtype(getattr(module, kind))


def _values(torch, title):
    """Draws of PyTorch's distribution, as values to ask about."""
    torch.manual_seed(len(title))
    return made(torch, title)[0].sample((4,)).detach()


def _backward(result, tensors):
    """The gradients of the sum of squares of a result; of triangular parameters only what is not above the diagonal."""
    (result * result).sum().backward()
    grads = [tensor.grad for tensor in tensors.values()]
    return [g.tril() if name == "scale_tril" and g is not None else g for name, g in zip(tensors, grads)]


def _compare_gradients(found, expected, tolerance):
    for left, right in zip(found, expected, strict=True):
        if left is None or right is None:
            nothing = [x is None or not np.any(x.numpy()) for x in (left, right)]
            assert all(nothing)
        else:
            assert_close(left, right, tolerance)


@pytest.mark.parametrize("title", CASES)
def test_log_prob(title):
    torch = oracle("torch")
    tolerance = LOOSE.get(title, 1e-8)
    values = _values(torch, title)
    discrete = made(torch, title)[0].support.is_discrete
    results = []
    for module, x in ((torch, values), (weft, carried(values))):
        distribution, tensors = made(module, title, grads=True)
        if not discrete:
            tensors["x"] = x = x.detach().requires_grad_()
        found = distribution.log_prob(x)
        results.append((found, _backward(found, tensors)))
    (expected, slopes), (found, mine) = results
    assert_close(found, expected, tolerance)
    _compare_gradients(mine, slopes, 10 * tolerance)


@pytest.mark.parametrize("title", CASES)
def test_moments_and_entropy(title):
    torch = oracle("torch")
    tolerance = LOOSE.get(title, 1e-8)
    compared = 0
    for name in (*PROPERTIES, "entropy", "perplexity"):
        if (title, name) == (OTHER_MODE, "mode"):
            continue
        results = []
        for module in (torch, weft):
            distribution, tensors = made(module, title, grads=True)
            try:
                found = getattr(distribution, name)
                found = found() if callable(found) else found
            except NotImplementedError:
                results.append(None)
                continue
            slopes = _backward(found, tensors) if found.requires_grad else []
            results.append((found, slopes))
        assert (results[0] is None) == (results[1] is None), name
        if results[0] is not None:
            compared += 1
            assert_close(results[1][0], results[0][0], tolerance)
            if not np.isnan(results[0][0].detach().numpy()).any():
                _compare_gradients(results[1][1], results[0][1], 10 * tolerance)
    assert compared or title in ("LKJCholesky", "LogisticNormal") or title.startswith("Relaxed")


def _has(distribution, name, value):
    try:
        getattr(distribution, name)(value)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("name", ["cdf", "icdf"])
@pytest.mark.parametrize("title", CASES)
def test_cdf_and_its_inverse(title, name):
    torch = oracle("torch")
    values = _values(torch, title)
    if name == "icdf":
        values = torch.tensor(np.random.default_rng(5).uniform(0.05, 0.95, size=values.shape))
    theirs, mine = both(torch, title)
    assert _has(mine, name, carried(values)) == _has(theirs, name, values)
    if not _has(theirs, name, values):
        return
    results = []
    for module, x in ((torch, values), (weft, carried(values))):
        distribution, tensors = made(module, title, grads=title not in ("Gamma", "Chi2", "InverseGamma"))
        tensors["x"] = x = x.detach().requires_grad_()
        found = getattr(distribution, name)(x)
        results.append((found, _backward(found, tensors)))
    assert_close(results[1][0], results[0][0], 1e-8)
    _compare_gradients(results[1][1], results[0][1], 1e-7)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("title", [title for title in CASES if title not in OTHER_DRAWS])
def test_draws_are_pytorchs(title, kind):
    torch = oracle("torch")
    _use(kind)
    theirs, mine = both(torch, title, kind=kind)
    tolerance = 1e-10 if kind == "float64" else 3e-5
    for shape in ((), (5,), (2, 3)):
        torch.manual_seed(11)
        weft.manual_seed(11)
        assert_close(mine.sample(shape), theirs.sample(shape), tolerance)
        if theirs.has_rsample:
            assert_close(mine.rsample(shape), theirs.rsample(shape), tolerance)
        assert weft.rand(1).item() == torch.rand(1).item()
    assert mine.has_rsample == theirs.has_rsample


@pytest.mark.parametrize("title", [title for title in CASES if title not in OTHER_DRAWS])
def test_gradients_of_draws(title):
    torch = oracle("torch")
    if not made(torch, title)[0].has_rsample:
        with pytest.raises(NotImplementedError):
            made(weft, title)[0].rsample()
        return
    # PyTorch's gradients of gamma and beta numbers are approximations; weft's are integrals.
    rough = title in ("Beta", "Dirichlet", "Gamma", "Chi2", "InverseGamma", "FisherSnedecor", "StudentT")
    results = []
    for module in (torch, weft):
        module.manual_seed(7)
        distribution, tensors = made(module, title, grads=True)
        found = distribution.rsample((3,))
        results.append(_backward(found, tensors))
    _compare_gradients(results[1], results[0], 5e-3 if rough else 1e-7)


@pytest.mark.parametrize("title", CASES)
def test_shapes_expand_and_text(title):
    torch = oracle("torch")
    theirs, mine = both(torch, title)
    assert (tuple(mine.batch_shape), tuple(mine.event_shape)) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    assert repr(mine) == repr(theirs).replace("torch.", "weft.")
    assert repr(mine.support) == repr(theirs.support).replace("torch.", "weft.")
    assert mine.has_enumerate_support == theirs.has_enumerate_support
    wide, wider = theirs.expand((5, *theirs.batch_shape)), mine.expand((5, *mine.batch_shape))
    torch.manual_seed(3)
    weft.manual_seed(3)
    values = wide.sample()
    drawn = wider.sample()
    assert tuple(drawn.shape) == tuple(values.shape)
    if title not in OTHER_DRAWS:
        assert_close(drawn, values, 1e-10)
    assert_close(wider.log_prob(carried(values)), wide.log_prob(values), LOOSE.get(title, 1e-8))
    assert tuple(wider.batch_shape) == (5, *theirs.batch_shape)
    assert type(wider) is type(mine)


@pytest.mark.parametrize("expand", [True, False])
@pytest.mark.parametrize("title", [title for title in CASES if title.startswith(("Bern", "Binom", "Categ", "OneHot"))])
def test_enumerated_supports(title, expand):
    theirs, mine = both(oracle("torch"), title)
    assert_close(mine.enumerate_support(expand), theirs.enumerate_support(expand))


@pytest.mark.parametrize("title", [title for title in CASES if not title.startswith("Relaxed")])
def test_wrong_parameters_are_refused(title):
    torch = oracle("torch")
    distribution, tensors = made(weft, title)
    for name, tensor in tensors.items():
        broken = {**tensors, name: tensor.detach() * float("nan")}
        with pytest.raises(ValueError, match=r"Expected|expected|invalid"):
            type(distribution)(**broken, **CASES[title][2])
    value = _values(torch, title).numpy()
    with pytest.raises(ValueError, match="Expected value argument"):
        distribution.log_prob(weft.from_numpy(value * np.nan) if value.dtype.kind == "f" else weft.tensor(99))
    with pytest.raises(ValueError, match="must be a Tensor"):
        distribution.log_prob(0.5)


def test_validation_can_be_switched_off():
    weft.distributions.Normal(0.0, -1.0, validate_args=False)
    weft.distributions.Distribution.set_default_validate_args(False)
    try:
        assert weft.distributions.Normal(0.0, -1.0).scale.item() == -1.0
    finally:
        weft.distributions.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError, match="True and False"):
        weft.distributions.Distribution.set_default_validate_args("yes")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Normal", (0.5, 2.0)),
        ("Gamma", (2.0, 3.0)),
        ("Bernoulli", (0.3,)),
        ("Uniform", (-1.0, 2.0)),
        ("Gumbel", (0.1, 0.7)),
        ("Beta", (2.0, 0.6)),
        ("StudentT", (3.0,)),
        ("Poisson", (3.0,)),
        ("HalfNormal", (2.0,)),
        ("Geometric", (0.4,)),
        ("LKJCholesky", (3, 1.5)),
        ("NegativeBinomial", (3, 0.4)),
    ],
)
def test_numbers_as_parameters(name, arguments):
    torch = oracle("torch")
    theirs, mine = getattr(torch.distributions, name)(*arguments), getattr(weft.distributions, name)(*arguments)
    assert repr(mine) == repr(theirs)
    assert tuple(mine.batch_shape) == ()
    torch.manual_seed(1)
    weft.manual_seed(1)
    values = theirs.sample((20,))
    assert_close(mine.sample((20,)), values, 1e-5)
    assert_close(mine.log_prob(carried(values)), theirs.log_prob(values), 1e-5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda d: d.Normal("a", 1.0), ValueError, "tensors or numbers"),
        (lambda d: d.Bernoulli(), ValueError, "Either `probs` or `logits`"),
        (lambda d: d.Bernoulli(0.2, 0.3), ValueError, "Either `probs` or `logits`"),
        (lambda d: d.Categorical(weft.tensor(1.0)), ValueError, "at least one-dimensional"),
        (lambda d: d.MultivariateNormal(weft.zeros(2)), ValueError, "Exactly one of"),
        (lambda d: d.Normal(weft.zeros(3), 1.0).log_prob(weft.ones(2)), ValueError, "not broadcastable"),
        (lambda d: d.Dirichlet(weft.ones(3)).log_prob(weft.ones(2)), ValueError, "right-most size"),
        (lambda d: d.Independent(d.Normal(0.0, 1.0), 1), ValueError, "reinterpreted_batch_ndims"),
        (lambda d: d.Uniform(1.0, 0.0), ValueError, "low"),
        (lambda d: d.Wishart(1.0, weft.eye(3)), ValueError, "df"),
        (lambda d: d.Multinomial(weft.ones(2), weft.ones(2)), NotImplementedError, "inhomogeneous"),
        (lambda d: d.Binomial(weft.tensor([1.0, 2.0]), weft.ones(2) / 2).entropy(), NotImplementedError, "Inhomog"),
        (lambda d: d.Poisson(1.0).rsample(), NotImplementedError, "Poisson"),
        (lambda d: d.LKJCholesky(1), ValueError, "dim"),
        (lambda d: d.Geometric(0.0), ValueError, "positive"),
    ],
)
def test_misuse(call, kind, message):
    with pytest.raises(kind, match=message):
        call(weft.distributions)


FAMILY = {"Bernoulli logits", "Beta", "ContinuousBernoulli logits", "Dirichlet", "Exponential", "Gamma", "Normal"}


@pytest.mark.parametrize("title", sorted(FAMILY | {"Wishart"}))
def test_entropies_follow_from_log_normalisers(title):
    distribution, _ = made(weft, title)
    found = weft.distributions.ExponentialFamily.entropy(distribution)
    np.testing.assert_allclose(found.detach().numpy(), distribution.entropy().numpy(), rtol=1e-6)


def test_draws_of_wisharts_distribution_have_gradients():
    """Of the factor, by differences of draws from one seed."""
    factor = weft.tensor([[1.2, 0.0], [0.4, 0.7]], dtype=weft.float64)

    def drawn(change):
        weft.manual_seed(4)
        return weft.distributions.Wishart(5.5, scale_tril=factor + change).rsample((3,))

    change = weft.zeros(2, 2, dtype=weft.float64, requires_grad=True)
    drawn(change).sum().backward()
    step = 1e-6
    for place in ((0, 0), (1, 0), (1, 1)):
        moved = weft.zeros(2, 2, dtype=weft.float64)
        moved[place] = step
        slope = (drawn(moved).sum() - drawn(-moved).sum()).item() / (2 * step)
        assert change.grad[place].item() == pytest.approx(slope, rel=1e-6)


def test_mode_of_kumaraswamys_distribution():
    mine, _ = made(weft, OTHER_MODE)
    grid = weft.linspace(0.0005, 0.9995, 1999, dtype=weft.float64)
    best = grid[mine.log_prob(grid.reshape(-1, 1, 1)).argmax(0)]
    inside = ~mine.mode.isnan()
    assert bool(inside.any())
    assert_close(mine.mode[inside], best[inside], 1e-3)


def test_gradients_of_gamma_and_beta_draws_are_exact():
    """Where a parameter moves a bit, draws move so that their quantile stays: compared with scipy's quantiles."""
    from scipy import stats

    rng = np.random.default_rng(0)
    step = 1e-6
    for distribution, frozen in (
        (weft.distributions.Gamma, lambda a: stats.gamma(a)),
        (weft.distributions.Beta, lambda a: stats.beta(a, 1.7)),
    ):
        a = rng.uniform(0.4, 20.0, size=200)
        tensor = weft.from_numpy(a).requires_grad_()
        second = 1.0 if distribution is weft.distributions.Gamma else 1.7
        x = distribution(tensor, second).rsample()
        x.sum().backward()
        quantile = frozen(a).cdf(x.detach().numpy())
        slope = (frozen(a + step).ppf(quantile) - frozen(a - step).ppf(quantile)) / (2 * step)
        middle = (quantile > 0.01) & (quantile < 0.99)
        np.testing.assert_allclose(tensor.grad.numpy()[middle], slope[middle], rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize(
    "title", ["Gamma", "Beta", "VonMises", "Binomial logits", "LKJCholesky", "Wishart", "StudentT"]
)
def test_draws_have_the_moments(title):
    count = 4000
    weft.manual_seed(2)
    distribution, _ = made(weft, title)
    small = distribution.expand((2, *SHAPE)) if title == "VonMises" else distribution
    drawn = small.sample((count,)).numpy()
    if title == "LKJCholesky":
        np.testing.assert_allclose((drawn @ drawn.swapaxes(-1, -2)).mean(0)[..., 1, 0], 0.0, atol=0.05)
        return
    if title == "VonMises":
        drawn = np.angle(np.exp(1j * (drawn - small.mean.numpy())))
        np.testing.assert_allclose(np.cos(drawn).mean(0), 1 - small.variance.numpy(), atol=0.06)
        return
    mean, deviation = small.mean.numpy(), small.stddev.numpy()
    assert np.all(np.abs(drawn.mean(0) - mean) < 6 * deviation / np.sqrt(count) + 1e-9)
