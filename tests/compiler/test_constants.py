"""Constants that are computed while compiling: large ones by kernels, small ones by references."""

import weakref

import numpy as np
import pytest

from weft import symbol as sym
from weft.base.cpu_target import host
from weft.base.ndarray import ALIGNMENT
from weft.compiler import constants
from weft.compiler.model import compile
from weft.compiler.prepare import prepare
from weft.core.graph import Graph
from weft.core.infer import infer


@pytest.fixture(params=[1024, 1 << 40], ids=["by kernels", "by references"])
def limit(request, monkeypatch):
    monkeypatch.setattr(constants, "LARGE_BYTES", request.param)
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def network(rng):
    """A matrix and filters that are packed, filters for Winograd, and a sum of two parameters."""
    x = sym.Variable("x", shape=(1, 16, 14, 14))
    y = sym.conv2d(x, channels=32, kernel_size=(3, 3), padding=(1, 1), name="c1")
    y = sym.conv2d(y, channels=48, kernel_size=(1, 1), name="c2")
    y = sym.dense(sym.flatten(y), units=19, name="d")
    y = sym.broadcast_add(y, sym.Variable("p") + sym.Variable("q"))
    params = {
        "c1_weight": rng.standard_normal((32, 16, 3, 3)),
        "c1_bias": rng.standard_normal(32),
        "c2_weight": rng.standard_normal((48, 32, 1, 1)),
        "c2_bias": rng.standard_normal(48),
        "d_weight": rng.standard_normal((19, 48 * 14 * 14)),
        "d_bias": rng.standard_normal(19),
        "p": rng.standard_normal(19),
        "q": rng.standard_normal(19),
    }
    return y, {name: value.astype(np.float32) for name, value in params.items()}


def expected(x, p):
    padded = np.pad(x[0].astype("float64"), [(0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    y = np.einsum("chwij,ocij->ohw", windows, p["c1_weight"]) + p["c1_bias"][:, None, None]
    y = np.einsum("chw,oc->ohw", y, p["c2_weight"][:, :, 0, 0]) + p["c2_bias"][:, None, None]
    return p["d_weight"] @ y.ravel() + p["d_bias"] + p["p"] + p["q"]


def test_what_is_folded_has_its_value(limit, rng):
    symbol, params = network(rng)
    x = rng.standard_normal((1, 16, 14, 14)).astype(np.float32)
    wanted = expected(x, params)
    (found,) = compile((symbol, params))(x)
    assert np.abs(found[0] - wanted).max() < 5e-5 * np.abs(wanted).max()


def test_constants_are_nobody_elses_and_start_at_a_line(limit, rng):
    symbol, params = network(rng)
    made = prepare(symbol, params, {}, {}, 3, host()).constants
    assert len(made) >= 4
    for value in made.values():
        assert value.flags.carray
        assert value.__array_interface__["data"][0] % ALIGNMENT == 0
        assert not any(np.shares_memory(value, given) for given in params.values())


def test_what_is_spent_goes_while_constants_are_made(limit, rng):
    """No later than when all that reads it is computed: what is made last never stands beside what was read first."""
    names = [f"w{number}" for number in range(4)]
    known = {name: rng.standard_normal((40, 30)).astype(np.float32) for name in names}
    wanted = [value.T.copy() for value in known.values()]
    parts = [sym.transpose(sym.Variable(name, shape=(40, 30), dtype="float32")) for name in names]
    alive = [weakref.ref(value) for value in known.values()]
    part = infer(Graph(sym.Group(parts).outputs))
    values = constants.constant_values(part, known, set(names) - {"w2"})
    assert list(known) == ["w2"]
    assert [ref() is None for ref in alive] == [True, True, False, True]
    for value, expected in zip(values, wanted, strict=True):
        np.testing.assert_array_equal(value, expected)
        assert value.flags.carray
        assert value.ctypes.data % ALIGNMENT == 0


def test_variables_of_one_name_are_spent_once_both_are_read(limit, rng):
    known = {"w": rng.standard_normal((40, 30)).astype(np.float32)}
    wanted = known["w"].copy()
    both = [sym.transpose(sym.Variable("w", shape=(40, 30), dtype="float32")) for _ in range(2)]
    values = constants.constant_values(infer(Graph(sym.Group(both).outputs)), known, {"w"})
    for value in values:
        np.testing.assert_array_equal(value, wanted.T)
