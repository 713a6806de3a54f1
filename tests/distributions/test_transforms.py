"""Constraints, transforms and the registries between them against PyTorch's."""

import copy

import numpy as np
import pytest
from distribution_cases import assert_close, carried
from oracles import oracle

import weft

VALUES = {
    "numbers": [-1.5, 0.0, 0.3, 1.0, 2.0, 5.0, float("nan"), float("inf"), -3.0],
    "vectors": [[0.2, 0.8], [0.0, 1.0], [1.0, 1.0], [-0.5, 1.5], [2.0, 1.0], [0.5, 0.5]],
    "matrices": [
        [[1.0, 0.0], [0.6, 0.8]],
        [[2.0, 0.5], [0.5, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 0.0], [0.5, -1.0]],
        [[1.0, 0.5], [0.4, 1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
    ],
}
CONSTRAINTS = {
    "numbers": (
        "boolean nonnegative nonnegative_integer positive positive_integer real unit_interval greater_than(1.0) "
        "greater_than_eq(2.0) less_than(1.0) interval(-2.0,1.0) half_open_interval(0.0,1.0) integer_interval(0,2)"
    ),
    "vectors": "one_hot real_vector simplex multinomial(3) independent(positive,1)",
    "matrices": (
        "corr_cholesky lower_cholesky lower_triangular positive_definite positive_semidefinite square symmetric"
    ),
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind in CONSTRAINTS for text in CONSTRAINTS[kind].split()])
def test_constraints(kind, text):
    torch = oracle("torch")
    theirs, mine = (eval(text, dict(vars(module.distributions.constraints))) for module in (torch, weft))
    values = torch.tensor(VALUES[kind], dtype=torch.float64)
    assert mine.check(carried(values)).tolist() == theirs.check(values).tolist()
    assert repr(mine) == repr(theirs)
    assert (mine.is_discrete, mine.event_dim) == (theirs.is_discrete, theirs.event_dim)


def test_constraints_of_parts():
    torch = oracle("torch")
    found = []
    for module in (torch, weft):
        c = module.distributions.constraints
        x = module.tensor([[-1.0, 2.0], [0.5, 0.5], [2.0, -1.0]])
        cat = c.cat([c.positive, c.unit_interval], dim=0, lengths=[1, 2])
        stack = c.stack([c.positive, c.real, c.unit_interval], dim=0)
        found.append([cat.check(x).tolist(), stack.check(x).tolist(), cat.event_dim, stack.event_dim, repr(cat)])
        assert c.is_dependent(c.dependent)
        assert not c.is_dependent(c.real)
        assert c.dependent(is_discrete=True, event_dim=1).event_dim == 1
        with pytest.raises(NotImplementedError):
            c.dependent.event_dim
        with pytest.raises(ValueError, match="Cannot determine"):
            c.dependent.check(x)
    assert found[0] == found[1]


def _tensor(m, *values):
    return m.tensor(values, dtype=m.float64)


TRANSFORMS = {
    "abs": (lambda m, d: d.AbsTransform(), (4,)),
    "affine": (lambda m, d: d.AffineTransform(0.5, -2.0), (4,)),
    "affine tensors": (lambda m, d: d.AffineTransform(_tensor(m, 0.1, 0.2), _tensor(m, 0.5, -3.0)), (3, 2)),
    "affine events": (lambda m, d: d.AffineTransform(0.5, 2.0, event_dim=1), (3, 2)),
    "exp": (lambda m, d: d.ExpTransform(), (4,)),
    "log": (lambda m, d: d.ComposeTransform([d.ExpTransform(), d.ExpTransform().inv]), (4,)),
    "power": (lambda m, d: d.ComposeTransform([d.ExpTransform(), d.PowerTransform(_tensor(m, 2.0, -0.5))]), (3, 2)),
    "sigmoid": (lambda m, d: d.SigmoidTransform(), (4,)),
    "softplus": (lambda m, d: d.SoftplusTransform(), (4,)),
    "tanh": (lambda m, d: d.TanhTransform(), (4,)),
    "softmax": (lambda m, d: d.SoftmaxTransform(), (3, 4)),
    "stick": (lambda m, d: d.StickBreakingTransform(), (3, 4)),
    "corr": (lambda m, d: d.CorrCholeskyTransform(), (2, 6)),
    "lower": (lambda m, d: d.LowerCholeskyTransform(), (2, 3, 3)),
    "definite": (lambda m, d: d.PositiveDefiniteTransform(), (2, 3, 3)),
    "independent": (lambda m, d: d.IndependentTransform(d.ExpTransform(), 1), (3, 2)),
    "reshape": (lambda m, d: d.ReshapeTransform((2, 3), (6,)), (4, 2, 3)),
    "identity": (lambda m, d: d.identity_transform, (4,)),
    "composed": (lambda m, d: d.ComposeTransform([d.AffineTransform(0.1, 2.0), d.StickBreakingTransform()]), (3, 4)),
    "cat": (lambda m, d: d.CatTransform([d.ExpTransform(), d.AffineTransform(0.0, 3.0)], -1, [1, 3]), (3, 4)),
    "stack": (lambda m, d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 1), (3, 2)),
    "cdf": (lambda m, d: d.CumulativeDistributionTransform(d.Normal(_tensor(m, 0.3), _tensor(m, 1.5))), (4,)),
}


