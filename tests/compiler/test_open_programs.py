"""Open programs in the disk cache: a process that finds them there lowers nothing. Damaged files,
folders that cannot be used and other processes change no result."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from functools import partial

import numpy as np
import pytest
from bounds import PATIENCE

import weft
from weft import te
from weft.base import config
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.base.file_cache import FileCache, file_cache
from weft.base.kept import Kept
from weft.compiler.open import programs as open_programs
from weft.compiler.open.calls import lower_compute
from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.native import generic as native_generic
from weft.runtime.artifact import program_bytes, program_of


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty cache folder, and a process that remembers no program: `forget` makes it so again;
    `lowered` lists what was lowered since."""
    process = Process(tmp_path / "v1", monkeypatch)
    with config.override(cache=True, cache_dir=str(tmp_path)):
        process.forget()
        yield process


class Process:
    def __init__(self, folder, monkeypatch):
        self.folder, self._patch, self.lowered = folder, monkeypatch, []
        for name in ("lower_compute", "lowered_operator"):
            self._patch.setattr(native_generic, name, self._counted(getattr(native_generic, name)))

    def _counted(self, lower):
        def counted(first, *args):
            self.lowered.append(getattr(first, "name", first))
            return lower(first, *args)

        return counted

    def forget(self):
        self.lowered.clear()
        self._patch.setattr(native_generic, "_calls", Kept(native_generic.KEPT))
        self._patch.setattr(open_programs, "_programs", {})

    def programs(self):
        return [path for path in self.folder.glob("*.bin") if b"'program'" in path.read_bytes()]


