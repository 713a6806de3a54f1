"""The tests on a machine that has no PyTorch: they are collected, skipped, and it is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WITHOUT_TORCH = """
import sys
from functools import partial
from importlib.machinery import PathFinder

def find_but_torch(find, name, *where):
    return None if name == "torch" else find(name, *where)

PathFinder.find_spec = partial(find_but_torch, PathFinder.find_spec)

import pytest

sys.exit(pytest.main(sys.argv[1:]))
"""


def _pytest(*args: str) -> subprocess.CompletedProcess[str]:
    ours = ("WEFT_REQUIRE_ORACLES", "PYTEST_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *args], cwd=HERE.parent, env=environment, capture_output=True, text=True
    )


def test_what_is_skipped_is_said_in_one_line():
    run = _pytest("tests/eager/test_functional.py", "-k", "test_in_place")
    assert run.returncode == 0, run.stdout
    said = "6 tests were skipped: they compare with PyTorch, which is not installed. `make oracles`"
    assert run.stdout.count(said) == 1


def test_operators_are_checked_without_it():
    run = _pytest("tests/ops/test_suite.py", "-k", "test_samples and [sigmoid-check")
    assert run.returncode == 0, run.stdout
    assert "4 passed, 1 skipped" in run.stdout


@pytest.mark.slow
def test_every_file_is_collected():
    run = _pytest("--co", "tests")
    assert run.returncode == 0, run.stdout[-4000:]


def test_a_share_of_cases_keeps_every_test():
    run = _pytest("--co", "--share", "1000", "tests/base/test_dtype.py")
    every = _pytest("--co", "tests/base/test_dtype.py")
    assert run.returncode == 0 == every.returncode

    def tests(text: str) -> set[str]:
        return {line.partition("[")[0] for line in text.splitlines() if "::" in line}

    assert tests(run.stdout) == tests(every.stdout)
