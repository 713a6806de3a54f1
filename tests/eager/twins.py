"""Runs one program with weft and with PyTorch: values, dtypes, shapes, or kinds of errors agree."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from oracles import oracle

import weft


def outcome(library: Any, program: Any) -> Any:
    """What a program gives, as plain values; or the class of the error it raises."""
    library.manual_seed(0)
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            return plain(program(library))
    except Exception as error:
        return type(error)


BUILTINS = (NotImplementedError, IndexError, RuntimeError, ValueError, TypeError)


def builtin_of(error: Exception) -> type[Exception]:
    """The builtin kind that errors of both libraries are of."""
    return next(kind for kind in BUILTINS if isinstance(error, kind))


def plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach()
        if str(value.dtype).endswith("bfloat16"):
            value = value.float()
        return np.array(value.numpy())
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, complex, str, type)):
        return value
    return str(value).replace("torch.", "weft.")


def agree(program: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The same values in both libraries."""
    expected, got = outcome(oracle("torch"), program), outcome(weft, program)
    assert not _is_error(expected), f"PyTorch raises {expected}"
    _compare(got, expected, rtol, atol)


def refuse(program: Any) -> None:
    """An error in both libraries, and ours is of the builtin kind that PyTorch's is."""
    expected, got = outcome(oracle("torch"), program), outcome(weft, program)
    assert _is_error(expected), f"PyTorch gives {expected!r}"
    kind = next(kind for kind in expected.__mro__ if kind.__module__ == "builtins")
    assert _is_error(got), f"{got!r} instead of {expected!r}"
    assert issubclass(got, kind), f"{got!r} instead of {expected!r}"


def agree_or_refuse(is_refused: bool, program: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    if is_refused:
        refuse(program)
    else:
        agree(program, rtol, atol)


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _compare(got: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert isinstance(got, list), f"{got!r} instead of {expected!r}"
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected):
            _compare(mine, theirs, rtol, atol)
    elif isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray), f"{got!r} instead of {expected!r}"
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
    else:
        assert got == expected, f"{got!r} instead of {expected!r}"