@pytest.mark.parametrize("cached", [0, 1])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name, cached):
    torch = oracle("torch")
    make, shape = TRANSFORMS[name]
    values = np.random.default_rng(3).normal(size=shape)
    results = []
    for module in (torch, weft):
        transform = make(module, module.distributions)
        if cached:
            transform = transform.with_cache(1)
        x = module.tensor(values.tolist(), dtype=module.float64, requires_grad=True)
        y = transform(x)
        back = transform.inv(y)
        try:
            slope = transform.log_abs_det_jacobian(x, y)
        except NotImplementedError:
            slope = None
        ((y * y).sum() + (0.0 if slope is None else (slope * slope).sum())).backward()
        results.append((transform, y, back, slope, x.grad))
    theirs, mine = results
    for left, right in zip(mine[1:], theirs[1:]):
        assert (left is None) == (right is None)
        if left is not None:
            assert_close(left, right, 1e-8)
    assert repr(mine[0]) == repr(theirs[0])
    assert mine[0].bijective == theirs[0].bijective
    assert repr(mine[0].domain) == repr(theirs[0].domain)
    assert repr(mine[0].codomain) == repr(theirs[0].codomain)
    assert tuple(mine[0].forward_shape(shape)) == tuple(theirs[0].forward_shape(shape))
    wide = mine[1].shape
    assert tuple(mine[0].inverse_shape(wide)) == tuple(theirs[0].inverse_shape(tuple(wide)))
    assert tuple(mine[0].inv.forward_shape(wide)) == tuple(mine[0].inverse_shape(wide))


def _sign(transform):
    try:
        found = transform.sign
    except NotImplementedError:
        return None
    return found if isinstance(found, (int, float)) else found.tolist()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_signs_and_equality(name):
    torch = oracle("torch")
    make, _ = TRANSFORMS[name]
    assert _sign(make(weft, weft.distributions)) == _sign(make(torch, torch.distributions))
    mine = make(weft, weft.distributions)
    assert mine == mine
    assert mine.inv.inv is mine
    others = [each(weft, weft.distributions) for title, (each, _) in TRANSFORMS.items() if title != name]
    assert all(mine != other for other in others)


def test_a_cache_gives_back_what_a_value_came_from():
    for kept in (0, 1):
        transform = weft.distributions.ExpTransform(cache_size=kept)
        x = weft.randn(3)
        assert (transform.inv(transform(x)) is x) == bool(kept)
    with pytest.raises(ValueError, match="0 or 1"):
        weft.distributions.ExpTransform(cache_size=2)
    assert copy.deepcopy(weft.distributions.ExpTransform().inv.inv)(weft.zeros(1)).item() == 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda d: d.ReshapeTransform((2,), (3,)),
        lambda d: d.ReshapeTransform((2,), (1, 2)).forward_shape((3,)),
        lambda d: d.CorrCholeskyTransform()(weft.zeros(4)),
        lambda d: d.StickBreakingTransform().forward_shape(()),
        lambda d: d.IndependentTransform(d.ExpTransform(), 2)(weft.zeros(3)),
        lambda d: d.StackTransform([d.ExpTransform()])(weft.zeros(3)),
        lambda d: d.ReshapeTransform((2,), (1, 2)).event_dim,
    ],
)
def test_misuse_of_transforms(call):
    with pytest.raises(ValueError, match=r".+"):
        call(weft.distributions)


REGISTERED = (
    "real positive nonnegative unit_interval simplex lower_cholesky positive_definite positive_semidefinite "
    "corr_cholesky greater_than(1.5) greater_than_eq(1.5) less_than(1.5) interval(-1.0,3.0) "
    "half_open_interval(2.0,3.0) real_vector independent(positive,1) cat([positive,real],-1,[1,3]) "
    "stack([positive,real],0)"
).split()
SHAPES = {"simplex": (2, 3), "corr_cholesky": (2, 6), "real_vector": (3, 4), "cat([positive,real],-1,[1,3])": (2, 4)}


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("text", REGISTERED)
def test_registries(text, registry):
    torch = oracle("torch")
    square = ("lower_cholesky", "positive_definite", "positive_semidefinite")
    if text in square and registry == "biject_to":  # upper triangles would be lost
        with pytest.raises(NotImplementedError):
            weft.distributions.biject_to(getattr(weft.distributions.constraints, text))
        return
    shape = SHAPES.get(text, (2, 3, 3) if text in square else (2, 3))
    values = np.random.default_rng(8).normal(size=shape)
    results = []
    for module in (torch, weft):
        constraint = eval(text, dict(vars(module.distributions.constraints)))
        transform = getattr(module.distributions, registry)(constraint)
        y = transform(module.tensor(values.tolist(), dtype=module.float64))
        assert bool(constraint.check(y).all())
        results.append((y, transform.inv(y), repr(transform)))
    assert_close(results[1][0], results[0][0], 1e-9)
    assert_close(results[1][1], results[0][1], 1e-8)
    if "positive" not in text and "negative" not in text:  # PyTorch adds a zero after the exponential
        assert results[1][2] == results[0][2]


def test_registries_take_more():
    class Even(weft.distributions.constraints.Constraint):
        pass

    d = weft.distributions
    with pytest.raises(NotImplementedError, match="Even"):
        d.biject_to(Even())

    @d.biject_to.register(Even)
    def _even(constraint):
        return d.AffineTransform(0, 2)

    assert d.biject_to(Even()).scale == 2
    with pytest.raises(TypeError):
        d.transform_to.register(int, _even)
