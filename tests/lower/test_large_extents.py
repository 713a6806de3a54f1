"""Extents far beyond memory: an error before anything is generated or computed for them, and loops
over taps that do not depend on extents."""

import numpy as np
import pytest

import weft
from weft.base import config
from weft.base.errors import Error, OutOfMemory, Unsupported
from weft.base.memory import memory_of
from weft.base.ndarray import empty
from weft.lower.cpu.taps import Line, Phase, phases, reach, runs
from weft.ops.nn._windows import Window

HUGE = 1 << 40
sym = weft.symbol
X = sym.Variable("x")

TOO_LARGE = {
    "conv2d": (lambda: sym.conv2d(X, channels=16, kernel_size=(3, 1), use_bias=False), (1, 3, HUGE, 1)),
    "conv2d by taps": (
        lambda: sym.conv2d(X, channels=3, kernel_size=(3, 3), padding=(1, 1), use_bias=False),
        (1, 2, 4, HUGE),
    ),
    "padding of conv2d": (
        lambda: sym.conv2d(X, channels=4, kernel_size=(3, 3), padding=(HUGE, 1), use_bias=False),
        (1, 3, 8, 8),
    ),
    "conv2d_transpose": (
        lambda: sym.conv2d_transpose(X, channels=16, kernel_size=(3, 3), use_bias=False),
        (1, 16, HUGE, 4),
    ),
    "strides of conv2d_transpose": (
        lambda: sym.conv2d_transpose(X, channels=16, kernel_size=(3, 3), strides=(HUGE, 1), use_bias=False),
        (1, 16, 4, 4),
    ),
    "max_pool2d": (lambda: sym.max_pool2d(X, pool_size=(2, 2)), (1, 2, HUGE, 4)),
    "avg_pool2d": (lambda: sym.avg_pool2d(X, pool_size=(2, 2)), (1, 2, 4, HUGE)),
    "broadcast_to": (lambda: sym.broadcast_to(X, shape=(HUGE,)), (1,)),
    "an intermediate": (
        lambda: sym.sum(sym.conv2d(X, channels=1, kernel_size=(1, 1), use_bias=False)),
        (1, 1, HUGE, 1),
    ),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_values_beyond_memory_are_refused_before_the_run(case):
    make, shape = TOO_LARGE[case]
    with pytest.raises(OutOfMemory, match=r"takes \d+ bytes") as caught:
        weft.compile(make(), shape={"x": shape})
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, Error)
    assert "node" in caught.value.where
    assert "machine has" in caught.value.why


def test_work_without_end_is_refused():
    """Nothing large is stored, but 2 ** 60 elements are added."""
    made = sym.sum(sym.broadcast_to(X, shape=(1 << 30, 1 << 30)), name="endless")
    with pytest.raises(Unsupported, match=r"would run for .* seconds") as caught:
        weft.compile(made, shape={"x": (1, 1)})
    assert "'endless'" in caught.value.where
    assert "WEFT_KERNEL_SECONDS" in caught.value.hint
    with config.override(kernel_seconds=10**12):
        weft.compile(made, shape={"x": (1, 1)})


def test_the_limit_of_work_can_be_lowered():
    made = sym.sum(sym.broadcast_to(X, shape=(1 << 20, 1 << 20)))
    with config.override(kernel_seconds=1), pytest.raises(Unsupported, match="would run"):
        weft.compile(made, shape={"x": (1, 1)})


def test_a_huge_stride_between_few_elements():
    """One element, transposed: the output is as large as the filter, whatever the stride."""
    x, w = np.full((1, 16, 1, 1), 2, "f"), np.random.default_rng(0).random((16, 16, 3, 3), "f")
    made = sym.conv2d_transpose(X, name="c", channels=16, kernel_size=(3, 3), strides=(HUGE, HUGE), use_bias=False)
    found = weft.compile(made, params={"c_weight": w}, shape={"x": x.shape}).run({"x": x})[0]
    np.testing.assert_allclose(found[0], 2 * w.sum(axis=0), rtol=1e-5)


def test_runs_of_a_long_line():
    taps = ((0, -1), (1, 0), (2, 1))
    found = runs(Phase(0, 1, HUGE, 1, taps), HUGE, 4)
    everywhere = ((0, 1, 2, 3),) * 3
    assert found[0] == (0, 4, 1, ((1, 2, 3), *everywhere[1:]))
    assert found[1] == (4, 4, HUGE // 4 - 2, everywhere)
    assert found[2] == (HUGE - 4, 4, 1, (*everywhere[1:], (0, 1, 2)))
    assert len(found) == 3


def test_phases_and_taps_of_a_huge_stride():
    line = Line(Window(3, HUGE, 0, 0), 3, 1, True)
    assert [phase.taps for phase in phases(line)] == [((0, 0),), ((1, 0),), ((2, 0),)]
    assert reach(line, weft.te.as_expr(1)).step == HUGE


def test_arrays_beyond_memory_are_refused():
    with pytest.raises(OutOfMemory, match="cannot allocate"):
        empty((HUGE, 16), "float32")


def test_memory_of_a_machine(tmp_path):
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:       1000 kB\nMemFree: 5 kB\nSwapTotal:      24 kB\n")
    assert memory_of(info) == 1024 * 1024
    assert memory_of(tmp_path / "none") == float("inf")
