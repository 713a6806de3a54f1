"""Independent, transformed and mixed distributions against PyTorch's, and divergences of all registered pairs."""

import numpy as np
import pytest
from distribution_cases import CASES, assert_close, carried, made
from oracles import oracle

import weft


def _mixture(m, component):
    rng = np.random.default_rng(4)
    weights = m.tensor(rng.uniform(0.3, 1.0, size=(2, 3)).tolist(), dtype=m.float64)
    loc = m.tensor(rng.normal(size=(2, 3)).tolist(), dtype=m.float64)
    scale = m.tensor(rng.uniform(0.5, 2.0, size=(2, 3)).tolist(), dtype=m.float64)
    d = m.distributions
    if component == "vectors":
        wide = m.tensor(rng.normal(size=(2, 3, 4)).tolist(), dtype=m.float64)
        return d.MixtureSameFamily(d.Categorical(weights), d.Independent(d.Normal(wide, scale[..., None]), 1))
    if component == "counts":
        return d.MixtureSameFamily(d.Categorical(logits=weights), d.Poisson(scale))
    return d.MixtureSameFamily(d.Categorical(weights), d.Normal(loc, scale))


def _base(m, *shape):
    rng = np.random.default_rng(9)
    loc, scale = rng.normal(size=shape).tolist(), rng.uniform(0.5, 1.5, size=shape).tolist()
    return m.distributions.Normal(m.tensor(loc, dtype=m.float64), m.tensor(scale, dtype=m.float64))


COMPOSED = {
    "independent": lambda m, d: d.Independent(_base(m, 4, 3, 2), 2),
    "independent of vectors": lambda m, d: d.Independent(made(m, "Dirichlet")[0], 1),
    "mixture": lambda m, d: _mixture(m, "numbers"),
    "mixture of vectors": lambda m, d: _mixture(m, "vectors"),
    "mixture of counts": lambda m, d: _mixture(m, "counts"),
    "exponential": lambda m, d: d.TransformedDistribution(_base(m, 3), [d.ExpTransform()]),
    "falling": lambda m, d: d.TransformedDistribution(
        _base(m, 3), [d.AffineTransform(0.3, -2.0), d.SigmoidTransform()]
    ),
    "tanh": lambda m, d: d.TransformedDistribution(_base(m, 3), [d.TanhTransform(), d.AffineTransform(1.0, 0.5)]),
    "stick": lambda m, d: d.TransformedDistribution(_base(m, 2, 3), d.StickBreakingTransform()),
    "shapes": lambda m, d: d.TransformedDistribution(
        d.Independent(_base(m, 2, 6), 1), [d.ReshapeTransform((6,), (2, 3)), d.ExpTransform()]
    ),
    "widened": lambda m, d: d.TransformedDistribution(
        d.Normal(m.zeros((), dtype=m.float64), m.ones((), dtype=m.float64)),
        d.AffineTransform(m.tensor([1.0, 2.0], dtype=m.float64), m.tensor([0.5, 3.0], dtype=m.float64)),
    ),
    "events of affine": lambda m, d: d.TransformedDistribution(
        _base(m, 2, 3), d.AffineTransform(0.3, 2.0, event_dim=1)
    ),
    "nothing": lambda m, d: d.TransformedDistribution(_base(m, 3), []),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_composed(name):
    torch = oracle("torch")
    theirs, mine = (COMPOSED[name](module, module.distributions) for module in (torch, weft))
    assert (tuple(mine.batch_shape), tuple(mine.event_shape)) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    torch.manual_seed(5)
    weft.manual_seed(5)
    values = theirs.sample((3,))
    assert_close(mine.sample((3,)), values, 1e-10)
    assert_close(mine.log_prob(carried(values)), theirs.log_prob(values), 1e-8)
    assert repr(mine.support).partition("(")[0] == repr(theirs.support).partition("(")[0]
    assert mine.support.event_dim == theirs.support.event_dim
    for property_ in ("mean", "variance", "entropy", "cdf"):
        answers = []
        for distribution, x in ((theirs, values), (mine, carried(values))):
            try:
                found = getattr(distribution, property_)
                answers.append(found(x) if property_ == "cdf" else found() if callable(found) else found)
            except NotImplementedError:
                answers.append(None)
        assert (answers[0] is None) == (answers[1] is None), property_
        if answers[0] is not None:
            assert_close(answers[1], answers[0], 1e-8)
    wide, wider = (x.expand((4, *x.batch_shape)) for x in (theirs, mine))
    values = wide.sample()
    assert_close(wider.log_prob(carried(values)), wide.log_prob(values), 1e-8)


def test_quantiles_of_falling_transforms():
    torch = oracle("torch")
    theirs, mine = (COMPOSED["falling"](module, module.distributions) for module in (torch, weft))
    p = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    assert_close(mine.icdf(carried(p)), theirs.icdf(p), 1e-9)
    assert_close(mine.cdf(mine.icdf(carried(p))), p, 1e-9)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda d: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(0.0, 1.0)), ValueError),
        (lambda d: d.MixtureSameFamily(d.Categorical(weft.ones(2)), 3), ValueError),
        (lambda d: d.MixtureSameFamily(d.Categorical(weft.ones(2)), d.Normal(weft.zeros(3), 1.0)), ValueError),
        (lambda d: d.MixtureSameFamily(d.Categorical(weft.ones(4, 2)), d.Normal(weft.zeros(3, 2), 1.0)), ValueError),
        (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]), TypeError),
        (lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()), ValueError),
        (lambda d: d.Independent(d.Bernoulli(weft.ones(2) / 2), 1).enumerate_support(), NotImplementedError),
    ],
)
def test_misuse_of_compositions(call, kind):
    with pytest.raises(kind):
        call(weft.distributions)


