"""`weft.compile` of functions: a table of functions whose compiled calls give what the functions give as they are:
values, gradients, what they write; and what PyTorch gives for the same text."""

import warnings

import numpy as np
import pytest
from oracles import oracle

import weft


@pytest.fixture
def rng():
    return np.random.default_rng(7)


SIZES = [(2, 3), (4, 6), (5, 8)]


def _matrix(rng, *shape):
    return rng.uniform(0.3, 1.7, shape).astype("float32")


# Functions of one module T (weft or PyTorch), and matrices x, y of one shape. Each is compared at three sizes.

FUNCTIONS = {
    # arithmetic and element-wise functions
    "add": lambda T, x, y: x + y * 2,
    "scalars": lambda T, x, y: (x - 1.5) / 2 + 3 * y,
    "powers": lambda T, x, y: x**2 + y**0.5,
    "exp_log": lambda T, x, y: T.exp(x) * T.log(y + 2),
    "trigonometry": lambda T, x, y: T.sin(x) + T.cos(y) * T.tanh(x),
    "rsub": lambda T, x, y: 1 - x,
    "rdiv": lambda T, x, y: 1 / (y + 1),
    "compare": lambda T, x, y: (x > y).float(),
    "where": lambda T, x, y: T.where(x > y, x, y * 2),
    "clamp": lambda T, x, y: x.clamp(0.5, 1.2) + y,
    "maximum": lambda T, x, y: T.maximum(x, y) - T.minimum(x, y),
    "relu": lambda T, x, y: T.relu(x - y),
    "gelu": lambda T, x, y: T.nn.functional.gelu(x) + T.nn.functional.silu(y),
    "sigmoid": lambda T, x, y: T.sigmoid(x) * y.tanh(),
    "softplus": lambda T, x, y: T.nn.functional.softplus(x - y),
    "leaky": lambda T, x, y: T.nn.functional.leaky_relu(x - y, 0.1),
    "elu": lambda T, x, y: T.nn.functional.elu(x - 1) + T.nn.functional.hardtanh(y - 1),
    "abs_sign": lambda T, x, y: (x - y).abs() + T.sign(x - 1) * y,
    "square_sqrt": lambda T, x, y: T.sqrt(T.square(x) + y * y),
    "addcmul": lambda T, x, y: T.addcmul(x, x, y, value=0.5),
    "lerp": lambda T, x, y: T.lerp(x, y, 0.3),
    "cast": lambda T, x, y: x.double().sum() + y.to(T.float64).mean(),
    "masked_fill": lambda T, x, y: x.masked_fill(y > 1, 0.0),
    # reductions
    "sum": lambda T, x, y: x.sum() + y.sum(0).mean(),
    "sum_dims": lambda T, x, y: (x * y).sum(dim=1, keepdim=True) - x,
    "mean": lambda T, x, y: x.mean(dim=-1) * y.mean(1),
    "max": lambda T, x, y: x.max() - y.amin(0).sum(),
    "max_dim": lambda T, x, y: x.max(dim=1).values,
    "var": lambda T, x, y: x.var(dim=1) + y.std(),
    "norm": lambda T, x, y: x.norm() + T.linalg.vector_norm(y, dim=0).sum(),
    "cumsum": lambda T, x, y: x.cumsum(1) + y.cumsum(0),
    "logsumexp": lambda T, x, y: T.logsumexp(x, 1) + y.prod(1),
    "argmax": lambda T, x, y: x.argmax(1).float() + y[:, 0],
    "softmax": lambda T, x, y: T.softmax(x, -1) * T.log_softmax(y, 0),
    # products
    "matmul": lambda T, x, y: x @ y.t(),
    "matmul_t": lambda T, x, y: x.t() @ y,
    "mm_chain": lambda T, x, y: (x @ y.t()) @ x,
    "einsum": lambda T, x, y: T.einsum("ij,kj->ik", x, y),
    "bmm": lambda T, x, y: T.bmm(x[None], y.t()[None])[0],
    "outer": lambda T, x, y: T.outer(x[0], y[1]),
    "addmm": lambda T, x, y: T.addmm(x[:, :1], x, y.t(), beta=0.5, alpha=2.0),
    "linear": lambda T, x, y: T.nn.functional.linear(x, y, y[:, 0]),
    "dot": lambda T, x, y: T.dot(x.reshape(-1), y.reshape(-1)),
    # views
    "transpose": lambda T, x, y: x.t().contiguous() + y.transpose(0, 1),
    "reshape": lambda T, x, y: x.reshape(-1) * y.view(-1),
    "flatten": lambda T, x, y: (x.t().reshape(-1) + y.flatten())[1:],
    "permute": lambda T, x, y: x[None, :, :, None].permute(3, 1, 0, 2) * y[None, :, None, :],
    "unsqueeze": lambda T, x, y: x.unsqueeze(1) * y.unsqueeze(0),
    "expand": lambda T, x, y: x[:1].expand(x.shape[0], -1) + y,
    "slices": lambda T, x, y: x[:, 1:] * y[:, :-1],
    "steps": lambda T, x, y: x[::2] + y[::2] * 3,
    "select": lambda T, x, y: x[0] + y[-1] + x[:, 1].sum(),
    "ellipsis": lambda T, x, y: x[..., 0] * y[..., None][:, 0, 0],
    "split": lambda T, x, y: x.split(1, 0)[1] + y.chunk(2, 1)[0].sum(),
    "unbind": lambda T, x, y: x.unbind(0)[1] * y.unbind(0)[0],
    "cat": lambda T, x, y: T.cat([x, y * 2, x], 1),
    "stack": lambda T, x, y: T.stack([x, y], 1).sum(0),
    "outer product": lambda T, x, y: T.outer(x[:, 0], y[0]).cos() + x,
    "axis that moved": lambda T, x, y: T.movedim(x.unsqueeze(0) * y, 0, -1).squeeze(-1),
    "rows repeated in turns": lambda T, x, y: x.repeat_interleave(2, 0) * y.repeat(2, 1),
    "flip": lambda T, x, y: x.flip(1) + y.flip(0),
    "roll": lambda T, x, y: x.roll(1, 1) + y,
    "repeat": lambda T, x, y: x.repeat(2, 1) * y.repeat(2, 1),
    "tril": lambda T, x, y: T.tril(x) + T.triu(y),
    "diagonal": lambda T, x, y: x.diagonal() * y.diagonal(),
    "squeeze": lambda T, x, y: x[:, :1].squeeze(1) + y[:, 0],
    "narrow": lambda T, x, y: x.narrow(1, 1, 2) + y.narrow(1, 0, 2),
    "pad": lambda T, x, y: T.nn.functional.pad(x, (1, 2, 0, 1)).sum(1) * 2,
    "movedim": lambda T, x, y: x.movedim(0, 1) + y.t(),
    "unfold": lambda T, x, y: x.unfold(1, 2, 1).sum(-1) + y[:, 1:],
    # indices
    "index_select": lambda T, x, y: T.index_select(x, 0, T.tensor([1, 0, 1])) * 2,
    "index_list": lambda T, x, y: x[[0, 1]] + y[[1, 0]],
    "gather": lambda T, x, y: T.gather(x, 1, T.tensor([[0, 2], [1, 0]])) + y[:2, :2],
    "take": lambda T, x, y: T.take(x, T.tensor([0, 2, 1])) + y[0, 0],
    "index_add": lambda T, x, y: x.index_add(0, T.tensor([0, 1]), y[:2]),
    "sort": lambda T, x, y: x.sort(1).values * y.sort(0, descending=True).values,
    "topk": lambda T, x, y: x.topk(2, 1).values + y.argsort(1)[:, :2],
    "index_tensor": lambda T, x, y: x[T.arange(x.shape[0]).flip(0)] * y,
    "index_column": lambda T, x, y: x[:, T.tensor([2, 0])] * y[..., T.tensor([1, -1])],
    "scatter": lambda T, x, y: T.scatter(x, 1, T.tensor([[0], [1]]), y[:2, :1]),
    # in place
    "add_": lambda T, x, y: (x * 1).add_(y).mul_(2),
    "chain_": lambda T, x, y: (x + 0).sub_(1).clamp_(min=0).add_(y, alpha=3),
    "copy_": lambda T, x, y: (x * 0).copy_(y) * x,
    "fill_": lambda T, x, y: (x * 1).fill_(2.0) + y,
    "zero_": lambda T, x, y: (x * 1).zero_() + y,
    "setitem": lambda T, x, y: _set(x * 1, 0, y[1]),
    "setitem_slice": lambda T, x, y: _set(x * 1, (slice(None), slice(1, 3)), y[:, 1:3] * 2),
    "setitem_number": lambda T, x, y: _set(x * 1, (0, 1), 5.0) * y,
    "setitem_list": lambda T, x, y: _set(x * 1, [1, 0], y[:2]),
    "view_write": lambda T, x, y: _through((x * 1), lambda v: v.t()[1].add_(1)) + y,
    "view_of_view": lambda T, x, y: _through((x * 1), lambda v: v[:, 1:][0].mul_(3)) * y,
    "reshape_write": lambda T, x, y: _through((x * 1), lambda v: v.view(-1)[1:3].add_(2)) - y,
    "base_write": lambda T, x, y: _base_write(x * 1, y),
    "constants": lambda T, x, y: _set(T.zeros(x.shape[0], x.shape[1]), 0, x[0]) + y,
    "detach": lambda T, x, y: x.detach() * y + x * y.detach(),
    # control flow on sizes and Python values
    "sizes": lambda T, x, y: x * x.shape[0] if x.shape[0] > 3 else y * x.size(1),
    "loop": lambda T, x, y: sum((x[i] * i for i in range(x.shape[0])), y[0] * 0),
    "recurrence": lambda T, x, y: _recurrence(T, x, y),
    "polynomial": lambda T, x, y: _polynomial(x, [1.0, 2.0, 3.0]) + y,
    "no_grad": lambda T, x, y: _no_grad(T, x) * y,
    "containers": lambda T, x, y: {"a": x + y, "b": [x * y, (x.sum(), 3)]},
    "several": lambda T, x, y: (x + 1, y * x, x.sum()),
    "same_twice": lambda T, x, y: (lambda z: (z, z))(x * y),
    "views_out": lambda T, x, y: (lambda z: (z, z[0], z.t()))(x * y),
    "untouched": lambda T, x, y: (x, x * y),
    # layers as functions
    "layer_norm": lambda T, x, y: T.nn.functional.layer_norm(x, x.shape[1:], y[0], y[1]),
    "conv1d": lambda T, x, y: T.nn.functional.conv1d(x[None, None, 0], y[None, None, 0, :2])[0],
    "conv2d": lambda T, x, y: T.nn.functional.conv2d(x[None, None], y[None, None, :2, :2], padding=1)[0],
    "max_pool": lambda T, x, y: T.nn.functional.max_pool2d((x * y)[None, None], 2)[0],
    "avg_pool": lambda T, x, y: T.nn.functional.avg_pool2d((x * y)[None, None], 2, 1)[0],
    "mse": lambda T, x, y: T.nn.functional.mse_loss(x, y),
    "l1": lambda T, x, y: T.nn.functional.l1_loss(x, y) + T.nn.functional.smooth_l1_loss(x, y),
    "cross_entropy": lambda T, x, y: T.nn.functional.cross_entropy(x, T.arange(x.shape[0]) % 2),
    "soft_entropy": lambda T, x, y: T.nn.functional.cross_entropy(x, T.softmax(y, 1)),
    "nll": lambda T, x, y: T.nn.functional.nll_loss(T.log_softmax(x, 1), T.arange(x.shape[0]) % 2),
    "bce_logits": lambda T, x, y: T.nn.functional.binary_cross_entropy_with_logits(x, y / 2),
    "kl": lambda T, x, y: T.nn.functional.kl_div(T.log_softmax(x, 1), T.softmax(y, 1), reduction="batchmean"),
    "attention": lambda T, x, y: T.nn.functional.scaled_dot_product_attention(x[None], y[None], (x + y)[None]),
    "normalize": lambda T, x, y: T.nn.functional.normalize(x, dim=1) * T.nn.functional.cosine_similarity(x, y)[:, None],
    "embedding": lambda T, x, y: T.nn.functional.embedding(T.tensor([[1, 0], [0, 1]]), x) + y[:2, None],
    "glu": lambda T, x, y: T.nn.functional.glu(T.cat([x, y], 1)),
    "interpolate": lambda T, x, y: T.nn.functional.interpolate(x[None, None], scale_factor=2)[0, 0].sum(1),
}


