"""Models that need more memory than there is: one kind of error, before code is made or run."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base import memory
from weft.base.errors import OutOfMemory
from weft.compiler.kernels import kernel_cache

MEGABYTE = 1 << 20

IN_A_SMALL_PROCESS = """
import resource, sys
import numpy as np
import weft, weft.compiler.assemble
from weft.base.memory import USED_PAGES
from weft.testing import mobilenet

kind, field, megabytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
symbol, params = mobilenet.get_workload(1, image_shape=(3, 96, 96))
used = int(USED_PAGES.read_text().split()[field]) * resource.getpagesize()
limit = getattr(resource, kind)
resource.setrlimit(limit, (used + (megabytes << 20), resource.getrlimit(limit)[1]))
try:
    model = weft.compile(symbol, params=params, shape={"data": (1, 3, 96, 96)})
    model.run({"data": np.zeros((1, 3, 96, 96), "float32")})
    print("ran")
except MemoryError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "memory_bytes", lambda: MEGABYTE)


def test_values_that_fit_one_by_one_but_not_together(small_machine):
    made = [sym.softmax(sym.Variable("x"))]
    for _ in range(4):
        made.append(sym.softmax(made[-1]))
    total = made[0]
    for value in made[1:]:
        total = sym.softmax(total + value)
    misses = kernel_cache.misses
    with pytest.raises(OutOfMemory, match=r"a run, \d+ bytes of it"):
        weft.compile(sym.sum(total), shape={"x": (251, 401)})
    assert kernel_cache.misses == misses


def test_constants_that_fit_one_by_one_but_not_together(small_machine):
    params = {name: np.ones((450, 2), "f") for name in "abc"}
    parts = [sym.matmul(sym.Variable(n), sym.Variable(n), transpose_b=True) for n in params]
    made = sym.Variable("x") + sym.sum(parts[0]) * 0
    for part in parts:
        made = sym.broadcast_add(made, part)
    with pytest.raises(OutOfMemory, match="computed constants takes"):
        weft.compile(made, params=params, shape={"x": (1, 1)})


def test_a_constant_beyond_memory_is_not_computed():
    params = {"a": np.ones((1 << 20, 1), "f"), "b": np.ones((1, 1 << 20), "f")}
    product = sym.matmul(sym.Variable("a"), sym.Variable("b"), name="outer")
    with pytest.raises(OutOfMemory, match="a constant takes") as caught:
        weft.compile(sym.Variable("x") + sym.sum(product), params=params, shape={"x": (1,)})
    assert "'outer'" in caught.value.where


def test_tensors_beyond_memory():
    with pytest.raises(OutOfMemory, match="cannot allocate"):
        weft.empty(1 << 45)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits are told by /proc")
@pytest.mark.parametrize(("kind", "field"), [("RLIMIT_AS", 0), ("RLIMIT_DATA", 5)])
@pytest.mark.parametrize("megabytes", [1, 30, 60, 2000])
def test_limits_of_the_process(kind, field, megabytes):
    words = [sys.executable, "-c", IN_A_SMALL_PROCESS, kind, str(field), str(megabytes)]
    environment = {"WEFT_CACHE": "0", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (("ran",) if megabytes > 1000 else ("OutOfMemory", "MemoryError"))
