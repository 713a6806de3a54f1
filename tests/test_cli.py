"""The command line, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import weft
from weft import symbol as sym
from weft.base.cpu_target import host

DIGITS = Path(weft.__file__).parent / "data" / "digits.onnx"


def run(*arguments, **variables):
    shaping = ("WEFT_", "FORCE_COLOR", "TTY_")  # of what is run, and of how it is shown
    kept = {name: value for name, value in os.environ.items() if not name.startswith(shaping)}
    command = [sys.executable, "-m", "weft", *map(str, arguments)]
    environment = {**kept, "COLUMNS": "200", **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_run_on_given_input(tmp_path):
    with np.load(DIGITS.parent / "digits.npz") as file:
        images, labels = file["images"][:3], file["labels"][:3]
    np.save(tmp_path / "x.npy", (images / 16).astype("float32"))
    done = run("run", DIGITS, "--input", f"input={tmp_path / 'x.npy'}", "--repeat", 2, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert "float32[3, 10]" in done.stdout
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines[lines.index("top of logits") + 2 :]]
    assert [best[1] for best in rows[::5]] == list(map(str, labels))  # of each row, the first of five
    assert "median" in done.stdout


def test_run_on_random_input():
    done = run("run", DIGITS, "--shape", "input=2,1,8,8", "--opt-level", 0, "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "float32[2, 10]" in done.stdout
    assert "random  input" in done.stdout


def test_open_dimensions_become_one(tmp_path):
    x = sym.Variable("ids", shape=(4,), dtype="int64")
    weft.frontend.to_onnx(x + 1, {}, tmp_path / "m.onnx", dtype={"ids": "int64"})
    done = run("run", tmp_path / "m.onnx", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "int64[4]" in done.stdout
    done = run("run", DIGITS, "--repeat", 1)
    assert "taken as input (1, 1, 8, 8)" in done.stdout


def test_compiled_models_of_another_machine(tmp_path):
    other = "x86_64" if host().arch == "aarch64" else "aarch64"
    model = weft.compile(sym.relu(sym.Variable("x", shape=(3,))), target=f"llvm -mtriple={other}-linux-gnu")
    model.save(tmp_path / "m.weft")
    done = run("run", tmp_path / "m.weft", "--repeat", 1)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the program is for another processor")
    assert f"compiled for {other}-linux-gnu" in done.stderr
    assert "try:" in done.stderr


def test_compiled_models_run(tmp_path):
    x = sym.Variable("x", shape=(4, 7))
    weft.compile(sym.softmax(x, name="s")).save(tmp_path / "m.weft")
    done = run("run", tmp_path / "m.weft", "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "inputs  x: float32[4, 7]" in done.stdout
    assert "output  s_output: float32[4, 7]" in done.stdout
    np.save(tmp_path / "x.npy", np.zeros((2, 7), "float32"))
    done = run("run", tmp_path / "m.weft", "--input", f"x={tmp_path / 'x.npy'}")
    assert done.returncode == 1
    assert "input 'x' has shape (2, 7)" in done.stderr
    done = run("run", tmp_path / "m.weft", "--shape", "x=3,7")
    assert done.returncode == 1
    assert "compiled for x: float32[4, 7]" in done.stderr


def test_inputs_that_share_the_name_of_a_dimension(tmp_path):
    text = "m (float[n, 3] x, float[n, 3] h) => (float[n, 3] y) { y = Add(x, h) }"
    onnx.save(onnx.helper.make_model(onnx.parser.parse_graph(text)), tmp_path / "m.onnx")
    given = []
    for name, rows in (("x", 4), ("h", 1)):
        np.save(tmp_path / f"{name}.npy", np.ones((rows, 3), "float32"))
        given += ["--input", f"{name}={tmp_path / name}.npy"]
    done = run("run", tmp_path / "m.onnx", *given)
    assert "n is 4 in input 'x', and 1 here" in done.stderr
    assert "--shape h=?,3" in done.stderr
    done = run("run", tmp_path / "m.onnx", *given, "--shape", "h=?,3", "--repeat", 1)
    assert "y: float32[4, 3] [2., 2., 2." in done.stdout
    done = run("run", tmp_path / "m.onnx", "--shape", "x=4,3", "--shape", "h=?,3", "--repeat", 1)
    assert "y: float32[4, 3]" in done.stdout


def test_open_shapes(tmp_path):
    """`run` takes likely ones and says so; `convert` keeps them open, and asks for what has no name."""
    text = "m (float[n, 3, h, w] photo) => (float[n, 3, h, w] y) { y = Relu(photo) }"
    made = onnx.helper.make_model(onnx.parser.parse_graph(text))
    onnx.save(made, tmp_path / "m.onnx")
    done = run("convert", tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert "gives the same" in done.stdout
    dims = onnx.load(tmp_path / "out.onnx").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_param or dim.dim_value for dim in dims] == ["n", 3, "h", "w"]
    done = run("run", tmp_path / "m.onnx", "--repeat", 1)
    assert "taken as photo (1, 3, 224, 224); --shape tells others" in done.stdout
    assert "float32[1, 3, 224, 224]" in done.stdout
    done = run("run", tmp_path / "m.onnx", "--shape", "photo=2,3,4,5", "--repeat", 1)
    assert "float32[2, 3, 4, 5]" in done.stdout


def test_parameters_in_a_file_of_another_name(tmp_path):
    x = sym.Variable("x", shape=(2, 3))
    graph = weft.graph.create(sym.broadcast_mul(x, sym.Variable("w"), name="y"))
    (tmp_path / "net.json").write_text(graph.json())
    params = {"w": np.full((2, 3), 2, "float32")}
    (tmp_path / "net.bin").write_bytes(weft.save_param_dict(params))
    np.save(tmp_path / "x.npy", np.full((2, 3), 1.5, "float32"))
    arguments = ("--params", tmp_path / "net.bin", "--input", f"x={tmp_path / 'x.npy'}")
    done = run("run", tmp_path / "net.json", *arguments, "--repeat", 1)
    assert done.returncode == 0, done.stderr
    assert "[3., 3., 3., 3., 3., 3.]" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["absent.onnx"], "there is no file absent.onnx"),
        ([__file__], "no model file"),
        ([Path(__file__).parent], "is a folder"),
        ([DIGITS, "--params", "absent"], "there is no file absent"),
        ([DIGITS, "--input", "input=absent.npy"], "there is no file absent.npy"),
        ([DIGITS, "--input", f"input={__file__}"], "no .npy file"),
        ([DIGITS, "--shape", "input=1,2,8,8"], "input"),
        ([DIGITS, "--shape", "wrong=1,1,8,8"], "its inputs: input"),
    ],
)
def test_failures_are_text_and_exit_code_one(arguments, text):
    done = run("run", *arguments)
    assert done.returncode == 1
    assert text in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "MODEL"),
        ([DIGITS, "--opt-level", 7], "7"),
        ([DIGITS, "--input", "nonsense"], "--input name=value"),
        ([DIGITS, "--shape", "input="], "--shape name=value"),
        ([DIGITS, "--shape", "input=a,b"], "whole numbers"),
        ([DIGITS, "--shape", "input=-1,1,8,8"], "whole numbers"),
        ([DIGITS, "--shape", "input=1", "--shape", "input=1"], "given twice"),
    ],
)
def test_mistakes_in_a_command_are_exit_code_two(arguments, text):
    done = run("run", *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_tracebacks_on_request():
    for stages in ("1", "loops"):
        done = run("run", "absent.onnx", WEFT_DEBUG=stages)
        assert done.returncode == 1
        assert "Traceback" in done.stderr


def test_stages_that_there_are_not():
    done = run("run", DIGITS, WEFT_DEBUG="moon")
    assert done.returncode == 1
    assert "no stage 'moon'; there are summary, passes" in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_prints_a_summary():
    done = run("run", DIGITS, "--repeat", 1, WEFT_DEBUG="1")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert all(line.startswith(("# pass ", "# kernel ")) for line in lines)
    kernels = sum(line.startswith("# kernel ") for line in lines)
    assert f"{kernels} kernels" in done.stdout
    assert any("SimplifyInference" in line and "operators" in line for line in lines)


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
    text = run("--help").stdout
    assert "run" in text
    assert "Exit status: 0" in text
