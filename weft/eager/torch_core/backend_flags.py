"""What scripts set and ask about the libraries under PyTorch. weft has none of those libraries: what is set can be read
again and changes nothing, and what is asked about is answered for weft itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...base.cpu_target import CpuTarget
from .processor import features
from .settings import get_float32_matmul_precision, set_float32_matmul_precision

_CAPABILITIES = {"avx512": "AVX512", "avx2": "AVX2"}


def get_cpu_capability() -> str:
    """The widest vectors that weft's code uses on this machine, in PyTorch's words.

    >>> get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT")
    True
    """
    return _CAPABILITIES.get(CpuTarget.create().isa, "DEFAULT")


def never() -> bool:
    """False: weft has no such library."""
    return False


def has(flag: str) -> Callable[[], bool]:
    """A question about what numpy, on which weft's references run, was built with."""

    def is_available() -> bool:
        """Whether numpy was built with it."""
        return features()[flag]

    return is_available


def no_version() -> None:
    """None: there is no such library."""


def flags_of(module: str, **defaults: Any) -> Callable[..., AbstractContextManager[None]]:
    """A context manager that sets some names of a module for a block."""

    @contextmanager
    def flags(**values: Any) -> Iterator[None]:
        """Sets switches for a block; those that are not named get their defaults."""
        unknown = sorted(set(values) - set(defaults))
        if unknown:
            raise TypeError(f"flags() got an unexpected keyword argument {unknown[0]!r}")
        space = vars(sys.modules[module])
        before = {name: space[name] for name in defaults}
        space.update({**defaults, **values})
        try:
            yield
        finally:
            space.update(before)

    return flags


class Matmul:
    """Switches of matrix products; `allow_tf32` is another way to say `set_float32_matmul_precision`."""

    __slots__ = (
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
        "allow_fp16_reduced_precision_reduction",
        "fp32_precision",
    )

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False
        self.fp32_precision = "none"

    @property
    def allow_tf32(self) -> bool:
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        set_float32_matmul_precision("high" if value else "highest")


class _Kinds:
    """The ways of attention that may be used; the results of weft's one way do not depend on it."""

    def __init__(self) -> None:
        self.allowed = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn"), True)


_kinds = _Kinds()


def _enabling(kind: str) -> Callable[[bool], None]:
    def enable(enabled: bool) -> None:
        """Whether this way of attention may be used."""
        _kinds.allowed[kind] = bool(enabled)

    return enable


def _asking(kind: str) -> Callable[[], bool]:
    def enabled() -> bool:
        """Whether this way of attention may be used."""
        return _kinds.allowed[kind]

    return enabled


ATTENTION: dict[str, Callable[..., Any]] = {
    **{f"enable_{kind}_sdp": _enabling(kind) for kind in _kinds.allowed},
    **{f"{kind}_sdp_enabled": _asking(kind) for kind in _kinds.allowed},
}


class _FastPath:
    enabled = True


def get_fastpath_enabled() -> bool:
    """Whether transformer layers may use one fused function at inference."""
    return _FastPath.enabled


def set_fastpath_enabled(value: bool) -> None:
    """Says whether transformer layers may use one fused function at inference."""
    _FastPath.enabled = bool(value)