def _set(target, index, value):
    target[index] = value
    return target


def _through(target, change):
    change(target)
    return target


def _base_write(target, y):
    view = target[1]
    target.add_(y)
    return view * 2


def _recurrence(T, x, y):
    state = x[0] * 0
    for row in x:
        state = T.tanh(state * y[0] + row)
    return state


def _polynomial(x, factors):
    total = x * 0
    for factor in factors:
        total = total * x + factor
    return total


def _no_grad(T, x):
    with T.no_grad():
        scale = x.sum()
    return x * scale


def tensors_of(value):
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_of(item)]
    return [value] if hasattr(value, "grad_fn") else []


def run(T, function, arrays):
    """Results and gradients of the inputs, as arrays."""
    inputs = [T.tensor(array, requires_grad=True) for array in arrays]
    results = tensors_of(function(*inputs))
    moving = [r for r in results if r.requires_grad and r.grad_fn is not None]
    if moving:
        sum((r * r).sum() for r in moving).backward()
    grads = [None if x.grad is None else x.grad.numpy() for x in inputs]
    return [r.detach().numpy() for r in results], grads


def agree(ours, theirs):
    (values, grads), (wanted, wanted_grads) = ours, theirs
    assert len(values) == len(wanted)
    for one, other in zip(values, wanted):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
        assert one.dtype == other.dtype
    for one, other in zip(grads, wanted_grads):
        if one is None or other is None:  # nothing and zeros are the same
            assert not np.any(one if other is None else other) or one is other
        else:
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_functions_give_what_functions_give(name, rng):
    torch = oracle("torch")
    function = FUNCTIONS[name]
    compiled = weft.compile(lambda x, y: function(weft, x, y))
    for shape in SIZES:
        for _ in range(2):  # traced, and by its plan
            arrays = _matrix(rng, *shape), _matrix(rng, *shape)
            found = run(weft, compiled, arrays)
            agree(found, run(weft, lambda x, y: function(weft, x, y), arrays))
            agree(found, run(torch, lambda x, y: function(torch, x, y), arrays))
    told = compiled.explain()
    assert told.eager is None, told
    assert told.plans == len(SIZES)
    assert not told.breaks


