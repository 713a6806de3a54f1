"""Functions of neural networks as the core has them, with PyTorch as the witness."""

import numpy as np
import pytest
from twins import agree, agree_or_refuse, refuse

rng = np.random.default_rng(0)
X, Y = (rng.standard_normal((2, 4, 6)).astype("float32") for _ in range(2))
IMAGE = rng.standard_normal((2, 3, 8, 8)).astype("float32")
VOLUME = rng.standard_normal((1, 2, 6, 6, 6)).astype("float32")
SIGNS = np.where(rng.random(2) < 0.5, -1.0, 1.0).astype("float32")
PLACES = np.array([[0, 2, 1], [3, 3, 0]])
THETA = rng.standard_normal((2, 2, 3)).astype("float32")
GRID = rng.uniform(-1.2, 1.2, (2, 5, 4, 2)).astype("float32")
WEIGHT = rng.standard_normal((4, 3)).astype("float32")


def functional(m):
    return m.nn.functional


FORMS = {
    "celu": lambda m, x: m.celu(x, 0.7),
    "selu": lambda m, x: m.selu(x),
    "rrelu": lambda m, x: m.rrelu(x, 0.1, 0.3),
    "max_pool1d": lambda m, x: m.max_pool1d(x, 3, 2, 1),
    "max_pool1d_with_indices": lambda m, x: m.max_pool1d_with_indices(x, 3, 2, 1),
    "avg_pool1d": lambda m, x: m.avg_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda m, x: m.adaptive_avg_pool1d(x, 4),
    "adaptive_max_pool1d": lambda m, x: m.adaptive_max_pool1d(x, 4),
    "F.max_pool1d_with_indices": lambda m, x: functional(m).max_pool1d_with_indices(x, 2),
    "F.adaptive_max_pool1d_with_indices": lambda m, x: functional(m).adaptive_max_pool1d_with_indices(x, 4),
    "instance_norm": lambda m, x: m.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
    "conv_tbc": lambda m, x: m.conv_tbc(x, x.reshape(2, 6, 4), m.ones(4), 1),
    "F.conv_tbc": lambda m, x: functional(m).conv_tbc(x, x.reshape(2, 6, 4), m.ones(4)),
    "convolution": lambda m, x: m.convolution(x, m.ones(6, 2, 2), m.ones(6), [2], [1], [1], False, [0], 2),
    "convolution, transposed": lambda m, x: m.convolution(x, m.ones(4, 3, 2), None, [2], [0], [1], True, [1], 1),
    "norm_except_dim": lambda m, x: [m.norm_except_dim(x, p, d) for p in (1, 2) for d in (0, 2, -1)],
    "frobenius_norm": lambda m, x: [
        m.frobenius_norm(x, (0, 1)),
        m.frobenius_norm(x, [2], True),
        m.frobenius_norm(x, 1),
    ],
    "nuclear_norm": lambda m, x: [m.nuclear_norm(x[0]), m.nuclear_norm(x, (0, 1)), m.nuclear_norm(x, (1, 2), True)],
    "slice_copy": lambda m, x: [m.slice_copy(x, 2, 1, 5, 2), m.slice_copy(x, 1, -2)],
    "view_as_real_copy": lambda m, x: m.view_as_real_copy(m.complex(x, x * 2)),
}


def with_gradients(m, arrays, function):
    """The results of a function, and the gradients of a weighted sum of them."""
    inputs = [m.tensor(array, requires_grad=True) for array in arrays]
    made = function(m, *inputs)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    floats = [r for r in results if r.requires_grad]
    loss = sum((r * m.arange(r.numel()).reshape(r.shape)).sum() for r in floats)
    return [*results, *m.autograd.grad(loss, inputs, allow_unused=True)]


@pytest.mark.parametrize("name", FORMS)
def test_form(name):
    agree(lambda m: with_gradients(m, [X], FORMS[name]), 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["max_pool2d", "max_pool3d"])
def test_pools(name):
    data = IMAGE if name == "max_pool2d" else VOLUME
    agree(lambda m: with_gradients(m, [data], lambda m, x: getattr(m, name)(x, 2, [])))
    with_indices, adaptive = f"{name}_with_indices", f"adaptive_{name}_with_indices"
    for other, size in ((with_indices, 2), (adaptive, 3)):
        call = lambda m, x, other=other, size=size: getattr(functional(m), other)(x, size)
        agree(lambda m, call=call: with_gradients(m, [data], call))


LOSSES = {
    "binary_cross_entropy_with_logits": lambda m, x, y, **o: m.binary_cross_entropy_with_logits(
        x, y.sigmoid(), m.ones(6), m.ones(6) * 2, **o
    ),
    "hinge_embedding_loss": lambda m, x, y, **o: m.hinge_embedding_loss(x, y.sign(), 0.5, **o),
    "kl_div": lambda m, x, y, **o: m.kl_div(x, y.sigmoid(), **o),
    "kl_div of logarithms": lambda m, x, y, **o: m.kl_div(x, y, log_target=True, **o),
    "margin_ranking_loss": lambda m, x, y, **o: m.margin_ranking_loss(x, y, y.sign(), 0.1, **o),
    "triplet_margin_loss": lambda m, x, y, **o: m.triplet_margin_loss(x, y, x * y, 2.0, **o),
    "cosine_embedding_loss": lambda m, x, y, **o: m.cosine_embedding_loss(x[:, 0], y[:, 0], m.tensor(SIGNS), 0.1, **o),
}


