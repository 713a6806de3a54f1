"""Freed memory that the process keeps."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import weft

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc is told what to keep")

FAULTS = """
import resource
import numpy as np
import weft
weft.ones(300, 300) @ weft.ones(300, 300)  # the first native call
def step():
    arrays = [np.full(5_000_000, 1, np.float32) for _ in range(4)]
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


KEEPS = "from weft.runtime.cpu.freed_memory import keep_freed_memory; print(int(keep_freed_memory()))"


def said(script, **settings):
    """What a process of its own says, with some settings."""
    root = str(Path(weft.__file__).parent.parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"PYTHONPATH": root} | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@glibc
def test_freed_memory_is_kept():
    """Five steps, of 20,000 pages each, find no page that the system has yet to give."""
    assert said(KEEPS, WEFT_KEPT_MEMORY="300")
    assert said(FAULTS, WEFT_KEPT_MEMORY="300", NUMPY_MADVISE_HUGEPAGE="0") < 5_000


OTHERS = (
    {"WEFT_KEPT_MEMORY": "0"},
    {"MALLOC_TRIM_THRESHOLD_": "131072"},
    {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"},
)


@glibc
@pytest.mark.parametrize("settings", OTHERS, ids=" ".join)
def test_malloc_stays_as_it_is(settings):
    assert not said(KEEPS, **settings)


def test_what_is_no_amount_is_refused(monkeypatch):
    monkeypatch.setenv("WEFT_KEPT_MEMORY", "much")
    with pytest.raises(ValueError, match="WEFT_KEPT_MEMORY"):
        weft.config.get("kept_memory")
