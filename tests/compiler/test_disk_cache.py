"""The disk cache: hits in a second process, files that lie, folders that cannot be used."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base import config
from weft.base.file_cache import FileCache, cache_folder, file_cache
from weft.base.plan import KernelCode, Launch, TensorMap
from weft.compiler import disk_cache, groups
from weft.compiler.kernels import KernelCache, kernel_cache


def random_bytes(rng, low=1, high=2000):
    return rng.bytes(int(rng.integers(low, high)))


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache folder, and a process that remembers no kernel."""
    made = KernelCache()
    monkeypatch.setattr(groups, "kernel_cache", made)
    monkeypatch.setattr("weft.compiler.assemble.kernel_cache", made)
    groups.forget_groups()
    with config.override(cache=True, cache_dir=str(tmp_path)):
        yield tmp_path / "v1"
    groups.forget_groups()


def model(rng):
    shape = tuple(int(n) for n in rng.integers(2, 9, 2))
    x = sym.Variable("x", shape=shape)
    return sym.softmax(sym.exp(x) * 0.5 + sym.relu(x)), rng.standard_normal(shape).astype("f")


def expected(x):
    y = np.exp(x.astype("d")) * 0.5 + np.maximum(x, 0)
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def check(net, x):
    compiled = weft.compile(net)
    np.testing.assert_allclose(compiled(x)[0], expected(x), rtol=2e-5, atol=1e-6)
    return compiled


# The store


def test_values_come_back(tmp_path):
    rng = np.random.default_rng(1)
    pairs = {random_bytes(rng): random_bytes(rng, 0) for _ in range(20)}
    cache = FileCache(tmp_path / "c")
    for key, value in pairs.items():
        cache.put(key, value)
    other = FileCache(tmp_path / "c")
    assert all(other.get(key) == value for key, value in pairs.items())
    assert other.get(b"never put") is None
    assert stat.S_IMODE(os.stat(tmp_path / "c").st_mode) == 0o700
    assert not [name for name in os.listdir(tmp_path / "c") if name.startswith(".new")]


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_a_miss_and_is_repaired(tmp_path, seed):
    rng = np.random.default_rng(seed)
    cache = FileCache(tmp_path / "c")
    key, value = random_bytes(rng), random_bytes(rng)
    cache.put(key, value)
    (path,) = (tmp_path / "c").iterdir()
    data = bytearray(path.read_bytes())
    kind = seed % 4
    if kind == 0:
        data = data[: int(rng.integers(0, len(data)))]
    elif kind == 1:
        data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
    elif kind == 2:
        data = bytearray(random_bytes(rng))
    else:
        data += b"x"
    path.write_bytes(data)
    assert cache.get(key) is None
    cache.put(key, value)
    assert cache.get(key) == value


def test_a_file_under_the_name_of_another_key_is_a_miss(tmp_path):
    cache = FileCache(tmp_path / "c")
    cache.put(b"one", b"1")
    (one,) = (tmp_path / "c").iterdir()
    content = one.read_bytes()
    cache.put(b"two", b"2")
    (two,) = set((tmp_path / "c").iterdir()) - {one}
    two.write_bytes(content)
    assert cache.get(b"two") is None
    assert cache.get(b"one") == b"1"


def test_the_least_recently_used_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.base.file_cache.BYTES_BETWEEN_SEARCHES", 0)
    rng = np.random.default_rng(3)
    cache = FileCache(tmp_path / "c", max_bytes=50_000)
    for number in range(40):
        cache.put(b"%d" % number, rng.bytes(1000))
        for file in (tmp_path / "c").iterdir():  # a clock of whole steps
            facts = os.stat(file)
            os.utime(file, (facts.st_atime - 10, facts.st_mtime - 10))
    assert cache.get(b"0") is not None
    for number in range(40, 50):
        cache.put(b"%d" % number, rng.bytes(1000))
    total = sum(file.stat().st_size for file in (tmp_path / "c").iterdir())
    assert 30_000 < total <= 50_000
    assert cache.get(b"0") is not None
    assert cache.get(b"1") is None
    assert cache.get(b"49") is not None


