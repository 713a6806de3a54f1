"""Locks and forks: every lock of the package is one that a forked child can take, and children of a
process whose threads are at work do the same work."""

import ast
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path

import pytest
from bounds import PATIENCE

import weft
from weft.base import forks
from weft.base.forks import ORDER, held_lock, renewed_lock

ROOT = Path(weft.__file__).parent
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
forks_beside_threads = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

# What takes a lock, by the names in Python's library. cached_property does before Python 3.12.
LOCKS = set("Lock RLock Condition Event Semaphore BoundedSemaphore Barrier Queue".split())
LOCKS |= {"allocate_lock", "cached_property"}


LIBRARIES = set("threading _thread queue functools multiprocessing asyncio".split())


def locks_of(tree: ast.AST) -> list[ast.AST]:
    """Where a lock of its own is asked for: a Condition of a given lock has none."""
    given = {
        id(node.func)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "Condition" and node.args
    }
    return [node for node in ast.walk(tree) if _names_a_lock(node) and id(node) not in given]


def _names_a_lock(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in LIBRARIES and any(name.name in LOCKS for name in node.names)
    return isinstance(node, ast.Attribute) and (node.attr in LOCKS and getattr(node.value, "id", "") in LIBRARIES)


def test_all_locks_are_made_in_one_place():
    made = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if locks_of(ast.parse(path.read_text()))]
    assert set(made) == {"base/forks.py"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("threading.Lock()", True),
        ("@functools.cached_property\ndef f(): ...", True),
        ("Barrier()", False),
        ("from threading import Event", True),
        ("from functools import cached_property", True),
        ("threading.Condition()", True),
        ("threading.Condition(lock)", False),
        ("held_lock('table')", False),
    ],
)
def test_what_counts_as_making_a_lock(text, expected):
    assert bool(locks_of(ast.parse(text))) is expected


def test_locks_are_forgotten_with_their_objects():
    known = len(forks._held), len(forks._renewed)
    held, renewed = held_lock("table"), renewed_lock()
    seen = weakref.ref(held), weakref.ref(renewed)
    assert (len(forks._held), len(forks._renewed)) == (known[0] + 1, known[1] + 1)
    del held, renewed
    gc.collect()
    assert (seen[0](), seen[1]()) == (None, None)
    assert (len(forks._held), len(forks._renewed)) == known


def in_child(work) -> int:
    """The exit code of a forked child: 0 where `work` gave true."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Holding(threading.Thread):
    """Holds locks, in an order, for as long as the block runs or until it is told."""

    def __init__(self, *locks) -> None:
        super().__init__(daemon=True)
        self.locks, self.held, self.leave = locks, threading.Event(), threading.Event()

    def run(self) -> None:
        for lock in self.locks:
            lock.acquire()
        self.held.set()
        self.leave.wait(PATIENCE)
        for lock in reversed(self.locks):
            lock.release()

    def __enter__(self):
        self.start()
        assert self.held.wait(PATIENCE)
        return self

    def __exit__(self, *exc) -> None:
        self.leave.set()
        self.join(PATIENCE)


def is_free(lock) -> bool:
    return lock.acquire(blocking=False)


@needs_fork
@forks_beside_threads
def test_a_fork_does_not_wait_for_a_renewed_lock():
    lock = renewed_lock()
    with Holding(lock):
        assert in_child(lambda: is_free(lock)) == 0
        assert not is_free(lock)


@needs_fork
@forks_beside_threads
def test_a_lock_that_nobody_gives_back_is_free_in_the_child(monkeypatch):
    monkeypatch.setattr(forks, "PATIENCE", 0.1)
    lock = held_lock("table")
    with Holding(lock):
        assert in_child(lambda: is_free(lock)) == 0
        assert not is_free(lock)


@needs_fork
@forks_beside_threads
def test_a_fork_waits_until_what_a_lock_guards_is_whole():
    lock, guarded = held_lock("table"), []
    with Holding(lock) as holder:

        def complete() -> None:
            guarded.append("whole")
            holder.leave.set()

        threading.Timer(0.1, complete).start()
        assert in_child(lambda: guarded == ["whole"] and is_free(lock)) == 0


@needs_fork
@forks_beside_threads
@pytest.mark.parametrize("make", [renewed_lock, lambda: held_lock("table")])
def test_who_forks_keeps_its_own_locks(make):
    lock = make()

    def released() -> bool:
        lock.release()
        return not lock._is_owned()

    with lock:
        assert in_child(lambda: lock._is_owned() and released()) == 0
        assert lock._is_owned()


@needs_fork
@forks_beside_threads
def test_a_fork_takes_locks_in_the_order_that_threads_do():
    """A thread takes one lock of each place while the process forks again and again."""
    locks, stopped, turned = [held_lock(place) for place in ORDER], threading.Event(), threading.Event()

    def nest(left) -> None:
        if left:
            with left[0]:
                nest(left[1:])

    def work() -> None:
        while not stopped.is_set():
            nest(locks)
            turned.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert turned.wait(PATIENCE)
        for _ in range(20):
            assert in_child(lambda: nest(locks) is None) == 0
    finally:
        stopped.set()
        thread.join(PATIENCE)
    assert not thread.is_alive()


# A process whose threads do one kind of work forks; each child does the same, within its time.
STRESS = """
import faulthandler, io, itertools, os, sys, threading, warnings
warnings.simplefilter("ignore")
import numpy as np
import weft

