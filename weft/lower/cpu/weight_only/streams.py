"""What it takes to read weights once from memory, where few rows use them."""

from __future__ import annotations

from typing import Any

from ....base.cpu_target import CpuTarget

SHARED = 2  # the rate of one core is the best there is; other cores and programs use the same memory


def streamed_work(size: Any, target: CpuTarget) -> Any:
    """Operations in whose time a core reads so many bytes from memory: what decides whether threads share them."""
    each = SHARED * 1e9 / target.facts.far_rate / target.nanoseconds_per_operation
    return size * round(each * 64) // 64
