"""The examples run, and say what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

EXAMPLES = Path(__file__).parent.parent / "examples"


def output_of(name, *arguments):
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo():
    text = output_of("demo.py")
    assert float(re.search(r"([\d.]+)% of 360 digits", text)[1]) > 98
    assert len(re.findall(r"\d [✓✗]", text)) == 10
    assert "▀" in text
    assert "microseconds" in text


@pytest.mark.parametrize("arguments", [(), ("--full",)])
def test_walk_the_stages(arguments):
    text = output_of("walk_the_stages.py", *arguments)
    titles = re.findall(r"^=== (\d)\. .*: weft/(\S+)$", text, re.MULTILINE)
    assert [number for number, _ in titles] == [str(number) for number in range(1, 10)]
    rooms = [file.split("/")[0] for _, file in titles]
    assert rooms == "frontend core passes passes lower codegen codegen compiler runtime".split()
    for _, file in titles:
        assert (Path(weft.__file__).parent / file).is_file()
    for mark in ("batch_norm(", "relu", "kernel ", "define ", ".text", "KernelStep"):
        assert mark in text
    assert float(re.search(r"interpreter: (\S+)", text)[1]) < 1e-6
    assert ("more lines" in text) == (not arguments)


def test_data_is_part_of_the_package():
    data = Path(weft.__file__).parent / "data"
    assert {"digits.onnx", "digits.npz"} <= {path.name for path in data.iterdir()}


def test_train_symbolic():
    text = output_of("train_symbolic.py")
    losses = [float(found) for found in re.findall(r"loss ([\d.]+)", text)]
    assert losses[0] > 2 > 0.2 > losses[-1]
    assert int(re.search(r"(\d+) of 60 held-out", text)[1]) >= 50


@pytest.mark.slow
def test_train_digits():
    text = output_of("train_digits.py")
    assert float(re.search(r"reloaded: ([\d.]+)% of 360", text)[1]) > 97


def test_new_op():
    text = output_of("new_op.py")
    assert "agree" in text
    assert "0 host steps" in text
    assert float(re.search(r"error (\S+)", text)[1]) < 1e-5
    assert "slope at 1: 1.0908" in text  # s (1 + 2 (1 - s)), s = sigmoid(2)


def test_benchmarks_can_be_loaded():
    """They are run by hand; what they import from weft must be there all the same."""
    paths = (EXAMPLES.parent / "benchmarks").glob("*.py")
    names = [path.stem for path in paths if "\nimport torch\n" not in path.read_text(encoding="utf-8")]
    code = "import sys; sys.path.insert(0, 'benchmarks')\n" + "\n".join(f"import {name}" for name in names)
    assert "cpu" in names
    done = subprocess.run([sys.executable, "-c", code], cwd=EXAMPLES.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
