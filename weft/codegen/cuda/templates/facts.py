"""What instructions of a GPU depend on."""

from __future__ import annotations


class GpuFacts:
    """Every GPU of tensor cores multiplies and adds in one step, and converts 16-bit floats."""

    has_fma = True
    has_half_floats = True

    def has(self, feature: str) -> bool:
        return False
