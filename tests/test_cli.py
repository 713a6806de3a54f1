"""The command line, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import symbol as sym

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"


def run(*arguments, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    command = [sys.executable, "-m", "weft", *map(str, arguments)]
    environment = {**kept, "COLUMNS": "200", **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_run_on_given_input(tmp_path):
    with np.load(DIGITS.parent / "digits.npz") as file:
        images, labels = file["images"][:3], file["labels"][:3]
    np.save(tmp_path / "x.npy", (images / 16).astype("float32"))
    done = run(
        "run", DIGITS, "--input", f"input={tmp_path / 'x.npy'}", "--repeat", 2, "--threads", 1
    )
    assert done.returncode == 0, done.stderr
    assert "float32[3, 10]" in done.stdout
    top = next(line for line in done.stdout.splitlines() if line.startswith("│"))
    assert top.split("│")[1].strip() == str(labels[0])
    assert "median" in done.stdout


def test_run_on_random_input():
    done = run("run", DIGITS, "--shape", "input=2,1,8,8", "--opt-level", 0, "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "float32[2, 10]" in done.stdout
    assert "random   input" in done.stdout


def test_open_dimensions_become_one(tmp_path):
    x = sym.Variable("ids", shape=(4,), dtype="int64")
    weft.frontend.to_onnx(x + 1, {}, tmp_path / "m.onnx", dtype={"ids": "int64"})
    done = run("run", tmp_path / "m.onnx", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "int64[4]" in done.stdout
    done = run("run", DIGITS, "--repeat", 1)
    assert "taken as input (1, 1, 8, 8)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent.onnx"], "there is no file absent.onnx"),
        ([__file__], "no model file"),
        ([DIGITS, "--input", "input=absent.npy"], "there is no file absent.npy"),
        ([DIGITS, "--input", f"input={__file__}"], "no .npy file"),
        ([DIGITS, "--input", "nonsense"], "--input name=value"),
        ([DIGITS, "--shape", "input=a,b"], "whole numbers"),
        ([DIGITS, "--shape", "input=1,2,8,8"], "input"),
        ([DIGITS, "--shape", "wrong=1,1,8,8"], "wrong"),
        ([DIGITS, "--shape", "input=1", "--shape", "input=1"], "given twice"),
    ],
)
def test_errors_are_text_and_exit_code_one(arguments, text):
    done = run("run", *arguments)
    assert done.returncode == 1
    assert text in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_tracebacks_on_request():
    done = run("run", "absent.onnx", WEFT_DEBUG="loops")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_debug_prints_every_stage():
    done = run("run", DIGITS, "--repeat", 1, WEFT_DEBUG="passes,loops,llvm,asm")
    assert done.returncode == 0
    for mark in ("# after pass SimplifyInference", "kernel ", "define ", ".text"):
        assert mark in done.stderr


def test_info():
    done = run("info")
    assert done.returncode == 0
    assert weft.__version__ in done.stdout
    for word in ("target", "threads", "llvm", "operators"):
        assert word in done.stdout


def test_version_and_usage():
    assert weft.__version__ in run("--version").stdout
    assert "run" in run("--help").stdout
    assert run("run", DIGITS, "--opt-level", 7).returncode == 2
