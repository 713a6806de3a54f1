"""KL divergences, by the classes of two distributions: KL(p || q) = E_p[log p(x) - log q(x)]."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from ..base.errors import InvalidType
from ..eager.tensor.tensor import Tensor
from .bernoulli import Bernoulli, Binomial, ContinuousBernoulli, Geometric
from .beta import Beta, Dirichlet
from .categorical import Categorical, OneHotCategorical
from .distribution import Distribution, ExponentialFamily
from .exponential import Exponential, Pareto
from .functions import (
    EULER,
    HALF_LOG_2PI,
    broadcast_shapes,
    full,
    log_beta,
    softplus,
    solve_triangular,
    sum_rightmost,
    where,
    xlogx,
)
from .gamma import Gamma
from .independent import Independent
from .laplace import Cauchy, Gumbel, Laplace
from .multivariate_normal import LowRankMultivariateNormal, MultivariateNormal, distance, log_diagonal
from .normal import HalfNormal, Normal
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform

Rule = Callable[[Any, Any], Tensor]
R = TypeVar("R", bound=Rule)
_REGISTRY: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type[Distribution], type_q: type[Distribution]) -> Callable[[R], R]:
    """A decorator that makes a function the rule for two classes and what inherits from them."""
    for kind in (type_p, type_q):
        if not isinstance(kind, type) or not issubclass(kind, Distribution):
            raise InvalidType(f"Expected a Distribution subclass but got {kind!r}")

    def add(rule: R) -> R:
        _REGISTRY[type_p, type_q] = rule
        _rule.cache_clear()
        return rule

    return add


@cache
def _rule(type_p: Any, type_q: Any) -> Rule | None:
    """The rule of the classes that are nearest: first by p, then by q; a warning if the other order says otherwise."""
    found = [(p, q) for p, q in _REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not found:
        return None
    far = {pair: (type_p.__mro__.index(pair[0]), type_q.__mro__.index(pair[1])) for pair in found}
    left = min(found, key=lambda pair: far[pair])
    right = min(found, key=lambda pair: far[pair][::-1])
    if _REGISTRY[left] is not _REGISTRY[right]:
        names = [f"{p.__name__}, {q.__name__}" for p, q in (left, right)]
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}): register_kl({names[0]}) or ({names[1]})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), by the rule for their classes.

    >>> from weft.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    kinds: tuple[Any, Any] = (type(p), type(q))
    rule = _rule(*kinds)
    if rule is None:
        names = f"{type(p).__name__} and {type(q).__name__}"
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {names.replace(' and ', ' and q type ')}")
    return rule(p, q)


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    """p has values that q has not."""
    return full(broadcast_shapes(p.batch_shape, q.batch_shape), math.inf)


# Both of one class.


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    success = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    failure = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    success = where(p.probs.eq(0), 0.0, where(q.probs.eq(0), math.inf, success))
    return success + where(p.probs.eq(1), 0.0, where(q.probs.eq(1), math.inf, failure))


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    a, b, c, d = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    slopes = (a - c) * a.digamma() + (b - d) * b.digamma() + (c + d - a - b) * (a + b).digamma()
    return log_beta(c, d) - log_beta(a, b) + slopes


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return where(p.total_count > q.total_count, math.inf, p.total_count * found)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    found = where(q.probs.eq(0), math.inf, p.probs * (p.logits - q.logits))
    return where(p.probs.expand(found.shape).eq(0), 0.0, found).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    constants = total.lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    return constants + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normaliser: F(q) - F(p) - <q - p, F'(p)>"""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"KL between exponential families of two kinds, {type(p).__name__} and {type(q).__name__}"
        )
    parameters, normaliser, slopes = p._bregman()
    others = q._natural_params
    found = q._log_normalizer(*others) - normaliser
    for mine, other, slope in zip(parameters, others, slopes):
        term = (other - mine) * slope
        found = found - sum_rightmost(term, term.ndim - found.ndim)
    return found


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    constants = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return constants + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return apart - ratio.log() + ratio * EULER + ((1 + ratio).lgamma() - apart).exp() - (1 + EULER)


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return apart / q.scale - ratio.log() + ratio * (-apart / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL between normal vectors of {p.event_shape[0]} and of {q.event_shape[0]} elements")
    mine, other = p.scale_tril, q.scale_tril
    trace = (solve_triangular(other, mine, upper=False) ** 2).sum((-2, -1))
    far = distance(other, q.loc - p.loc)
    return log_diagonal(other) - log_diagonal(mine) + 0.5 * (trace + far - p.event_shape[0])


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return where(p.scale < q.scale, math.inf, found)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError(
            f"KL between {type(p).__name__} and {type(q).__name__} whose transforms or events differ"
        )
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return where((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independents of other numbers of axes")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# Of two classes: the entropy of p and the mean of log q, which moments of p give.


def _each(*types: type[Distribution], q: type[Distribution]) -> Callable[[R], R]:
    def add(rule: R) -> R:
        for kind in types:
            register_kl(kind, q)(rule)
        return rule

    return add


def mean_log(p: Any) -> Tensor:
    """E[log x]"""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -EULER - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (xlogx(p.high) - xlogx(p.low)) / (p.high - p.low) - 1  # uniform


@_each(Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform, q=Normal)
def _to_normal(p: Distribution, q: Normal) -> Tensor:
    far = (p.variance + (p.mean - q.loc) ** 2) / q.scale**2
    return -p.entropy() + 0.5 * far + q.scale.log() + HALF_LOG_2PI


@_each(Beta, ContinuousBernoulli, Gamma, Pareto, Uniform, q=Exponential)
def _to_exponential(p: Distribution, q: Exponential) -> Tensor:
    found = -p.entropy() - q.rate.log() + q.rate * p.mean
    return where(p.low < 0, math.inf, found) if isinstance(p, Uniform) else found


@_each(Beta, Exponential, Pareto, Uniform, q=Gamma)
def _to_gamma(p: Distribution, q: Gamma) -> Tensor:
    a = q.concentration
    found = a.lgamma() - p.entropy() - a * q.rate.log() - (a - 1) * mean_log(p) + q.rate * p.mean
    return where(p.low < 0, math.inf, found) if isinstance(p, Uniform) else found


@_each(Beta, ContinuousBernoulli, q=Uniform)
def _to_uniform(p: Distribution, q: Uniform) -> Tensor:
    found = (q.high - q.low).log() - p.entropy()
    return where((q.high < 1) | (q.low > 0), math.inf, found)


@_each(Beta, Uniform, q=ContinuousBernoulli)
def _to_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    found = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._log_constant()
    return where((p.high > 1) | (p.low < 0), math.inf, found) if isinstance(p, Uniform) else found


def _mean_exp(p: Any, rate: Tensor) -> Tensor:
    """E[exp(-rate x)]"""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + rate)
    if isinstance(p, Gamma):
        return (-p.concentration * (rate / p.rate).log1p()).exp()
    if isinstance(p, Normal):
        return (0.5 * (rate * p.scale) ** 2 - rate * p.loc).exp()
    return ((-rate * p.low).exp() - (-rate * p.high).exp()) / (rate * (p.high - p.low))  # uniform


@_each(Exponential, Gamma, Normal, Uniform, q=Gumbel)
def _to_gumbel(p: Distribution, q: Gumbel) -> Tensor:
    rate = q.scale.reciprocal()
    tail = (q.loc * rate).exp() * _mean_exp(p, rate)
    return q.scale.log() - p.entropy() + (p.mean - q.loc) * rate + tail


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    apart = p.scale * (math.sqrt(2 / math.pi) * (-0.5 * z**2).exp() + z * (math.sqrt(0.5) * z).erf())
    return (2 * q.scale).log() - p.entropy() + apart / q.scale


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    low, high = 1 - p.high, 1 - p.low
    other = (xlogx(high) - xlogx(low)) / (high - low) - 1
    a, b = q.concentration1, q.concentration0
    found = log_beta(a, b) - p.entropy() - (a - 1) * mean_log(p) - (b - 1) * other
    return where((p.high > 1) | (p.low < 0), math.inf, found)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    found = (q.alpha + 1) * mean_log(p) - p.entropy() - q.alpha.log() - q.alpha * q.scale.log()
    return where(p.low < q.scale, math.inf, found)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.entropy() - p.probs * q.rate.log()


for _p, _qs in {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}.items():
    for _q in _qs:
        register_kl(_p, _q)(_infinite)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    mine, other = p._log_constant() + (-p.probs).log1p(), q._log_constant() + (-q.probs).log1p()
    return p.mean * (p.logits - q.logits) + mine - other
