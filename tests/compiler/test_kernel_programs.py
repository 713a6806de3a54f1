"""Programs of one kernel by key: compiled once, found again by other processes, told of under debug."""

import os
import subprocess
import sys

import numpy as np
import pytest

import weft.eager.native  # noqa: F401  which writes kernels
from weft.base.cpu_target import host
from weft.compiler import disk_cache
from weft.compiler.open import keys
from weft.compiler.open.programs import kernel_program
from weft.te.build import KernelBuilder
from weft.te.transform import lower_vectors

SCRIPT = """
import numpy as np
import weft
x = weft.from_numpy(np.arange(100000, dtype="float32"))
y = (x * 2 + x).exp2()
print(float(y[3]))
"""


def doubling(target):
    b = KernelBuilder("doubling")
    n = b.scalar("n")
    x, y = b.arg("x", "float32", (n,)), b.arg("y", "float32", (n,))
    with b.parallel("i", n) as i:
        b.store(y, i, x[i] * 2.0)
    return lower_vectors(b.finish())


@pytest.mark.parametrize("count", [1, 7, 100_000])
def test_a_kernel_serves_all_sizes(count):
    kernel = kernel_program("test doubling", doubling)
    x, y = np.random.default_rng(count).random(count, "float32"), np.empty(count, "float32")
    kernel.given([count], count, 1e6).run([x, y])
    np.testing.assert_array_equal(y, 2 * x)


def test_a_key_is_made_once():
    made = []

    def make(target):
        made.append(target)
        return doubling(target)

    first = kernel_program(("test", object()), make)
    key = ("test once", 1, np.dtype("float32"))
    kernels = {kernel_program(key, make) for _ in range(3)}
    assert len(kernels) == 1
    assert first not in kernels
    assert len(made) <= 2  # the second may come from the disk


@pytest.mark.parametrize("key", [("a", 1), (("a",), 1.5, None, np.dtype("int8"))])
def test_plain_keys_hold_for_other_processes(key):
    target = host()
    assert keys.file_key(key, target) == keys.file_key(key, target)
    assert keys.file_key((*key, "other"), target) != keys.file_key(key, target)


def test_keys_of_objects_do_not():
    assert keys.file_key(("a", object()), host()) is None


def test_a_second_process_compiles_nothing(tmp_path):
    env = {**os.environ, "WEFT_DEBUG": "dispatch", "WEFT_CACHE_DIR": str(tmp_path)}
    env["WEFT_CACHE"] = "1"
    runs = [subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True) for _ in range(2)]
    assert [run.stdout for run in runs] == ["512.0\n", "512.0\n"], runs[0].stderr
    assert "for eager calls in" in runs[0].stderr
    assert "for eager calls in" not in runs[1].stderr


def test_keys_on_disk_depend_on_the_modules_that_write_kernels(tmp_path, monkeypatch):
    (tmp_path / "family.py").write_text("BLOCK = 8")
    names = []
    for folders in ([], [str(tmp_path)]):
        monkeypatch.setattr(keys, "_writers", [])
        for folder in folders:
            keys.depends_on(folder)
        names.append(keys.file_key(("one",), host()))
    disk_cache.fingerprint.cache_clear()
    assert keys.file_key(("one",), host()) == names[1]
    (tmp_path / "family.py").write_text("BLOCK = 16")
    disk_cache.fingerprint.cache_clear()
    names.append(keys.file_key(("one",), host()))
    assert len(set(names)) == 3


def test_modules_of_eager_kernels_are_among_them():
    assert os.path.join("eager", "native", "*.py") in keys._writers