def test_many_threads_share_a_folder(tmp_path):
    keys = [b"key %d" % number for number in range(8)]
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        cache = FileCache(tmp_path / "c", max_bytes=3000)
        for _ in range(60):
            key = keys[int(rng.integers(len(keys)))]
            if rng.random() < 0.5:
                cache.put(key, key * 50)
            elif cache.get(key) not in (None, key * 50):
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_folders_that_cannot_be_used(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    for folder in (file, file / "below", Path("/proc/none")):
        cache = FileCache(folder)
        cache.put(b"k", b"v")
        assert cache.get(b"k") is None


def others_may_write(path):
    os.chmod(path, 0o777)


def of_another(path):
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(path, 12345, -1)


def behind_a_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
@pytest.mark.parametrize("what", ["folder", "file"])
@pytest.mark.parametrize("change", [others_may_write, of_another, behind_a_link])
def test_what_others_may_write_to_is_not_trusted(tmp_path, what, change):
    """It is looked at every time: also when the cache has been used before."""
    cache = FileCache(tmp_path / "c")
    cache.put(b"k", b"v")
    assert cache.get(b"k") == b"v"
    (file,) = (tmp_path / "c").iterdir()
    change(file if what == "file" else tmp_path / "c")
    assert cache.get(b"k") is None
    if what == "folder":
        before = sorted((tmp_path / "c").iterdir())
        cache.put(b"other", b"v")
        assert sorted((tmp_path / "c").iterdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners here")
def test_a_folder_that_is_private_again_serves_again(tmp_path):
    cache = FileCache(tmp_path / "c")
    cache.put(b"k", b"v")
    os.chmod(tmp_path / "c", 0o777)
    assert cache.get(b"k") is None
    os.chmod(tmp_path / "c", 0o700)
    assert cache.get(b"k") == b"v"


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    cache = FileCache(tmp_path / "c")

    def full(*args):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "replace", full)
    cache.put(b"k", b"v")
    assert cache.get(b"k") is None
    assert list((tmp_path / "c").iterdir()) == []


def test_settings(tmp_path, monkeypatch):
    with config.override(cache=False):
        assert file_cache() is None
    monkeypatch.delenv("WEFT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "weft" / "v1"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "weft" / "v1"
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "given"))
    assert cache_folder() == tmp_path / "given" / "v1"


# Models


def test_compiled_again_nothing_is_compiled(fresh):
    net, x = model(np.random.default_rng(5))
    first = check(net, x).report()
    assert first.cache_hits < len(first.kernels)
    groups.forget_groups()
    groups.kernel_cache._objects.clear()
    groups.kernel_cache._codes.clear()
    misses = groups.kernel_cache.misses
    again = check(net, x).report()
    assert again.cache_hits == len(again.kernels)
    assert groups.kernel_cache.misses == misses


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_do_not_show(fresh, seed):
    rng = np.random.default_rng(seed)
    net, x = model(rng)
    check(net, x)
    files = sorted(fresh.iterdir())
    assert len(files) >= 2
    for path in files:
        data = bytearray(path.read_bytes())
        data[int(rng.integers(len(data)))] ^= 255
        path.write_bytes(data if seed % 2 else data[: len(data) // 2])
    groups.forget_groups()
    groups.kernel_cache._objects.clear()
    groups.kernel_cache._codes.clear()
    check(net, x)


def test_without_a_cache(fresh):
    net, x = model(np.random.default_rng(8))
    with config.override(cache=False):
        check(net, x)
    assert not fresh.exists()


PROGRAM = """
import json, sys
import numpy as np
import weft
from weft import symbol as sym
import weft.codegen.cpu.object as objects
from weft.compiler import kernels, groups

def none(*args, **kwargs):
    raise AssertionError("something is lowered or compiled")

if sys.argv[1] == "second":
    kernels.compile_object = kernels.emit_kernel = groups.lower = none
x = sym.Variable("x", shape=(1, 16, 9, 9))
w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("f")
net = sym.relu(sym.conv2d(x, name="c", channels=16, kernel_size=(3, 3), padding=(1, 1)))
m = weft.compile((net, {"c_weight": w, "c_bias": np.zeros(16, "f")}))
value = np.random.default_rng(1).standard_normal((1, 16, 9, 9)).astype("f")
print(json.dumps([m(value)[0].tolist(), m.report().cache_hits, len(m.report().kernels)]))
"""


def test_a_second_process_neither_lowers_nor_compiles(tmp_path):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_CACHE": "1"}
    run = partial(subprocess.run, capture_output=True, text=True, env=environment, check=True)
    outputs = [json.loads(run([sys.executable, "-c", PROGRAM, turn]).stdout) for turn in ("first", "second")]
    assert outputs[0][0] == outputs[1][0]
    _, hits, kernels = outputs[1]
    assert hits == kernels


def test_operators_of_users_are_not_kept_by_name():
    assert disk_cache.is_own(disk_cache.group_key)
    assert not disk_cache.is_own(lambda x: x)
    assert not disk_cache.is_own(partial(disk_cache.is_own, lambda x: x))


def test_what_is_no_compiled_group_is_a_miss():
    rng = np.random.default_rng(9)
    for data in (b"", b"{}\n", b"[]\n", b'{"kernels": [{}], "objects": []}\n', random_bytes(rng)):
        assert disk_cache.decoded(data) is None


def test_launches_and_maps_are_kept():
    mapped = TensorMap(
        1, "float16", (64, 7, 7, 2), (128, 896, 6272), (64, 128), 64, 256, (1, 2, 2, 1), ((-1, -1), (0, 1))
    )
    launch = Launch((7, 1, 1), (256, 1, 1), 90000, 4, True)
    code = KernelCode("k", b"text", (), (), launch, "ptx", (mapped,))
    kernel = disk_cache.CompiledKernel("named", code, (0, 1), 5)
    assert disk_cache.decoded(disk_cache.encoded([kernel])) == [kernel]


def test_the_shared_cache_is_the_one_in_use():
    assert groups.kernel_cache is kernel_cache
