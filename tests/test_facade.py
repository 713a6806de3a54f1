"""Public names: where they are, and that importing weft loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import weft

HEAVY = ("llvmlite", "onnx", "rich", "click", "weft.codegen", "weft.ops", "weft.compiler.model")


def child(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light():
    code = f"import sys, weft; print(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    assert child(code) == ""


def test_symbolic_work_needs_no_llvm():
    code = (
        "import sys, weft; x = weft.symbol.Variable('x');"
        "weft.compiler.graph_util.infer_shape(weft.symbol.relu(x), x=(2, 3));"
        "print('llvmlite' in sys.modules)"
    )
    assert child(code) == "False"


def test_every_public_name_is_there():
    for module in (weft, weft.compiler, weft.runtime):
        for name in module.__all__:
            assert getattr(module, name) is not None, name
            assert name in dir(module)
        with pytest.raises(AttributeError, match="nonsense"):
            module.nonsense


def test_functions_and_modules_of_like_names():
    """Loading a module must not put it where a function of that name is."""
    code = (
        "import weft, weft.compiler.model, weft.compiler.build_module;"
        "c = weft.compiler;"
        "print(callable(weft.compile), callable(c.build_config), callable(c.build),"
        "callable(c.compile),"
        "c.build_module.__name__, weft.save_param_dict is c.save_param_dict)"
    )
    assert child(code) == "True True True True weft.compiler.build_module True"