def array(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def run(name, *arrays, **attrs):
    """The first output of an operator, by an open program."""
    op = Op.get(name)
    by = native_generic.run_generic if Op.compute.contains(op) else native_generic.run_template
    return by(op, params_of(op, attrs), arrays)[0]


def softmax(x):
    return run("softmax", x, axis=1)


CALLS = (
    lambda n: run("softmax", array(n, n, 40), axis=1),
    lambda n: run("log_softmax", array(n, n, 40), axis=0),
    lambda n: run("layer_norm", array(n, n, 33), array(1, 33), array(2, 33)),
    lambda n: run("group_norm", array(n, n, 6, 9), array(1, 6), array(2, 6), num_groups=3),
    lambda n: run("max_pool2d", array(n, 2, 3, n, 20), pool_size=(3, 3), strides=(2, 2)),
    lambda n: run("resize", array(n, 2, 3, n, 20), size=(11, 9)),
    lambda n: run("cumsum", array(n, n, 50), axis=1),
    lambda n: run("prod", array(n, n, 40), axis=(1,)),
)


@pytest.mark.parametrize("call", CALLS)
def test_programs_of_the_cache_give_the_same_bits_without_lowering(memory, call):
    sizes = (30, 41, 57)
    wanted = [call(size) for size in sizes]
    assert len(memory.lowered) == 1
    memory.forget()
    for size, first in zip(sizes, wanted):
        np.testing.assert_array_equal(call(size), first)
    assert memory.lowered == []


def test_they_serve_other_sizes(memory):
    softmax(array(1, 300, 300))
    memory.forget()
    for shape in [(300, 300), (97, 513), (1000, 33)]:
        x = array(2, *shape)
        e = np.exp(x.astype("float64") - x.max(1, keepdims=True))
        np.testing.assert_allclose(softmax(x), e / e.sum(1, keepdims=True), atol=1e-6)
    assert memory.lowered == []


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_is_no_part_of_a_program(memory, threads):
    x = array(3, 2000, 300)
    wanted = softmax(x)
    memory.forget()
    before = weft.get_num_threads()
    weft.set_num_threads(threads)
    np.testing.assert_array_equal(softmax(x), wanted)
    weft.set_num_threads(before)
    assert memory.lowered == []


@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_other_targets_have_programs_of_their_own(memory, isa):
    try:
        other = host().with_isa(isa)
    except Unsupported:
        pytest.skip(f"this machine has no {isa}")
    x = array(4, 300, 200)
    wanted = softmax(x)
    memory.forget()
    with config.override(isa=isa):
        np.testing.assert_allclose(softmax(x), wanted, atol=1e-6)
    assert memory.lowered == (["softmax"] if other != host() else [])
    memory.forget()
    np.testing.assert_array_equal(softmax(x), wanted)
    assert memory.lowered == []


# Variants


def scaled(limit, x):
    """x times 2, or times 3 if it is longer than some limit."""
    factor = 3.0 if x.shape[0] > limit else 2.0
    return te.compute(x.shape, lambda i: x[i] * factor)


def pinned(x):
    return te.compute(x.shape, lambda i: x[i] * float(x.shape[0]))


def check(compute, key, size, factor):
    x = array(size, size)
    made = native_generic.run_computed(key, "test", compute, [x])[0]
    np.testing.assert_array_equal(made, x * np.float32(factor))


def test_a_key_has_variants(memory):
    for size, factor in [(5, 2), (200, 3), (7, 2), (300, 3)]:
        check(partial(scaled, 10), "test variants", size, factor)
    assert memory.lowered == ["test"] * 2
    assert len(memory.programs()) == 2
    for size, factor in [(300, 3), (5, 2)]:
        memory.forget()
        check(partial(scaled, 10), "test variants", size, factor)
        assert memory.lowered == []
        assert len(*open_programs._programs.values()) == 1


def test_variants_on_disk_are_limited(memory):
    sizes = range(2, 2 + 2 * open_programs.VARIANTS)
    for _ in range(2):
        for size in sizes:
            check(pinned, "test pinned", size, size)
    assert len(memory.programs()) == open_programs.VARIANTS
    memory.forget()
    check(pinned, "test pinned", 2, 2)


def test_a_program_that_another_process_kept_meanwhile_stays(memory):
    compute = partial(scaled, 10)
    key = ("test meanwhile", "")
    small, large = np.ones(5, "float32"), np.ones(50, "float32")

    def lower(x, before=None):
        if before is not None:
            before()
        return lower_compute("test", compute, [(x.shape, x.dtype)], host())

    def other():
        open_programs.open_call(key, "test", large.shape, partial(lower, large))

    open_programs.open_call(key, "test", small.shape, partial(lower, small, other))
    assert len(memory.programs()) == 2
    memory.forget()
    refused = partial(pytest.fail, "lowered again")
    for x in (small, large):
        open_programs.open_call(key, "test", x.shape, refused)


# Keys


def test_computations_that_are_not_wefts_own_are_not_kept(memory):
    op = Op.register("test_open_programs_own").set_num_inputs(1)
    x = array(5, 50)
    for factor in (2.0, 5.0):
        body = lambda x, factor=factor: te.compute(x.shape, lambda i: x[i] * factor)
        op.set_attr(Op.compute.name, body, 10 + int(factor))
        memory.forget()
        np.testing.assert_array_equal(native_generic.run_generic(op, None, [x])[0], x * factor)
        assert memory.lowered == [op.name]
    assert memory.programs() == []


def test_attributes_and_dtypes_tell_programs_apart(memory):
    x = array(6, 300, 200)
    for epsilon in (1e-5, 1e-2):
        for dtype in ("float32", "float64"):
            t, one, zero = x.astype(dtype), np.ones(200, dtype), np.zeros(200, dtype)
            made = run("layer_norm", t, one, zero, epsilon=epsilon)
            centred = t - t.mean(1, keepdims=True)
            wanted = centred / np.sqrt(t.var(1, keepdims=True) + epsilon)
            np.testing.assert_allclose(made, wanted, atol=1e-5)
            memory.forget()
    assert len(memory.programs()) == 4


# Damage


def kept(memory):
    """A program's file, and a call that needs it."""
    x = array(7, 300, 200)
    wanted = softmax(x)

    def call():
        memory.forget()
        np.testing.assert_array_equal(softmax(x), wanted)
        return bool(memory.lowered)

    assert not call()
    (path,) = memory.programs()
    return path, call


@pytest.mark.parametrize("seed", range(8))
def test_damaged_files_are_made_again(memory, seed):
    rng = np.random.default_rng(seed)
    path, call = kept(memory)
    whole = path.read_bytes()
    place = int(rng.integers(len(whole)))
    flipped = whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :]
    for damaged in (whole[:place], flipped, whole + b"x", b"", rng.bytes(len(whole))):
        path.write_bytes(damaged)
        assert call()
        assert not call()
        assert len(path.read_bytes()) == len(whole)


def replaced(path, change):
    """Writes other contents, with the right key and checksum."""
    disk = file_cache()
    (key,) = [key for key in keys(path) if disk.get(key) is not None]
    disk.put(key, change(disk.get(key)))


def keys(path):
    data = path.read_bytes()
    start = data.index(b"weft-cache-1\n") + len(b"weft-cache-1\n") + 32
    length = int.from_bytes(data[start : start + 8], "little")
    return [data[start + 8 : start + 8 + length]]


