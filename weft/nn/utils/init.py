"""Modules whose parameters are not set when they are made."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ...base.errors import RunError
from ..init import unfilled
from ..modules.module import Module

__all__ = ["skip_init"]

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """A module made without filling its parameters: for one whose state is loaded right after. The functions of
    `nn.init` do nothing meanwhile, and draw no numbers.

    >>> import weft
    >>> skip_init(weft.nn.Linear, 3, 2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RunError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RunError("Module must support a 'device' arg to skip initialization")
    with unfilled():
        return module_cls(*args, **kwargs)
