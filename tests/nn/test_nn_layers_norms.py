"""Normalisations beside PyTorch's: parameters, running moments, states, and what they refuse."""

import numpy as np
import pytest
from oracles import oracle
from twin_modules import array_of, compare, made_alike, randomise, same_call, same_state

import weft

BATCHES = {1: [(5, 3), (4, 3, 6)], 2: [(4, 3, 2, 5)], 3: [(4, 3, 2, 2, 3)]}
ITEMS = {1: [(3, 6), (4, 3, 6)], 2: [(3, 2, 5), (4, 3, 2, 5)], 3: [(3, 2, 2, 3), (4, 3, 2, 2, 3)]}
SETTINGS = [
    {},
    {"eps": 0.1, "momentum": 0.3},
    {"momentum": None},
    {"affine": False},
    {"track_running_stats": False},
    {"bias": False},
    {"affine": True, "track_running_stats": True, "momentum": 0.2},
    {"affine": True, "bias": False, "track_running_stats": False},
]


def array(*shape, seed=0):
    """Numbers of which no channel is like another."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * rng.uniform(0.5, 2, shape[-1:]) + 0.3).astype(np.float32)


@pytest.mark.parametrize("kwargs", SETTINGS, ids=str)
@pytest.mark.parametrize(("family", "shapes"), [("BatchNorm", BATCHES), ("InstanceNorm", ITEMS)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_norm_of_channels(family, shapes, rank, kwargs):
    for shape in shapes[rank]:
        compare(f"{family}{rank}d", 3, inputs=[array(*shape)], atol=2e-5, **kwargs)


@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_moments_follow_batches(momentum):
    ours, theirs = made_alike("BatchNorm1d", 3, momentum=momentum)
    for seed in range(4):
        same_call(ours, theirs, [array(5, 3, 2, seed=seed)], {})
        same_state(ours, theirs, 1e-5, 1e-6)
    assert ours.num_batches_tracked.item() == 4
    ours.reset_running_stats(), theirs.reset_running_stats()
    same_state(ours, theirs, 0, 0)
    assert ours.running_var.tolist() == [1.0] * 3


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 5), (2, 3, 0)])
def test_batches_of_nothing_move_no_moments(shape):
    ours, theirs = made_alike("BatchNorm1d", 3)
    randomise(ours, theirs)
    same_call(ours, theirs, [np.zeros(shape, np.float32)], {})
    same_state(ours, theirs, 1e-6, 1e-6)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shape"),
    [
        ("LayerNorm", (6,), {}, (4, 3, 6)),
        ("LayerNorm", ([3, 6],), {"eps": 0.1}, (4, 3, 6)),
        ("LayerNorm", ((6,),), {"bias": False}, (6,)),
        ("LayerNorm", (6,), {"elementwise_affine": False}, (4, 6)),
        ("RMSNorm", (6,), {}, (4, 3, 6)),
        ("RMSNorm", ([3, 6],), {"eps": 0.1}, (4, 3, 6)),
        ("RMSNorm", (6,), {"elementwise_affine": False}, (6,)),
        ("GroupNorm", (2, 6), {}, (4, 6, 5)),
        ("GroupNorm", (6, 6), {"eps": 0.1, "bias": False}, (4, 6, 2, 3)),
        ("GroupNorm", (1, 6), {"affine": False}, (4, 6)),
        ("LocalResponseNorm", (2,), {}, (2, 5, 4)),
        ("LocalResponseNorm", (3,), {"alpha": 0.5, "beta": 0.6, "k": 2.0}, (2, 5, 4, 3)),
        ("LocalResponseNorm", (7, 0.3), {}, (2, 5, 2, 2, 3)),
        ("CrossMapLRN2d", (9, 0.5), {}, (2, 3, 2, 2)),
        ("CrossMapLRN2d", (8, 0.5, 0.6, 2), {}, (2, 3, 4, 3)),
        ("CrossMapLRN2d", (4,), {"alpha": 0.5}, (2, 2, 4, 3)),
    ],
)
def test_norm_of_items(name, args, kwargs, shape):
    compare(name, *args, inputs=[array(*shape)], **kwargs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_least_spread_is_that_of_the_dtype_it_is_computed_in(dtype):
    numbers = np.array([[1e-3, -2e-3, 5e-4, 1e-3]])
    made = []
    for library in (weft, oracle("torch")):
        kind = getattr(library, dtype)
        x = library.from_numpy(numbers).to(kind)
        made.append(array_of(library.nn.RMSNorm(4, dtype=kind)(x)).astype(np.float64))
    np.testing.assert_allclose(*made, 1e-2 if "16" in dtype else 1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_windows_of_channels_leave_the_first_one(size):
    """PyTorch's windows keep the first channel for good, against the formula; ours are those of the formula."""
    torch, data, (alpha, beta, k) = oracle("torch"), array(2, 7, 3, 2), (0.5, 0.6, 2.0)
    x, y = (lib.from_numpy(data.copy()).requires_grad_() for lib in (weft, torch))
    got = weft.nn.CrossMapLRN2d(size, alpha, beta, k)(x)
    reach = (size + 1) // 2 - 1
    sums = [(y[:, max(c - reach, 0) : c + reach + 1] ** 2).sum(1) for c in range(7)]
    want = y / (k + alpha / size * torch.stack(sums, 1)) ** beta
    np.testing.assert_allclose(array_of(got), array_of(want), 1e-5)
    (got * got).sum().backward(), (want * want).sum().backward()
    np.testing.assert_allclose(array_of(x.grad), array_of(y.grad), 1e-4, 1e-5)


