"""Pools, and the way back from them, beside PyTorch's."""

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare, made_alike, same_call

import weft

SHAPES = {1: (2, 3, 9), 2: (2, 3, 7, 8), 3: (2, 2, 5, 6, 4)}


def array(*shape, seed=0):
    """Numbers of which no two are equal, so that the greatest is one."""
    count = int(np.prod(shape))
    return (np.random.default_rng(seed).permutation(count).reshape(shape) / count - 0.5).astype(np.float32)


def cases(family, ranks, settings):
    """Each setting on a batch, and the first on one item."""
    for rank in ranks:
        for number, (args, kwargs) in enumerate(settings):
            given = tuple(arg[:rank] if isinstance(arg, tuple) else arg for arg in args)
            options = {key: value[:rank] if isinstance(value, tuple) else value for key, value in kwargs.items()}
            told = ", ".join([*map(repr, given), *(f"{key}={value!r}" for key, value in options.items())])
            for shape in [SHAPES[rank], *([SHAPES[rank][1:]] if number == 0 else [])]:
                yield pytest.param(f"{family}{rank}d", given, options, shape, id=f"{family}{rank}d({told}) on {shape}")


MAXIMA = [
    ((2,), {}),
    ((3, 2, 1), {"ceil_mode": True}),
    (((2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 2, 1)), {}),
    ((2,), {"return_indices": True}),
    ((3, 2, 1), {"return_indices": True, "ceil_mode": True}),
]
MEANS = [
    ((2,), {}),
    ((3, 2, 1), {"ceil_mode": True}),
    ((3, 2, 1), {"ceil_mode": True, "count_include_pad": False}),
    (((2, 3, 2), (1, 2, 1), (1, 1, 0)), {"count_include_pad": False}),
]
POOLS = [
    *cases("MaxPool", (1, 2, 3), MAXIMA),
    *cases("AvgPool", (1, 2, 3), MEANS),
    *cases("AvgPool", (2, 3), [((2, 1), {"divisor_override": 3}), ((3, 2, 1, True, False), {"divisor_override": -2})]),
    *cases("LPPool", (1, 2, 3), [((2, 2), {}), ((4, 3, 2), {"ceil_mode": True}), ((1.0, 2, 1), {})]),
    *cases("LPPool", (2, 3), [((3, (3, 2, 1)), {})]),
    *cases("AdaptiveAvgPool", (1, 2, 3), [((3,), {}), ((1,), {}), (((4, 3, 2),), {})]),
    *cases("AdaptiveAvgPool", (2, 3), [(((None, 3, 2),), {}), (((6, None, None),), {})]),
    *cases("AdaptiveMaxPool", (1, 2, 3), [((3,), {}), (((4, 3, 2),), {"return_indices": True}), ((1, True), {})]),
    *cases("AdaptiveMaxPool", (2, 3), [(((None, 3, 2),), {})]),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "shape"), POOLS)
def test_pool(name, args, kwargs, shape):
    data = array(*shape) + 0.6 if name.startswith("LPPool") else array(*shape)
    compare(name, *args, inputs=[data], **kwargs)


FRACTIONAL = [
    (2, (2,), {"output_size": 3}),
    (2, ((2, 3),), {"output_size": (4, 3)}),
    (2, (3,), {"output_ratio": 0.5}),
    (2, (2,), {"output_ratio": (0.5, 0.7), "return_indices": True}),
    (3, (2,), {"output_size": 2}),
    (3, ((2, 3, 1),), {"output_size": (3, 2, 3), "return_indices": True}),
    (3, (2,), {"output_ratio": 0.5}),
]


@pytest.mark.parametrize(("rank", "args", "kwargs"), FRACTIONAL)
def test_fractional_pool(rank, args, kwargs):
    """Windows lie where PyTorch's generator puts them."""
    for shape in (SHAPES[rank], SHAPES[rank][1:]):
        compare(f"FractionalMaxPool{rank}d", *args, inputs=[array(*shape)], **kwargs)


