"""Groups lowered ahead: while LLVM works on the code of one kernel, outside Python and in a thread
of its own, the next ones are lowered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..base.forks import held_lock
from ..base.machine import usable_cores
from ..core.ir import Fact, NodeEntry
from ..lower.group import LoweredKernel
from .groups import GroupCall, KernelMaker
from .kernels import kernel_cache

SWITCH_SECONDS = 0.0002  # after which one thread that wants to go on in Python has the other let it

_lock = held_lock("table")
_quick: list[float] = []  # the interval that there was before, once for each that wants a short one


@contextmanager
def quick_switches() -> Iterator[None]:
    """Lets a thread that comes back from LLVM wait less for Python: it does so ten times for each kernel, and by
    Python's own interval would spend longer waiting than compiling."""
    with _lock:
        _quick.append(_quick[0] if _quick else sys.getswitchinterval())
        sys.setswitchinterval(min(SWITCH_SECONDS, _quick[0]))
    try:
        yield
    finally:
        with _lock:
            sys.setswitchinterval(_quick.pop() if len(_quick) == 1 else min(SWITCH_SECONDS, _quick.pop()))


@contextmanager
def lowered_ahead(
    calls: Sequence[GroupCall], fact: Callable[[NodeEntry], Fact], maker: KernelMaker, done: Callable[[int], None]
) -> Iterator[dict[int, Sequence[LoweredKernel]]]:
    """The lowered kernels of groups that nobody has compiled before, by the group's id; of equal
    groups, of the first. Inside the `with` block their code is being made. `done(count)` is called
    after each."""
    distinct: dict[Hashable, GroupCall] = {}
    for call in calls:
        distinct.setdefault(call.signature, call)
    missing = [call for call in distinct.values() if not maker.is_known(call)]
    lowered: dict[int, Sequence[LoweredKernel]] = {}
    if usable_cores() < 2 or len(missing) < 2:
        yield lowered
        return
    llvm = ThreadPoolExecutor(1, thread_name_prefix="weft-llvm")
    try:
        with quick_switches():
            for call in missing:
                lowered[id(call.group)] = kernels = maker.lowered(call, fact)
                for kernel, _, _ in kernels:
                    kernel_cache.begin(kernel, maker.target, llvm)
                done(len(lowered))
        yield lowered
    finally:
        llvm.shutdown(wait=True, cancel_futures=True)
        kernel_cache.forget(kernel for kernels in lowered.values() for kernel, _, _ in kernels)
