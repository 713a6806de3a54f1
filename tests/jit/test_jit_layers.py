"""Operators of layers and losses, whose arguments have to fit together, against PyTorch's."""

import random

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.jit.operators import find


def real(*shape):
    return np.random.default_rng(random.getrandbits(32)).uniform(-1, 1, shape).astype("float32")


def whole(high, *shape):
    return np.random.default_rng(random.getrandbits(32)).integers(0, high, shape)


def positive(*shape):
    return np.abs(real(*shape)) + 0.1


def recurrent(gates, layers=1):
    """Weights and biases of a recurrent network of 3 inputs and 4 states."""
    return [real(gates * 4, 3), real(gates * 4, 4), real(gates * 4), real(gates * 4)] * layers


def reduction():
    return random.choice([0, 1, 2])


CALLS = {
    "aten::conv1d": lambda: [real(2, 3, 8), real(4, 3, 3), real(4), [2], [1], [1], 1],
    "aten::conv2d": lambda: [real(2, 4, 7, 7), real(6, 2, 3, 3), None, [1, 2], [1, 0], [1, 2], 2],
    "aten::conv2d.padding": lambda: [real(2, 4, 7, 7), real(6, 4, 3, 3), real(6), [1, 1], "same", [1, 1], 1],
    "aten::conv_transpose2d.input": lambda: [
        real(1, 3, 4, 4),
        real(3, 2, 3, 3),
        real(2),
        [2, 2],
        [1, 1],
        [1, 1],
        1,
        [1, 1],
    ],
    "aten::convolution": lambda: [
        real(2, 3, 5, 5),
        real(4, 3, 3, 3),
        real(4),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ],
    "aten::_convolution": lambda: [
        *[real(2, 3, 5), real(3, 4, 3), real(4), [2], [1], [1], True, [1], 1],
        *[False, False, True, True],
    ],
    "aten::linear": lambda: [real(5, 3), real(4, 3), real(4)],
    "aten::batch_norm": lambda: [
        *[real(4, 3, 2), real(3), real(3), real(3), positive(3), random.random() < 0.5, 0.1, 1e-4, True]
    ],
    "aten::instance_norm": lambda: [real(2, 3, 6), real(3), real(3), None, None, True, 0.1, 1e-4, True],
    "aten::layer_norm": lambda: [real(4, 3, 2), [3, 2], real(3, 2), real(3, 2), 1e-4, True],
    "aten::group_norm": lambda: [real(4, 6, 2), 3, real(6), real(6), 1e-4, True],
    "aten::native_layer_norm": lambda: [real(4, 3, 2), [2], real(2), real(2), 1e-4],
    "aten::max_pool2d": lambda: [real(2, 3, 8, 8), [2, 3], [], [1, 0], [1, 1], random.random() < 0.5],
    "aten::max_pool2d_with_indices": lambda: [real(2, 3, 8, 8), [2, 2], [2, 1], [0, 1], [1, 1], False],
    "aten::avg_pool2d": lambda: [real(2, 3, 8, 8), [2, 3], [], [1, 1], False, random.random() < 0.5, None],
    "aten::adaptive_avg_pool2d": lambda: [real(2, 3, 8, 6), [3, 2]],
    "aten::adaptive_max_pool2d": lambda: [real(2, 3, 8, 6), [3, 2]],
    "aten::embedding": lambda: [real(7, 3), whole(7, 2, 4), random.choice([-1, 2]), False, False],
    "aten::embedding_bag": lambda: [
        real(7, 3),
        whole(7, 6),
        np.array([0, 2, 5]),
        False,
        whole(3).item(),
        False,
        None,
        False,
    ],
    "aten::lstm.input": lambda: [
        *[real(5, 2, 3), [real(1, 2, 4), real(1, 2, 4)], recurrent(4), True, 1, 0.0, False, False, False]
    ],
    "aten::gru.input": lambda: [real(2, 5, 3), real(1, 2, 4), recurrent(3), True, 1, 0.0, False, False, True],
    "aten::rnn_tanh.input": lambda: [real(5, 2, 3), real(1, 2, 4), recurrent(1), True, 1, 0.0, False, False, False],
    "aten::lstm_cell": lambda: [real(2, 3), [real(2, 4), real(2, 4)], *recurrent(4)],
    "aten::gru_cell": lambda: [real(2, 3), real(2, 4), *recurrent(3)],
    "aten::nll_loss": lambda: [real(5, 4), whole(4, 5), positive(4), reduction(), 2],
    "aten::nll_loss_nd": lambda: [real(5, 4, 3), whole(4, 5, 3), None, reduction(), -100],
    "aten::cross_entropy_loss": lambda: [real(5, 4), whole(4, 5), positive(4), reduction(), -100, 0.2],
    "aten::binary_cross_entropy": lambda: [positive(5, 2) / 2, positive(5, 2) / 2, None, reduction()],
    "aten::binary_cross_entropy_with_logits": lambda: [
        real(5, 2),
        positive(5, 2),
        positive(5, 2),
        positive(2),
        reduction(),
    ],
    "aten::kl_div": lambda: [real(5, 2), positive(5, 2), reduction(), random.random() < 0.5],
    "aten::mse_loss": lambda: [real(5, 2), real(5, 2), reduction()],
    "aten::smooth_l1_loss": lambda: [real(5, 2), real(5, 2), reduction(), 0.5],
    "aten::huber_loss": lambda: [real(5, 2), real(5, 2), reduction(), 0.5],
    "aten::margin_ranking_loss": lambda: [real(5), real(5), np.sign(real(5)), 0.3, reduction()],
    "aten::hinge_embedding_loss": lambda: [real(5), np.sign(real(5)), 0.7, reduction()],
    "aten::cosine_embedding_loss": lambda: [real(5, 3), real(5, 3), np.sign(real(5)), 0.3, reduction()],
    "aten::triplet_margin_loss": lambda: [real(5, 3), real(5, 3), real(5, 3), 1.0, 2.0, 1e-6, False, reduction()],
    "aten::ctc_loss.IntList": lambda: [
        *[np.log(positive(6, 2, 4) / 6), whole(3, 2, 2) + 1, [6, 5], [2, 1], 0, reduction(), True]
    ],
    "aten::grid_sampler": lambda: [real(1, 2, 4, 4), real(1, 3, 3, 2), 0, 1, random.random() < 0.5],
    "aten::upsample_nearest2d": lambda: [real(1, 2, 3, 4), [6, 6], None, None],
    "aten::upsample_nearest2d.vec": lambda: [real(1, 2, 3, 4), None, [2.0, 1.5]],
    "aten::upsample_bilinear2d": lambda: [real(1, 2, 3, 4), [5, 7], random.random() < 0.5, None, None],
    "aten::upsample_bilinear2d.vec": lambda: [real(1, 2, 3, 4), None, False, [2.0, 1.6]],
    "aten::upsample_bicubic2d": lambda: [real(1, 2, 4, 4), [5, 7], True, None, None],
    "aten::elu": lambda: [real(4, 3), 0.5, 1.5, 0.7],
    "aten::log_sigmoid": lambda: [real(4, 3)],
    "aten::_softmax": lambda: [real(4, 3), 1, False],
    "aten::_log_softmax": lambda: [real(4, 3), 0, False],
    "aten::index.Tensor": lambda: [real(4, 5, 3), [None, whole(5, 2), whole(3, 2)]],
    "aten::index_put": lambda: [real(4, 5), [whole(4, 3), None], real(3, 5), True],
    "aten::slice.Tensor": lambda: [real(6, 5), random.choice([0, -1]), random.choice([None, -4, 1]), 50, 2],
    "aten::unfold": lambda: [real(6, 5), 1, 3, 2],
    "aten::tensordot": lambda: [real(3, 4, 2), real(2, 4, 5), [1, 2], [1, 0]],
    "aten::unique_consecutive": lambda: [whole(3, 9), True, random.random() < 0.5, None],
    "aten::_unique2": lambda: [whole(3, 9), True, True, True],
    "aten::repeat_interleave.Tensor": lambda: [whole(4, 5), None],
    "aten::cartesian_prod": lambda: [[real(3), real(2)]],
    "aten::block_diag": lambda: [[real(2, 3), real(1, 2)]],
    "aten::addmv": lambda: [real(3), real(3, 4), real(4), 2, 0.5],
    "aten::addbmm": lambda: [real(2, 4), real(5, 2, 3), real(5, 3, 4), 1, 2],
    "aten::im2col": lambda: [real(2, 3, 6, 5), [2, 3], [1, 1], [1, 0], [2, 1]],
}


@pytest.fixture
def torch():
    return oracle("torch")


def on(library, value):
    if isinstance(value, np.ndarray):
        return library.from_numpy(value.copy())
    return [on(library, item) for item in value] if isinstance(value, list) else value


def check(ours, theirs, torch):
    if isinstance(theirs, torch.Tensor):
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=2e-4, atol=2e-5)
        return
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs):
        check(one, two, torch)


@pytest.mark.parametrize("name", CALLS)
def test_operators_of_layers(torch, name):
    operator, values = find(name), CALLS[name]()
    short, _, overload = name.removeprefix("aten::").partition(".")
    arguments = operator.schema.arguments
    given = [on(torch, value) for value in values]
    count = sum(not argument.kwarg_only for argument in arguments)
    named = {argument.name: value for argument, value in zip(arguments[count:], given[count:])}
    theirs = getattr(getattr(torch.ops.aten, short), overload or "default")(*given[:count], **named)
    ours = operator.call(*[on(weft, value) for value in values])
    if short == "embedding_bag":  # the others are for its gradient, and empty where PyTorch's needs none of them
        ours, theirs = ours[0], theirs[0]
    check(ours, theirs, torch)
