"""Every example in a docstring of weft runs and prints what it says."""

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import weft

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
    """Examples of classes that say they are weft's, found where they are written."""
    written = ast.parse(Path(module.__file__).read_text()).body
    classes = [vars(module)[node.name] for node in written if isinstance(node, ast.ClassDef)]
    finder = doctest.DocTestFinder(recurse=False)
    return [
        test
        for found in classes
        if found.__module__ == "weft"
        for test in finder.find(found, found.__name__, module=False, globs=dict(vars(module)))
    ]


def test_walk_finds_the_rooms():
    assert {"weft.base.ndarray", "weft.base.target", "weft.base.shape"} <= set(MODULES)


def test_some_module_has_examples():
    found = doctest.DocTestFinder().find(importlib.import_module("weft.base.shape"))
    assert sum(len(test.examples) for test in found) >= 5
