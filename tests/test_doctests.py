"""Every example in a docstring or on a page of weft runs and prints what it says."""

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import weft

MODULES = ["weft"] + [
    found.name
    for found in pkgutil.walk_packages(weft.__path__, "weft.")
    if not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_module(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("page", ["tensors.md"])
def test_examples_of_page(page):
    path = Path(__file__).parent.parent / "docs" / page
    result = doctest.testfile(str(path), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 5
    assert result.failed == 0


def test_walk_finds_the_rooms():
    assert {"weft.base.ndarray", "weft.base.target", "weft.base.shape"} <= set(MODULES)


def test_some_module_has_examples():
    found = doctest.DocTestFinder().find(importlib.import_module("weft.base.shape"))
    assert sum(len(test.examples) for test in found) >= 5
