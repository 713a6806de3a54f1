"""Models compiled for a GPU: plans and code are made anywhere; without a driver a run is one typed error, and on a
driver of Python whose kernels are interpreted, programs give what the CPU gives."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from runtime.fake_cuda import FakeCuda

import weft
from weft import symbol as sym
from weft.base import config
from weft.base.cuda_target import CudaTarget
from weft.base.errors import NoDriver
from weft.codegen.cuda.compile import CODEGEN
from weft.compiler import kernels
from weft.compiler.backends import cuda as backend
from weft.compiler.groups import forget_groups
from weft.runtime.cuda.context import using
from weft.runtime.cuda.driver import Driver
from weft.te.interpret import run_kernel

rng = np.random.default_rng(17)


def normal(*shape):
    return rng.normal(0.1, 1, shape).astype("float32")


def network():
    """A small image network with what becomes every kind of kernel: convolution, pool, concatenation, norm, softmax."""
    x = sym.Variable("x", shape=(1, 2, 4, 4))
    a = sym.relu(sym.conv2d(x, channels=2, kernel_size=(3, 3), padding=(1, 1), name="first"))
    b = sym.conv2d(x, channels=2, kernel_size=(1, 1), name="second")
    whole = sym.max_pool2d(sym.concatenate(a, b, axis=1), pool_size=(2, 2), strides=(2, 2))
    flat = sym.flatten(whole)
    scores = sym.dense(flat, units=6, name="scores")
    y = sym.softmax(scores)
    params = {
        "first_weight": normal(2, 2, 3, 3),
        "first_bias": normal(2),
        "second_weight": normal(2, 2, 1, 1),
        "second_bias": normal(2),
        "scores_weight": normal(6, 16),
        "scores_bias": normal(6),
    }
    return y, params


@contextmanager
def interpreting(monkeypatch):
    """A driver of Python that runs the kernels of programs in the interpreter of loops."""
    fake = FakeCuda()
    emitted = kernels._emit

    def remembered(kernel, target):
        made = emitted(kernel, target)
        fake.kernels[made.symbol] = lambda driver, launched: interpret(driver, kernel, launched)
        return made

    monkeypatch.setattr(kernels, "_emit", remembered)
    forget_groups()
    kernels.kernel_cache.__init__()
    with using(Driver(fake)), config.override(cache=False):
        yield fake
    forget_groups()


def interpret(driver, kernel, launched):
    arrays = []
    for buffer, raw in zip(kernel.buffers, launched.parameters):
        shape = [int(extent.value) for extent in buffer.shape]
        strides = [int(stride.value) * buffer.dtype.itemsize for stride in buffer.strides]
        memory = driver.view(int.from_bytes(raw, "little"))
        arrays.append(np.ndarray(shape, buffer.dtype, memory, strides=strides))
    run_kernel(kernel, arrays)


def test_a_program_gives_what_the_cpu_gives(monkeypatch):
    symbol, params = network()
    x = normal(1, 2, 4, 4)
    (expected,) = weft.compile(symbol, params=params)(x)
    with interpreting(monkeypatch):
        model = weft.compile(symbol, params=params, target="cuda -arch=sm_90a")
        (given,) = model(x)
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)
        del model


def test_without_a_driver_all_but_running_works(monkeypatch):
    monkeypatch.setattr("weft.base.cuda_target.library_name", lambda: "libcuda-that-there-is-not.so.1")
    symbol, params = network()
    model = weft.compile(symbol, params=params, target="cuda -arch=sm_90a")
    assert "sm_90a" in repr(model)
    assert "0 host steps" in str(model.report())
    if not weft.cuda.is_available():
        with pytest.raises(NoDriver, match="CUDA device is needed"):
            model(normal(1, 2, 4, 4))


def test_what_has_no_body_is_a_step_on_the_host():
    x = sym.Variable("x", shape=(3, 3))
    model = weft.compile(sym.inverse(x + x), target="cuda -arch=sm_90a")
    assert "1 host step" in str(model.report())


def test_open_sizes_are_arguments():
    x = sym.Variable("x")
    model = weft.compile(sym.softmax(sym.relu(x) * 2.0), shape={"x": ("batch", 40)}, target="cuda -arch=sm_90a")
    assert model is not None


def test_the_backend_is_made_of_its_parts():
    assert backend.CUDA.codegen is CODEGEN
    assert backend.CUDA.runtime.kind == CudaTarget.kind == "cuda"
