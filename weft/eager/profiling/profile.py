"""`profile`: a block whose calls are recorded, all of them or those of the steps that a schedule names."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from ...base.errors import InvalidValue
from .events import EventList, FunctionEventAvg
from .recorder import Recorder, record_function


class ProfilerActivity(Enum):
    """What is recorded: weft has the processor's."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """What is done in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """What can be recorded."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Says for each step what is done: after `skip_first` steps, cycles of `wait` steps without, `warmup` to be thrown
    away and `active` that are recorded; `repeat` cycles, or no end. `skip_first_wait` leaves out the first wait.

    >>> plan = schedule(wait=1, warmup=0, active=2, repeat=1)
    >>> [plan(step).name for step in range(4)]
    ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise InvalidValue("Invalid profiler schedule arguments", why="there is no active step, or a negative count")
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if skip_first_wait:
            step += wait
        if step < 0 or (repeat and step // length >= repeat):
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A function for `on_trace_ready` that writes each trace to a file of its own in a folder."""

    def write(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


class profile:
    """Records calls of functions and steps of backward passes within a block.

    >>> import weft
    >>> with profile(record_shapes=True) as prof:
    ...     product = weft.ones(2, 2) @ weft.ones(2, 2)
    >>> [event.key for event in prof.key_averages()]
    ['ones', 'matmul']

    With a `schedule`, `step()` ends a step, and `on_trace_ready` is called with the profile after each cycle.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        asked = {"profile_memory": profile_memory, "with_stack": with_stack, "with_flops": with_flops}
        missing = [name for name, value in {**asked, "with_modules": with_modules}.items() if value]
        if missing:
            warnings.warn(f"weft records times and shapes; without effect: {', '.join(missing)}", stacklevel=2)
        self.schedule = schedule
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self._planned(0)
        self._recorder: Recorder | None = None
        self._kept: list[Any] = []
        self._step: record_function | None = None

    def _planned(self, step: int) -> ProfilerAction:
        return ProfilerAction.RECORD if self.schedule is None else self.schedule(step)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins with the first step."""
        self._begin_step()

    def stop(self) -> None:
        """Ends the last step; what was recorded is ready."""
        recorded = self.current_action in _RECORDING
        self._end_step()
        self._finish(recorded)

    def step(self) -> None:
        """Ends a step and begins the next one."""
        self._end_step()
        self.step_num += 1
        before, self.current_action = self.current_action, self._planned(self.step_num)
        if before is ProfilerAction.RECORD_AND_SAVE or (before in _RECORDING and self.current_action not in _RECORDING):
            self._finish(True)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.current_action in _RECORDING and self._recorder is None:
            self._recorder = Recorder(self.record_shapes)
            self._recorder.start()
        if self.schedule is not None and self._recorder is not None:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__()
            self._step = None

    def _finish(self, recorded: bool) -> None:
        if self._recorder is not None:
            self._recorder.stop()
            self._kept = [*(self._kept if self.acc_events else []), *self._recorder.events]
            self._recorder = None
        if recorded and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def events(self) -> EventList:
        """What was recorded, in the order in which it began."""
        if self._recorder is not None:
            raise AssertionError("the events of a profile are there when it has stopped")
        return EventList(self._kept)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums of what has the same name."""
        return self.events().key_averages(group_by_input_shape)

    def export_chrome_trace(self, path: Any) -> None:
        """Writes what was recorded in Chrome's format of traces."""
        self.events().export_chrome_trace(path)


class PlainProfile:
    """`autograd.profiler.profile`: records a block, without steps."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cpu: bool = True,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
    ) -> None:
        self.enabled = enabled
        self._profile = profile(
            record_shapes=record_shapes,
            with_flops=with_flops,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_modules=with_modules,
        )

    def __enter__(self) -> PlainProfile:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.enabled:
            self._profile.stop()

    @property
    def function_events(self) -> EventList:
        """What was recorded."""
        return self._profile.events()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all together, in microseconds."""
        return self.function_events.self_cpu_time_total

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums of what has the same name."""
        return self._profile.key_averages(group_by_input_shape)

    def total_average(self) -> FunctionEventAvg:
        """The sum of all."""
        return self.function_events.total_average()

    def table(self, **options: Any) -> str:
        """A table with a row for each event."""
        return self.function_events.table(**options)

    def export_chrome_trace(self, path: Any) -> None:
        """Writes what was recorded in Chrome's format of traces."""
        self._profile.export_chrome_trace(path)

    def __str__(self) -> str:
        return self.table()
