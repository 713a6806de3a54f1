"""From which sizes on native code pays on this kind of machine: what `choice.py` and the families of kernels compare
with. Results do not depend on these numbers, only times do.

Each was set by hand, where the call in its row is faster natively than by numpy on two cores, or higher: a new kind of
call waits until its kernel is compiled. `python benchmarks/thresholds.py` measures where the two times cross on the
machine at hand, on one thread; arithmetic on elements pays with the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field


def _row(least: int, unit: str, call: str) -> int:
    row: int = field(default=least, metadata={"unit": unit, "call": call})
    return row


_ELEMENTS = "elements of the largest array"


@dataclass(frozen=True)
class Thresholds:
    """`dataclasses.fields` tells the unit of each, and the call that was measured."""

    # Operators, by what their reference costs (`Op.reference_cost`).
    arithmetic: int = _row(1 << 17, _ELEMENTS, "x + y")
    functions: int = _row(1 << 15, _ELEMENTS, "exp(x)")
    passes: int = _row(1 << 8, _ELEMENTS, "gelu(x)")
    branches: int = _row(1 << 11, _ELEMENTS, "where(c, x, y), c random")
    windows: int = _row(1 << 11, _ELEMENTS, "lrn(x, size=5)")
    gathers: int = _row(1 << 12, _ELEMENTS, "grid_sample(x, grid)")
    steps: int = _row(1, _ELEMENTS, "ctc_loss, rnn, whose references are loops in Python")

    # Kernels of their own.
    attention: int = _row(1 << 12, _ELEMENTS, "softmax(q k') v of 8 heads")
    attention_grad: int = _row(1 << 13, _ELEMENTS, "the gradient of that")
    convolution: int = _row(256, _ELEMENTS, "conv2d of 3 x 3")
    copies: int = _row(1 << 13, _ELEMENTS, "a matrix, transposed")
    triangles: int = _row(1 << 9, _ELEMENTS, "tril(x)")
    factors: int = _row(1 << 6, _ELEMENTS, "lu_factor(x), inverse(x)")
    solve: int = _row(1, _ELEMENTS, "solve(a, b)")
    indexed: int = _row(1 << 9, "elements of indices or data", "gather(x, 1, i)")
    matrices: int = _row(1 << 10, _ELEMENTS, "below it no product is a large one")
    products: int = _row((1 << 18) + 1, "multiplications", "from there on numpy's library starts threads")
    vector_products: int = _row(9216, "multiplications", "the same of a matrix and a vector")
    distances: int = _row(1 << 8, _ELEMENTS, "distances(a, b)")
    rows: int = _row(1 << 6, _ELEMENTS, "softmax(x, -1), layer_norm(x)")
    other_axes: int = _row(1 << 12, _ELEMENTS, "softmax(x, 0)")
    l2_normalize: int = _row(1 << 13, _ELEMENTS, "l2_normalize(x)")
    pools: int = _row(1 << 6, _ELEMENTS, "max_pool2d of 2 x 2")
    resize_grad: int = _row(1 << 12, _ELEMENTS, "the gradient of upsampling by 2")
    reductions: int = _row(1 << 9, _ELEMENTS, "x.sum()")
    totals: int = _row(1 << 10, _ELEMENTS, "variance(x), norm(x), logsumexp(x)")
    positions: int = _row(1 << 14, _ELEMENTS, "argmax(x, 0)")
    masks: int = _row(1 << 15, _ELEMENTS, "the places of the largest, axis 0")
    scans: int = _row(1 << 10, _ELEMENTS, "cumsum(x, -1)")
    drawn: int = _row(1 << 12, "random words", "rand(n)")

    # What takes no operator of its own.
    fused: int = _row(1 << 8, _ELEMENTS, "the gradient of gelu, all steps in one go")
    written: int = _row(1 << 14, _ELEMENTS, "x.mul_(y), y.add_(x, alpha=0.1)")


FROM = Thresholds()
