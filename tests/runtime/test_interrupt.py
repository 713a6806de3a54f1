"""An interrupt from the keyboard stops a run between two kernels, and the module works on."""

import os
import subprocess
import sys
import textwrap

import pytest
from bounds import PATIENCE

from weft.base.plan import CALL_WORK, BufferRef, ExecPlan, HostStep, KernelStep, Slot

PROGRAM = """
    import os, signal, sys, threading
    import numpy as np
    import weft

    LAYERS, SIZE, seen = 15, 900, []
    sym, rng = weft.symbol, np.random.default_rng(0)
    made, w = [sym.Variable("x")], sym.Variable("w")
    for _ in range(LAYERS):
        made.append(sym.tanh(sym.matmul(made[-1], w)))
    values = {name: rng.standard_normal((SIZE, SIZE)).astype("f") / 30 for name in "xw"}
    shapes = {name: value.shape for name, value in values.items()}
    model = weft.compile(sym.Group([made[1], made[-1]]), shape=shapes, threads=int(sys.argv[1]))
    expected = model.run(values)[1]
    first, last = np.empty((2, SIZE, SIZE), "f")  # kernels write here
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
    if sys.argv[2] == "own":  # a handler of the user's, which raises nothing
        signal.signal(signal.SIGINT, lambda *given: seen.append(np.isnan(last).all()))

    nothing = threading.Event()

    def press():
        while np.isnan(first).any():
            nothing.wait(1e-3)
        os.kill(os.getpid(), signal.SIGINT)

    for attempt in range(50):  # on a busy machine the signal may come when the run is over
        seen.clear(), first.fill(np.nan), last.fill(np.nan)
        presses = threading.Thread(target=press)
        presses.start()
        try:
            model.run(values, out=[first, last])
            presses.join()
            any(range(10))  # where Python looks for signals
        except KeyboardInterrupt:
            assert sys.argv[2] == "default"
            if np.isnan(last).all():
                break
        else:
            assert sys.argv[2] == "own" and len(seen) == 1 and last.tobytes() == expected.tobytes()
            if seen[0]:
                break
    else:
        raise AssertionError("it did not stop early")
    again = model.run(values)[1]
    assert again.tobytes() == expected.tobytes()
    wanted = values["x"].astype("float64")
    for _ in range(LAYERS):
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
        timeout=PATIENCE,
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
