"""Modules with inputs that stay: set_input, run, get_output, and files of libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base.errors import (
    FormatError,
    GraphError,
    InvalidType,
    InvalidValue,
    NotFound,
    OutOfRange,
    RunError,
    ShapeError,
)


@pytest.fixture
def rng():
    return np.random.default_rng(9)


@pytest.fixture
def built():
    x, y = sym.Variable("x"), sym.Variable("y")
    symbol = sym.Group([x * 2 + y, x])
    graph, lib, _ = weft.compiler.build(symbol, "llvm", {"x": (2, 3), "y": (2, 3)})
    return graph, lib


def floats(rng):
    return rng.standard_normal((2, 3)).astype("float32")


def test_functions_by_name(built, rng):
    module = weft.runtime.create(*built, weft.cpu(0))
    x, y = floats(rng), floats(rng)
    set_input, run, get_output = module["set_input"], module["run"], module["get_output"]
    set_input("x", weft.nd.array(x))
    set_input("y", weft.nd.array(y))
    run()
    out = weft.nd.empty((2, 3), "float32")
    assert get_output(0, out) is out
    np.testing.assert_allclose(out.asnumpy(), 2 * x + y, rtol=1e-6)
    assert module["get_num_outputs"]() == 2
    with pytest.raises(NotFound, match="set_input"):
        module["explode"]


def test_inputs_stay(built, rng):
    module = weft.runtime.create(*built)
    x, y = floats(rng), floats(rng)
    module.run(x=x, y=np.zeros((2, 3)))
    np.testing.assert_allclose(module.get_output(0).asnumpy(), 2 * x, rtol=1e-6)
    module.set_input(y=y)
    module.run()
    np.testing.assert_allclose(module.get_output(0).asnumpy(), 2 * x + y, rtol=1e-6)
    np.testing.assert_array_equal(module.get_input("y").asnumpy(), y)
    np.testing.assert_array_equal(module.get_output(1).asnumpy(), x)


def test_by_position(built, rng):
    module = weft.runtime.create(*built)
    names = [spec.name for spec in module.program.inputs]
    value = floats(rng)
    module.set_input(names.index("x"), value)
    np.testing.assert_array_equal(module.get_input("x").asnumpy(), value)
    out = weft.nd.empty((2, 3))
    module.get_input(names.index("x"), out)
    np.testing.assert_array_equal(out.asnumpy(), value)
    with pytest.raises(OutOfRange):
        module.set_input(2, value)


def test_outputs_of_a_run_stay_when_another_comes(built, rng):
    module = weft.runtime.create(*built)
    x = floats(rng)
    module.run(x=x, y=x)
    first = module.get_output(1)
    module.run(x=x + 1)
    np.testing.assert_array_equal(first.asnumpy(), x)
    module.get_input("x")[...] = 0
    np.testing.assert_array_equal(module.get_input("x").asnumpy(), x + 1)


def test_numbers_of_other_precision_are_converted(built, rng):
    module = weft.runtime.create(*built)
    x = floats(rng)
    module.run(x=x.astype("float64"), y=np.zeros((2, 3), "int64"))
    np.testing.assert_allclose(module.get_output(0).asnumpy(), 2 * x, rtol=1e-6)


def test_errors_name_the_input(built, rng):
    module = weft.runtime.create(*built)
    with pytest.raises(NotFound, match=r"(?s)no input 'z'.*x: float32"):
        module.set_input("z", floats(rng))
    with pytest.raises(NotFound, match="'z'"):
        module.run(z=floats(rng))
    with pytest.raises(ShapeError, match=r"(?s)\(2, 4\).*input 'x', expected x: float32\[2, 3\]"):
        module.set_input("x", np.zeros((2, 4), "float32"))
    with pytest.raises(weft.Error, match="input 'x'"):
        module.set_input("x", np.zeros((2, 3), "complex64"))
    with pytest.raises(weft.Error, match="input 'x'"):
        module.set_input("x", None)


def test_outputs_that_are_not_there(built, rng):
    module = weft.runtime.create(*built)
    with pytest.raises(InvalidValue, match="run"):
        module.get_output(0)
    module.run(x=floats(rng), y=floats(rng))
    for index in (2, -1):
        with pytest.raises(OutOfRange, match=str(index)):
            module.get_output(index)
    with pytest.raises(InvalidType):
        module.get_output("x")
    with pytest.raises(ShapeError):
        module.get_output(0, weft.nd.empty((3, 2)))
    with pytest.raises(weft.Error):
        module.get_output(0, weft.nd.empty((2, 3), "float64"))


def test_parameters_from_bytes(built, rng):
    module = weft.runtime.create(*built)
    y = floats(rng)
    module.load_params(weft.save_param_dict({"y": y, "nobody": y}))
    module.run(x=np.zeros((2, 3), "float32"))
    np.testing.assert_array_equal(module.get_output(0).asnumpy(), y)
    with pytest.raises(weft.Error, match="invalid parameters"):
        module.load_params(b"hello")


def test_libraries_as_files(built, rng, tmp_path):
    graph, lib = built
    lib.save(tmp_path / "lib")
    lib.export_library(tmp_path / "other")
    (tmp_path / "graph.json").write_text(graph.json())
    x = floats(rng)
    for name in ("lib", "other"):
        loaded = weft.runtime.load_library(tmp_path / name)
        text = (tmp_path / "graph.json").read_text()
        module = weft.runtime.create(text, loaded, weft.cpu())
        module.run(x=x, y=x)
        np.testing.assert_allclose(module.get_output(0).asnumpy(), 3 * x, rtol=1e-6)


IN_A_FRESH_PROCESS = """
import sys
import numpy as np
import weft

