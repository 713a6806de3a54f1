"""vmap against torch.func.vmap: families of functions over several axes, nested, in chunks; randomness, writes,
misuse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracles import oracle

import weft

# name: (function of the system and batched tensors, shapes of one element of each, settings)
FAMILIES = {
    # element by element
    "neg": (lambda m, x: -x, [(3, 4)]),
    "exp": (lambda m, x: m.exp(x), [(3, 4)]),
    "log1p": (lambda m, x: m.log1p(x.abs()), [(3, 4)]),
    "sigmoid": (lambda m, x: m.sigmoid(x), [(5,)]),
    "erf": (lambda m, x: m.erf(x), [(5,)]),
    "clamp": (lambda m, x: x.clamp(-0.5, 0.5), [(5,)]),
    "pow": (lambda m, x: x**3, [(5,)]),
    "gelu": (lambda m, x: m.nn.functional.gelu(x), [(4, 5)]),
    "silu": (lambda m, x: m.nn.functional.silu(x), [(4, 5)]),
    "leaky_relu": (lambda m, x: m.nn.functional.leaky_relu(x, 0.2), [(4, 5)]),
    "softplus": (lambda m, x: m.nn.functional.softplus(x), [(4, 5)]),
    "nan_to_num": (lambda m, x: m.nan_to_num(x / 0), [(4,)]),
    "isfinite": (lambda m, x: m.isfinite(x), [(4,)]),
    "round": (lambda m, x: x.round(), [()]),
    "to": (lambda m, x: x.to(m.float64), [(3,)]),
    "int": (lambda m, x: (x * 10).int() // 3, [(3,)]),
    "clone": (lambda m, x: x.clone() * 2, [(3, 2)]),
    "zeros_like": (lambda m, x: m.zeros_like(x) + x, [(3, 2)]),
    # two that broadcast
    "add": (lambda m, x, y: x + y, [(3, 4), (3, 4)]),
    "add of ranks": (lambda m, x, y: x + y, [(3, 4), (4,)]),
    "sub of numbers": (lambda m, x, y: x - y, [(), (2, 3)]),
    "mul outer": (lambda m, x, y: x[:, None] * y, [(3,), (4,)]),
    "div": (lambda m, x, y: x / (y.abs() + 1), [(3, 4), (1, 4)]),
    "maximum": (lambda m, x, y: m.maximum(x, y), [(3,), (2, 3)]),
    "atan2": (lambda m, x, y: m.atan2(x, y), [(3,), (3,)]),
    "where": (lambda m, x, y: m.where(x > 0, x, y), [(3, 4), (4,)]),
    "eq": (lambda m, x, y: x.round() == y.round(), [(3,), (3,)]),
    "fmod": (lambda m, x, y: m.fmod(x, y), [(3,), ()]),
    "lerp": (lambda m, x, y: m.lerp(x, y, 0.25), [(3,), (3,)]),
    "addcmul": (lambda m, x, y: m.addcmul(x, x, y, value=0.5), [(3,), (3,)]),
    # reductions
    "sum": (lambda m, x: x.sum(), [(3, 4)]),
    "sum dim": (lambda m, x: x.sum(0), [(3, 4)]),
    "sum dims": (lambda m, x: x.sum((0, -1), keepdim=True), [(3, 4, 2)]),
    "sum of a number": (lambda m, x: x.sum(), [()]),
    "mean": (lambda m, x: x.mean(-1), [(3, 4)]),
    "prod": (lambda m, x: x.prod(1), [(3, 4)]),
    "max": (lambda m, x: x.max(), [(3, 4)]),
    "max dim": (lambda m, x: tuple(x.max(1)), [(3, 4)]),
    "min dim": (lambda m, x: tuple(x.min(0)), [(3, 4)]),
    "amax": (lambda m, x: x.amax((0, 1)), [(3, 4)]),
    "argmax": (lambda m, x: x.argmax(1), [(3, 4)]),
    "argmin of all": (lambda m, x: x.argmin(), [(3, 4)]),
    "var": (lambda m, x: x.var(0), [(3, 4)]),
    "std": (lambda m, x: x.std(), [(3, 4)]),
    "norm": (lambda m, x: x.norm(), [(3, 4)]),
    "vector_norm": (lambda m, x: m.linalg.vector_norm(x, 3, dim=1), [(3, 4)]),
    "logsumexp": (lambda m, x: x.logsumexp(0), [(3, 4)]),
    "all": (lambda m, x: (x > -1).all(0), [(3, 4)]),
    "any": (lambda m, x: (x > 1).any(), [(3, 4)]),
    "cumsum": (lambda m, x: x.cumsum(1), [(3, 4)]),
    "cumprod": (lambda m, x: x.cumprod(0), [(3, 4)]),
    "median": (lambda m, x: x.median(), [(3, 5)]),
    "quantile": (lambda m, x: x.quantile(0.5), [(5,)]),
    # shapes
    "reshape": (lambda m, x: x.reshape(4, 3), [(3, 4)]),
    "reshape of a turned one": (lambda m, x: x.t().reshape(-1), [(3, 4)]),
    "view": (lambda m, x: x.view(-1), [(3, 4)]),
    "flatten": (lambda m, x: x.flatten(1), [(2, 3, 4)]),
    "permute": (lambda m, x: x.permute(2, 0, 1), [(2, 3, 4)]),
    "transpose": (lambda m, x: x.transpose(0, -1), [(2, 3, 4)]),
    "squeeze": (lambda m, x: x.squeeze(1), [(3, 1, 2)]),
    "unsqueeze": (lambda m, x: x.unsqueeze(-1), [(3, 2)]),
    "expand": (lambda m, x: x.expand(2, 3, 4), [(3, 1)]),
    "cat": (lambda m, x, y: m.cat([x, y], 1), [(3, 4), (3, 2)]),
    "stack": (lambda m, x, y: m.stack([x, y], 1), [(3, 4), (3, 4)]),
    "split": (lambda m, x: tuple(x.split(2)), [(5, 2)]),
    "chunk": (lambda m, x: tuple(x.chunk(2, 1)), [(2, 5)]),
    "unbind": (lambda m, x: tuple(x.unbind(1)), [(2, 3)]),
    "flip": (lambda m, x: x.flip(0), [(3, 2)]),
    "roll": (lambda m, x: x.roll(1, 1), [(3, 4)]),
    "tile": (lambda m, x: m.tile(x, (2, 1)), [(3,)]),
    "repeat": (lambda m, x: x.repeat(2, 3), [(2, 2)]),
    "pad": (lambda m, x: m.nn.functional.pad(x, (1, 2)), [(3, 4)]),
    "tril": (lambda m, x: x.tril(), [(4, 4)]),
    "diagonal": (lambda m, x: x.diagonal(), [(4, 4)]),
    "unfold": (lambda m, x: x.unfold(0, 3, 1), [(6,)]),
    "movedim": (lambda m, x: x.movedim(0, 2), [(2, 3, 4)]),
    # indices
    "x[i]": (lambda m, x: x[1], [(3, 4)]),
    "x[a:b]": (lambda m, x: x[1:, ::2], [(3, 4)]),
    "x[..., None]": (lambda m, x: x[..., None, 0], [(3, 4)]),
    "x[tensor]": (lambda m, x: x[m.tensor([2, 0, 2])], [(3, 4)]),
    "x[batch of indices]": (lambda m, x, y: x[_places(m, y, 3)], [(3, 4), (2,)]),
    "x[two batches of indices]": (lambda m, x, y: x[_places(m, y, 3), _places(m, y, 2)], [(3, 4), (2,)]),
    "index_select": (lambda m, x: x.index_select(1, m.tensor([0, 0, 3])), [(3, 4)]),
    "gather": (lambda m, x, y: x.gather(0, _places(m, y, 3)), [(3, 4), (2, 4)]),
    "take_along_dim": (lambda m, x: m.take_along_dim(x, x.argsort(1), 1), [(3, 4)]),
    "scatter": (lambda m, x, y: x.scatter(0, _places(m, y, 3), 1.5), [(3, 4), (2, 4)]),
    "scatter_add": (lambda m, x, y: x.scatter_add(0, _places(m, y, 3), y), [(3, 4), (2, 4)]),
    "index_add": (lambda m, x, y: x.index_add(0, m.tensor([0, 2]), y), [(3, 4), (2, 4)]),
    "masked_fill": (lambda m, x: x.masked_fill(x > 0, 0.5), [(3, 4)]),
    "sort": (lambda m, x: tuple(x.sort(0)), [(5, 2)]),
    "topk": (lambda m, x: tuple(x.topk(2)), [(3, 5)]),
    "argsort": (lambda m, x: x.argsort(), [(3, 5)]),
    "embedding": (lambda m, x, w: m.nn.functional.embedding(_places(m, x, 4), w), [(3,), (4, 2)]),
    "one_hot": (lambda m, x: m.nn.functional.one_hot(_places(m, x, 4).long(), 4), [(3,)]),
    # products
    "dot": (lambda m, x, y: m.dot(x, y), [(4,), (4,)]),
    "mv": (lambda m, x, y: m.mv(x, y), [(3, 4), (4,)]),
    "mm": (lambda m, x, y: m.mm(x, y), [(3, 4), (4, 2)]),
    "bmm": (lambda m, x, y: m.bmm(x, y), [(2, 3, 4), (2, 4, 2)]),
    "matmul": (lambda m, x, y: x @ y, [(2, 3, 4), (4, 2)]),
    "outer": (lambda m, x, y: m.outer(x, y), [(3,), (4,)]),
    "einsum": (lambda m, x, y: m.einsum("ij,kj->ik", x, y), [(3, 4), (2, 4)]),
    "linear": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), [(3, 4), (2, 4), (2,)]),
    "addmm": (lambda m, x, y: m.addmm(m.ones(2), x, y), [(3, 4), (4, 2)]),
    "tensordot": (lambda m, x, y: m.tensordot(x, y, 2), [(2, 3, 4), (3, 4, 2)]),
    "det": (lambda m, x: m.linalg.det(x), [(3, 3)]),
    "inv": (lambda m, x: m.linalg.inv(x + 3 * m.eye(3)), [(3, 3)]),
    "solve": (lambda m, x, y: m.linalg.solve(x + 3 * m.eye(3), y), [(3, 3), (3, 2)]),
    "cholesky": (lambda m, x: m.linalg.cholesky(x @ x.mT + m.eye(3)), [(3, 3)]),
    "svdvals": (lambda m, x: m.linalg.svdvals(x), [(3, 4)]),
    "matrix_exp": (lambda m, x: m.matrix_exp(x), [(3, 3)]),
    "fft": (lambda m, x: m.fft.rfft(x).abs(), [(8,)]),
    # layers
    "softmax": (lambda m, x: m.softmax(x, 0), [(3, 4)]),
    "log_softmax": (lambda m, x: m.log_softmax(x, -1), [(3, 4)]),
    "conv1d": (lambda m, x, w: m.nn.functional.conv1d(x, w), [(2, 3, 8), (4, 3, 3)]),
    "conv2d": (lambda m, x, w: m.nn.functional.conv2d(x, w, padding=1), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "conv2d of groups": (lambda m, x, w: m.nn.functional.conv2d(x, w, groups=2), [(2, 4, 6, 6), (4, 2, 3, 3)]),
    "conv2d of one image": (lambda m, x, w, b: m.nn.functional.conv2d(x, w, b), [(3, 6, 6), (4, 3, 3, 3), (4,)]),
    "conv_transpose2d": (lambda m, x, w: m.nn.functional.conv_transpose2d(x, w), [(2, 3, 4, 4), (3, 2, 3, 3)]),
    "max_pool2d": (lambda m, x: m.nn.functional.max_pool2d(x, 2), [(2, 3, 6, 6)]),
    "avg_pool2d": (lambda m, x: m.nn.functional.avg_pool2d(x, 2), [(3, 6, 6)]),
    "adaptive_avg_pool2d": (lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, 2), [(2, 3, 5, 5)]),
    "interpolate": (lambda m, x: m.nn.functional.interpolate(x, scale_factor=2), [(2, 3, 4, 4)]),
    "layer_norm": (lambda m, x, w, b: m.nn.functional.layer_norm(x, (4,), w, b), [(3, 4), (4,), (4,)]),
    "group_norm": (lambda m, x, w: m.nn.functional.group_norm(x, 2, w), [(2, 4, 3), (4,)]),
    "instance_norm": (lambda m, x: m.nn.functional.instance_norm(x), [(2, 4, 3)]),
    "batch_norm": (lambda m, x: m.nn.functional.batch_norm(x, None, None, training=True), [(4, 3)]),
    "normalize": (lambda m, x: m.nn.functional.normalize(x, dim=0), [(3, 4)]),
    "attention": (lambda m, *x: m.nn.functional.scaled_dot_product_attention(*x), [(2, 3, 4)] * 3),
    "cosine_similarity": (lambda m, x, y: m.nn.functional.cosine_similarity(x, y, 0), [(4,), (4,)]),
    # losses
    "mse_loss": (lambda m, x, y: m.nn.functional.mse_loss(x, y), [(3, 4), (3, 4)]),
    "cross_entropy": (lambda m, x, y: m.nn.functional.cross_entropy(x, _places(m, y, 4)), [(3, 4), (3,)]),
    "cross_entropy of one": (lambda m, x, y: m.nn.functional.cross_entropy(x, _places(m, y, 4)), [(4,), ()]),
    "nll_loss": (
        lambda m, x, y: m.nn.functional.nll_loss(m.log_softmax(x, 1), _places(m, y, 4), reduction="none"),
        [(3, 4), (3,)],
    ),
    "smoothed": (
        lambda m, x, y: m.nn.functional.cross_entropy(x, _places(m, y, 4), label_smoothing=0.1, reduction="sum"),
        [(3, 4), (3,)],
    ),
    "binary_cross_entropy": (
        lambda m, x, y: m.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        [(3,), (3,)],
    ),
    "huber_loss": (lambda m, x, y: m.nn.functional.huber_loss(x, y), [(3,), (3,)]),
    # whole programs
    "in place": (lambda m, x: x.clone().mul_(2).add_(x).clamp_(min=0), [(3, 4)]),
    "writes to a view": (lambda m, x: _written(m, x), [(3, 4)]),
    "a loop": (lambda m, x: sum((row * i for i, row in enumerate(x)), x[0]), [(3, 4)]),
    "a step of Newton": (lambda m, x: x - m.linalg.solve(x @ x.mT + m.eye(3), x), [(3, 3)]),
}


def _places(m, x, size):
    """Whole numbers below a size, from floats."""
    return (x.abs() * 100).to(m.int64) % size


def _written(m, x):
    y = x.clone()
    y[0] = x[1] * 2
    y[:, 1] += 3
    return y


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


def _same(ours, theirs):
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            _same(one, other)
        return
    want = theirs.detach().numpy()
    assert ours.shape == want.shape
    assert ours.numpy().dtype == want.dtype
    np.testing.assert_allclose(ours.detach().numpy(), want, rtol=2e-4, atol=2e-5)


def _both(torch, random, shape):
    array = random.standard_normal(shape).astype(np.float32)
    return weft.tensor(array), torch.tensor(array)


AXES = ["first", "last", "some"]  # which axis of the arguments is mapped; "some": not of all


@pytest.mark.parametrize(
    ("name", "axes"),
    [(name, axes) for name, (_, shapes) in FAMILIES.items() for axes in AXES if axes != "some" or len(shapes) > 1],
)
def test_family(torch, name, axes):
    function, shapes = FAMILIES[name]
    random = np.random.default_rng([len(name), AXES.index(axes)])
    dims = [{"first": 0, "last": len(shape), "some": 0 if at == 0 else None}[axes] for at, shape in enumerate(shapes)]
    pairs = []
    for shape, dim in zip(shapes, dims):
        whole = shape if dim is None else (*shape[:dim], 3, *shape[dim:])
        pairs.append(_both(torch, random, whole))
    ours, theirs = zip(*pairs)
    with warnings.catch_warnings(action="ignore"):
        made = weft.vmap(lambda *x: function(weft, *x), in_dims=tuple(dims))(*ours)
        want = torch.vmap(lambda *x: function(torch, *x), in_dims=tuple(dims))(*theirs)
    _same(made, want)


def test_the_table_is_large():
    assert len(FAMILIES) >= 100


NESTED = [name for name in FAMILIES if "median" not in name and "svdvals" not in name]


@pytest.mark.parametrize("name", NESTED)
def test_nested(torch, name):
    """A batch of batches; the inner one is an axis behind the elements."""
    function, shapes = FAMILIES[name]
    random = np.random.default_rng(len(name))
    ours, theirs = zip(*[_both(torch, random, (2, *shape, 3)) for shape in shapes])

    def nested(m, vmap):
        inner = vmap(lambda *x: function(m, *x), in_dims=-1, out_dims=-1)
        return vmap(inner, out_dims=0)

    with warnings.catch_warnings(action="ignore"):
        _same(nested(weft, weft.vmap)(*ours), nested(torch, torch.vmap)(*theirs))


@pytest.mark.parametrize("out_dims", [0, 1, -1, 2])
def test_where_the_axis_comes_out(torch, out_dims):
    ours, theirs = _both(torch, np.random.default_rng(0), (3, 2, 4))
    _same(weft.vmap(lambda x: x * 2, out_dims=out_dims)(ours), torch.vmap(lambda x: x * 2, out_dims=out_dims)(theirs))


def test_containers_of_arguments_and_results(torch):
    random = np.random.default_rng(1)
    (a, ta), (b, tb) = (_both(torch, random, shape) for shape in ((3, 2), (2, 3)))

    def function(tree, number):
        return {"sum": tree["a"] + tree["b"][0] * number, "none": (tree["a"],)}

    dims, outs = ({"a": 0, "b": [1]}, None), {"sum": 1, "none": 0}
    made = weft.vmap(function, dims, outs)({"a": a, "b": [b]}, 2.0)
    want = torch.vmap(function, dims, outs)({"a": ta, "b": [tb]}, 2.0)
    _same(made["sum"], want["sum"])
    _same(made["none"], want["none"])


def test_keywords_are_for_all(torch):
    random = np.random.default_rng(2)
    (a, ta), (b, tb) = (_both(torch, random, (3, 2)) for _ in range(2))
    _same(weft.vmap(lambda x, y: x * y)(a, y=b), torch.vmap(lambda x, y: x * y)(ta, y=tb))


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_chunks(torch, chunk):
    ours, theirs = _both(torch, np.random.default_rng(3), (4, 7))
    made = weft.vmap(lambda x: (x.sum(), x * x), in_dims=1, out_dims=(0, 1), chunk_size=chunk)(ours)
    _same(made, torch.vmap(lambda x: (x.sum(), x * x), in_dims=1, out_dims=(0, 1))(theirs))


def test_what_is_not_batched_is_the_same_for_all():
    made = weft.vmap(lambda x: weft.arange(2))(weft.zeros(3))
    assert made.tolist() == [[0, 1]] * 3
    assert weft.vmap(lambda x: (x, 5), out_dims=(0, None))(weft.zeros(3))[1] == 5


# What has no rule.


def test_an_operator_without_a_rule_runs_for_each_element_and_says_so_once():
    op = weft.Op.register("twice_for_batches").set_num_inputs(1)
    if not weft.Op.reference.contains(op):
        op.shape = lambda params, ins, outs: (ins, ins)
        op.reference = lambda x: x * 2
        op.gradient = lambda ctx, g: [g * 2]
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.warns(UserWarning, match="no batching rule for twice_for_batches"):
        made = weft.vmap(weft.twice_for_batches)(x)
    assert made.tolist() == [[2, 4], [6, 8]]
    with warnings.catch_warnings(action="error"):
        slopes = weft.vmap(weft.func.grad(lambda x: weft.twice_for_batches(x).sum()))(x)
    assert slopes.tolist() == [[2, 2], [2, 2]]
    op.batching = lambda call: [call.inputs[0] * 2]
    assert weft.vmap(weft.twice_for_batches)(x).tolist() == [[2, 4], [6, 8]]


def test_results_whose_shape_depends_on_values_are_refused():
    with pytest.raises(RuntimeError, match="dynamic shape"):
        weft.vmap(lambda x: x.nonzero())(weft.tensor([[1.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: bool(x),
        lambda x: float(x),
        lambda x: x if x > 0 else -x,
        lambda x: x.numpy(),
        lambda x: x.tolist(),
    ],
)
def test_elements_of_a_batch_are_not_read(read):
    with pytest.raises(RuntimeError, match=r"calling \.item\(\)|data-dependent control flow"):
        weft.vmap(read)(weft.ones(3))


# Random numbers.


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: weft.rand(2) + x,
        lambda x: weft.randn_like(x),
        lambda x: weft.bernoulli(x.sigmoid()),
        lambda x: weft.nn.functional.dropout(x, 0.5),
        lambda x: x.clone().uniform_(),
        lambda x: weft.nn.functional.rrelu(x, training=True),
    ],
)
def test_random_functions_say_what_they_do(draw):
    x = -weft.ones(64, 2)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        weft.vmap(draw)(x)
    same = weft.vmap(draw, randomness="same")(x)
    assert (same == same[0]).all()
    different = weft.vmap(draw, randomness="different")(x)
    assert different.shape == (64, 2)
    assert not (different == different[0]).all()


def test_the_same_numbers_are_those_of_one_call():
    weft.manual_seed(4)
    want = weft.rand(3)
    following = weft.rand(1)
    weft.manual_seed(4)
    made = weft.vmap(lambda x: weft.rand(3) + x, randomness="same")(weft.zeros(5))
    assert (made == want).all()
    assert (weft.rand(1) == following).all()


# Writes.


def test_a_batch_cannot_be_written_to_what_is_not_batched():
    outside = weft.zeros(2)
    for write in (lambda x: outside.add_(x), lambda x: outside.copy_(x), lambda x: outside.__setitem__(0, x[0])):
        with pytest.raises(RuntimeError, match="inplace arithmetic"):
            weft.vmap(write)(weft.ones(3, 2))
    assert outside.tolist() == [0, 0]


def test_writes_reach_what_was_given(torch):
    ours, theirs = _both(torch, np.random.default_rng(5), (3, 4))

    def function(x):
        x[1:] *= 2
        x.add_(1)
        return x[0]

    _same(weft.vmap(function)(ours), torch.vmap(function)(theirs))
    _same(ours, theirs)


@pytest.mark.parametrize("inside", [True, False])
def test_writes_at_indices_of_a_batch_are_followed(torch, inside):
    ours, theirs = _both(torch, np.random.default_rng(6), (3, 4))
    places = [0, 3, 1]

    def written(m, x, i):
        y = x * 1
        y[i] = x[0] * 5
        y[y > 1] = 0.25
        return (y**2).sum()

    def slopes(m, x):
        i = m.tensor(places)
        if inside:
            return m.vmap(m.func.grad(lambda x, i: written(m, x, i)))(x, i)
        return m.func.grad(lambda x: m.vmap(lambda x, i: written(m, x, i))(x, i).sum())(x)

    made = slopes(weft, ours)
    want = weft.stack([weft.func.grad(lambda x: written(weft, x, at))(row) for row, at in zip(ours, places)])  # noqa: B023
    np.testing.assert_allclose(made.numpy(), want.numpy(), rtol=1e-5)
    one_by_one = [torch.func.grad(lambda x: written(torch, x, at))(row) for row, at in zip(theirs, places)]  # noqa: B023
    _same(made, torch.stack(one_by_one))


def test_running_moments_of_one_module_are_not_moved_by_a_batch():
    norm = weft.nn.BatchNorm1d(2)
    with pytest.raises(RuntimeError, match=r"running_mean or running_var.*not batched"):
        weft.vmap(norm)(weft.randn(3, 4, 2))
    assert norm.running_mean.tolist() == [0, 0]
    assert weft.vmap(norm.eval())(weft.randn(3, 4, 2)).shape == (3, 4, 2)


def test_a_batched_tensor_shows_all_of_it():
    shown = []
    weft.vmap(lambda x: (shown.append(repr(x)), x)[1])(weft.tensor([1.0, 2.0]))
    assert "BatchedTensor" in shown[0]
    assert "tensor([1., 2.])" in shown[0]


# Misuse: each gives an error of PyTorch's kind.

X = (3, 2)
WRONG = {
    "no inputs": (lambda m: m.vmap(lambda: 0)(), "got no inputs"),
    "a number": (lambda m: m.vmap(lambda x: x)(3), "cannot vmap over non-Tensor"),
    "nothing is mapped": (lambda m: m.vmap(lambda x: x, in_dims=None)(m.ones(X)), "in_dims"),
    "all None": (lambda m: m.vmap(lambda x: x, in_dims=(None,))(m.ones(X)), "at least one Tensor"),
    "sizes": (lambda m: m.vmap(m.add)(m.ones(3), m.ones(4)), "same size in the mapped dimension"),
    "in_dims too few": (lambda m: m.vmap(m.add, in_dims=(0,))(m.ones(3), m.ones(3)), "not compatible"),
    "in_dims a text": (lambda m: m.vmap(lambda x: x, in_dims="0")(m.ones(3)), "in_dims"),
    "in_dims out of range": (lambda m: m.vmap(lambda x: x, in_dims=2)(m.ones(X)), "dimensionality 2"),
    "out_dims out of range": (lambda m: m.vmap(lambda x: x, out_dims=3)(m.ones(X)), "Dimension out of range"),
    "out_dims too many": (lambda m: m.vmap(lambda x: x, out_dims=(0, 0))(m.ones(X)), "not compatible"),
    "gives a number": (lambda m: m.vmap(lambda x: 3)(m.ones(X)), "must only return Tensors"),
    "gives None": (lambda m: m.vmap(lambda x: None)(m.ones(X)), "must only return Tensors"),
    "out_dims None": (lambda m: m.vmap(lambda x: x, out_dims=None)(m.ones(X)), "out_dim is None"),
    "randomness": (lambda m: m.vmap(lambda x: x, randomness="any")(m.ones(X)), "randomness"),
    "chunk_size": (lambda m: m.vmap(lambda x: x, chunk_size=0)(m.ones(X)), "chunk_size"),
}


@pytest.mark.parametrize("name", WRONG)
def test_misuse(torch, name):
    call, message = WRONG[name]
    with pytest.raises(Exception) as theirs:
        call(torch)
    kind = next(kind for kind in type(theirs.value).__mro__ if kind.__module__ == "builtins")
    with pytest.raises(kind, match=message):
        call(weft)
    assert weft.vmap(lambda x: x)(weft.ones(2)).tolist() == [1, 1]  # no level is left behind
