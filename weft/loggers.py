"""Counters by name and the loggers that keep them; what weft itself counts goes there, too.

logger = weft.LockingLogger()
weft.loggers.set_logger(logger)
model(x)
logger.get_counter_val("weft.compiled_model_invocations")
"""

from .base.counters import (
    AVG,
    SUM,
    AggregationType,
    LockingLogger,
    LoggerBase,
    NoopLogger,
    add_stat_value,
    get_logger,
    set_logger,
    time_point,
)

__all__ = [
    "AVG",
    "SUM",
    "AggregationType",
    "LockingLogger",
    "LoggerBase",
    "NoopLogger",
    "add_stat_value",
    "get_logger",
    "set_logger",
    "time_point",
]
