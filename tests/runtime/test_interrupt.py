"""An interrupt from the keyboard stops a run between two kernels, and the module works on."""

import os
import subprocess
import sys
import textwrap

import pytest

from weft.base.plan import CALL_WORK, BufferRef, ExecPlan, HostStep, KernelStep, Slot

PROGRAM = """
    import os, signal, sys, threading, time
    import numpy as np
    import weft

    sym, rng = weft.symbol, np.random.default_rng(0)
    x, w = sym.Variable("x"), sym.Variable("w")
    made = x
    for _ in range(30):
        made = sym.tanh(sym.matmul(made, w))
    values = {name: rng.standard_normal((900, 900)).astype("f") / 30 for name in "xw"}
    shapes = {name: value.shape for name, value in values.items()}
    model = weft.compile(made, shape=shapes, threads=int(sys.argv[1]))
    expected = model.run(values)[0]
    seen = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
    if sys.argv[2] == "own":  # a handler of the user's, which raises nothing
        signal.signal(signal.SIGINT, lambda *given: seen.append(given))
    start = time.perf_counter()
    model.run(values)
    whole = time.perf_counter() - start

    for attempt in range(8):  # on a busy machine the signal may come when the run is over
        threading.Timer(whole / 10, os.kill, (os.getpid(), signal.SIGINT)).start()
        start, ended, seen[:] = time.perf_counter(), None, []
        try:
            again = model.run(values)[0]
            ended = time.perf_counter() - start
            time.sleep(1)
        except KeyboardInterrupt:
            assert sys.argv[2] == "default"
            if ended is None and time.perf_counter() - start < 0.7 * whole:
                break
        else:
            assert sys.argv[2] == "own" and len(seen) == 1
            break
    else:
        raise AssertionError("it did not stop early")
    again = model.run(values)[0]
    assert again.tobytes() == expected.tobytes()
    wanted = values["x"].astype("float64")
    for _ in range(30):
        wanted = np.tanh(wanted @ values["w"].astype("float64"))
    assert np.abs(again - wanted).max() <= 1e-4 * np.abs(wanted).max()
    print("stopped and right")
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("handler", ["default", "own"])
def test_interrupts_stop_a_run_between_kernels(threads, handler):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(threads), handler],
        capture_output=True,
        text=True,
        timeout=240,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "stopped and right"


def test_only_long_runs_of_kernels_are_cut():
    def plan(*steps):
        return ExecPlan(steps, (Slot("output", 64),))

    short = KernelStep("k", (BufferRef(0),), work=CALL_WORK / 10)
    long = KernelStep("k", (BufferRef(0),), work=CALL_WORK)
    host = HostStep("f", (BufferRef(0),))
    assert plan(*[short] * 9).segments() == [(short,) * 9]
    assert plan(short, long, short).segments() == [(short, long), (short,)]
    assert plan(long, long).segments() == [(long,), (long,)]
    assert plan(short, host, short).segments() == [(short,), host, (short,)]
    assert plan(long, host).segments() == [(long,), host]
