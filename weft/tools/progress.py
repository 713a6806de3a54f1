"""A bar on standard error that shows what is going on and how long it will take: only on a terminal, and only once it
has taken a second."""

from __future__ import annotations

import sys
import time
from typing import Any

BAR_AFTER = 1.0  # seconds


class Stages:
    """Stages of a task by name, each with a count of what is done. `progress` is what `weft.compile` takes."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._name = ""
        self._start = time.monotonic()

    def begin(self, name: str) -> None:
        """The next stage, of which nothing is counted yet."""
        self._name = name
        self._show(0, None)

    def progress(self, done: int, total: int) -> None:
        """So much of the stage is done."""
        self._show(done, total)

    def _show(self, done: int, total: int | None) -> None:
        if self._bar is None:
            if time.monotonic() - self._start < BAR_AFTER or not sys.stderr.isatty():
                return
            self._begin_bar()
        self._bar.update(self._task, description=self._name, completed=done, total=total)

    def _begin_bar(self) -> None:
        from rich.console import Console  # takes longer to load than most commands take
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._bar.start()

    def __enter__(self) -> Stages:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()
