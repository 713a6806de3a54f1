"""Switches that PyTorch users set for a process. Results of weft repeat bit for bit and matrix
products keep the precision of their dtype, whatever is asked for: what is set can be read again."""

from __future__ import annotations

import warnings
from typing import Any

from ...base.errors import InvalidType, RunError
from ..tensor.device import CPU, device, require_cpu

PRECISIONS = ("highest", "high", "medium")
DEBUG_MODES = ("default", "warn", "error")


class _Settings:
    """What was asked for last."""

    device: device = CPU
    precision = "highest"
    deterministic = False
    warn_only = False
    warn_always = False


_settings = _Settings()


def get_default_device() -> device:
    """The device that new tensors are on."""
    return _settings.device


def set_default_device(device: Any) -> None:
    """Says on which device new tensors are, which can only be the processor; None for that.

    >>> set_default_device("cpu")
    >>> get_default_device()
    device(type='cpu')
    """
    _settings.device = require_cpu(device)


def get_float32_matmul_precision() -> str:
    """The precision of matrix products that was asked for."""
    return _settings.precision


def set_float32_matmul_precision(precision: str) -> None:
    """Allows matrix products of float32 to be less exact, of which no use is made."""
    if not isinstance(precision, str):
        raise RunError(f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}")
    if precision not in PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            "set_float32_matmul_precision call has no effect.",
            stacklevel=2,
        )
        return
    _settings.precision = precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for results that repeat bit for bit, which all do."""
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise InvalidType(
                f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(value).__name__}"
            )
    _settings.deterministic, _settings.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether results that repeat were asked for."""
    return _settings.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether a warning was asked for where results would not repeat."""
    return _settings.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a name: 0 default, 1 warn, 2 error."""
    if not isinstance(debug_mode, (int, str)):
        raise InvalidType(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in DEBUG_MODES:
            raise RunError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RunError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """0 default, 1 warn, 2 error."""
    if not _settings.deterministic:
        return 0
    return 1 if _settings.warn_only else 2


def set_warn_always(b: bool) -> None:
    """Whether a warning is given each time; when it is shown is up to Python's filters."""
    if not isinstance(b, bool):
        raise RunError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    _settings.warn_always = b


def is_warn_always_enabled() -> bool:
    """Whether warnings were asked for each time."""
    return _settings.warn_always


SETTINGS = {
    function.__name__: function
    for function in (
        are_deterministic_algorithms_enabled,
        get_default_device,
        get_deterministic_debug_mode,
        get_float32_matmul_precision,
        is_deterministic_algorithms_warn_only_enabled,
        is_warn_always_enabled,
        set_default_device,
        set_deterministic_debug_mode,
        set_float32_matmul_precision,
        set_warn_always,
        use_deterministic_algorithms,
    )
}
