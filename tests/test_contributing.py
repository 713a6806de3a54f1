"""The recipes of CONTRIBUTING.md: each names an example, and the files that one edits for a thing like it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = re.findall(r"### [^\n]*, as `(\w+)`\n(.*?)(?=\n### |\n## )", TEXT, re.DOTALL)


def files_of(body):
    """The files of a recipe, and those among them that are generated."""
    rows = re.findall(r"^- (\*?)([\w/.]+)\*?$", body, re.MULTILINE)
    return [path for _, path in rows], [path for star, path in rows if star]


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.*")]
    return [name for name in names if name.endswith((".py", ".pyi", ".md"))]


def test_there_is_a_recipe_for_each_kind_of_thing():
    kinds = ["softsign", "atleast_2d", "Softsign", "row_kernels", "from_mxnet", "TOY", "doctor"]
    assert [name for name, _ in RECIPES] == kinds


@pytest.mark.parametrize(("name", "body"), RECIPES, ids=[name for name, _ in RECIPES])
def test_recipes_name_files_that_name_the_example(name, body):
    files, _ = files_of(body)
    assert files
    for path in files:
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text()), path


UP_TO_THE_COMPILER = "base core te ops passes lower codegen runtime compiler"


@pytest.mark.parametrize(
    ("name", "rooms"),
    [("softsign", UP_TO_THE_COMPILER), ("row_kernels", UP_TO_THE_COMPILER), ("Softsign", "eager nn optim utils")],
)
def test_recipes_name_all_files_that_one_edits(name, rooms):
    """Of an operator, of a template and of a layer: in these rooms nothing else knows of them."""
    files, _ = files_of(dict(RECIPES)[name])
    word = re.compile(rf"\b{name}\b")
    rooms = tuple(f"weft/{room}/" for room in rooms.split())
    found = {path for path in tracked() if path.startswith(rooms) and word.search((ROOT / path).read_text())}
    assert found == {path for path in files if path.startswith(rooms)}


def test_generated_files_are_what_docs_writes():
    generated = {path for _, body in RECIPES for path in files_of(body)[1]}
    makefile = (ROOT / "Makefile").read_text()
    assert "weft.tools.op_docs docs/ops" in makefile
    assert "weft.tools.function_docs ." in makefile
    assert "weft.tools.layer_docs docs/layers.md" in makefile
    assert all(path.startswith("docs/") or path in ("weft/tensor_names.py", "weft/__init__.pyi") for path in generated)
