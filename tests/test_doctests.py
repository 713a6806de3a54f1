"""Every example in a docstring of weft runs and prints what it says."""

import ast
import doctest
import importlib
import inspect
import operator
import pkgutil
from pathlib import Path

import pytest

import weft
from weft.eager.functions.all import TABLE

MODULES = ["weft"] + [
    found.name for found in pkgutil.walk_packages(weft.__path__, "weft.") if not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder(recurse=name != "weft")  # which has names of other modules
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in finder.find(module, name) + renamed(module):
        runner.run(test)
    assert runner.failures == 0


def renamed(module):
    """Examples of classes that say they are weft's, and of their methods, found where they are written."""
    written = ast.parse(Path(module.__file__).read_text()).body
    classes = [vars(module)[node.name] for node in written if isinstance(node, ast.ClassDef)]
    finder = doctest.DocTestFinder()
    return [
        test
        for found in classes
        if found.__module__ == "weft"
        for test in finder.find(found, found.__name__, module=False, globs=dict(vars(module)))
    ]


@pytest.mark.parametrize("space", sorted({row.space or "weft.Tensor" for row in TABLE.values()}))
def test_examples_of_functions(space):
    """As users type them, with no name there that the example did not make; members of families have no other test."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    rows = [row for row in TABLE.values() if (row.space or "weft.Tensor") == space]
    for row in rows:
        for test in finder.find(row.function, f"{space}.{row.name}", module=False, globs={}):
            runner.run(test)
    assert runner.failures == 0


def test_functions_that_everybody_uses_have_an_example():
    """Which is what `help` shows of the function and of the method."""
    names = "add exp eq zeros reshape gather sort sum max rand where einsum nn.functional.conv2d linalg.inv"
    for name in names.split():
        assert ">>> import weft\n" in inspect.getdoc(operator.attrgetter(name)(weft)), name
    for name in "add exp eq reshape view expand repeat gather sort sum max".split():
        assert ">>> import weft\n" in inspect.getdoc(getattr(weft.Tensor, name)), name


def test_walk_finds_the_rooms():
    assert {"weft.base.ndarray", "weft.base.target", "weft.base.shape"} <= set(MODULES)


def test_some_module_has_examples():
    found = doctest.DocTestFinder().find(importlib.import_module("weft.base.shape"))
    assert sum(len(test.examples) for test in found) >= 5
