"""Open kernels by the function that writes them and the form it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ...compiler.open.kernels import depends_on, open_kernel
from ...runtime.cpu.open_kernel import OpenKernel
from ...te.loops import Kernel
from . import __path__ as _folders

__all__ = ["kernel", "open_kernel"]

depends_on(*_folders)


def kernel(write: Callable[..., Kernel], *form: Hashable) -> OpenKernel:
    """What `write(*form, target)` writes. The form is of texts, numbers and dtypes, and says all that is to be known
    beside the machine."""
    return open_kernel((write.__name__, *form), lambda target: write(*form, target))