def test_small_calls_give_new_memory_as_long_as_somebody_has_the_old():
    add = weft.compile(lambda x, y: x + y)
    x = weft.arange(16.0)
    kept = [add(x, x.clone().fill_(n))[3:5] for n in range(6)]
    assert [view.tolist() for view in kept] == [[3.0 + n, 4.0 + n] for n in range(6)]


def test_small_calls_on_memory_that_kernels_do_not_take():
    add = weft.compile(lambda x, y: x + y)
    memory = np.arange(65, dtype=np.uint8)
    values = np.frombuffer(memory.tobytes(), np.float32, 16)  # read-only
    unaligned = memory[1:].view(np.float32)
    for array in (values, unaligned, np.arange(32, dtype=np.float32)[::2]):
        found = add(weft.from_numpy(array.copy()), weft.tensor(array))
        np.testing.assert_array_equal(found.numpy(), array + array)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of read-only memory
            found = add(weft.from_numpy(array), weft.ones(16))
        np.testing.assert_array_equal(found.numpy(), array + np.float32(1))


def test_a_zero_of_the_other_sign_is_another_number():
    class Holder:
        value = 0.0

    holder = Holder()
    holder.value = 0.0
    product = weft.compile(lambda x: x * holder.value)
    assert not np.signbit(product(weft.ones(2)).numpy()).any()
    holder.value = -0.0
    assert np.signbit(product(weft.ones(2)).numpy()).all()


def test_what_arguments_were_made_of_may_change():
    total = weft.compile(lambda xs: xs[0] + xs[1])
    first = [weft.ones(2), weft.ones(2)]
    total(first)
    first.append(weft.ones(3))
    assert total([weft.ones(2), weft.ones(2) * 3]).tolist() == [4.0, 4.0]
    assert total.explain().plans == 1
