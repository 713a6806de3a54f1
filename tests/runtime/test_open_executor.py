"""Executors of programs whose sizes are open: what siblings share, calls from many threads, files."""

from __future__ import annotations

import io
import json
import threading
import zipfile

import numpy as np
import pytest
from runtime.open_model import LARGEST_N, arrays, open_program, wanted

import weft
from weft.base.errors import FormatError, InvalidType, ShapeError, Unsupported
from weft.base.sizes import LARGEST
from weft.runtime import executor as executors
from weft.runtime.artifact import load_program, save_program
from weft.runtime.cpu.executor import CpuExecutor
from weft.runtime.executor import Executor
from weft.runtime.graph_module import GraphModule, load_library
from weft.runtime.program import Program


@pytest.fixture(scope="module")
def program():
    return open_program()


def check(run, rng, n, m):
    inputs = arrays(rng, n, m)
    for output, right in zip(run(dict(zip("xy", inputs))), wanted(*inputs), strict=True):
        np.testing.assert_array_equal(output, right)


def arena_bytes(n, m):
    """What the plan of the model says: a matrix, up to a whole line, and a vector."""
    return -(-n * m * 4 // 64) * 64 + n * 4


def test_siblings_share_code_constants_and_memory(program):
    rng = np.random.default_rng(0)
    root = CpuExecutor(program, 2)
    first, second = root.bound([9, 4]), root.bound([600, 30])
    assert first._loaded is second._loaded is root._loaded
    for sibling, size in [(first, (9, 4)), (second, (600, 30)), (first, (9, 4)), (second, (600, 30))]:
        check(sibling.run, rng, *size)
        assert not sibling.program.plan.is_open
    assert root.bound([4, 1]) is None


def test_memory_after_many_sizes_is_that_of_the_largest(program):
    rng = np.random.default_rng(0)
    root = CpuExecutor(program, 1)
    sizes = [(int(n), int(m)) for n, m in zip(rng.integers(1, 900, 40), rng.integers(2, 60, 40))]
    for count, size in enumerate(sizes, 1):
        check(root.run, rng, *size)
        assert root.workspace_bytes == max(arena_bytes(*seen) for seen in sizes[:count])
    root.bound(sizes[0]).run(dict(zip("xy", arrays(rng, *sizes[0]))))
    assert root.workspace_bytes == max(arena_bytes(*size) for size in sizes)


def test_a_small_arena_is_let_go_before_a_larger_is_made(program, monkeypatch):
    root = CpuExecutor(program, 1)
    arenas, idle = root._loaded.arenas, []

    def made(shape, dtype):
        idle.append(arenas.idle_bytes)
        return weft.nd.empty(shape, dtype)

    monkeypatch.setattr("weft.runtime.cpu.arenas.empty", made)
    for size in (10, 1000, 5):
        arenas.give(arenas.take(size))
    assert idle == [0, 0]
    one, two, three = arenas.take(100), arenas.take(2000), arenas.take(3000)
    assert [arena.size for arena in (one, two, three)] == [1000, 2000, 3000]
    for arena in (three, two, one):
        arenas.give(arena)
    assert arenas.take(1500).size == 2000
    assert arenas.take(1500).size == 3000
    assert arenas.take(1500).size == 1500
    assert arenas.idle_bytes == 0


def test_many_threads_call_siblings_at_once(program):
    root, errors = CpuExecutor(program, 2), []

    def calls(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(30):
                check(root.run, rng, int(rng.integers(1, 200)), int(rng.integers(2, 30)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert root.workspace_bytes <= len(threads) * arena_bytes(200, 30)


def test_the_last_sizes_are_kept(program, monkeypatch):
    monkeypatch.setattr(executors, "KEPT_SIZES", 2)
    rng, root, bound = np.random.default_rng(0), CpuExecutor(program), []
    known = Program.bound
    monkeypatch.setattr(Program, "bound", lambda self, sizes: bound.append(tuple(sizes)) or known(self, sizes))
    for n in (4, 5, 4, 6, 4, 5):
        check(root.run, rng, n, 3)
    assert bound == [(4, 3), (5, 3), (6, 3), (5, 3)]


def test_other_sizes_are_an_error_that_says_which_are_served(program):
    root, rng = CpuExecutor(program), np.random.default_rng(0)
    with pytest.raises(ShapeError) as caught:
        root.run(dict(zip("xy", arrays(rng, LARGEST_N, 3))))
    for text in (f"'x' of shape ({LARGEST_N}, 3)", f"x.shape[0] < {LARGEST_N}"):
        assert text in str(caught.value)
    with pytest.raises(ShapeError, match=r"x\.shape\[1\] > 1"):
        root.run(dict(zip("xy", arrays(rng, 5, 1))))
    x, y = arrays(rng, 5, 3)
    with pytest.raises(ShapeError, match=r"(?s)'y' has shape \(4,\).*y: float32\[5\]"):
        root.run({"x": x, "y": y[:4]})
    with pytest.raises(ShapeError, match="'x' has shape"):
        root.run({"x": x[0], "y": y})


def test_runtimes_without_open_programs_say_so(program):
    class Other(Executor):
        def run_into(self, inputs, outputs):
            raise AssertionError

    with pytest.raises(Unsupported, match="no open sizes"):
        Other(program).run(dict(zip("xy", arrays(np.random.default_rng(0), 5, 3))))


# Files


@pytest.fixture(scope="module")
def saved(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("open") / "model.weft"
    save_program(program, path)
    return path


def test_a_file_keeps_the_sizes_open(program, saved, tmp_path):
    again = load_program(saved)
    assert again.plan == program.plan
    assert (again.inputs, again.outputs, again.open_sizes) == (program.inputs, program.outputs, program.open_sizes)
    rng, loaded = np.random.default_rng(0), weft.runtime.load(saved)
    for n, m in [(1, 2), (33, 7), (200, 12)]:
        check(loaded.run, rng, n, m)
    with pytest.raises(ShapeError, match="compiled for sizes where"):
        loaded.run(dict(zip("xy", arrays(rng, 5, 1))))
    assert len(loaded.report().kernels) == 5
    loaded.save(tmp_path / "again")
    check(weft.runtime.load(tmp_path / "again").run, rng, 8, 8)
    with pytest.raises(InvalidType):
        save_program(program, 3)


def test_a_report_tells_the_memory_of_the_sizes_that_ran_last(program, saved):
    rng, loaded = np.random.default_rng(0), weft.runtime.load(saved)
    assert loaded.report().arena_bytes == 0
    for n, m in [(40, 9), (200, 12), (40, 9)]:
        check(loaded.run, rng, n, m)
        told = loaded.report().arena_bytes
        assert told == program.plan.bound([n, m]).arena_bytes
        assert told >= 4 * n * m


def test_modules_of_open_programs_say_what_to_do(saved):
    library = load_library(saved)
    with pytest.raises(Unsupported, match="open makes no graph module") as raised:
        GraphModule(library.program, weft.cpu())
    assert "weft.runtime.load" in raised.value.hint


def damaged(source, change):
    """The file with its table of contents changed, checksums kept."""
    out = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "program.json":
                contents = json.loads(data)
                change(contents)
                data = json.dumps(contents).encode()
            new.writestr(name, data)
    return out.getvalue()


def at(*path, value):
    def change(contents):
        place = contents
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


CHANGES = {
    "no row": at("arena_bytes", value=[10**6]),
    "a row below 0": at("slots", 0, 1, value=[-1]),
    "two rows": at("slots", 0, 1, value=[1, 2]),
    "a row that is no number": at("slots", 0, 2, value=["1"]),
    "a fraction": at("slots", 0, 1, value=4.5),
    "a boolean": at("slots", 0, 1, value=True),
    "a slot beyond 64 bits": at("slots", 0, 1, value=LARGEST + 1),
    "an offset that is no row": at("steps", 4, 2, 0, 1, value=[999]),
    "scalars beyond 64 bits": at("steps", 0, 3, value=[LARGEST + 1, 2]),
    "scalars that are no rows": at("steps", 0, 3, value=[[77], [1]]),
    "blocks below 0": at("steps", 0, 4, value=[[-5, 1, 1], [1, 1, 1]]),
    "blocks that are no row": at("steps", 0, 4, value=[[[999], 1, 1], [1, 1, 1]]),
    "work of no row": at("steps", 0, 5, value=[0.5, [999]]),
    "work below 0": at("steps", 0, 5, value=[-0.5, [0]]),
    "work without end": at("steps", 0, 5, value=float("inf")),
    "a shape that is no row": at("inputs", 0, 1, value=[[999], [1]]),
    "sizes of no input": at("open_sizes", 0, value=[7, 0]),
    "sizes of no axis": at("open_sizes", 0, value=[0, 7]),
    "a size too few": at("open_sizes", value=[[0, 0]]),
    "no open sizes": at("open_sizes", value=[]),
    "no table": at("sizes", value=None),
    "half a table": at("sizes", value=[[]]),
    "a row of the future": at("sizes", 0, 0, value=["add", 5, 6]),
    "an unknown operation": at("sizes", 0, 0, value=["system", 0, 0]),
    "an unknown question": at("sizes", 1, 0, value=["why", 0, 0, True]),
    "a table that is text": at("sizes", value="ab"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_damaged_tables_are_noticed(saved, tmp_path, change):
    (tmp_path / "m").write_bytes(damaged(saved, change))
    with pytest.raises(FormatError):
        load_program(tmp_path / "m")


def test_numbers_that_do_not_fit_at_some_sizes_are_refused_there(saved, tmp_path):
    """A file whose slots are too small for its tensors, which only the sizes tell."""
    (tmp_path / "m").write_bytes(damaged(saved, at("slots", 5, 1, value=64)))
    loaded = weft.runtime.load(tmp_path / "m")
    with pytest.raises(weft.Error, match="do not fit their slots"):
        loaded.run(dict(zip("xy", arrays(np.random.default_rng(0), 30, 5))))
