"""Every example in a docstring of weft runs and prints what it says."""

import doctest
import importlib
import pkgutil

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


def test_walk_finds_the_rooms():
    assert {"weft.base.ndarray", "weft.base.target", "weft.base.shape"} <= set(MODULES)


def test_some_module_has_examples():
    found = doctest.DocTestFinder().find(importlib.import_module("weft.base.shape"))
    assert sum(len(test.examples) for test in found) >= 5