# One case for each class that a rule names; unbounded ones come with parameters that make rules finite.
OF_CLASS = {CASES[title][0]: title for title in reversed(CASES)}
OF_CLASS["TransformedDistribution"] = "LogNormal"


def _pairs():
    known = weft.distributions.kl._REGISTRY
    apart = {(name, name) for name in ("Independent", "ExponentialFamily")}
    return sorted({(p.__name__, q.__name__) for p, q in known} - apart)


def test_the_registered_pairs_are_pytorchs():
    theirs = oracle("torch").distributions.kl._KL_REGISTRY
    mine = weft.distributions.kl._REGISTRY
    assert {(p.__name__, q.__name__) for p, q in mine} == {(p.__name__, q.__name__) for p, q in theirs}


@pytest.mark.parametrize(("p", "q"), _pairs())
def test_divergences(p, q):
    torch = oracle("torch")
    results = []
    for module in (torch, weft):
        first, leaves = made(module, OF_CLASS[p], grads=True, seed=1)
        second, others = made(module, OF_CLASS[q], grads=True, seed=2)
        found = module.distributions.kl_divergence(first, second)
        slopes = []
        if found.requires_grad and bool(found.isfinite().all()):
            (found * found).sum().backward()
            slopes = [x.grad for x in (*leaves.values(), *others.values())]
        results.append((found, slopes))
    (expected, theirs), (found, mine) = results
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)
    for left, right in zip(mine, theirs, strict=True):
        assert (left is None) == (right is None) or not np.any((left if right is None else right).numpy())
        if left is not None and right is not None:
            assert_close(left, right, 1e-6)