@pytest.mark.parametrize("reduction", [None, 0, 1, 2])
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name, reduction):
    options = {} if reduction is None else {"reduction": reduction}
    call = lambda m, x, y: LOSSES[name](m, x, y, **options)
    agree(lambda m: with_gradients(m, [X, Y], call), 1e-4, 1e-5)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_poisson_nll_loss(reduction):
    call = lambda m, x, y: m.poisson_nll_loss(x, y.abs(), True, True, 1e-8, reduction)
    agree(lambda m: with_gradients(m, [X, Y], call), 1e-4, 1e-4)


def test_embedding():
    call = lambda m, w: m.embedding(w, m.tensor(PLACES), 3)
    agree(lambda m: with_gradients(m, [WEIGHT], call))
    agree(lambda m: m.embedding_renorm_(m.tensor(WEIGHT), m.tensor([0, 3]), 0.8, 2.0))
    refuse(lambda m: m.embedding_renorm_(m.tensor(WEIGHT), m.tensor([7]), 0.8, 2.0))


def test_values_of_copies():
    agree(lambda m: m.detach_copy(m.tensor(X)))
    agree(lambda m: m.view_as_complex_copy(m.tensor(X).reshape(-1, 2)))
    agree(lambda m: m.native_channel_shuffle(m.tensor(X), 2))
    agree(lambda m: functional(m).native_channel_shuffle(m.tensor(X), 2))


def test_grids():
    agree(lambda m: m.affine_grid_generator(m.tensor(THETA), [2, 3, 5, 4], True))
    call = lambda m, x, g: m.grid_sampler(x, g, 0, 1, False)
    agree(lambda m: with_gradients(m, [IMAGE, GRID], call), 1e-4, 1e-4)


WRITING = {
    "relu_": (),
    "elu_": (0.7,),
    "celu_": (0.7,),
    "selu_": (),
    "hardtanh_": (-0.5, 0.4),
    "leaky_relu_": (0.1,),
    "threshold_": (0.1, 2.0),
    "rrelu_": (0.1, 0.3),
}


@pytest.mark.parametrize("name", WRITING)
def test_writing_form(name):
    def call(m, x):
        y = x * 1
        made = getattr(functional(m), name)(y, *WRITING[name])
        assert made is y
        return y

    agree(lambda m: with_gradients(m, [X], call))


@pytest.mark.parametrize("name", ["celu_", "selu_", "threshold_", "rrelu_"])
def test_writing_form_of_the_core(name):
    agree(lambda m: getattr(m, name)(m.tensor(X), *WRITING[name]))


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"])
def test_dropout(name):
    agree(lambda m: getattr(m, name)(m.tensor(X), 0.5, False))
    refuse(lambda m: getattr(m, name)(m.tensor(X), 1.5, True))
    of_rows = lambda m: getattr(m, name)(m.ones(3), 0.5, True).shape
    agree_or_refuse(name.startswith("feature"), of_rows)
    agree(lambda m: getattr(m, f"{name}_")(x := m.tensor(X), 0.5, True) is x)

    def shares(m):
        made = getattr(m, name)(m.ones(200, 50), 0.3, True)
        return abs(float((made == made.max()).double().mean()) - 0.7) < 0.03

    agree(shares)


def test_native_dropout():
    def program(m):
        x = m.arange(1.0, 3001, requires_grad=True)
        made, kept = m.native_dropout(x, 0.4, True)
        made.sum().backward()
        scaled = m.where(kept, x / 0.6, m.zeros(1))
        return [
            m.allclose(made, scaled),
            m.allclose(x.grad, kept / 0.6),
            kept.dtype,
            abs(float(kept.double().mean()) - 0.6) < 0.05,
        ]

    agree(program)
    agree(lambda m: m.native_dropout(m.ones(3), 0.5, False))


REFUSED = {
    "threshold has no inplace": lambda m: m.threshold(m.ones(3), 0.5, 0.0, inplace=True),
    "threshold of four": lambda m: m.threshold(m.ones(3), 0.5, 0.0, True),
    "a pool that stands still": lambda m: functional(m).max_pool2d_with_indices(m.tensor(IMAGE), 2, 0),
    "relu of three": lambda m: functional(m).relu(m.ones(3), True, True),
    "inplace twice": lambda m: functional(m).relu(m.ones(3), True, inplace=True),
    "indices twice": lambda m: functional(m).max_pool1d_with_indices(
        m.tensor(X), 2, 2, 0, 1, False, True, return_indices=True
    ),
    "grid_sampler": lambda m: m.grid_sampler(m.ones(2, 2), m.ones(2), 0, 0, False),
    "conv_tbc": lambda m: m.conv_tbc(m.ones(2, 2), m.ones(2, 2, 2), m.ones(2)),
    "celu": lambda m: m.celu(m.ones(2), 0.0),
    "rrelu": lambda m: m.rrelu(m.ones(2), 0.5, 0.1),
    "embedding": lambda m: m.embedding(m.ones(2, 3), m.tensor([2])),
    "native_group_norm": lambda m: m.native_group_norm(m.ones(2, 3), None, None, 2, 3, 4, 1, 1e-5),
    "slice_copy": lambda m: m.slice_copy(m.ones(2), 0, 0, 2, -1),
    "frobenius_norm": lambda m: m.frobenius_norm(m.ones(2)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    refuse(REFUSED[name])
