"""Which kernel computes `scaled_dot_product_attention`: weft has one way, and takes any wish for another."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator

from ..eager.functions.nn.attention import Unfit

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Kernels that PyTorch may be told to use."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    __str__ = enum.Enum.__str__


@contextlib.contextmanager
def sdpa_kernel(backends: SDPBackend | Iterable[SDPBackend], set_priority: bool = False) -> Iterator[None]:
    """Says which kernels attention may use in a block or in a function; the one that weft has computes all of it.

    >>> import weft
    >>> x = weft.ones(1, 2, 3, 4)
    >>> with weft.nn.attention.sdpa_kernel(weft.nn.attention.SDPBackend.MATH):
    ...     weft.nn.functional.scaled_dot_product_attention(x, x, x).shape
    weft.Size([1, 2, 3, 4])
    """
    wanted = [backends] if isinstance(backends, SDPBackend) else backends
    if not isinstance(wanted, Iterable) or not all(isinstance(backend, SDPBackend) for backend in wanted):
        raise Unfit(f"backends must be an SDPBackend or a list of them, got {backends!r}")
    yield
