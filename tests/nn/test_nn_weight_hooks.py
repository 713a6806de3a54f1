"""weight_norm, spectral_norm and the fusion of layers with normalisations, against PyTorch."""

import warnings

import numpy as np
import pytest
from oracles import oracle
from twin_modules import made_alike, randomise, same_call, same_state, same_tensor, same_text

import weft

RNG = np.random.default_rng(4)


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


LAYERS = {
    "linear": (lambda lib: lib.nn.Linear(5, 3), numbers(4, 5)),
    "conv": (lambda lib: lib.nn.Conv2d(2, 3, 2), numbers(2, 2, 4, 4)),
    "transposed": (lambda lib: lib.nn.ConvTranspose1d(2, 3, 2), numbers(2, 2, 4)),
}


def wrapped(layer, function, **settings):
    def build(lib):
        with warnings.catch_warnings(action="ignore"):
            return getattr(lib.nn.utils, function)(LAYERS[layer][0](lib), **settings)

    return build


WEIGHTS = [
    *(("linear", {"dim": dim}) for dim in (0, 1, None, -1)),
    *(("conv", {"dim": dim}) for dim in (0, 1, 3, None)),
    ("transposed", {"dim": 1}),
    ("linear", {"name": "bias"}),
]


@pytest.mark.parametrize(("layer", "settings"), WEIGHTS)
def test_weight_norm(layer, settings):
    ours, theirs = made_alike(wrapped(layer, "weight_norm", **settings))
    same_text(ours, theirs)
    same_state(ours, theirs, 1e-6, 1e-6)
    randomise(ours, theirs)
    same_call(ours, theirs, (LAYERS[layer][1],), {})
    name = settings.get("name", "weight")
    expected = getattr(theirs, name)
    for library, module in ((weft, ours), (oracle("torch"), theirs)):
        assert library.nn.utils.remove_weight_norm(module, name) is module
    same_state(ours, theirs, 1e-5, 1e-6)
    same_tensor(getattr(ours, name), expected, 1e-5, 1e-6)
    assert isinstance(getattr(ours, name), weft.nn.Parameter)
    same_call(ours, theirs, (LAYERS[layer][1],), {})
    assert not ours._forward_pre_hooks


def test_weight_norm_refuses_and_warns():
    with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
        layer = weft.nn.utils.weight_norm(weft.nn.Linear(2, 3))
    with warnings.catch_warnings(action="ignore"):
        with pytest.raises(RuntimeError, match="two weight_norm hooks on the same parameter weight"):
            weft.nn.utils.weight_norm(layer)
        with pytest.raises(AttributeError):
            weft.nn.utils.weight_norm(layer, "wait")
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        weft.nn.utils.remove_weight_norm(weft.nn.Linear(2, 3))


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_modules_that_wait_for_their_first_input_are_left_alone(name):
    layer = weft.nn.LazyLinear(3)
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match="uninitialized parameter"):
        getattr(weft.nn.utils, name)(layer)
    assert layer(weft.rand(2, 4)).shape == (2, 3)


def test_weight_norm_is_trained():
    with warnings.catch_warnings(action="ignore"):
        layer = weft.nn.utils.weight_norm(weft.nn.Linear(4, 1))
    x, y = (weft.from_numpy(numbers(*shape)) for shape in ((16, 4), (16, 1)))
    losses = []
    for _ in range(20):
        loss = weft.nn.functional.mse_loss(layer(x), y)
        losses.append(loss.item())
        layer.zero_grad()
        loss.backward()
        with weft.no_grad():
            for parameter in layer.parameters():
                parameter -= 0.1 * parameter.grad
    assert losses[-1] < losses[0]
    assert losses == sorted(losses, reverse=True)


SPECTRA = [
    *((layer, {}) for layer in LAYERS),
    ("linear", {"n_power_iterations": 5, "eps": 1e-6}),
    ("conv", {"dim": 1}),
    ("transposed", {"dim": 0}),
]


@pytest.mark.parametrize(("layer", "settings"), SPECTRA)
def test_spectral_norm(layer, settings):
    ours, theirs = made_alike(wrapped(layer, "spectral_norm", **settings))
    same_text(ours, theirs)
    same_state(ours, theirs, 1e-6, 1e-6)  # and its version
    for training in (True, True, False, True):
        ours.train(training), theirs.train(training)
        same_call(ours, theirs, (LAYERS[layer][1],), {})
        same_state(ours, theirs, 1e-5, 1e-6)
        same_tensor(ours.weight, theirs.weight, 1e-4, 1e-5)
    for library, module in ((weft, ours), (oracle("torch"), theirs)):
        assert library.nn.utils.remove_spectral_norm(module) is module
    same_state(ours, theirs, 1e-5, 1e-6)
    assert not ours._forward_pre_hooks
    assert not ours._state_dict_hooks
    same_call(ours, theirs, (LAYERS[layer][1],), {})


def test_states_of_spectral_norm_are_exchanged():
    ours, theirs = made_alike(wrapped("linear", "spectral_norm"))
    other = wrapped("linear", "spectral_norm")(weft)
    other(weft.rand(4, 5))
    ours.load_state_dict(other.state_dict())
    torch = oracle("torch")
    theirs.load_state_dict({key: torch.from_numpy(value.numpy()) for key, value in other.state_dict().items()})
    same_call(ours, theirs, (LAYERS["linear"][1],), {})


