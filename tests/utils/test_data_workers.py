"""Workers: processes that load batches. They send them through shared memory, raise their exceptions in the parent, and
leave nothing behind however they or it ends."""

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import numpy as np
import pytest
from bounds import PATIENCE
from loaded_samples import Dying, Failing, Interrupted, Settings, Squares, Told, Uneven, as_they_are, first

import weft
from weft.eager.tensor.shared_memory import HAS_FILES
from weft.utils.data import DataLoader, TensorDataset
from weft.utils.data.channel import packed, unpacked

METHODS = multiprocessing.get_all_start_methods()
HERE = Path(__file__).parent
needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def state_of_the_system():
    """Children and open files of this process, which segments of shared memory are."""
    gc.collect()
    files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    return {child.pid for child in multiprocessing.active_children()}, files


@pytest.fixture(scope="module", autouse=True)
def helpers_of_multiprocessing():
    """Processes that Python starts once for all others, and keeps."""
    resource_tracker.ensure_running()
    if "forkserver" in METHODS:
        forkserver.ensure_running()


@pytest.fixture
def nothing_left():
    """After a test, there is nothing that was not there before."""
    children, files = state_of_the_system()
    yield
    now = state_of_the_system()
    assert now[0] <= children
    assert now[1] <= files


def ended(pid):
    """Whether a process has come to its end; waits for that."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("method", [pytest.param(m, marks=[pytest.mark.slow] * (m == "forkserver")) for m in METHODS])
def test_batches_come_in_order(method, nothing_left):
    workers = 3 if method == "fork" else 1
    batches = list(DataLoader(Squares(), batch_size=5, num_workers=workers, multiprocessing_context=method))
    assert [batch["x"].tolist() for batch in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert batches[1]["y"].tolist() == [25, 36, 49, 64, 81]
    assert batches[2]["name"] == ["10", "11"]
    assert all(batch["x"].is_shared() for batch in batches)
    batches[0]["x"].add_(1)
    assert batches[0]["x"].tolist() == [1, 2, 3, 4, 5]


def test_workers_with_a_thread_each(nothing_left):
    weft.ones(300, 300) @ weft.ones(300, 300)  # the parent's threads are at work before
    seen = list(DataLoader(Settings(), num_workers=2, collate_fn=first))
    assert {(threads, value) for threads, value, _ in seen} == {(1, 300.0)}
    assert len({pid for _, _, pid in seen} | {os.getpid()}) == 3


def test_seeds_that_do_not_fork():
    weft.manual_seed(3)
    forked, spawned = (
        list(DataLoader(Told(2), num_workers=1, collate_fn=first, multiprocessing_context=method))
        for method in (METHODS[0], "spawn")
        if weft.manual_seed(3)
    )
    assert forked == spawned


@needs_proc
def test_persistent_workers_stay(nothing_left):
    loader = DataLoader(Told(6), num_workers=2, batch_size=2, collate_fn=as_they_are, persistent_workers=True)
    pids = []
    for epoch in range(3):
        iterator = iter(loader)
        pids.append(iterator._processes.pids)
        if epoch == 1:
            next(iterator)  # and leaves the others: the next epoch does not see them
            continue
        assert [[sample[0] for sample in batch] for batch in iterator] == [[0, 1], [2, 3], [4, 5]]
    assert pids[0] == pids[1] == pids[2]
    del loader, iterator
    assert all(map(ended, pids[0]))


def test_persistent_workers_iterate_anew(nothing_left):
    loader = DataLoader(Uneven(), num_workers=3, batch_size=4, collate_fn=len, persistent_workers=True)
    assert list(loader) == list(loader) == [4, 1, 4, 1, 4]


def test_batches_in_any_order(nothing_left):
    batches = list(DataLoader(Told(9), num_workers=3, collate_fn=first, in_order=False))
    assert sorted(sample[0] for sample in batches) == list(range(9))
    sizes = list(DataLoader(Uneven(), num_workers=3, batch_size=None, in_order=False))
    assert sorted(map(tuple, sizes)) == [(w, i) for w, count in enumerate(Uneven.counts) for i in range(count)]


def test_prefetching_asks_no_more_than_it_should(nothing_left):
    asked = []

    def order():
        for index in range(20):
            asked.append(index)
            yield index

    class Order:
        def __iter__(self):
            return order()

    iterator = iter(DataLoader(range(20), sampler=Order(), batch_size=None, num_workers=2, prefetch_factor=3))
    assert len(asked) == 6
    next(iterator)
    assert len(asked) == 7


class Unsendable(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


def local_error():
    class Local(KeyError):
        pass

    return Local("here")


ERRORS = {
    "KeyError": (KeyError("lost"), KeyError, "KeyError: 'lost'"),
    "ValueError": (ValueError("odd"), ValueError, "ValueError: odd"),
    "weft's": (weft.Error("ours"), weft.Error, "ours"),
    "of two parts": (Unsendable(1, 2), RuntimeError, "Unsendable"),
    "a local class": (local_error(), KeyError, "Local: 'here'"),
    "StopIteration": (StopIteration("end"), StopIteration, "StopIteration: end"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_exceptions_are_raised_in_the_parent(name, nothing_left):
    error, expected, text = ERRORS[name]
    iterator = iter(DataLoader(Failing(error), num_workers=2, batch_size=None))
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(expected) as caught:
        next(iterator)
    shown = str(caught.value)
    assert "in DataLoader worker process 1" in shown
    assert text in shown
    assert "raise self.error" in shown  # the worker's traceback
    assert list(iterator) == [4, 5]


def test_what_cannot_be_sent_is_told(nothing_left):
    iterator = iter(DataLoader([1, lambda: 2, 3], num_workers=1, batch_size=None))
    assert next(iterator) == 1
    with pytest.raises((pickle.PicklingError, AttributeError), match="in DataLoader worker process 0"):
        next(iterator)
    assert next(iterator) == 3


def test_tensors_with_a_history_cannot_be_sent(nothing_left):
    x = weft.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="history"):
        list(DataLoader([x * 2], num_workers=1, batch_size=None))
    (same,) = DataLoader([x], num_workers=1, batch_size=None)
    assert same.requires_grad
    assert same.tolist() == [1, 1]


def fails(number):
    raise LookupError(f"worker {number}")


def says(number):
    os.environ["WEFT_TEST_WORKER"] = str(number)


class Environment(Squares):
    def __getitem__(self, index):
        return os.environ["WEFT_TEST_WORKER"]


def test_worker_init_fn(nothing_left):
    assert list(DataLoader(Environment(4), num_workers=2, batch_size=None, worker_init_fn=says)) == ["0", "1"] * 2
    iterator = iter(DataLoader(Squares(4), num_workers=2, batch_size=None, worker_init_fn=fails))
    for number in (0, 1, 0, 1):
        with pytest.raises(LookupError, match=f"worker {number}"):
            next(iterator)


def test_what_cannot_be_started_leaves_no_process(nothing_left):
    with pytest.raises((pickle.PicklingError, AttributeError)):
        iter(DataLoader(Squares(), num_workers=2, collate_fn=lambda x: x, multiprocessing_context="spawn"))


@pytest.mark.parametrize(("how", "why"), [("killed", "SIGKILL"), ("left", "exit code 7")])
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_worker_that_dies_is_told(how, why, method, nothing_left):
    if method not in METHODS:
        pytest.skip("there is no fork here")
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
        list(DataLoader(Dying(how), num_workers=2, batch_size=1, multiprocessing_context=method))
    assert why in str(caught.value)
    assert time.monotonic() - start < PATIENCE


@needs_proc
def test_a_worker_that_is_killed_while_it_waits(nothing_left):
    loader = DataLoader(range(8), num_workers=2, batch_size=1, persistent_workers=True)
    assert len(list(loader)) == 8
    pid = loader._iterator._processes.pids[0]
    os.kill(pid, signal.SIGKILL)
    assert ended(pid)
    with pytest.raises(RuntimeError, match=f"{pid}.*exited unexpectedly"):
        list(loader)
    assert len(list(loader)) == 8  # with other workers


class Slow(Squares):
    def __getitem__(self, index):
        if index == 2:
            signal.pause()
        return index


@needs_proc
def test_timeouts(nothing_left, monkeypatch):
    monkeypatch.setattr("weft.utils.data.processes.GRACE", 0.1)
    iterator = iter(DataLoader(Slow(), num_workers=2, batch_size=None, timeout=PATIENCE))
    pids = iterator._processes.pids
    assert [next(iterator), next(iterator)] == [0, 1]
    iterator._loader.timeout = 1
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iterator)
    assert all(map(ended, pids))


@needs_proc
def test_iterators_that_are_dropped_end_their_workers(nothing_left):
    iterator = iter(DataLoader(Squares(100), num_workers=2))
    pids = iterator._processes.pids
    next(iterator)
    del iterator
    assert all(map(ended, pids))


@needs_proc
def test_two_loaders_at_once(nothing_left):
    """Workers that were forked later hold no connection of those before."""
    loaders = [DataLoader(range(6), num_workers=2, batch_size=2, collate_fn=sum) for _ in range(3)]
    assert list(zip(*loaders)) == [(1, 1, 1), (5, 5, 5), (9, 9, 9)]
    iterators = [iter(loader) for loader in loaders]
    pids = iterators[0]._processes.pids
    del iterators[0]
    assert all(map(ended, pids))
    assert [list(iterator) for iterator in iterators] == [[1, 5, 9]] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_workers_alone(nothing_left):
    iterator = iter(DataLoader(range(6), num_workers=2, batch_size=2, collate_fn=sum))
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            del iterator
            gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert list(iterator) == [1, 5, 9]


@needs_proc
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_end_while_a_forked_child_holds_their_connections(nothing_left, monkeypatch):
    monkeypatch.setattr("weft.utils.data.processes.GRACE", 2 * PATIENCE)  # no signal helps
    iterator = iter(DataLoader(range(6), num_workers=1, batch_size=2, collate_fn=sum))
    pids = iterator._processes.pids
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        del iterator
        assert all(map(ended, pids))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


class Large(Squares):
    """Large samples, in place of small ones for large indices."""

    def __getitem__(self, indices):
        return np.full(300_000, sum(indices) % 256, np.uint8)


@pytest.mark.parametrize("files", [True, False])
def test_large_tasks_and_large_batches(files, monkeypatch, nothing_left):
    """Neither waits until the other has taken what it sends; without anonymous files, all goes by the connection."""
    monkeypatch.setattr("weft.utils.data.channel.HAS_FILES", files and HAS_FILES)
    order = [[number] * 150_000 for number in range(8)]
    loader = DataLoader(Large(), sampler=order, batch_size=None, num_workers=2, prefetch_factor=4)
    assert [int(batch[7]) for batch in loader] == [number * 150_000 % 256 for number in range(8)]


SCRIPT = """
    import signal, sys, time
    sys.path.insert(0, {here!r})
    from loaded_samples import Squares
    from weft.utils.data import DataLoader

    if __name__ == "__main__":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has jobs in the background ignore it
        loader = DataLoader(Squares(1000), num_workers=2, multiprocessing_context={method!r})
        iterator = iter(loader)
        next(iterator)
        print(*iterator._processes.pids, flush=True)
        {then}
