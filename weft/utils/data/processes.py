"""The processes of a loader, seen from their parent: started, asked, listened to, watched, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from multiprocessing import connection as connections
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from ...base.errors import RunError
from .channel import receive
from .worker import Job, Task, run_worker

GRACE = 5.0  # seconds that a worker has to finish what it is at, before it is told to by a signal
LOOK = 1.0  # seconds after which the processes themselves are looked at, besides what they send


class Processes:
    """Workers, each with a connection of its own: one that dies, whenever it does, leaves the others' alone."""

    def __init__(self, context: BaseContext, job: Job) -> None:
        self._owner, self._all, self._connections = os.getpid(), list[Any](), list[Connection]()
        # A forked worker would hold its siblings' connections open, and its own from the other side.
        util.register_after_fork(self, Processes._forget)
        self.stop_when_dropped = weakref.finalize(self, _stop, self._owner, self._all, self._connections)
        try:
            for number in range(job.workers):
                self._start(context, number, job)
        except BaseException:
            self.stop()
            raise

    def _start(self, context: BaseContext, number: int, job: Job) -> None:
        ours, theirs = context.Pipe()
        self._connections.append(ours)
        with theirs:
            process = context.Process(target=run_worker, args=(theirs, number, job), daemon=True)  # type: ignore[attr-defined]
            with _interrupts_held_back(context):
                process.start()
        self._all.append(process)

    def _forget(self) -> None:
        for connection in self._connections:
            connection.close()

    def __len__(self) -> int:
        """How many there are: none when they have been ended."""
        return len(self._all)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._all]

    def ask(self, number: int, task: Task) -> None:
        """Gives a worker a task."""
        try:
            self._connections[number].send(task)
        except OSError:
            raise self._dead() from None

    def answers(self, timeout: float) -> list[tuple[int, Any]]:
        """What has arrived, with the number of the worker that it is from; waits for one at least, for ever if the
        timeout is 0."""
        deadline = time.monotonic() + timeout if timeout else float("inf")
        while self._all:
            left = max(deadline - time.monotonic(), 0.0)
            watched = [*self._connections, *(process.sentinel for process in self._all)]
            ready = connections.wait(watched, min(left, LOOK))
            found = [number for number, connection in enumerate(self._connections) if connection in ready]
            if found:
                return [(number, self._receive(number)) for number in found]
            if any(not process.is_alive() for process in self._all):
                raise self._dead()
            if not left:
                raise RunError(f"DataLoader timed out after {timeout:g} seconds", hint="give a longer timeout")
        raise RunError("the workers of this DataLoader have been ended", hint="begin another iteration")

    def _receive(self, number: int) -> Any:
        try:
            return receive(self._connections[number])
        except (EOFError, OSError):
            raise self._dead() from None

    def _dead(self) -> RunError:
        """What to say of workers that ended by themselves; the others are ended, too."""
        deadline = time.monotonic() + GRACE
        while all([process.is_alive() for process in self._all]) and time.monotonic() < deadline:
            time.sleep(0.01)  # its files are closed a while before it has an exit code
        dead = [process for process in self._all if not process.is_alive()]
        why = ", ".join(_ending(process.exitcode) for process in dead) or "its connection is closed"
        pids = ", ".join(str(process.pid) for process in dead or self._all)
        self.stop()
        return RunError(
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly",
            why=why,
            hint="num_workers=0 shows what goes wrong in this process",
        )

    def stop(self) -> None:
        """Ends all workers and waits for them."""
        self.stop_when_dropped()


@contextlib.contextmanager
def _interrupts_held_back(context: BaseContext) -> Iterator[None]:
    """A process that is started inside begins with Ctrl-C blocked, so that none ends it before it is a worker that
    ignores it; one that this process gets meanwhile comes when it leaves."""
    if sys.platform == "win32":
        yield
        return
    # What Python starts once for all others must not inherit this, nor end it: the tracker unblocks what it blocks.
    resource_tracker.ensure_running()
    if context.get_start_method() == "forkserver":
        forkserver.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = next((known.name for known in signal.Signals if known == -code), str(-code))
        extra = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"it was killed by signal {name}{extra}"
    return f"it ended with exit code {code}"


def _hang_up(connection: Connection) -> None:
    """Closes a connection for all who hold it: another child of this process may."""
    if hasattr(socket, "AF_UNIX") and not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as end, contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    connection.close()


def _stop(owner: int, processes: list[Any], connections_: list[Connection]) -> None:
    """Closing the connections tells workers to end; those that do not are made to."""
    if os.getpid() != owner:  # a child that was forked from the process whose workers they are
        return
    for connection in connections_:
        _hang_up(connection)
    deadline = time.monotonic() + GRACE
    try:
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0.0))
    finally:
        for process in processes:
            for end in (process.terminate, process.kill):
                if process.is_alive():
                    end()
                    process.join(1.0)
        for process in processes:
            if not process.is_alive():
                process.close()
        processes.clear()
        connections_.clear()
