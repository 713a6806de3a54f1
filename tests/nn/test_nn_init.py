"""nn.init against PyTorch: the same numbers from the same seed, the same refusals and warnings."""

import warnings

import pytest
from oracles import oracle

import weft

# name: (shape, arguments); each runs with float32 and float64
FILLS = [
    ("uniform_", (5, 7), {}),
    ("uniform_", (40,), {"a": -2.0, "b": 0.5}),
    ("normal_", (3, 5), {}),
    ("normal_", (4, 11), {"mean": 1.5, "std": 0.2}),
    ("trunc_normal_", (300,), {}),
    ("trunc_normal_", (7, 30), {"mean": 0.3, "std": 2.0, "a": -1.0, "b": 2.5}),
    ("trunc_normal_", (200,), {"std": 0.02}),
    ("trunc_normal_", (90,), {"mean": 0.5, "std": 1.3, "a": 3.0, "b": 5.0}),  # a tail: another way to draw
    ("trunc_normal_", (90,), {"mean": 0.1, "a": 0.0, "b": 0.2}),
    ("constant_", (2, 3), {"val": 0.3}),
    ("ones_", (2, 3), {}),
    ("zeros_", (4,), {}),
    ("eye_", (3, 5), {}),
    ("eye_", (5, 3), {}),
    ("dirac_", (3, 4, 5), {}),
    ("dirac_", (6, 2, 3, 4), {"groups": 2}),
    ("dirac_", (4, 4, 1, 2, 3), {"groups": 4}),
    ("xavier_uniform_", (5, 7), {}),
    ("xavier_uniform_", (5, 7, 3), {"gain": 1.7}),
    ("xavier_normal_", (5, 7), {}),
    ("xavier_normal_", (5, 7, 2, 2), {"gain": 0.4}),
    ("kaiming_uniform_", (5, 7), {}),
    ("kaiming_uniform_", (5, 7, 3), {"a": 5**0.5}),
    ("kaiming_uniform_", (5, 7, 3), {"mode": "fan_out", "nonlinearity": "tanh"}),
    ("kaiming_normal_", (5, 7), {"nonlinearity": "relu"}),
    ("kaiming_normal_", (5, 2, 3, 3), {"a": 0.2, "mode": "fan_out"}),
    ("kaiming_normal_", (5, 2), {"mode": "fan_out", "nonlinearity": "selu"}),
    ("orthogonal_", (5, 5), {}),
    ("orthogonal_", (3, 8), {"gain": 2.5}),
    ("orthogonal_", (8, 3), {}),
    ("orthogonal_", (4, 3, 2), {"gain": 0.5}),
    ("sparse_", (9, 4), {"sparsity": 0.3}),
    ("sparse_", (3, 6), {"sparsity": 0.5, "std": 2.0}),
    ("sparse_", (6, 2), {"sparsity": 1.0}),
]
OLD = "uniform normal constant eye dirac xavier_uniform xavier_normal kaiming_uniform kaiming_normal orthogonal sparse"


def filled(library, name, shape, arguments, kind="float32", seeded=False):
    tensor = library.full(shape, 7.0, dtype=getattr(library, kind), requires_grad=True)
    library.manual_seed(3)
    if seeded:
        arguments = {**arguments, "generator": library.Generator().manual_seed(11)}
    with warnings.catch_warnings(action="ignore"):
        result = getattr(library.nn.init, name)(tensor, **arguments)
    assert result is tensor
    assert tensor.is_leaf
    assert tensor.grad_fn is None
    return tensor.detach().numpy(), library.rand(2).numpy()


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("name", "shape", "arguments"), FILLS)
def test_fills_draw_the_same_numbers(name, shape, arguments, kind):
    mine = filled(weft, name, shape, arguments, kind)
    theirs = filled(oracle("torch"), name, shape, arguments, kind)
    assert mine[0].dtype == theirs[0].dtype
    assert mine[0] == pytest.approx(theirs[0], abs=1e-5 if name == "orthogonal_" else 1e-6)
    assert (mine[1] == theirs[1]).all()  # as many numbers were drawn


RANDOM = sorted({name for name, *_ in FILLS} - {"constant_", "ones_", "zeros_", "eye_", "dirac_"})


@pytest.mark.parametrize("name", RANDOM)
def test_fills_draw_from_a_generator(name):
    shape, arguments = next((shape, arguments) for other, shape, arguments in FILLS if other == name)
    mine = filled(weft, name, shape, arguments, seeded=True)
    theirs = filled(oracle("torch"), name, shape, arguments, seeded=True)
    assert mine[0] == pytest.approx(theirs[0], abs=1e-5)
    assert (mine[1] == theirs[1]).all()


