"""`specialise="auto"`: sizes that come often get programs of their own, made beside runs. numpy has the answers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest
from bounds import PATIENCE

import weft
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.compiler.open import auto
from weft.compiler.open.cost import kernel_cycles
from weft.compiler.open.part import OpenPrograms
from weft.symbol import Variable
from weft.te import KernelBuilder

COLUMNS, DEPTH = 40, 30
WEIGHT = np.random.default_rng(0).standard_normal((COLUMNS, DEPTH)).astype("float32")
GAINS, EVEN = (3, 5, 7, 9, 6), (1, 8, 16)  # rows that are said to gain, and others


def dense(**options):
    symbol = weft.symbol.relu(weft.symbol.dense(Variable("x"), Variable("w"), units=COLUMNS, use_bias=False))
    options = {"specialise": "auto", **options}
    return weft.compile((symbol, {"w": WEIGHT}), shape={"x": ("n", DEPTH)}, **options)


def run(model, rows, times=1):
    x = np.random.default_rng(rows).standard_normal((rows, DEPTH)).astype("float32")
    for _ in range(times):
        (y,) = model.run({"x": x})
        np.testing.assert_allclose(y, np.maximum(x @ WEIGHT.T, 0), atol=1e-5)
    return y


def used(model):
    return [told for told in model.report().specialised if "is used" in told]


@pytest.fixture
def gains(monkeypatch):
    """What is expected to gain does not depend on the machine."""
    told = lambda self, shapes, progress: 1.25 if shapes["x"][0] in GAINS else 1.01
    monkeypatch.setattr(OpenPrograms, "gain", told)


@pytest.fixture
def gate(monkeypatch):
    """Holds the making of programs until it is opened; `reached` is set when one has begun."""

    class Gate:
        reached, opened = threading.Event(), threading.Event()

    def gain(self, shapes, progress):
        Gate.reached.set()
        assert Gate.opened.wait(PATIENCE)
        progress(0, 1)
        return 1.25

    monkeypatch.setattr(OpenPrograms, "gain", gain)
    yield Gate
    Gate.opened.set()


@pytest.mark.parametrize("rows", [*GAINS, *EVEN])
def test_sizes_seen_often_get_programs_where_they_gain(rows, gains):
    model = dense()
    run(model, rows, auto.RUNS - 1)
    assert model.wait(PATIENCE)
    assert model.report().specialised == ()
    run(model, rows)
    assert model.wait(PATIENCE)
    run(model, rows)
    (told,) = model.report().specialised
    assert f"x: [{rows}, {DEPTH}] alone" in told
    assert ("is used" in told) == (rows in GAINS)
    assert model.compilations == 1 + (rows in GAINS)
    assert not model.program.open_sizes


def test_never_is_what_models_do_by_themselves():
    model = dense(specialise="never")
    run(model, 3, 2 * auto.RUNS)
    assert model.wait()
    assert (model.report().specialised, model.compilations) == ((), 1)


def test_runs_go_on_while_a_program_is_made(gate):
    model = dense()
    run(model, 3, auto.RUNS)
    assert gate.reached.wait(PATIENCE)
    before = run(model, 3, 3)
    run(model, 20)  # a size that is new
    assert not model.wait(0.01)
    assert model.compilations == 1
    gate.opened.set()
    assert model.wait(PATIENCE)
    after = run(model, 3)
    assert model.compilations == 2
    np.testing.assert_allclose(after, before, atol=1e-5)
    np.testing.assert_array_equal(run(model, 3), after)


def test_the_least_recently_used_goes(gains):
    model = dense()
    for rows in GAINS[: auto.MAX_ALONE]:
        run(model, rows, auto.RUNS)
        assert model.wait(PATIENCE)
    assert len(used(model)) == auto.MAX_ALONE
    run(model, GAINS[0])
    run(model, GAINS[-1], auto.RUNS)
    assert model.wait(PATIENCE)
    told = used(model)
    assert len(told) == auto.MAX_ALONE
    assert not any(f"[{GAINS[1]}, " in line for line in told)
    run(model, GAINS[1], auto.RUNS)  # what was let go once has to be seen more often
    assert model.wait(PATIENCE)
    assert used(model) == told


def test_weights_exist_once(gains):
    model = dense()
    run(model, 3, auto.RUNS)
    open_program = model.program
    assert model.wait(PATIENCE)
    run(model, 3)
    alone = model.program
    assert alone is not open_program
    assert [id(array) for array in alone.constants] == [id(array) for array in open_program.constants]


def test_errors_are_reported_and_raised_nowhere(monkeypatch, gains):
    def broken(self, shapes, progress):
        raise ValueError("no such luck")

    monkeypatch.setattr(OpenPrograms, "program_alone", broken)
    model = dense()
    run(model, 3, auto.RUNS)
    assert model.wait(PATIENCE)
    run(model, 3, auto.RUNS)
    assert model.wait(PATIENCE)
    assert model.report().specialised == (
        f"a program for x: [3, {DEPTH}] alone could not be made: ValueError: no such luck",
    )


def test_closing_ends_what_is_made(gate):
    model = dense()
    run(model, 3, auto.RUNS)
    assert gate.reached.wait(PATIENCE)
    model.close()
    gate.opened.set()
    assert model.wait(PATIENCE)
    assert model.compilations == 1


def test_a_model_that_is_gone_ends_what_is_made(gate):
    model, others = dense(), threading.enumerate()
    run(model, 3, auto.RUNS)
    assert gate.reached.wait(PATIENCE)
    (thread,) = [t for t in threading.enumerate() if t.name == "weft-specialise" and t not in others]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    gate.opened.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_copies_have_the_programs_there_are(gains):
    model = dense()
    run(model, 3, auto.RUNS)
    assert model.wait(PATIENCE)
    again = model.__copy__()
    run(again, 3)
    assert again.compilations == 2
    assert len(used(again)) == 1


ENDS = """
import os, sys, threading
import numpy as np
import weft
from weft.base.cpu_target import host
from weft.base.errors import Unsupported
from weft.compiler.open import auto
from weft.compiler.open.part import OpenPrograms
from weft.symbol import Variable