"""


def started(tmp_path, method, then):
    """A process with workers; gives it and their pids."""
    script = tmp_path / "loads.py"
    script.write_text(textwrap.dedent(SCRIPT).format(here=str(HERE), method=method, then=then))
    root = str(Path(weft.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
        start_new_session=True,
    )
    return process, [int(pid) for pid in process.stdout.readline().split()]


@needs_proc
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["killed", "interrupted", "left", "raised"])
def test_a_parent_that_ends_leaves_nothing(how, method, tmp_path, nothing_left):
    then = {
        "killed": "while True: time.sleep(0.1)",
        "interrupted": "while True: time.sleep(0.1)",
        "left": "sys.exit(0)",
        "raised": "raise LookupError('why')",
    }[how]
    process, pids = started(tmp_path, method, then)
    assert len(pids) == 2
    if how == "killed":
        process.kill()
    elif how == "interrupted":
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: all processes of its own group
    _, errors = process.communicate(timeout=PATIENCE)
    assert all(map(ended, pids))
    told = {"killed": "", "interrupted": "KeyboardInterrupt", "left": "", "raised": "LookupError: why"}[how]
    assert errors.count("Traceback") == (told != "")
    assert told in errors
    assert "leaked" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="signals are not blocked there")
def test_workers_that_are_starting_leave_interrupts_to_their_parent(nothing_left):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    loader = DataLoader(Interrupted(), batch_size=6, num_workers=1, multiprocessing_context="spawn")
    assert [batch["x"].tolist() for batch in loader] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_packing():
    x = weft.arange(12).reshape(3, 4)
    values = {
        "tensor": x,
        "column": x[:, 1],
        "empty": weft.zeros(0, 3),
        "number": weft.tensor(2.5),
        "narrow": weft.ones(3, dtype=weft.bfloat16),
        "parameter": weft.nn.Parameter(weft.ones(2)),
        "array": np.arange(5),
        "strided": np.arange(10)[::2],
        "text": ["a", None, (1, 2.0)],
    }
    parts, starts, total = packed(values)
    memory = np.zeros(total, np.uint8)
    for part, start in zip(parts, starts):
        memory[start : start + len(part)] = np.frombuffer(part, np.uint8)
    got = unpacked(memory)
    assert list(got) == list(values)
    for name in ("tensor", "column", "empty", "number", "narrow", "parameter"):
        assert got[name].tolist() == values[name].tolist()
        assert (got[name].dtype, got[name].shape, type(got[name])) == (
            values[name].dtype,
            values[name].shape,
            type(values[name]),
        )
        assert got[name].requires_grad is values[name].requires_grad
    assert got["array"].tolist() == [0, 1, 2, 3, 4]
    assert got["strided"].tolist() == [0, 2, 4, 6, 8]
    assert got["text"] == values["text"]
    assert np.shares_memory(got["tensor"].numpy(), memory)
    assert got["column"].untyped_storage().nbytes() == 3 * 8  # and not all that it was a view of


def test_views_of_one_storage_stay_views_of_one():
    x = weft.zeros(4)
    (pair,) = DataLoader([(x, x.reshape(2, 2))], num_workers=1, batch_size=None)
    pair[0][3] = 5
    assert pair[1].tolist() == [[0, 0], [0, 5]]


@needs_proc
def test_many_batches_keep_no_file_open(nothing_left):
    before = len(os.listdir("/proc/self/fd"))
    batches = list(DataLoader(TensorDataset(weft.arange(300)), num_workers=1, batch_size=1))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert [batch[0].item() for batch in batches] == list(range(300))


def test_tensors_outlive_their_workers(nothing_left):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more than there are cores
        batches = list(DataLoader(Squares(), num_workers=2, batch_size=6))
    total = sum(batch["y"].sum() for batch in batches)
    assert total.item() == sum(i * i for i in range(12))


def add_one(queue, results):
    tensor, view = queue.get()
    tensor.add_(1)
    results.put((view.tolist(), view.is_shared()))
    queue.get()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_shared_memory_goes_to_other_processes(method):
    if method not in METHODS:
        pytest.skip("there is no fork here")
    context = multiprocessing.get_context(method)
    queue, results = context.Queue(), context.Queue()
    shared = weft.arange(4).share_memory_()
    process = context.Process(target=add_one, args=(queue, results))
    process.start()
    queue.put((shared, shared[1:3]))
    assert results.get(timeout=PATIENCE) == ([2, 3], True)
    assert shared.tolist() == [1, 2, 3, 4]
    queue.put(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_shared_datasets_are_not_copied(nothing_left):
    """A worker that is started anew sees what is written to shared memory later."""
    x = weft.zeros(4).share_memory_()

    class Order:
        def __iter__(self):
            yield 0
            x.add_(7)  # when the worker is there already
            yield 1

    loader = DataLoader(
        TensorDataset(x),
        sampler=Order(),
        num_workers=1,
        batch_size=None,
        prefetch_factor=1,
        multiprocessing_context="spawn",
    )
    assert [item.tolist() for (item,) in loader] == [0, 7]
