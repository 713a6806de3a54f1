"""What a report says, against programs whose contents are known."""

from __future__ import annotations

import numpy as np
from compiler.models import floats

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.compiler.kernels import kernel_cache


def test_fields():
    x = sym.Variable("x", shape=(4, 8))
    y = sym.exp(x, name="first") + 1
    z = sym.sum(y, axis=1, name="second")
    model = weft.compile(sym.Group([y, z]))
    report = model.report()
    assert [kernel.operators for kernel in report.kernels] == [("exp", "__add_scalar__"), ("sum",)]
    assert report.kernels[0].sources[0] == "first"
    assert report.kernels[1].sources == ("second",)
    assert {kernel.isa for kernel in report.kernels} == {host().isa}
    assert report.distinct_kernels == 2
    assert report.host_steps == ()
    assert report.compile_seconds > 0
    assert report.constant_bytes == 0
    assert report.arena_bytes == 0
    assert report.code_bytes > 100
    assert "2 kernels" in str(report)


def test_constants_and_copies_are_counted():
    rng = np.random.default_rng(0)
    x, w = sym.Variable("x", shape=(2, 3, 6, 6)), sym.Variable("w", shape=(2, 3, 6, 6))
    padded = sym.pad(x, pad_width=((0, 0), (0, 0), (1, 1), (1, 1)))
    joined = sym.concatenate(x, w, axis=1)
    model = weft.compile((sym.Group([padded, joined]), {"w": floats(rng, (2, 3, 6, 6))}))
    report = model.report()
    assert report.pad_copies == 1
    assert report.concat_copies == 1
    assert weft.compile(sym.concatenate(sym.relu(x), x)).report().concat_copies == 0
    assert report.constant_bytes == 4 * 2 * 3 * 6 * 6


def test_equal_kernels_are_compiled_once():
    x = sym.Variable("x", shape=(3, 7))
    y = x
    for number in range(4):
        y = sym.softmax(y, name=f"s{number}")
    first = weft.compile(y).report()
    assert first.distinct_kernels < len(first.kernels)
    misses = kernel_cache.misses
    again = weft.compile(y).report()
    assert kernel_cache.misses == misses
    assert again.cache_hits >= len(again.kernels)
