"""A fused group becomes compiled kernels, made once: groups that are equal, in this model or in an
earlier one, share them; so do other processes, through the disk cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..base import config
from ..base.file_cache import file_cache
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, NodeEntry
from ..lower.dispatch import lower
from ..lower.group import LoweredKernel
from ..lower.signature import signature
from .disk_cache import CompiledKernel, decoded, encoded, group_key
from .kernels import kernel_cache

MAX_GROUPS = 4096
_PRINTED = frozenset({"loops", "llvm", "asm"})

_known: OrderedDict[Hashable, list[CompiledKernel]] = OrderedDict()
_lock = threading.Lock()


def compiled_group(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target
) -> list[CompiledKernel]:
    """The kernels of a group, in order: from memory, from disk, or lowered and compiled now."""
    key = signature(group, fact, target)
    places: list[Hashable] = [*group.inputs, *group.outputs]
    kernels = _remembered(key)
    if kernels is None:
        kernels = _from_disk(key, group, len(places))
    if kernels is None:
        kernels = _made(key, group, fact, target, places)
    else:
        kernel_cache.count_hits(len(kernels))
    _remember(key, kernels)
    return [_with_arguments(kernel, lambda i: places[i]) for kernel in kernels]


def compiled_kernels(kernels: Sequence[LoweredKernel], target: Target) -> list[CompiledKernel]:
    """The same for kernels that are lowered already."""
    return [
        CompiledKernel(kernel.name, kernel_cache.compiled(kernel, target), arguments, work)
        for kernel, arguments, work in kernels
    ]


def _made(
    key: Hashable,
    group: FusedGroup,
    fact: Callable[[NodeEntry], Fact],
    target: Target,
    places: Sequence[Hashable],
) -> list[CompiledKernel]:
    position = {place: number for number, place in enumerate(places)}
    made = compiled_kernels(lower(group, fact, target), target)
    kernels = [_with_arguments(kernel, lambda entry: position[entry]) for kernel in made]
    disk = file_cache()
    name = None if disk is None else group_key(key, group.nodes)
    if disk is not None and name is not None:
        disk.put(name, encoded(kernels))
    return kernels


def _from_disk(key: Hashable, group: FusedGroup, places: int) -> list[CompiledKernel] | None:
    """Where stages are to be printed, they have to run."""
    disk = file_cache()
    name = None if disk is None else group_key(key, group.nodes)
    if disk is None or name is None or _PRINTED & config.get("debug"):
        return None
    data = disk.get(name)
    kernels = None if data is None else decoded(data)
    if kernels is None or not all(_is_placed(kernel, places) for kernel in kernels):
        return None
    return kernels


def _is_placed(kernel: CompiledKernel, places: int) -> bool:
    return all(not isinstance(a, int) or 0 <= a < places for a in kernel.arguments)


def _remembered(key: Hashable) -> list[CompiledKernel] | None:
    with _lock:
        found = _known.get(key)
        if found is not None:
            _known.move_to_end(key)
        return found


def _remember(key: Hashable, kernels: list[CompiledKernel]) -> None:
    with _lock:
        _known[key] = kernels
        if len(_known) > MAX_GROUPS:
            _known.popitem(last=False)


def forget_groups() -> None:
    """Empties the memory of this process."""
    with _lock:
        _known.clear()


def _with_arguments(kernel: CompiledKernel, place: Callable[[Any], Hashable]) -> CompiledKernel:
    """The kernel with graph entries and positions exchanged; temporaries stay what they are."""
    arguments = tuple(place(a) if isinstance(a, (int, NodeEntry)) else a for a in kernel.arguments)
    return kernel._replace(arguments=arguments)