def with_contents(change, data):
    """The file of a program whose table of contents is another one."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as whole, zipfile.ZipFile(made, "w") as changed:
        for name in whole.namelist():
            held = whole.read(name)
            if name == "program.json":
                contents = json.loads(held)
                change(contents)
                held = json.dumps(contents)
            changed.writestr(name, held)
    return made.getvalue()


def first(contents, field, *place):
    """What stands at a place in the first row of a field."""
    found = contents[field][0]
    for step in place[:-1]:
        found = found[step]
    return found


WRONG = {
    "a row of the future": lambda c: c["sizes"][0].insert(0, ["add", 5, 5]),
    "no sizes": lambda c: c.pop("sizes"),
    "a shape of no row": lambda c: first(c, "outputs", 1, 0)[0].__setitem__(0, 10_000),
    "an unknown dtype": lambda c: c["outputs"][0].__setitem__(2, "float31"),
    "a dtype that is a list": lambda c: c["outputs"][0].__setitem__(2, [[]]),
    "turns of no row": lambda c: first(c, "steps", 4, 0, 0)[0].__setitem__(0, -1),
    "a step of two numbers": lambda c: c["steps"][0].pop(),
    "work that is no number": lambda c: c["steps"][0].__setitem__(5, float("nan")),
    "work that is a list": lambda c: c["steps"][0].__setitem__(5, []),
    "sizes of what is not there": lambda c: c["open_sizes"][0].__setitem__(0, 77),
    "a size less": lambda c: c["open_sizes"].pop(),
    "less memory": lambda c: c["slots"].clear(),
    "steps that are a number": lambda c: c.__setitem__("steps", 4),
}


@pytest.mark.parametrize("name", WRONG)
def test_contents_that_fit_nothing_are_made_again(memory, name):
    path, call = kept(memory)
    replaced(path, partial(with_contents, WRONG[name]))
    assert call()
    assert not call()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: b"[" * 100_000 + b"\n",
        lambda data: b"[]\n[]\n",
        lambda data: data.partition(b"\n")[0],
        lambda data: data[: data.index(b"\x7fELF")] + bytes(len(data) - data.index(b"\x7fELF")),
    ],
)
def test_contents_that_are_no_program_are_made_again(memory, change):
    path, call = kept(memory)
    replaced(path, change)
    assert call()
    assert not call()


@pytest.mark.parametrize("seed", range(60))
def test_reading_changed_contents_never_fails(memory, seed):
    rng = np.random.default_rng(seed)
    call = lower_compute("test", partial(scaled, 10), [((40,), np.dtype("float32"))], host())
    program = open_programs.assembled(call, host())
    whole = program_bytes(program)
    assert program_of(whole) == program
    assert open_programs._read(whole, 1) == program
    assert open_programs._read(whole, 2) is None
    data = bytearray(whole)
    end = data.index(b"\x7fELF")
    for _ in range(int(rng.integers(1, 5))):
        data[int(rng.integers(end))] = rng.choice(list(b'0189[]{}",.-eE'))
    made = open_programs._read(bytes(data), 1)
    if made is not None:
        made.plan.sizes.numbers([40])


# Folders


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, memory):
    (tmp_path / "file").write_bytes(b"")
    with config.override(cache_dir=str(tmp_path / "file")):
        assert softmax(array(8, 300, 200)).sum() == pytest.approx(300)
    assert memory.lowered == ["softmax"]


def test_a_full_disk_is_no_error(memory, monkeypatch):
    def full(self, path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileCache, "_write", full)
    for _ in range(2):
        memory.forget()
        assert softmax(array(9, 300, 200)).sum() == pytest.approx(300)
        assert memory.lowered == ["softmax"]
    assert memory.programs() == []


# Processes

SCRIPT = """
import sys
import numpy as np
import weft
from weft.compiler import kernels
from weft.eager.native import generic as native_generic, pointwise as native_pointwise
if sys.argv[1] == "warm":
    def refuse(*args, **kwargs):
        raise SystemExit("made again")
    kernels._emit = kernels.compile_object = native_pointwise.element_kernel = refuse
    native_generic.lower_compute = native_generic.lowered_operator = refuse
for rows in sys.argv[2:]:
    x = weft.from_numpy(np.random.default_rng(0).random((int(rows), 250), "float32"))
    x.requires_grad_()
    y = x.exp().softmax(0).cumsum(1) @ x.t().tanh()
    y.sum().backward()
    print(float(x.grad.sum()), float(y[3].sum()))
"""


def started(folder, *args):
    env = {**os.environ, "WEFT_DEBUG": "dispatch", "WEFT_CACHE_DIR": str(folder), "WEFT_CACHE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *args], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
def test_two_processes_fill_a_cache_at_once_and_a_third_makes_nothing(tmp_path):
    both = [started(tmp_path, "cold", "300", "420") for _ in range(2)]
    outputs = [process.communicate(timeout=PATIENCE) for process in both]
    assert outputs[0][0] == outputs[1][0] != ""
    assert all("for eager calls in" in err for _, err in outputs)
    warm = started(tmp_path, "warm", "300", "420").communicate(timeout=PATIENCE)
    assert warm == (outputs[0][0], "")
