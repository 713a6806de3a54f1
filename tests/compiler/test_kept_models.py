"""Whole models on disk: what runs from there is what the file says now, and nothing that happens to the folder is an
error."""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.base import config, stages
from weft.base.errors import InvalidValue, RunError, ShapeError
from weft.compiler import groups
from weft.compiler.kept import models

SHAPE = (3, 5)
CHILD = """
import sys
import numpy as np
import weft

{before}
model = weft.compile(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], model.run({{"x": x}})[0])
print(model.compilations, "weft.core.op" in sys.modules, "onnx" in sys.modules, "llvmlite" in sys.modules)
"""
OWN_RULE = """
from weft.frontend.onnx.registry import TABLE
@TABLE.converter("Relu", since=20)
def relu(call):
    return call[0]
"""


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache folder, in a process in which nobody has registered rules."""
    monkeypatch.setattr(stages, "_foreign", False)
    with config.override(cache=True, cache_dir=str(tmp_path / "cache")):
        yield tmp_path


def write(path: Path, seed: int, external: bool = False) -> np.ndarray:
    """A file of relu(x + w) - b, and what it gives for `given()`."""
    rng = np.random.default_rng(seed)
    w, b = (rng.standard_normal(SHAPE).astype("float32") for _ in range(2))
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["s"]),
            helper.make_node("Relu", ["s"], ["r"]),
            helper.make_node("Sub", ["r", "b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="tests")
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data", size_threshold=0)
    return np.maximum(given() + w, 0) - b


def given() -> np.ndarray:
    return np.random.default_rng(99).standard_normal(SHAPE).astype("float32")


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "v1").glob("*.mapped"))


def check(path: Path, expected: np.ndarray, compilations: int) -> weft.CompiledModel:
    model = weft.compile(path)
    np.testing.assert_allclose(model.run({"x": given()})[0], expected, rtol=1e-6, atol=1e-6)
    assert model.compilations == compilations
    assert model.wait()
    return model


def child(folder: Path, path: Path, before: str = "") -> tuple[np.ndarray, str]:
    np.save(folder / "x.npy", given())
    arguments = [str(path), str(folder / "x.npy"), str(folder / "y.npy")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(before=before), *arguments],
        env={**os.environ, "WEFT_CACHE_DIR": str(folder / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    return np.load(folder / "y.npy"), done.stdout.strip()


def test_another_process_runs_it_without_the_compiler(fresh):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    first, told = child(fresh, path)
    assert told.startswith("1 True True")
    again, told = child(fresh, path)
    assert told == "0 False False False"
    np.testing.assert_allclose(first, expected, rtol=1e-6, atol=1e-6)
    assert again.tobytes() == first.tobytes()


def test_rules_of_users_are_never_left_out(fresh):
    """Neither is what they make taken by others."""
    path = fresh / "m.onnx"
    expected = write(path, 0)
    child(fresh, path)
    own, told = child(fresh, path, OWN_RULE)
    assert told.startswith("1 ")
    assert np.abs(own - expected).max() > 0.1
    assert len(kept(fresh)) == 1
    np.testing.assert_allclose(child(fresh, path)[0], expected, rtol=1e-6, atol=1e-6)


def test_a_changed_weight_changes_the_result(fresh):
    path = fresh / "m.onnx"
    check(path, write(path, 0), 1)
    facts = path.stat()
    other = write(path, 1)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_size == facts.st_size
    check(path, other, 1)
    check(path, other, 0)


def test_a_file_that_changes_while_it_is_compiled_is_not_kept(fresh, monkeypatch):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    opened = weft.compiler.model.opened

    def slow(model, **options):
        made = opened(model, **options)
        write(path, 1)
        return made

    monkeypatch.setattr("weft.compiler.model.opened", slow)
    check(path, expected, 1)
    assert kept(fresh) == []


def test_options_are_part_of_the_key(fresh):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    check(path, expected, 1)
    for options in ({"opt_level": 0}, {"shape": {"x": SHAPE}}, {"precision": "bf16"}):
        model = weft.compile(path, **options)
        assert model.compilations == 1
        assert model.wait()
    assert weft.compile(path, threads=1).compilations == 0
    assert weft.compile(path, params={"w": np.zeros(SHAPE, "float32")}).compilations == 1
    assert len(kept(fresh)) == 4
    with pytest.raises(InvalidValue, match="cannot be"):
        weft.compile(path, shape={"x": (2, 2)})


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_a_miss_and_is_repaired(fresh, seed):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    check(path, expected, 1)
    (file,) = kept(fresh)
    rng, data = np.random.default_rng(seed), bytearray(file.read_bytes())
    whole = bytes(data)
    if seed % 2:
        del data[int(rng.integers(0, len(data))) :]
    else:
        names = whole.find(b"constants/0")  # what comes first in the file; its end is behind everything that counts
        data[int(rng.integers(0, names))] ^= 1 + int(rng.integers(255))
    file.write_bytes(data)
    model = weft.compile(path)
    np.testing.assert_allclose(model.run({"x": given()})[0], expected, rtol=1e-6, atol=1e-6)
    assert model.wait()
    check(path, expected, 0)


def test_a_file_under_the_name_of_another_is_not_taken(fresh):
    one, two = fresh / "one.onnx", fresh / "two.onnx"
    first, second = write(one, 0), write(two, 1)
    check(one, first, 1)
    (file,) = kept(fresh)
    check(two, second, 1)
    (other,) = [name for name in kept(fresh) if name != file]
    other.write_bytes(file.read_bytes())
    check(two, second, 1)


def test_what_is_ready_has_all_that_a_model_has(fresh):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    first = check(path, expected, 1)
    model = check(path, expected, 0)
    path.unlink()
    for one in (first, model):
        assert [str(spec) for spec in one.inputs] == ["x: float32[3, 5]"]
        assert [node.op_name for node in one.graph.indexed.nodes if node.op is not None]
        assert one.metadata["producer"] == "tests"
        assert one.source.opt_level == 3
        assert one.is_whole
        assert one.parts == 1
        assert one.report().kernels
        assert "x: float32[3, 5] -> y: float32[3, 5]" in repr(one)
        with pytest.raises(ShapeError, match="expected x"):
            one.run({"x": np.zeros((2, 2), "float32")})
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.run({"x": given()})[0], expected, rtol=1e-6, atol=1e-6)
    assert model.profile(given()).steps
    model.save(fresh / "saved")
    assert weft.compile(fresh / "saved").run({"x": given()})[0].tobytes() == model.run({"x": given()})[0].tobytes()
    model.close()
    with pytest.raises(RunError, match="closed"):
        model.run({"x": given()})


def test_a_file_that_was_written_over_is_not_read_again(fresh):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    model = check(path, expected, 1)
    write(path, 1)
    with pytest.raises(RunError, match="has changed"):
        model.graph
    np.testing.assert_allclose(model.run({"x": given()})[0], expected, rtol=1e-6, atol=1e-6)


def test_weights_are_read_again_where_nothing_could_be_kept(fresh, monkeypatch):
    """They went while the model was compiled, and are what they were when somebody asks, until the file is another."""
    path = fresh / "m.onnx"
    expected = write(path, 0)
    monkeypatch.setattr(models.KeptFile, "keep", lambda *_: False)
    model = check(path, expected, 1)
    assert kept(fresh) == []
    path.rename(fresh / "moved.onnx")
    params = model.source.params
    np.testing.assert_allclose(np.maximum(given() + params["w"], 0) - params["b"], expected, rtol=1e-6, atol=1e-6)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.run({"x": given()})[0], expected, rtol=1e-6, atol=1e-6)
    other = weft.compile(fresh / "moved.onnx")
    write(fresh / "moved.onnx", 1)
    with pytest.raises(RunError, match="has changed"):
        other.source


def test_states_of_random_numbers_outlive_the_compiler(fresh):
    path = fresh / "m.onnx"
    noise = helper.make_node("RandomNormalLike", ["x"], ["n"], seed=7.0)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([noise, helper.make_node("Add", ["x", "n"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    model = weft.compile(path)
    first, second = (model.run({"x": given()})[0] for _ in range(2))
    assert np.abs(first - second).max() > 0.01
    np.testing.assert_array_equal(weft.compile(path).run({"x": given()})[0], first)


PEAK = """
import sys
import numpy as np
import weft
from pathlib import Path

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

