"""Outputs whose neighbours are far apart in the input: the same values, in tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import symbol as sym
from weft import te
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.lower.cpu.stage import stage_kernel

SHAPES = [(1, 4, 30, 40, 16), (2, 3, 19, 23, 16), (1, 2, 33, 31, 8), (1, 5, 300, 1, 4)]


@pytest.mark.parametrize("isa", ["sse", "avx2", "avx512"])
@pytest.mark.parametrize("shape", SHAPES)
def test_blocked_to_plain_and_back(shape, isa):
    try:
        target = host().with_isa(isa)
    except Unsupported as error:
        pytest.skip(str(error))
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    n, c, h, w, block = shape
    wanted = x.transpose(0, 1, 4, 2, 3).reshape(n, c * block, h, w)
    names = {"src_layout": f"NCHW{block}c", "dst_layout": "NCHW"}
    made = sym.__layout_transform__(sym.Variable("x", shape=shape), **names)
    for threads in (1, 4):
        model = weft.compile(made, target=target, threads=threads)
        np.testing.assert_array_equal(model(x)[0], wanted)
    back = sym.__layout_transform__(
        sym.Variable("x", shape=wanted.shape), src_layout="NCHW", dst_layout=f"NCHW{block}c"
    )
    np.testing.assert_array_equal(weft.compile(back, target=target)(wanted)[0], x)


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from(["float32", "float64", "int8", "int16"]),
)
def test_transposes(shape, random, dtype):
    shape[random.randrange(len(shape))] += 270  # longer than lines stay in the nearest cache
    axes = random.sample(range(len(shape)), len(shape))
    x = np.random.default_rng(2).integers(-99, 99, shape).astype(dtype)
    symbol = sym.transpose(sym.Variable("x", shape=tuple(shape), dtype=dtype), axes=tuple(axes))
    model = weft.compile(sym.elemwise_add(symbol, symbol))
    np.testing.assert_array_equal(model(x)[0], (x + x).transpose(axes))


def test_a_tile_uses_up_the_lines_it_reads():
    """64 pixels of a block of 16 channels at a time, however large the image is."""
    x = te.placeholder((1, 4, 112, 112, 16), "float32", "x")
    y = te.compute((1, 64, 112, 112), lambda n, c, h, w: x[n, c // 16, h, w, c % 16])
    lowered = stage_kernel("y", y, {x: "x", y: "y"}, host())
    assert int(lowered.kernel.parallel.extent.value) == 4 * (112 * 112 // 64)
