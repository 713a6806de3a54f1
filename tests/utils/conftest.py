"""Makes `from side_by_side import ...` work in the tests of this folder, and in processes that they start."""

import sys
from pathlib import Path

import pytest
from oracles import oracle

import weft

sys.path.insert(0, str(Path(__file__).parent))
from side_by_side import result_of


@pytest.fixture
def both():
    """Runs a function with each library from the same seed; gives its results or the types of its errors, each with
    the number that is drawn next."""
    torch = oracle("torch")

    def run(function):
        return [result_of(module, function) for module in (weft, torch)]

    return run
