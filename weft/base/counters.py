"""Counters by name: what parts of weft count goes to a logger, which the user can set.

weft itself counts, under names that begin with `weft.`: `compiled_models_constructed`,
`compiled_model_invocations`, `program_cache_hit` and `program_cache_miss` (whether a model had code
for the shapes of a call), `compile_nanoseconds`, `kernel_cache_hit` and `kernel_cache_miss`,
`fusion_declined` (functions of tensors that are no single pass for the arguments of a call),
`native_declined.OPERATOR.REASON` (eager calls that native code left to numpy), `device_hosted.NAME` (what the host
computed for tensors of a device). Executors of programs count as PyTorch's
do, under names that begin with `pytorch_runtime.`: `graph_executors_constructed`, `graph_executor_invocations`,
`execution_plan_cache_hit` and `execution_plan_cache_miss`.
"""

from __future__ import annotations

import enum
import time
from typing import Any

from .errors import InvalidType
from .forks import held_lock


class AggregationType(enum.Enum):
    """What a counter gives: the sum of its values, or their mean."""

    SUM = 0
    AVG = 1

    def __int__(self) -> int:
        return self.value


SUM, AVG = AggregationType.SUM, AggregationType.AVG


class LoggerBase:
    """What takes the values; NoopLogger and LockingLogger are the two there are."""

    __module__ = "weft"

    def __new__(cls, *args: Any) -> Any:
        if cls is LoggerBase:
            raise InvalidType("weft.LoggerBase: No constructor defined!")
        return super().__new__(cls)

    def add_stat_value(self, name: str, value: int) -> None:
        raise NotImplementedError


class NoopLogger(LoggerBase):
    """Forgets every value."""

    __module__ = "weft"

    def add_stat_value(self, name: str, value: int) -> None:
        pass


class LockingLogger(LoggerBase):
    """Keeps sums and counts, for any number of threads.

    >>> logger = LockingLogger()
    >>> for value in (4, 7):
    ...     logger.add_stat_value("steps", value)
    >>> logger.set_aggregation_type("steps", AVG)
    >>> logger.get_counter_val("steps"), logger.get_counter_val("other")
    (5, 0)
    """

    __module__ = "weft"

    def __init__(self) -> None:
        self._lock = held_lock("table")
        self._counters: dict[str, tuple[int, int]] = {}  # sum and count
        self._kinds: dict[str, AggregationType] = {}

    def add_stat_value(self, name: str, value: int) -> None:
        """Counts a value."""
        _check(name, value)
        with self._lock:
            total, count = self._counters.get(name, (0, 0))
            self._counters[name] = (total + value, count + 1)

    def get_counter_val(self, name: str) -> int:
        """The sum of a counter's values, or their mean cut to a whole number."""
        if not isinstance(name, str):
            raise InvalidType(f"a counter is named by text, not by {name!r:.40}")
        with self._lock:
            total, count = self._counters.get(name, (0, 0))
            mean = self._kinds.get(name) is AVG and count > 0
        return int(abs(total) // count * (1 if total >= 0 else -1)) if mean else total

    def set_aggregation_type(self, name: str, kind: AggregationType) -> None:
        """Says whether a counter gives a sum or a mean."""
        if not isinstance(name, str):
            raise InvalidType(f"a counter is named by text, not by {name!r:.40}")
        if not isinstance(kind, AggregationType):
            raise InvalidType(f"expected SUM or AVG, not a {type(kind).__name__}")
        with self._lock:
            self._kinds[name] = kind


def _check(name: Any, value: Any) -> None:
    if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"a counter has a name and whole values, not {name!r:.40}: {value!r:.40}")


_logger: LoggerBase = NoopLogger()
counting = False  # whether the logger keeps values; what runs often looks here first


def get_logger() -> LoggerBase:
    """The logger that values go to."""
    return _logger


def set_logger(logger: LoggerBase) -> LoggerBase:
    """Makes a logger the one that values go to, and gives the one before it.

    >>> before = set_logger(LockingLogger())
    >>> add_stat_value("steps", 3)
    >>> set_logger(before).get_counter_val("steps")
    3
    """
    global _logger, counting
    if not isinstance(logger, LoggerBase):
        raise InvalidType(f"expected a logger, not {logger!r:.60}", hint="use weft.LockingLogger()")
    before, _logger = _logger, logger
    counting = not isinstance(logger, NoopLogger)
    return before


def add_stat_value(name: str, value: int) -> None:
    """Counts a value, if the logger that is set keeps it."""
    _check(name, value)
    _logger.add_stat_value(name, value)


def time_point() -> int:
    """Nanoseconds of a clock that only goes forward."""
    return time.perf_counter_ns()
