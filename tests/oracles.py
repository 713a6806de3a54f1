"""Independent systems that the tests compare with. A missing one skips its tests and says so;
with WEFT_REQUIRE_ORACLES=1 it fails them instead."""

import importlib
import os
from types import ModuleType

import pytest


def oracle(name: str) -> ModuleType:
    """The module of an oracle such as "torch" or "onnxruntime"."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("WEFT_REQUIRE_ORACLES") == "1":
            raise
        pytest.skip(f"oracle {name} is not installed: `make oracles` installs it")
