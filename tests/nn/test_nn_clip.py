"""Gradients kept within bounds, parameters as a vector, modules that are not filled: against PyTorch."""

import math
import warnings

import numpy as np
import pytest
from oracles import oracle
from twin_modules import refused_alike

import weft

RNG = np.random.default_rng(3)
GRADIENTS = [RNG.normal(size=(2, 3)) * 3, None, RNG.normal(size=(4,)), RNG.normal(size=()), np.zeros((0, 2))]


def parameters(library, gradients, kind="float32"):
    made = []
    for gradient in gradients:
        shape = (2,) if gradient is None else gradient.shape
        made.append(library.nn.Parameter(library.zeros(shape, dtype=getattr(library, kind))))
        if gradient is not None:
            made[-1].grad = library.from_numpy(np.array(gradient, kind))
    return made


def after(library, change, gradients, kind="float32"):
    """What a change gives, and the gradients it leaves."""
    made = parameters(library, gradients, kind)
    result = change(library.nn.utils, made)
    left = [None if parameter.grad is None else parameter.grad.numpy() for parameter in made]
    return None if result is None else result.numpy(), left


def agree(change, gradients, kind="float32", tolerance=1e-5):
    mine, theirs = (after(library, change, gradients, kind) for library in (weft, oracle("torch")))
    for ours, other in zip([mine[0], *mine[1]], [theirs[0], *theirs[1]], strict=True):
        assert (ours is None) == (other is None)
        if ours is not None:
            assert ours.dtype == other.dtype
            np.testing.assert_allclose(ours, other, tolerance, 1e-6)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("order", [2, 2.0, 1, 3, 0.5, 0, math.inf, "inf"])
@pytest.mark.parametrize("bound", [1, 0.5, 100.0, 0.0])
def test_norms_are_clipped(order, bound, kind):
    agree(lambda utils, made: utils.clip_grad_norm_(made, bound, order), GRADIENTS[:4], kind)


def test_norms_of_other_forms():
    agree(lambda utils, made: utils.clip_grad_norm_(made, 1.0, -math.inf), GRADIENTS[:3])
    agree(lambda utils, made: utils.clip_grad_norm_(made, 1.0), GRADIENTS)  # one is empty
    agree(lambda utils, made: utils.clip_grad_norm_(made[0], 1.0), GRADIENTS)  # a tensor alone
    agree(lambda utils, made: utils.clip_grad_norm_((p for p in made), 1.0, foreach=False), GRADIENTS)
    agree(lambda utils, made: utils.clip_grad_norm_(made, 1.0, foreach=True), GRADIENTS[:2])
    agree(lambda utils, made: utils.clip_grad_norm_([], 1.0), GRADIENTS)
    agree(lambda utils, made: utils.clip_grad_norm_(made[1], 1.0), GRADIENTS)  # there is no gradient
    agree(lambda utils, made: utils.clip_grad_norm_(made, max_norm=1.0), GRADIENTS[:2], "float16", 1e-2)


def test_norms_of_mixed_kinds():
    def total(library):
        kinds = (library.float32, library.float64)
        tensors = [library.from_numpy(RNG_ROW.copy()).to(kind) for kind in kinds]
        return library.nn.utils.get_total_norm(tensors), library.nn.utils.get_total_norm(tensors[0], 1.0)

    for mine, theirs in zip(total(weft), total(oracle("torch"))):
        assert str(mine.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        assert mine.item() == pytest.approx(theirs.item(), rel=1e-6)


RNG_ROW = RNG.normal(size=(5,))


def test_clipping_by_a_norm_that_is_known():
    agree(lambda utils, made: utils.clip_grads_with_norm_(made, 2.0, utils.get_total_norm(made[0].grad)), GRADIENTS)


@pytest.mark.parametrize("bound", [0.5, 2, 0.0])
def test_values_are_clipped(bound):
    agree(lambda utils, made: utils.clip_grad_value_(made, bound), GRADIENTS)
    agree(lambda utils, made: utils.clip_grad_value_(made[0], clip_value=bound, foreach=True), GRADIENTS[:2])


def test_norms_that_are_not_finite():
    wrong = [np.array([1.0, math.inf]), np.array([math.nan])]
    agree(lambda utils, made: utils.clip_grad_norm_(made, 1.0), wrong)
    agree(lambda utils, made: utils.clip_grad_norm_(made, 1.0, math.inf), wrong[:1])
    for library in (weft, oracle("torch")):
        made = parameters(library, wrong)
        with pytest.raises(RuntimeError, match=r"total norm of order 2.0 .* is non-finite"):
            library.nn.utils.clip_grad_norm_(made, 1.0, error_if_nonfinite=True)
        assert made[0].grad.numpy().tolist() == [1.0, math.inf]


def test_warnings_of_clipping():
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        weft.nn.utils.clip_grad_norm(parameters(weft, GRADIENTS), 1.0)
    with pytest.warns(UserWarning, match="empty generator"):
        weft.nn.utils.clip_grad_norm_((p for p in []), 1.0)
    with warnings.catch_warnings(action="error"):
        weft.nn.utils.clip_grad_norm_([], 1.0)


# Vectors.


def test_parameters_become_a_vector_and_back():
    shapes = [(2, 3), (), (4,), (1, 2)]
    arrays = [RNG.normal(size=shape).astype("float32") for shape in shapes]
    made = [weft.nn.Parameter(weft.from_numpy(array.copy())) for array in arrays]
    vector = weft.nn.utils.parameters_to_vector(made)
    np.testing.assert_array_equal(vector.detach().numpy(), np.concatenate([array.reshape(-1) for array in arrays]))
    vector.sum().backward()
    assert all((parameter.grad == 1).all() for parameter in made)
    fresh = weft.arange(13.0)
    weft.nn.utils.vector_to_parameters(fresh, iter(made))
    assert [tuple(parameter.shape) for parameter in made] == shapes
    np.testing.assert_array_equal(weft.nn.utils.parameters_to_vector(made).detach().numpy(), np.arange(13.0))
    fresh[0] = 7.0  # they are parts of it
    assert made[0][0, 0].item() == 7.0
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in made)


