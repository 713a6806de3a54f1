"""A bar on standard error that shows what is going on and how long it will take: only on a terminal, and only once it
has taken a second."""

from __future__ import annotations

import sys
import threading
from typing import Any

from ..base.forks import renewed_lock

BAR_AFTER = 1.0  # seconds


class Stages:
    """Stages of a task by name, each with a count of what is done. `progress` is what `weft.compile` takes. Inside a
    `with` block they are shown."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._name, self._done, self._total = "", 0, 0  # without a total nothing is counted
        self._lock = renewed_lock()
        self._timer: threading.Timer | None = None

    def begin(self, name: str) -> None:
        """The next stage, of which nothing is counted yet."""
        with self._lock:
            self._name, self._done, self._total = name, 0, 0
            self._renew()

    def progress(self, done: int, total: int) -> None:
        """So much of the stage is done."""
        with self._lock:
            is_new = total != self._total
            self._done, self._total = done, total
            if is_new:
                self._renew()
            elif self._bar is not None:
                self._bar.update(self._bar.task_ids[0], completed=done, count=f"{done}/{total}")

    def _renew(self) -> None:
        """A line for the stage as it is now: what a bar knows of speed is of one stage."""
        if self._bar is None:
            return
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        count = f"{self._done}/{self._total}" if self._total else ""
        self._bar.add_task(self._name, total=self._total or None, completed=self._done, count=count)

    def _show(self) -> None:
        from rich.console import Console  # takes longer to load than most commands take
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description:8}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )
        with self._lock:
            if self._timer is not None:
                self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
                self._renew()
                self._bar.start()

    def __enter__(self) -> Stages:
        if sys.stderr.isatty():
            self._timer = threading.Timer(BAR_AFTER, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
