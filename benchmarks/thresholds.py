"""From how many elements on native code is faster than numpy: measures what operators say by `native_from`, and rows of
weft/eager/native/thresholds.py.

    python benchmarks/thresholds.py [row ...]

For every row: its threshold, and the least power of two from which on the native call of an operator took less time
on one thread than the reference, both the shortest of many.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import numpy as np

import weft
from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import kernel_of
from weft.eager.native.calls import Declined
from weft.eager.native.thresholds import FROM

Array = np.ndarray[Any, Any]
Make = Callable[[int], list[Array]]
LARGEST = 1 << 17
SMALLEST = 1 << 4
LRN = {"size": 5, "axis": 1, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
POOL = {"pool_size": (2, 2), "strides": (2, 2)}
CONV = {"channels": 4, "kernel_size": (3, 3), "padding": (1, 1), "use_bias": False}
SPEECH = {"mask": "none"}


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def square(n: int, count: int = 1) -> list[Array]:
    side = max(isqrt(n), 2)
    return [normal(side, side) for _ in range(count)]


def image(n: int) -> Array:
    side = max(isqrt(n // 4), 4)
    return normal(1, 4, side, side)


def heads(n: int) -> list[Array]:
    return [normal(8, max(n // 256, 1), 32) for _ in range(3)]


def chosen(n: int) -> list[Array]:
    (x,) = square(n)
    return [np.random.default_rng(1).random(x.shape) < 0.5, x, x.T.copy()]


def indexed(n: int) -> list[Array]:
    (x,) = square(n)
    return [x, np.random.default_rng(1).integers(0, len(x), x.shape)]


# row -> (operator, attributes, arrays of so many elements in the largest)
CALLS: dict[str, tuple[str, dict[str, Any], Make]] = {
    "arithmetic": ("broadcast_add", {}, lambda n: square(n, 2)),
    "functions": ("exp", {}, square),
    "passes": ("gelu", {}, square),
    "branches": ("broadcast_where", {}, chosen),
    "windows": ("lrn", LRN, lambda n: [image(n)]),
    "gathers": ("grid_sample", {}, lambda n: [image(n), normal(1, *image(n).shape[2:], 2)]),
    "attention": ("scaled_dot_product_attention", SPEECH, heads),
    "convolution": ("conv2d", CONV, lambda n: [image(n), normal(4, 4, 3, 3)]),
    "triangles": ("triangle", {}, square),
    "factors": ("inverse", {}, square),
    "indexed": ("gather_elements", {"axis": 1}, indexed),
    "distances": ("distances", {}, lambda n: square(n, 2)),
    "rows": ("softmax", {"axis": -1}, square),
    "l2_normalize": ("l2_normalize", {"eps": 1e-6, "axis": (1,)}, square),
    "pools": ("max_pool2d", POOL, lambda n: [image(n)]),
    "resize_grad": ("_upsampling_grad", {"scale": 2, "method": "BILINEAR"}, lambda n: [image(n)]),
    "totals": ("logsumexp", {"axis": (1,)}, square),
    "positions": ("argmax", {"axis": (0,)}, square),
    "masks": ("_max_mask", {"axis": (0,)}, square),
    "scans": ("cumsum", {"axis": 1}, square),
}


def seconds(call: Callable[[], Any]) -> float:
    call()
    once = max(min(timeit.repeat(call, number=1, repeat=3, timer=time.thread_time)), 1e-7)
    number, repeat = max(int(2e-4 / once), 1), max(min(int(5e-3 / once), 20), 2)
    return min(timeit.repeat(call, number=number, repeat=repeat, timer=time.thread_time)) / number


def is_faster(name: str, attrs: dict[str, Any], arrays: list[Array]) -> bool:
    """Whether native code takes less time; False where it leaves the sizes to numpy."""
    op = Op.get(name)
    params, kernel = params_of(op, attrs), kernel_of(op)
    try:
        if kernel.native(params, arrays) is None:
            return False
    except Declined:
        return False
    with np.errstate(all="ignore"):
        reference = seconds(lambda: op.call_with(kernel.reference, params, *arrays))
        return seconds(lambda: kernel.native(params, arrays)) < reference


def crossing(name: str, attrs: dict[str, Any], make: Make) -> int | None:
    """The least power of two from which on native code is faster, as far as is looked."""
    least, size = None, LARGEST
    while size >= SMALLEST and is_faster(name, attrs, make(size)):
        least, size = size, size // 2
    return least


def rows(names: list[str]) -> Iterator[str]:
    for row in names or CALLS:
        least = crossing(*CALLS[row])
        stated = getattr(FROM, row, None) or kernel_of(Op.get(CALLS[row][0])).native_from
        yield f"{row:14} {stated:>8} {'none' if least is None else least:>8}  {CALLS[row][0]}"


if __name__ == "__main__":
    weft.set_num_threads(1)
    print(f"{'row':14} {'table':>8} {'measured':>8}  operator")
    for line in rows(sys.argv[1:]):
        print(line, flush=True)
