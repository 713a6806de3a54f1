"""Programs of one kernel by the function that writes it and the form it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ...compiler.open.keys import depends_on
from ...compiler.open.programs import kernel_program
from ...runtime.cpu.open_program import OpenProgram
from ...te.loops import Kernel
from . import __path__ as _folders

__all__ = ["kernel", "kernel_program"]

depends_on(*_folders)


def kernel(write: Callable[..., Kernel], *form: Hashable) -> OpenProgram:
    """What `write(*form, target)` writes. The form is of texts, numbers and dtypes, and says all that is to be known
    beside the machine."""
    return kernel_program((write.__name__, *form), lambda target: write(*form, target))
