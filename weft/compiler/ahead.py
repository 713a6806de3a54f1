"""Groups lowered ahead: while LLVM works on the code of one kernel, outside Python and in a thread
of its own, the next ones are lowered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ..base.machine import usable_cores
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry
from ..lower.group import LoweredKernel, Strides
from .backends import backend_of
from .groups import group_signature, is_known
from .kernels import kernel_cache

Call = tuple[FusedGroup, Strides | None]


@contextmanager
def lowered_ahead(
    calls: Sequence[Call], fact: Callable[[NodeEntry], Fact], target: Target, done: Callable[[int], None]
) -> Iterator[dict[int, Sequence[LoweredKernel]]]:
    """The lowered kernels of groups that nobody has compiled before, by the group's id; of equal
    groups, of the first. Inside the `with` block their code is being made. `done(count)` is called
    after each."""
    distinct: dict[Hashable, Call] = {}
    for group, strides in calls:
        distinct.setdefault(group_signature(group, fact, target, strides), (group, strides))
    missing = [call for key, call in distinct.items() if not is_known(key, call[0], target)]
    lowered: dict[int, Sequence[LoweredKernel]] = {}
    if usable_cores() < 2 or len(missing) < 2:
        yield lowered
        return
    lower = backend_of(target).lowering.lower
    llvm = ThreadPoolExecutor(1, thread_name_prefix="weft-llvm")
    try:
        for group, strides in missing:
            lowered[id(group)] = kernels = lower(group, fact, target, strides)
            for kernel, _, _ in kernels:
                kernel_cache.begin(kernel, target, llvm)
            done(len(lowered))
        yield lowered
    finally:
        llvm.shutdown(wait=True, cancel_futures=True)
        kernel_cache.forget(kernel for kernels in lowered.values() for kernel, _, _ in kernels)
