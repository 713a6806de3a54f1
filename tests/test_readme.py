"""The README and the pages of docs print what they say, and name what there is and is not."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import weft
from weft.base.config import DEBUG_STAGES, SETTINGS
from weft.frontend.onnx import importer  # noqa: F401  fills the registry
from weft.frontend.onnx.registry import TABLE

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def programs(text):
    """(program, what it is said to print) for each block of Python with a plain block behind."""
    blocks = BLOCK.findall(text)
    return [
        (code, printed)
        for (language, code), (other, printed) in pairwise(blocks)
        if language == "python" and not other and ">>>" not in code
    ]


def test_programs_of_the_readme():
    found = programs(README)
    assert found
    for code, expected in found:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        matched = doctest.OutputChecker().check_output(expected, done.stdout, doctest.ELLIPSIS)
        assert matched, done.stdout


DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if ">>>" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_page(page, tmp_path, monkeypatch):
    """They run beside the package's data, so that they may write files; what registers something runs alone."""
    (tmp_path / "weft").mkdir()
    (tmp_path / "weft" / "data").symlink_to(Path(weft.__file__).parent / "data")
    path = DOCS / page
    if "register" in path.read_text(encoding="utf-8"):
        command = [sys.executable, "-m", "doctest", "-o", "ELLIPSIS", str(path)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert (done.returncode, done.stdout) == (0, "")
        return
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(path), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 3
    assert result.failed == 0


def test_pages_are_found():
    assert {"running.md", "tensors.md", "flow/passes.md", "extending.md"} <= set(PAGES)


def test_every_file_that_is_named_is_there():
    for name in re.findall(r"`((?:docs|examples|benchmarks|weft)/[\w./-]*)`", README):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()


def test_what_weft_cannot_do_it_cannot():
    section = README.split("## What it cannot do")[1]
    for name in re.findall(r"no `weft\.(\w+)`", section):
        assert not hasattr(weft, name), name
    with pytest.raises(weft.Error):
        weft.ones(2).cuda()
    with pytest.raises(weft.Error):
        weft.compile(weft.symbol.Variable("x"), precision="int8")
    operators = set(re.findall(r"`([A-Z]\w+)`", section))
    assert operators
    assert not operators & set(TABLE.supported())


def test_settings_are_all_described():
    text = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    for name, setting in SETTINGS.items():
        assert f"| `{setting.variable}` | `{name}` |" in text
    for word, doc in DEBUG_STAGES.items():
        assert re.search(rf"`{word}` \| {re.escape(doc)} \|", text)
