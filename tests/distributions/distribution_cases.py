"""Distributions with random parameters, made alike by PyTorch and weft: what the tests of this folder compare."""

from __future__ import annotations

import numpy as np

import weft

SHAPE = (3, 2)
SIDE = 3


def _real(rng):
    return rng.normal(size=SHAPE)


def _positive(rng):
    return rng.gamma(3.0, 0.6, size=SHAPE) + 0.3


def _large(rng):
    return rng.uniform(4.5, 9.0, size=SHAPE)


def _probability(rng):
    return rng.uniform(0.1, 0.9, size=SHAPE)


def _small(rng):
    return rng.uniform(-0.3, 0.45, size=SHAPE)


def _weights(rng):
    return rng.uniform(0.2, 2.0, size=(*SHAPE, SIDE + 1))


def _vector(rng):
    return rng.normal(size=(*SHAPE, SIDE))


def _factor(rng):
    made = np.tril(rng.normal(size=(*SHAPE, SIDE, SIDE)), -1)
    return made + np.eye(SIDE) * rng.uniform(0.5, 1.5, size=(*SHAPE, 1, SIDE))


def _definite(rng):
    factor = _factor(rng)
    return factor @ np.swapaxes(factor, -1, -2)


def _columns(rng):
    return rng.normal(size=(*SHAPE, SIDE, 2))


def _diagonal(rng):
    return rng.uniform(0.5, 2.0, size=(*SHAPE, SIDE))


def _temperature(rng):
    return rng.uniform(0.5, 1.5, size=())