for path in sys.argv[1:]:
    before = peak()  # of the second, with all that is loaded
    model = weft.compile(path)
    model.run({spec.name: np.zeros(spec.shape, spec.dtype) for spec in model.inputs})
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is told by /proc")
@pytest.mark.parametrize("last", [0, 1], ids=["rows first", "columns first"])
def test_a_cold_compile_has_most_weights_once(fresh, last):
    """As they are read, turned and packed, each of them goes when what comes of it is there; and what is freed is the
    system's."""
    rng = np.random.default_rng(0)
    sizes = [512, 2048] * 12

    def written(name, sizes):
        path, pairs = fresh / name, list(enumerate(itertools.pairwise(sizes)))
        weights = [
            numpy_helper.from_array(rng.standard_normal(pair[:: 1 - 2 * last], "f4"), f"w{n}") for n, pair in pairs
        ]
        nodes = [helper.make_node("Gemm", [f"x{n}", f"w{n}"], [f"x{n + 1}"], transB=last) for n, _ in pairs]
        ends = [("x0", sizes[0]), (f"x{len(pairs)}", sizes[-1])]
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [4, size]) for end, size in ends]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
        return str(path), sum(4 * rows * columns for _, (rows, columns) in pairs)

    (small, _), (large, size) = written("small.onnx", sizes[:3]), written("large.onnx", sizes)
    assert size > 90e6
    done = subprocess.run(
        [sys.executable, "-c", PEAK, small, large],
        env={**os.environ, "WEFT_CACHE_DIR": str(fresh / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) < 1.5 * size


def test_weights_in_other_files_are_not_kept(fresh):
    path = fresh / "m.onnx"
    check(path, write(path, 0, external=True), 1)
    assert kept(fresh) == []
    check(path, write(path, 1, external=True), 1)


def test_folders_that_cannot_be_used(fresh, monkeypatch):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    with config.override(cache=False):
        check(path, expected, 1)
    with config.override(cache_dir=str(path)):  # a file, no folder
        check(path, expected, 1)
    with config.override(cache_dir=str(fresh / "small"), cache_megabytes=0):
        check(path, expected, 1)
        check(path, expected, 1)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(models, "write_program", full)
        check(path, expected, 1)
    assert kept(fresh) == []
    assert not list((fresh / "cache" / "v1").glob(".new.*"))
    check(path, expected, 1)
    os.chmod(kept(fresh)[0], 0o666)  # others may write to it
    check(path, expected, 1)


def test_watching_and_printing_compile_it(fresh, capfd):
    path = fresh / "m.onnx"
    expected = write(path, 0)
    check(path, expected, 1)
    seen = []
    with stages.watched(lambda stage: seen.append(stage.title)):
        check(path, expected, 1)
    assert "groups" in seen
    groups.forget_groups()
    with config.override(debug=frozenset({"llvm"})):
        check(path, expected, 1)
    assert "define" in capfd.readouterr().err
