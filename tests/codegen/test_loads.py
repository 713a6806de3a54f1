"""A value is loaded once between stores, and not kept when it may change; indices are sums."""

from __future__ import annotations

import random

import numpy as np
import pytest
from codegen.guard import guarded
from codegen.native import ISAS, native, target_of

from weft.codegen.cpu.emit import emit_kernel
from weft.te.build import KernelBuilder
from weft.te.expr import const
from weft.te.interpret import run_kernel
from weft.te.loops import Kernel
from weft.te.transform import lower_vectors

rng = np.random.default_rng(0)


def loads_in(kernel: Kernel, **options) -> int:
    text = emit_kernel(kernel, target_of("avx2"), **options)
    body = text[: text.index(f"define void @{kernel.name}(")]
    return sum(" = load " in line for line in body.splitlines())


def square_twice() -> Kernel:
    """y = x * x, z = x + x: x is needed four times."""
    b = KernelBuilder("square_twice")
    x, y, z = (b.arg(name, "float32", (4,)) for name in "xyz")
    with b.loop("i", 4) as i:
        b.store(y, i, x[i] * x[i])
        b.store(z, i, x[i] + x[i])
    return b.finish()


def test_a_value_is_loaded_once():
    assert loads_in(square_twice()) == 1
    assert loads_in(square_twice(), may_alias=True) == 2  # y may be x


def test_memory_that_is_the_same_under_two_names():
    data = rng.standard_normal(4).astype(np.float32)
    shared, z = data.copy(), np.empty(4, np.float32)
    native(square_twice(), may_alias=True)([shared, shared, z])
    np.testing.assert_allclose(shared, data * data, rtol=1e-6)
    np.testing.assert_allclose(z, 2 * data * data, rtol=1e-6)


def test_unrolled_tiles_load_rows_and_columns_once():
    b = KernelBuilder("tile")
    shapes = {"x": (3, 8), "w": (8, 5), "y": (3, 5)}
    x, w, y = (b.arg(name, "float32", shape) for name, shape in shapes.items())
    total = b.alloc("total", "float32", (3, 5), scope="register")
    with b.unrolled("i", 3) as i, b.unrolled("j", 5) as j:
        b.store(total, (i, j), const(0.0, "float32"))
    with b.loop("k", 8) as k, b.unrolled("i", 3) as i, b.unrolled("j", 5) as j:
        b.store(total, (i, j), total[i, j] + x[i, k] * w[k, j])
    with b.unrolled("i", 3) as i, b.unrolled("j", 5) as j:
        b.store(y, (i, j), total[i, j])
    kernel = b.finish()
    assert loads_in(kernel) == 3 + 5
    a, c = rng.standard_normal((3, 8)).astype("f"), rng.standard_normal((8, 5)).astype("f")
    got = np.empty((3, 5), np.float32)
    native(kernel)([a, c, got])
    np.testing.assert_allclose(got, a.astype("d") @ c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(30))
def test_random_loads_and_stores(seed):
    """Straight code, branches and loops over two small buffers, against the interpreter."""
    choose = random.Random(seed)
    b = KernelBuilder("mixed")
    buffers = [b.arg(name, "int64", (6,)) for name in "xy"]

    def value(depth=0):
        source = choose.choice(buffers)
        made = source[choose.randrange(6)]
        return made if depth > 1 or choose.random() < 0.4 else made + value(depth + 1) * 3

    def statements(depth):
        for _ in range(choose.randrange(1, 5)):
            kind = choose.random()
            if depth < 2 and kind < 0.2:
                with b.loop("i", choose.randrange(1, 4)) as i:
                    b.store(choose.choice(buffers), i, value())
                    statements(depth + 1)
            elif depth < 2 and kind < 0.4:
                with b.when(value() > value()):
                    statements(depth + 1)
            else:
                b.store(choose.choice(buffers), choose.randrange(6), value())

    statements(0)
    kernel = b.finish()
    given = [rng.integers(-9, 9, 6) for _ in buffers]
    expected, got = [a.copy() for a in given], [a.copy() for a in given]
    run_kernel(kernel, expected)
    native(kernel)(got)
    for a, e in zip(got, expected):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool"])
@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse"])
def test_neighbours_are_loaded_backwards_at_once(dtype, isa):
    """The first elements of memory are the last lanes, and nothing before them is touched."""
    b = KernelBuilder("backwards")
    x, y = b.arg("x", dtype, (48,)), b.arg("y", dtype, (48,))
    with b.loop("i", 3) as i, b.vector("lane", 16) as lane:
        b.store(y, i * 16 + lane, x[47 - (i * 16 + lane)])
    kernel = lower_vectors(b.finish())
    text = emit_kernel(kernel, target_of(isa))
    assert "gather" not in text
    assert "shufflevector" in text
    data = guarded((rng.standard_normal(48) * 9).astype(dtype), front=True)
    made = np.zeros(48, dtype)
    native(kernel, isa)([data, made])
    np.testing.assert_array_equal(made, data[::-1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("lanes", [2, 4, 7, 16])
def test_every_other_element_is_picked_from_runs(isa, dtype, lanes):
    """What lies between is read with it, but nothing before the first element nor behind the last."""
    for size in (lanes, 3 * lanes, 3 * lanes + 1, 5 * lanes - 1):
        data = rng.integers(0, 2 if dtype == "bool" else 100, 2 * size - 1).astype(dtype)
        expected = data[::2]
        for front in (False, True):
            b = KernelBuilder("every_other")
            x, y = b.arg("x", dtype, (2 * size - 1,)), b.arg("y", dtype, (size,))
            with b.loop("i", -(-size // lanes)) as i, b.vector("lane", lanes) as lane:
                at = i * lanes + lane
                if size % lanes:
                    with b.when(at < size):
                        b.store(y, at, x[at * 2])
                else:
                    b.store(y, at, x[at * 2])
            kernel = lower_vectors(b.finish())
            found = guarded(np.zeros(size, dtype), front)
            native(kernel, isa)([guarded(data, front), found])
            np.testing.assert_array_equal(found, expected)
            assert "gather" not in emit_kernel(kernel, target_of(isa))