def test_parameters_begin_again():
    for name, args in (("BatchNorm2d", (3,)), ("LayerNorm", (3,)), ("GroupNorm", (1, 3))):
        ours, theirs = made_alike(name, *args)
        fresh = {key: array_of(value).copy() for key, value in ours.state_dict().items()}
        randomise(ours, theirs)
        assert not np.array_equal(array_of(ours.weight), fresh["weight"])
        ours.reset_parameters()
        for key, value in ours.state_dict().items():
            np.testing.assert_array_equal(array_of(value), fresh[key])


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 6), (2, 3, 2, 2)])
@pytest.mark.parametrize("kwargs", [{}, {"affine": False}, {"momentum": None, "eps": 0.1}], ids=str)
def test_synchronised_norm_of_one_process_is_batch_norm(kwargs, shape):
    """PyTorch's own runs on GPUs, and on processors in evaluation."""
    ours, theirs = made_alike("SyncBatchNorm", 3, **kwargs)
    assert repr(ours) == repr(theirs)
    same_state(ours, theirs, 0, 0)
    plain = getattr(oracle("torch").nn, f"BatchNorm{max(len(shape) - 2, 1)}d")(3, **kwargs)
    randomise(ours, plain)
    for mode in (True, False):
        ours.train(mode), plain.train(mode)
        same_call(ours, plain, [array(*shape)], {}, atol=2e-5)
    np.testing.assert_allclose(array_of(ours.running_var), array_of(plain.running_var), 1e-5)
    with pytest.raises(ValueError, match="2D"):
        ours(weft.ones(3))


def test_batch_norms_become_synchronised():
    made = []
    for lib in (weft, oracle("torch")):
        lib.manual_seed(0)
        norm = lib.nn.BatchNorm2d(3, eps=0.1, momentum=0.4)
        inner = lib.nn.Sequential(norm, lib.nn.BatchNorm1d(2, affine=False, track_running_stats=False))
        net = lib.nn.Sequential(
            lib.nn.Conv2d(1, 3, 1), inner, lib.nn.InstanceNorm1d(3), lib.nn.BatchNorm3d(1, bias=False)
        )
        result = lib.nn.SyncBatchNorm.convert_sync_batchnorm(net.eval(), "a group")
        assert result is net
        assert net[1][0].weight is norm.weight
        assert net[1][0].running_var is norm.running_var
        assert not net[1][0].training
        assert net[1][0].process_group == "a group"
        assert type(lib.nn.SyncBatchNorm.convert_sync_batchnorm(norm)) is lib.nn.SyncBatchNorm
        made.append(net)
    assert repr(made[0]) == repr(made[1])
    same_state(*made, 1e-6, 1e-6)