def test_two_passes_before_one_step_backward():
    layer = weft.nn.utils.spectral_norm(weft.nn.Linear(5, 3))
    x = weft.from_numpy(LAYERS["linear"][1])
    (layer(x) + layer(x)).sum().backward()  # the second pass changes the buffers that the first one read
    assert layer.weight_orig.grad is not None


def test_spectral_norm_refuses():
    layer = weft.nn.utils.spectral_norm(weft.nn.Linear(2, 3))
    with pytest.raises(RuntimeError, match="two spectral_norm hooks on the same parameter weight"):
        weft.nn.utils.spectral_norm(layer)
    with pytest.raises(KeyError):
        weft.nn.utils.spectral_norm(weft.nn.Linear(2, 3), "wait")
    with pytest.raises(ValueError, match="n_power_iterations to be positive"):
        weft.nn.utils.spectral_norm(weft.nn.Linear(2, 3), n_power_iterations=0)
    with pytest.raises(ValueError, match="spectral_norm of 'weight' not found"):
        weft.nn.utils.remove_spectral_norm(weft.nn.Linear(2, 3))


# Fusion.

FUSED = {
    "conv": (lambda lib: (lib.nn.Conv2d(2, 3, 2), lib.nn.BatchNorm2d(3)), (2, 2, 4, 4)),
    "no bias": (lambda lib: (lib.nn.Conv1d(2, 3, 2, bias=False), lib.nn.BatchNorm1d(3)), (2, 2, 4)),
    "groups": (lambda lib: (lib.nn.Conv2d(4, 6, 2, groups=2), lib.nn.BatchNorm2d(6, eps=0.1)), (2, 4, 3, 3)),
    "not affine": (lambda lib: (lib.nn.Conv2d(2, 3, 2), lib.nn.BatchNorm2d(3, affine=False)), (2, 2, 4, 4)),
    "transposed": (lambda lib: (lib.nn.ConvTranspose2d(2, 3, 2), lib.nn.BatchNorm2d(3)), (2, 2, 4, 4)),
    "linear": (lambda lib: (lib.nn.Linear(5, 3), lib.nn.BatchNorm1d(3)), (4, 5)),
    "linear no bias": (lambda lib: (lib.nn.Linear(5, 3, bias=False), lib.nn.BatchNorm1d(3)), (4, 5)),
}


def fused(lib, layer, bn):
    if isinstance(layer, lib.nn.Linear):
        return lib.nn.utils.fuse_linear_bn_eval(layer, bn)
    transposed = isinstance(layer, lib.nn.ConvTranspose2d)
    return lib.nn.utils.fuse_conv_bn_eval(layer, bn, transposed)


@pytest.mark.parametrize("case", FUSED)
def test_fusion(case):
    build, shape = FUSED[case]
    ours, theirs = made_alike(lambda lib: lib.nn.Sequential(*build(lib)).eval())
    randomise(ours, theirs)
    x = weft.from_numpy(numbers(*shape))
    kept = {key: value.clone() for key, value in ours.state_dict().items()}
    mine, other = fused(weft, *ours), fused(oracle("torch"), *theirs)
    same_text(mine, other)
    same_state(mine, other, 1e-5, 1e-6)
    np.testing.assert_allclose(mine(x).detach().numpy(), ours(x).detach().numpy(), 1e-4, 1e-5)
    for key, value in ours.state_dict().items():  # the layers themselves stay
        np.testing.assert_array_equal(value.numpy(), kept[key].numpy())


def test_fused_weights():
    arrays = [numbers(3, 2, 2, 2), numbers(3), numbers(3), RNG.uniform(0.5, 1.5, 3), 1e-3, numbers(3), numbers(3)]

    def weights(lib, name, transpose=None):
        given = [lib.from_numpy(np.float32(a)) if isinstance(a, np.ndarray) else a for a in arrays]
        if name == "fuse_linear_bn_weights":
            given[0] = given[0].reshape(3, -1)
        if transpose:
            given[0] = given[0].transpose(0, 1)
        extra = () if transpose is None else (transpose,)
        return getattr(lib.nn.utils, name)(*given, *extra)

    cases = [("fuse_conv_bn_weights", False), ("fuse_conv_bn_weights", True), ("fuse_linear_bn_weights", None)]
    for name, transpose in cases:
        for mine, theirs in zip(weights(weft, name, transpose), weights(oracle("torch"), name, transpose)):
            same_tensor(mine, theirs, 1e-5, 1e-6)
            assert isinstance(mine, weft.nn.Parameter)
            assert mine.requires_grad == theirs.requires_grad


REFUSED = {
    "training": lambda lib: fused(lib, lib.nn.Conv2d(2, 3, 2), lib.nn.BatchNorm2d(3).eval()),
    "features": lambda lib: fused(lib, lib.nn.Linear(2, 3).eval(), lib.nn.BatchNorm1d(2).eval()),
    "statistics": lambda lib: fused(
        lib, lib.nn.Conv2d(2, 3, 2).eval(), lib.nn.BatchNorm2d(3, track_running_stats=False).eval()
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_fusion_refuses(case):
    with pytest.raises(AssertionError):
        REFUSED[case](oracle("torch"))
    with pytest.raises(ValueError, match=r"Fusion only for eval|To fuse|running_mean"):
        REFUSED[case](weft)
