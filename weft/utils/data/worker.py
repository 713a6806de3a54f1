"""What a process does that loads batches: it gets numbered lists of indices, and sends the batch of each back."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ...eager.random.generator import manual_seed
from ...eager.torch_core.exception_wrapper import ExceptionWrapper
from ...eager.torch_core.processor import set_num_threads
from .channel import Parcel, prepared, send
from .dataset import IterableDataset
from .fetching import Fetch, fetcher

PATIENCE = 5.0  # seconds after which a worker without tasks looks whether its parent is alive


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info` tells: which of how many workers this process is, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class Task(NamedTuple):
    """Indices to load. Of tasks of an earlier epoch nobody wants the result any more."""

    epoch: int
    number: int
    indices: Any


class Ended:
    """Comes in place of a batch when a worker's samples have come to their end."""


class Job(NamedTuple):
    """What all workers of a loader do."""

    dataset: Any
    batched: bool
    collate: Callable[[Any], Any]
    drop_last: bool
    init: Callable[[int], Any] | None
    seed: int
    workers: int


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Which worker of a DataLoader this process is; None in all others.

    >>> get_worker_info() is None
    True
    """
    return _info


class _Inbox:
    """Tasks as they arrive. A thread takes them from the connection at once, so that the parent, whatever it sends,
    never waits for a worker that waits for it."""

    def __init__(self, connection: Connection) -> None:
        self.epoch = 0
        self._connection, self._tasks = connection, queue.SimpleQueue[Task | None]()
        self._parent = os.getppid()
        threading.Thread(target=self._listen, name="weft-tasks", daemon=True).start()

    def _listen(self) -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    task = self._connection.recv()
                    self.epoch = task.epoch
                    self._tasks.put(task)
        finally:
            self._tasks.put(None)

    def next(self) -> Task | None:
        """The next task that is still wanted; None when the parent has no more or is gone."""
        while True:
            try:
                task = self._tasks.get(timeout=PATIENCE)
            except queue.Empty:
                if os.getppid() != self._parent:  # another process may still hold its end of the connection
                    return None
                continue
            if task is None or task.epoch == self.epoch:
                return task


def run_worker(connection: Connection, number: int, job: Job) -> None:
    """The whole life of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends its workers
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # as it was started with it blocked
    set_num_threads(1)
    random.seed(job.seed + number)
    manual_seed(job.seed + number)
    entropy = [number, job.seed & 0xFFFFFFFF, job.seed >> 32, 0]  # as PyTorch's workers have it
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))  # noqa: NPY002  the stream that samples may draw from
    global _info
    _info = WorkerInfo(number, job.workers, job.seed + number, job.dataset)
    loading = _Loading(job, number)
    inbox = _Inbox(connection)
    while (task := inbox.next()) is not None:
        outcome = loading.outcome(task)
        parcel = _parcel(task, outcome, loading.where)
        del outcome
        try:
            send(connection, parcel)
        except OSError:  # the parent has gone, or needs no more
            return
        del parcel  # the memory is the parent's now


def _parcel(task: Task, outcome: Any, where: str) -> Parcel:
    """What a task came to, ready to be sent; of what cannot be sent, why."""
    try:
        return prepared((task.epoch, task.number, outcome))
    except Exception:
        failure = outcome if isinstance(outcome, ExceptionWrapper) else ExceptionWrapper(where=where)
        failure.exc_type = _known_elsewhere(failure.exc_type)
        return prepared((task.epoch, task.number, failure))


def _known_elsewhere(kind: type[Any]) -> type[Any]:
    """The first of a class and its bases that another process finds by its name."""
    found: type[Any] = next(b for b in kind.__mro__ if vars(sys.modules[b.__module__]).get(b.__qualname__) is b)
    return found


class _Loading:
    """Makes batches, and keeps what goes wrong."""

    def __init__(self, job: Job, number: int) -> None:
        self.job, self.where, self.epoch = job, f"in DataLoader worker process {number}", 0
        self.fetch: Fetch | None = None
        self.failure: ExceptionWrapper | None = None
        if job.init is not None:
            try:
                job.init(number)
            except Exception:
                self.failure = ExceptionWrapper(where=self.where)

    def outcome(self, task: Task) -> Any:
        """A batch, an exception, or `Ended`."""
        if self.failure is not None:
            return self.failure
        try:
            if self.fetch is None or task.epoch != self.epoch:
                self.epoch, job = task.epoch, self.job
                self.fetch = fetcher(job.dataset, job.batched, job.collate, job.drop_last)
            return self.fetch(task.indices)
        except Exception as error:
            if isinstance(error, StopIteration) and isinstance(self.job.dataset, IterableDataset):
                return Ended()
            return ExceptionWrapper(where=self.where)