begun, plain = threading.Event(), OpenPrograms.gain

def gain(self, shapes, progress):
    begun.set()
    while os.getpid() == parent:  # until it is told to end
        progress(0, 1)
    return plain(self, shapes, progress)

OpenPrograms.gain, parent = gain, os.getpid()
symbol = weft.symbol.dense(Variable("x"), Variable("w"), units=8, use_bias=False)
model = weft.compile((symbol, {"w": np.ones((8, 8), "f")}), shape={"x": ("n", 8)}, specialise="auto")
for _ in range(auto.RUNS):
    model(np.ones((3, 8), "f"))
assert begun.wait()
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        model(np.ones((3, 8), "f"))  # begins anew what the parent's thread was at
        told = model.wait() and model.report().specialised
        os._exit(0 if told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("end")
"""


@pytest.mark.parametrize("how", ["exit", *(["fork"] if hasattr(os, "fork") else [])])
def test_a_process_ends(how):
    command = [sys.executable, "-c", textwrap.dedent(ENDS), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


# Costs


def summed(rows, turns, registers=1):
    """A kernel that adds up `turns` numbers for each of `rows` (or of its scalar) in so many registers side by side."""
    b = KernelBuilder("summed")
    x, y = b.arg("x", "float32", (64,)), b.arg("y", "float32", (64,))
    n = b.scalar("n")
    with b.parallel("i", n if rows is None else rows) as i:
        sums = b.alloc("sums", "float32", (registers,), scope="register")
        for number in range(registers):
            b.store(sums, number, 0.0)
        with b.loop("j", turns) as j:
            for number in range(registers):
                b.store(sums, number, sums[number] + x[j] * 2.0)
        b.store(y, i, sums[0])
    return b.finish(), n


def test_cycles_are_those_of_the_sizes():
    kernel, n = summed(None, 10)
    cycles = [kernel_cycles(kernel, {n: rows}) - kernel_cycles(kernel, {n: 0}) for rows in (1, 7)]
    assert cycles[1] == 7 * cycles[0]
    for rows in (1, 7):
        same, scalar = summed(rows, 10)
        assert kernel_cycles(same, {scalar: 0}) == kernel_cycles(kernel, {n: rows})


def test_sums_wait_for_each_other():
    """Four cycles pass from one to the next, in which others may be computed."""
    one, two, many = (kernel_cycles(summed(1, 100, registers)[0], {}) for registers in (1, 2, 16))
    assert two - one < 10
    assert many > 2 * two


def test_rests_of_tiles_are_counted_once():
    b = KernelBuilder("tiles")
    x = b.arg("x", "float32", (1000,))
    n = b.scalar("n")
    with b.loop("tile", n) as tile:
        with b.when(tile < n - 1):
            b.store(x, tile, 1.0)
        with b.otherwise(), b.loop("i", 1000) as i:
            b.store(x, i, 1.0)
    kernel = b.finish()
    base = kernel_cycles(kernel, {n: 1})
    assert base < kernel_cycles(kernel, {n: 501}) < 2.1 * base


def test_many_values_in_one_block():
    b = KernelBuilder("values")
    x, y = b.arg("x", "float32", (8,)), b.arg("y", "float32", (3000,))
    for number in range(3000):
        b.store(y, number, b.let("v", x[number % 8]))
    kernel = b.finish()
    assert 3000 < kernel_cycles(kernel, {}) < 6000


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize(("rows", "gains"), [(3, True), (7, True), (64, False), (640, False)])
def test_what_gains(isa, rows, gains):
    """Rows that fill no tile gain by tiles of their own."""
    try:
        target = host().with_isa(isa)
    except Unsupported:
        pytest.skip(f"this machine has no {isa}")
    programs = dense(target=target)._whole._open
    assert (programs.gain({"x": (rows, DEPTH)}, lambda done, total: None) > auto.LEAST_GAIN) == gains