numbers = itertools.count()
leaf = weft.ones(64, requires_grad=True)

def backward():
    (leaf * 2).sum().backward()

own = weft.Generator()

def draw():
    weft.randn(3000)
    weft.rand(3000, generator=own)

def compile():
    number = next(numbers) + 1000 * os.getpid()
    x = weft.symbol.Variable("x")
    shape = (4, 8 + number % 50)
    model = weft.compile(weft.symbol.relu(x * float(number)) + 1.0, shape={"x": shape})
    assert (model(np.ones(shape, np.float32))[0] == np.float32(number) + 1).all()

opened = weft.compile(weft.symbol.relu(weft.symbol.Variable("x")), shape={"x": (None, 4)})

def specialise():
    rows = 1 + next(numbers) % 300
    assert opened(np.ones((rows, 4), np.float32))[0].shape == (rows, 4)

def futures():
    ones = [weft._C.fork(lambda: weft.ones(3) + 1) for _ in range(4)]
    assert all((f.wait() == 2).all() for f in ones)

def archive():
    file = io.BytesIO()
    weft.save({"a": weft.ones(5)}, file)
    file.seek(0)
    assert weft.load(file)["a"].sum() == 5

def kernels():
    number = next(numbers) + os.getpid() % 1000
    a = weft.ones(2 + number % 3, 3 + number % 5, 4, dtype=(weft.float32, weft.float64)[number % 2])
    a.softmax(number % 3).cumsum(0).matmul(a.transpose(1, 2)).sum(0)

work = {f.__name__: f for f in
        (backward, draw, compile, specialise, futures, archive, kernels)}[sys.argv[1]]

def again():
    while True:
        work()

work()
for _ in range(3):
    threading.Thread(target=again, daemon=True).start()
for turn in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(300, exit=True)
        code = 1
        try:
            work()
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        print(f"child {turn} ended with {code}", flush=True)
        os._exit(1)
os._exit(0)
"""


def passes(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


KINDS = "backward draw compile specialise futures archive kernels".split()


@needs_fork
@pytest.mark.parametrize("kind", KINDS)
def test_children_of_a_process_at_work(kind):
    passes(STRESS, kind, "8")


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_children_of_a_process_at_work(kind):
    passes(STRESS, kind, "60")


# Each turn is a process of its own, which forks at another moment of a thread's first import.
IMPORT = """
import faulthandler, importlib, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
import weft

def use():
    if sys.argv[1] == "lazily":
        assert weft.ones(3).sum() == 3
        assert weft.symbol.Variable("x").list_input_names() == ["x"]
    else:
        importlib.import_module("weft.eager.torch_core.public_names")

thread = threading.Thread(target=use, daemon=True)
thread.start()
time.sleep(float(sys.argv[2]))
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(300, exit=True)
    code = 1
    try:
        use()
        code = 0
    finally:
        os._exit(code)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
thread.join()
sys.exit(code)
"""


@needs_fork
@pytest.mark.parametrize("way", ["lazily", "by name"])
@pytest.mark.parametrize("moment", [0.001, 0.05, 0.2])
def test_a_child_forked_while_a_thread_imports(way, moment):
    passes(IMPORT, way, str(moment))


FUTURE = """
import os, threading, time
import weft
begun, leave = threading.Event(), threading.Event()

def long():
    begun.set()
    leave.wait()
    return 7

future = weft._C.fork(long)
begun.wait()
child = os.fork()
if child == 0:
    code = 1
    try:
        future.wait()
    except RuntimeError as error:
        code = 0 if "will not end in this process" in str(error) else 2
    finally:
        os._exit(code)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
leave.set()
assert future.wait() == 7
os._exit(code)
"""


@needs_fork
def test_a_function_that_ran_in_the_parent_does_not_end_in_the_child():
    passes(FUTURE)