def test_fractional_pool_keeps_the_samples_it_is_given():
    samples = np.random.default_rng(0).uniform(size=(2, 3, 2)).astype(np.float32)
    name, data = "FractionalMaxPool2d", array(*SHAPES[2])
    ours, theirs = compare(name, 2, 3, _random_samples=samples, randomised=False, inputs=[data])
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["_random_samples"]


UNPOOLS = [
    (1, (2,), {}),
    (1, (3, 2), {}),
    (1, (3, 2, 1), {"output_size": (2, 3, 9)}),
    (2, (2,), {}),
    (2, ((3, 2), (2, 1), (1, 0)), {}),
    (2, (2,), {"output_size": (7, 8)}),
    (3, (2,), {}),
    (3, (2, (1, 2, 2)), {}),
    (3, (2,), {"output_size": (2, 2, 5, 6, 4)}),
]


@pytest.mark.parametrize(("rank", "args", "kwargs"), UNPOOLS)
def test_unpool(rank, args, kwargs):
    torch = oracle("torch")
    pool = getattr(torch.nn, f"MaxPool{rank}d")(*args, return_indices=True)
    for shape in (SHAPES[rank], SHAPES[rank][1:]):
        chosen, places = (part.numpy() for part in pool(torch.from_numpy(array(*shape))))
        named = {"output_size": kwargs["output_size"][-rank:]} if "output_size" in kwargs else {}
        if args != (2, (1, 2, 2)):  # windows that overlap choose an element twice, and a sum of threads is any
            compare(f"MaxUnpool{rank}d", *args, inputs=[chosen * 3, places], named_inputs=named)
        ours, theirs = made_alike(f"MaxUnpool{rank}d", *args)
        same_call(ours, theirs, [chosen, places], named, gradients=False)


@pytest.mark.parametrize("size", [(8, 8), (6, 4), (7,), (1, 6, 6)])
def test_sizes_that_no_pool_came_from(size):
    for library in (weft, oracle("torch")):
        chosen, places = library.nn.MaxPool2d(2, return_indices=True)(library.ones(1, 1, 6, 6))
        with pytest.raises(ValueError, match="output_size"):
            library.nn.MaxUnpool2d(2)(chosen, places, output_size=size)


WRONG = [
    ("MaxPool2d", (2,), [(4, 4)], RuntimeError),
    ("MaxPool1d", (3, 1, 2), [(1, 4)], RuntimeError),
    ("MaxPool3d", (9,), [(1, 2, 3, 4)], RuntimeError),
    ("AvgPool2d", (2, 1, 2), [(1, 4, 4)], RuntimeError),
    ("AvgPool1d", (5,), [(1, 4)], RuntimeError),
    ("AvgPool3d", (2, 1, 0, False, True, 0), [(1, 2, 3, 4)], RuntimeError),
    ("LPPool2d", (2, 9), [(1, 4, 4)], RuntimeError),
    ("AdaptiveAvgPool2d", ((1, 2, 3),), [(1, 1, 4, 4)], RuntimeError),
    ("AdaptiveMaxPool2d", (2,), [(4,)], (RuntimeError, ValueError)),
    ("FractionalMaxPool2d", (9, 3), [(1, 4, 4)], RuntimeError),
]


@pytest.mark.parametrize(("name", "args", "shapes", "error"), WRONG)
def test_wrong_inputs(name, args, shapes, error):
    for library in (weft, oracle("torch")):
        layer = getattr(library.nn, name)(*args)
        with pytest.raises(error):
            layer(*[library.ones(*shape) for shape in shapes])


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("FractionalMaxPool2d", (2,)),
        ("FractionalMaxPool2d", (2, 3, 0.5)),
        ("FractionalMaxPool3d", (2, None, 1.5)),
        ("FractionalMaxPool3d", (2, None, (0.5, 0.0, 0.5))),
    ],
)
def test_wrong_arguments(name, args):
    for library in (weft, oracle("torch")):
        with pytest.raises(ValueError, match="output"):
            getattr(library.nn, name)(*args)
