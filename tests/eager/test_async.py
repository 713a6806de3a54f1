"""Futures, counters, threads and the floating-point switches of the processor."""

import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from bounds import PATIENCE
from oracles import oracle

from weft.base import config, counters
from weft.base.counters import AVG, SUM, AggregationType, LockingLogger, LoggerBase, NoopLogger
from weft.eager.autograd.modes import is_grad_enabled, no_grad
from weft.eager.torch_core import processor
from weft.eager.torch_core.future import Future, collect_all, fork, wait, wait_all
from weft.runtime.cpu.pool import thread_count, thread_pool


def test_a_future_is_completed_once():
    future = Future()
    assert not future.done()
    with pytest.raises(RuntimeError, match="not complete"):
        future.value()
    future.set_result(3)
    assert (future.done(), future.wait(), future.value()) == (True, 3, 3)
    for again in (lambda: future.set_result(4), lambda: future.set_exception(ValueError())):
        with pytest.raises(RuntimeError, match="Attempting to mark a completed Future as complete"):
            again()
    assert future.value() == 3


def test_exceptions_keep_their_type():
    future = Future()
    future.set_exception(ZeroDivisionError("x"))
    assert future.done()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match=r"^x$"):
            future.wait()
    with pytest.raises(ZeroDivisionError):
        wait(fork(lambda: 1 / 0))
    with pytest.raises(TypeError, match="not an Exception"):
        Future().set_exception(3)


def test_what_comes_after():
    future, seen = Future(), []
    later = future.then(lambda f: f.value() * 2).then(lambda f: f.value() + 1)
    future.add_done_callback(lambda f: seen.append(f.value()))
    assert not later.done()
    future.set_result(5)
    assert later.wait() == 11
    assert seen == [5]
    assert future.then(lambda f: f.value()).value() == 5
    with pytest.raises(ZeroDivisionError):
        future.then(lambda f: 1 / 0).wait()
    with pytest.warns(RuntimeWarning, match="a done callback raised"):
        future.add_done_callback(lambda f: 1 / 0)


def test_long_chains_of_futures():
    first = last = Future()
    for _ in range(20_000):
        last = last.then(lambda f: f.value() + 1)
    first.set_result(0)
    assert last.wait() == 20_000


def test_many_together():
    futures = [fork(pow, 2, n) for n in range(50)]
    assert wait_all(futures) == [2**n for n in range(50)]
    assert collect_all(futures).wait() == futures
    assert collect_all([]).wait() == []
    failed = Future()
    failed.set_exception(KeyError("k"))
    with pytest.raises(KeyError):
        collect_all([futures[0], failed]).wait()
    with pytest.raises(KeyError):
        wait_all([futures[0], failed])


def fibonacci(n):
    return n if n < 2 else wait(fork(fibonacci, n - 1)) + wait(fork(fibonacci, n - 2))


def spread(depth):
    if depth == 0:
        return 1
    parts = collect_all([fork(spread, depth - 1) for _ in range(3)]).then(
        lambda f: sum(part.value() for part in f.value())
    )
    return parts.wait()


def test_functions_that_fork_need_no_free_thread():
    assert wait(fork(fibonacci, 11)) == 89
    assert wait_all([fork(spread, 4) for _ in range(4)]) == [81] * 4


def test_forked_functions_run_on_other_threads_and_at_the_same_time():
    meet = threading.Barrier(2, timeout=PATIENCE)
    here = threading.get_ident()

    def both():
        meet.wait()
        return threading.get_ident()

    first, second = fork(both), fork(both)
    done = threading.Event()
    collect_all([first, second]).add_done_callback(lambda _: done.set())
    assert done.wait(PATIENCE)
    assert len({first.value(), second.value(), here}) == 3


def test_forked_functions_see_the_callers_modes():
    with no_grad(), config.override(verify=False):
        assert wait(fork(lambda: (is_grad_enabled(), config.get("verify")))) == (False, False)
    assert wait(fork(is_grad_enabled))


def test_wrong_arguments():
    with pytest.raises(TypeError):
        fork()
    for wrong in (3, None, "f"):
        with pytest.raises(TypeError, match="runs a function"):
            fork(wrong)
        with pytest.raises(TypeError, match="takes a Future"):
            wait(wrong)
    assert Future[int] is not None


