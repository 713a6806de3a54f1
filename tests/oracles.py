"""Independent systems that the tests compare with. A missing one skips the tests that ask it;
with WEFT_REQUIRE_ORACLES=1 it fails them instead."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any, NoReturn

import pytest

TITLES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "sklearn": "scikit-learn", "tensorboard": "TensorBoard"}
MISSING = "oracle {} is not installed: `make oracles` installs it"


def oracle(name: str) -> Any:
    """The module of an oracle such as "torch", "torch.nn.functional" or "onnxruntime". Where a file of tests asks for a
    missing one while it is imported, it gets a stand-in that skips the tests that use it."""
    if installed(name):
        return importlib.import_module(name)
    package = name.partition(".")[0]
    if _in_a_test():
        skip(package)
    return _Missing(package)


def _in_a_test() -> bool:
    return "PYTEST_CURRENT_TEST" in os.environ


def installed(name: str) -> bool:
    """Whether there is one; where all are required, asking for it fails if there is not."""
    required = os.environ.get("WEFT_REQUIRE_ORACLES") == "1"
    return required or importlib.util.find_spec(name.partition(".")[0]) is not None


def skip(name: str) -> NoReturn:
    """Skips the test that runs, or the file that is imported."""
    pytest.skip(MISSING.format(name), allow_module_level=True)


class _Missing:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        if _in_a_test():
            skip(self._name)
        raise AttributeError(MISSING.format(self._name))  # asked by pytest as it collects


class Unasked:
    """Stands for a missing oracle, or a part of it, in samples that name what to call: their
    other checks run, and the one that calls it skips."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Unasked:
        return Unasked(self._name)

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        skip(self._name)