# By a title: the class, what its parameters are drawn by, and parameters that are no tensors.
CASES = {
    "Bernoulli probs": ("Bernoulli", {"probs": _probability}, {}),
    "Bernoulli logits": ("Bernoulli", {"logits": _real}, {}),
    "Beta": ("Beta", {"concentration1": _positive, "concentration0": _positive}, {}),
    "Binomial probs": ("Binomial", {"probs": _probability}, {"total_count": 7}),
    "Binomial logits": ("Binomial", {"logits": _real}, {"total_count": 40}),
    "Categorical probs": ("Categorical", {"probs": _weights}, {}),
    "Categorical logits": ("Categorical", {"logits": _vector}, {}),
    "Cauchy": ("Cauchy", {"loc": _real, "scale": _positive}, {}),
    "Chi2": ("Chi2", {"df": _positive}, {}),
    "ContinuousBernoulli probs": ("ContinuousBernoulli", {"probs": _probability}, {}),
    "ContinuousBernoulli logits": ("ContinuousBernoulli", {"logits": _real}, {}),
    "Dirichlet": ("Dirichlet", {"concentration": _weights}, {}),
    "Exponential": ("Exponential", {"rate": _positive}, {}),
    "FisherSnedecor": ("FisherSnedecor", {"df1": _positive, "df2": _large}, {}),
    "Gamma": ("Gamma", {"concentration": _positive, "rate": _positive}, {}),
    "GeneralizedPareto": ("GeneralizedPareto", {"loc": _real, "scale": _positive, "concentration": _small}, {}),
    "Geometric probs": ("Geometric", {"probs": _probability}, {}),
    "Geometric logits": ("Geometric", {"logits": _real}, {}),
    "Gumbel": ("Gumbel", {"loc": _real, "scale": _positive}, {}),
    "HalfCauchy": ("HalfCauchy", {"scale": _positive}, {}),
    "HalfNormal": ("HalfNormal", {"scale": _positive}, {}),
    "InverseGamma": ("InverseGamma", {"concentration": _positive, "rate": _positive}, {}),
    "Kumaraswamy": ("Kumaraswamy", {"concentration1": _positive, "concentration0": _positive}, {}),
    "LKJCholesky": ("LKJCholesky", {"concentration": _positive}, {"dim": 4}),
    "Laplace": ("Laplace", {"loc": _real, "scale": _positive}, {}),
    "LogNormal": ("LogNormal", {"loc": _real, "scale": _probability}, {}),
    "LogisticNormal": ("LogisticNormal", {"loc": _vector, "scale": _diagonal}, {}),
    "LowRankMultivariateNormal": (
        "LowRankMultivariateNormal",
        {"loc": _vector, "cov_factor": _columns, "cov_diag": _diagonal},
        {},
    ),
    "Multinomial": ("Multinomial", {"probs": _weights}, {"total_count": 6}),
    "Multinomial logits": ("Multinomial", {"logits": _vector}, {"total_count": 3}),
    "MultivariateNormal": ("MultivariateNormal", {"loc": _vector, "covariance_matrix": _definite}, {}),
    "MultivariateNormal factor": ("MultivariateNormal", {"loc": _vector, "scale_tril": _factor}, {}),
    "MultivariateNormal inverse": ("MultivariateNormal", {"loc": _vector, "precision_matrix": _definite}, {}),
    "NegativeBinomial probs": ("NegativeBinomial", {"total_count": _positive, "probs": _probability}, {}),
    "NegativeBinomial logits": ("NegativeBinomial", {"total_count": _positive, "logits": _real}, {}),
    "Normal": ("Normal", {"loc": _real, "scale": _positive}, {}),
    "OneHotCategorical": ("OneHotCategorical", {"probs": _weights}, {}),
    "OneHotCategoricalStraightThrough": ("OneHotCategoricalStraightThrough", {"logits": _vector}, {}),
    "Pareto": ("Pareto", {"scale": _positive, "alpha": _large}, {}),
    "Poisson": ("Poisson", {"rate": _large}, {}),
    "RelaxedBernoulli": ("RelaxedBernoulli", {"temperature": _temperature, "probs": _probability}, {}),
    "RelaxedBernoulli logits": ("RelaxedBernoulli", {"temperature": _temperature, "logits": _real}, {}),
    "RelaxedOneHotCategorical": ("RelaxedOneHotCategorical", {"temperature": _temperature, "probs": _weights}, {}),
    "StudentT": ("StudentT", {"df": _large, "loc": _real, "scale": _positive}, {}),
    "Uniform": ("Uniform", {"low": _real, "high": lambda rng: 4 + _real(rng)}, {}),
    "VonMises": ("VonMises", {"loc": _probability, "concentration": _positive}, {}),
    "Weibull": ("Weibull", {"scale": _positive, "concentration": _large}, {}),
    "Wishart": ("Wishart", {"df": _large, "covariance_matrix": _definite}, {}),
    "Wishart factor": ("Wishart", {"df": _large, "scale_tril": _factor}, {}),
    "Wishart inverse": ("Wishart", {"df": _large, "precision_matrix": _definite}, {}),
}


def parameters(title: str, seed: int = 0) -> dict[str, np.ndarray]:
    """The random parameters of a case, the same each time."""
    rng = np.random.default_rng([seed, *title.encode()])
    return {name: draw(rng) for name, draw in CASES[title][1].items()}


def made(module, title, grads=False, seed=0, kind="float64"):
    """A distribution of a case by PyTorch or weft, and its parameters as tensors."""
    tensors = {
        name: module.tensor(array.tolist(), dtype=getattr(module, kind), requires_grad=grads)
        for name, array in parameters(title, seed).items()
    }
    name, _, others = CASES[title]
    return getattr(module.distributions, name)(**tensors, **others), tensors


def both(torch, title, **options):
    """The same distribution by PyTorch and by weft."""
    return made(torch, title, **options)[0], made(weft, title, **options)[0]


def carried(value):
    """A tensor of PyTorch as one of weft."""
    return weft.from_numpy(value.detach().numpy().copy())


def assert_close(found, expected, tolerance=1e-9):
    """Tensors of weft and PyTorch of the same shape and values."""
    assert tuple(found.shape) == tuple(expected.shape)
    left, right = found.detach().numpy(), expected.detach().numpy()
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