SPECIAL = {
    ("Uniform", "Beta"): [((0.1, 0.7), (2.0, 3.0)), ((-1.0, 0.5), (2.0, 3.0))],
    ("Uniform", "ContinuousBernoulli"): [((0.2, 0.7), (0.3,))],
    ("Uniform", "Exponential"): [((0.2, 0.7), (0.3,)), ((-0.2, 0.7), (0.3,))],
    ("Uniform", "Gamma"): [((0.2, 0.7), (0.3, 2.0))],
    ("Uniform", "Pareto"): [((1.2, 2.7), (0.8, 2.0)), ((0.2, 2.7), (0.8, 2.0))],
    ("Uniform", "Uniform"): [((0.2, 0.7), (0.1, 2.0)), ((0.2, 0.7), (0.3, 2.0))],
    ("Pareto", "Pareto"): [((2.0, 1.5), (1.0, 2.0)), ((0.5, 1.5), (1.0, 2.0))],
    ("Pareto", "Normal"): [((2.0, 1.5), (1.0, 2.0)), ((0.5, 3.5), (1.0, 2.0))],
    ("Pareto", "Gamma"): [((2.0, 0.5), (1.0, 2.0))],
    ("Beta", "Uniform"): [((2.0, 0.5), (-1.0, 2.0)), ((2.0, 0.5), (0.1, 2.0))],
    ("Bernoulli", "Bernoulli"): [((0.0,), (0.3,)), ((0.3,), (0.0,)), ((1.0,), (1.0,))],
}


@pytest.mark.parametrize("pair", SPECIAL)
def test_divergences_where_supports_matter(pair):
    torch = oracle("torch")
    for arguments in SPECIAL[pair]:
        results = []
        for module in (torch, weft):
            p, q = (
                getattr(module.distributions, name)(*[module.tensor(x, dtype=module.float64) for x in given])
                for name, given in zip(pair, arguments)
            )
            results.append(module.distributions.kl_divergence(p, q).item())
        assert results[1] == pytest.approx(results[0], rel=1e-9)


def test_divergence_of_an_exponential_family():
    """Of Wishart's distribution: -H(p) - E_p[log q], by the means of S and of log |S|."""
    (p, _), (q, _) = (made(weft, "Wishart", seed=seed) for seed in (1, 2))
    n, m, side = p.df, q.df, p.event_shape[-1]
    log_p, log_q = p.covariance_matrix.logdet(), q.covariance_matrix.logdet()
    mean_log = side * np.log(2) + log_p + sum(((n - i) / 2).digamma() for i in range(side))
    trace = (q.precision_matrix @ p.covariance_matrix).diagonal(dim1=-2, dim2=-1).sum(-1)
    constant = m * side / 2 * np.log(2) + m / 2 * log_q + (m / 2).mvlgamma(side)
    expected = -p.entropy() - (m - side - 1) / 2 * mean_log + n * trace / 2 + constant
    found = weft.distributions.kl_divergence(p, q)
    np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=1e-9)


def test_divergence_of_independents():
    torch = oracle("torch")
    results = []
    for module in (torch, weft):
        d = module.distributions
        p, q = (d.Independent(made(module, "Gamma", seed=seed)[0], 1) for seed in (1, 2))
        results.append(d.kl_divergence(p, q))
        with pytest.raises(NotImplementedError):
            d.kl_divergence(p, d.Independent(made(module, "Gamma")[0], 2))
        with pytest.raises(NotImplementedError):
            d.kl_divergence(p, made(module, "Gamma")[0])
    assert_close(results[1], results[0], 1e-9)


def test_rules_of_the_users_own():
    d = weft.distributions

    class Odd(d.Normal):
        pass

    @d.register_kl(Odd, d.Normal)
    def _odd(p, q):
        return "odd"

    assert d.kl_divergence(Odd(0.0, 1.0), Odd(0.0, 1.0)) == "odd"
    assert d.kl_divergence(d.Normal(0.0, 1.0), Odd(0.0, 1.0)).item() == 0.0

    @d.register_kl(d.Normal, Odd)
    def _other(p, q):
        return "other"

    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        assert d.kl_divergence(Odd(0.0, 1.0), Odd(0.0, 1.0)) == "odd"
    with pytest.raises(TypeError):
        d.register_kl(int, Odd)
    for pair in ((Odd, d.Normal), (d.Normal, Odd)):
        del d.kl._REGISTRY[pair]
    d.kl._rule.cache_clear()
