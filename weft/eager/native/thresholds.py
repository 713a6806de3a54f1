"""From which sizes on native code pays on this kind of machine, where no operator's column `native_from` says so.
Results do not depend on these numbers nor on those, only times do.

Each was set by hand, where the call is faster natively than by numpy on two cores, or higher: a new kind of call waits
until its kernel is compiled. `python benchmarks/thresholds.py` measures where the two times cross on the machine at
hand, on one thread; arithmetic on elements pays with the second.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """In elements of the largest array, and the call that was measured."""

    arithmetic: int = 1 << 17  # x + y
    functions: int = 1 << 15  # exp(x)
    copies: int = 1 << 13  # a matrix, transposed
    products: int = (1 << 18) + 1  # multiplications: from there on numpy's library starts threads
    vector_products: int = 9216  # the same of a matrix and a vector
    reductions: int = 1 << 9  # x.sum()
    drawn: int = 1 << 12  # rand(n)
    fused: int = 1 << 8  # the gradient of gelu, all steps in one go
    written: int = 1 << 14  # x.mul_(y), y.add_(x, alpha=0.1)


FROM = Thresholds()