def test_forking_the_process():
    assert wait(fork(int, "3")) == 3
    child = os.fork()
    if child == 0:
        os._exit(wait(fork(int, "7")))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_counters():
    logger = LockingLogger()
    assert isinstance(logger, LoggerBase)
    before = counters.set_logger(logger)
    try:
        assert isinstance(before, NoopLogger)
        for value in (4, 7):
            counters.add_stat_value("a", value)
        assert logger.get_counter_val("a") == 11
        logger.set_aggregation_type("a", AVG)
        assert logger.get_counter_val("a") == 5
        assert logger.get_counter_val("unknown") == 0
        workers = [fork(lambda: counters.add_stat_value("n", 1)) for _ in range(100)]
        wait_all(workers)
        assert logger.get_counter_val("n") == 100
    finally:
        assert counters.set_logger(before) is logger
    counters.add_stat_value("a", 1)
    assert logger.get_counter_val("a") == 5
    with pytest.raises(TypeError, match="No constructor defined"):
        LoggerBase()
    for wrong in (
        lambda: counters.set_logger(3),
        lambda: logger.set_aggregation_type("a", 1),
        lambda: counters.add_stat_value("b", "c"),
        lambda: logger.add_stat_value(1, 1),
    ):
        with pytest.raises(TypeError):
            wrong()
    first = counters.time_point()
    assert counters.time_point() >= first


def test_aggregation_types_are_those_of_pytorch():
    theirs = oracle("torch")._C
    for ours, other in ((SUM, theirs.SUM), (AVG, theirs.AVG)):
        assert (int(ours), ours.name, str(ours), repr(ours)) == (int(other), other.name, str(other), repr(other))
        assert ours != int(ours)
        assert pickle.loads(pickle.dumps(ours)) is copy.copy(ours) is ours
    assert list(AggregationType.__members__) == list(theirs.AggregationType.__members__)


@pytest.fixture
def threads():
    yield
    sys.modules["weft.runtime.cpu.pool"]._chosen = None


def test_threads(threads):
    assert processor.get_num_threads() == thread_count()
    processor.set_num_threads(3)
    assert processor.get_num_threads() == thread_count() == 3
    assert thread_count(2) == 2
    torch = oracle("torch")
    for wrong in (0, -1, "a", 1.5):
        with pytest.raises(RuntimeError) as theirs:
            torch.set_num_threads(wrong)
        with pytest.raises(RuntimeError) as ours:
            processor.set_num_threads(wrong)
        assert str(ours.value) == str(theirs.value)
    assert processor.get_num_threads() == 3


def test_denormals():
    tiny = np.array([1e-323])
    try:
        assert processor.set_flush_denormal(True)
        assert (tiny / 1).tobytes() == bytes(8)
    finally:
        assert processor.set_flush_denormal(False)
    assert (tiny / 1)[0] == 1e-323
    for wrong in (1, None, "yes"):
        with pytest.raises(RuntimeError, match="flush_denormal expects a bool, but got"):
            processor.set_flush_denormal(wrong)


ON_WORKERS = """
import ctypes
import numpy as np
from weft.eager.torch_core.processor import set_flush_denormal
from weft.runtime.cpu.jit import load_ir
from weft.runtime.cpu.pool import thread_pool

IR = '''
define void @divide(ptr %buffers, ptr %scalars, i64 %begin, i64 %end) nounwind {
  br label %loop
loop:
  %i = phi i64 [ %begin, %0 ], [ %next, %loop ]
  %at = getelementptr double, ptr %buffers, i64 %i
  %x = load volatile double, ptr %at
  %y = fmul double %x, 5.0e-1
  store double %y, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %out
out:
  ret void
}
'''
library = load_ir(IR, ["divide"])
kernel = library.address("divide")
pool = thread_pool()
pool.ensure(3)
for mode in (False, True, False):
    set_flush_denormal(mode)
    values = np.full(3_000_000, 1e-320)
    pool.run(kernel, values.ctypes.data, 0, values.size, 3)
    zeros = int((values.view(np.int64) == 0).sum())
    print(mode, zeros in ((values.size,) if mode else (0,)), pool.workers)
"""


def test_denormals_on_the_workers_of_the_pool():
    found = subprocess.run(
        [sys.executable, "-c", ON_WORKERS], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert found.stdout.split("\n")[:3] == ["False True 2", "True True 2", "False True 2"]
    assert thread_pool().workers >= 0


def test_features_tell_what_numpy_was_built_with():
    features = processor.features()
    assert set(features) == {f"has_{name}" for name in "mkl mkldnn openmp lapack cuda cudnn".split()}
    assert features["has_lapack"] == hasattr(np.linalg, "eigvals")
    assert features["has_cuda"] is os.path.exists("/dev/nvidiactl")
    assert issubclass(processor.FatalError, Exception)
