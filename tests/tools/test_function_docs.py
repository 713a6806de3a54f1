"""The page of tensor functions and the stubs are what the table says."""

import ast
import inspect
from pathlib import Path

import pytest

from weft.eager.functions.all import FUNCTIONS, TABLE
from weft.eager.tensor.tensor import Tensor
from weft.tools import function_docs

ROOT = Path(__file__).parents[2]
FILES = function_docs.files()


@pytest.mark.parametrize("path", FILES)
def test_files_are_fresh(path):
    assert (ROOT / path).read_text() == FILES[path], "run `make docs`"


def test_every_row_is_on_the_page():
    text = FILES[function_docs.PAGE]
    for name, row in TABLE.items():
        shown = name.removeprefix("weft.")
        assert f"| `{shown}(" in text, f"{name} is not on the page"
        assert len(row.function.__doc__ or "") > 1, f"{name} has no doc"


def test_page_has_no_examples():
    text = FILES[function_docs.PAGE]
    assert ">>>" in TABLE["add"].function.__doc__
    assert ">>>" not in text
    assert "| input + alpha * other |" in text


def _stubbed(path):
    tree = ast.parse(FILES[path])
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return functions, classes


def test_stub_names_what_the_package_has():
    functions, classes = _stubbed("weft/__init__.pyi")
    assert functions == set(FUNCTIONS["weft"])
    methods = {node.name for node in classes["Tensor"].body if isinstance(node, ast.FunctionDef)}
    assert {name for name in vars(Tensor) if not name.startswith("_")} - methods <= {
        name for name, value in vars(Tensor).items() if not callable(value)
    }
    assert {"__add__", "__radd__", "__iadd__", "__eq__", "relu", "add_"} <= methods


def test_stub_keeps_parameters():
    tree = ast.parse(FILES["weft/__init__.pyi"])
    made = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in ("add", "clamp", "linspace", "where"):
        parameters = inspect.signature(FUNCTIONS["weft"][name]).parameters
        arguments = made[name].args
        named = [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
        assert named == [p.name for p in parameters.values() if p.kind not in (2, 4)]
