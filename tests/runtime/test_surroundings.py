"""A compiled model among difficult neighbours: it runs, ends, and gives the same bits."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from bounds import PATIENCE

WORK = """
import sys
import numpy as np
import weft

symbol, params = weft.testing.squeezenet.get_workload(image_shape=(3, 64, 64), num_classes=10)
model = weft.compile(symbol, params=params, shape={"data": (1, 3, 64, 64)}, threads=THREADS)
data = np.random.default_rng(7).standard_normal((1, 3, 64, 64)).astype("float32")
(first,) = model(data)
print("ready", flush=True)
for _ in range(ROUNDS):
    (again,) = model(data)
    assert np.array_equal(first, again)
np.save(sys.argv[1], first)
"""


def start(path, *, threads="None", rounds=30, before=None):
    code = WORK.replace("THREADS", threads).replace("ROUNDS", str(rounds))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
    )


def result(process, path):
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return np.load(path)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "alone.npy"
    return result(start(path, threads="1", rounds=1), path)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_one_core(tmp_path, expected):
    core = min(os.sched_getaffinity(0))
    path = tmp_path / "out.npy"
    process = start(path, before=lambda: os.sched_setaffinity(0, {core}))
    assert np.array_equal(result(process, path), expected)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_more_threads_than_cores(tmp_path, expected):
    core = min(os.sched_getaffinity(0))
    path = tmp_path / "out.npy"
    process = start(path, threads="4", before=lambda: os.sched_setaffinity(0, {core}))
    assert np.array_equal(result(process, path), expected)


@pytest.mark.slow
def test_busy_neighbours(tmp_path, expected):
    spin = "import time\nend = time.time() + 600\nwhile time.time() < end: pass"
    neighbours = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    try:
        path = tmp_path / "out.npy"
        assert np.array_equal(result(start(path, threads="2"), path), expected)
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


@pytest.mark.slow
def test_stopped_again_and_again(tmp_path, expected):
    """As under a CPU quota: the process is taken off all cores at any moment, and put back."""
    path = tmp_path / "out.npy"
    process = start(path, threads="2", rounds=400)
    assert process.stdout.readline().strip() == "ready", process.stderr.read()
    rng = random.Random(3)
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.001, 0.01))
        process.send_signal(signal.SIGCONT)
        time.sleep(rng.uniform(0.001, 0.02))
    assert np.array_equal(result(process, path), expected)
