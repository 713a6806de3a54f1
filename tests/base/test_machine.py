import math
import os

import pytest

from weft.base.machine import (
    DEFAULT_CACHES,
    CpuInfo,
    cgroup_quota,
    machine,
    read_caches,
    read_cpuinfo,
    triple,
    usable_cores,
)


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_cpuinfo(tmp_path):
    core = "processor\t: {}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
    core += "model name\t: Some: CPU\nflags\t\t: sse2 avx2 {}\n\n"
    path = tmp_path / "cpuinfo"
    path.write_text(core.format(0, "fma") + core.format(1, "f16c"))
    assert read_cpuinfo(path) == CpuInfo("GenuineIntel", 6, 143, frozenset({"sse2", "avx2"}))


def test_cpuinfo_of_arm(tmp_path):
    core = "processor\t: {}\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd {}\nCPU implementer\t: 0x41\n"
    core += "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
    path = tmp_path / "cpuinfo"
    path.write_text(core.format(0, "i8mm") + core.format(1, "sve"))
    assert read_cpuinfo(path) == CpuInfo("0x41", 8, 0xD0C, frozenset({"fp", "asimd"}))


@pytest.mark.parametrize("text", [None, "", "\x00\xff garbage", "cpu family : six\nflags :\n"])
def test_cpuinfo_that_says_nothing(tmp_path, text):
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    assert read_cpuinfo(path) == CpuInfo()


def cache(index, level, kind, size):
    folder = f"index{index}"
    return {f"{folder}/level": f"{level}\n", f"{folder}/type": kind, f"{folder}/size": size}


def test_caches(tmp_path):
    files = cache(0, 1, "Data\n", "48K\n") | cache(1, 1, "Instruction", "32K")
    files |= cache(2, 2, "Unified", "2M") | cache(3, 3, "Unified", "266240K")
    assert read_caches(write(tmp_path, files)) == (49152, 2097152, 272629760)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, DEFAULT_CACHES),
        (cache(0, 1, "Data", "64K"), (65536, *DEFAULT_CACHES[1:])),
        (cache(0, 2, "Unified", "32M"), (DEFAULT_CACHES[0], 2**25, 2**25)),
        (cache(0, 1, "Data", "lots"), DEFAULT_CACHES),
        (cache(0, 1, "Data", "0K"), DEFAULT_CACHES),
        (cache(0, 4, "Unified", "1G"), DEFAULT_CACHES),
        ({"index0/level": "1"}, DEFAULT_CACHES),
    ],
)
def test_caches_that_are_not_told(tmp_path, files, expected):
    assert read_caches(write(tmp_path, files)) == expected


V2, V1 = "0::/a/b\n", "4:memory:/x\n3:cpu,cpuacct:/a/b\n0::/\n"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        (V2, {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"a/b/cpu.max": "max 100000\n"}, math.inf),
        (V2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
        (V2, {"a/b/cpu.max": "200000 100000", "a/cpu.max": "100000 100000"}, 1),
        (V2, {"cpu.max": "50000 100000"}, 0.5),
        (V2, {"a/b/cpu.max": "200000"}, 2),
        (V2, {"a/b/cpu.max": "200000 0"}, math.inf),
        (V2, {"a/b/cpu.max": ""}, math.inf),
        (V2, {"a/b/cpu.max": "junk junk"}, math.inf),
        (V2, {}, math.inf),
        ("0::/../../up\n", {"cpu.max": "100000 100000"}, 1),
        (V1, {"cpu,cpuacct/a/b/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000"}, 2.5),
        (V1, {"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "50000"}, 1),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("1:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "400000"}, 4),
        ("", {"cpu.max": "100000 100000"}, math.inf),
        ("nonsense\n:::\n", {}, math.inf),
    ],
)
def test_quota(tmp_path, own, files, quota):
    (tmp_path / "own").write_text(own)
    root = write(tmp_path / "cgroup", files)
    assert cgroup_quota(root, tmp_path / "own") == quota


@pytest.mark.parametrize(
    ("limit", "affinity", "cores"),
    [("max", 8, 8), ("150000", 8, 2), ("10000", 8, 1), ("900000", 8, 8), ("400000", 3, 3)],
)
def test_usable_cores(tmp_path, monkeypatch, limit, affinity, cores):
    (tmp_path / "own").write_text("0::/\n")
    write(tmp_path, {"cpu.max": f"{limit} 100000"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
    assert usable_cores(tmp_path, tmp_path / "own") == cores


def test_usable_cores_without_any_file(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path, tmp_path / "none") == 1


@pytest.mark.parametrize(("name", "expected"), [("x86_64", "x86_64"), ("AMD64", "x86_64"), ("arm64", "aarch64")])
def test_machine(name, expected):
    assert machine(name) == expected


@pytest.mark.parametrize(
    ("arch", "system", "expected"),
    [
        ("x86_64", "linux", "x86_64-unknown-linux-gnu"),
        ("aarch64", "darwin", "arm64-apple-darwin"),
        ("x86_64", "win32", "x86_64-pc-windows-msvc"),
    ],
)
def test_triple(arch, system, expected):
    assert triple(arch, system) == expected
