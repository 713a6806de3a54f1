"""A fused group becomes compiled kernels, made once: groups that are equal, in this model or in an
earlier one, share them; so do other processes, through the disk cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from ..base import config
from ..base.file_cache import file_cache
from ..base.forks import held_lock
from ..base.target import Target
from ..core.fused import FusedGroup
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import subscribe
from ..lower.group import LoweredKernel, Strides, Temporary
from ..lower.signature import signature
from .backends import backend_of
from .disk_cache import CompiledKernel, decoded, encoded, group_key
from .kernels import kernel_cache

MAX_GROUPS = 4096
_PRINTED = frozenset({"loops", "llvm", "asm"})

_known: OrderedDict[Hashable, list[CompiledKernel]] = OrderedDict()
_lock = held_lock("table")


def compiled_group(
    group: FusedGroup,
    fact: Callable[[NodeEntry], Fact],
    target: Target,
    strides: Strides | None = None,
    lowered: Sequence[LoweredKernel] | None = None,
) -> list[CompiledKernel]:
    """The kernels of a group, in order; what it was lowered to may be known."""
    key = group_signature(group, fact, target, strides)
    lower = backend_of(target).lowering.lower
    make = lambda: lower(group, fact, target, strides) if lowered is None else lowered
    return compiled_once(key, _places(group), make, target, group.nodes)


def group_signature(
    group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: Target, strides: Strides | None = None
) -> Hashable:
    """What decides about the kernels of a group: equal ones, equal kernels."""
    key = signature(group, fact, target)
    return (key, tuple(map(strides.get, _places(group)))) if strides else key


def _places(group: FusedGroup) -> list[Hashable]:
    return [*group.inputs, *group.outputs]


def is_known(key: Hashable, group: FusedGroup, target: Target) -> bool:
    """Whether a group of this signature is in memory, where it is now if it was on disk."""
    kernels = _remembered(key)
    if kernels is None:
        kernels = _from_disk(key, group.nodes, len(_places(group)), target)
        if kernels is not None:
            _remember(key, kernels)
    return kernels is not None


def compiled_once(
    key: Hashable,
    places: Sequence[Hashable],
    make: Callable[[], Sequence[LoweredKernel]],
    target: Target,
    nodes: Iterable[Node] = (),
) -> list[CompiledKernel]:
    """Kernels whose arguments are among `places`: from memory, from disk, or lowered and compiled
    now. The key and the bodies of the nodes say all that decides about them."""
    kernels = _remembered(key)
    if kernels is None:
        kernels = _from_disk(key, nodes, len(places), target)
    if kernels is None:
        kernels = _made(key, places, make, target, nodes)
    else:
        kernel_cache.count(hits=len(kernels))
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
    places: Sequence[Hashable],
    make: Callable[[], Sequence[LoweredKernel]],
    target: Target,
    nodes: Iterable[Node],
) -> list[CompiledKernel]:
    position = {place: number for number, place in enumerate(places)}
    made = compiled_kernels(make(), target)
    kernels = [_with_arguments(kernel, lambda entry: position[entry]) for kernel in made]
    disk = file_cache()
    name = None if disk is None else _file_key(key, nodes, target)
    if disk is not None and name is not None:
        disk.put(name, encoded(kernels))
    return kernels


def _from_disk(key: Hashable, nodes: Iterable[Node], places: int, target: Target) -> list[CompiledKernel] | None:
    """Where stages are to be printed, they have to run."""
    disk = file_cache()
    name = None if disk is None else _file_key(key, nodes, target)
    if disk is None or name is None or _PRINTED & config.get("debug"):
        return None
    data = disk.get(name)
    kernels = None if data is None else decoded(data)
    if kernels is None or not all(_is_placed(kernel, places) for kernel in kernels):
        return None
    return kernels


def _file_key(key: Hashable, nodes: Iterable[Node], target: Target) -> bytes | None:
    return group_key((backend_of(target).codegen.key(target), key), nodes)


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


subscribe(lambda op, name: forget_groups())  # a rule of an operator may be another one


def _with_arguments(kernel: CompiledKernel, place: Callable[[Any], Hashable]) -> CompiledKernel:
    """The kernel with places and positions exchanged; temporaries stay what they are."""
    arguments = tuple(a if isinstance(a, Temporary) else place(a) for a in kernel.arguments)
    return kernel._replace(arguments=arguments)
