"""Programs as files: the round trip, and every kind of file that is not one."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base.errors import DTypeError, FormatError, NotFound, ShapeError, Unsupported
from weft.base.plan import Launch, TensorMap
from weft.core.op import Op
from weft.runtime.artifact import load_program, save_program

CHILD = """
import sys, numpy as np, weft
model = weft.runtime.load(sys.argv[1])
np.save(sys.argv[3], model.run({"x": np.load(sys.argv[2])})[0])
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model, its input, and the file it was saved to."""
    rng = np.random.default_rng(4)
    x = sym.Variable("x", shape=(2, 5))
    y = sym.softmax(sym.dense(x, units=3, name="fc"))
    params = {
        "fc_weight": rng.standard_normal((3, 5)).astype("float32"),
        "fc_bias": rng.standard_normal(3).astype("float32"),
    }
    model = weft.compile((y, params))
    path = tmp_path_factory.mktemp("artefacts") / "model.weft"
    model.save(path)
    return model, rng.standard_normal((2, 5)).astype("float32"), path


def test_round_trip(saved):
    model, x, path = saved
    loaded = weft.runtime.load(path)
    assert [str(spec) for spec in loaded.inputs] == ["x: float32[2, 5]"]
    assert loaded.outputs == model.outputs
    for result in (loaded(x), loaded(x=x), loaded.run({"x": x})):
        assert result[0].tobytes() == model(x)[0].tobytes()
    mine, its = loaded.report(), model.report()
    assert mine.kernels == its.kernels
    assert mine.arena_bytes == its.arena_bytes
    assert mine.code_bytes == its.code_bytes


def test_launches_and_maps_of_steps_come_back(saved, tmp_path):
    model, _, _ = saved
    program = model.program
    mapped = TensorMap(0, "bfloat16", (16, 4), (64,), (16, 4), 32, 128, (1, 2), ((-1, -1), (1, 0)))
    launch = Launch((3, 2, 1), (128, 1, 1), 5000, 2, True)
    steps = tuple(replace(step, launch=launch, maps=(mapped,)) for step in program.plan.steps)
    changed = replace(program, plan=replace(program.plan, steps=steps))
    save_program(changed, tmp_path / "changed.weft")
    assert load_program(tmp_path / "changed.weft").plan.steps == steps


def test_loaded_models_check_their_inputs(saved):
    _, x, path = saved
    loaded = weft.runtime.load(str(path), threads=1)
    with pytest.raises(NotFound, match="no input 'y'"):
        loaded.run({"x": x, "y": x})
    with pytest.raises(NotFound, match="'x' is missing"):
        loaded()
    with pytest.raises(ShapeError, match=r"\(2, 4\)"):
        loaded(x[:, :4])
    with pytest.raises(DTypeError, match="float64"):
        loaded(x.astype("float64"))


def test_saving_what_was_loaded(saved, tmp_path):
    _, x, path = saved
    loaded = weft.runtime.load(path)
    loaded.save(tmp_path / "again")
    again = weft.runtime.load(tmp_path / "again")
    assert again(x)[0].tobytes() == loaded(x)[0].tobytes()


def test_another_process_runs_it(saved, tmp_path):
    model, x, path = saved
    np.save(tmp_path / "x.npy", x)
    arguments = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", CHILD, *arguments], check=True)
    assert np.load(tmp_path / "y.npy").tobytes() == model(x)[0].tobytes()


def test_host_steps_run_in_another_process(tmp_path, monkeypatch):
    """A program whose operator has no body takes it from the registry where it is loaded."""
    rows = {op: row for op, row in Op.compute._rows.items() if op.name != "floor"}
    with monkeypatch.context() as patch:
        patch.setattr(Op.compute, "_rows", rows)
        model = weft.compile(sym.floor(sym.exp(sym.Variable("x", shape=(2, 5)))) * 2, opt_level=0)
    assert model.report().host_steps == ("floor",)
    assert "host: floor" in str(model.report())
    x = np.random.default_rng(0).standard_normal((2, 5)).astype("float32")
    np.testing.assert_allclose(model(x)[0], np.floor(np.exp(x)) * 2)
    model.save(tmp_path / "m")
    np.save(tmp_path / "x.npy", x)
    arguments = [str(tmp_path / "m"), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", CHILD, *arguments], check=True)
    assert np.load(tmp_path / "y.npy").tobytes() == model(x)[0].tobytes()


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(NotFound, match="there is no file"):
            weft.runtime.load(path)


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\x03\x04", bytes(100), b"PK\x05\x06" + bytes(18)])
def test_what_is_no_zip(tmp_path, data):
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(FormatError, match="no program of weft"):
        weft.runtime.load(tmp_path / "m")


def test_every_truncation_is_noticed(saved, tmp_path):
    data = saved[2].read_bytes()
    path = tmp_path / "m"
    for size in [*range(0, len(data), max(len(data) // 97, 1)), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            load_program(path)


def test_flipped_bits_are_noticed_or_harmless(saved, tmp_path):
    """What still loads must be the same program: the bit was in a date or the like."""
    data = bytearray(saved[2].read_bytes())
    original = load_program(saved[2])
    path = tmp_path / "m"
    rng = np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(len(data) * 8, 600, replace=False).tolist():
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            program = load_program(path)
        except (FormatError, Unsupported):
            noticed += 1
        else:
            assert program.objects == original.objects
            assert program.plan == original.plan
            for one, two in zip(program.constants, original.constants, strict=True):
                assert one.tobytes() == two.tobytes()
        data[place // 8] ^= 1 << place % 8
    assert noticed > 400


def changed(source, **changes):
    """The file with parts of its table of contents replaced, checksums kept."""
    out = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "program.json":
                contents = json.loads(data)
                contents.update(changes)
                data = json.dumps(contents).encode()
            new.writestr(name, data)
    return out.getvalue()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"version": 99}, FormatError),
        ({"format": "other"}, FormatError),
        ({"target": "llvm -mtriple=aarch64-linux-gnu -mcpu=generic"}, Unsupported),
        ({"target": "gpu"}, FormatError),
        ({"target": 3}, FormatError),
        ({"slots": [["input", 4, 0, "x"]]}, FormatError),
        ({"slots": [["elsewhere", 4, 0, "x"]]}, FormatError),
        ({"slots": 3}, FormatError),
        ({"steps": [["kernel", "k", [[99, 0]], [], 1, 0]]}, FormatError),
        ({"steps": [["kernel"]]}, FormatError),
        ({"arena_bytes": -1}, FormatError),
        ({"arena_bytes": "many"}, FormatError),
        ({"inputs": [["x", [2, 6], "float32"]]}, FormatError),
        ({"inputs": [["x", [2, -5], "float32"]]}, FormatError),
        ({"inputs": [["x", [2, 5], "float99"]]}, FormatError),
        ({"outputs": []}, FormatError),
        ({"constants": []}, FormatError),
        ({"objects": 10**9}, FormatError),
        ({"checksums": {}}, FormatError),
        ({"checksums": None}, FormatError),
        ({"kernels": [1]}, FormatError),
    ],
)
def test_contents_that_do_not_fit(saved, tmp_path, changes, error):
    (tmp_path / "m").write_bytes(changed(saved[2], **changes))
    with pytest.raises(error) as caught:
        load_program(tmp_path / "m")
    assert str(tmp_path / "m") in str(caught.value)


def test_missing_contents_and_deep_nesting(saved, tmp_path):
    for text in ("[]", "{}", "3", "[" * 100_000, "{", "\xff"):
        with zipfile.ZipFile(tmp_path / "m", "w") as archive:
            archive.writestr("program.json", text)
        with pytest.raises(FormatError):
            load_program(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m", "w") as archive:
        archive.writestr("hello", "x")
    with pytest.raises(FormatError, match=r"no program\.json"):
        load_program(tmp_path / "m")


def test_a_bomb_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "m", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("program.json", " " * (64 << 20))
    with pytest.raises(FormatError, match="larger than the file"):
        load_program(tmp_path / "m")


def test_a_failed_save_leaves_nothing(saved, tmp_path):
    broken = replace(saved[0].program, facts={"odd": object()})
    with pytest.raises(TypeError):
        save_program(broken, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(TypeError):
        save_program(broken, tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
