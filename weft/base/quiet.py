"""numpy without its floating-point warnings: overflow and the like have results here, as they have
in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

try:  # entering numpy's own context manager costs more than adding two small arrays
    from numpy._core.umath import _extobj_contextvar, _make_extobj
except ImportError:

    def quietly(function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, without warnings."""
        with np.errstate(all="ignore"):
            return function(*args)

else:
    _SILENT = _make_extobj(all="ignore")

    def quietly(function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)`, without warnings."""
        token = _extobj_contextvar.set(_SILENT)
        try:
            return function(*args)
        finally:
            _extobj_contextvar.reset(token)
