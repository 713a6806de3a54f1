"""Every command that docs/command-line.md shows prints what it says there."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from oracles import oracle

import weft
from weft import cli, tools

PAGE = (Path(weft.__file__).parent.parent / "docs" / "command-line.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = [part.partition("\n")[::2] for block in BLOCKS for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize(("line", "expected"), SHOWN, ids=[line for line, _ in SHOWN])
def test_commands_print_what_the_page_says(line, expected, tmp_path, monkeypatch):
    if "ort" in line.split():
        oracle("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    data = Path(weft.__file__).parent / "data"
    shutil.copy(data / "digits.onnx", tmp_path)
    np.save(tmp_path / "images.npy", np.load(data / "digits.npz")["images"] / np.float32(16))
    program, *arguments = shlex.split(line)
    assert program == "weft"
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == 0, done.output
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(expected, done.stdout, flags), done.stdout


def test_the_page_shows_every_command():
    shown = {line.split()[1] for line, _ in SHOWN}
    assert shown | {"demo"} == set(cli.COMMANDS)
    assert all(f"`weft {name}" in PAGE for name in cli.COMMANDS)
    assert all(f"`{name}`" in PAGE or f"`weft.tools.{name}`" in PAGE for name in tools.__all__)
