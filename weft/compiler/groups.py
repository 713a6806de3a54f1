"""A fused group becomes compiled kernels, made once: groups that are equal, in this model or in an
earlier one, share them; so do other processes, through the disk cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

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
from .stages import reached

MAX_GROUPS = 4096
_PRINTED = frozenset({"loops", "llvm", "asm"})

_known: OrderedDict[Hashable, list[CompiledKernel]] = OrderedDict()
_lock = held_lock("table")


class GroupCall(NamedTuple):
    """A group with the strides of its places, and its signature: what decides about its kernels."""

    group: FusedGroup
    strides: Strides | None
    signature: Hashable


class LoweredGroup(NamedTuple):
    """A group and its kernels as loops."""

    group: FusedGroup
    kernels: Sequence[LoweredKernel]


class KernelMaker:
    """Compiles the groups of a program; what others have compiled before is taken from memory or disk."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def call_of(self, group: FusedGroup, fact: Callable[[NodeEntry], Fact], strides: Strides) -> GroupCall:
        """The group with its signature, which is computed here alone."""
        key = signature(group, fact, self.target)
        return GroupCall(group, strides, (key, tuple(map(strides.get, places_of(group)))) if strides else key)

    def is_known(self, call: GroupCall) -> bool:
        """Whether the kernels of a group are in memory, where they are now if they were on disk."""
        group, _, key = call
        kernels = _remembered(key)
        if kernels is None:
            kernels = _from_disk(key, group.nodes, len(places_of(group)), self.target)
            if kernels is not None:
                _remember(key, kernels)
        return kernels is not None

    def compiled_group(
        self, call: GroupCall, fact: Callable[[NodeEntry], Fact], lowered: Sequence[LoweredKernel] | None = None
    ) -> list[CompiledKernel]:
        """The kernels of a group, in order; what it was lowered to may be known."""
        make = lambda: self.lowered(call, fact) if lowered is None else lowered
        return self.compiled_once(call.signature, places_of(call.group), make, call.group.nodes)

    def lowered(self, call: GroupCall, fact: Callable[[NodeEntry], Fact]) -> list[LoweredKernel]:
        """The kernels of a group as loops."""
        lowering = backend_of(self.target).lowering
        kernels = lowering.lower(call.group, fact, self.target, call.strides)
        reached("lowered", lowering.lower, LoweredGroup(call.group, kernels), detail=True)
        return kernels

    def compiled_once(
        self,
        key: Hashable,
        places: Sequence[Hashable],
        make: Callable[[], Sequence[LoweredKernel]],
        nodes: Iterable[Node] = (),
    ) -> list[CompiledKernel]:
        """Kernels whose arguments are among `places`: from memory, from disk, or lowered and compiled
        now. The key and the bodies of the nodes say all that decides about them."""
        kernels = _remembered(key)
        if kernels is None:
            kernels = _from_disk(key, nodes, len(places), self.target)
        if kernels is None:
            kernels = _made(key, places, make, self.target, nodes)
        else:
            kernel_cache.count(hits=len(kernels))
        _remember(key, kernels)
        return [with_arguments(kernel, lambda i: places[i]) for kernel in kernels]

    def compiled_kernels(self, kernels: Sequence[LoweredKernel]) -> list[CompiledKernel]:
        """The same for kernels that are lowered already."""
        return compiled_kernels(kernels, self.target)


def places_of(group: FusedGroup) -> list[Hashable]:
    """What the kernels of a group read and write, their temporaries aside."""
    return [*group.inputs, *group.outputs]


def compiled_kernels(kernels: Sequence[LoweredKernel], target: Target) -> list[CompiledKernel]:
    """The code of kernels that are lowered already."""
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
    kernels = [with_arguments(kernel, lambda entry: position[entry]) for kernel in made]
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


def with_arguments(kernel: CompiledKernel, place: Callable[[Any], Hashable]) -> CompiledKernel:
    """The kernel with places and positions exchanged; temporaries stay what they are."""
    arguments = tuple(a if isinstance(a, Temporary) else place(a) for a in kernel.arguments)
    return kernel._replace(arguments=arguments)