def test_fills_of_tensors_that_do_not_lie_in_order():
    def program(library, name):
        library.manual_seed(5)
        tensor = library.zeros(6, 4).t()
        getattr(library.nn.init, name)(tensor)
        return tensor.numpy()

    for name in ("uniform_", "trunc_normal_", "xavier_normal_", "orthogonal_"):
        if name != "orthogonal_":  # which PyTorch refuses
            assert program(weft, name) == pytest.approx(program(oracle("torch"), name), abs=1e-6), name
    q = program(weft, "orthogonal_")
    assert q @ q.T == pytest.approx(weft.eye(4).numpy(), abs=1e-5)


def test_orthogonal_of_complex_numbers_is_unitary():
    q = weft.nn.init.orthogonal_(weft.empty(3, 5, dtype=weft.complex128)).numpy()
    assert abs(q @ q.conj().T - weft.eye(3).numpy()).max() < 1e-12


GAINS = [
    *((name, None) for name in "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d".split()),
    *((name, None) for name in "conv_transpose3d sigmoid tanh relu leaky_relu selu".split()),
    *(("leaky_relu", slope) for slope in (0.3, 2, 0)),
    ("relu", 0.7),
]


@pytest.mark.parametrize(("name", "param"), GAINS)
def test_gains(name, param):
    assert weft.nn.init.calculate_gain(name, param) == pytest.approx(
        oracle("torch").nn.init.calculate_gain(name, param)
    )


REFUSED = [
    lambda library, init: init.calculate_gain("relu7"),
    lambda library, init: init.calculate_gain("leaky_relu", True),
    lambda library, init: init.calculate_gain("leaky_relu", "steep"),
    lambda library, init: init.xavier_uniform_(library.empty(3)),
    lambda library, init: init.xavier_normal_(library.empty(())),
    lambda library, init: init.kaiming_normal_(library.empty(3, 2), mode="fan"),
    lambda library, init: init.kaiming_uniform_(library.empty(3)),
    lambda library, init: init.orthogonal_(library.empty(3)),
    lambda library, init: init.sparse_(library.empty(3, 2, 2), 0.1),
    lambda library, init: init.eye_(library.empty(3)),
    lambda library, init: init.dirac_(library.empty(3, 2)),
    lambda library, init: init.dirac_(library.empty(3, 2, 2), groups=2),
    lambda library, init: init.normal_(library.empty(3), std=-1.0),
    lambda library, init: init.uniform_(library.empty(3), 2.0, 1.0),
    lambda library, init: init.trunc_normal_(library.empty(3), a=2.0, b=-2.0),
    lambda library, init: init.trunc_normal_(library.empty(3), std=0.0),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refusals_are_of_the_same_kind(case):
    torch = oracle("torch")
    with pytest.raises(Exception) as theirs:
        REFUSED[case](torch, torch.nn.init)
    kind = next(kind for kind in type(theirs.value).__mro__ if kind.__module__ == "builtins")
    with pytest.raises(kind):
        REFUSED[case](weft, weft.nn.init)


@pytest.mark.parametrize("name", OLD.split())
def test_old_names_warn_and_do_the_same(name):
    shape, arguments = next((shape, arguments) for other, shape, arguments in FILLS if other == f"{name}_")
    weft.manual_seed(3)
    with pytest.warns(FutureWarning, match=f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`"):
        old = getattr(weft.nn.init, name)(weft.zeros(shape), **arguments)
    assert (old.numpy() == filled(weft, f"{name}_", shape, arguments)[0]).all()


def test_warnings():
    with pytest.warns(UserWarning, match="mean is more than 2 std") as caught:
        weft.nn.init.trunc_normal_(weft.empty(3), mean=5.0)
    assert caught[0].filename == __file__
    for name in ("kaiming_uniform_", "kaiming_normal_"):
        with pytest.warns(UserWarning, match="zero-element tensors is a no-op") as caught:
            assert getattr(weft.nn.init, name)(weft.empty(3, 0)).shape == (3, 0)
        assert caught[0].filename == __file__
    assert weft.nn.init.orthogonal_(weft.empty(0, 3)).shape == (0, 3)


def test_every_name_of_pytorch_is_there():
    torch = oracle("torch")
    theirs = {
        name for name, value in vars(torch.nn.init).items() if getattr(value, "__module__", "") == "torch.nn.init"
    }
    assert {name for name in theirs if not name.startswith("_")} <= set(weft.nn.init.__all__)
