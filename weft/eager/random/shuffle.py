"""The exchanges that make a random order: partners of places come in, the order goes out."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...runtime.cpu.jit import load_ir

_MANY = 20_000  # from here on it pays to load native code
_IR = """
define void @weft_exchange(ptr %order, ptr %partners, i64 %count) nounwind {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at.partner = getelementptr i64, ptr %partners, i64 %i
  %j = load i64, ptr %at.partner, align 8
  %at.i = getelementptr i64, ptr %order, i64 %i
  %at.j = getelementptr i64, ptr %order, i64 %j
  %here = load i64, ptr %at.i, align 8
  %there = load i64, ptr %at.j, align 8
  store i64 %here, ptr %at.j, align 8
  store i64 %there, ptr %at.i, align 8
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""


@functools.cache
def _native() -> Callable[[int, int, int], None]:
    library = load_ir(_IR, ["weft_exchange"])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = kind(library.address("weft_exchange"))
    return lambda order, partners, count, _library=library: function(  # type: ignore[misc]
        order, partners, count
    )


def exchanged(partners: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers up to the count of partners, after place i was exchanged with partner i, for each
    i in turn.

    >>> exchanged(np.array([2, 1])).tolist()
    [2, 1, 0]
    """
    count = partners.size
    if count < _MANY:
        order = list(range(count + 1))
        for i, j in enumerate(partners.tolist()):
            order[i], order[j] = order[j], order[i]
        return np.array(order)
    places = np.arange(count + 1)
    partners = np.ascontiguousarray(partners)
    _native()(places.ctypes.data, partners.ctypes.data, count)
    return places
