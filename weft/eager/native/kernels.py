"""Programs of one step by the function that writes them and the form it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ...compiler.open.keys import depends_on
from ...compiler.open.programs import one_step
from ...runtime.cpu.one_step import OneStep
from ...te.loops import Kernel
from . import __path__ as _folders

__all__ = ["kernel", "one_step"]

depends_on(*_folders)


def kernel(write: Callable[..., Kernel], *form: Hashable) -> OneStep:
    """What `write(*form, target)` writes. The form is of texts, numbers and dtypes, and says all that is to be known
    beside the machine."""
    return one_step((write.__name__, *form), lambda target: write(*form, target))