def test_a_norm_that_stands_twice_stays_one():
    norm = weft.nn.BatchNorm1d(3)
    net = weft.nn.SyncBatchNorm.convert_sync_batchnorm(weft.nn.Sequential(norm, weft.nn.Sequential(norm)))
    assert net[0] is net[1][0]


def test_deep_nests_become_synchronised():
    net = weft.nn.Sequential(weft.nn.BatchNorm1d(1))
    inner = net
    for _ in range(1500):
        inner.append(weft.nn.Sequential())
        inner = inner[-1]
    inner.append(weft.nn.BatchNorm1d(2))
    weft.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(inner[0]) is weft.nn.SyncBatchNorm


def test_states_of_old_versions():
    """Those of version 1 had no number of batches."""
    for lib in (weft, oracle("torch")):
        layer = lib.nn.BatchNorm1d(3)
        layer.num_batches_tracked += 5
        state = layer.state_dict()
        del state["num_batches_tracked"]
        with pytest.raises(RuntimeError, match="num_batches_tracked"):
            layer.load_state_dict(state)
        state._metadata[""]["version"] = 1
        layer.load_state_dict(state)
        assert layer.num_batches_tracked.item() == 5
        plain = lib.nn.InstanceNorm1d(3)
        with pytest.raises(RuntimeError, match="running_mean"):
            plain.load_state_dict(dict(state))
    assert lib.nn.BatchNorm1d(3).state_dict()._metadata[""]["version"] == 2


def test_moments_that_are_not_moved():
    """Of a layer that stops to track, training takes the batch's and leaves the running ones."""
    made = made_alike("BatchNorm1d", 3)
    randomise(*made)
    for layer in made:
        layer.track_running_stats = False
    same_call(*made, [array(5, 3)], {})
    same_state(*made, 1e-6, 1e-6)
    assert made[0].num_batches_tracked.item() == 0


WRONG = [
    ("BatchNorm1d", (3,), (3,), ValueError),
    ("BatchNorm1d", (3,), (2, 3, 4, 4), ValueError),
    ("BatchNorm2d", (3,), (2, 3, 4), ValueError),
    ("BatchNorm3d", (3,), (2, 3, 4, 4), ValueError),
    ("BatchNorm2d", (3,), (2, 4, 4, 4), RuntimeError),
    ("BatchNorm1d", (3,), (1, 3), ValueError),
    ("InstanceNorm1d", (3,), (3,), ValueError),
    ("InstanceNorm2d", (3,), (3, 3), ValueError),
    ("InstanceNorm3d", (3,), (3, 3, 3), ValueError),
    ("InstanceNorm1d", (3, 1e-5, 0.1, True), (2, 4, 5), ValueError),
    ("InstanceNorm1d", (3,), (2, 3, 1), ValueError),
    ("LayerNorm", (3,), (3, 4), RuntimeError),
    ("LayerNorm", ([4, 3],), (3,), RuntimeError),
    ("RMSNorm", (3,), (3, 4), RuntimeError),
    ("GroupNorm", (2, 4), (2, 6, 3), RuntimeError),
    ("LocalResponseNorm", (2,), (2, 3), ValueError),
    ("CrossMapLRN2d", (2,), (2, 3, 4), ValueError),
]


@pytest.mark.parametrize(("name", "args", "shape", "error"), WRONG)
def test_wrong_inputs(name, args, shape, error):
    for library in (weft, oracle("torch")):
        layer = getattr(library.nn, name)(*args)
        with pytest.raises(error):
            layer(library.ones(*shape))


def test_groups_must_fit():
    for library in (weft, oracle("torch")):
        with pytest.raises(ValueError, match="divisible"):
            library.nn.GroupNorm(2, 3)


def test_channels_that_are_not_used_are_told():
    for library in (weft, oracle("torch")):
        with pytest.warns(UserWarning, match="num_features"):
            library.nn.InstanceNorm1d(3)(library.ones(2, 4, 5))
