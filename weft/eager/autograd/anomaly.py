"""Anomaly mode: backward passes check for NaN and tell which forward call a node came from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidType, RunError


class _Anomaly:
    enabled = False
    check_nan = True


anomaly = _Anomaly()


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Turns anomaly mode on or off for backward passes that start from now on."""
    for position, (name, value) in enumerate((("enabled", enabled), ("check_nan", check_nan)), 1):
        if not isinstance(value, bool):
            raise InvalidType(
                f"set_anomaly_enabled(): argument {name!r} (position {position}) must be bool, "
                f"not {type(value).__name__}"
            )
    anomaly.enabled, anomaly.check_nan = enabled, check_nan


def is_anomaly_enabled() -> bool:
    """Whether backward passes check for NaN."""
    return anomaly.enabled


def remember_forward(node: Any) -> None:
    """Keeps the stack of the forward call with its node."""
    import traceback  # for this mode alone

    node.metadata["traceback_"] = traceback.format_stack()[:-3]


def tell_forward(node: Any) -> None:
    """Warns with the stack of the forward call."""
    lines = node.metadata.get("traceback_")
    if lines:
        told = "".join(lines)
        warnings.warn(
            f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{told}", stacklevel=2
        )


def check_nan(node: Any, grads: Sequence[Any]) -> None:
    for index, grad in enumerate(grads):
        if grad is None or grad._array.dtype.kind not in "fcV":
            continue
        if np.isnan(grad._array).any():
            tell_forward(node)
            raise RunError(f"Function {node.name()!r} returned nan values in its {index}th output.")


class set_detect_anomaly:
    """Turns anomaly mode on or off, at once; as a context manager it is set back at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = anomaly.enabled, anomaly.check_nan
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        set_anomaly_enabled(*self._before)


class detect_anomaly(set_detect_anomaly):
    """Backward passes inside check for NaN, and tell the forward call of a node that fails."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