kind, folder = sys.argv[1:]
text = open(f"{folder}/graph.json").read()
if kind == "graph":
    assert weft.graph.load_json(text).json() == text
elif kind == "compute":
    weft.top.registry.register_compute("relu", lambda attrs, inputs, info: None, level=11)
    assert weft.top.Op.get("relu").gradient is not None
    assert weft.symbol.relu(weft.symbol.Variable("x"))
elif kind == "module":
    lib = weft.runtime.load_library(f"{folder}/lib")
    module = weft.runtime.create(text, lib)
    module.run(x=np.array([[3.0, 4.0], [1.0, 2.0]], "float32"))
    np.testing.assert_allclose(module.get_output(0).asnumpy(), [[3, 4], [1, 2]], rtol=1e-5)
else:
    assert callable(weft.runtime.get_global_func(kind))
    assert kind in weft.runtime.list_global_func_names()
"""


@pytest.mark.parametrize("kind", ["graph", "compute", "module", "nnvm.graph._move_graph", "weft.reference"])
def test_in_a_fresh_process(kind, tmp_path):
    """What a name stands for does not depend on what was imported before."""
    x = sym.Variable("x")
    graph, lib, _ = weft.compiler.build(sym.inverse(sym.inverse(x)), "llvm", {"x": (2, 2)})
    assert any(hasattr(step, "function") for step in lib.program.plan.steps)
    lib.save(tmp_path / "lib")
    (tmp_path / "graph.json").write_text(graph.json())
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def changed(text, path, value):
    data = json.loads(text)
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(data)


def test_text_is_read_and_checked(built):
    graph, lib = built
    text = graph.json()
    number = graph.index.node_id("x")
    for wrong in ("junk", "", "[]", "3", b"\xff", "{}", changed(text, ["arg_nodes"], [99])):
        with pytest.raises(FormatError, match="no compiled graph"):
            weft.runtime.create(wrong, lib)
    strangers = [
        changed(text, ["nodes", number, "name"], "q"),
        changed(text, ["heads"], [[0, 0, 0]]),
        changed(text, ["attrs", "shape", 1, graph.index.entry_id("x")], [3, 2]),
        changed(text, ["attrs", "dltype", 1, graph.index.entry_id("x")], "float64"),
    ]
    for stranger in strangers:
        with pytest.raises(GraphError, match="do not belong together"):
            weft.runtime.create(stranger, lib)
    assert weft.runtime.create(text.encode(), lib).get_num_inputs() == 2


def test_inputs_that_were_never_set_are_an_error(built, rng):
    module = weft.runtime.create(*built)
    with pytest.raises(RunError, match="2 inputs have no value: x, y"):
        module.run()
    with pytest.raises(RunError, match="1 inputs have no value: y"):
        module.run(x=floats(rng))
    with pytest.raises(ShapeError):
        module.set_input("y", np.zeros(1))
    with pytest.raises(RunError, match="y"):
        module.run()
    module.run(y=floats(rng))


def test_a_module_starts_with_the_parameters_of_its_build(rng, tmp_path):
    x, w = sym.Variable("x"), sym.Variable("w")
    params, value = {"w": floats(rng)}, floats(rng)
    graph, lib, kept = weft.compiler.build(x * w, "llvm", {"x": (2, 3)}, params=params)
    module = weft.runtime.create(graph, lib)
    module.run(x=value)
    np.testing.assert_allclose(module.get_output(0).asnumpy(), value * params["w"], rtol=1e-6)
    lib.save(tmp_path / "lib")
    loaded = weft.runtime.create(graph, weft.runtime.load_library(tmp_path / "lib"))
    with pytest.raises(RunError, match="no value: w"):
        loaded.run(x=value)
    loaded.load_params(weft.save_param_dict(kept))
    loaded.run(x=value)
    np.testing.assert_allclose(loaded.get_output(0).asnumpy(), value * params["w"], rtol=1e-6)


def test_two_modules_of_one_library_have_their_own_variables(rng):
    w = sym.Variable("w", shape=(2, 3))
    graph, lib, _ = weft.compiler.build(sym._assign(w, w + 1), "llvm")
    one, two = weft.runtime.create(graph, lib), weft.runtime.create(graph, lib)
    for module in (one, two):
        module.set_input(w=np.zeros((2, 3), "float32"))
    one.run()
    one.run()
    two.run()
    assert one.get_input("w").asnumpy()[0, 0] == 2
    assert two.get_input("w").asnumpy()[0, 0] == 1
