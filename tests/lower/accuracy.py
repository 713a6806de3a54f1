"""How exact kernels must be, and the instruction sets they are tried on."""

import numpy as np

from weft.base.cpu_target import host
from weft.base.errors import Unsupported

CONTRACT = 5e-5  # of the output's largest magnitude


def targets():
    """This machine, with each instruction set that it has."""
    found = []
    for isa in ("sse", "avx2", "avx512"):
        try:
            found.append(host().with_isa(isa))
        except Unsupported:
            continue
    return found or [host()]


def agrees(found, expected):
    """Whether a result is within the contract of a float64 computation."""
    assert found.shape == expected.shape
    scale = max(float(np.abs(expected).max(initial=0)), 1e-30)
    assert float(np.abs(found - expected).max(initial=0)) <= CONTRACT * scale