def test_parts_of_a_tensor_that_does_not_lie_in_order():
    turned = weft.arange(6.0).reshape(2, 3).t()
    assert weft.nn.utils.parameters_to_vector([turned]).tolist() == [0, 3, 1, 4, 2, 5]


REFUSED = [
    lambda lib: lib.nn.utils.parameters_to_vector([]),
    lambda lib: lib.nn.utils.vector_to_parameters([1.0], [lib.rand(1)]),
    lambda lib: lib.nn.utils.vector_to_parameters(lib.rand(2), [lib.rand(1), lib.rand(3)]),
    lambda lib: lib.nn.utils.get_total_norm([lib.tensor([1, 2])]),
    lambda lib: lib.nn.utils.skip_init(lib.nn.ReLU),
    lambda lib: lib.nn.utils.skip_init(int),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals(case):
    refused_alike(REFUSED[case])


# Modules.


def test_modules_that_are_not_filled_draw_nothing():
    weft.manual_seed(0)
    expected = weft.rand(3)
    weft.manual_seed(0)
    layer = weft.nn.utils.skip_init(weft.nn.Linear, 3, 2, dtype=weft.float64)
    found = weft.rand(3)
    assert found.tolist() == expected.tolist()
    assert layer.weight.shape == (2, 3)
    assert layer.weight.dtype == layer.bias.dtype == weft.float64
    assert layer.weight.requires_grad
    weft.nn.utils.skip_init(weft.nn.Conv2d, 3, 2, 3)
    assert weft.nn.Linear(3, 2).weight.abs().sum() > 0  # and others are filled after it
    with pytest.raises(TypeError):
        weft.nn.utils.skip_init(weft.nn.Linear, 3, 2, wrong=1)
    assert weft.nn.init.ones_(weft.zeros(2)).tolist() == [1, 1]


def test_weights_of_convolutions_in_another_order():
    torch = oracle("torch")
    for library, results in ((weft, []), (torch, [])):
        library.manual_seed(0)
        net = library.nn.Sequential(library.nn.Conv2d(2, 3, 2), library.nn.ConvTranspose2d(3, 2, 3))
        before = [value.detach().numpy().copy() for value in net.parameters()]
        assert library.nn.utils.convert_conv2d_weight_memory_format(net, library.channels_last) is net
        results += [layer.weight.stride() for layer in net]
        assert results == [(8, 1, 4, 2), (18, 1, 6, 2)]
        for old, new in zip(before, net.parameters(), strict=True):
            np.testing.assert_array_equal(old, new.detach().numpy())
    cube = weft.nn.Conv3d(2, 3, 2)
    weft.nn.utils.convert_conv2d_weight_memory_format(cube, weft.channels_last)  # not of its rank
    assert cube.weight.stride() == (16, 8, 4, 2, 1)
    weft.nn.utils.convert_conv3d_weight_memory_format(cube, weft.channels_last_3d)
    assert cube.weight.stride() == (16, 1, 8, 4, 2)


def test_every_name_of_pytorch_is_there():
    theirs = set(oracle("torch").nn.utils.__all__) - {"parametrizations", "parametrize", "rnn", "stateless"}
    assert theirs <= set(weft.nn.utils.__all__)
