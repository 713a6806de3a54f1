"""Groups lowered ahead: while LLVM works on the code of one kernel, outside Python and in a thread
of its own, the next ones are lowered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..base.machine import usable_cores
from ..core.ir import Fact, NodeEntry
from ..lower.group import LoweredKernel
from .groups import GroupCall, KernelMaker
from .kernels import kernel_cache


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
        for call in missing:
            lowered[id(call.group)] = kernels = maker.lowered(call, fact)
            for kernel, _, _ in kernels:
                kernel_cache.begin(kernel, maker.target, llvm)
            done(len(lowered))
        yield lowered
    finally:
        llvm.shutdown(wait=True, cancel_futures=True)
        kernel_cache.forget(kernel for kernels in lowered.values() for kernel, _, _ in kernels)
